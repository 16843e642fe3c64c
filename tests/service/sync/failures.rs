//! Old lists, an API that fails at the wrong moment, and changes that take long.

use crate::common::{self, on, wait_until};
use crate::sync::SERVICES;
use crate::sync::world::{Cluster, NO_RESYNC, OFTEN, World, id, targets};
use sandbox::Half;
use sandbox::exchange::Request;
use sandbox::faults::{Effect, Rule};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

#[test]
fn a_stale_list_of_services_changes_nothing() {
    let world = World::new(1);
    if common::needs_simulation(&world.sandbox, common::STALE_CACHE) {
        return;
    }
    let daemon = world.daemon(&[OFTEN]);
    world.create("gone", &[], &[80]);
    world.create("changed", &[("algorithm-type", "least_connections")], &[80]);
    let uid = world.create("retyped", &[], &[80]);
    for name in ["gone", "changed", "retyped"] {
        world.up(name);
    }
    world.cluster().freeze_cache(true);
    world.delete("gone");
    world.ccm(&["lb", "sync"]).with_code(0);
    wait_until("its end", || world.service("gone").is_none());
    world.set_type("retyped", "ClusterIP");
    world.annotate("changed", "algorithm-type", None);
    world.ccm(&["lb", "sync"]).with_code(0);
    wait_until("both", || world.of_uid(&uid).is_none());
    world.ticks(1);
    // The daemon still sees three that want what they wanted.
    let mark = world.mark();
    world.ticks(10);
    assert_eq!(world.writes(mark), Vec::<String>::new(), "{}", daemon.log());
    let left = world.balancers();
    assert_eq!(left.len(), 1, "{left:#?}");
    assert_eq!(left[0]["algorithm"]["type"], "round_robin");
    world.cluster().freeze_cache(false);
    world.create("new", &[], &[80]);
    world.up("new");
}

/// The Service is read from a list that is long out of date. It is read again before anything is written for it.
#[test]
fn no_load_balancer_is_created_for_a_service_that_only_a_stale_list_shows() {
    let world = World::new(1);
    if common::needs_simulation(&world.sandbox, common::STALE_CACHE) {
        return;
    }
    world.converge(&[]);
    world.create("gone", &[], &[80]);
    world.create("changed", &[("algorithm-type", "least_connections")], &[80]);
    world.converge(&[]);
    world.cluster().freeze_cache(true);
    world.delete("gone");
    world.annotate("changed", "algorithm-type", None);
    world.ccm(&["lb", "sync"]).with_code(0);
    assert_eq!(world.service("gone"), None);
    let mark = world.mark();
    let daemon = world.daemon(&[OFTEN]);
    world.ticks(4);
    assert_eq!(world.writes(mark), Vec::<String>::new(), "{}", daemon.log());
    assert!(!world.cloud_calls(mark).is_empty());
    assert_eq!(world.balancers().len(), 1);
}

/// Each look at what an old list shows would cost a list of load balancers, at every tick.
#[test]
fn a_stale_service_in_the_cache_is_read_once() {
    let world = World::new(1);
    if common::needs_simulation(&world.sandbox, common::STALE_CACHE) {
        return;
    }
    world.converge(&[]);
    for name in ["stays", "gone", "retyped"] {
        world.create(name, &[], &[80]);
    }
    // The list shows the Services in their present state, whatever is written to them later.
    world.cluster().freeze_cache(true);
    let daemon = world.daemon(&[NO_RESYNC]);
    for name in ["stays", "gone", "retyped"] {
        world.up(name);
    }
    world.delete("gone");
    world.set_type("retyped", "ClusterIP");
    world.ccm(&["lb", "sync"]).with_code(0);
    wait_until("their ends", || world.balancers().len() == 1);
    world.ticks(3);
    let mark = world.mark();
    world.ticks(10);
    let calls = world.cloud_calls(mark);
    assert!(calls.is_empty(), "{calls:#?}\n{}", daemon.log());
    // A person's change is seen as soon as the list shows it.
    world.annotate("stays", "algorithm-type", Some("least_connections"));
    world.cluster().freeze_cache(false);
    wait_until("its algorithm", || {
        world.balancers()[0]["algorithm"]["type"] == "least_connections"
    });
}

