//! The world goes on between a look and what is done about it.

use crate::library::{Mortal, Place, SCALE};
use crate::world::{NOBODY, World};
use ccm::cloud::Urgency;
use ccm::controllers::route::{RouteController, Settings};
use ccm::controllers::{Controller, Selection};
use sandbox::Half;
use sandbox::exchange::Request;
use sandbox::faults::{Effect, Rule};
use sandbox::hetzner::ServerSpec;
use std::sync::Arc;
use std::time::Duration;

const READ: &str = "/v1/networks/*";
const DELETE: &str = "/v1/networks/*/actions/delete_route";
const HOUR_S: u64 = 3600;

fn hetzner(effect: Effect, path: &str) -> Rule {
    Rule::new(effect).half(Half::Hetzner).path(path)
}

fn controller(server_cache_max_age: Duration, reconciliation_period: Duration) -> RouteController {
    RouteController::new(Settings {
        cluster_cidrs: vec!["10.244.0.0/16".parse().unwrap()],
        reconciliation_period,
        server_cache_max_age,
        time_scale: SCALE,
    })
}

/// Somebody makes a router, and a route to it, just before ccm reads the Network for the n-th time.
fn router_comes_at_read(world: &World, n: u64) -> sandbox::faults::RuleId {
    let cloud = Arc::clone(world.sandbox.cloud());
    let (project, network) = (world.sandbox.project(), world.network());
    let hand = move |_: &Request| {
        let spec = ServerSpec {
            name: "router".into(),
            networks: vec![(network, None)],
            ..ServerSpec::default()
        };
        let id = cloud.create_server(project, spec);
        let servers = cloud.servers(project);
        let router = servers.iter().find(|server| server["id"] == id).unwrap();
        let ip = router["private_net"][0]["ip"].as_str().unwrap();
        cloud.set_route(network, "10.244.200.0/24", ip);
    };
    let rule = hetzner(Effect::before(hand), READ).method("GET").nth(n);
    world.sandbox.faults().add(rule)
}

/// The pass that finds the router has something to write, and a list of servers from before.
#[test]
fn a_route_to_a_server_that_was_made_meanwhile_stays() {
    let world = World::settled(2);
    world.join("worker-3", "10.244.3.0/24");
    let place = Place::new(&world.sandbox);
    let apis = place.world(&place.token, None);
    apis.instances(Duration::ZERO, Urgency::Needed).unwrap();
    // Once to see that a route is missing, once to add it.
    let rule = router_comes_at_read(&world, 2);
    let mut routes = controller(Duration::from_secs(HOUR_S), Duration::ZERO);
    routes.tick(&apis, &Mortal::after(None), &Selection::Due);
    assert_eq!(world.sandbox.faults().hits(rule), 1);
    assert_eq!(world.routes().len(), 4, "{:#?}", world.routes());
    assert!(world.wanted().is_subset(&world.routes()));
}

/// A pass that goes on for long looks again, at the servers too; whatever lists its settings allow.
#[test]
fn a_later_look_of_a_pass_deletes_by_a_list_of_its_own() {
    let world = World::settled(2);
    for n in 100..106 {
        let to = format!("10.244.{n}.0/24");
        world
            .sandbox
            .cloud()
            .set_route(world.network(), &to, NOBODY);
    }
    let slow = Effect::before(|_| std::thread::sleep(Duration::from_millis(50)));
    world.sandbox.faults().add(hetzner(slow, DELETE));
    let rule = router_comes_at_read(&world, 2);
    let place = Place::new(&world.sandbox);
    let apis = place.world(&place.token, None);
    let mut routes = controller(Duration::from_secs(HOUR_S), Duration::ZERO);
    routes.sync(&apis, &Mortal::after(None));
    assert_eq!(world.sandbox.faults().hits(rule), 1, "no second look");
    assert_eq!(world.routes().len(), 3, "{:#?}", world.routes());
    assert!(world.wanted().is_subset(&world.routes()));
}
