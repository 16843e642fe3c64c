//! Decides what becomes of each destination. A deletion takes packets away, so
//! a route whose owner is in doubt is kept.

use super::desired::{DesiredRoute, DesiredRoutes, Gateway, is_within, overlap};
use super::ownership::{Accepted, Ownership, had_its_route};
use super::plan::{NETWORK_UNAVAILABLE, NodePlan, Row, State, Step, View};
use crate::provider::{Finding, Reason, Route};
use ipnet::{IpNet, Ipv4Net};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// Routes that a network has left when it is worth a word.
const ROOM_FOR_FEW: usize = 10;

/// Decides for one destination after the other.
pub(super) struct Planner<'a> {
    view: &'a View<'a>,
    desired: &'a DesiredRoutes<'a>,
    accepted: Accepted,
    /// Why a node does not get a route, by its place.
    obstacles: BTreeMap<usize, String>,
    /// One of our servers is the gateway of a wanted route: the nodes, the servers and the network
    /// belong together. Else nothing may be deleted, for it may be another
    /// cluster's.
    is_anchored: bool,
    /// Routes in the way may be another cluster's in the same network.
    is_doubtful: bool,
    /// That ends when what is free is added.
    is_ending: bool,
    /// Nodes whose routes wait for that, by their place.
    held_back: HashSet<usize>,
}

