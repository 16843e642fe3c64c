//! Which server a node runs on: by provider ID, else by name, else by an address – and never by guessing.

use crate::kube::Node;
use crate::provider::{
    Error, Finding, INTERNAL_IP, Instance, InstanceId, Instances, NodeAddress, Provider,
    ProviderId, Reason, Servers, one_ip_or_two,
};
use crate::text;
use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::IpAddr;

/// The server that a node's provider ID names.
pub(super) fn server_of(node: &Node, provider: &dyn Provider) -> Option<InstanceId> {
    provider.parse_provider_id(&node.spec.provider_id).ours()
}

/// Nodes and servers of one view, prepared for many look-ups.
pub struct Index<'a> {
    provider: &'a dyn Provider,
    servers: Servers<'a>,
    by_id: HashMap<InstanceId, &'a Instance>,
    /// None: two servers carry that name.
    by_name: HashMap<&'a str, Option<&'a Instance>>,
    /// Nodes without a provider ID whose name is no server's, with the addresses they report.
    unmatched: Vec<(&'a str, Vec<IpAddr>)>,
    node_names: HashSet<&'a str>,
    /// Servers named by a node's provider ID, with that node's name.
    claims: HashMap<InstanceId, &'a str>,
    /// `InternalIP`s that annotations name, with each node that names or has it.
    internal_ips: HashMap<IpAddr, Vec<&'a str>>,
}

