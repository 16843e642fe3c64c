//! The route controller's plan: every state of a route with every state of a node and its server, and what holds
//! for any network.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "common/memory.rs"]
mod memory;
#[path = "common/random.rs"]
mod random;

use ccm::cloud::{Instance, InstanceId, Network, PrivateAddress, Reason, Route, RouteChange};
use ccm::controllers::route::{NETWORK_UNAVAILABLE, NodePlan, Plan, Row, State, Step, View, plan};
use ccm::kube::Node;
use ipnet::{IpNet, Ipv4Net};
use memory::Memory;
use random::Random;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

const NETWORK: u64 = 7;

/// Nodes, servers and the network, as both APIs say.
struct World {
    nodes: Vec<Arc<Node>>,
    instances: Vec<Instance>,
    network: Network,
    cluster_cidrs: Vec<IpNet>,
    left: HashSet<InstanceId>,
}

impl World {
    /// With these routes, each `destination gateway`.
    fn new(cluster_cidrs: &str, routes: &[&str]) -> World {
        World {
            nodes: Vec::new(),
            instances: Vec::new(),
            network: Network {
                id: NETWORK,
                name: "net".into(),
                subnets: vec!["10.0.0.0/24".parse().unwrap()],
                routes: routes.iter().map(|text| route(text)).collect(),
                other_routes: 0,
                routes_at_most: 100,
            },
            cluster_cidrs: cluster_cidrs
                .split(',')
                .map(|cidr| cidr.parse().unwrap())
                .collect(),
            left: HashSet::new(),
        }
    }

    fn node(&mut self, name: &str, provider_id: &str, cidrs: &str) -> &mut World {
        let cidrs: Vec<&str> = cidrs.split(',').filter(|cidr| !cidr.is_empty()).collect();
        self.raw_node(json!({
            "metadata": { "name": name, "uid": format!("uid-{name}"), "resourceVersion": "1" },
            "spec": { "providerID": provider_id, "podCIDRs": cidrs },
        }))
    }

    fn raw_node(&mut self, node: Value) -> &mut World {
        self.nodes
            .push(Arc::new(serde_json::from_value(node).unwrap()));
        self
    }

    /// In the network by these addresses, its own first.
    fn server(&mut self, id: u64, ips: &[&str]) -> &mut World {
        let mut ips: Vec<IpAddr> = ips.iter().map(|ip| ip.parse().unwrap()).collect();
        let own = (!ips.is_empty()).then(|| ips.remove(0));
        self.instances.push(Instance {
            id: InstanceId(id),
            name: format!("server-{id}"),
            private: own
                .map(|ip| PrivateAddress {
                    network: NETWORK,
                    ip,
                    aliases: ips,
                })
                .into_iter()
                .collect(),
            ..Instance::default()
        });
        self
    }

    fn plan(&self) -> Plan {
        let view = View {
            nodes: &self.nodes,
            instances: &self.instances,
            network: &self.network,
            cluster_cidrs: &self.cluster_cidrs,
            left: &self.left,
        };
        plan(&view, &Memory::default())
    }

    /// Does what the plan says, as the API would; the error: what it would refuse.
    fn apply(&mut self, plan: &Plan) -> Result<(), String> {
        for change in &plan.changes {
            let route = change.route;
            let routes = &mut self.network.routes;
            match change.change {
                RouteChange::Delete => {
                    let before = routes.len();
                    routes.retain(|other| *other != route);
                    if routes.len() == before {
                        return Err(format!("{route} is not there to be deleted"));
                    }
                }
                RouteChange::Add => {
                    let others = routes.iter().map(|other| other.destination);
                    let others = others.filter(|net| net.prefix_len() > 0);
                    let mut taken = others.chain(self.network.subnets.iter().copied());
                    if let Some(net) = taken.find(|net| overlap(*net, route.destination)) {
                        return Err(format!("{route} overlaps {net}"));
                    }
                    if routes.len() >= self.network.routes_at_most {
                        return Err(format!("{route} is one too many"));
                    }
                    routes.push(route);
                }
            }
        }
        for node in &plan.nodes {
            let Some(unavailable) = node.condition() else {
                continue;
            };
            let place = self
                .nodes
                .iter()
                .position(|one| one.name() == node.object.name);
            let mut changed = self.nodes[place.unwrap()].as_ref().clone();
            let status = if unavailable { "True" } else { "False" };
            changed.status.conditions = vec![condition(status)];
            self.nodes[place.unwrap()] = Arc::new(changed);
        }
        Ok(())
    }
}

