//! The interface between the controllers and a cloud. It consists of traits and plain types, without I/O.
//!
//! The interface is the same for every cloud. It imports no other module of this program except `text`. A provider
//! implements the interface for one cloud, and decides what annotations, addresses and labels mean. Controllers call
//! the interface. They decide which taints a node gets, whether the address in a kubelet's `--node-ip` is accepted, and
//! when a node is deleted.

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
pub mod order;
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
    TopologyLabel, ZoneValues,
};
pub use interned::{Interned, NodeLabels};
pub use load_balancer::{
    ActionId, Actions, Applied, Balancer, BalancerHealth, BalancerUse, Cause, CauseKind, Change,
    ChangeKind, CheaperType, Claim, Consumption, EXCHANGES_AT_MOST, EXCHANGES_OF_BALANCER, Field,
    HealthyTargets, KeptObject, LeftOutNode, LeftOutState, LoadBalancerPlan, LoadBalancers, Needs,
    NodeWithPods, Orphan, PlanOutcome, PortOwner, ReplaceOrder, ReplacementShown, SeenHealth,
    ServiceInput, ShownCertificate, Sizing, Snapshot, SoftRemoval, Target, TargetCounts,
    TargetHealth, Then, Usage, WhyKept,
};
pub use node::{AddressKind, Node, NodeAddress, one_ip_or_two};
pub use options::{
    AddressFamily, Algorithm, CertificateDomains, ForeignNodes, HealthCheck, HealthCheckDefaults,
    InternalIpFrom, LabelPrefixes, Labels, LoadBalancerDefaults, NetworkDefaults, NetworkSelector,
    PermittedUse, Profile, ZoneLabel, ZoneSettings, is_kubernetes_label,
};
pub use route::{Network, Route, RouteChange, Routes};
pub use secret::Secret;
pub use service::{
    AnnotationKind, Cluster, Departure, Groups, Ingress, NamespaceAnnotations, NamespaceDefaults,
    OfferedNode, PodNodes, PodsOnNode, Protocol, Reach, SecretName, Service, ServiceName,
    ServicePort, TargetHistory, TlsPair, TlsSecret, TlsSecrets, TrafficPolicy, UntouchedService,
};
pub use source::{Source, Sourced};
pub use tasks::Tasks;
pub use waits::{Open, Waiting, longest_wait, note_waits, waiting_for};

/// Each annotation that a provider reads has a domain that ends with this text, e.g. `load-balancer.hetzner.cloud`.
/// While the API server's answer is parsed, all other annotations of Services and nodes are dropped, except
/// [`PROVIDED_NODE_IP`].
pub const ANNOTATION_DOMAIN: &str = "hetzner.cloud";

/// The annotation in which the kubelet writes its `--node-ip` on its node. For the form of the value see
/// [`one_ip_or_two`].
pub const PROVIDED_NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";

/// The annotation of a node that sets its `InternalIP` addresses. For the form of the value see [`one_ip_or_two`].
pub const INTERNAL_IP: &str = "instance.hetzner.cloud/internal-ip";

/// The annotation of a node that lists the labels that this program has copied from its server, as `KEY=VALUE,…`.
pub const SERVER_LABELS: &str = "instance.hetzner.cloud/server-labels";

/// The interface to a cloud. A method for a part of the cloud, e.g. `routes`, returns `None` when this part is not
/// available.
pub trait Provider: Send + Sync {
    /// Returns the value of `--cloud-provider`, which is `ccm-from-scratch` or `hcloud`. The provider IDs of cloud
    /// servers begin with it.
    fn name(&self) -> &'static str;

    /// Returns the meaning of a node's provider ID for this cloud. Makes no API call.
    fn parse_provider_id(&self, text: &str) -> ProviderId;

    /// Returns the component that is named as the source of an event about a problem that the provider (the code for
    /// one cloud) found. `None` means that the controller is named instead.
    fn event_component(&self) -> Option<&'static str> {
        None
    }

    /// Reads the data that all later calls need, e.g. the private network that the settings name. The caller repeats
    /// this call until it succeeds. Before the first success, the caller makes no call that needs the data. After the
    /// first success, this function does nothing.
    fn prepare(&self) -> Result<(), ProviderError> {
        Ok(())
    }

    /// Returns the number of calls that this process has made to the cloud's API. Each retry counts.
    fn calls(&self) -> u64 {
        0
    }

    /// Whether any call of this process to the cloud's API has succeeded. The result is always `true` for a cloud
    /// without an API.
    fn is_reached(&self) -> bool {
        true
    }

    /// Returns what the command `doctor` reports about the access to the cloud. When `asks` is `true`, the provider can
    /// call the API to find it out. Otherwise it uses only answers to earlier calls.
    fn checkup(&self, _asks: bool) -> Checkup {
        Checkup::default()
    }

    /// Returns the interface to the cloud servers that nodes run on. `None` when the cloud has no such interface.
    fn instances(&self) -> Option<&dyn Instances>;

    /// Returns the interface to the dedicated servers. `None` when the settings do not enable dedicated servers, or
    /// when their credentials are missing.
    fn dedicated(&self) -> Option<&dyn Dedicated> {
        None
    }

    /// Returns the interface to the load balancers. `None` when the settings do not enable load balancers.
    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        None
    }

    /// Whether nodes with a provider ID of another provider, or without one, can be targets of load balancers.
    fn matches_foreign_nodes(&self) -> bool {
        false
    }

    /// Returns the interface to the routes of the nodes' private network. `None` when the settings name no private
    /// network.
    fn routes(&self) -> Option<&dyn Routes> {
        None
    }
}

/// What the command `doctor` reports about the access to the cloud, see [`Provider::checkup`].
#[derive(Clone, Debug, Default)]
pub struct Checkup {
    pub permission: Permission,
    /// The number of calls that the API's rate limit allows, and the number that remains. `None` when no answer of the
    /// API has reported these numbers.
    pub rate_limit: Option<(u64, u64)>,
    /// The seconds by which the API's clock is ahead of this machine's clock. A difference of one or two seconds can
    /// come from the delay of the network. `None` when no answer of the API has shown the time of its clock.
    pub clock_ahead_s: Option<i64>,
    /// The private network that the settings name, as text for display, or the error because of which it is not known.
    /// `None` when the settings name no network.
    pub network: Option<Result<String, ProviderError>>,
    /// Whether the private network announces its routes to dedicated servers (`expose_routes_to_vswitch`). `None` when
    /// this is not known, or when no dedicated servers are connected to the network.
    pub exposes_routes: Option<bool>,
    pub attached: Attached,
}

/// What the credentials allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Permission {
    ReadWrite,
    ReadOnly,
    /// The API refuses the credentials. The text is the API's answer.
    Refused(String),
    /// It is not known what the credentials allow. The text is the reason.
    Unknown(String),
}

/// Whether the machine on which this program runs is attached to the private network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attached {
    Yes,
    /// The machine is not attached to the network. The text lists the networks to which it is attached.
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
