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
        NodeAddress {
            kind,
            address: address.to_string(),
        }
    }

    /// The address as an IP, where it is one.
    pub fn ip(&self) -> Option<IpAddr> {
        self.address.parse().ok()
    }
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
