//! Rules, each by its cases.

use crate::route::world::{World, anchored, changes, node, reasons, route, row};
use ccm::controllers::NETWORK_UNAVAILABLE;
use ccm::controllers::route::State;
use ccm::provider::Reason;
use serde_json::{Value, json};
use std::collections::BTreeSet;

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
    // The routes stay even when somebody names the whole address space as the cluster's.
    let mut world = World::new("0.0.0.0/0", &["0.0.0.0/0 10.0.0.99"]);
    world.machine(1, "10.0.0.11", "a", "10.244.1.0/24");
    assert_eq!(changes(&world.plan()), ["+ 10.244.1.0/24 via 10.0.0.11"]);
}

#[test]
fn deletions_come_first_and_a_route_is_replaced_at_once() {
    #[rustfmt::skip]
    let routes = ["10.244.1.0/24 10.0.0.12", "10.244.2.0/24 10.0.0.11", "10.244.7.0/24 10.0.0.99"];
    let mut world = World::new("10.244.0.0/16", &routes);
    for n in 1..=3 {
        let (ip, pods) = (format!("10.0.0.1{n}"), format!("10.244.{n}.0/24"));
        world.machine(n, &ip, &format!("n{n}"), &pods);
    }
    let expected = [
        "- 10.244.7.0/24 via 10.0.0.99",
        "- 10.244.1.0/24 via 10.0.0.12",
        "+ 10.244.1.0/24 via 10.0.0.11",
        "- 10.244.2.0/24 via 10.0.0.11",
        "+ 10.244.2.0/24 via 10.0.0.12",
        "+ 10.244.3.0/24 via 10.0.0.13",
    ];
    assert_eq!(changes(&world.plan()), expected);
}

#[test]
fn one_of_two_nodes_with_the_same_pods_gets_the_route() {
    // The node that has the route keeps it. Otherwise the node that stays gets it, and then the first by name.
    for (routes, b_is_going, winner) in [
        (&[][..], false, "b"),
        (&["10.244.5.0/24 10.0.0.13"][..], false, "c"),
        (&[][..], true, "c"),
    ] {
        let mut world = anchored(routes);
        world.server(2, &["10.0.0.12"]).server(3, &["10.0.0.13"]);
        let going = b_is_going.then_some("2026-01-01T00:00:00Z");
        let spec = json!({ "providerID": "memory://2", "podCIDRs": ["10.244.5.0/24"] });
        let metadata = json!({ "deletionTimestamp": going });
        world.node_with("b", json!({ "metadata": metadata, "spec": spec }));
        world.node("c", "memory://3", "10.244.5.0/24");
        let plan = world.plan();
        let loser = if winner == "b" { "c" } else { "b" };
        assert_eq!(node(&plan, winner).unavailable, Some(false), "{routes:?}");
        let loser = node(&plan, loser);
        assert_eq!(loser.unavailable, Some(true));
        let why = &loser.obstacle.as_ref().unwrap().message;
        let says =
            format!("overlaps the pod CIDR 10.244.5.0/24 of node {winner:?}, which gets the route");
        assert!(why.contains(&says), "{why}");
        world.apply(&plan).unwrap();
        assert!(!world.plan().has_writes());
    }
}

