//! The contract between the generic controllers and a cloud: traits and plain types, no I/O.
//!
//! Knows: what a controller asks of any cloud. Must never import anything else of ours.
//! Annotations, addresses, labels and profiles belong to the provider behind the contract;
//! taints, provided node IPs and guards belong to the controllers in front of it.

mod checkup;
mod clock;
mod error;
mod finding;
mod gate;
pub mod heartbeat;
mod instance;
mod interned;
mod load_balancer;
mod node;
mod options;
mod route;
mod service;
mod source;

pub use checkup::{Attached, Checkup, Permission};
pub use clock::{LARGEST_DRIFT, Moment};
pub use error::{CORRELATION, Error, ErrorKind, without_correlations};
pub use finding::{Finding, Origin, Reason, Severity};
pub use gate::{Gate, OpenGate, Refused};
pub use instance::{Instance, InstanceId, InstanceState, Metadata, PrivateAddress, TopologyLabel};
pub use interned::Interned;
pub use load_balancer::{
    ActionId, Actions, Applied, Balancer, Change, ChangeKind, Field, Health, Kept,
    LoadBalancerPlan, LoadBalancers, Needs, Orphan, Snapshot, Target,
};
pub use node::{AddressKind, Node, NodeAddress};
pub use options::{AddressFamily, Algorithm, LoadBalancerDefaults, NetworkSelector, Profile};
pub use route::{Network, Route, RouteChange, RouteChangeKind, Routes};
pub use service::{
    Cluster, Ingress, OfferedNode, Protocol, Reach, Service, ServicePort, TrafficPolicy,
};
pub use source::{Source, Sourced};

use ipnet::IpNet;
use std::net::IpAddr;

/// Annotations of Services and nodes are kept where the domain of their key ends so. Whatever a provider
/// reads is below it; all others are dropped while an answer is parsed.
pub const ANNOTATION_DOMAIN: &str = "hetzner.cloud";

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
    /// Called before the first tick and again until it succeeds; costs nothing afterwards.
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

    /// How the cloud is reached and what it says about that. `gate` must let the writes pass
    /// that are harmless by their nature; a cloud that needs none asks for none.
    fn checkup(&self) -> Checkup {
        Checkup::default()
    }

    /// The servers that nodes run on.
    fn instances(&self) -> Option<&dyn Instances>;

    /// The load balancers that Services get.
    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        None
    }

    /// The routes of the private network that nodes are in.
    fn routes(&self) -> Option<&dyn Routes> {
        None
    }
}

/// The servers of a cloud.
pub trait Instances: Send + Sync {
    /// All of them: complete, or an error. `Urgency::CanWait` may be refused to save the API's budget.
    fn list(&self, urgency: Urgency) -> Result<Vec<Instance>, Error>;

    /// One of them as it is now; `ErrorKind::NotFound` only when the cloud itself says that it
    /// does not exist.
    fn get(&self, id: InstanceId) -> Result<Instance, Error>;

    /// What a node on this server should carry. Pure. The finding of an error says why there is no answer.
    fn metadata(&self, instance: &Instance, node: &Node) -> Result<Metadata, Box<Finding>>;

    /// Networks and addresses by which a node that reports one of them is recognised as this server. Pure.
    fn recognised_by(&self, instance: &Instance) -> Vec<IpNet>;

    /// Why the node must keep what it has: an address of the server would go, only by the default
    /// of a setting that the daemon may have another value of. Pure.
    fn hold_back(
        &self,
        _instance: &Instance,
        _has: &[NodeAddress],
        _metadata: &Metadata,
    ) -> Option<Finding> {
        None
    }

    /// Why an address that the kubelet was given is not one of the server's in `metadata`,
    /// where the provider knows more than that. Pure.
    fn explain_missing(&self, _instance: &Instance, _ip: IpAddr) -> Option<Finding> {
        None
    }
}

/// Whether an object or a person waits for the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// A refresh: may be put off while the API's budget is short.
    CanWait,
    /// A node or a Service waits for it.
    Needed,
    /// A person waits for it, and wants to see whatever explains what there is.
    Asked,
}

/// A node's `spec.providerID`, as one cloud understands it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProviderId {
    /// A server of this cloud.
    Ours(InstanceId),
    /// Another cloud's prefix: the node is not ours to touch.
    Foreign,
    /// Our prefix, but no ID that can be looked up; why. Never deleted, tainted, relabelled or routed.
    Unknown(String),
}

impl ProviderId {
    /// The server of this cloud that it names.
    pub fn ours(self) -> Option<InstanceId> {
        match self {
            ProviderId::Ours(id) => Some(id),
            ProviderId::Foreign | ProviderId::Unknown(_) => None,
        }
    }
}
