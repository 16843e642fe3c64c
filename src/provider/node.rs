//! A Kubernetes node, as far as a cloud needs to know it.

use super::interned::Interned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

/// What a provider may read of a node to describe its server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    pub annotations: BTreeMap<String, String>,
    /// It is not initialised yet.
    pub is_new: bool,
    /// That it has now: its kubelet's, or what was written for it.
    pub addresses: Vec<NodeAddress>,
}

/// One entry of `status.addresses`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeAddress {
    #[serde(rename = "type")]
    pub kind: AddressKind,
    pub address: String,
}

/// Its type. Kubernetes accepts any word; those of the field have a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum AddressKind {
    Hostname,
    InternalIP,
    ExternalIP,
    #[serde(untagged)]
    Other(Interned),
}

impl NodeAddress {
    pub fn new(kind: AddressKind, address: impl ToString) -> NodeAddress {
        NodeAddress { kind, address: address.to_string() }
    }

    /// The address as an IP, where it is one.
    pub fn ip(&self) -> Option<IpAddr> {
        self.address.parse().ok()
    }
}

/// An IP, or an IPv4 and an IPv6 joined by a comma; an unspecified address is none.
pub fn one_ip_or_two(text: &str) -> Option<Vec<IpAddr>> {
    let ips = text.split(',').map(|part| part.trim().parse().ok());
    let ips: Vec<IpAddr> = ips.collect::<Option<_>>()?;
    let is_right = match ips.as_slice() {
        [_] => true,
        [a, b] => a.is_ipv4() != b.is_ipv4(),
        _ => false,
    };
    let is_specified = !ips.iter().any(IpAddr::is_unspecified);
    (is_right && is_specified).then_some(ips)
}

impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.name(), self.address)
    }
}

impl AddressKind {
    pub fn name(&self) -> &str {
        match self {
            AddressKind::Hostname => "Hostname",
            AddressKind::InternalIP => "InternalIP",
            AddressKind::ExternalIP => "ExternalIP",
            AddressKind::Other(name) => name,
        }
    }
}
