//! What nodes ask of the network: which destinations, and by which gateway.

use super::plan::View;
use crate::kube::Node;
use crate::provider::{Instance, InstanceId, Provider, ProviderId};
use ipnet::{IpNet, Ipv4Net};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// What all nodes ask for, and whose address is whose.
pub(super) struct DesiredRoutes<'a> {
    /// Of the nodes with a provider ID of ours, by name.
    pub(super) of_nodes: Vec<DesiredRoute<'a>>,
    /// Pods of nodes without a provider ID of ours: whoever they belong to, a route to them is
    /// left alone.
    pub(super) of_strangers: Vec<(Ipv4Net, &'a str)>,
    /// Servers by each of their addresses in the network.
    pub(super) servers: HashMap<Ipv4Addr, &'a Instance>,
    /// Some pods have IPv6 addresses, which the network does not know.
    pub(super) has_ipv6: bool,
}

/// What one node asks for.
pub(super) struct DesiredRoute<'a> {
    pub(super) node: &'a Arc<Node>,
    pub(super) server: InstanceId,
    pub(super) gateway: Gateway,
    /// Within the cluster's CIDRs.
    pub(super) cidrs: Vec<Ipv4Net>,
    /// Outside of them, or no range at all.
    pub(super) misfits: Vec<String>,
    /// Its ranges are there, and were understood. Until then it is not known which of the
    /// routes to its server are its own.
    pub(super) is_settled: bool,
}

/// Where packets for a node's pods have to be sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gateway {
    At(Ipv4Addr),
    /// Its server is not in the network.
    NotAttached,
    /// Its server is not in the list.
    NoServer,
}

impl<'a> DesiredRoutes<'a> {
    pub(super) fn new(view: &View<'a>, provider: &dyn Provider) -> DesiredRoutes<'a> {
        let mut desired = DesiredRoutes {
            of_nodes: Vec::new(),
            of_strangers: Vec::new(),
            servers: HashMap::new(),
            has_ipv6: false,
        };
        let mut by_id = HashMap::new();
        for instance in view.instances {
            by_id.insert(instance.id, instance);
            for ip in addresses(instance, view.network.id) {
                desired.servers.insert(ip, instance);
            }
        }
        for node in view.nodes {
            match provider.parse_provider_id(&node.spec.provider_id) {
                ProviderId::Ours(id) => {
                    let gateway = match by_id.get(&id) {
                        None => Gateway::NoServer,
                        Some(instance) => addresses(instance, view.network.id)
                            .next()
                            .map_or(Gateway::NotAttached, Gateway::At),
                    };
                    desired.add(node, id, gateway, view.cluster_cidrs);
                }
                ProviderId::Foreign | ProviderId::Unknown(_) => {
                    let ranges = node.spec.pod_cidrs.iter().filter_map(|cidr| match cidr {
                        Ok(IpNet::V4(net)) => Some((net, node.name())),
                        Ok(IpNet::V6(_)) | Err(_) => None,
                    });
                    desired.of_strangers.extend(ranges);
                }
            }
        }
        desired
            .of_nodes
            .sort_by(|one, other| one.node.name().cmp(other.node.name()));
        desired
    }

    fn add(&mut self, node: &'a Arc<Node>, server: InstanceId, gateway: Gateway, all: &[IpNet]) {
        let mut desired_route = DesiredRoute {
            node,
            server,
            gateway,
            cidrs: Vec::new(),
            misfits: Vec::new(),
            is_settled: !node.spec.pod_cidrs.is_empty(),
        };
        for cidr in node.spec.pod_cidrs.iter() {
            match cidr {
                Ok(IpNet::V6(_)) => self.has_ipv6 = true,
                Ok(IpNet::V4(net)) if is_within(net, all) => desired_route.cidrs.push(net),
                Ok(IpNet::V4(net)) => desired_route.misfits.push(net.to_string()),
                Err(text) => {
                    desired_route.misfits.push(text.to_owned());
                    desired_route.is_settled = false;
                }
            }
        }
        self.of_nodes.push(desired_route);
    }

    /// The node whose provider ID names this server.
    pub(super) fn of_server(&self, server: InstanceId) -> Option<&DesiredRoute<'a>> {
        self.of_nodes
            .iter()
            .find(|desired_route| desired_route.server == server)
    }

    /// A node that is none of ours has pods there.
    pub(super) fn stranger_at(&self, net: Ipv4Net) -> Option<&'a str> {
        let mut strangers = self.of_strangers.iter();
        let found = strangers.find(|(theirs, _)| overlap(*theirs, net));
        found.map(|(_, name)| *name)
    }
}

/// The default route is within none, however large they are.
pub(super) fn is_within(net: Ipv4Net, all: &[IpNet]) -> bool {
    net.prefix_len() > 0 && all.iter().any(|cidr| cidr.contains(&IpNet::V4(net)))
}

pub(super) fn overlap(one: Ipv4Net, other: Ipv4Net) -> bool {
    one.contains(&other) || other.contains(&one)
}

/// Those of a server in the network, its own first.
fn addresses(instance: &Instance, network: u64) -> impl Iterator<Item = Ipv4Addr> {
    let there = instance
        .private
        .iter()
        .filter(move |p| p.network == network);
    let all = there.flat_map(|private| std::iter::once(&private.ip).chain(&private.aliases));
    all.filter_map(|ip| match ip {
        IpAddr::V4(ip) => Some(*ip),
        IpAddr::V6(_) => None,
    })
}
