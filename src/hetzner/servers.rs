//! Cloud servers: the fields that are read from the API, and their conversion to [`Instance`].

use super::api::{Api, Resource};
use super::pages::{self, PER_PAGE};
use crate::http::percent_encoded;
use crate::provider::{
    Error, Instance, InstanceId, Interned, LabelPrefixes, PrivateAddress, Urgency,
};
use ipnet::Ipv6Net;
use serde::{Deserialize, Deserializer};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

#[derive(Deserialize)]
struct Server {
    id: u64,
    name: String,
    status: Interned,
    server_type: ServerType,
    location: Location,
    public_net: PublicNet,
    /// The private networks, which every answer must have. Without them, the server would seem to have no private
    /// address, and its routes would be deleted.
    private_net: Vec<PrivateNet>,
    /// The labels, which every answer must have: otherwise nodes would lose their labels.
    #[serde(deserialize_with = "with_domain")]
    labels: BTreeMap<Interned, Interned>,
    #[serde(default)]
    rescue_enabled: bool,
    #[serde(default)]
    locked: bool,
}

/// Keeps only the labels whose key has a domain, because no other label can become a label of a node. The other labels
/// would take memory in a list of thousands of servers.
fn with_domain<'de, D: Deserializer<'de>>(d: D) -> Result<BTreeMap<Interned, Interned>, D::Error> {
    let all: BTreeMap<String, String> = Deserialize::deserialize(d)?;
    let kept = all.into_iter().filter(|(key, _)| key.contains('/'));
    Ok(kept.map(|(key, value)| (key.into(), value.into())).collect())
}

#[derive(Deserialize)]
struct ServerType {
    name: Interned,
}

#[derive(Deserialize)]
struct Location {
    name: Interned,
    network_zone: Interned,
}

#[derive(Deserialize)]
struct PublicNet {
    ipv4: Option<PublicIpv4>,
    ipv6: Option<PublicIpv6>,
}

#[derive(Deserialize)]
struct PublicIpv4 {
    ip: Ipv4Addr,
}

#[derive(Deserialize)]
struct PublicIpv6 {
    ip: Ipv6Net,
}

#[derive(Deserialize)]
struct PrivateNet {
    network: u64,
    ip: IpAddr,
    #[serde(default)]
    alias_ips: Vec<IpAddr>,
}

impl Resource for Server {
    const LIST: &'static str = "servers";
    const ONE: &'static str = "server";
    fn id(&self) -> u64 {
        self.id
    }
}

/// Reads all servers of the project. The result is the complete list or an error.
pub(super) fn list(
    api: &Api,
    labels: &LabelPrefixes,
    urgency: Urgency,
) -> Result<Vec<Instance>, Error> {
    Ok(instances(api.list("", urgency)?, labels))
}

/// Reads the pages on which these server IDs are, or would be. The result has every existing server with one of these
/// IDs, and the other servers on the pages.
pub(super) fn around(
    api: &Api,
    labels: &LabelPrefixes,
    numbers: &BTreeSet<u64>,
    place: &dyn Fn(u64) -> usize,
    urgency: Urgency,
) -> Result<Vec<Instance>, Error> {
    let read = |number| api.page("", number, urgency);
    let servers = pages::around(numbers, PER_PAGE as usize, place, Server::id, read)?;
    Ok(instances(servers, labels))
}

/// Returns the servers with this name.
pub(super) fn named(api: &Api, labels: &LabelPrefixes, name: &str) -> Result<Vec<Instance>, Error> {
    let query = format!("name={}&", percent_encoded(name));
    let mut servers = instances(api.list(&query, Urgency::Needed)?, labels);
    servers.retain(|server| server.name == name);
    Ok(servers)
}

fn instances(servers: Vec<Server>, labels: &LabelPrefixes) -> Vec<Instance> {
    servers.into_iter().map(|server| server.instance(labels)).collect()
}

/// Reads one server in its present state.
pub(super) fn get(api: &Api, labels: &LabelPrefixes, number: u64) -> Result<Instance, Error> {
    let server: Server = api.one(number, Urgency::Gone)?;
    Ok(server.instance(labels))
}

impl Server {
    /// Converts the server to an instance with the labels that these prefixes allow.
    fn instance(self, labels: &LabelPrefixes) -> Instance {
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
            private: self
                .private_net
                .into_iter()
                .map(|private| PrivateAddress {
                    network: private.network,
                    ip: private.ip,
                    aliases: private.alias_ips,
                })
                .collect(),
            labels: self.labels.into_iter().filter(|(key, _)| labels.allow(key)).collect(),
            ..Instance::default()
        }
    }
}
