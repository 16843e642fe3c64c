//! Plans the routes of the Network. The plan depends only on the nodes, the servers and the Network.
//!
//! The controller is responsible only for routes to destinations within the CIDRs of `--cluster-cidr`. When a needed
//! route is deleted, packets are lost. Therefore a route that another cluster or program may need is kept.

use super::types::{NodeRoutePlan, NodeRoutes, RouteFacts, RoutePlan, RouteRow, RouteStep, State};
use crate::controllers::NETWORK_UNAVAILABLE;
use crate::controllers::matching::{Claims, server_of};
use crate::controllers::node_writes::ROUTE_CREATED;
use crate::kube::{KubeNode, ObjectReference};
use crate::provider::order;
use crate::provider::variables::HCLOUD_NETWORK;
use crate::provider::{
    Finding, Instance, InstanceId, Network, Provider, Reason, Route, RouteChange,
};
use crate::text::{self, shell_command};
use ipnet::{IpNet, Ipv4Net};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// When the network can take only this many more routes or fewer, a warning is reported, because new nodes will soon
/// get no route.
const ROOM_FOR_FEW: usize = 10;

/// The data from which routes are planned.
pub struct Inputs<'a> {
    pub nodes: &'a [Arc<KubeNode>],
    pub instances: &'a [Instance],
    pub network: &'a Network,
    /// The pod ranges of the cluster, from the setting `--cluster-cidr`.
    pub cluster_cidrs: &'a [IpNet],
    /// The existing routes that nodes of this cluster have needed in earlier plans.
    pub remembered: &'a HashSet<Route>,
    /// Whether needed routes have been blocked for some minutes by routes that may belong to another cluster. If so,
    /// the condition `NetworkUnavailable` of the nodes with blocked routes becomes `True`.
    pub is_in_doubt_for_long: bool,
}

/// The routes that one node needs, and the data about the node's server that decide whether they can be made.
struct DesiredRoutes {
    /// The plan for the node. When a route of the node can't be made, the field `obstacle` of the plan says why.
    plan: NodeRoutePlan,
    server: InstanceId,
    /// The name of another node that has the server of this node: the provider IDs of both nodes name the server, and
    /// it belongs to the other node. No new route is then added for this node. `None` when the server belongs to this
    /// node.
    kept_by: Option<String>,
    /// Whether the node's server is in the list of servers.
    has_server: bool,
    /// The address of the node's server in the network. `None` when the server is not attached to the network or does
    /// not exist.
    gateway: Option<Ipv4Addr>,
    /// The node's IPv4 pod CIDRs that are within `--cluster-cidr`.
    cidrs: Vec<Ipv4Net>,
    /// Whether the pod CIDRs of the node are set and valid. If they are not, it is not known which routes the node
    /// needs. A route that leads to the node's server is then deleted only if another node needs a route that
    /// overlaps it.
    is_settled: bool,
    /// Whether the node has an IPv6 pod CIDR. No route leads to this CIDR, because the network supports only IPv4
    /// routes.
    has_ipv6: bool,
}

impl DesiredRoutes {
    fn new(
        inputs: &Inputs,
        node: &Arc<KubeNode>,
        server: InstanceId,
        instance: Option<&Instance>,
    ) -> DesiredRoutes {
        let addresses = instance.map(|instance| addresses(instance, inputs.network.id));
        let misfit = |cidr: &dyn Display| {
            let all = inputs.cluster_cidrs.iter().map(IpNet::to_string);
            let all = all.collect::<Vec<_>>().join(",");
            let why = format!(
                "the node's pod CIDR {cidr} is not within --cluster-cidr={all}, so ccm makes no route to these pods"
            );
            let fix = "set --cluster-cidr to the range of all pods, the same as for kube-controller-manager";
            Finding::warning(Reason::ClusterCIDRMisconfigured, why).with_fix(fix)
        };
        let facts = NodeRoutes { node: Arc::clone(node), ..NodeRoutes::default() };
        let plan = NodeRoutePlan::new(node.object(), "", facts);
        let mut desired = DesiredRoutes {
            plan,
            server,
            kept_by: None,
            has_server: instance.is_some(),
            gateway: addresses.and_then(|mut all| all.next()),
            cidrs: Vec::new(),
            is_settled: !node.spec.pod_cidrs.is_empty(),
            has_ipv6: false,
        };
        for cidr in node.spec.pod_cidrs.iter() {
            match cidr {
                Ok(IpNet::V6(_)) => desired.has_ipv6 = true,
                Ok(IpNet::V4(net)) if is_within(net, inputs.cluster_cidrs) => {
                    desired.cidrs.push(net)
                }
                Ok(IpNet::V4(net)) => desired.plan.findings.push(misfit(&net)),
                Err(text) => {
                    desired.plan.findings.push(misfit(&text));
                    desired.is_settled = false;
                }
            }
        }
        desired
    }
}

