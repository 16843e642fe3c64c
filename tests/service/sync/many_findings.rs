//! Many findings, long findings, and findings that come back. Each is reported once, within limits, and delays
//! no other Service.

use crate::common::{Daemon, on, wait_at_most, wait_until};
use crate::sync::world::{Cluster, NO_RESYNC, OFTEN, World, key, service, targets};
use sandbox::calls::Call;
use sandbox::faults::Effect;
use serde_json::{Value, json};
use std::time::Duration;

/// The largest number of events about one object: its findings, and one that counts the rest.
const FINDINGS_AT_MOST: usize = 11;

/// Returns how often events about a Service were created or counted up.
fn event_writes(world: &World, name: &str) -> usize {
    let prefix = format!("\"name\":\"{name}.");
    let path = format!("/events/{name}.");
    let is_it = |call: &Call| {
        let is_new = call.method == "POST" && call.path.ends_with("/events");
        let is_counted = call.method == "PATCH" && call.path.contains(&path);
        is_counted || is_new && String::from_utf8_lossy(&call.body).contains(&prefix)
    };
    world.calls().count(is_it)
}

fn lines(daemon: &Daemon, parts: &[&str]) -> usize {
    let log = daemon.log();
    let is_it = |line: &&str| parts.iter().all(|part| line.contains(part));
    log.lines().filter(is_it).count()
}

/// A Service with so many annotations that are not known.
fn with_unknown(name: &str, count: usize) -> Value {
    let mut service = service(name, &[], &[80]);
    for n in 0..count {
        service["metadata"]["annotations"][key(&format!("none-{n:04}"))] = json!("x");
    }
    service
}

#[test]
fn each_change_between_bad_and_good_is_logged_and_written() {
    for good in [None, Some("least_connections")] {
        let world = World::new(1);
        world.create("web", &[], &[80]);
        let daemon = world.daemon(&[NO_RESYNC]);
        // A target that is added later is a success, too.
        wait_until("one target", || targets(&world.up("web")).len() == 1);
        for turn in 1..=3 {
            world.annotate("web", "algorithm-type", Some("upside_down"));
            let parts = ["service/default/web", "(SyncLoadBalancerFailed)"];
            wait_until(&format!("line {turn} of a failure, {good:?}"), || {
                lines(&daemon, &parts) == turn
            });
            wait_until("its event", || {
                event_posts(&world, "web", "SyncLoadBalancerFailed") == turn
            });
            // A POST of an event that is there already counts it up. A slow machine may have the creation succeed in two parts.
            let before = event_posts(&world, "web", "EnsuredLoadBalancer");
            world.annotate("web", "algorithm-type", good);
            wait_until(&format!("the success of turn {turn}, {good:?}"), || {
                event_posts(&world, "web", "EnsuredLoadBalancer") == before + 1
            });
        }
        world.ticks(5);
        let failures = lines(&daemon, &["(SyncLoadBalancerFailed)"]);
        assert_eq!(failures, 3, "{}", daemon.log());
    }
}

/// A Service that stays on its load balancer, because it can't have the one that it asks for, gets new targets there. They
/// do not end its failure.
#[test]
fn new_targets_end_no_failure_that_lasts() {
    let world = World::new(1);
    world.create("web", &[], &[80]);
    let daemon = world.daemon(&[NO_RESYNC]);
    wait_until("one target", || targets(&world.up("web")).len() == 1);
    world.annotate("web", "external", Some("nowhere"));
    world.wait_for_event("web", "SyncLoadBalancerFailed", &["nowhere"]);
    for count in 2..=3 {
        world.join_node(&format!("joined-{count}"));
        wait_until("a new target", || targets(&world.up("web")).len() == count);
        world.wait_for_event("web", "UpdatedLoadBalancer", &["new hosts"]);
    }
    world.ticks(5);
    let failures = lines(&daemon, &["(SyncLoadBalancerFailed)"]);
    assert_eq!(failures, 1, "{}", daemon.log());

    world.annotate("web", "external", None);
    wait_until("the end of the failure", || {
        lines(&daemon, &["service/default/web", "all reported failures have ended"]) == 1
    });
}

