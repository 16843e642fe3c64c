//! The servers of a cloud, and the data that their nodes should have.

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

/// The servers that nodes run on. All methods that call the API are about cloud servers only. See
/// [`Dedicated`] for dedicated servers.
pub trait Instances: Send + Sync {
    /// Returns all cloud servers, or an error when the list is incomplete. A call with `Urgency::CanWait` may be
    /// refused, so that more urgent calls remain possible.
    fn list(&self, urgency: Urgency) -> Result<Vec<Instance>, ProviderError>;

    /// Returns the cloud server with this ID as it is now. The error is `ErrorKind::NotFound` only when the cloud
    /// itself says that the server does not exist.
    fn get(&self, number: u64) -> Result<Instance, ProviderError>;

    /// Returns the cloud servers with this name as they are now, or an error when the list is incomplete.
    fn named(&self, name: &str) -> Result<Vec<Instance>, ProviderError>;

    /// Returns those servers with these IDs that exist. The result may also have other servers. A server that is not in
    /// the result did not exist at some moment during this call. `place` estimates how many servers have a lower ID, so
    /// that few calls are needed to find the servers in a long list.
    fn around(
        &self,
        numbers: &BTreeSet<u64>,
        place: &dyn Fn(u64) -> usize,
        urgency: Urgency,
    ) -> Result<Vec<Instance>, ProviderError>;

    /// Returns the addresses and labels that the node on this server should have. The error is a finding that says why
    /// they are not known. Pure.
    fn metadata(&self, instance: &Instance, node: &Node) -> Result<Metadata, Box<Finding>>;

    /// Returns addresses and networks by which a server is recognised. A node that reports such an address runs
    /// on this server. Pure.
    fn recognised_by(&self, instance: &Instance) -> Vec<IpNet>;

    /// Whether a node may get this label from its server. Pure.
    fn allows_label(&self, key: &str) -> bool;

    /// Returns a finding that says why the node does not get this address, which its kubelet was given. `None` when the
    /// provider does not know the reason. Pure.
    fn explain_missing(&self, _instance: &Instance, _ip: IpAddr) -> Option<Finding> {
        None
    }
}

/// Dedicated servers. A separate API with its own credentials, rate limits and outages lists them.
pub trait Dedicated: Send + Sync {
    /// Returns all servers that the credentials give access to, or an error when the list is incomplete.
    fn list(&self, urgency: Urgency) -> Result<Vec<Instance>, ProviderError>;

    /// Checks that the server exists. The error is `ErrorKind::NotFound` only when the API itself says that the
    /// server does not exist.
    fn get(&self, number: u64) -> Result<(), ProviderError>;

    /// Whether the server is switched off. `None` when the API can't tell this.
    fn is_off(&self, number: u64) -> Result<Option<bool>, ProviderError>;

    /// Returns the time of the last refused login. `None` when a later login was accepted, or when there
    /// was no login yet.
    fn login_refused(&self) -> Option<Timestamp>;

    /// Records that the API refused a login of another process at this time. This process then waits as after a refused
    /// login of its own.
    fn wait_since(&self, refused: Timestamp);

    /// Returns the time until which no login is tried because of a refused login. `None` when a login may be tried now.
    fn blocked_until(&self) -> Option<Timestamp>;
}

/// What a node's `spec.providerID` means to one cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProviderId {
    /// The provider ID of a server of this cloud.
    Ours(InstanceId),
    /// A provider ID with the prefix of another cloud. This controller does not change the node.
    Foreign,
    /// A provider ID with the prefix of this cloud, but without a usable server ID. The text is the reason. A node with
    /// such a provider ID is never deleted, and gets no taints, labels or routes.
    Unknown(String),
}

/// The ID of a server, together with the API that gave it. Both APIs may use the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(untagged)]
pub enum InstanceId {
    /// The ID of a cloud server. The cloud never gives the same ID to another server.
    Cloud(u64),
    /// The ID of a dedicated server.
    Dedicated(u64),
}

/// A server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Instance {
    pub id: InstanceId,
    /// The name. It is unique among the servers that the same credentials give access to.
    pub name: String,
    /// The state in the cloud's words, e.g. `running`.
    pub state: Interned,
    pub is_off: bool,
    /// Whether the server runs the rescue system, or will do so after its next start.
    pub is_in_rescue: bool,
    /// Whether the server is locked. No action can then be started, because another action runs or the cloud
    /// has locked the server.
    pub is_locked: bool,
    /// Whether the contract of a dedicated server was cancelled.
    pub is_cancelled: bool,
    /// The date until which a dedicated server is paid for, e.g. `2026-12-01`. Empty for cloud servers.
    pub paid_until: Interned,
    /// The name of the server's type, e.g. `cx22`.
    pub instance_type: Interned,
    /// The location of the server, e.g. `fsn1`.
    pub location: Interned,
    /// The data center of a dedicated server, e.g. `fsn1-dc16`. Empty for cloud servers.
    pub data_center: Interned,
    /// The network zone of the location, e.g. `eu-central`.
    pub network_zone: Interned,
    pub public_ipv4: Option<Ipv4Addr>,
    /// The IPv6 network of the server. The server uses its first address.
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

/// The data that the node on a server should have, each value with its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    pub provider_id: Sourced<String>,
    /// The addresses in the order in which the node should list them.
    pub addresses: Vec<Sourced<NodeAddress>>,
    /// The labels for instance type, zone and region. A label is missing when the cloud has no value for it.
    pub topology: Vec<(TopologyLabel, Sourced<String>)>,
    /// Other labels. When a node is initialised, each label is set whose key the node does not have yet.
    pub extra_labels: BTreeMap<String, Sourced<String>>,
    pub findings: Vec<Finding>,
}

/// A label of a node that Kubernetes defines, with its present key and its older beta key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopologyLabel {
    InstanceType,
    Zone,
    Region,
}

impl ProviderId {
    /// Returns the ID of the server, or `None` when the provider ID does not name a server of this cloud.
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

/// Prints a cloud server as a number, and a dedicated server in the same form as in its provider ID.
impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InstanceId::Cloud(number) => number.fmt(f),
            InstanceId::Dedicated(number) => write!(f, "hrobot://{number}"),
        }
    }
}

/// The servers that each of the two APIs listed. When a list is an error, the API did not answer, and a server that is
/// not listed may still exist.
#[derive(Clone, Copy, Debug)]
pub struct Servers<'a> {
    pub cloud: Result<&'a [Instance], &'a ProviderError>,
    pub dedicated: Result<&'a [Instance], &'a ProviderError>,
}

impl<'a> Servers<'a> {
    pub fn iter(&self) -> impl Iterator<Item = &'a Instance> {
        [self.cloud, self.dedicated].into_iter().flatten().flatten()
    }

    /// Returns the error of the API to which this server belongs. `None` when that API answered.
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