/// The data for a plan, and what the planner has found out from these data. The planner uses both to decide about each
/// route.
struct Planner<'a> {
    inputs: &'a Inputs<'a>,
    /// The servers by their addresses in the network. A server can have several addresses.
    servers: HashMap<Ipv4Addr, &'a Instance>,
    /// The routes that each node needs, sorted by the name of the node. Only nodes whose provider ID names a cloud
    /// server are included.
    desired: Vec<DesiredRoutes>,
    /// The pod CIDRs of nodes whose provider ID names no cloud server, each with the name of the node. Routes to these
    /// CIDRs are never changed.
    foreign: Vec<(Ipv4Net, &'a str)>,
    /// The names of the nodes on dedicated servers. They get no route, because a Network accepts no route to a
    /// dedicated server behind a vSwitch.
    dedicated: Vec<&'a str>,
    /// The needed routes that can be made, by destination. The number is the index in `desired` of the node that needs
    /// the route.
    accepted: BTreeMap<Ipv4Net, (Route, usize)>,
    /// Whether the server of at least one node that needs a route is attached to the network. This shows that the nodes
    /// and the network belong together. When it is `false`, all routes may belong to another cluster, and none is
    /// deleted.
    is_anchored: bool,
    /// Whether a needed route is blocked by a route that may belong to another cluster in the same Network.
    is_in_doubt: bool,
    /// Whether the next plan will probably be allowed to replace routes that may belong to another cluster and that
    /// block needed routes. This is so when two conditions are fulfilled. All routes that may belong to another cluster
    /// lead to one server, so that they are probably left from an earlier cluster. In addition, this plan adds a needed
    /// route that nothing blocks, which then proves that the Network belongs to this cluster.
    may_become_clear: bool,
}

pub fn plan(inputs: &Inputs, provider: &dyn Provider) -> RoutePlan {
    let mut planner = Planner::new(inputs, provider);
    planner.accept();
    planner.withdraw_doubtful();
    let mut rows: Vec<RouteRow> =
        inputs.network.routes.iter().map(|route| planner.row(route)).collect();
    planner.add_missing(&mut rows);
    order::sort_by_key(&mut rows, |row| (row.destination, row.have));
    let (id, name) = (inputs.network.id, &inputs.network.name);
    let object = ObjectReference::without_namespace("Network", name, id);
    let (changes, findings) = (changes(&rows), planner.findings(&rows));
    let facts = RouteFacts { is_in_doubt: planner.is_in_doubt, nodes: planner.into_nodes(), rows };
    RoutePlan { changes, findings, ..RoutePlan::new(object, "", facts) }
}

