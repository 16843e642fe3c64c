//! The servers of a cloud, and what each asks of the node that runs on it.

use super::error::{Error, Urgency};
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

/// The servers that nodes run on. What is read is about cloud servers; of dedicated ones, see [`Dedicated`].
pub trait Instances: Send + Sync {
    /// All cloud servers: complete, or an error. `Urgency::CanWait` may be refused to save the API's budget.
    fn list(&self, urgency: Urgency) -> Result<Vec<Instance>, Error>;

    /// The cloud server of this number as it is now; `ErrorKind::NotFound` only when the cloud itself says that it
    /// does not exist.
    fn get(&self, number: u64) -> Result<Instance, Error>;

    /// The cloud servers that have this name as it is now: complete, or an error.
    fn named(&self, name: &str) -> Result<Vec<Instance>, Error>;

    /// Those of these numbers that exist, and any others: one of them that is not in the answer did not exist at some
    /// moment during this call. `place`: how many servers have a lower number, as far as is known, so that they are
    /// found in a long list by few calls.
    fn around(
        &self,
        numbers: &BTreeSet<u64>,
        place: &dyn Fn(u64) -> usize,
        urgency: Urgency,
    ) -> Result<Vec<Instance>, Error>;

    /// What a node on this server should carry. Pure. The finding of an error says why there is no answer.
    fn metadata(&self, instance: &Instance, node: &Node) -> Result<Metadata, Box<Finding>>;

    /// Networks and addresses by which a node that reports one of them is recognised as this server. Pure.
    fn recognised_by(&self, instance: &Instance) -> Vec<IpNet>;

    /// May a server set this label of its node? Pure.
    fn allows_label(&self, key: &str) -> bool;

    /// Why an address that the kubelet was given is not one of the server's in `metadata`,
    /// where the provider knows more than that. Pure.
    fn explain_missing(&self, _instance: &Instance, _ip: IpAddr) -> Option<Finding> {
        None
    }
}

/// Dedicated servers, which an API of their own lists: its credentials, its budget, its outages.
pub trait Dedicated: Send + Sync {
    /// All that the credentials show: complete, or an error.
    fn list(&self, urgency: Urgency) -> Result<Vec<Instance>, Error>;

    /// Does it exist? `ErrorKind::NotFound` only when the API itself says that it does not.
    fn get(&self, number: u64) -> Result<(), Error>;

    /// Is it switched off? None: the API does not know.
    fn is_off(&self, number: u64) -> Result<Option<bool>, Error>;

    /// When the API refused a login; none: one was accepted since, or none was tried.
    fn login_refused(&self) -> Option<Timestamp>;

    /// A login of another process was refused then: this one waits as if it had been its own.
    fn wait_since(&self, refused: Timestamp);

    /// Until when no login is tried, because one was refused.
    fn blocked_until(&self) -> Option<Timestamp>;
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

/// Number of a server, and which API it belongs to: the same number may be one in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(untagged)]
pub enum InstanceId {
    /// Never reused by the cloud.
    Cloud(u64),
    /// Of a dedicated server.
    Dedicated(u64),
}

/// A server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Instance {
    pub id: InstanceId,
    /// Unique among the servers one token sees.
    pub name: String,
    /// In the cloud's word, e.g. `running`.
    pub state: Interned,
    pub is_off: bool,
    /// It runs the rescue system, or will after its next start.
    pub is_in_rescue: bool,
    /// No action can be started: another one runs, or the cloud's operator locked it.
    pub is_locked: bool,
    /// Of a dedicated server: its contract ends.
    pub is_cancelled: bool,
    /// Of a dedicated server, e.g. `2026-12-01`; else empty.
    pub paid_until: Interned,
    /// Name of its type, e.g. `cx22`.
    pub instance_type: Interned,
    /// Where it stands, e.g. `fsn1`.
    pub location: Interned,
    /// Of a dedicated server, e.g. `fsn1-dc16`; else empty.
    pub data_center: Interned,
    /// The network zone that location is in, e.g. `eu-central`.
    pub network_zone: Interned,
    pub public_ipv4: Option<Ipv4Addr>,
    /// The network routed to it; it answers on the first address.
    pub public_ipv6: Option<Ipv6Net>,
    pub private: Vec<PrivateAddress>,
    /// Those that may become labels of its node ([`Instances::allows_label`]).
    pub labels: BTreeMap<Interned, Interned>,
}

/// Its address in one private network.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PrivateAddress {
    /// Number of the network.
    pub network: u64,
    pub ip: IpAddr,
    /// More addresses of it in the same network.
    pub aliases: Vec<IpAddr>,
}

/// What a node on a server should carry, each value with what asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    pub provider_id: Sourced<String>,
    /// In the order in which they should stand.
    pub addresses: Vec<Sourced<NodeAddress>>,
    /// Instance type, zone and region, as far as the cloud has them.
    pub topology: Vec<(TopologyLabel, Sourced<String>)>,
    /// More labels, set at initialisation where the node has none of that name.
    pub extra_labels: BTreeMap<String, Sourced<String>>,
    pub findings: Vec<Finding>,
}

/// A label that Kubernetes knows under a stable and a beta key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopologyLabel {
    InstanceType,
    Zone,
    Region,
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

    /// The number of a cloud server.
    pub fn cloud(self) -> Option<u64> {
        match self {
            InstanceId::Cloud(number) => Some(number),
            InstanceId::Dedicated(_) => None,
        }
    }

    /// The number of a dedicated server.
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

/// A cloud server by its number, a dedicated one as its provider ID has it.
impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InstanceId::Cloud(number) => number.fmt(f),
            InstanceId::Dedicated(number) => write!(f, "hrobot://{number}"),
        }
    }
}

/// What is known of all servers, API by API. The error: that API did not answer, so nothing may be concluded from
/// what is not listed.
#[derive(Clone, Copy, Debug)]
pub struct Servers<'a> {
    pub cloud: Result<&'a [Instance], &'a Error>,
    pub dedicated: Result<&'a [Instance], &'a Error>,
}

impl<'a> Servers<'a> {
    pub fn iter(&self) -> impl Iterator<Item = &'a Instance> {
        let lists = [self.cloud, self.dedicated];
        lists.into_iter().flatten().flatten()
    }

    /// Why it is not known whether a server exists that is not listed.
    pub fn unknown(&self, id: InstanceId) -> Option<&'a Error> {
        match id {
            InstanceId::Cloud(_) => self.cloud.err(),
            InstanceId::Dedicated(_) => self.dedicated.err(),
        }
    }

    /// The API that did not answer.
    pub fn error(&self) -> Option<&'a Error> {
        self.cloud.err().or(self.dedicated.err())
    }
}

/// Of a cloud without dedicated servers.
impl<'a, T: AsRef<[Instance]> + ?Sized> From<&'a T> for Servers<'a> {
    fn from(cloud: &'a T) -> Servers<'a> {
        Servers { cloud: Ok(cloud.as_ref()), dedicated: Ok(&[]) }
    }
}