fn route(text: &str) -> Route {
    let (destination, gateway) = text.split_once(' ').unwrap();
    Route {
        destination: destination.parse().unwrap(),
        gateway: gateway.parse().unwrap(),
    }
}

fn condition(status: &str) -> ccm::kube::Condition {
    serde_json::from_value(json!({ "type": NETWORK_UNAVAILABLE, "status": status })).unwrap()
}

fn overlap(one: Ipv4Net, other: Ipv4Net) -> bool {
    one.contains(&other) || other.contains(&one)
}

fn row<'a>(plan: &'a Plan, destination: &str) -> Option<&'a Row> {
    let destination = destination.parse().unwrap();
    plan.rows.iter().find(|row| row.destination == destination)
}

fn node<'a>(plan: &'a Plan, name: &str) -> &'a NodePlan {
    plan.nodes
        .iter()
        .find(|node| node.object.name == name)
        .unwrap()
}

fn changes(plan: &Plan) -> Vec<String> {
    plan.changes
        .iter()
        .map(|change| match change.change {
            RouteChange::Add => format!("+ {}", change.route),
            RouteChange::Delete => format!("- {}", change.route),
        })
        .collect()
}

fn reasons(plan: &Plan) -> BTreeSet<&'static str> {
    let of_nodes = plan.nodes.iter().flat_map(NodePlan::all_findings);
    let all = of_nodes.chain(&plan.findings);
    all.map(|finding| finding.reason.name()).collect()
}

/// Node `a` on server 1 at 10.0.0.11, whose route is right.
fn anchored(routes: &[&str]) -> World {
    let mut world = World::new(
        "10.244.0.0/16",
        &[&["10.244.1.0/24 10.0.0.11"], routes].concat(),
    );
    world
        .server(1, &["10.0.0.11"])
        .node("a", "memory://1", "10.244.1.0/24");
    world
}

/// The destination that the table is about; the node that may want it runs on server 9 at 10.0.0.9.
const PODS: &str = "10.244.9.0/24";

/// Gateways of the route to `PODS`, by the name of what they are.
const GATEWAYS: [(&str, &str); 7] = [
    ("no route", ""),
    ("its server", "10.0.0.9"),
    ("its alias", "10.0.0.19"),
    ("a node's", "10.0.0.11"),
    ("a spare's", "10.0.0.50"),
    ("a leaver's", "10.0.0.60"),
    ("nobody's", "10.0.0.99"),
];

type Make = fn(&mut World);

/// States of the node and the server that the table is about.
const STATES: [(&str, Make); 11] = [
    ("node on its server", |world| {
        own_server(world).node("n", "memory://9", PODS);
    }),
    ("server not attached", |world| {
        world.server(9, &[]).node("n", "memory://9", PODS);
    }),
    ("server gone", |world| {
        world.node("n", "memory://9", PODS);
    }),
    ("no provider ID", |world| {
        own_server(world).node("n", "", PODS);
    }),
    ("another cloud's", |world| {
        own_server(world).node("n", "aws://9", PODS);
    }),
    ("unknown provider ID", |world| {
        own_server(world).node("n", "memory://nine", PODS);
    }),
    ("other pods by now", |world| {
        own_server(world).node("n", "memory://9", "10.244.8.0/24");
    }),
    ("no pods yet", |world| {
        own_server(world).node("n", "memory://9", "");
    }),
    ("no node", |world| {
        own_server(world);
    }),
    ("node went", |world| {
        own_server(world).left.insert(InstanceId(9));
    }),
    ("node and server went", |world| {
        world.left.insert(InstanceId(9));
    }),
];

