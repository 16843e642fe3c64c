//! Primary IPs of the project, as the API says them: only the fields we read, and the list.

use super::api::{Location, Resource};
use ipnet::IpNet;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// A public address that a server or a load balancer has, and that may outlive it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct PrimaryIp {
    pub id: u64,
    pub name: String,
    /// An IPv4 address, or a /64.
    pub ip: String,
    /// `ipv4` or `ipv6`.
    #[serde(rename = "type")]
    pub kind: String,
    pub location: Location,
    /// Which Services may claim it may rest on them, so they must be in the answer.
    pub labels: BTreeMap<String, String>,
    /// None: it is free.
    #[serde(default)]
    pub assignee_id: Option<u64>,
    #[serde(default)]
    pub assignee_type: String,
    /// It is deleted with what it is assigned to.
    #[serde(default)]
    pub auto_delete: bool,
    #[serde(default)]
    pub blocked: bool,
}

impl PrimaryIp {
    /// `name (id, address)`, as messages write it.
    pub fn shown(&self) -> String {
        format!("{} ({}, {})", self.name, self.id, self.ip)
    }

    /// Does a text name it, as ID, name or address? Several may be named by one text: the ID
    /// counts first, then the name.
    pub(super) fn named<'a>(
        all: impl Iterator<Item = &'a PrimaryIp> + Clone,
        text: &str,
    ) -> Option<&'a PrimaryIp> {
        let by = |is_it: &dyn Fn(&&PrimaryIp) -> bool| all.clone().find(is_it);
        by(&|one| one.id.to_string() == text)
            .or_else(|| by(&|one| one.name == text))
            .or_else(|| by(&|one| covers(&one.ip, text)))
    }
}

/// Does a range, or a single address, hold this address?
pub(super) fn covers(range: &str, address: &str) -> bool {
    let net = |text: &str| {
        let one = text.parse::<IpAddr>().map(IpNet::from);
        one.or_else(|_| text.parse::<IpNet>()).ok()
    };
    match (net(range), net(address)) {
        (Some(range), Some(address)) => range.contains(&address.addr()),
        _ => false,
    }
}

impl Resource for PrimaryIp {
    const LIST: &'static str = "primary_ips";
    const ONE: &'static str = "primary_ip";
    fn id(&self) -> u64 {
        self.id
    }
}
