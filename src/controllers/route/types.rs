//! The types that form a plan for routes, and the texts about routes for people.

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

/// The plan for the routes of the Network. A route is replaced by two changes: a deletion, and an addition right after
/// it. The findings (messages for the operator) are about the Network, not about nodes.
pub type RoutePlan = Plan<RouteChange, RouteFacts>;

/// The data of a route plan: the routes that exist or are needed, and a plan for each node.
#[derive(Debug, Default)]
pub struct RouteFacts {
    /// The routes that exist or are needed, sorted by destination.
    pub rows: Vec<RouteRow>,
    /// The plans for the nodes that need a route, or about which there is a message for the operator, sorted by the
    /// name of the node.
    pub nodes: Vec<NodeRoutePlan>,
    /// Whether a route that may belong to another cluster blocks a route that a node needs, because their destinations
    /// overlap. This plan then only adds the needed routes that nothing blocks. The next plan decides whether the
    /// blocking route is replaced.
    pub is_in_doubt: bool,
}

/// The plan for one node whose pods need routes. Its only possible write sets the condition `NetworkUnavailable` of the
/// node. Its `obstacle` says why a route of the node can't be made.
pub type NodeRoutePlan = Plan<NodeChange, NodeRoutes>;

/// The routes that one node needs, and the value that its condition `NetworkUnavailable` must have.
#[derive(Clone, Debug, Default)]
pub struct NodeRoutes {
    pub node: Arc<KubeNode>,
    /// The routes that the node needs and that can be made.
    pub routes: Vec<Route>,
    /// The value that the condition `NetworkUnavailable` must have after the sync. `None` means that the condition
    /// stays as it is.
    pub unavailable: Option<bool>,
    /// Whether a route of the node is blocked by a route that may belong to another cluster.
    pub is_in_doubt: bool,
}

/// One row of the plan for routes: a destination, the route that exists there, and the route that a node needs there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteRow {
    pub destination: Ipv4Net,
    /// The route that exists in the Network. `None` when there is no route to the destination.
    pub have: Option<Route>,
    /// The route that a node needs and that can be made. `None` when no node needs a route to the destination, or when
    /// the needed route can't be made, e.g. because it overlaps a subnet.
    pub want: Option<Route>,
    /// The name of the node that needs the route. When no node needs it, the name of the node to whose server the route
    /// leads. `None` when there is no such node, or when the destination is outside of `--cluster-cidr`.
    pub node: Option<String>,
    /// The name of the server whose address is the gateway of the route that exists. When no route exists, this is the
    /// server of the route that a node needs. `None` when no server has the address, or when there is neither route.
    pub server: Option<String>,
    pub state: State,
    pub step: RouteStep,
}

named! {
    /// The state of the route to a destination. The texts appear in the output of commands.
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    State {
        Ok = "ok",
        /// A node needs the route, and the route does not exist.
        Missing = "missing",
        /// The destination is the pod CIDR of a node, but the route leads to another server.
        WrongGateway = "wrong gateway",
        /// The gateway of the route is not the address of any server, so packets are lost.
        Blackhole = "blackhole",
        /// No node needs the route, and ccm is allowed to delete it, because it belongs to this cluster: the route
        /// leads to the server of a node, or overlaps a needed route, or a node has needed it before.
        Unwanted = "unwanted",
        /// The route leads to a server that belongs to no node. This program only reports the route, and never deletes
        /// it.
        Stale = "stale",
        /// The route is not changed, because a node whose server or pod CIDR is not known may need it.
        LeftAlone = "left alone",
        /// The destination is outside of `--cluster-cidr`, so the route is never changed.
        NotOurs = "not ours",
    }
}

/// What the plan does about the route to a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteStep {
    Nothing,
    Add,
    Delete,
    Replace,
    /// The needed route can't be made. The field `obstacle` in the plan of the node gives the reason.
    Cannot,
}

impl RoutePlan {
    /// Whether the plan deletes a route, or can't give a node its route. Such a plan must be made from a list of
    /// servers that is newer than the list of routes. An older list could lack a server that was created in the
    /// meantime.
    pub(super) fn needs_all_servers(&self) -> bool {
        self.changes.iter().any(|change| change.is_deletion) || self.is_blocked()
    }

    /// Whether a route that a node needs can't be made.
    pub(super) fn is_blocked(&self) -> bool {
        self.nodes.iter().any(|node| node.obstacle.is_some())
    }

    /// Records in the plan that the cloud refused this change. If the change adds the route of a node, the error
    /// becomes the `obstacle` (the reason why something can't be done) in the plan of the node.
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

    /// Removes all changes and findings (messages for the operator) from the plan. They may be wrong, because the API
    /// of Kubernetes or of the cloud did not answer and its data are missing.
    pub(super) fn forget_changes(&mut self) {
        self.changes.clear();
        self.findings.clear();
        for node in &mut self.nodes {
            node.changes.clear();
            node.obstacle = None;
        }
    }

    /// Returns the changes of the plan as texts: one proposal for each node that has a plan, and for each changed
    /// destination that belongs to no node.
    pub fn proposals(&self) -> Vec<Proposal> {
        let routes = self.changes.iter().map(|change| Proposal {
            object: change.object(),
            changes: change.description(),
            obstacle: None,
            warning: None,
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
    /// Returns the state of the destination, e.g. `Missing`, if the routes of the network were exactly `routes`.
    /// Returns `None` when the route to the destination was deleted and no node needs one.
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
    /// Returns the name of the state for a metric label, with `_` instead of spaces.
    pub fn label(self) -> String {
        self.name().replace(' ', "_")
    }
}

impl NodeRoutePlan {
    /// Plans the write that gives the condition `NetworkUnavailable` of the node the value that it must have. Plans no
    /// write when the condition has this value already.
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
        // Each case begins with a plan for one destination: the state of the route, the route that exists, and the
        // route that the node needs. The array has the states that are expected when the Network changes after that, so
        // that it contains only the old route, no route, or only the new route.
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