fn own_server(world: &mut World) -> &mut World {
    world.server(9, &["10.0.0.9", "10.0.0.19"])
}

/// `ok`, `missing +`, `wrong gateway ±`, `blackhole -`; `.`: nothing is there, and nobody asks.
fn cell(row: Option<&Row>) -> String {
    let Some(row) = row else {
        return ".".to_owned();
    };
    let step = match row.step {
        Step::Nothing => "",
        Step::Add => " +",
        Step::Delete => " -",
        Step::Replace => " ±",
        Step::Cannot => " !",
    };
    format!("{}{step}", row.state.word())
}

#[test]
fn every_state_of_a_route_with_every_state_of_a_node_and_its_server() {
    let mut table = String::new();
    for (state, make) in STATES {
        for (gateway, ip) in GATEWAYS {
            let to_pods = format!("{PODS} {ip}");
            let routes: &[&str] = if ip.is_empty() { &[] } else { &[&to_pods] };
            let mut world = anchored(routes);
            world.server(50, &["10.0.0.50"]).server(60, &["10.0.0.60"]);
            world.left.insert(InstanceId(60));
            make(&mut world);
            let plan = world.plan();
            let of_node = plan.nodes.iter().find(|node| node.object.name == "n");
            let condition = match of_node.and_then(|node| node.unavailable) {
                None => "-",
                Some(true) => "True",
                Some(false) => "False",
            };
            let cell = cell(row(&plan, PODS));
            table += &format!("{state:21} {gateway:11} {cell:17} {condition}\n");
            assert_eq!(row(&plan, "10.244.1.0/24").unwrap().state, State::Ok);
            world.apply(&plan).unwrap();
            assert!(
                !world.plan().has_writes(),
                "{state}, {gateway}: planned again"
            );
        }
    }
    let expected = include_str!("snapshots/route-plan.txt");
    if std::env::var("CCM_UPDATE_SNAPSHOTS").is_ok_and(|value| value == "1") {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/snapshots/route-plan.txt"
        );
        return std::fs::write(path, table).unwrap();
    }
    assert_eq!(table, expected);
}

/// Each world without node `a`: nothing says that these servers and this network are the cluster's.
#[test]
fn without_a_node_in_the_network_nothing_is_deleted_and_nobody_is_marked() {
    for (state, make) in STATES {
        for (gateway, ip) in GATEWAYS.into_iter().filter(|(_, ip)| !ip.is_empty()) {
            let mut world = World::new("10.244.0.0/16", &[&format!("{PODS} {ip}")]);
            world
                .server(1, &["10.0.0.11"])
                .server(50, &["10.0.0.50"])
                .server(60, &["10.0.0.60"]);
            world.left.insert(InstanceId(60));
            make(&mut world);
            if world
                .plan()
                .nodes
                .iter()
                .any(|node| !node.routes.is_empty())
            {
                continue;
            }
            let plan = world.plan();
            assert!(
                !plan.has_writes(),
                "{state}, {gateway}: {:?}",
                changes(&plan)
            );
        }
    }
}

#[test]
fn routes_of_others_are_never_touched() {
    let theirs = [
        "0.0.0.0/0 10.0.0.99",
        "10.245.1.0/24 10.0.0.99",
        "10.0.8.0/24 10.0.0.99",
        "192.168.0.0/16 10.0.0.99",
        "10.128.0.0/9 10.0.0.99",
    ];
    let world = anchored(&theirs);
    let plan = world.plan();
    assert_eq!(changes(&plan), Vec::<String>::new());
    let not_ours = plan.rows.iter().filter(|row| row.state == State::NotOurs);
    assert_eq!(not_ours.count(), theirs.len());
    // Not even when somebody names the whole world as the cluster's.
    let mut world = World::new("0.0.0.0/0", &["0.0.0.0/0 10.0.0.99"]);
    world
        .server(1, &["10.0.0.11"])
        .node("a", "memory://1", "10.244.1.0/24");
    assert_eq!(changes(&world.plan()), ["+ 10.244.1.0/24 via 10.0.0.11"]);
}