#[test]
#[rustfmt::skip] // A case is a line.
fn a_destination_that_the_network_cannot_have_is_reported_and_not_tried() {
    // Routes there, pods of node b, part of why.
    let cases: [(&[&str], &str, &str); 3] = [
        (&[], "10.0.0.128/25", "overlaps subnet 10.0.0.0/24"),
        (&["10.240.0.0/12 10.0.0.99"], "10.244.5.0/24", "overlaps the route 10.240.0.0/12 via 10.0.0.99"),
        (&[], "10.244.1.128/25", "overlaps the pod CIDR 10.244.1.0/24 of node \"a\""),
    ];
    for (routes, pods, part) in cases {
        let mut world = anchored(routes);
        world.cluster_cidrs.push("10.0.0.0/16".parse().unwrap());
        world.machine(2, "10.0.0.12", "b", pods);
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
    world.machine(2, "10.0.0.12", "b", "10.244.9.0/24");
    let expected = ["- 10.244.8.0/22 via 10.0.0.50", "+ 10.244.9.0/24 via 10.0.0.12"];
    assert_eq!(changes(&world.plan()), expected);
}

#[test]
#[rustfmt::skip] // A case is a line.
fn pods_outside_of_the_cluster_s_cidrs_get_no_route() {
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
        world.machine(2, "10.0.0.12", "b", pods);
        let plan = world.plan();
        assert_eq!(node(&plan, "b").unavailable, unavailable, "{pods}");
        assert_eq!(reasons(&plan), BTreeSet::from_iter(told.iter().copied()), "{pods}");
        let wants = usize::from(unavailable.is_some());
        assert_eq!(changes(&plan).len(), wants, "{pods}");
    }
    // Pods of IPv6 alone are nothing to us.
    let mut world = anchored(&[]);
    world.machine(2, "10.0.0.12", "b", "fd00:10:244:5::/64");
    assert!(world.plan().nodes.iter().all(|node| node.object.name != "b"));
}

/// A range that can't be read may be any range, so routes to that server stay.
#[test]
fn routes_to_a_node_with_a_range_that_can_t_be_read_are_left_alone() {
    let mut world = anchored(&["10.244.5.0/24 10.0.0.12"]);
    world.machine(2, "10.0.0.12", "b", "10.244.5/24");
    let plan = world.plan();
    assert_eq!(row(&plan, "10.244.5.0/24").unwrap().state, State::LeftAlone);
    assert_eq!(changes(&plan), Vec::<String>::new());
}

#[test]
fn the_condition_is_written_only_when_it_changes() {
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
        let conditions = has.map(|status| json!({ "type": NETWORK_UNAVAILABLE, "status": status }));
        let status = json!({ "conditions": Vec::from_iter(conditions) });
        world.server(2, if attached { &["10.0.0.12"] } else { &[] });
        let spec = json!({ "providerID": "memory://2", "podCIDRs": ["10.244.5.0/24"] });
        world.node_with("b", json!({ "spec": spec, "status": status }));
        let plan = world.plan();
        let of_node = node(&plan, "b");
        let condition = of_node.changes.first().and(of_node.unavailable);
        assert_eq!(condition, expected, "{has:?}, attached {attached}");
    }
}

#[test]
fn the_limit_of_routes_is_reported_before_it_is_reached() {
    for (nodes, others, told, without) in [
        (89, 0, false, 0),
        (90, 0, true, 0),
        (80, 10, true, 0),
        (100, 0, true, 0),
        (101, 0, true, 1),
        (120, 5, true, 25),
    ] {
        let mut world = World::new("10.244.0.0/16", &[]);
        let of_others = (0..others).map(|n| route(&format!("192.168.{n}.0/24 10.0.0.250")));
        world.network.routes.extend(of_others);
        for n in 1..=nodes {
            let (ip, pods) = (format!("10.0.1.{n}"), format!("10.244.{n}.0/24"));
            world.machine(n, &ip, &format!("n{n:03}"), &pods);
        }
        let plan = world.plan();
        let case = format!("{nodes} nodes, {others} routes of others");
        assert_eq!(reasons(&plan).contains("RouteLimitNear"), told, "{case}");
        let nodes = plan.nodes.iter();
        let marked = nodes.filter(|node| node.unavailable == Some(true));
        assert_eq!(marked.count(), without, "{case}");
        world.apply(&plan).unwrap();
        assert!(!world.plan().has_writes(), "{case}");
        // A node that has a route keeps it. A node that comes first by name takes none away.
        let before = world.network.routes.clone();
        world.machine(500, "10.0.2.1", "a-new", "10.244.200.0/24");
        let plan = world.plan();
        let is_deletion = |line: &String| line.starts_with('-');
        assert!(!changes(&plan).iter().any(is_deletion), "{case}");
        let is_there = |route| world.network.routes.contains(route);
        assert!(before.iter().all(is_there));
    }
}