#[test]
fn a_stale_list_of_nodes_removes_no_target() {
    const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
    let world = World::new(2);
    if common::needs_simulation(&world.sandbox, common::STALE_CACHE) {
        return;
    }
    world.converge(&[]);
    let exclude = |value: &str| {
        world.edit_node("worker-2", |node| {
            node["metadata"]["labels"][EXCLUDED] = json!(value);
        });
    };
    exclude("true");
    world.create("web", &[], &[80]);
    world.converge(&[]);
    assert_eq!(targets(&world.only_balancer()).len(), 1);
    world.cluster().freeze_cache(true);
    exclude("false");
    world.ccm(&["lb", "sync"]).with_code(0);
    assert_eq!(targets(&world.only_balancer()).len(), 2);
    // While a pass reads the Service again, the other controllers read nodes from the cache.
    let slow = Effect::Slow(Duration::from_millis(200));
    world.faults().add(on("/api/v1/namespaces/default/services", slow));
    let mark = world.mark();
    let frequent = ["--node-status-update-frequency=1s", "--node-sync-interval=1s"];
    let daemon = world.daemon(&[&[OFTEN], &frequent[..]].concat());
    world.ticks(12);
    assert_eq!(world.writes(mark), Vec::<String>::new(), "{}", daemon.log());
    assert_eq!(targets(&world.only_balancer()).len(), 2);
}

#[test]
fn a_failed_resync_is_repeated_before_the_next_period() {
    let world = World::new(1);
    world.converge(&[]);
    world.create("web", &[], &[80]);
    world.converge(&[]);
    let right = world.only_balancer();
    // Every four seconds, scaled.
    let _daemon = world.daemon(&["--load-balancer-resync-period=200s"]);
    world.ticks(3);
    world.edit_balancer(id(&right), |one| one["algorithm"]["type"] = json!("least_connections"));
    // The read for the proposal succeeds. The read for the change fails with an answer that is not retried at once.
    let refused = Effect::kubernetes_status(422, "Invalid", "not now");
    let fails = world.faults().add(on(SERVICES, refused).times(1));
    wait_until("the resync that fails", || world.faults().hits(fails) == 1);
    common::wait_at_most(Duration::from_secs(2), "the algorithm as it was", || {
        world.only_balancer()["algorithm"] == right["algorithm"]
    });
}

#[test]
fn many_short_changes_do_not_count_as_an_action_that_runs_too_long() {
    let world = World::with_network(24);
    world.converge(&[]);
    // A server is removed and added again, each of which is waited for.
    world.create("web", &[], &[80]);
    world.converge(&[]);
    world.annotate("web", "use-private-ip", Some("true"));
    let cloud = world.cloud();
    for command in ["add_target", "remove_target"] {
        // Each change takes a tenth of a second. The limit for one change is 2.4 s.
        cloud.set_action_duration(command, Some(Duration::from_secs(5)));
    }
    world.once(&[]).with_code(0);
    let private = world.only_balancer()["targets"].as_array().unwrap().clone();
    assert_eq!(private.len(), 24);
    assert!(private.iter().all(|one| one["use_private_ip"] == true));
    assert_eq!(world.event_messages("web", "UpdateLoadBalancerFailed"), [""; 0]);
}

/// Eight servers are refused for the same reason, which is one problem and one line.
#[test]
fn several_targets_that_are_refused_for_one_reason_are_reported_once() {
    let world = World::new(8);
    let _daemon = world.daemon(&[NO_RESYNC]);
    world.create("web", &[("node-selector", "role=edge")], &[80]);
    world.up("web");
    let refuses = Effect::hetzner_error(422, "missing_ipv4", "it has no address");
    let refuses = on("/v1/load_balancers/*/actions/add_target", refuses);
    world.faults().add(refuses);
    world.annotate("web", "node-selector", None);
    let all = "(and 7 more like this)";
    world.wait_for_event("web", "UpdateLoadBalancerFailed", &[all]);
    for message in world.event_messages("web", "UpdateLoadBalancerFailed") {
        assert_eq!(message.matches("it has no address").count(), 1, "{message}");
    }
}

#[test]
fn an_action_that_never_ends_delays_only_its_own_service() {
    let world = World::new(1);
    world.converge(&[]);
    world.create("web", &[], &[80]);
    world.create("other", &[], &[80]);
    world.converge(&[]);
    world.annotate("web", "algorithm-type", Some("least_connections"));
    let for_ever = Some(Duration::from_secs(100_000));
    world.cloud().set_action_duration("change_algorithm", for_ever);
    world.once(&[]).with_code(1);
    let says = ["algorithm", "still runs after 120 s"];
    world.wait_for_event("web", "SyncLoadBalancerFailed", &says);
    assert_eq!(world.event_messages("other", "SyncLoadBalancerFailed"), [""; 0]);
}