impl<'a> Planner<'a> {
    /// Knows which routes are wanted.
    pub(super) fn new(view: &'a View<'a>, desired: &'a DesiredRoutes<'a>) -> Planner<'a> {
        let mut planner = Planner {
            view,
            desired,
            accepted: Accepted::new(),
            obstacles: BTreeMap::new(),
            is_anchored: false,
            is_doubtful: false,
            is_ending: false,
            held_back: HashSet::new(),
        };
        planner.accept();
        planner.doubt();
        planner
    }

    /// Of nodes that want the same, one gets it: whose route is there, then who stays, then by name.
    fn accept(&mut self) {
        let mut asked = Vec::new();
        for (place, desired_route) in self.desired.of_nodes.iter().enumerate() {
            for destination in &desired_route.cidrs {
                let gateway = match desired_route.gateway {
                    Gateway::At(gateway) => gateway,
                    Gateway::NotAttached => {
                        let why = format!(
                            "server {} is not attached to network {}; until it is, its pods can't be reached",
                            desired_route.server, self.view.network.name
                        );
                        self.obstacles.insert(place, why);
                        continue;
                    }
                    Gateway::NoServer => {
                        let why = format!("this project has no server {}", desired_route.server);
                        self.obstacles.insert(place, why);
                        continue;
                    }
                };
                let route = Route {
                    destination: *destination,
                    gateway,
                };
                let is_there = self.view.network.routes.contains(&route);
                let is_going = desired_route.node.metadata.deletion_timestamp.is_some();
                asked.push((!is_there, is_going, place, route));
            }
        }
        self.is_anchored = !asked.is_empty();
        asked.sort();
        for (is_missing, _, place, route) in asked {
            match self.refusal(&route, is_missing) {
                None => drop(self.accepted.insert(route.destination, (route, place))),
                Some(why) => drop(self.obstacles.insert(place, why)),
            }
        }
    }

    /// Where something in the way may be another cluster's, nothing is taken away; what is free is
    /// added.
    fn doubt(&mut self) {
        let Some(ownership) = Ownership::find(self.view, self.desired, &self.accepted) else {
            return;
        };
        for (route, place) in ownership.held_back(self.view, &mut self.accepted) {
            self.held_back.insert(place);
            if let Some(why) = ownership.why(&route, &self.accepted) {
                self.obstacles.insert(place, why);
            }
        }
        self.is_ending = ownership.ends_with(&self.accepted);
        self.is_doubtful = true;
        self.is_anchored = false;
    }

    /// Why this route can't be.
    fn refusal(&self, route: &Route, is_missing: bool) -> Option<String> {
        let destination = route.destination;
        let hits = |net: &Ipv4Net| overlap(*net, destination);
        let mut accepted = self.accepted.iter();
        if let Some((net, (_, place))) = accepted.find(|(net, _)| hits(net)) {
            let other = self.desired.of_nodes[*place].node.name();
            return Some(format!(
                "its pods' {destination} is taken: node {other} has {net}"
            ));
        }
        if !is_missing {
            return None;
        }
        let network = self.view.network;
        if let Some(name) = self.desired.stranger_at(destination) {
            return Some(format!(
                "its pods' {destination} are node {name}'s as well, which has no provider ID of ours"
            ));
        }
        if let Some(subnet) = network.subnets.iter().find(|net| hits(net)) {
            return Some(format!(
                "its pods' {destination} overlaps subnet {subnet} of network {}; --cluster-cidr must lie \
                 outside of the subnets",
                network.name
            ));
        }
        let others = network.routes.iter().filter(|other| {
            let theirs = !is_within(other.destination, self.view.cluster_cidrs)
                || self.desired.stranger_at(other.destination).is_some();
            // The API has the default route beside everything else.
            theirs && other.destination.prefix_len() > 0
        });
        let mut others = others.filter(|other| hits(&other.destination));
        others.next().map(|other| {
            format!(
                "its pods' {destination} overlaps the route {other}, which is not ours to touch"
            )
        })
    }

    /// A route that is there.
    pub(super) fn row(&self, route: &Route) -> Row {
        let server = self.desired.servers.get(&route.gateway);
        let claim = server.and_then(|server| self.desired.of_server(server.id));
        let wanted = self.accepted.get(&route.destination);
        let (state, step) = self.planner(route, server.is_some(), claim);
        let wanted_by = wanted.map(|(_, place)| &self.desired.of_nodes[*place]);
        let node = wanted_by
            .or(claim)
            .map(|desired_route| desired_route.node.name());
        let is_ours = state != State::NotOurs;
        Row {
            destination: route.destination,
            have: Some(*route),
            want: wanted.map(|(route, _)| *route).filter(|_| is_ours),
            node: node.filter(|_| is_ours).map(str::to_owned),
            server: server.map(|server| server.name.clone()),
            state,
            step,
        }
    }

    fn planner(
        &self,
        route: &Route,
        leads_to_server: bool,
        claim: Option<&DesiredRoute>,
    ) -> (State, Step) {
        if !is_within(route.destination, self.view.cluster_cidrs) {
            return (State::NotOurs, Step::Nothing);
        }
        let wanted = self.accepted.get(&route.destination);
        if wanted.is_some_and(|(wanted, _)| wanted == route) {
            return (State::Ok, Step::Nothing);
        }
        if self.desired.stranger_at(route.destination).is_some() {
            return (State::LeftAlone, Step::Nothing);
        }
        if wanted.is_some() {
            return (State::WrongGateway, Step::Replace);
        }
        let delete = match self.is_anchored {
            true => Step::Delete,
            false => Step::Nothing,
        };
        if !leads_to_server {
            return (State::Blackhole, delete);
        }
        let mut accepted = self.accepted.keys();
        let is_wanted_elsewhere = accepted.any(|net| overlap(*net, route.destination));
        match claim {
            Some(desired_route) if desired_route.is_settled => (State::Unwanted, delete),
            _ if is_wanted_elsewhere => (State::Unwanted, delete),
            Some(_) => (State::LeftAlone, Step::Nothing),
            // Whoever has that address by now: the route was a node's, and no node wants it.
            None if self.view.remembered.contains(route) => (State::Unwanted, delete),
            None => (State::Stale, Step::Nothing),
        }
    }

    /// Rows for what is wanted and not there, as far as the network has room.
    pub(super) fn add_missing(&mut self, rows: &mut Vec<Row>) {
        let network = self.view.network;
        let deleted = rows.iter().filter(|row| row.step == Step::Delete).count();
        let mut there = network.routes.len() + network.other_routes - deleted;
        // A route to another owner's server is not the node's: the node's own route is missing.
        let rows_of_nodes = rows.iter().filter(|row| row.state != State::Stale);
        let known: HashSet<Ipv4Net> = rows_of_nodes.map(|row| row.destination).collect();
        for (place, desired_route) in self.desired.of_nodes.iter().enumerate() {
            for destination in desired_route
                .cidrs
                .iter()
                .filter(|cidr| !known.contains(cidr))
            {
                let accepted = self.accepted.get(destination);
                let want = accepted
                    .filter(|(_, of)| *of == place)
                    .map(|(route, _)| *route);
                let step = match want {
                    None => Step::Cannot,
                    Some(_) if there >= network.routes_at_most => {
                        let why = format!(
                            "network {} has all of the {} routes that it takes",
                            network.name, network.routes_at_most
                        );
                        self.obstacles.insert(place, why);
                        Step::Cannot
                    }
                    Some(_) => {
                        there += 1;
                        Step::Add
                    }
                };
                let server = want.and_then(|route| self.desired.servers.get(&route.gateway));
                rows.push(Row {
                    destination: *destination,
                    have: None,
                    want,
                    node: Some(desired_route.node.name().to_owned()),
                    server: server.map(|server| server.name.clone()),
                    state: State::Missing,
                    step,
                });
            }
        }
    }

    pub(super) fn nodes(&self) -> Vec<NodePlan> {
        let desired = self.desired.of_nodes.iter().enumerate();
        let asks = desired.filter(|(_, desired_route)| {
            !(desired_route.cidrs.is_empty() && desired_route.misfits.is_empty())
        });
        asks.map(|(place, desired_route)| self.node(place, desired_route))
            .collect()
    }

    fn node(&self, place: usize, desired_route: &DesiredRoute) -> NodePlan {
        let obstacle = self.obstacles.get(&place);
        let mine = self.accepted.values().filter(|(_, of)| *of == place);
        let unavailable = match (obstacle, desired_route.gateway) {
            _ if desired_route.cidrs.is_empty() => None,
            // What is added now must not look like a settled cluster's next time.
            (None, _) if self.is_doubtful => {
                let says = desired_route.node.condition(NETWORK_UNAVAILABLE);
                says.filter(|status| *status != "False").map(|_| false)
            }
            (None, _) => Some(false),
            // The lifecycle controller decides whether the node is deleted.
            (Some(_), Gateway::NoServer) => None,
            (Some(_), _) if self.held_back.contains(&place) => {
                self.is_unreached(desired_route).then_some(true)
            }
            (Some(_), _) => self.is_anchored.then_some(true),
        };
        let misfit = |cidr: &String| {
            let all: Vec<String> = self
                .view
                .cluster_cidrs
                .iter()
                .map(IpNet::to_string)
                .collect();
            let all = all.join(",");
            let why =
                format!("its pods' {cidr} is not within --cluster-cidr={all}, and gets no route");
            Finding::warning(Reason::ClusterCIDRMisconfigured, why)
        };
        let refused = |why: &String| {
            Finding::warning(Reason::FailedToCreateRoute, format!("no route: {why}"))
        };
        NodePlan {
            object: desired_route.node.object(),
            node: Arc::clone(desired_route.node),
            routes: mine.map(|(route, _)| *route).collect(),
            unavailable,
            is_held_back: self.held_back.contains(&place),
            obstacle: obstacle.map(refused),
            findings: desired_route.misfits.iter().map(misfit).collect(),
        }
    }

    /// A node whose route waits is marked where a route controller said of it what is not so any
    /// more, or where that has gone on for long. A short run with another kubeconfig marks no node.
    fn is_unreached(&self, desired_route: &DesiredRoute) -> bool {
        let node = desired_route.node;
        node.condition(NETWORK_UNAVAILABLE) == Some("True")
            || self.view.lacking.contains(&node.metadata.uid)
            || (had_its_route(node) && !self.is_ending)
    }

    pub(super) fn is_doubtful(&self) -> bool {
        self.is_doubtful
    }

    /// `--cluster-cidr` where the network does not carry pods.
    fn misplaced(&self) -> Vec<Finding> {
        let network = self.view.network;
        let mut findings = Vec::new();
        for cidr in self.view.cluster_cidrs {
            let IpNet::V4(cidr) = cidr else { continue };
            let why = match network.subnets.iter().find(|net| overlap(**net, *cidr)) {
                Some(subnet) => {
                    format!("has addresses of its subnet {subnet}: no route can lead there")
                }
                None => match network.range.filter(|range| !range.contains(cidr)) {
                    Some(range) => format!(
                        "is not within its range {range}: servers send into the Network only what is for addresses in \
                         that range, so packets to these pods may leave by another way, whatever its routes say"
                    ),
                    None => continue,
                },
            };
            let why = format!("--cluster-cidr={cidr} {why}");
            findings.push(Finding::warning(Reason::ClusterCIDRMisconfigured, why));
        }
        findings
    }

    pub(super) fn findings(&self, rows: &[Row]) -> Vec<Finding> {
        let network = self.view.network;
        let mut findings = Vec::new();
        let there = rows.iter().filter(|row| match row.step {
            Step::Nothing | Step::Replace | Step::Add => true,
            Step::Delete | Step::Cannot => false,
        });
        let there = there.count() + network.other_routes;
        if there + ROOM_FOR_FEW >= network.routes_at_most {
            let why = format!(
                "{} or more of the {} routes that it takes are in use: each node needs one",
                network.routes_at_most.saturating_sub(ROOM_FOR_FEW),
                network.routes_at_most
            );
            findings.push(Finding::warning(Reason::RouteLimitNear, why));
        }
        // Of pods whose node lost its server, the node itself says more.
        let is_of_lost_node = |row: &&Row| {
            let mut desired = self.desired.of_nodes.iter();
            desired.any(|desired_route| {
                let is_lost = matches!(
                    desired_route.gateway,
                    Gateway::NotAttached | Gateway::NoServer
                );
                is_lost
                    && desired_route
                        .cidrs
                        .iter()
                        .any(|net| overlap(*net, row.destination))
            })
        };
        let stale = rows.iter().filter(|row| row.state == State::Stale);
        for row in stale.filter(|row| !is_of_lost_node(row)) {
            if let Some(route) = &row.have {
                let server = row.server.as_deref().unwrap_or_default();
                let why = format!(
                    "the route {route} leads to server {server}, which is no node's, and is left unchanged; delete it by \
                     hand when it is not needed"
                );
                findings.push(Finding::warning(Reason::StaleRoute, why));
            }
        }
        findings.extend(self.misplaced());
        let asks = self
            .desired
            .of_nodes
            .iter()
            .any(|desired_route| !desired_route.cidrs.is_empty());
        if asks && !self.is_anchored && !self.is_doubtful {
            let why = "it holds the server of no node: is it, or the kubeconfig, another cluster's? No route is \
                       deleted, and no node is marked";
            findings.push(Finding::warning(Reason::NoNodeInNetwork, why));
        }
        if self.desired.has_ipv6 {
            let why = "IPv6 addresses of pods get no routes: the private network knows IPv4 alone";
            findings.push(Finding::info(Reason::IPv6RouteIgnored, why));
        }
        findings
    }
}
