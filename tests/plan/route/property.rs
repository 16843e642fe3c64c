//! Properties of the plan for any network.

use crate::route::random::Random;
use crate::route::world::{World, changes, overlap, route};
use ccm::controllers::route::NodeRoutePlan;
use ccm::provider::{InstanceId, Route};
use ipnet::IpNet;

/// Returns a random world, with nodes and servers in any state and a network with routes of anybody.
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
            let to = random_destination(random);
            world.remember(&format!("{to} 10.0.0.{id}"));
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
fn a_plan_keeps_all_rules_whatever_routes_the_network_has() {
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
        let mut changed = plan.changes.iter().map(|change| &change.route);
        assert!(changed.all(is_ours), "{}", case());
        let has_gateway = |node: &NodeRoutePlan| {
            let id = node.node.spec.provider_id.strip_prefix("memory://");
            let id = id.and_then(|id| id.parse().ok()).map(InstanceId::Cloud);
            let mut servers = world.instances.iter();
            !node.routes.is_empty()
                || servers.any(|server| Some(server.id) == id && !server.private.is_empty())
        };
        let deletions = plan.changes.iter().filter(|change| change.is_deletion);
        let deleted: Vec<Route> = deletions.map(|change| change.route).collect();
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
        let is_there = |route: &Route| world.network.routes.contains(route);
        let served = plan.nodes.iter().filter(|node| node.unavailable == Some(false));
        let mut served = served.flat_map(|node| &node.routes);
        assert!(served.all(is_there), "{}", case());
        let mut kept = before.iter().filter(|route| !deleted.contains(route));
        assert!(kept.all(is_there), "{}", case());
        let mut again = world.plan();
        if plan.is_in_doubt && !plan.changes.is_empty() {
            // A route that was added may prove the rest, and a pass reads again.
            assert_eq!(deleted, [], "{}", case());
            assert_eq!(world.apply(&again), Ok(()), "{}", case());
            again = world.plan();
        }
        let then = changes(&again);
        assert!(!again.has_writes(), "{}, then {then:#?}", case());
    }
    assert!(deletes > 5_000, "{deletes} deletions show little");
}