/// Each try is overtaken, as when a name is in use that no list shows. It must not be tried for ever without a report, nor
/// keep the comparison of all Services from its end.
#[test]
fn a_service_that_always_changes_during_its_sync_has_failed() {
    let world = World::new(1);
    let daemon = world.daemon(&[OFTEN]);
    let in_use = Effect::hetzner_error(409, "uniqueness_error", "name is already used");
    let in_use = on("POST /v1/load_balancers", in_use);
    world.faults().add(in_use);
    world.create("clash", &[], &[80]);
    world.wait_for_event("clash", "SyncLoadBalancerFailed", &["not done in 5 tries"]);
    // The Service is retried with the growing backoff of a failure.
    world.ticks(20);
    let mark = world.mark();
    world.ticks(20);
    let tries = world.cloud_writes(mark).len();
    assert!(tries <= 20, "{tries} in 20 ticks\n{}", daemon.log());
}

/// The few calls that are left of the hour are for nodes.
#[test]
fn a_changed_service_waits_and_a_new_node_does_not_while_few_calls_are_left() {
    let world = World::new(1);
    let daemon = world.daemon(&[NO_RESYNC]);
    let (cloud, project) = (world.cloud(), world.project());
    cloud.set_rate_limit(project, 3600, 20);
    world.join_and_wait("late");
    let mark = world.mark();
    world.create("web", &[], &[80]);
    daemon.logs("calls an hour remain in the project, so ccm delays calls for Services and routes");
    assert_eq!(world.cloud_writes(mark), Vec::<String>::new());
    cloud.set_rate_limit(project, 3600, 3600);
    world.up("web");
}

/// The order is new nodes, deletions, changed Services, refreshes. Each kind waits until more calls of the hour are
/// left than for the kind before.
#[test]
fn more_kinds_of_calls_wait_the_fewer_calls_are_left() {
    let mut world = World::new(2);
    world.set(&[("CCM_TEST_TIME_SCALE", "0.2")]);
    let daemon = world.daemon(&[NO_RESYNC, "--node-status-update-frequency=30s"]);
    // The number is set before each call, because it grows fast in scaled time.
    let left = Arc::new(AtomicU32::new(0));
    let (cloud, project) = (world.cloud().clone(), world.project());
    let held = Arc::clone(&left);
    let hold = move |_: &Request| cloud.set_rate_limit(project, 3600, held.load(Ordering::Relaxed));
    let rule = Rule::new(Effect::before(hold)).half(Half::Hetzner);
    world.faults().add(rule);
    // The daemon learns only from an answer how many calls are left.
    let joins = |calls: u32, name: &str| {
        left.store(calls, Ordering::Relaxed);
        world.join_and_wait(name);
    };
    let mark = world.mark();
    let nothing_is_written = || assert_eq!(world.cloud_writes(mark), [""; 0], "{}", daemon.log());

    joins(40, "first");
    world.delete_server("worker-2");
    world.kubelets().expire();
    world.create("web", &[], &[80]);
    joins(40, "second");
    assert!(world.has_node("worker-2"), "a deletion waits\n{}", daemon.log());
    nothing_is_written();

    joins(100, "third");
    wait_until("a deletion", || !world.has_node("worker-2"));
    nothing_is_written();

    joins(250, "fourth");
    world.up("web");
    daemon.logs("ccm delays calls that only refresh data");
    joins(3600, "fifth");
    daemon.logs("ccm refreshes its lists again");
}

/// A Service may want hundreds of writes.
#[test]
fn the_rest_of_a_change_waits_and_a_new_node_does_not_while_few_calls_are_left() {
    let world = World::new(1);
    let daemon = world.daemon(&[NO_RESYNC]);
    world.create("web", &[], &[80, 443, 8080]);
    world.up("web");
    let (cloud, project) = (world.cloud().clone(), world.project());
    let is_begun = AtomicBool::new(false);
    let spend = move |request: &Request| {
        if request.method != "GET" || is_begun.load(Ordering::Relaxed) {
            is_begun.store(true, Ordering::Relaxed);
            cloud.set_rate_limit(project, 3600, 10);
        }
    };
    let rule = Rule::new(Effect::before(spend)).half(Half::Hetzner);
    let rule = world.faults().add(rule);
    let mark = world.mark();
    world.annotate("web", "health-check-interval", Some("20s"));
    wait_until("the first write", || !world.cloud_writes(mark).is_empty());
    world.join_and_wait("late");
    assert_eq!(world.cloud_writes(mark).len(), 1, "{}", daemon.log());
    world.faults().remove(rule);
    let has_interval = |port: &Value| port["health_check"]["interval"] == 20;
    wait_until("the rest", || {
        let balancer = world.only_balancer();
        let mut ports = balancer["services"].as_array().unwrap().iter();
        ports.len() == 3 && ports.all(has_interval)
    });
}
