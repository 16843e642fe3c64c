//! Which routes nodes want: which destinations, and by which gateway.

use crate::kube::Node;
use crate::provider::{Instance, InstanceId, Network, Route};
use ipnet::{IpNet, Ipv4Net};
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// What both APIs said, and what earlier comparisons showed.
pub struct View<'a> {
    pub nodes: &'a [Arc<Node>],
    pub instances: &'a [Instance],
    pub network: &'a Network,
    /// `--cluster-cidr`.
    pub cluster_cidrs: &'a [IpNet],
    /// Routes that an earlier comparison saw to be wanted by our nodes.
    pub remembered: &'a HashSet<Route>,
    /// Earlier comparisons held routes back as well.
    pub is_in_doubt_for_long: bool,
}

/// What one node wants.
pub(super) struct DesiredRoutes<'a> {
    pub(super) node: &'a Arc<Node>,
    pub(super) server: InstanceId,
    /// The list of servers has it.
    pub(super) has_server: bool,
    /// Its server's address; none: the server is not in the network.
    pub(super) gateway: Option<Ipv4Addr>,
    /// Within the cluster's CIDRs.
    pub(super) cidrs: Vec<Ipv4Net>,
    /// Outside of them, or no range at all.
    pub(super) misfits: Vec<String>,
    /// Its ranges are there, and were understood. Until then it is not known which of the
    /// routes to its server are its own.
    pub(super) is_settled: bool,
    /// Some pods have IPv6 addresses, which the network does not know.
    pub(super) has_ipv6: bool,
    /// Why one of its routes can't be.
    pub(super) obstacle: Option<String>,
    /// That is a route that may be another cluster's.
    pub(super) is_in_doubt: bool,
}

impl<'a> DesiredRoutes<'a> {
    pub(super) fn new(
        view: &View<'a>,
        node: &'a Arc<Node>,
        server: InstanceId,
        instance: Option<&Instance>,
    ) -> DesiredRoutes<'a> {
        let addresses = instance.map(|one| addresses(one, view.network.id));
        let mut desired = DesiredRoutes {
            node,
            server,
            has_server: instance.is_some(),
            gateway: addresses.and_then(|mut all| all.next()),
            cidrs: Vec::new(),
            misfits: Vec::new(),
            is_settled: !node.spec.pod_cidrs.is_empty(),
            has_ipv6: false,
            obstacle: None,
            is_in_doubt: false,
        };
        for cidr in node.spec.pod_cidrs.iter() {
            match cidr {
                Ok(IpNet::V6(_)) => desired.has_ipv6 = true,
                Ok(IpNet::V4(net)) if is_within(net, view.cluster_cidrs) => desired.cidrs.push(net),
                Ok(IpNet::V4(net)) => desired.misfits.push(net.to_string()),
                Err(text) => {
                    desired.misfits.push(text.to_owned());
                    desired.is_settled = false;
                }
            }
        }
        desired
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
pub(super) fn addresses(instance: &Instance, network: u64) -> impl Iterator<Item = Ipv4Addr> {
    let there = instance.private.iter();
    let there = there.filter(move |private| private.network == network);
    let all = there.flat_map(|private| std::iter::once(&private.ip).chain(&private.aliases));
    all.filter_map(|ip| match ip {
        IpAddr::V4(ip) => Some(*ip),
        IpAddr::V6(_) => None,
    })
}
