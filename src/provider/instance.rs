//! The servers of a cloud, and the values that the node on each server should have.

use super::error::{ProviderError, Urgency};
use super::finding::Finding;
use super::interned::Interned;
use super::node::{Node, NodeAddress};
use super::source::Sourced;
use ipnet::{IpNet, Ipv6Net};
use jiff::Timestamp;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

/// The servers that nodes run on. The methods that read are about cloud servers. For
/// dedicated servers, see [`Dedicated`].
pub trait Instances: Send + Sync {
    /// Returns all cloud servers. An incomplete list is an error. A call with `Urgency::CanWait` may be refused to save
    /// the API's budget.
    fn list(&self, urgency: Urgency) -> Result<Vec<Instance>, ProviderError>;

    /// Returns the cloud server with this ID as it is now. The error is `ErrorKind::NotFound` only when the cloud
    /// itself says that the server does not exist.
    fn get(&self, number: u64) -> Result<Instance, ProviderError>;

    /// Returns the cloud servers with this name as they are now. An incomplete list is an error.
    fn named(&self, name: &str) -> Result<Vec<Instance>, ProviderError>;

    /// Returns the servers with these IDs, as far as they exist, and possibly others. A server that is not in the
    /// answer did not exist at some moment of this call. `place` estimates how many servers have a lower ID, so that
    /// few calls find the servers in a long list.
    fn around(
        &self,
        numbers: &BTreeSet<u64>,
        place: &dyn Fn(u64) -> usize,
        urgency: Urgency,
    ) -> Result<Vec<Instance>, ProviderError>;

    /// Returns what a node on this server should have. The error is a finding that says why there is no answer. Pure.
    fn metadata(&self, instance: &Instance, node: &Node) -> Result<Metadata, Box<Finding>>;

    /// Returns networks and addresses. A node that reports an address in one of them is recognised
    /// as this server. Pure.
    fn recognised_by(&self, instance: &Instance) -> Vec<IpNet>;

    /// Whether a server may set this label of its node. Pure.
    fn allows_label(&self, key: &str) -> bool;

    /// Returns why an address that the kubelet was given is not one of the server's addresses in `metadata`. `None`
    /// when the provider knows nothing more than that. Pure.
    fn explain_missing(&self, _instance: &Instance, _ip: IpAddr) -> Option<Finding> {
        None
    }
}

/// Dedicated servers. They are listed by an API of their own, with its own credentials, its own budget
/// and its own outages.
pub trait Dedicated: Send + Sync {
    /// Returns all servers that the credentials show. An incomplete list is an error.
    fn list(&self, urgency: Urgency) -> Result<Vec<Instance>, ProviderError>;

    /// Checks whether the server exists. The error is `ErrorKind::NotFound` only when the API itself says
    /// that it does not.
    fn get(&self, number: u64) -> Result<(), ProviderError>;

    /// Whether the server is switched off. `None` means that the API does not know it.
    fn is_off(&self, number: u64) -> Result<Option<bool>, ProviderError>;

    /// Returns when the API refused a login. `None` when a login was accepted since then, or when no login was tried.
    fn login_refused(&self) -> Option<Timestamp>;

    /// Notes that a login of another process was refused at this time. This process then waits as if its own
    /// login had been refused.
    fn wait_since(&self, refused: Timestamp);

    /// Returns the time until which no login is tried, because a login was refused.
    fn blocked_until(&self) -> Option<Timestamp>;
}

/// The meaning of a node's `spec.providerID` for one cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProviderId {
    /// The provider ID of a server of this cloud.
    Ours(InstanceId),
    /// A provider ID with the prefix of another cloud. This controller does not change the node.
    Foreign,
    /// A provider ID with our prefix, but without an ID that can be looked up. The text is the reason. A node with such
    /// a provider ID is never deleted, tainted, relabelled or routed.
    Unknown(String),
}

/// The ID of a server, and the API to which the ID belongs, because the same ID may exist in both APIs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(untagged)]
pub enum InstanceId {
    /// The ID of a cloud server. The cloud never uses an ID twice.
    Cloud(u64),
    /// The ID of a dedicated server.
    Dedicated(u64),
}

/// A server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Instance {
    pub id: InstanceId,
    /// The name, which is unique among the servers that one token sees.
    pub name: String,
    /// The state in the cloud's words, e.g. `running`.
    pub state: Interned,
    pub is_off: bool,
    /// Whether the server runs the rescue system, or will after its next start.
    pub is_in_rescue: bool,
    /// Whether no action can be started, because another action runs or the operator of the cloud locked the server.
    pub is_locked: bool,
    /// Whether the contract of a dedicated server is cancelled and ends.
    pub is_cancelled: bool,
    /// The date until which a dedicated server is paid, e.g. `2026-12-01`. Empty for other servers.
    pub paid_until: Interned,
    /// The name of the server's type, e.g. `cx22`.
    pub instance_type: Interned,
    /// The location of the server, e.g. `fsn1`.
    pub location: Interned,
    /// The data center of a dedicated server, e.g. `fsn1-dc16`. Empty for other servers.
    pub data_center: Interned,
    /// The network zone of the location, e.g. `eu-central`.
    pub network_zone: Interned,
    pub public_ipv4: Option<Ipv4Addr>,
    /// The network that is routed to the server. The server answers on the first address.
    pub public_ipv6: Option<Ipv6Net>,
    pub private: Vec<PrivateAddress>,
    /// The labels that may become labels of the server's node ([`Instances::allows_label`]).
    pub labels: BTreeMap<Interned, Interned>,
}

