//! The contract between the generic controllers and a cloud: traits and plain types, no I/O.
//!
//! Knows: what a controller asks of any cloud. Imports nothing of ours but `text`.
//! What annotations, addresses and labels mean belongs to the provider behind the contract;
//! taints, provided node IPs and guards belong to the controllers in front of it.

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
mod service;
mod source;
mod tasks;
pub mod variables;
mod waits;

pub use clock::{LARGEST_DRIFT, Moment};
pub use description::{Description, Verb, Write};
pub use error::{CORRELATION, Error, ErrorKind, Urgency, without_correlations};
pub use finding::{Finding, Origin, Reason, Severity};
pub use gate::{Gate, OpenGate, Refused};
pub use heartbeat::lock;
pub use instance::{
    Dedicated, Instance, InstanceId, Instances, Metadata, PrivateAddress, ProviderId, Servers,
    TopologyLabel,
};
pub use interned::{Interned, NodeLabels};
pub use load_balancer::{
    ActionId, Actions, Applied, Balancer, BalancerHealth, BalancerUse, Cause, CauseKind, Change,
    ChangeKind, Claim, Consumption, Field, Health, HealthyTargets, Kept, LoadBalancerPlan,
    LoadBalancers, Needs, Orphan, Outcome, PortOwner, SeenHealth, ShownCertificate, Snapshot,
    Target, TargetCounts, Then, Usage,
};
pub use node::{AddressKind, Node, NodeAddress, one_ip_or_two};
pub use options::{
    AddressFamily, Algorithm, CertificateDomains, HealthCheck, HealthCheckDefaults, InternalIpFrom,
    LabelPrefixes, Labels, LoadBalancerDefaults, NetworkDefaults, NetworkSelector, PermittedUse,
    Profile, is_kubernetes_label,
};
pub use route::{Network, Route, RouteChange, RouteChangeKind, Routes};
pub use service::{
    AnnotationKind, Cluster, Groups, Ingress, OfferedNode, PrivateKey, Protocol, Reach, Service,
    ServicePort, TlsPair, TlsSecret, TlsSecrets, TrafficPolicy, UntouchedService,
};
pub use source::{Source, Sourced};
pub use tasks::Tasks;
pub use waits::{Open, Waiting, longest_wait, note_waits, waiting_for};

/// Annotations of Services and nodes are kept where the domain of their key ends so. Whatever a provider
/// reads is below it; all others are dropped while an answer is parsed.
pub const ANNOTATION_DOMAIN: &str = "hetzner.cloud";

/// A node's annotation, set by its kubelet's `--node-ip`, in the form of [`one_ip_or_two`].
pub const PROVIDED_NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";

/// A node's annotation: the `InternalIP`s that it gets, in the form of [`one_ip_or_two`].
pub const INTERNAL_IP: &str = "instance.hetzner.cloud/internal-ip";

/// A node's annotation: the labels that it has from its server, as they were set, `KEY=VALUE,…`.
pub const SERVER_LABELS: &str = "instance.hetzner.cloud/server-labels";

/// A cloud. What it does not offer, it answers with `None`.
pub trait Provider: Send + Sync {
    /// Name of the profile, e.g. `ccm-from-scratch`; also the prefix of the provider IDs it writes.
    fn name(&self) -> &'static str;

    /// What a provider ID that stands on a node means to this cloud. Pure.
    fn parse_provider_id(&self, text: &str) -> ProviderId;

    /// The component that events about the provider's own findings are written as;
    /// none: the controller's name.
    fn event_component(&self) -> Option<&'static str> {
        None
    }

    /// Reads once what every later call needs, e.g. the private network named in the settings.
    /// Called before the lists that rest on it, until it succeeds; costs nothing afterwards.
    fn prepare(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Calls made to the cloud's API so far, every try counted.
    fn calls(&self) -> u64 {
        0
    }

    /// A call to the cloud's API has succeeded since the start. A cloud without one is always reached.
    fn is_reached(&self) -> bool {
        true
    }

    /// How the cloud is reached and what it says about that: what `doctor` shows. `asks`: whether calls may be made for
    /// it; else it is what earlier answers said.
    fn checkup(&self, _asks: bool) -> Checkup {
        Checkup::default()
    }

    /// The servers that nodes run on.
    fn instances(&self) -> Option<&dyn Instances>;

    /// Dedicated servers among them; none: not turned on, or without credentials.
    fn dedicated(&self) -> Option<&dyn Dedicated> {
        None
    }

    /// The load balancers that Services get.
    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        None
    }

    /// The routes of the private network that nodes are in.
    fn routes(&self) -> Option<&dyn Routes> {
        None
    }
}

/// What was found without changing anything.
#[derive(Clone, Debug, Default)]
pub struct Checkup {
    pub permission: Permission,
    /// Calls an hour, and how many of them remain; none: the API did not say.
    pub rate_limit: Option<(u64, u64)>,
    /// By how much the API's clock is ahead of this machine's; a second or two are the network's.
    pub clock_ahead_s: Option<i64>,
    /// The private network that the settings name, for people; none: they name none.
    pub network: Option<Result<String, Error>>,
    /// Whether dedicated servers have that network's routes; none: not known, or none are connected to it.
    pub exposes_routes: Option<bool>,
    pub attached: Attached,
}

/// What the credentials allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Permission {
    ReadWrite,
    ReadOnly,
    /// The API does not accept them any more; its answer.
    Refused(String),
    /// Not known; why.
    Unknown(String),
}

/// Is this machine in the private network?
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attached {
    Yes,
    /// The networks that it is attached to, for people.
    No(String),
    /// Not known; why.
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
