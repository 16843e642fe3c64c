//! The contract between the controllers and a cloud. It consists of traits and plain types, without I/O.
//!
//! The contract is the same for every cloud, and imports only `text` of our modules. Providers implement the contract,
//! and decide what annotations, addresses and labels mean. Controllers use the contract, and decide about taints,
//! provided node IPs and the conditions under which something may be deleted.

pub mod calls;
pub mod clock;
mod description;
mod error;
mod finding;
mod gate;
pub mod heartbeat;
mod instance;
mod interned;
mod load_balancer;
mod node;
mod options;
pub mod process;
mod route;
mod secret;
mod service;
mod source;
mod tasks;
pub mod variables;
mod waits;

pub use clock::{LARGEST_DRIFT, Moment};
pub use description::{Description, Write, WriteVerb};
pub use error::{CORRELATION, ErrorKind, ProviderError, Urgency, without_correlations};
pub use finding::{Finding, Reason, Severity};
pub use gate::{Gate, OpenGate, Refused};
pub use heartbeat::lock;
pub use instance::{
    Dedicated, Instance, InstanceId, Instances, Metadata, PrivateAddress, ProviderId, Servers,
    TopologyLabel,
};
pub use interned::{Interned, NodeLabels};
pub use load_balancer::{
    ActionId, Actions, Applied, Balancer, BalancerHealth, BalancerUse, Cause, CauseKind, Change,
    ChangeKind, Claim, Consumption, Field, HealthyTargets, KeptObject, LeftOutNode, LeftOutState,
    LoadBalancerPlan, LoadBalancers, Needs, Orphan, PlanOutcome, PortOwner, SeenHealth,
    ServiceInput, ShownCertificate, Snapshot, Target, TargetCounts, TargetHealth, Then, Usage,
    WhyKept,
};
pub use node::{AddressKind, Node, NodeAddress, one_ip_or_two};
pub use options::{
    AddressFamily, Algorithm, CertificateDomains, HealthCheck, HealthCheckDefaults, InternalIpFrom,
    LabelPrefixes, Labels, LoadBalancerDefaults, NetworkDefaults, NetworkSelector, PermittedUse,
    Profile, is_kubernetes_label,
};
pub use route::{Network, Route, RouteChange, Routes};
pub use secret::Secret;
pub use service::{
    AnnotationKind, Cluster, Departure, Groups, Ingress, OfferedNode, Protocol, Reach, SecretName,
    Service, ServicePort, TlsPair, TlsSecret, TlsSecrets, TrafficPolicy, UntouchedService,
};
pub use source::{Source, Sourced};
pub use tasks::Tasks;
pub use waits::{Open, Waiting, longest_wait, note_waits, waiting_for};

/// The end of the domain in an annotation's key. Only annotations whose domain ends so are kept, because a provider
/// reads no other annotation of a Service or node. The other annotations are dropped while an answer is parsed.
pub const ANNOTATION_DOMAIN: &str = "hetzner.cloud";

/// The annotation of a node with the `--node-ip` of its kubelet, in the form of [`one_ip_or_two`].
pub const PROVIDED_NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";

/// The annotation of a node with the `InternalIP`s that the node should get, in the form of [`one_ip_or_two`].
pub const INTERNAL_IP: &str = "instance.hetzner.cloud/internal-ip";

/// The annotation of a node with the labels that were copied from its server, as `KEY=VALUE,…`.
pub const SERVER_LABELS: &str = "instance.hetzner.cloud/server-labels";

/// A cloud. A method that returns `None` means that the cloud does not have this feature.
pub trait Provider: Send + Sync {
    /// Returns the name of the profile, e.g. `ccm-from-scratch`. This name is also the prefix of new provider IDs.
    fn name(&self) -> &'static str;

    /// Returns what a node's provider ID means to this cloud. Pure.
    fn parse_provider_id(&self, text: &str) -> ProviderId;

    /// Returns the component name for events about findings of the provider. `None` means that these events
    /// have the controller's name.
    fn event_component(&self) -> Option<&'static str> {
        None
    }

    /// Reads data that all later calls need, e.g. the private network that the settings name. The caller repeats this
    /// call until it succeeds, before it reads anything that needs the data. After a success, the call does nothing.
    fn prepare(&self) -> Result<(), ProviderError> {
        Ok(())
    }

    /// Returns the number of calls to the cloud's API since the start. Each retry is a call, too.
    fn calls(&self) -> u64 {
        0
    }

    /// Whether a call to the cloud's API has succeeded since the start. Always `true` for a cloud without an API.
    fn is_reached(&self) -> bool {
        true
    }

    /// Returns what `doctor` reports about the access to the cloud. When `asks` is `true`, the provider may call the
    /// API for this. Otherwise it uses only earlier answers.
    fn checkup(&self, _asks: bool) -> Checkup {
        Checkup::default()
    }

    /// Returns the servers that nodes run on.
    fn instances(&self) -> Option<&dyn Instances>;

    /// Returns the dedicated servers. `None` when the settings do not enable them, or when
    /// their credentials are missing.
    fn dedicated(&self) -> Option<&dyn Dedicated> {
        None
    }

    /// Returns the load balancers of the cloud.
    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        None
    }

    /// Returns the routes of the private network to which the nodes are attached.
    fn routes(&self) -> Option<&dyn Routes> {
        None
    }
}

/// The result of [`Provider::checkup`].
#[derive(Clone, Debug, Default)]
pub struct Checkup {
    pub permission: Permission,
    /// The number of calls that the API allows in an hour, and the number that remains. `None` when the API
    /// did not report them.
    pub rate_limit: Option<(u64, u64)>,
    /// By how many seconds the API's clock is ahead of this machine's clock. One or two seconds may come from
    /// delays of the network.
    pub clock_ahead_s: Option<i64>,
    /// The private network that the settings name, as text for display. `None` when they name no network.
    pub network: Option<Result<String, ProviderError>>,
    /// Whether dedicated servers can use the routes of the private network. `None` when this is not known, or when no
    /// dedicated servers are connected to the network.
    pub exposes_routes: Option<bool>,
    pub attached: Attached,
}

/// What the credentials allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Permission {
    ReadWrite,
    ReadOnly,
    /// The API does not accept the credentials. The text is the API's answer.
    Refused(String),
    /// It is not known what the credentials allow. The text is the reason.
    Unknown(String),
}

/// Whether this machine is attached to the private network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attached {
    Yes,
    /// The machine is not attached to the network. The text lists the networks to which the
    /// machine is attached instead.
    No(String),
    /// It is not known whether the machine is attached. The text is the reason.
    Unknown(String),
}

impl Default for Permission {
    fn default() -> Permission {
        Permission::Unknown("not asked".into())
    }
}

impl Default for Attached {
    fn default() -> Attached {
        Attached::Unknown("not asked".into())
    }
}