/// The machine of a node may have been replaced, with its address. It is then no finding that the route leads to a
/// server without a node.
#[test]
#[rustfmt::skip] // A case is a line.
fn a_route_to_a_server_that_is_no_node_s_is_not_reported_beside_a_node_that_lost_its_server() {
    type Make = fn(&mut World);
    // Each case has the state of the node with these pods, and whether the route is reported.
    let cases: [(&str, Make, bool); 4] = [
        ("no node", |_| {}, true),
        ("other pods", |world| { world.node("n", "memory://9", "10.244.8.0/24"); }, true),
        ("its server is gone", |world| { world.node("n", "memory://9", "10.244.9.0/24"); }, false),
        ("its server is detached", |world| { world.server(9, &[]).node("n", "memory://9", "10.244.9.0/24"); }, false),
    ];
    for (case, make, is_reported) in cases {
        let mut world = anchored(&["10.244.9.0/24 10.0.0.50"]);
        world.server(50, &["10.0.0.50"]);
        make(&mut world);
        let plan = world.plan();
        assert_eq!(row(&plan, "10.244.9.0/24").unwrap().have, Some(crate::route::world::route("10.244.9.0/24 10.0.0.50")));
        assert_eq!(changes(&plan), Vec::<String>::new(), "{case}");
        assert_eq!(reasons(&plan).contains("StaleRoute"), is_reported, "{case}");
    }
}

/// The kubeconfig may be another cluster's, or an older cluster left routes in the Network. While none of the routes is
/// this cluster's, a server without a node here may be the other cluster's node. Free destinations are added.
#[test]
#[rustfmt::skip] // A case is a line.
fn a_cluster_without_a_right_route_takes_none_from_a_server_that_is_there() {
    const TAKEN: &str = "10.244.1.0/24 10.0.0.50";
    type Make = fn(&mut World);
    let nothing: Make = |_| {};
    // Routes, what else is so, what is done.
    let cases: [(&[&str], Make, &[&str]); 6] = [
        (&[TAKEN], nothing, &["+ 10.244.2.0/24 via 10.0.0.12"]),
        (&["10.244.0.0/23 10.0.0.50", "10.244.77.0/24 10.0.0.99"], nothing, &["+ 10.244.2.0/24 via 10.0.0.12"]),
        (&["10.244.1.0/24 10.0.0.99"], nothing, &["- 10.244.1.0/24 via 10.0.0.99", "+ 10.244.1.0/24 via 10.0.0.11", "+ 10.244.2.0/24 via 10.0.0.12"]),
        (&[TAKEN, "10.244.2.0/24 10.0.0.12"], nothing, &["- 10.244.1.0/24 via 10.0.0.50", "+ 10.244.1.0/24 via 10.0.0.11"]),
        (&[TAKEN], |world| { world.remember(TAKEN); }, &["- 10.244.1.0/24 via 10.0.0.50", "+ 10.244.1.0/24 via 10.0.0.11", "+ 10.244.2.0/24 via 10.0.0.12"]),
        (&[TAKEN], |world| { world.node("c", "memory://50", "10.244.3.0/24"); }, &["- 10.244.1.0/24 via 10.0.0.50", "+ 10.244.1.0/24 via 10.0.0.11", "+ 10.244.2.0/24 via 10.0.0.12", "+ 10.244.3.0/24 via 10.0.0.50"]),
    ];
    for (routes, make, expected) in cases {
        let mut world = World::new("10.244.0.0/16", routes);
        world.server(50, &["10.0.0.50"]);
        for (n, name) in [(1, "a"), (2, "b")] {
            world.machine(n, &format!("10.0.0.1{n}"), name, &format!("10.244.{n}.0/24"));
        }
        make(&mut world);
        let plan = world.plan();
        assert_eq!(changes(&plan), expected, "{routes:?}");
        if expected.iter().any(|change| change.starts_with('-')) {
            continue;
        }
        assert!(plan.nodes.iter().all(|node| node.changes.is_empty()), "a node is marked: {routes:?}");
        assert!(reasons(&plan).contains("StaleRoute"), "{routes:?}");
        let in_doubt = plan.nodes.iter().filter(|node| node.is_in_doubt);
        assert_eq!(in_doubt.count(), 2 - expected.len(), "{routes:?}");
        for name in ["a", "b"].iter().take(2 - expected.len()) {
            let why = &node(&plan, name).obstacle.as_ref().unwrap().message;
            let leads = format!("the route {} via 10.0.0.50 leads to server \"server-50\"", routes[0].split(' ').next().unwrap());
            assert!(why.contains(&leads), "{why}");
            let what = if expected.is_empty() { "the kubeconfig or the Network may be the wrong one" } else { "Then ccm replaces that old route" };
            assert!(why.contains(what), "{why}");
        }
    }
}