#[test]
fn deletions_come_first_and_a_route_is_replaced_at_once() {
    let mut world = World::new(
        "10.244.0.0/16",
        &[
            "10.244.1.0/24 10.0.0.12",
            "10.244.2.0/24 10.0.0.11",
            "10.244.7.0/24 10.0.0.99",
        ],
    );
    for n in 1..=3 {
        let (ip, id) = (format!("10.0.0.1{n}"), format!("memory://{n}"));
        world
            .server(n, &[&ip])
            .node(&format!("n{n}"), &id, &format!("10.244.{n}.0/24"));
    }
    assert_eq!(
        changes(&world.plan()),
        [
            "- 10.244.7.0/24 via 10.0.0.99",
            "- 10.244.1.0/24 via 10.0.0.12",
            "+ 10.244.1.0/24 via 10.0.0.11",
            "- 10.244.2.0/24 via 10.0.0.11",
            "+ 10.244.2.0/24 via 10.0.0.12",
            "+ 10.244.3.0/24 via 10.0.0.13",
        ]
    );
}

#[test]
fn of_two_nodes_with_the_same_pods_one_gets_the_route() {
    // Who has it keeps it; else who stays; else the first by name.
    for (routes, b_is_going, winner) in [
        (&[][..], false, "b"),
        (&["10.244.5.0/24 10.0.0.13"][..], false, "c"),
        (&[][..], true, "c"),
    ] {
        let mut world = anchored(routes);
        world.server(2, &["10.0.0.12"]).server(3, &["10.0.0.13"]);
        let going = b_is_going.then_some("2026-01-01T00:00:00Z");
        world.raw_node(json!({
            "metadata": { "name": "b", "uid": "b", "resourceVersion": "1", "deletionTimestamp": going },
            "spec": { "providerID": "memory://2", "podCIDRs": ["10.244.5.0/24"] },
        }));
        world.node("c", "memory://3", "10.244.5.0/24");
        let plan = world.plan();
        let loser = if winner == "b" { "c" } else { "b" };
        assert_eq!(node(&plan, winner).unavailable, Some(false), "{routes:?}");
        let loser = node(&plan, loser);
        assert_eq!(loser.unavailable, Some(true));
        let why = &loser.obstacle.as_ref().unwrap().message;
        assert!(
            why.contains(&format!("node {winner} has 10.244.5.0/24")),
            "{why}"
        );
        world.apply(&plan).unwrap();
        assert!(!world.plan().has_writes());
    }
}

#[test]
#[rustfmt::skip] // A case is a line.
fn a_destination_that_the_network_can_t_have_is_told_and_not_tried() {
    // Routes there, pods of node b, part of why.
    let cases: [(&[&str], &str, &str); 3] = [
        (&[], "10.0.0.128/25", "overlaps subnet 10.0.0.0/24"),
        (&["10.240.0.0/12 10.0.0.99"], "10.244.5.0/24", "overlaps the route 10.240.0.0/12 via 10.0.0.99"),
        (&[], "10.244.1.128/25", "node a has 10.244.1.0/24"),
    ];
    for (routes, pods, part) in cases {
        let mut world = anchored(routes);
        world.cluster_cidrs.push("10.0.0.0/16".parse().unwrap());
        world.server(2, &["10.0.0.12"]).node("b", "memory://2", pods);
        let plan = world.plan();
        let b = node(&plan, "b");
        let why = &b.obstacle.as_ref().unwrap().message;
        assert!(why.contains(part), "{why}");
        assert_eq!(b.obstacle.as_ref().unwrap().reason, Reason::FailedToCreateRoute);
        assert_eq!(b.unavailable, Some(true), "{pods}");
        assert_eq!(node(&plan, "a").unavailable, Some(false));
        assert_eq!(changes(&plan), Vec::<String>::new());
    }
}