/// The addresses of a server in one private network.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PrivateAddress {
    /// The ID of the network.
    pub network: u64,
    pub ip: IpAddr,
    /// More addresses of the server in the same network.
    pub aliases: Vec<IpAddr>,
}

/// The values that a node on a server should have, each value with its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    pub provider_id: Sourced<String>,
    /// The addresses, in the order in which they should stand on the node.
    pub addresses: Vec<Sourced<NodeAddress>>,
    /// The labels for instance type, zone and region, as far as the cloud has them.
    pub topology: Vec<(TopologyLabel, Sourced<String>)>,
    /// Further labels. Each is set when the node is initialised, unless the node has a label with this key.
    pub extra_labels: BTreeMap<String, Sourced<String>>,
    pub findings: Vec<Finding>,
}

/// A label that Kubernetes knows under a stable key and a beta key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopologyLabel {
    InstanceType,
    Zone,
    Region,
}

impl ProviderId {
    /// Returns the ID of the server when the provider ID names a server of this cloud.
    pub fn ours(self) -> Option<InstanceId> {
        match self {
            ProviderId::Ours(id) => Some(id),
            ProviderId::Foreign | ProviderId::Unknown(_) => None,
        }
    }
}

impl TopologyLabel {
    pub const ALL: [TopologyLabel; 3] =
        [TopologyLabel::InstanceType, TopologyLabel::Zone, TopologyLabel::Region];

    pub fn stable_key(self) -> &'static str {
        match self {
            TopologyLabel::InstanceType => "node.kubernetes.io/instance-type",
            TopologyLabel::Zone => "topology.kubernetes.io/zone",
            TopologyLabel::Region => "topology.kubernetes.io/region",
        }
    }

    pub fn beta_key(self) -> &'static str {
        match self {
            TopologyLabel::InstanceType => "beta.kubernetes.io/instance-type",
            TopologyLabel::Zone => "failure-domain.beta.kubernetes.io/zone",
            TopologyLabel::Region => "failure-domain.beta.kubernetes.io/region",
        }
    }
}

impl InstanceId {
    pub fn number(self) -> u64 {
        match self {
            InstanceId::Cloud(number) | InstanceId::Dedicated(number) => number,
        }
    }

    /// Returns the ID of a cloud server, or `None` for a dedicated server.
    pub fn cloud(self) -> Option<u64> {
        match self {
            InstanceId::Cloud(number) => Some(number),
            InstanceId::Dedicated(_) => None,
        }
    }

    /// Returns the ID of a dedicated server, or `None` for a cloud server.
    pub fn dedicated(self) -> Option<u64> {
        match self {
            InstanceId::Cloud(_) => None,
            InstanceId::Dedicated(number) => Some(number),
        }
    }
}

impl Default for InstanceId {
    fn default() -> InstanceId {
        InstanceId::Cloud(0)
    }
}

/// Prints a cloud server as its number, and a dedicated server as in its provider ID.
impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InstanceId::Cloud(number) => number.fmt(f),
            InstanceId::Dedicated(number) => write!(f, "hrobot://{number}"),
        }
    }
}

/// The servers that each API listed. An error means that the API did not answer, so that nothing may be concluded about
/// servers that are not listed.
#[derive(Clone, Copy, Debug)]
pub struct Servers<'a> {
    pub cloud: Result<&'a [Instance], &'a ProviderError>,
    pub dedicated: Result<&'a [Instance], &'a ProviderError>,
}

impl<'a> Servers<'a> {
    pub fn iter(&self) -> impl Iterator<Item = &'a Instance> {
        [self.cloud, self.dedicated].into_iter().flatten().flatten()
    }

    /// Returns the error of the API that should have listed this server. With such an error, the server may exist
    /// although it is not listed.
    pub fn unknown(&self, id: InstanceId) -> Option<&'a ProviderError> {
        match id {
            InstanceId::Cloud(_) => self.cloud.err(),
            InstanceId::Dedicated(_) => self.dedicated.err(),
        }
    }

    /// Returns the error of the API that did not answer.
    pub fn error(&self) -> Option<&'a ProviderError> {
        self.cloud.err().or(self.dedicated.err())
    }
}

/// Creates the lists of a cloud without dedicated servers.
impl<'a, T: AsRef<[Instance]> + ?Sized> From<&'a T> for Servers<'a> {
    fn from(cloud: &'a T) -> Servers<'a> {
        Servers { cloud: Ok(cloud.as_ref()), dedicated: Ok(&[]) }
    }
}
