//! A plan of routes, as data and in words: what there is, and what is to be done.

use crate::controllers::node_writes::status;
use crate::controllers::{NETWORK_UNAVAILABLE, NodeChange, Plan as ObjectPlan, Proposal};
use crate::kube::{Node, ObjectReference};
use crate::provider::{Description, Error, Finding, Reason, Route, RouteChange, Write};
use crate::text::named;
use ipnet::Ipv4Net;
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

pub const NAME: &str = "node-route-controller";

/// What there is, and what is to be done.
#[derive(Debug, Default)]
pub struct Plan {
    /// Every route that is there or wanted, by destination.
    pub rows: Vec<Row>,
    /// One after the other; a route that takes another's place follows right after it.
    pub changes: Vec<RouteChange>,
    /// Nodes of ours with something to say about them, by name.
    pub nodes: Vec<NodePlan>,
    /// About the network.
    pub findings: Vec<Finding>,
    /// Routes that block others may be another cluster's; when what is free is added, it may be clearer.
    pub is_in_doubt: bool,
    /// What `findings` are about; none: there is no plan.
    pub network: Option<ObjectReference>,
}

/// One destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub destination: Ipv4Net,
    /// As it is; none: there is no route.
    pub have: Option<Route>,
    /// As it should be.
    pub want: Option<Route>,
    /// Whose pods it leads to, or on whose server it ends.
    pub node: Option<String>,
    /// Name of the server that it leads to.
    pub server: Option<String>,
    pub state: State,
    pub step: Step,
}

named! {
    /// Of a destination; the names are for people.
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    State {
        Ok = "ok",
        /// Wanted, and not there.
        Missing = "missing",
        /// It leads to another server than its node's.
        WrongGateway = "wrong gateway",
        /// Its gateway is no server's.
        Blackhole = "blackhole",
        /// It leads to a node that does not have these pods.
        Unwanted = "unwanted",
        /// It leads to a server that no node runs on.
        Stale = "stale",
        /// The pods there are a node's whose server we don't know.
        LeftAlone = "left alone",
        /// Outside the cluster's CIDRs.
        NotOurs = "not ours",
    }
}

/// What is to be done about a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Nothing,
    Add,
    Delete,
    Replace,
    /// It is blocked: see the node's obstacle.
    Cannot,
}

/// One node whose pods are within the cluster's CIDRs, or should be.
#[derive(Clone, Debug)]
pub struct NodePlan {
    pub object: ObjectReference,
    pub node: Arc<Node>,
    /// Those that it needs, each as it should be.
    pub routes: Vec<Route>,
    /// What its condition has to say when all is done; none: it is left unchanged.
    pub unavailable: Option<bool>,
    /// It waits for a route that may be another cluster's.
    pub is_in_doubt: bool,
    /// Why one of its routes can't be.
    pub obstacle: Option<Finding>,
    pub findings: Vec<Finding>,
}

impl Plan {
    /// It takes a route away, or says that a node's server is not there. A list of servers from
    /// before the routes were read may lack one that was made since.
    pub(super) fn needs_all_servers(&self) -> bool {
        self.changes.iter().any(RouteChange::is_deletion) || self.is_blocked()
    }

    /// A node can't get its route.
    pub(super) fn is_blocked(&self) -> bool {
        self.nodes.iter().any(|node| node.obstacle.is_some())
    }

    /// The cloud refused this change, which the plan has: the route of its node can't be.
    pub(super) fn block(&mut self, change: &RouteChange, error: &Error) {
        let mut nodes = self.nodes.iter_mut();
        let node = nodes.find(|node| Some(&node.object.name) == change.node.as_ref());
        if let Some(node) = node.filter(|_| !change.is_deletion()) {
            let why = Finding::warning(Reason::FailedToCreateRoute, error.message.clone());
            node.obstacle.get_or_insert(why);
            node.unavailable = node.unavailable.and(Some(true));
        }
    }

    /// It was made by one API alone: what it shows of the other one is not so.
    pub(super) fn forget_changes(&mut self) {
        self.changes.clear();
        self.findings.clear();
        for node in &mut self.nodes {
            (node.obstacle, node.unavailable) = (None, None);
        }
    }

    pub fn has_writes(&self) -> bool {
        !self.changes.is_empty() || self.nodes.iter().any(|node| node.condition().is_some())
    }

    /// By node; and by destination, where no node is concerned.
    pub fn proposals(&self) -> Vec<Proposal> {
        let mut by_object: BTreeMap<String, (Vec<Description>, Option<String>)> = BTreeMap::new();
        for change in &self.changes {
            let (changes, _) = by_object.entry(change.object()).or_default();
            changes.push(change.description());
        }
        for node in &self.nodes {
            let (changes, obstacle) = by_object.entry(node.name()).or_default();
            changes.extend(node.condition().map(|change| change.description()));
            *obstacle = node.obstacle.as_ref().map(|why| why.text().into_owned());
        }
        let proposal = |(object, (changes, obstacle)): (String, (Vec<_>, _))| Proposal {
            object,
            changes: changes.into_iter().collect(),
            obstacle,
        };
        by_object.into_iter().map(proposal).collect()
    }
}

impl Row {
    /// With these routes in the network; none: there is no route any more, and none is wanted.
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
    /// A label's value of the metric: without spaces.
    pub fn label(self) -> String {
        self.name().replace(' ', "_")
    }
}

impl NodePlan {
    /// `node/worker-1`.
    pub fn name(&self) -> String {
        format!("node/{}", self.object.name)
    }

    /// The write that makes its condition say what it should, where it says something else.
    pub fn condition(&self) -> Option<NodeChange> {
        self.condition_of(&self.node).changes.pop()
    }

    /// The plan that sets the condition of the node, which is `now` as it was read last. The plan has no changes when the
    /// condition is already right.
    pub(super) fn condition_of(&self, now: &Node) -> ObjectPlan<NodeChange> {
        let mut plan = ObjectPlan::new(self.object.clone(), &now.metadata.resource_version);
        let says = now.condition(NETWORK_UNAVAILABLE);
        let wanted = self.unavailable.filter(|is| says != Some(status(*is)));
        plan.changes.extend(wanted.map(NodeChange::condition));
        plan
    }

    pub fn all_findings(&self) -> impl Iterator<Item = &Finding> {
        self.obstacle.iter().chain(&self.findings)
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
        // State, what there was and what is wanted; the state with the old route, with none and with the new one.
        let cases = [
            (State::WrongGateway, has_old, wants_new, [Some(State::WrongGateway), missing, ok]),
            (State::Blackhole, has_old, None, [Some(State::Blackhole), None, None]),
            (State::Missing, None, wants_new, [missing, missing, ok]),
            (State::Missing, None, None, [missing; 3]),
        ];
        for (state, have, want, expected) in cases {
            let row = Row {
                destination: new.destination,
                have,
                want,
                node: None,
                server: None,
                state,
                step: Step::Nothing,
            };
            let networks = [&[old][..], &[], &[new]];
            let states = networks.map(|all| row.state_with(&all.iter().copied().collect()));
            assert_eq!(states, expected, "{state:?}");
        }
    }
}
