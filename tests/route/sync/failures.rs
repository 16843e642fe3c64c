//! The cloud refuses changes, is busy, fails or loses answers, ccm is killed, or two daemons are at work.

use crate::common::{self, Daemon, is_lease, on, wait_until};
use crate::sync::world::{CIDR, Cluster, NOBODY, World, change};
use sandbox::Half;
use sandbox::calls::Call;
use sandbox::exchange::Request;
use sandbox::faults::{Effect, Rule};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const ADD: &str = "/v1/networks/*/actions/add_route";
const ANY: &str = "/v1/networks/*/actions/*";
const BUSY: &str = "another change is being made";

#[test]
fn a_network_that_is_being_changed_is_waited_for() {
    let cases = vec![(423, "locked"), (409, "conflict")];
    common::run_in_parallel(cases, |(status, code)| {
        let world = World::new(3);
        let busy = Effect::hetzner_error(status, code, BUSY);
        world.faults().add(on(ADD, busy).times(6));
        world.once(&[CIDR]).with_code(0);
        assert_eq!(world.routes(), world.wanted());
        assert!(world.all_are_reached());
        assert_eq!(world.changes(0).len(), 3 + 6);
    });
}

/// Somebody else's change takes longer than a pass waits. The next pass continues.
#[test]
fn a_network_that_is_locked_for_long_is_tried_again() {
    let world = World::new(2);
    let busy = Effect::hetzner_error(423, "locked", BUSY);
    let busy = world.faults().add(on(ANY, busy));
    let daemon = world.daemon(&[]);
    wait_until("many tries", || world.faults().hits(busy) >= 12);
    assert!(world.routes().is_empty());
    world.faults().remove(busy);
    world.wait_for_routes_and_nodes(&[]);
    daemon.logs(BUSY);
}

#[test]
fn a_change_that_fails_is_reported_and_tried_again() {
    let world = World::new(2);
    let cloud = world.cloud();
    cloud.fail_next_action("add_route", "action_failed", "it did not work out");
    let _daemon = world.daemon(&[]);
    world.wait_for_routes_and_nodes(&[]);
    let told =
        ["worker-1", "worker-2"].map(|name| world.event_messages(name, "FailedToCreateRoute"));
    assert_eq!(told.concat().len(), 1);
    assert_eq!(world.changes(0).len(), 3);
}

/// A change that the cloud refuses for one node does not delay the routes of others, and is not repeated all the time.
#[test]
fn a_refused_route_is_reported_about_its_node() {
    let world = World::new(2);
    world.join("worker-3", "10.244.3.0/24");
    let refuse = Effect::hetzner_error(422, "invalid_input", "invalid gateway");
    let is_its =
        |request: &Request| String::from_utf8_lossy(&request.body).contains("10.244.3.0/24");
    world.faults().add(on(ADD, refuse).when(is_its));
    let daemon = world.daemon(&[]);
    world.wait_for_event("worker-3", "FailedToCreateRoute", &["invalid gateway"]);
    world.wait_for_status("worker-3", "True");
    for name in ["worker-1", "worker-2"] {
        world.wait_for_status(name, "False");
    }
    let ran = world.sync(&[]).with_code(1);
    ran.prints("node/worker-3  failed: could not add route 10.244.3.0/24 via 10.0.0.4: POST ");
    let told = world.event_messages("worker-3", "FailedToCreateRoute");
    assert_eq!(told.len(), 1, "{}", daemon.log());
    world.faults().clear();
    world.wait_for_routes_and_nodes(&[]);
}

