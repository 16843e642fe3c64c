//! A Service whose targets are all unhealthy gets an event when that begins, and one when it ends.

use crate::common::{Daemon, needs_simulation, pass, wait_until};
use crate::sync::world::{Cluster, OFTEN, World, id, len, text};
use ccm::provider::clock;
use sandbox::calls::Call;
use sandbox::hetzner::{Health, Machine};
use serde_json::{Value, json};
use std::time::Duration;

const BEGINS: &str = "NoHealthyTarget";
const ENDS: &str = "HealthyTarget";

/// The health of a Service of this age is judged: its targets had three minutes to become healthy.
const OLD: Duration = Duration::from_secs(3 * 60 + 50);

/// A world with two nodes and a Service that is old enough to be judged by its health.
fn world(ports: &[u16]) -> World {
    let world = World::new(2);
    world.create("web", &[], ports);
    world.converge(&[]);
    pass(&world.sandbox, OLD);
    all_are(&world, "healthy");
    world
}

/// Waits until the health checks of all targets say that.
fn all_are(world: &World, status: &str) {
    wait_until(status, || {
        let balancers = world.balancers();
        let targets = balancers[0]["targets"].as_array().unwrap().iter();
        let mut checks = targets.flat_map(|one| one["health_status"].as_array().unwrap());
        len(&balancers[0]["targets"]) == 2 && checks.all(|check| check["status"] == status)
    });
}

fn power(world: &World, is_on: bool) {
    for name in ["worker-1", "worker-2"] {
        world.set_power(name, is_on);
    }
    all_are(world, if is_on { "healthy" } else { "unhealthy" });
}

/// Type and count of each event of this reason.
fn events(world: &World, reason: &str) -> Vec<(String, u64)> {
    let mut events = world.cluster().list("events", None);
    events.retain(|event| event["reason"] == reason);
    let shown = |event: &Value| (text(&event["type"]), event["count"].as_u64().unwrap());
    events.iter().map(shown).collect()
}

/// Returns how often all load balancers were read.
fn comparisons(world: &World) -> usize {
    let mut calls = world.cloud_calls(0);
    calls.retain(|call| !call.is_write() && call.path.ends_with("/load_balancers"));
    calls.len()
}

fn compares(world: &World, times: usize) {
    let enough = comparisons(world) + times;
    wait_until("comparisons", || comparisons(world) >= enough);
}

fn daemon(world: &World) -> Daemon {
    let daemon = world.daemon(&[OFTEN, "--leader-elect=false"]);
    compares(world, 2);
    daemon
}

#[test]
fn an_outage_is_one_event_when_it_begins_and_one_when_it_ends() {
    let world = world(&[80]);
    let daemon = daemon(&world);
    assert_eq!(events(&world, BEGINS), []);
    power(&world, false);
    let says = [
        "0 of 2 targets healthy",
        "checked less than a minute ago",
        "ccm lb inspect default/web shows the cause",
    ];
    world.wait_for_event("web", BEGINS, &says);
    compares(&world, 3);
    assert_eq!(events(&world, BEGINS), [("Warning".to_owned(), 1)]);
    assert_eq!(events(&world, ENDS), []);
    power(&world, true);
    let says = ["2 of 2 targets healthy", "checked less than a minute ago"];
    world.wait_for_event("web", ENDS, &says);
    compares(&world, 3);
    assert_eq!(events(&world, ENDS), [("Normal".to_owned(), 1)]);
    // When it happens again, the event that is there is renewed.
    let renewed = || {
        let calls = world.calls().calls();
        let is_event = |call: &&Call| call.method == "PATCH" && call.path.contains("/events/web.");
        calls.iter().filter(is_event).count()
    };
    assert_eq!(renewed(), 0);
    power(&world, false);
    wait_until("the second outage", || renewed() == 1);
    assert_eq!(daemon.log().matches(BEGINS).count(), 2, "{}", daemon.log());
    drop(daemon);
}

#[test]
fn an_outage_that_a_daemon_finds_at_its_start_is_not_a_new_event() {
    let world = world(&[80]);
    power(&world, false);
    for _ in 0..3 {
        let daemon = daemon(&world);
        wait_until("the event", || !events(&world, BEGINS).is_empty());
        compares(&world, 2);
        drop(daemon);
    }
    assert_eq!(events(&world, BEGINS), [("Warning".to_owned(), 1)]);
    // A person who syncs by hand sees the outage, so there is no event.
    let daemon = daemon(&world);
    power(&world, true);
    world.wait_for_event("web", ENDS, &["2 of 2 targets healthy"]);
    drop(daemon);
}

#[test]
fn a_service_with_one_healthy_target_gets_no_outage_event() {
    let world = world(&[80]);
    let _daemon = daemon(&world);
    world.set_power("worker-1", false);
    compares(&world, 3);
    assert_eq!(events(&world, BEGINS), []);
}

#[test]
fn a_new_service_gets_no_outage_event() {
    let world = world(&[80]);
    if needs_simulation(&world.sandbox, "the creation of a Service at another time") {
        return;
    }
    let _daemon = daemon(&world);
    world.edit("web", |service| {
        let now = clock::timestamp().strftime("%Y-%m-%dT%H:%M:%SZ");
        service["metadata"]["creationTimestamp"] = json!(now.to_string());
    });
    power(&world, false);
    compares(&world, 3);
    assert_eq!(events(&world, BEGINS), []);
}

/// The state of a port's health checks on both targets.
fn port_is(world: &World, port: u16, health: Option<Health>) {
    let balancer = id(&world.only_balancer());
    for name in ["worker-1", "worker-2"] {
        let machine = Machine::Server(world.server_id(name));
        let cloud = world.cloud();
        cloud.set_health(balancer, machine, Some(port), health.clone());
    }
}

/// A target is healthy where it is healthy on all ports. Traffic may still reach the others.
#[test]
fn an_outage_of_one_port_of_two_does_not_say_that_no_traffic_arrives() {
    let world = world(&[80, 443]);
    let daemon = daemon(&world);
    let closed = || Some(Health::unhealthy("layer4_no_connection"));
    let message = |reason: &str, says: &str| {
        world.wait_for_event("web", reason, &[says]);
        let told = world.event_messages("web", reason);
        assert_eq!(told.len(), 1, "{told:?}");
        told[0].clone()
    };
    port_is(&world, 443, closed());
    let begins = message(BEGINS, "0 of 2 targets healthy");
    let says = "no target is healthy on all ports of the Service: ";
    assert!(begins.starts_with(says), "{begins}");
    port_is(&world, 443, None);
    let ends = message(ENDS, "2 of 2 targets healthy");
    let says = "at least one target is healthy on all ports of the Service again: ";
    assert!(ends.starts_with(says), "{ends}");
    drop(daemon);
}

/// The events come from what is read anyway.
#[test]
fn an_outage_costs_no_call_of_the_cloud() {
    let world = world(&[80]);
    let calls = |is_on: bool| {
        power(&world, is_on);
        let _daemon = daemon(&world);
        let mark = world.mark();
        world.ticks(40);
        world.cloud_calls(mark).len()
    };
    let (on, off) = (calls(true), calls(false));
    assert!(off <= on + 1, "{off} calls in an outage, {on} without");
}
