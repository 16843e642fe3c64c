//! Cloud servers: the fields that this program reads from the API, and the conversion to an [`Instance`], the type for
//! servers of every kind.

use super::api::{Location, Resource};
use crate::provider::order;
use crate::provider::{Instance, InstanceId, Interned, LabelPrefixes, PrivateAddress};
use ipnet::Ipv6Net;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

#[derive(Deserialize)]
pub(super) struct CloudServer {
    id: u64,
    pub(super) name: String,
    status: Interned,
    server_type: ServerType,
    location: Location,
    public_net: ServerPublicNet,
    /// The private networks of the server. An answer without this field is an error. Otherwise the server would seem to
    /// have no private address, and the routes to its node would be deleted.
    private_net: Vec<ServerPrivateNet>,
    /// The labels of the server. An answer without this field is an error, because nodes would lose the labels that
    /// they have from their servers.
    #[serde(deserialize_with = "with_domain")]
    labels: BTreeMap<Interned, Interned>,
    #[serde(default)]
    rescue_enabled: bool,
    #[serde(default)]
    locked: bool,
}

/// Keeps only the labels whose key has a domain, because no other label of a server can become a label of a node. This
/// saves memory when there are thousands of servers with many labels.
fn with_domain<'de, D: Deserializer<'de>>(d: D) -> Result<BTreeMap<Interned, Interned>, D::Error> {
    let all: BTreeMap<String, String> = Deserialize::deserialize(d)?;
    let kept = all.into_iter().filter(|(key, _)| key.contains('/'));
    Ok(order::map(kept.map(|(key, value)| (key.into(), value.into()))))
}

#[derive(Deserialize)]
struct ServerType {
    name: Interned,
}

#[derive(Deserialize)]
struct ServerPublicNet {
    ipv4: Option<ServerPublicIp<Ipv4Addr>>,
    ipv6: Option<ServerPublicIp<Ipv6Net>>,
}

#[derive(Deserialize)]
struct ServerPublicIp<T> {
    ip: T,
}

#[derive(Deserialize)]
struct ServerPrivateNet {
    network: u64,
    ip: IpAddr,
    #[serde(default)]
    alias_ips: Vec<IpAddr>,
}

impl Resource for CloudServer {
    const LIST: &'static str = "servers";
    fn id(&self) -> u64 {
        self.id
    }
}

impl CloudServer {
    /// Converts the server to an [`Instance`], the type for servers of every kind. Only the server's labels with a
    /// prefix in `labels` are kept.
    pub(super) fn instance(self, labels: &LabelPrefixes) -> Instance {
        let private = self.private_net.into_iter().map(|private| PrivateAddress {
            network: private.network,
            ip: private.ip,
            aliases: private.alias_ips,
        });
        Instance {
            id: InstanceId::Cloud(self.id),
            name: self.name,
            is_off: self.status == "off",
            state: self.status,
            is_in_rescue: self.rescue_enabled,
            is_locked: self.locked,
            instance_type: self.server_type.name,
            location: self.location.name,
            network_zone: self.location.network_zone,
            public_ipv4: self.public_net.ipv4.map(|ipv4| ipv4.ip),
            public_ipv6: self.public_net.ipv6.map(|ipv6| ipv6.ip),
            private: private.collect(),
            labels: self.labels.into_iter().filter(|(key, _)| labels.allow(key)).collect(),
            ..Instance::default()
        }
    }
}
