//! A hundred nodes at once, and one more.

use crate::common::in_flight::InFlight;
use crate::common::wait_at_most;
use crate::sync::world::{CIDR, Cluster, NOBODY, World};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_hundred_nodes_that_register_together_get_their_routes() {
    let world = World::new(100);
    let daemon = world.daemon(&[]);
    wait_at_most(PATIENCE, "a hundred routes", || world.all_are_reached());
    world.wait_for_routes(&[]);
    assert_eq!(world.routes().len(), 100);
    let calls = world.cloud_calls(0);
    let writes = calls.iter().filter(|call| call.is_write()).count();
    assert_eq!(writes, 100, "{}", daemon.log());
    let waits = calls.iter().filter(|call| call.path == "/v1/actions");
    assert!(waits.count() <= 50, "{calls:#?}");
    daemon.logs("RouteLimitNear");
}

#[test]
fn conditions_that_differ_are_set_at_the_same_time() {
    let world = World::over_sockets(12);
    world.once(&[CIDR]).with_code(0);
    for n in 1..=12 {
        world.mark_unavailable(&format!("worker-{n}"));
    }
    let in_flight = InFlight::of(&world.sandbox, "PATCH", 5, 5);
    world.once(&[CIDR]).with_code(0);
    assert!(world.all_are_reached());
    assert_eq!(in_flight.at_most(), 5);
}

#[test]
fn a_route_above_the_limit_is_reported_and_all_others_stay() {
    let world = World::new(90);
    for n in 0..10 {
        world.set_route(&format!("10.99.{n}.0/24"), NOBODY);
    }
    world.once(&[CIDR]).with_code(0);
    world.join("worker-91", "10.244.91.0/24");
    let mark = world.mark();
    let ran = world.sync(&[]).with_code(1);
    ran.prints("has reached its limit of 100 routes");
    assert_eq!(world.changes(mark), Vec::<String>::new());
    assert_eq!(world.status("worker-91").as_deref(), Some("True"));
    // A place becomes free.
    let _daemon = world.daemon(&[]);
    let says = ["its limit of 100 routes"];
    world.wait_for_event("worker-91", "FailedToCreateRoute", &says);
    world.delete_route("10.99.0.0/24");
    world.wait_for_status("worker-91", "False");
}
