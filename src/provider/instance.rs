//! A server of a cloud, and what it asks of the node that runs on it.

use super::{Finding, Interned, NodeAddress, Sourced};
use ipnet::Ipv6Net;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

/// Number of a server; never reused by the cloud.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct InstanceId(pub u64);

/// A server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Instance {
    pub id: InstanceId,
    /// Unique among the servers one token sees.
    pub name: String,
    pub state: InstanceState,
    /// Name of its type, e.g. `cx22`.
    pub instance_type: Interned,
    /// Where it stands, e.g. `fsn1`.
    pub location: Interned,
    /// The network zone that location is in, e.g. `eu-central`.
    pub network_zone: Interned,
    pub public_ipv4: Option<Ipv4Addr>,
    /// The network routed to it; it answers on the first address.
    pub public_ipv6: Option<Ipv6Net>,
    pub private: Vec<PrivateAddress>,
}

/// What the cloud says the server does; controllers only ask whether it is off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum InstanceState {
    Off,
    Running,
    /// Anything in between, in the cloud's own word.
    Other(Interned),
    #[default]
    Unknown,
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

impl TopologyLabel {
    pub const ALL: [TopologyLabel; 3] = [
        TopologyLabel::InstanceType,
        TopologyLabel::Zone,
        TopologyLabel::Region,
    ];

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

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for InstanceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            InstanceState::Off => "off",
            InstanceState::Running => "running",
            InstanceState::Other(word) => word,
            InstanceState::Unknown => "unknown",
        })
    }
}