impl<'a> Planner<'a> {
    fn new(inputs: &'a Inputs<'a>, provider: &dyn Provider) -> Planner<'a> {
        let mut planner = Planner {
            inputs,
            servers: HashMap::new(),
            desired: Vec::new(),
            foreign: Vec::new(),
            dedicated: Vec::new(),
            accepted: BTreeMap::new(),
            is_anchored: false,
            is_in_doubt: false,
            may_become_clear: false,
        };
        let mut by_id = HashMap::new();
        for instance in inputs.instances {
            by_id.insert(instance.id, instance);
            let ips = addresses(instance, inputs.network.id);
            planner.servers.extend(ips.map(|ip| (ip, instance)));
        }
        let claims = Claims::new(provider, inputs.nodes);
        for node in inputs.nodes {
            let server = server_of(node, provider);
            if server.is_some_and(|id| id.dedicated().is_some()) {
                planner.dedicated.push(node.name());
            } else if let Some(server) = server {
                let instance = by_id.get(&server).copied();
                let mut desired = DesiredRoutes::new(inputs, node, server, instance);
                if claims.is_second(node) {
                    let keeper = claims.keeper(server).map_or("(another new node)", KubeNode::name);
                    desired.kept_by = Some(keeper.to_owned());
                }
                planner.desired.push(desired);
                continue;
            }
            let pods = node.spec.pod_cidrs.iter().filter_map(|cidr| match cidr {
                Ok(IpNet::V4(net)) => Some((net, node.name())),
                _ => None,
            });
            planner.foreign.extend(pods);
        }
        order::sort_by(&mut planner.desired, |one, next| {
            one.plan.object.name.cmp(&next.plan.object.name)
        });
        planner
    }

    /// Several nodes can need a route to the same destination. This function decides which of them gets it, by these
    /// rules in this order: the node's route already exists in the Network, the node's server belongs to no other node,
    /// the node is not being deleted, and the node's name comes first in the alphabet.
    fn accept(&mut self) {
        let mut wanted = Vec::new();
        for (place, desired) in self.desired.iter_mut().enumerate() {
            let is_going = desired.plan.node.metadata.deletion_timestamp.is_some();
            for &destination in &desired.cidrs {
                let Some(gateway) = desired.gateway else {
                    let (server, network) = (desired.server, self.inputs.network);
                    desired.plan.obstacle = Some(if desired.has_server {
                        let attach = shell_command(
                            "hcloud server attach-to-network",
                            &[&server, &"--network", &network.id],
                        );
                        let why = format!(
                            "its server {server} is not attached to network {:?}. Until the server is attached, the \
                             node's pods can't be reached",
                            network.name
                        );
                        no_route(&why).with_fix(format!("attach the server: {attach}"))
                    } else {
                        no_route(&format!(
                            "this project has no server {server}, which the node's provider ID names"
                        ))
                    });
                    continue;
                };
                let route = Route { destination, gateway };
                let is_missing = !self.inputs.network.routes.contains(&route);
                if let Some(keeper) = desired.kept_by.as_ref().filter(|_| is_missing) {
                    let why = format!(
                        "its server {} belongs to node {keeper}, whose provider ID names the server, too. Delete the \
                         node that does not run on the server",
                        desired.server
                    );
                    desired.plan.obstacle = Some(no_route(&why));
                    continue;
                }
                let is_second = desired.kept_by.is_some();
                wanted.push((is_missing, is_second, is_going, place, route));
            }
        }
        self.is_anchored = !wanted.is_empty();
        order::sort_by(&mut wanted, Ord::cmp);
        for (is_missing, _, _, place, route) in wanted {
            match self.refusal(&route, is_missing) {
                None => drop(self.accepted.insert(route.destination, (route, place))),
                Some(why) => self.desired[place].plan.obstacle = Some(no_route(&why)),
            }
        }
    }

    /// Returns the reason why the Network can't have this route, e.g. because its destination overlaps the destination
    /// of another route. `None` when it can have the route.
    fn refusal(&self, route: &Route, is_missing: bool) -> Option<String> {
        let destination = route.destination;
        let hits = |net: &Ipv4Net| overlap(*net, destination);
        if let Some((net, (_, place))) = self.accepted.iter().find(|(net, _)| hits(net)) {
            let other = &self.desired[*place].plan.object.name;
            return Some(format!(
                "its pod CIDR {destination} overlaps the pod CIDR {net} of node {other:?}, which gets the route. Let \
                 one of the two nodes join again with another pod CIDR"
            ));
        }
        if !is_missing {
            return None;
        }
        let network = self.inputs.network;
        if let Some(name) = self.foreign_at(destination) {
            return Some(format!(
                "its pod CIDR {destination} is also the pod CIDR of node {name:?}, whose provider ID names no cloud \
                 server. Let one of the two nodes join again with another pod CIDR"
            ));
        }
        if let Some(subnet) = network.subnets.iter().find(|net| hits(net)) {
            return Some(format!(
                "its pod CIDR {destination} overlaps subnet {subnet} of network {}. Set --cluster-cidr to a range \
                 outside of the subnets",
                network.name
            ));
        }
        let others = network.routes.iter().filter(|other| {
            // The API allows the route `0.0.0.0/0` beside any other route, so this route is no reason to refuse another
            // route.
            !self.is_ours(other) && other.destination.prefix_len() > 0
        });
        let mut others = others.filter(|other| hits(&other.destination));
        others.next().map(|other| {
            format!(
                "its pod CIDR {destination} overlaps the route {other}, which ccm must not change. If that route is \
                 not needed, delete it by hand"
            )
        })
    }

    /// Whether the controller is responsible for the route: its destination is within `--cluster-cidr`, and does not
    /// overlap the pod CIDR of a node whose provider ID names no cloud server. Other routes are never deleted.
    fn is_ours(&self, route: &Route) -> bool {
        is_within(route.destination, self.inputs.cluster_cidrs)
            && self.foreign_at(route.destination).is_none()
    }

    /// Returns the name of a node whose pod CIDR overlaps the range `net`, and whose provider ID names no cloud server.
    /// `None` when there is no such node.
    fn foreign_at(&self, net: Ipv4Net) -> Option<&'a str> {
        self.foreign.iter().find(|(theirs, _)| overlap(*theirs, net)).map(|(_, name)| *name)
    }

    /// Returns the needed routes of the node whose provider ID names this server. When several nodes name the server,
    /// the node to which the server belongs is chosen. `None` when no node names it.
    fn of_server(&self, server: &Instance) -> Option<&DesiredRoutes> {
        let mut all = self.desired.iter().filter(|desired| desired.server == server.id);
        let first = all.clone().next();
        all.find(|desired| desired.kept_by.is_none()).or(first)
    }

    /// Handles routes in the Network that may belong to another cluster. Two clusters may share a Network by mistake,
    /// or the kubeconfig may belong to another cluster. When such a route overlaps a route that a node needs, it blocks
    /// the needed route.
    ///
    /// This function drops the blocked routes from the plan, unless there is a proof that the Network belongs to this
    /// cluster. The needed routes that nothing blocks are still added, because an addition does no harm.
    ///
    /// An existing route that a node needs is the proof, if the node's condition `NetworkUnavailable` says that a route
    /// controller made the route. Without this condition, this program may have added the route itself by mistake. The
    /// route is then a proof only if all the routes that may belong to another cluster lead to one server.
    fn withdraw_doubtful(&mut self) {
        let (inputs, network) = (self.inputs, self.inputs.network);
        // `ours` are the routes for which this controller is responsible. `theirs` are those of them that may belong to
        // another cluster: each leads to an existing server that no node of this cluster names, and no node of this
        // cluster has needed it in an earlier plan.
        let ours = network.routes.iter().filter(|route| self.is_ours(route));
        let theirs = ours.filter_map(|route| {
            let server = *self.servers.get(&route.gateway)?;
            let is_ours = self.of_server(server).is_some() || inputs.remembered.contains(route);
            (!is_ours).then_some((route, server))
        });
        let theirs: Vec<(&Route, &Instance)> = theirs.collect();
        let blocks = |route: &Route, wanted: &Route| overlap(route.destination, wanted.destination);
        let is_blocked = |wanted: &Route| theirs.iter().any(|(route, _)| blocks(route, wanted));
        if !self.accepted.values().any(|(wanted, _)| is_blocked(wanted)) {
            return;
        }
        // When all routes that may belong to another cluster lead to the same server, that cluster would have a single
        // node, and such a cluster needs no routes. So the routes are probably left from an earlier cluster. They can
        // be replaced as soon as the needed route of any node of this cluster exists, because that route proves that
        // this cluster uses the Network.
        let servers: HashSet<InstanceId> = theirs.iter().map(|(_, server)| server.id).collect();
        let is_one = servers.len() == 1;
        let is_proof = |(route, place): &(Route, usize)| {
            let node = &self.desired[*place].plan.node;
            network.routes.contains(route) && (is_one || had_its_route(node))
        };
        if self.accepted.values().any(is_proof) {
            return;
        }
        let must_wait = |wanted: &Route| {
            let ours = network.routes.iter();
            let mut ours = ours.filter(|route| is_within(route.destination, inputs.cluster_cidrs));
            !network.routes.contains(wanted) && ours.any(|route| blocks(route, wanted))
        };
        let accepted = std::mem::take(&mut self.accepted).into_iter();
        let (doubtful, accepted): (BTreeMap<_, _>, BTreeMap<_, _>) =
            accepted.partition(|(_, (wanted, _))| must_wait(wanted));
        self.may_become_clear = is_one && !accepted.is_empty();
        for (wanted, place) in doubtful.into_values() {
            let mut blocking = theirs.iter().filter(|(route, _)| blocks(route, &wanted));
            let Some((route, server)) = blocking.next().or(theirs.first()) else {
                continue;
            };
            let what = if self.may_become_clear {
                ". First ccm adds a route for another node, which proves that this cluster uses the Network. Then ccm \
                 replaces that old route by a route to this node"
            } else {
                " of this cluster, so the kubeconfig or the Network may be the wrong one. If both are right, delete \
                 that route by hand. Until you delete it, packets to this node's pods go to that server"
            };
            let server = &server.name;
            let why = format!(
                "the route {route} leads to server {server:?}, which belongs to no node{what}"
            );
            let plan = &mut self.desired[place].plan;
            plan.obstacle = Some(no_route(&why));
            plan.is_in_doubt = true;
        }
        self.accepted = accepted;
        self.is_in_doubt = true;
        self.is_anchored = false;
    }

    /// Returns the row of the plan (the state of a route and what is done about it) for a route that exists in the
    /// network.
    fn row(&self, route: &Route) -> RouteRow {
        let server = self.servers.get(&route.gateway);
        let leads_to = server.and_then(|server| self.of_server(server));
        let wanted = self.accepted.get(&route.destination);
        let wanted_by = wanted.map(|(_, place)| &self.desired[*place]);
        let state = self.state(route, leads_to);
        let step = match state {
            State::WrongGateway => RouteStep::Replace,
            State::Blackhole | State::Unwanted if self.is_anchored => RouteStep::Delete,
            _ => RouteStep::Nothing,
        };
        let is_ours = state != State::NotOurs;
        let node = wanted_by.or(leads_to).filter(|_| is_ours);
        RouteRow {
            destination: route.destination,
            have: Some(*route),
            want: wanted.map(|(route, _)| *route).filter(|_| is_ours),
            node: node.map(|desired| desired.plan.object.name.clone()),
            server: server.map(|server| server.name.clone()),
            state,
            step,
        }
    }

    fn state(&self, route: &Route, leads_to: Option<&DesiredRoutes>) -> State {
        let wanted = self.accepted.get(&route.destination);
        let is_wanted_elsewhere = self.accepted.keys().any(|net| overlap(*net, route.destination));
        match leads_to {
            _ if !is_within(route.destination, self.inputs.cluster_cidrs) => State::NotOurs,
            _ if wanted.is_some_and(|(wanted, _)| wanted == route) => State::Ok,
            _ if self.foreign_at(route.destination).is_some() => State::LeftAlone,
            _ if wanted.is_some() => State::WrongGateway,
            _ if !self.servers.contains_key(&route.gateway) => State::Blackhole,
            _ if is_wanted_elsewhere => State::Unwanted,
            Some(node) if node.is_settled => State::Unwanted,
            Some(_) => State::LeftAlone,
            // A node needed this route in an earlier plan, and no node needs it now. So the route belongs to this
            // cluster and can be deleted, even if its gateway is now the address of another server.
            None if self.inputs.remembered.contains(route) => State::Unwanted,
            None => State::Stale,
        }
    }

    /// Adds a row to the plan for each route that a node needs and that does not exist. The row says whether the route
    /// is added or can't be added. It can't be added, for example, when the network has reached its limit of routes.
    fn add_missing(&mut self, rows: &mut Vec<RouteRow>) {
        let network = self.inputs.network;
        let deleted = rows.iter().filter(|row| row.step == RouteStep::Delete).count();
        let mut there = network.routes.len() + network.other_routes - deleted;
        // A route in the state `Stale` leads to a server that belongs to no node. When a node needs a route to the same
        // destination, the needed route still counts as missing.
        let rows_of_nodes = rows.iter().filter(|row| row.state != State::Stale);
        let known: HashSet<Ipv4Net> = rows_of_nodes.map(|row| row.destination).collect();
        for (place, desired) in self.desired.iter_mut().enumerate() {
            for destination in desired.cidrs.iter().filter(|cidr| !known.contains(cidr)) {
                let accepted = self.accepted.get(destination).filter(|(_, of)| *of == place);
                let want = accepted.map(|(route, _)| *route);
                let has_room = there < network.routes_at_most;
                if want.is_some() && !has_room {
                    let (name, at_most) = (&network.name, network.routes_at_most);
                    let why = format!(
                        "network {name:?} has reached its limit of {at_most} routes. Delete routes that are not needed"
                    );
                    desired.plan.obstacle = Some(no_route(&why));
                }
                let is_added = want.is_some() && has_room;
                there += usize::from(is_added);
                let step = if is_added { RouteStep::Add } else { RouteStep::Cannot };
                let server = want.and_then(|route| self.servers.get(&route.gateway));
                rows.push(RouteRow {
                    destination: *destination,
                    have: None,
                    want,
                    node: Some(desired.plan.object.name.clone()),
                    server: server.map(|server| server.name.clone()),
                    state: State::Missing,
                    step,
                });
            }
        }
    }

    /// Returns the plans for the nodes that need a route, or about which there is a message for the operator.
    fn into_nodes(mut self) -> Vec<NodeRoutePlan> {
        let desired = std::mem::take(&mut self.desired).into_iter().enumerate();
        let is_wanted = |(_, desired): &(usize, DesiredRoutes)| {
            !(desired.cidrs.is_empty() && desired.plan.findings.is_empty())
        };
        let plan = |(place, mut desired): (usize, DesiredRoutes)| {
            let mine = self.accepted.values().filter(|(_, of)| *of == place);
            desired.plan.routes = mine.map(|(route, _)| *route).collect();
            desired.plan.unavailable = self.unavailable(&desired);
            desired.plan.set_condition();
            desired.plan
        };
        desired.filter(is_wanted).map(plan).collect()
    }

    /// Returns the value that the node's condition `NetworkUnavailable` must have. `None` means that the condition
    /// stays as it is.
    fn unavailable(&self, desired: &DesiredRoutes) -> Option<bool> {
        let says = desired.plan.node.condition(NETWORK_UNAVAILABLE);
        match desired.plan.obstacle {
            _ if desired.cidrs.is_empty() => None,
            // A route that may belong to another cluster blocks a needed route. In this state, a condition
            // `NetworkUnavailable` that is missing or `False` is left as it is. If this plan wrote the value `False`,
            // the next plan would take it as proof that the Network belongs to this cluster.
            None if self.is_in_doubt && matches!(says, None | Some("False")) => None,
            None => Some(false),
            // The list of servers does not contain the node's server. The lifecycle controller decides whether the node
            // is deleted, so the node's condition `NetworkUnavailable` stays as it is.
            Some(_) if !desired.has_server => None,
            // A route that may belong to another cluster blocks the node's route. The condition `NetworkUnavailable` of
            // the node becomes `True` when this has lasted for some minutes. It becomes `True` at once when the node
            // had its route before, and this plan adds no route that could prove that the Network belongs to this
            // cluster. In all other cases the condition stays as it is. So a short run with a wrong kubeconfig does not
            // change the nodes of another cluster.
            Some(_) if desired.plan.is_in_doubt => {
                let is_marked = says == Some("True")
                    || self.inputs.is_in_doubt_for_long
                    || (had_its_route(&desired.plan.node) && !self.may_become_clear);
                is_marked.then_some(true)
            }
            Some(_) => self.is_anchored.then_some(true),
        }
    }

    /// Returns the findings (messages for the operator) about the network as a whole.
    fn findings(&self, rows: &[RouteRow]) -> Vec<Finding> {
        let network = self.inputs.network;
        let mut findings = Vec::new();
        let is_gone = |row: &RouteRow| matches!(row.step, RouteStep::Delete | RouteStep::Cannot);
        let there = rows.iter().filter(|row| !is_gone(row)).count() + network.other_routes;
        if there + ROOM_FOR_FEW >= network.routes_at_most {
            let why = format!(
                "{} or more of the Network's {} possible routes are in use, and each node needs one route",
                network.routes_at_most.saturating_sub(ROOM_FOR_FEW),
                network.routes_at_most
            );
            let fix = "delete routes that are not needed, or use an overlay network";
            findings.push(Finding::warning(Reason::RouteLimitNear, why).with_fix(fix));
        }
        // When the server of a node is not in the Network, the node's own finding (a message for the operator) already
        // says so. Stale routes (routes to a server that belongs to no node) that lead to the pod CIDRs of this node
        // are therefore not reported.
        let lost = self.desired.iter().filter(|desired| desired.gateway.is_none());
        let lost: Vec<&Ipv4Net> = lost.flat_map(|desired| &desired.cidrs).collect();
        let is_lost = |row: &RouteRow| lost.iter().any(|net| overlap(**net, row.destination));
        let stale = rows.iter().filter(|row| row.state == State::Stale);
        findings.extend(stale.filter(|row| !is_lost(row)).filter_map(|row| {
            let (route, server) = (row.have?, row.server.as_deref().unwrap_or_default());
            let why = format!(
                "the route {route} leads to server {server:?}, which belongs to no node of this cluster; ccm does not \
                 delete the route"
            );
            let remove = shell_command(
                "hcloud network remove-route",
                &[
                    &network.id,
                    &"--destination",
                    &route.destination,
                    &"--gateway",
                    &route.gateway,
                ],
            );
            let fix = format!("if the route is not needed, delete it: {remove}");
            Some(Finding::warning(Reason::StaleRoute, why).with_fix(fix))
        }));
        findings.extend(self.inputs.cluster_cidrs.iter().filter_map(|cidr| self.misplaced(cidr)));
        let is_any_wanted = self.desired.iter().any(|desired| !desired.cidrs.is_empty());
        if is_any_wanted && !self.is_anchored && !self.is_in_doubt {
            let why = "no node's server is attached to this Network. Does the Network, or the kubeconfig, belong to \
                       another cluster? Until this is corrected, ccm deletes no route, and sets no condition \
                       NetworkUnavailable";
            let fix = format!("check {HCLOUD_NETWORK} and --context");
            findings.push(Finding::warning(Reason::NoNodeInNetwork, why).with_fix(fix));
        }
        if !self.dedicated.is_empty() {
            let why = format!(
                "there is no route to the pods of {}, because a Network allows no routes to dedicated servers. Let the \
                 network plugin connect these pods (tunnels, BGP)",
                text::some_of(&self.dedicated)
            );
            findings.push(Finding::info(Reason::DedicatedNodeWithoutRoute, why));
        }
        if self.desired.iter().any(|desired| desired.has_ipv6) {
            let why = "IPv6 addresses of pods get no routes, because the private Network supports only IPv4";
            findings.push(Finding::info(Reason::IPv6RouteIgnored, why));
        }
        findings
    }

    /// Returns a finding (a message for the operator) when this range of `--cluster-cidr` is outside of the network's
    /// range or overlaps one of its subnets.
    fn misplaced(&self, cidr: &IpNet) -> Option<Finding> {
        let IpNet::V4(cidr) = cidr else { return None };
        let network = self.inputs.network;
        let subnet = network.subnets.iter().find(|net| overlap(**net, *cidr));
        let range = network.range.filter(|range| !range.contains(cidr));
        let why = match (subnet, range) {
            (Some(subnet), _) => {
                format!(
                    "overlaps the Network's subnet {subnet}, and a route can't lead to addresses in a subnet"
                )
            }
            (None, Some(range)) => format!(
                "is not within the Network's range {range}. Servers send only packets for the Network's range into the \
                 Network, so packets to pods in {cidr} possibly do not follow the Network's routes"
            ),
            (None, None) => return None,
        };
        let why = format!("--cluster-cidr={cidr} {why}");
        let fix = "set --cluster-cidr to a range within the Network's range and outside of its subnets, the same as \
                   for kube-controller-manager";
        Some(Finding::warning(Reason::ClusterCIDRMisconfigured, why).with_fix(fix))
    }
}

