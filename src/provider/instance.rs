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

/// The cloud servers that nodes run on. For dedicated servers see [`Dedicated`].
pub trait Instances: Send + Sync {
    /// Returns all cloud servers, or an error when the list is incomplete. When few calls remain in the rate limit,
    /// this program does not send a call that is not urgent, and the result is an error.
    fn list(&self, urgency: Urgency) -> Result<Vec<Instance>, ProviderError>;

    /// Returns the cloud server with this ID as it is now. The error is `ErrorKind::NotFound` only when the cloud
    /// itself says that the server does not exist.
    fn get(&self, number: u64) -> Result<Instance, ProviderError>;

    /// Returns the cloud servers with this name as they are now, or an error when the list is incomplete.
    fn named(&self, name: &str) -> Result<Vec<Instance>, ProviderError>;

    /// Returns all existing servers with these IDs. The result can also contain servers with other IDs, because whole
    /// pages of the list of servers are read. The list is sorted by ID. To guess the page of an ID, `place` estimates
    /// how many servers have a lower ID. So usually only a few pages are read, which saves calls. If one of the IDs is
    /// missing in the result, its server did not exist at some moment during this call.
    fn around(
        &self,
        numbers: &BTreeSet<u64>,
        place: &dyn Fn(u64) -> usize,
        urgency: Urgency,
    ) -> Result<Vec<Instance>, ProviderError>;

    /// Returns an error when Hetzner is carrying out an action on this cloud server, or when it is not known whether
    /// this is so.
    fn check_is_idle(&self, number: u64) -> Result<(), ProviderError>;

    /// Returns the addresses and labels that the node on this server should have. The error is a finding (a message for
    /// the operator) that says why the addresses and labels are not known. Makes no API call.
    fn metadata(&self, instance: &Instance, node: &Node) -> Result<Metadata, Box<Finding>>;

    /// Returns the zone label that a new node on this server would get. Also returns the two values between which a
    /// setting chooses, which are the data center and the location of the server. Makes no API call.
    fn zone(&self, instance: &Instance) -> ZoneValues;

    /// Returns the addresses and networks by which this server is recognised. A node that reports one of these
    /// addresses runs on this server. Makes no API call.
    fn recognised_by(&self, instance: &Instance) -> Vec<IpNet>;

    /// Returns the addresses and networks that the cloud itself states for this server: its public IPv4, its public /64
    /// of IPv6, and its address in the private network that the settings name. Each of them belongs to one server at a
    /// time, and only the cloud can move it to another server. Makes no API call.
    fn stated_addresses(&self, instance: &Instance) -> Vec<IpNet>;

    /// Whether a node is allowed to get this label from its server. Makes no API call.
    fn allows_label(&self, key: &str) -> bool;

    /// Returns a finding (a message for the operator) that says why this address, which the kubelet's `--node-ip`
    /// names, is not among the node's addresses. `None` when the provider does not know the reason. Makes no API call.
    fn explain_missing(&self, _instance: &Instance, _ip: IpAddr) -> Option<Finding> {
        None
    }
}

/// The dedicated servers, which have an API of their own with other credentials, rate limits and outages.
pub trait Dedicated: Send + Sync {
    /// Returns all dedicated servers that the credentials give access to, or an error when the list is incomplete.
    fn list(&self, urgency: Urgency) -> Result<Vec<Instance>, ProviderError>;

    /// Checks that the dedicated server with this number exists. The error is `ErrorKind::NotFound` only when the API
    /// of dedicated servers itself says that the server does not exist.
    fn get(&self, number: u64) -> Result<(), ProviderError>;

    /// Whether the dedicated server with this number is switched off. `None` when the API of dedicated servers can't
    /// tell this.
    fn is_off(&self, number: u64) -> Result<Option<bool>, ProviderError>;

    /// Returns the time at which the API of dedicated servers last refused a login, as far as this process knows.
    /// `None` when a later login was accepted, or when no refused login is known.
    fn login_refused(&self) -> Option<Timestamp>;

    /// Records that the API of dedicated servers refused the login of another process of this program at this time.
    /// This process then does not send its credentials for a while, as after a refused login of its own.
    fn wait_since(&self, refused: Timestamp);

    /// Returns the time until which this process does not send its credentials to the API of dedicated servers, because
    /// a login was refused. `None` when a login is possible now.
    fn blocked_until(&self) -> Option<Timestamp>;
}

/// The meaning of a node's `spec.providerID` for this cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProviderId {
    /// The provider ID of a server of this cloud.
    Ours(InstanceId),
    /// A provider ID with the prefix of another cloud. This program does not change such a node.
    Foreign,
    /// A provider ID with the prefix of this cloud, but without a usable server ID. The text says why the server ID
    /// can't be used. A node with such a provider ID is never deleted, and gets no taints, labels or routes.
    Unknown(String),
    /// The provider ID of a server of this cloud, when the API of this kind of server (Cloud API or Robot) is turned
    /// off by a setting. The text names the setting. A node with this provider ID is treated like a node whose provider
    /// ID is [`Unknown`](ProviderId::Unknown).
    Disabled(String),
}