/// Routes to servers without a node block no other node's route. They are replaced when no other cluster can need them.
/// A single server is no cluster, and a node that had its routes here before is at home.
#[test]
#[rustfmt::skip] // A case is a line.
fn a_route_that_an_older_cluster_left_blocks_only_its_own_destination() {
    const OURS: &[&str] = &["False", "RouteCreated"];
    const CILIUM: &[&str] = &["False", "CiliumIsUp"];
    // Each case has the number of nodes, of left-over routes, and of their servers, the conditions of the nodes, and
    // how many nodes have a route in the end and how many are marked.
    type Case<'a> = (u64, u64, u64, &'a [&'a str], u64, u64);
    let cases: [Case; 9] = [
        (3, 1, 1, &[], 3, 0),
        (3, 1, 1, OURS, 3, 0),
        (3, 2, 1, &[], 3, 0),
        (3, 2, 2, &[], 1, 0),
        (3, 2, 2, CILIUM, 1, 0),
        (3, 2, 2, OURS, 3, 0),
        // Another cluster's three, however many this one has.
        (20, 3, 3, &[], 17, 0),
        (1, 1, 1, &[], 0, 0),
        (1, 1, 1, OURS, 0, 1),
    ];
    for (nodes, left_over, servers, says, served, marked) in cases {
        let case = format!("{nodes} nodes, {left_over} left over on {servers} servers, {says:?}");
        let mut world = World::new("10.244.0.0/16", &[]);
        for n in 1..=nodes {
            let (ip, id) = (format!("10.0.1.{n}"), format!("memory://{n}"));
            let conditions: Vec<Value> = says.first().map(|status| json!({
                "type": NETWORK_UNAVAILABLE, "status": status, "reason": says[1],
            })).into_iter().collect();
            let spec = json!({ "providerID": id, "podCIDRs": [format!("10.244.{n}.0/24")] });
            let extra = json!({ "spec": spec, "status": { "conditions": conditions } });
            world.server(n, &[&ip]).node_with(&format!("n{n:02}"), extra);
        }
        for n in 1..=servers {
            world.server(50 + n, &[&format!("10.0.2.{n}")]);
        }
        for n in 1..=left_over {
            let server = n.min(servers);
            world.network.routes.push(route(&format!("10.244.{n}.0/24 10.0.2.{server}")));
        }
        for _ in 1..=3 {
            let plan = world.plan();
            world.apply(&plan).unwrap();
        }
        let plan = world.plan();
        assert!(!plan.has_writes(), "{case}");
        let rows = || plan.rows.iter();
        let right = rows().filter(|row| row.state == State::Ok).count() as u64;
        assert_eq!(right, served, "{case}");
        let unavailable = |plan: &ccm::controllers::route::RoutePlan| {
            plan.nodes.iter().filter(|node| node.unavailable == Some(true)).count() as u64
        };
        assert_eq!(unavailable(&plan), marked, "{case}");
        // Each that has none is named, beside the route that is in its way.
        let missing = rows().filter(|row| row.state == State::Missing && row.node.is_some());
        assert_eq!(missing.count() as u64, nodes - served, "{case}");
        if served < nodes {
            assert_eq!(rows().filter(|row| row.state == State::Stale).count() as u64, left_over, "{case}");
        }
        // After a long time the nodes are marked, whatever their conditions said.
        world.is_in_doubt_for_long = true;
        assert_eq!(unavailable(&world.plan()), nodes - served, "{case}");
    }
}

#[test]
fn a_cluster_range_outside_of_the_network_is_reported_about_the_network() {
    // Range of the network, of the cluster, what is told.
    #[rustfmt::skip] // A case is a line.
    let cases = [
        ("10.0.0.0/8", "10.244.0.0/16", ""),
        ("10.0.0.0/8", "10.244.0.0/16,fd00::/56", ""),
        (
            "10.0.0.0/16",
            "10.244.0.0/16",
            "--cluster-cidr=10.244.0.0/16 is not within the Network's range 10.0.0.0/16. Servers send only packets for the Network's range into the Network",
        ),
        ("10.0.0.0/8", "10.0.0.0/16", "--cluster-cidr=10.0.0.0/16 overlaps the Network's subnet 10.0.0.0/24"),
        ("10.0.0.0/8", "10.0.0.128/25", "overlaps the Network's subnet 10.0.0.0/24"),
    ];
    for (range, cidrs, told) in cases {
        let mut world = World::new(cidrs, &[]);
        world.network.range = Some(range.parse().unwrap());
        let plan = world.plan();
        let mut findings = plan.findings.iter();
        let found = findings.find(|finding| finding.reason == Reason::ClusterCIDRMisconfigured);
        let message = found.map_or("", |finding| &finding.message);
        assert_eq!(message.is_empty(), told.is_empty(), "{cidrs}: {message}");
        assert!(message.contains(told), "{cidrs}: {message}");
    }
}

/// A Node on server 1 that was created in this second of a minute.
fn claimant(world: &mut World, name: &str, second: u32, cidr: &str) {
    let metadata = json!({ "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z") });
    let spec = json!({ "providerID": "memory://1", "podCIDRs": [cidr] });
    world.node_with(name, json!({ "metadata": metadata, "spec": spec }));
}

