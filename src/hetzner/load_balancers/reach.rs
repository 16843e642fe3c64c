//! Which servers can be targets: one without an address of the wanted kind would be refused. A target that would have to
//! be removed for it first stays, for traffic still comes through.

use super::annotations as a;
use crate::provider::{Finding, OfferedNode, ProviderId, Reach, Reason};
use crate::text;
use std::collections::HashMap;

/// Of the wanted servers, in their order.
pub(super) struct Sorted {
    pub(super) can: Vec<(u64, String)>,
    /// Those that the cloud would refuse.
    pub(super) can_not: Vec<(u64, String)>,
    /// Those that do not exist.
    pub(super) missing: Vec<(u64, String)>,
}

/// By private IP: the Network.
#[derive(Clone, Copy)]
pub(super) enum By {
    Private(Option<u64>),
    Public,
}

impl By {
    pub(super) fn new(use_private_ip: bool, network: Option<u64>) -> By {
        match use_private_ip {
            true => By::Private(network),
            false => By::Public,
        }
    }

    /// What is not known is tried.
    fn reaches(self, reach: &Reach) -> bool {
        let Reach::By {
            has_public_ipv4,
            networks,
        } = reach
        else {
            return true;
        };
        match self {
            By::Private(network) => network.is_none_or(|id| networks.contains(&id)),
            By::Public => *has_public_ipv4,
        }
    }

    /// `is_target`: is it a target already, and if so, in the wanted way? One that is needs no other address.
    pub(super) fn sort(
        self,
        wanted: &[(u64, String)],
        nodes: &[OfferedNode],
        is_target: impl Fn(u64) -> Option<bool>,
    ) -> Sorted {
        let known = nodes.iter();
        let known = known.filter_map(|node| Some((server_of(node)?, &node.reach)));
        let reach: HashMap<u64, &Reach> = known.collect();
        // A list without any of the servers is another project's, or broken: it takes no target away.
        let is_of_cluster = reach.values().any(|one| matches!(one, Reach::By { .. }));
        let mut sorted = Sorted {
            can: Vec::new(),
            can_not: Vec::new(),
            missing: Vec::new(),
        };
        for one in wanted {
            let found = reach.get(&one.0).copied().unwrap_or(&Reach::Unknown);
            let list = match (is_target(one.0), found) {
                (Some(_), Reach::Missing { .. }) if is_of_cluster => &mut sorted.missing,
                (None, Reach::Missing { is_certain: true }) => &mut sorted.missing,
                (Some(true), _) => &mut sorted.can,
                // Removed in one way it could not be added in the other.
                (Some(false), Reach::Missing { .. }) => &mut sorted.can_not,
                (_, found) if self.reaches(found) => &mut sorted.can,
                _ => &mut sorted.can_not,
            };
            list.push(one.clone());
        }
        sorted
    }

    /// Why these are left out, or as they are, and what to do.
    pub(super) fn told(self, left: &[(u64, String)], and_so: &str) -> Finding {
        let names: Vec<&str> = left.iter().map(|(_, name)| name.as_str()).collect();
        let names = text::some_of(&names);
        let (servers, node, it) = match left {
            [_] => ("the server of node", "the node", "it"),
            _ => ("the servers of nodes", "the nodes", "them"),
        };
        let has = if left.len() == 1 { "has" } else { "have" };
        let out = format!(
            "leave {node} out with annotation {}",
            a::NODE_SELECTOR.key()
        );
        let message = match self {
            By::Private(network) => {
                let network = network.map(|id| format!(" {id}")).unwrap_or_default();
                format!(
                    "{servers} {names} {has} no address in Network{network}, so {and_so}: attach {it} to the Network, or \
                     {out}"
                )
            }
            By::Public => format!(
                "{servers} {names} {has} no public IPv4 address, so {and_so}: give {it} one, use private addresses with \
                 annotation {}, or {out}",
                a::USE_PRIVATE_IP.key()
            ),
        };
        Finding::warning(Reason::TargetIgnored, message)
    }
}

fn server_of(node: &OfferedNode) -> Option<u64> {
    match &node.provider_id {
        ProviderId::Ours(id) => Some(id.0),
        ProviderId::Foreign | ProviderId::Unknown(_) => None,
    }
}