#[test]
fn a_stale_route_gives_way_to_pods_of_the_same_addresses() {
    let mut world = anchored(&["10.244.8.0/22 10.0.0.50"]);
    world.server(50, &["10.0.0.50"]);
    let before = world.plan();
    assert_eq!(row(&before, "10.244.8.0/22").unwrap().state, State::Stale);
    assert!(reasons(&before).contains("StaleRoute"));
    world
        .server(2, &["10.0.0.12"])
        .node("b", "memory://2", "10.244.9.0/24");
    let expected = [
        "- 10.244.8.0/22 via 10.0.0.50",
        "+ 10.244.9.0/24 via 10.0.0.12",
    ];
    assert_eq!(changes(&world.plan()), expected);
}

#[test]
#[rustfmt::skip] // A case is a line.
fn pods_outside_of_the_cluster_s_cidrs() {
    // Pods of node b → its condition, what is told.
    let cases: [(&str, Option<bool>, &[&str]); 8] = [
        ("10.245.1.0/24", None, &["ClusterCIDRMisconfigured"]),
        ("10.0.0.0/8", None, &["ClusterCIDRMisconfigured"]),
        ("0.0.0.0/0", None, &["ClusterCIDRMisconfigured"]),
        ("10.244.5.0/24,10.245.1.0/24", Some(false), &["ClusterCIDRMisconfigured"]),
        ("10.244.5/24", None, &["ClusterCIDRMisconfigured"]),
        ("10.244.5.0/24,fd00:10:244:5::/64", Some(false), &["IPv6RouteIgnored"]),
        ("fd00:10:244:5::/64,10.244.5.0/24", Some(false), &["IPv6RouteIgnored"]),
        ("10.244.5.7/24", Some(false), &[]),
    ];
    for (pods, unavailable, told) in cases {
        let mut world = anchored(&[]);
        world.cluster_cidrs.push("fd00:10:244::/56".parse().unwrap());
        world.server(2, &["10.0.0.12"]).node("b", "memory://2", pods);
        let plan = world.plan();
        assert_eq!(node(&plan, "b").unavailable, unavailable, "{pods}");
        assert_eq!(reasons(&plan), BTreeSet::from_iter(told.iter().copied()), "{pods}");
        let wants = usize::from(unavailable.is_some());
        assert_eq!(changes(&plan).len(), wants, "{pods}");
    }
    // Pods of IPv6 alone are nothing to us.
    let mut world = anchored(&[]);
    world.server(2, &["10.0.0.12"]).node("b", "memory://2", "fd00:10:244:5::/64");
    assert!(world.plan().nodes.iter().all(|node| node.object.name != "b"));
}

/// A range that can't be read may be any: routes to that server stay.
#[test]
fn routes_to_a_node_with_a_range_that_can_t_be_read_are_left_alone() {
    let mut world = anchored(&["10.244.5.0/24 10.0.0.12"]);
    world
        .server(2, &["10.0.0.12"])
        .node("b", "memory://2", "10.244.5/24");
    let plan = world.plan();
    assert_eq!(row(&plan, "10.244.5.0/24").unwrap().state, State::LeftAlone);
    assert_eq!(changes(&plan), Vec::<String>::new());
}

