//! The table `snapshots/route-plan.txt` of every state of a route with every state of a node and its server.

use crate::route::world::{World, anchored, changes, row};
use ccm::controllers::route::{RouteRow, RouteStep, State};

/// The destination of the table. The node that may need it runs on server 9 at 10.0.0.9.
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
#[rustfmt::skip] // A case is a line.
const STATES: [(&str, Make); 15] = [
    ("node on its server", |world| { own_server(world).node("n", "memory://9", PODS); }),
    ("server not attached", |world| { world.server(9, &[]).node("n", "memory://9", PODS); }),
    ("server gone", |world| { world.node("n", "memory://9", PODS); }),
    ("no provider ID", |world| { own_server(world).node("n", "", PODS); }),
    ("another cloud's", |world| { own_server(world).node("n", "aws://9", PODS); }),
    ("unknown provider ID", |world| { own_server(world).node("n", "memory://nine", PODS); }),
    ("other pods by now", |world| { own_server(world).node("n", "memory://9", "10.244.8.0/24"); }),
    ("no pods yet", |world| { own_server(world).node("n", "memory://9", ""); }),
    ("no node", |world| { own_server(world); }),
    ("node went", |world| { own_server(world); remember_own(world); }),
    ("node and server went", |world| { remember_own(world); }),
    ("its server replaced", |world| {
        world
            .server(10, &["10.0.0.9"])
            .node("n", "memory://9", PODS);
        remember_own(world);
    }),
    ("the same, not seen", |world| { world.server(10, &["10.0.0.9"]).node("n", "memory://9", PODS); }),
    ("both replaced", |world| { world.server(10, &["10.0.0.9"]); remember_own(world); }),
    ("replaced, no pods yet", |world| {
        world.server(10, &["10.0.0.9"]).node("n", "memory://10", "");
        remember_own(world);
    }),
];

fn remember_own(world: &mut World) {
    for ip in ["10.0.0.9", "10.0.0.19"] {
        world.remember(&format!("{PODS} {ip}"));
    }
}

fn own_server(world: &mut World) -> &mut World {
    world.server(9, &["10.0.0.9", "10.0.0.19"])
}

/// Returns a cell such as `ok`, `missing +`, `wrong gateway ±` or `blackhole -`. A dot means that there is no route and
/// none is needed.
fn cell(row: Option<&RouteRow>) -> String {
    let Some(row) = row else {
        return ".".to_owned();
    };
    let step = match row.step {
        RouteStep::Nothing => "",
        RouteStep::Add => " +",
        RouteStep::Delete => " -",
        RouteStep::Replace => " ±",
        RouteStep::Cannot => " !",
    };
    format!("{}{step}", row.state.name())
}

#[test]
fn every_state_of_a_route_a_node_and_its_server_has_its_plan() {
    let mut table = String::new();
    for (state, make) in STATES {
        for (gateway, ip) in GATEWAYS {
            let to_pods = format!("{PODS} {ip}");
            let routes: &[&str] = if ip.is_empty() { &[] } else { &[&to_pods] };
            let mut world = anchored(routes);
            world.server(50, &["10.0.0.50"]).server(60, &["10.0.0.60"]);
            world.remember(&format!("{PODS} 10.0.0.60"));
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
            let is_again = world.plan().has_writes();
            assert!(!is_again, "{state}, {gateway}: planned again");
        }
    }
    let expected = include_str!("../../snapshots/route-plan.txt");
    if std::env::var("CCM_UPDATE_SNAPSHOTS").is_ok_and(|value| value == "1") {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/snapshots/route-plan.txt");
        return std::fs::write(path, table).unwrap();
    }
    assert_eq!(table, expected);
}

/// In each world without node `a` nothing shows that these servers and this network are the cluster's.
#[test]
fn no_route_is_deleted_and_no_node_marked_without_a_node_in_the_network() {
    for (state, make) in STATES {
        for (gateway, ip) in GATEWAYS.into_iter().filter(|(_, ip)| !ip.is_empty()) {
            let mut world = World::new("10.244.0.0/16", &[&format!("{PODS} {ip}")]);
            for (id, ip) in [(1, "10.0.0.11"), (50, "10.0.0.50"), (60, "10.0.0.60")] {
                world.server(id, &[ip]);
            }
            world.remember(&format!("{PODS} 10.0.0.60"));
            make(&mut world);
            let plan = world.plan();
            if plan.nodes.iter().any(|node| !node.routes.is_empty()) {
                continue;
            }
            let changes = changes(&plan);
            assert!(!plan.has_writes(), "{state}, {gateway}: {changes:?}");
        }
    }
}