/// What is known about a node's server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// It runs on this one.
    Matched(&'a Instance, MatchedBy),
    /// Its provider ID names a server of ours that the list does not hold.
    Gone(InstanceId),
    /// An API did not answer that may know its server: nothing may be concluded.
    Unclear(&'a Error),
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
    pub fn new<N: Borrow<Node>>(
        provider: &'a dyn Provider,
        nodes: &'a [N],
        servers: Servers<'a>,
    ) -> Index<'a> {
        let nodes = || nodes.iter().map(Borrow::borrow);
        let claims =
            nodes().filter_map(|node: &Node| Some((server_of(node, provider)?, node.name())));
        let mut by_name: HashMap<&str, Option<&Instance>> = HashMap::new();
        for instance in servers.iter() {
            let once = |entry: &mut Option<&Instance>| *entry = None;
            by_name
                .entry(&instance.name)
                .and_modify(once)
                .or_insert(Some(instance));
        }
        let unmatched = nodes()
            .filter(|node| node.spec.provider_id.is_empty() && !by_name.contains_key(node.name()))
            .map(|node| (node.name(), reported_ips(node)))
            .collect();
        let mut internal_ips: HashMap<IpAddr, Vec<&str>> = HashMap::new();
        for node in nodes() {
            let text = node.metadata.annotations.get(INTERNAL_IP);
            for ip in text.and_then(one_ip_or_two).into_iter().flatten() {
                internal_ips.entry(ip).or_default().push(node.name());
            }
        }
        for node in nodes() {
            for ip in reported_ips(node) {
                internal_ips
                    .entry(ip)
                    .and_modify(|nodes| nodes.push(node.name()));
            }
        }
        Index {
            provider,
            internal_ips,
            servers,
            by_id: servers
                .iter()
                .map(|instance| (instance.id, instance))
                .collect(),
            by_name,
            unmatched,
            node_names: nodes().map(Node::name).collect(),
            claims: claims.collect(),
        }
    }

    pub fn find(&self, node: &Node) -> Outcome<'a> {
        if !node.spec.provider_id.is_empty() {
            return match self.provider.parse_provider_id(&node.spec.provider_id) {
                ProviderId::Foreign => Outcome::Foreign,
                ProviderId::Unknown(why) => Outcome::Unknown(why),
                ProviderId::Ours(id) => match (self.by_id.get(&id), self.servers.unknown(id)) {
                    (Some(instance), _) => Outcome::Matched(instance, MatchedBy::ProviderId),
                    (None, Some(error)) => Outcome::Unclear(error),
                    (None, None) if id.cloud().is_none() && self.provider.dedicated().is_none() => {
                        Outcome::Unknown(format!(
                            "dedicated server {id} can't be looked up without credentials of Robot"
                        ))
                    }
                    (None, None) => Outcome::Gone(id),
                },
            };
        }
        match self.by_name.get(node.name()) {
            Some(Some(instance)) => Outcome::Matched(instance, MatchedBy::Name),
            Some(None) => {
                let message = format!("several servers are named {:?}", node.name());
                Outcome::Unmatched(Finding::warning(Reason::InstanceLookupFailed, message))
            }
            None => match self.servers.error() {
                Some(error) => Outcome::Unclear(error),
                None => self.by_address(node),
            },
        }
    }

    /// The one server that has this node's name and is named by no other node's provider ID.
    pub fn named_as(&self, node: &Node) -> Option<&'a Instance> {
        let named = self.by_name.get(node.name()).copied().flatten();
        named.filter(|instance| self.claimed_by_another(instance, node).is_none())
    }

    /// Some node's provider ID names a server of this list: the token's project is the right one.
    pub fn any_claim_exists(&self) -> bool {
        self.claims.keys().any(|id| self.by_id.contains_key(id))
    }

    /// The node whose provider ID names this server, when it is another one than `node`.
    pub fn claimed_by_another(&self, instance: &Instance, node: &Node) -> Option<&'a str> {
        self.claims
            .get(&instance.id)
            .copied()
            .filter(|name| *name != node.name())
    }

    /// Another node that has an address that this one's annotation names, or names it, too.
    pub fn with_internal_ip_of(&self, node: &Node) -> Option<&'a str> {
        let text = node.metadata.annotations.get(INTERNAL_IP)?;
        let ips = one_ip_or_two(text)?.into_iter();
        let mut nodes = ips.filter_map(|ip| self.internal_ips.get(&ip)).flatten();
        nodes.find(|name| **name != node.name()).copied()
    }

    fn by_address(&self, node: &Node) -> Outcome<'a> {
        let reported = reported_ips(node);
        let instances = self.provider.instances();
        let candidates = instances.map(|instances| self.recognised(instances, &reported));
        let candidates = candidates.unwrap_or_default();
        match candidates.as_slice() {
            [(instance, ip)] => match self.rival(instance, node) {
                None => Outcome::Matched(instance, MatchedBy::Address(*ip)),
                Some(rival) => {
                    let (node, name, id) = (node.name(), &instance.name, instance.id);
                    let message = format!(
                        "no server is named {node:?}; {name} ({id}) has its address {ip}, but one of node {rival:?} \
                         as well; rename the server to the name of the node that runs on it"
                    );
                    Outcome::Unmatched(Finding::warning(Reason::InstanceLookupFailed, message))
                }
            },
            [] => Outcome::Unmatched(self.not_found(node, &reported)),
            several => Outcome::Unmatched(ambiguous(node, several)),
        }
    }

    /// Another node that would be matched with this server by an address, too.
    fn rival(&self, instance: &Instance, node: &Node) -> Option<&'a str> {
        let nets = self.provider.instances()?.recognised_by(instance);
        let has_one = |ips: &[IpAddr]| ips.iter().any(|ip| nets.iter().any(|net| net.contains(ip)));
        let others = self
            .unmatched
            .iter()
            .filter(|(name, _)| *name != node.name());
        let mut rivals = others.filter(|(_, ips)| has_one(ips));
        rivals.next().map(|(name, _)| *name)
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
        self.servers
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
                text::some_of(&some.iter().map(IpAddr::to_string).collect::<Vec<_>>())
            ),
        };
        let looked_through = match self.servers.iter().next() {
            None => "; the project has no servers at all: is the token another project's?",
            // No count: a message that changes with every server is a new event each time.
            _ => "",
        };
        let name = node.name();
        let message = format!("no server is named {name:?}, and {addresses}{looked_through}");
        Finding::warning(Reason::ServerNotFound, message)
    }
}

fn reported_ips(node: &Node) -> Vec<IpAddr> {
    let addresses = node.status.addresses.iter();
    addresses.filter_map(NodeAddress::ip).collect()
}

fn ambiguous(node: &Node, candidates: &[(&Instance, IpAddr)]) -> Finding {
    let list: Vec<String> = candidates
        .iter()
        .map(|(instance, ip)| format!("{} ({}) by {ip}", instance.name, instance.id))
        .collect();
    let (name, list) = (node.name(), text::some_of(&list));
    let message = format!(
        "no server is named {name:?}, and the node's addresses fit several: {list}; rename the right one to the node's \
         name"
    );
    Finding::warning(Reason::InstanceLookupFailed, message)
}

impl MatchedBy {
    /// For programs.
    pub fn word(&self) -> &'static str {
        match self {
            MatchedBy::ProviderId => "providerID",
            MatchedBy::Name => "name",
            MatchedBy::Address(_) => "address",
        }
    }
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
