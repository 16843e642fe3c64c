//! A hundred nodes at once, and one more.

use crate::common::in_flight::InFlight;
use crate::common::{wait_at_most, wait_until};
use crate::sync::world::{CIDR, Cluster, NOBODY, World};
use serde_json::json;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_hundred_nodes_that_register_together_get_their_routes() {
    let world = World::new(100);
    let daemon = world.daemon(&[]);
    wait_at_most(PATIENCE, "a hundred routes", || world.all_are_reached());
    world.comes_right(&[]);
    assert_eq!(world.routes().len(), 100);
    let calls = world.cloud_calls(0);
    let writes = calls.iter().filter(|call| call.is_write()).count();
    assert_eq!(writes, 100, "{}", daemon.log());
    let waits = calls
        .iter()
        .filter(|call| call.path == "/v1/actions")
        .count();
    assert!(waits <= 50, "{waits} questions");
    daemon.logs("RouteLimitNear");
}

#[test]
fn conditions_that_differ_are_set_at_the_same_time() {
    let world = World::over_sockets(12);
    assert_eq!(world.once(&[CIDR]).code, 0);
    for n in 1..=12 {
        let name = format!("worker-{n}");
        world.edit_node(&name, |node| {
            for condition in node["status"]["conditions"].as_array_mut().unwrap() {
                if condition["type"] == "NetworkUnavailable" {
                    condition["status"] = json!("True");
                }
            }
        });
    }
    let in_flight = InFlight::of(&world.sandbox, "PATCH", 5, 5);
    let ran = world.once(&[CIDR]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(world.all_are_reached());
    assert_eq!(in_flight.at_most(), 5);
}

#[test]
fn the_route_that_is_one_too_many_is_told_and_all_others_stay() {
    let world = World::new(90);
    for n in 0..10 {
        let to = format!("10.99.{n}.0/24");
        world.set_route(&to, NOBODY);
    }
    assert_eq!(world.once(&[CIDR]).code, 0);
    world.join("worker-91", "10.244.91.0/24");
    let mark = world.mark();
    let ran = world.sync(&[]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(
        ran.stdout
            .contains("has all of the 100 routes that it takes"),
        "{ran:?}"
    );
    assert_eq!(world.changes(mark), Vec::<String>::new());
    assert_eq!(world.status("worker-91").as_deref(), Some("True"));
    // A place becomes free.
    let _daemon = world.daemon(&[]);
    world.tells(
        "worker-91",
        "FailedToCreateRoute",
        &["all of the 100 routes"],
    );
    world.delete_route("10.99.0.0/24");
    wait_until("its route", || {
        world.status("worker-91").as_deref() == Some("False")
    });
}