/// The ID of a server, and the API to which the ID belongs. A cloud server and a dedicated server can have the same
/// number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(untagged)]
pub enum InstanceId {
    /// The ID of a cloud server. The cloud never gives the same ID to another server.
    Cloud(u64),
    /// The ID of a dedicated server.
    Dedicated(u64),
}

/// A server of the cloud: a cloud server or a dedicated server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Instance {
    pub id: InstanceId,
    /// The name of the server. It is unique among the servers that the same credentials give access to.
    pub name: String,
    /// The state of the server as the API names it, e.g. `running`.
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
    /// The IPv6 network that Hetzner routes to the server, usually a /64. `None` when the server has none. This program
    /// assumes that the server itself uses the address that ends with `::1` in this network.
    pub public_ipv6: Option<Ipv6Net>,
    pub private: Vec<PrivateAddress>,
    /// Those labels of the server that are copied to its node, because [`Instances::allows_label`] returns `true` for
    /// them. The other labels of the server are left out.
    pub labels: BTreeMap<Interned, Interned>,
}

/// The addresses of a server in one private network.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PrivateAddress {
    /// The ID of the network.
    pub network: u64,
    pub ip: IpAddr,
    /// The alias IPs, which are further addresses that the server has in the same network besides `ip`.
    pub aliases: Vec<IpAddr>,
}

/// The provider ID, the addresses and the labels that a node should have because of its server. Each value is stored
/// with its source, e.g. a field of the server or an annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    pub provider_id: Sourced<String>,
    /// The addresses in the order in which the node should list them.
    pub addresses: Vec<Sourced<NodeAddress>>,
    /// The labels for instance type, zone and region. A label is missing when the cloud has no value for it.
    pub topology: Vec<(TopologyLabel, Sourced<String>)>,
    /// Labels besides those in `topology`. When the node is initialised, it gets each of these labels, except those
    /// whose key it already has.
    pub extra_labels: BTreeMap<String, Sourced<String>>,
    pub findings: Vec<Finding>,
}

/// The value that a node on this server should have in its zone label, and the two values that this program could have
/// written there (the server's data center and its location).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneValues {
    /// The zone label that a new node on this server gets. `None` means that a new node gets no zone label.
    pub wanted: Sourced<Option<String>>,
    /// The data center and the location of the server. A setting decides which of the two becomes the zone label of the
    /// server's node. Both texts are always present, and a text is empty when it is not known.
    pub possible: [String; 2],
    /// Whether the setting `HCLOUD_INSTANCES_ZONE_LABEL` decides which of the possible zone labels a new node gets.
    /// When this setting is unset, the value of `--cloud-provider` decides.
    pub is_chosen: bool,
}

/// A label for the instance type, the zone or the region of a node. Kubernetes defines a stable key and an older beta
/// key for each of these labels.
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
            ProviderId::Foreign | ProviderId::Unknown(_) | ProviderId::Disabled(_) => None,
        }
    }
}

impl TopologyLabel {
    pub const ALL: [TopologyLabel; 3] =
        [TopologyLabel::InstanceType, TopologyLabel::Zone, TopologyLabel::Region];

    pub const fn stable_key(self) -> &'static str {
        match self {
            TopologyLabel::InstanceType => "node.kubernetes.io/instance-type",
            TopologyLabel::Zone => "topology.kubernetes.io/zone",
            TopologyLabel::Region => "topology.kubernetes.io/region",
        }
    }

    pub const fn beta_key(self) -> &'static str {
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

/// Prints the ID of a cloud server as a number, and the ID of a dedicated server as `hrobot://` and the number.
impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InstanceId::Cloud(number) => number.fmt(f),
            InstanceId::Dedicated(number) => write!(f, "hrobot://{number}"),
        }
    }
}

/// The list of cloud servers and the list of dedicated servers, which come from two APIs. When an API did not answer,
/// its error is stored instead of its list, and it is not known which of its servers exist.
#[derive(Clone, Copy, Debug)]
pub struct Servers<'a> {
    pub cloud: Result<&'a [Instance], &'a ProviderError>,
    pub dedicated: Result<&'a [Instance], &'a ProviderError>,
}

impl<'a> Servers<'a> {
    pub fn iter(&self) -> impl Iterator<Item = &'a Instance> {
        [self.cloud, self.dedicated].into_iter().flatten().flatten()
    }

    /// Returns the error of the API that is responsible for this server: the API of cloud servers or the API of
    /// dedicated servers. `None` when that API has returned its list of servers.
    pub fn unknown(&self, id: InstanceId) -> Option<&'a ProviderError> {
        match id {
            InstanceId::Cloud(_) => self.cloud.err(),
            InstanceId::Dedicated(_) => self.dedicated.err(),
        }
    }

    /// Returns the error of an API that did not return its list of servers: the API of cloud servers or, if that one
    /// has no error, the API of dedicated servers. `None` when both lists were read.
    pub fn error(&self) -> Option<&'a ProviderError> {
        self.cloud.err().or(self.dedicated.err())
    }
}

/// Creates [`Servers`] from a list of cloud servers. The list of dedicated servers is empty.
impl<'a, T: AsRef<[Instance]> + ?Sized> From<&'a T> for Servers<'a> {
    fn from(cloud: &'a T) -> Servers<'a> {
        Servers { cloud: Ok(cloud.as_ref()), dedicated: Ok(&[]) }
    }
}
