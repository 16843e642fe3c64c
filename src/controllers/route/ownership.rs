//! Routes in the way that may be another cluster's: where this cluster's servers are in another
//! one's Network, or the kubeconfig is the other's, both can look as if they wanted the same.
//!
//! What is free is added all the same, for that takes nothing away. What is in the way is
//! replaced only where the Network is beyond doubt this cluster's, and the routes that were added
//! meanwhile do not count as a proof of that.

use super::desired::{DesiredRoutes, is_within, overlap};
use super::plan::{NETWORK_UNAVAILABLE, View};
use crate::kube::Node;
use crate::provider::{Instance, Route};
use ipnet::Ipv4Net;
use std::collections::{BTreeMap, HashSet};

/// Wanted routes, and the place of the node among the desired.
pub(super) type Accepted = BTreeMap<Ipv4Net, (Route, usize)>;

/// Why a route controller says that a node is reached: it made its route.
pub(super) const ROUTE_CREATED: &str = "RouteCreated";

pub(super) struct Ownership<'a> {
    /// Routes of ours to look after, by destination, to servers that no node names.
    theirs: Vec<(Route, &'a Instance)>,
    /// All of them lead to one server. One node is no cluster that needs routes: it is left from
    /// before, and gives way once a route of another node is there.
    is_one: bool,
}

impl<'a> Ownership<'a> {
    /// None: whatever is in the way may go.
    pub(super) fn find(
        view: &View<'a>,
        desired: &DesiredRoutes<'a>,
        accepted: &Accepted,
    ) -> Option<Ownership<'a>> {
        let theirs: Vec<(Route, &Instance)> = view
            .network
            .routes
            .iter()
            .filter(|route| is_within(route.destination, view.cluster_cidrs))
            .filter(|route| desired.stranger_at(route.destination).is_none())
            .filter_map(|route| Some((*route, *desired.servers.get(&route.gateway)?)))
            .filter(|(route, server)| {
                desired.of_server(server.id).is_none() && !view.remembered.contains(route)
            })
            .collect();
        let is_in_the_way =
            |(route, _): &(Route, _)| accepted.keys().any(|net| overlap(*net, route.destination));
        if !theirs.iter().any(is_in_the_way) {
            return None;
        }
        let servers: HashSet<u64> = theirs.iter().map(|(_, server)| server.id.0).collect();
        let is_one = servers.len() == 1;
        let is_proof = |(route, place): &(Route, usize)| {
            let node = desired.of_nodes[*place].node;
            view.network.routes.contains(route) && (is_one || had_its_route(node))
        };
        match accepted.values().any(is_proof) {
            true => None,
            false => Some(Ownership { theirs, is_one }),
        }
    }

    /// Takes those out that have to wait.
    pub(super) fn held_back(&self, view: &View, accepted: &mut Accepted) -> Vec<(Route, usize)> {
        let is_in_the_way = |route: &Route, wanted: &Route| {
            is_within(route.destination, view.cluster_cidrs)
                && overlap(route.destination, wanted.destination)
        };
        let routes = &view.network.routes;
        let must_wait = |wanted: &Route| {
            !routes.contains(wanted) && routes.iter().any(|route| is_in_the_way(route, wanted))
        };
        let (held_back, others) = std::mem::take(accepted)
            .into_iter()
            .partition(|(_, (route, _))| must_wait(route));
        *accepted = others;
        let held_back: Accepted = held_back;
        held_back.into_values().collect()
    }

    /// When the others' routes are there, the rest follows in the same pass.
    pub(super) fn ends_with(&self, accepted: &Accepted) -> bool {
        self.is_one && !accepted.is_empty()
    }

    /// Why this one waits.
    pub(super) fn why(&self, wanted: &Route, accepted: &Accepted) -> Option<String> {
        let is_in_the_way =
            |(route, _): &&(Route, _)| overlap(route.destination, wanted.destination);
        let mut theirs = self.theirs.iter();
        let found = theirs.find(is_in_the_way).or(self.theirs.first());
        let (route, server) = found?;
        let what = match self.ends_with(accepted) {
            true => "; it gives way as soon as the route of another node is there",
            false => {
                " and may be another cluster's: is the kubeconfig another cluster's? If not, delete that route by \
                 hand; until then it stays, and packets to this node's pods go there"
            }
        };
        let server = &server.name;
        Some(format!(
            "the route {route} leads to server {server}, which is no node's{what}"
        ))
    }
}

/// A route controller made a route for this node, and said so; network plugins give other reasons.
pub(super) fn had_its_route(node: &Node) -> bool {
    let mut conditions = node.status.conditions.iter();
    conditions.any(|one| {
        one.kind == NETWORK_UNAVAILABLE && one.status == "False" && one.reason == ROUTE_CREATED
    })
}