#[test]
fn an_answer_that_is_lost_adds_and_deletes_nothing_twice() {
    for command in ["add_route", "delete_route"] {
        let world = World::synced(2);
        let path = format!("/v1/networks/*/actions/{command}");
        world.set_route("10.244.1.0/24", NOBODY);
        let lost = on(&path, Effect::AnswerLost);
        world.faults().add(lost.times(1));
        let mark = world.mark();
        let daemon = world.daemon(&[]);
        world.wait_for_routes(&[]);
        world.wait_for_polls(8);
        let replaced = [
            format!("delete_route 10.244.1.0/24 {NOBODY}"),
            format!("add_route 10.244.1.0/24 {}", world.ip("worker-1")),
        ];
        assert_eq!(world.changes(mark), replaced, "{command}\n{}", daemon.log());
    }
}

/// A route that is deleted for its replacement is added again by the next write, whatever other changes there are.
#[test]
fn a_route_is_missing_for_no_longer_than_its_own_replacement() {
    let world = World::synced(6);
    for n in 1..=6 {
        let via = world.ip(&format!("worker-{}", 1 + n % 6));
        world.set_route(&format!("10.244.{n}.0/24"), &via);
        world.set_route(&format!("10.244.10{n}.0/24"), NOBODY);
    }
    let mark = world.mark();
    // Old enough for a new look after each deletion.
    common::ccm(
        &common::with(world.env.clone(), &[("HCLOUD_SERVER_CACHE_MAX_AGE", "0")]),
        &["route", "sync", CIDR],
    )
    .with_code(0);
    assert_eq!(world.routes(), world.wanted());
    let changes = world.changes(mark);
    assert_eq!(changes.len(), 18, "{changes:#?}");
    for (n, line) in changes.iter().enumerate() {
        let Some(rest) = line.strip_prefix("delete_route ") else {
            continue;
        };
        let to = rest.split(' ').next().unwrap();
        if !to.starts_with("10.244.10") {
            assert!(changes[n + 1].starts_with(&format!("add_route {to} ")), "{changes:#?}");
        }
    }
}

/// The deletion may take long.
#[test]
fn no_other_change_comes_between_a_deletion_and_its_replacement() {
    let world = World::synced(2);
    // The replacement is sent only when the last read is too old even for a route to be added.
    let slow = Effect::Slow(Duration::from_millis(180));
    let busy = Effect::hetzner_error(409, "conflict", BUSY);
    for effect in [slow, busy] {
        let rule = on("/v1/networks/*/actions/delete_route", effect);
        world.faults().add(rule.times(9));
    }
    for n in 1..=2 {
        world.set_route(&format!("10.244.{n}.0/24"), NOBODY);
    }
    let mark = world.mark();
    world.sync(&[]).with_code(0);
    assert_eq!(world.routes(), world.wanted());
    let calls = world.cloud_calls(mark);
    let mut is_missing = false;
    for call in calls.iter().filter(|call| call.path != "/v1/actions") {
        let line = change(call);
        // A replacement that is sent too early is refused as busy, and is sent again.
        let is_add = line.starts_with("add_route");
        assert!(!is_missing || is_add, "{calls:#?}");
        let is_done = call.status == Some(201);
        is_missing = match is_add {
            true => is_missing && !is_done,
            false => line.starts_with("delete_route") && is_done,
        };
    }
}

/// Another daemon or a person has made the change. A refusal is no failure when the change is made.
#[test]
fn a_refused_change_that_somebody_else_made_is_no_failure() {
    let world = World::synced(2);
    let cloud = Arc::clone(world.cloud());
    let (network, ip) = (world.network_id(), world.ip("worker-1"));
    cloud.delete_route(network, "10.244.1.0/24");
    cloud.set_route(network, "10.244.77.0/24", NOBODY);
    let manual_change = move |request: &Request| match request.path.ends_with("add_route") {
        true => cloud.set_route(network, "10.244.1.0/24", &ip),
        false => cloud.delete_route(network, "10.244.77.0/24"),
    };
    let rule = on(ANY, Effect::before(manual_change));
    world.faults().add(rule);
    let mark = world.mark();
    world.sync(&[]).with_code(0);
    assert_eq!(world.changes(mark).len(), 2);
    assert_eq!(world.routes(), world.wanted());
    assert!(world.all_are_reached());
    assert_eq!(world.event_messages("worker-1", "FailedToCreateRoute"), [""; 0]);
}

