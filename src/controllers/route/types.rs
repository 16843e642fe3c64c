//! The plan of routes, as data and in words: what is there, and what should be done.

use crate::controllers::node_writes::status;
use crate::controllers::{NETWORK_UNAVAILABLE, NodeChange, Plan, Proposal};
use crate::kube::KubeNode;
use crate::provider::{Finding, ProviderError, Reason, Route, RouteChange, Write};
use crate::text::named;
use ipnet::Ipv4Net;
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

pub const NAME: &str = "node-route-controller";

/// The plan of the Network's routes. A change that replaces a route follows right after the deletion of that route. The
/// findings are about the Network.
pub type RoutePlan = Plan<RouteChange, RouteFacts>;

/// The routes that exist or are needed, and the nodes that need them.
#[derive(Debug, Default)]
pub struct RouteFacts {
    /// Every route that exists or is needed, sorted by destination.
    pub rows: Vec<RouteRow>,
    /// The nodes of ours that have a finding or a change, sorted by name.
    pub nodes: Vec<NodeRoutePlan>,
    /// Whether a route that blocks a node's route may belong to another cluster. Adding the routes that are not blocked
    /// may settle this.
    pub is_in_doubt: bool,
}

/// The plan for one node that has pods within the cluster's CIDRs, or should have them. Its only possible write
/// corrects the condition `NetworkUnavailable`. The obstacle is the reason why a route of the node can't be made.
pub type NodeRoutePlan = Plan<NodeChange, NodeRoutes>;

/// The routes of one node.
#[derive(Clone, Debug, Default)]
pub struct NodeRoutes {
    pub node: Arc<KubeNode>,
    /// The routes that the node needs, without those that can't be made.
    pub routes: Vec<Route>,
    /// The status that the condition `NetworkUnavailable` must have after the sync. `None` means that the condition
    /// is left unchanged.
    pub unavailable: Option<bool>,
    /// Whether the node waits for a route that may belong to another cluster.
    pub is_in_doubt: bool,
}

/// The route of one destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteRow {
    pub destination: Ipv4Net,
    /// The route that exists. `None` when there is no route to the destination.
    pub have: Option<Route>,
    /// The route that should exist. `None` when no route to the destination is needed.
    pub want: Option<Route>,
    /// The name of the node whose pods the route leads to, or else of the node whose server is the gateway.
    pub node: Option<String>,
    /// The name of the server to which the route leads.
    pub server: Option<String>,
    pub state: State,
    pub step: RouteStep,
}

named! {
    /// The state of a destination. The names appear in the output for people.
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    State {
        Ok = "ok",
        /// The route is needed and does not exist.
        Missing = "missing",
        /// The route leads to a server other than its node's.
        WrongGateway = "wrong gateway",
        /// The gateway of the route is not the address of any server.
        Blackhole = "blackhole",
        /// The route leads to a node that does not have these pods.
        Unwanted = "unwanted",
        /// The route leads to a server on which no node runs.
        Stale = "stale",
        /// The route stays. It leads to the pods of a node whose server is not known.
        LeftAlone = "left alone",
        /// The destination is outside the cluster's CIDRs.
        NotOurs = "not ours",
    }
}

/// The step that is to be done about a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteStep {
    Nothing,
    Add,
    Delete,
    Replace,
    /// The route is blocked. The obstacle of the node says why.
    Cannot,
}

impl RoutePlan {
    /// Whether the plan deletes a route, or says that a node can't get its route. Such a plan needs a list of all
    /// servers from after the read of the routes, because an older list may lack a server that was created since.
    pub(super) fn needs_all_servers(&self) -> bool {
        self.changes.iter().any(|change| change.is_deletion) || self.is_blocked()
    }

    /// Whether a node can't get its route.
    pub(super) fn is_blocked(&self) -> bool {
        self.nodes.iter().any(|node| node.obstacle.is_some())
    }