/// Returns a finding (a message for the operator) which says that a route of a node can't be made.
fn no_route(why: &str) -> Finding {
    Finding::warning(Reason::FailedToCreateRoute, format!("the node gets no route, because {why}"))
}

/// Returns the changes in the order in which they are made. Deletions come first, because the number of routes in a
/// network is limited. Replacements come next, each a deletion followed at once by an addition, so that the destination
/// has no route only for a short time. New routes come last.
fn changes(rows: &[RouteRow]) -> Vec<RouteChange> {
    let mut changes = Vec::new();
    for step in [RouteStep::Delete, RouteStep::Replace, RouteStep::Add] {
        for row in rows.iter().filter(|row| row.step == step) {
            let change = |is_deletion, route, why| RouteChange {
                is_deletion,
                route,
                node: row.node.clone(),
                why,
            };
            let why = match row.state {
                State::Blackhole => "not needed, because no server has the address of its gateway",
                State::WrongGateway => "the pods of this range are on another server",
                _ => "not needed, because no node at this gateway uses this range for its pods",
            };
            let delete = |route| change(true, route, why);
            let add = |route| change(false, route, "the node's pods are behind this gateway");
            changes.extend(row.have.map(delete));
            changes.extend(row.want.map(add));
        }
    }
    changes
}