#[test]
fn the_condition_is_set_only_when_it_says_something_else() {
    for (has, attached, expected) in [
        (None, true, Some(false)),
        (None, false, Some(true)),
        (Some("False"), true, None),
        (Some("True"), true, Some(false)),
        (Some("Unknown"), true, Some(false)),
        (Some("False"), false, Some(true)),
        (Some("True"), false, None),
    ] {
        let mut world = anchored(&["10.244.5.0/24 10.0.0.12"]);
        let conditions: Vec<Value> = has
            .map(|status| json!({ "type": NETWORK_UNAVAILABLE, "status": status }))
            .into_iter()
            .collect();
        world.server(2, if attached { &["10.0.0.12"] } else { &[] });
        world.raw_node(json!({
            "metadata": { "name": "b", "uid": "b", "resourceVersion": "1" },
            "spec": { "providerID": "memory://2", "podCIDRs": ["10.244.5.0/24"] },
            "status": { "conditions": conditions },
        }));
        let plan = world.plan();
        assert_eq!(
            node(&plan, "b").condition(),
            expected,
            "{has:?}, attached {attached}"
        );
    }
}

#[test]
fn the_limit_of_routes_is_told_before_it_is_reached() {
    for (nodes, others, told, without) in [
        (89, 0, false, 0),
        (90, 0, true, 0),
        (80, 10, true, 0),
        (100, 0, true, 0),
        (101, 0, true, 1),
        (120, 5, true, 25),
    ] {
        let mut world = World::new("10.244.0.0/16", &[]);
        for n in 0..others {
            world
                .network
                .routes
                .push(route(&format!("192.168.{n}.0/24 10.0.0.250")));
        }
        for n in 1..=nodes {
            let (ip, id) = (format!("10.0.1.{n}"), format!("memory://{n}"));
            world
                .server(n, &[&ip])
                .node(&format!("n{n:03}"), &id, &format!("10.244.{n}.0/24"));
        }
        let plan = world.plan();
        let case = format!("{nodes} nodes, {others} routes of others");
        assert_eq!(reasons(&plan).contains("RouteLimitNear"), told, "{case}");
        let marked = plan
            .nodes
            .iter()
            .filter(|node| node.unavailable == Some(true));
        assert_eq!(marked.count(), without, "{case}");
        world.apply(&plan).unwrap();
        assert!(!world.plan().has_writes(), "{case}");
        // Who has a route keeps it: a node that comes first by name takes none away.
        let before = world.network.routes.clone();
        world
            .server(500, &["10.0.2.1"])
            .node("a-new", "memory://500", "10.244.200.0/24");
        let plan = world.plan();
        let deletes = changes(&plan)
            .into_iter()
            .filter(|line| line.starts_with('-'));
        assert_eq!(deletes.count(), 0, "{case}");
        assert!(
            before
                .iter()
                .all(|route| world.network.routes.contains(route))
        );
    }
}

/// A random world: nodes and servers in any state, a network with routes of anybody.
fn random_world(random: &mut Random) -> World {
    let mut world = World::new("10.244.0.0/20,10.250.0.0/22,fd00::/48", &[]);
    if random.percent(20) {
        world.network.routes_at_most = 6;
    }
    for id in 1..=8 {
        if random.percent(85) {
            let (ip, alias) = (format!("10.0.0.{id}"), format!("10.0.0.10{id}"));
            let ips = [ip.as_str(), alias.as_str()];
            world.server(id, if random.percent(80) { &ips[..] } else { &[] });
        }
        if random.percent(20) {
            world.left.insert(InstanceId(id));
        }
        if random.percent(75) {
            let provider_id = match random.below(8) {
                0 => String::new(),
                1 => "aws://i-1".to_owned(),
                2 => "memory://?".to_owned(),
                3 => format!("memory://{}", 1 + random.below(8)),
                _ => format!("memory://{id}"),
            };
            let pods = match random.below(5) {
                0 => String::new(),
                1 => format!("{},fd00:0:0:{id}::/64", random_destination(random)),
                _ => random_destination(random),
            };
            world.node(&format!("n{id}"), &provider_id, &pods);
        }
    }
    for _ in 0..random.below(9) {
        let gateway = match random.below(4) {
            0 => format!("10.0.0.10{}", 1 + random.below(8)),
            1 => "10.0.0.99".to_owned(),
            _ => format!("10.0.0.{}", 1 + random.below(8)),
        };
        let new = route(&format!("{} {gateway}", random_destination(random)));
        let mut routes = world.network.routes.iter();
        let is_default = |route: &Route| route.destination.prefix_len() == 0;
        let in_the_way = routes.any(|other| {
            is_default(other) == is_default(&new) && overlap(other.destination, new.destination)
        });
        if !in_the_way && world.network.routes.len() < world.network.routes_at_most {
            world.network.routes.push(new);
        }
    }
    world
}