/// The daemon is killed by SIGKILL just before or just after its n-th write. Another daemon starts and reaches
/// the same state.
#[test]
fn routes_are_right_when_the_daemon_is_killed_at_any_write() {
    let cases: Vec<(u64, bool)> = (1..=12).flat_map(|n| [(n, true), (n, false)]).collect();
    common::run_in_parallel(cases, |(n, before)| {
        let world = World::over_sockets(3);
        for route in ["10.244.1.0/24", "10.244.77.0/24", "10.9.0.0/16"] {
            world.set_route(route, NOBODY);
        }
        let of_ours = |request: &Request| !is_lease(&request.path);
        let calls = |rule: Rule| rule.writes().when(of_ours).nth(n);
        let flags = [CIDR, "--leader-elect=false"];
        let (daemon, _) = Daemon::killed_at(&world, &world.env, &flags, before, calls);
        // When there are fewer writes than n, no daemon is killed.
        let is_dead = || world.calls().count(|call| call.fault.is_some()) > 0;
        let is_over = || is_dead() || world.all_are_reached();
        common::holds_within(Duration::from_secs(4), is_over);
        drop(daemon);
        world.faults().clear();
        let _second = world.daemon(&["--leader-elect=false"]);
        world.wait_for_routes_and_nodes(&[&format!("10.9.0.0/16 {NOBODY}")]);
    });
}

/// Without a Lease an old and a new pod work at the same time.
#[test]
fn two_daemons_at_once_make_the_right_routes() {
    let world = World::over_sockets(6);
    world.set_route("10.244.1.0/24", NOBODY);
    world.set_route("10.244.77.0/24", NOBODY);
    let both = [(); 2].map(|()| world.daemon(&["--leader-elect=false"]));
    world.wait_for_routes_and_nodes(&[]);
    // No node was marked as unreachable, because none was unreachable for long.
    world.comparisons(4);
    assert!(world.all_are_reached());
    world.wait_for_routes(&[]);
    let logs: String = both.iter().map(Daemon::log).collect();
    assert_eq!(world.routes().len(), 6, "{logs}");
    let mut calls = world.cloud_calls(0);
    calls.retain(|call| call.is_write() && call.status == Some(201));
    let made: BTreeSet<String> = calls.iter().map(change).collect();
    assert_eq!(made.len(), calls.len(), "one was made twice: {calls:#?}");
}

/// The next sync finds the change that this one has begun.
#[test]
fn ctrl_c_waits_for_no_action() {
    let world = World::over_sockets(1);
    // Longer than ccm waits for one.
    let long = Some(Duration::from_secs(1000));
    world.cloud().set_action_duration("add_route", long);
    let daemon = world.daemon(&[]);
    let is_sent = |call: &Call| call.half == Half::Hetzner && call.is_write();
    wait_until("the first route", || world.calls().count(is_sent) >= 1);
    daemon.signal("-TERM");
    assert!(daemon.ended().success(), "{}", daemon.log());
    daemon.logs("begun; the cloud may still be making this change");
    assert!(!daemon.log().contains("still goes on"), "{}", daemon.log());
}

/// No other change is begun.
#[test]
fn ctrl_c_ends_a_sync_between_two_routes() {
    let world = World::over_sockets(20);
    let takes = Some(Duration::from_secs(10));
    world.cloud().set_action_duration("add_route", takes);
    let daemon = world.daemon(&[]);
    wait_until("the first routes", || world.routes().len() >= 2);
    daemon.signal("-TERM");
    assert!(daemon.ended().success(), "{}", daemon.log());
    let sent = world.changes(0).len();
    assert!(sent < 20, "{sent} were sent");
    let _second = world.daemon(&[]);
    world.wait_for_routes_and_nodes(&[]);
}