/// Whether the condition `NetworkUnavailable` of the node says that a route controller has made the node's route. A
/// network plugin that writes this condition gives it another `reason`, which does not count.
fn had_its_route(node: &KubeNode) -> bool {
    node.status.conditions.iter().any(|condition| {
        condition.kind == NETWORK_UNAVAILABLE
            && condition.status == "False"
            && condition.reason == ROUTE_CREATED
    })
}

/// Whether the range is within one of these CIDRs. The range `0.0.0.0/0`, i.e. all addresses, never counts as within a
/// CIDR.
fn is_within(net: Ipv4Net, all: &[IpNet]) -> bool {
    net.prefix_len() > 0 && all.iter().any(|cidr| cidr.contains(&IpNet::V4(net)))
}

fn overlap(one: Ipv4Net, other: Ipv4Net) -> bool {
    one.contains(&other) || other.contains(&one)
}

/// Returns the IPv4 addresses of a server in the network. The main address comes before the alias IPs.
fn addresses(instance: &Instance, network: u64) -> impl Iterator<Item = Ipv4Addr> {
    let there = instance.private.iter().filter(move |private| private.network == network);
    let all = there.flat_map(|private| std::iter::once(&private.ip).chain(&private.aliases));
    all.filter_map(|ip| match ip {
        IpAddr::V4(ip) => Some(*ip),
        IpAddr::V6(_) => None,
    })
}
