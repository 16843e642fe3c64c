//! Which server a node runs on: by provider ID, else by name, else by an address – and never by guessing.

use crate::cloud::{Finding, Instance, InstanceId, Instances, Provider, ProviderId, Reason};
use crate::kube::Node;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::IpAddr;

/// Nodes and servers of one view, prepared for many look-ups.
pub struct Index<'a> {
    provider: &'a dyn Provider,
    instances: &'a [Instance],
    by_id: HashMap<InstanceId, &'a Instance>,
    by_name: HashMap<&'a str, &'a Instance>,
    node_names: HashSet<&'a str>,
    /// Servers named by a node's provider ID, with that node's name.
    claims: HashMap<InstanceId, &'a str>,
}

/// What is known about a node's server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// It runs on this one.
    Matched(&'a Instance, MatchedBy),
    /// Its provider ID names a server of ours that the list does not hold.
    Gone(InstanceId),
    /// Another cloud's node: not ours to touch.
    Foreign,
    /// Our prefix, but no ID that can be looked up; why.
    Unknown(String),
    /// No provider ID, and no server that is surely its own; why.
    Unmatched(Finding),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchedBy {
    ProviderId,
    Name,
    Address(IpAddr),
}

impl<'a> Index<'a> {
    pub fn new(
        provider: &'a dyn Provider,
        nodes: &'a [Node],
        instances: &'a [Instance],
    ) -> Index<'a> {
        let claims = nodes.iter().filter_map(|node| {
            match provider.parse_provider_id(&node.spec.provider_id) {
                ProviderId::Ours(id) => Some((id, node.name())),
                ProviderId::Foreign | ProviderId::Unknown(_) => None,
            }
        });
        Index {
            provider,
            instances,
            by_id: instances
                .iter()
                .map(|instance| (instance.id, instance))
                .collect(),
            by_name: instances
                .iter()
                .map(|instance| (instance.name.as_str(), instance))
                .collect(),
            node_names: nodes.iter().map(Node::name).collect(),
            claims: claims.collect(),
        }
    }

    pub fn find(&self, node: &Node) -> Outcome<'a> {
        if !node.spec.provider_id.is_empty() {
            return match self.provider.parse_provider_id(&node.spec.provider_id) {
                ProviderId::Foreign => Outcome::Foreign,
                ProviderId::Unknown(why) => Outcome::Unknown(why),
                ProviderId::Ours(id) => match self.by_id.get(&id) {
                    Some(instance) => Outcome::Matched(instance, MatchedBy::ProviderId),
                    None => Outcome::Gone(id),
                },
            };
        }
        match self.by_name.get(node.name()) {
            Some(instance) => Outcome::Matched(instance, MatchedBy::Name),
            None => self.by_address(node),
        }
    }

    /// The node whose provider ID names this server, when it is another one than `node`.
    pub fn claimed_by_another(&self, instance: &Instance, node: &Node) -> Option<&'a str> {
        self.claims
            .get(&instance.id)
            .copied()
            .filter(|name| *name != node.name())
    }

    fn by_address(&self, node: &Node) -> Outcome<'a> {
        let reported: Vec<IpAddr> = node
            .status
            .addresses
            .iter()
            .filter_map(|address| address.address.parse().ok())
            .collect();
        let candidates: Vec<(&Instance, IpAddr)> = match self.provider.instances() {
            Some(instances) => self.recognised(instances, &reported),
            None => Vec::new(),
        };
        match candidates.as_slice() {
            [(instance, ip)] => Outcome::Matched(instance, MatchedBy::Address(*ip)),
            [] => Outcome::Unmatched(self.not_found(node, &reported)),
            several => Outcome::Unmatched(ambiguous(node, several)),
        }
    }

    /// Servers with one of these addresses that belong to no node yet.
    fn recognised(
        &self,
        instances: &dyn Instances,
        reported: &[IpAddr],
    ) -> Vec<(&'a Instance, IpAddr)> {
        if reported.is_empty() {
            return Vec::new();
        }
        let free = |instance: &&Instance| {
            !self.claims.contains_key(&instance.id)
                && !self.node_names.contains(instance.name.as_str())
        };
        self.instances
            .iter()
            .filter(free)
            .filter_map(|instance| {
                let nets = instances.recognised_by(instance);
                let ip = reported
                    .iter()
                    .find(|ip| nets.iter().any(|net| net.contains(*ip)))?;
                Some((instance, *ip))
            })
            .collect()
    }

    fn not_found(&self, node: &Node, reported: &[IpAddr]) -> Finding {
        let addresses = match reported {
            [] => "the node reports no address to look for".to_owned(),
            some => format!(
                "none that is free has an address the node reports ({})",
                some.iter()
                    .map(IpAddr::to_string)
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
        };
        let looked_through = match self.instances.len() {
            0 => "the project has no servers at all: is the token another project's?".to_owned(),
            count => format!("looked through {count} servers"),
        };
        Finding::warning(
            Reason::ServerNotFound,
            format!(
                "no server is named {:?}, and {addresses}; {looked_through}",
                node.name()
            ),
        )
    }
}

fn ambiguous(node: &Node, candidates: &[(&Instance, IpAddr)]) -> Finding {
    let list: Vec<String> = candidates
        .iter()
        .map(|(instance, ip)| format!("{} ({}) by {ip}", instance.name, instance.id))
        .collect();
    Finding::warning(
        Reason::InstanceLookupFailed,
        format!(
            "no server is named {:?}, and the node's addresses fit several: {}; rename the right one to the \
             node's name",
            node.name(),
            list.join(", ")
        ),
    )
}

impl fmt::Display for MatchedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MatchedBy::ProviderId => f.write_str("provider ID"),
            MatchedBy::Name => f.write_str("name"),
            MatchedBy::Address(ip) => write!(f, "address {ip}"),
        }
    }
}
