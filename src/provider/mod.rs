//! The contract between the generic controllers and a cloud: traits and plain types, no I/O.
//!
//! The contract knows what a controller asks of any cloud. It imports only `text` of our modules. The meaning of
//! annotations, addresses and labels belongs to the provider behind the contract. Taints, provided node IPs and guards
//! belong to the controllers in front of the contract.

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
    ChangeKind, Claim, Consumption, Field, HealthyTargets, KeptObject, LoadBalancerPlan,
    LoadBalancers, Needs, Orphan, PlanOutcome, PortOwner, SeenHealth, ShownCertificate, Snapshot,
    Target, TargetCounts, TargetHealth, Then, Usage,
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
    AnnotationKind, Cluster, Groups, Ingress, OfferedNode, Protocol, Reach, SecretName, Service,
    ServicePort, TlsPair, TlsSecret, TlsSecrets, TrafficPolicy, UntouchedService,
};
pub use source::{Source, Sourced};
pub use tasks::Tasks;
pub use waits::{Open, Waiting, longest_wait, note_waits, waiting_for};

/// The text with which the domain of an annotation's key must end, so that the annotation of a Service or node is kept.
/// A provider reads only such annotations. All others are dropped while an answer is parsed.
pub const ANNOTATION_DOMAIN: &str = "hetzner.cloud";

/// The annotation of a node that holds its kubelet's `--node-ip`, in the form of [`one_ip_or_two`].
pub const PROVIDED_NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";

/// The annotation of a node that lists the `InternalIP`s that the node gets, in the form of [`one_ip_or_two`].
pub const INTERNAL_IP: &str = "instance.hetzner.cloud/internal-ip";

/// The annotation of a node that lists the labels that the node has from its server, as they were set: `KEY=VALUE,…`.
pub const SERVER_LABELS: &str = "instance.hetzner.cloud/server-labels";

/// A cloud. A method returns `None` for something that the cloud does not offer.
pub trait Provider: Send + Sync {
    /// Returns the name of the profile, e.g. `ccm-from-scratch`. It is also the prefix of the provider IDs
    /// that this provider writes.
    fn name(&self) -> &'static str;

    /// Returns what the provider ID of a node means to this cloud. Pure.
    fn parse_provider_id(&self, text: &str) -> ProviderId;

    /// Returns the component that events about the provider's own findings name. `None` means the
    /// name of the controller.
    fn event_component(&self) -> Option<&'static str> {
        None
    }

    /// Reads once the data that every later call needs, e.g. the private network that the settings name. The caller
    /// calls this method before it reads lists that need the data, until a call succeeds. Later calls cost nothing.
    fn prepare(&self) -> Result<(), ProviderError> {
        Ok(())
    }

    /// Returns how many calls were made to the cloud's API so far. Every try counts.
    fn calls(&self) -> u64 {
        0
    }

    /// Whether a call to the cloud's API has succeeded since the start. A cloud without an API counts as reached.
    fn is_reached(&self) -> bool {
        true
    }

    /// Returns what `doctor` reports about the access to the cloud. When `asks` is `true`, the provider may call the
    /// API for this. Otherwise the result rests on earlier answers of the API.
    fn checkup(&self, _asks: bool) -> Checkup {
        Checkup::default()
    }

    /// Returns the servers that nodes run on.
    fn instances(&self) -> Option<&dyn Instances>;

    /// Returns the dedicated servers. `None` when they are not turned on, or when their credentials are missing.
    fn dedicated(&self) -> Option<&dyn Dedicated> {
        None
    }

    /// Returns the load balancers that Services get.
    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        None
    }

    /// Returns the routes of the private network that the nodes are in.
    fn routes(&self) -> Option<&dyn Routes> {
        None
    }
}

/// The result of [`Provider::checkup`], which changes nothing.
#[derive(Clone, Debug, Default)]
pub struct Checkup {
    pub permission: Permission,
    /// The limit of calls an hour, and how many of them remain. `None` when the API did not say it.
    pub rate_limit: Option<(u64, u64)>,
    /// How many seconds the API's clock is ahead of this machine's clock. A difference of a second or two
    /// comes from the network.
    pub clock_ahead_s: Option<i64>,
    /// The private network that the settings name, for display. `None` when the settings name no network.
    pub network: Option<Result<String, ProviderError>>,
    /// Whether the routes of the private network are exposed to dedicated servers. `None` when this is not known, or
    /// when no dedicated servers are connected to the network.
    pub exposes_routes: Option<bool>,
    pub attached: Attached,
}

/// The permissions of the credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Permission {
    ReadWrite,
    ReadOnly,
    /// The API does not accept the credentials any more. The text is the answer of the API.
    Refused(String),
    /// The permissions are not known. The text is the reason.
    Unknown(String),
}

/// Whether this machine is attached to the private network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attached {
    Yes,
    /// The machine is not attached to the network. The text lists the networks to which the machine is
    /// attached, for display.
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