#[test]
fn a_second_node_with_a_provider_id_gets_no_route_and_takes_none() {
    for evil in ["aa-evil", "zz-evil"] {
        // The range of the node's pods is free, or the real node's.
        for cidr in ["10.244.9.0/24", "10.244.1.0/24"] {
            let mut world = World::new("10.244.0.0/16", &[]);
            world.server(1, &["10.0.0.11"]);
            claimant(&mut world, "secure", 1, "10.244.1.0/24");
            claimant(&mut world, evil, 9, cidr);
            let plan = world.plan();
            let expected = ["+ 10.244.1.0/24 via 10.0.0.11"];
            assert_eq!(changes(&plan), expected, "{evil} {cidr}");
            assert!(node(&plan, "secure").obstacle.is_none(), "{evil} {cidr}");
            let why = &node(&plan, evil).obstacle.as_ref().unwrap().message;
            assert!(why.contains("node secure"), "{why}");
            // An existing route stays, so that no traffic is lost.
            let mut world = World::new("10.244.0.0/16", &["10.244.9.0/24 10.0.0.11"]);
            world.server(1, &["10.0.0.11"]);
            claimant(&mut world, "secure", 1, "10.244.1.0/24");
            claimant(&mut world, evil, 9, "10.244.9.0/24");
            assert_eq!(changes(&world.plan()), expected, "{evil}");
        }
    }
}