fn random_destination(random: &mut Random) -> String {
    match random.below(12) {
        0 => "0.0.0.0/0".to_owned(),
        1 => "10.245.1.0/24".to_owned(),
        2 => "10.244.0.0/14".to_owned(),
        3 => format!("10.244.{}.0/23", random.below(4) * 2),
        4 => format!("10.250.{}.128/25", random.below(4)),
        5 => format!("192.168.{}.0/24", random.below(3)),
        _ => format!("10.244.{}.0/24", random.below(8)),
    }
}

#[test]
fn whatever_the_network_holds() {
    let mut deletes = 0;
    for seed in 0..20_000 {
        let mut random = Random::new(seed);
        let mut world = random_world(&mut random);
        let before = world.network.routes.clone();
        let plan = world.plan();
        let case = || format!("seed {seed}: {:#?}", changes(&plan));
        let is_ours = |route: &Route| {
            let net = route.destination;
            let mut cidrs = world.cluster_cidrs.iter();
            net.prefix_len() > 0 && cidrs.any(|cidr| cidr.contains(&IpNet::V4(net)))
        };
        assert!(
            plan.changes.iter().all(|change| is_ours(&change.route)),
            "{}",
            case()
        );
        let has_gateway = |node: &NodePlan| {
            let id = node.node.spec.provider_id.strip_prefix("memory://");
            let id = id.and_then(|id| id.parse().ok()).map(InstanceId);
            let mut servers = world.instances.iter();
            !node.routes.is_empty()
                || servers.any(|server| Some(server.id) == id && !server.private.is_empty())
        };
        let deleted: Vec<Route> = plan
            .changes
            .iter()
            .filter(|change| change.change == RouteChange::Delete)
            .map(|change| change.route)
            .collect();
        deletes += deleted.len();
        if !deleted.is_empty() {
            assert!(plan.nodes.iter().any(has_gateway), "{}", case());
        }
        let strangers = world.nodes.iter().filter(|node| {
            let id = node.spec.provider_id.strip_prefix("memory://");
            id.is_none_or(|id| id.parse::<u64>().is_err())
        });
        let pods = strangers.flat_map(|node| node.spec.pod_cidrs.iter());
        for pods in pods.filter_map(Result::ok) {
            let IpNet::V4(pods) = pods else { continue };
            let mut changed = plan.changes.iter();
            let touched = changed.any(|change| overlap(change.route.destination, pods));
            assert!(!touched, "{}", case());
        }
        let outcome = world.apply(&plan);
        assert_eq!(outcome, Ok(()), "{}", case());
        for node in plan
            .nodes
            .iter()
            .filter(|node| node.unavailable == Some(false))
        {
            let mut routes = node.routes.iter();
            assert!(
                routes.all(|route| world.network.routes.contains(route)),
                "{}",
                case()
            );
        }
        let kept = before.iter().filter(|route| !deleted.contains(route));
        assert!(
            kept.into_iter()
                .all(|route| world.network.routes.contains(route)),
            "{}",
            case()
        );
        let again = world.plan();
        assert!(
            !again.has_writes(),
            "{}, then {:#?}",
            case(),
            changes(&again)
        );
    }
    assert!(deletes > 5_000, "{deletes} deletions show little");
}
