//! The fields of a Kubernetes node that a provider (the code for one cloud) reads.

use super::interned::Interned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

/// A Kubernetes node, with only those fields that a provider (the code for one cloud) reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    pub annotations: BTreeMap<String, String>,
    /// Whether the node still has to be initialised.
    pub is_new: bool,
    /// The present addresses in the node's status. Either the kubelet or this program wrote them.
    pub addresses: Vec<NodeAddress>,
}

/// An entry of `status.addresses` of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeAddress {
    #[serde(rename = "type")]
    pub kind: AddressKind,
    pub address: String,
}

/// The type of a node's address. Kubernetes allows any text as a type, and the usual types have a variant of their own.
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

    /// Returns the address as an IP. `None` for a host name or another text.
    pub fn ip(&self) -> Option<IpAddr> {
        self.address.parse().ok()
    }
}

/// Parses one IP address, or an IPv4 address and an IPv6 address with a comma between them. `None` when the text has
/// another form, or contains an unspecified address such as `0.0.0.0`.
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