/// Events of a reason about a Service that were to be written, new or not.
fn event_posts(world: &World, name: &str, reason: &str) -> usize {
    let parts = [format!("\"name\":\"{name}."), format!("\"reason\":\"{reason}\"")];
    world.calls().count(|call: &Call| {
        let body = String::from_utf8_lossy(&call.body);
        let is_post = call.method == "POST" && call.path.ends_with("/events");
        is_post && call.status.is_some() && parts.iter().all(|part| body.contains(part))
    })
}

#[test]
fn findings_of_one_reason_do_not_evict_each_other() {
    let world = World::new(1);
    world.create_as(with_unknown("web", 3));
    let daemon = world.daemon(&[OFTEN]);
    world.up("web");
    world.ticks(20);
    for n in 0..3 {
        let name = format!("none-{n:04}");
        assert_eq!(lines(&daemon, &[&name]), 1, "{}", daemon.log());
    }
    let told = world.event_messages("web", "UnknownAnnotation");
    assert_eq!(told.len(), 3, "{told:?}");
    // There are the same three events, and the creation, which may have come before its node. No event is counted up
    // at each tick.
    let writes = event_writes(&world, "web");
    assert!(writes <= 8, "{writes}");
}

/// Slow events, and a Service with more findings than anybody reads.
#[test]
fn many_findings_of_one_service_delay_no_other_service() {
    for count in [400, 6000] {
        let world = World::new(1);
        let daemon = world.daemon(&[NO_RESYNC]);
        let slow =
            on("POST /api/v1/namespaces/default/events", Effect::Slow(Duration::from_millis(300)));
        world.faults().add(slow);
        world.create_as(with_unknown("bad", count));
        world.ticks(1);
        world.create("good", &[], &[80]);
        wait_at_most(Duration::from_secs(5), "an address", || world.has_address("good"));
        wait_until("findings", || lines(&daemon, &["service/default/bad"]) > 0);
        world.wait_for_event("good", "EnsuredLoadBalancer", &[]);
        world.ticks(10);
        let (logged, log) = (lines(&daemon, &["WARN", "service/default/bad"]), daemon.log());
        assert!(logged <= FINDINGS_AT_MOST, "{count}: {logged} lines: {log}");
        // The events about what was done are written, too.
        let written = event_writes(&world, "bad");
        assert!(written <= FINDINGS_AT_MOST + 2, "{count}: {written} events");
        if count == 400 {
            let rest = format!("with reason UnknownAnnotation, and leaves out {} more", count - 5);
            let rests = lines(&daemon, &["service/default/bad", &rest]);
            assert_eq!(rests, 1, "{log}");
        }
    }
}

#[test]
fn a_long_message_is_cut() {
    let world = World::new(1);
    let daemon = world.daemon(&[NO_RESYNC]);
    let long = "ä".repeat(500);
    let names = ["algorithm-type", "protocol", "health-check-protocol", "uses-proxyprotocol"];
    world.create("web", &names.map(|name| (name, long.as_str())), &[80]);
    world.wait_for_event("web", "SyncLoadBalancerFailed", &["algorithm-type"]);
    for message in world.event_messages("web", "SyncLoadBalancerFailed") {
        assert_eq!(message.chars().count(), 1000, "{message}");
        assert!(message.ends_with('…'), "{message}");
    }
    for line in daemon.log().lines() {
        assert!(line.chars().count() < 1200, "{line}");
    }
}

/// The Service is larger than ccm reads. It stays as it is and is reported, and the other Services are synced.
#[test]
fn a_service_that_is_too_large_is_left_as_it_is() {
    let world = World::new(1);
    let daemon = world.daemon(&[NO_RESYNC]);
    let uid = world.create("web", &[("algorithm-type", "least_connections")], &[80]);
    let before = world.up("web");
    world.annotate("web", "http-certificates", Some(&"1,".repeat(40_000)));
    let says = ["this object has more than", "annotations for load balancers"];
    world.wait_for_event("web", "SyncLoadBalancerFailed", &says);
    world.ticks(3);
    assert_eq!(world.of_uid(&uid).unwrap(), before, "{}", daemon.log());
    // The deletion does not need the annotations.
    world.delete("web");
    wait_until("its end", || world.balancers().is_empty());
    world.ccm(&["lb", "sync"]).with_code(0);
}