    /// Notes that the cloud refused this change, so that the node of the change gets no route.
    pub(super) fn block(&mut self, change: &RouteChange, error: &ProviderError) {
        let mut nodes = self.nodes.iter_mut();
        let node = nodes.find(|node| Some(&node.object.name) == change.node.as_ref());
        if let Some(node) = node.filter(|_| !change.is_deletion) {
            let why = Finding::warning(Reason::FailedToCreateRoute, error.message.clone());
            node.obstacle.get_or_insert(why);
            node.unavailable = node.unavailable.and(Some(true));
            node.set_condition();
        }
    }

    /// Removes the changes and findings of a plan that was made while one API did not answer, because they may be wrong
    /// about that API.
    pub(super) fn forget_changes(&mut self) {
        self.changes.clear();
        self.findings.clear();
        for node in &mut self.nodes {
            node.changes.clear();
            node.obstacle = None;
        }
    }

    /// Returns one proposal for each node, and one for each destination that belongs to no node.
    pub fn proposals(&self) -> Vec<Proposal> {
        let routes = self.changes.iter().map(|change| Proposal {
            object: change.object(),
            changes: change.description(),
            obstacle: None,
        });
        let mut by_object: BTreeMap<String, Proposal> = BTreeMap::new();
        for proposal in routes.chain(self.nodes.iter().map(NodeRoutePlan::proposal)) {
            let joined = match by_object.remove(&proposal.object) {
                Some(first) => first.and(proposal),
                None => proposal,
            };
            by_object.insert(joined.object.clone(), joined);
        }
        by_object.into_values().collect()
    }
}

impl RouteRow {
    /// Returns the state when the network has these routes. `None` when the route does not exist any more and
    /// is not needed.
    pub(super) fn state_with(&self, routes: &HashSet<Route>) -> Option<State> {
        let lacks = |route: Route| !routes.contains(&route);
        match (self.have, self.want) {
            (_, Some(want)) if routes.contains(&want) => Some(State::Ok),
            (Some(have), want) if lacks(have) => want.map(|_| State::Missing),
            _ => Some(self.state),
        }
    }
}

impl State {
    /// Returns the value of the metric's label, which is the name without spaces.
    pub fn label(self) -> String {
        self.name().replace(' ', "_")
    }
}

impl NodeRoutePlan {
    /// Plans the write that corrects the condition `NetworkUnavailable` of the node.
    pub(super) fn set_condition(&mut self) {
        self.version = self.node.metadata.resource_version.clone();
        let says = self.node.condition(NETWORK_UNAVAILABLE);
        let wanted = self.unavailable.filter(|is| says != Some(status(*is)));
        self.changes = wanted.map(NodeChange::condition).into_iter().collect();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_made_is_not_counted_as_made() {
        let route = |gateway: &str| Route {
            destination: "10.244.1.0/24".parse().unwrap(),
            gateway: gateway.parse().unwrap(),
        };
        let (old, new) = (route("10.0.0.9"), route("10.0.0.2"));
        let (has_old, wants_new) = (Some(old), Some(new));
        let [ok, missing] = [State::Ok, State::Missing].map(Some);
        // Each case has the state, the route that was there and the wanted route. Then come the states with the old
        // route, with no route and with the new route.
        let cases = [
            (State::WrongGateway, has_old, wants_new, [Some(State::WrongGateway), missing, ok]),
            (State::Blackhole, has_old, None, [Some(State::Blackhole), None, None]),
            (State::Missing, None, wants_new, [missing, missing, ok]),
            (State::Missing, None, None, [missing; 3]),
        ];
        for (state, have, want, expected) in cases {
            let row = RouteRow {
                destination: new.destination,
                have,
                want,
                node: None,
                server: None,
                state,
                step: RouteStep::Nothing,
            };
            let networks = [&[old][..], &[], &[new]];
            let states = networks.map(|all| row.state_with(&all.iter().copied().collect()));
            assert_eq!(states, expected, "{state:?}");
        }
    }
}
