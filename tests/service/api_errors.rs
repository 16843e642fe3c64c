//! Load balancers while the cloud is slow or fails. Nothing is given up too early, and no change is forgotten.

use crate::common::cluster::{Cluster, id};
use crate::common::{self, Daemon, Simulate, at_scale, ccm, env, on, wait_at_most, wait_until};
use sandbox::calls::Call;
use sandbox::faults::Effect;
use sandbox::{Builder, Sandbox};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn world(nodes: usize) -> Arc<Sandbox> {
    with_service(builder(nodes).simulated())
}

fn builder(nodes: usize) -> Builder {
    Sandbox::builder().nodes(nodes).heartbeats(false)
}

fn with_service(sandbox: Arc<Sandbox>) -> Arc<Sandbox> {
    ccm(&env(&sandbox), &["node", "sync"]).with_code(0);
    sandbox.create("web", &[("location", "fsn1")], &[80]);
    sandbox
}

/// There are as many actions as nodes, one after the other. Together they take longer than a single action may take.
#[test]
fn many_actions_may_together_take_longer_than_one_may() {
    let sandbox = world(20);
    let env = env(&sandbox);
    ccm(&env, &["lb", "sync"]).with_code(0);
    sandbox.edit_balancer(id(&sandbox.only_balancer()), |one| one["targets"] = json!([]));
    // Each action takes 200 ms, which is 4 s in all. A single action may take 2.4 s.
    let takes = Some(Duration::from_secs(20));
    sandbox.cloud().set_action_duration("add_target", takes);
    let synced = ccm(&env, &["lb", "sync"]);
    synced.with_code(0).prints("1 changed");
}

/// The resync finds a difference, and the API fails when the change is to be made. The next tick makes the change.
#[test]
fn an_outage_during_a_resync_does_not_cost_a_whole_period() {
    let sandbox = world(2);
    // 6 s here.
    let daemon = Daemon::start(&env(&sandbox), &["--load-balancer-resync-period=5m"]);
    wait_until("an address", || sandbox.has_address("web"));
    // A list of load balancers leads to a planned change, for which the Service is read alone. A read is repeated by
    // itself, so several reads must fail.
    let read = on("GET /api/v1/namespaces/default/services", Effect::Reset).times(4);
    let rule = sandbox.faults().add(read);
    sandbox.edit_balancer(id(&sandbox.only_balancer()), |one| {
        one["algorithm"]["type"] = json!("least_connections")
    });
    wait_until("the resync to fail", || sandbox.faults().hits(rule) >= 4);
    wait_at_most(Duration::from_secs(4), "the algorithm", || {
        sandbox.only_balancer()["algorithm"]["type"] == "round_robin"
    });
    daemon.logs("algorithm: changed, least_connections → round_robin");
}

#[test]
fn each_change_is_shown_at_a_terminal_as_it_is_made() {
    let sandbox = with_service(Arc::new(builder(2).scale(0.01).start()));
    let env = env(&sandbox);
    let plain = ccm(&env, &["lb", "sync", "--dry-run"]);
    assert_eq!((plain.code, plain.stderr.as_str()), (0, ""), "{plain:?}");
    let Some(seen) = common::at_terminal(&env, &["lb", "sync"]) else {
        return;
    };
    let line = "… service/default/web: load balancer \"kubernetes-default-web\": created";
    for part in [line, "1 changed, 0 unchanged, 0 failed"] {
        assert!(seen.contains(part), "{seen}");
    }
    let again = ccm(&env, &["lb", "sync"]);
    assert_eq!((again.code, again.stderr.as_str()), (0, ""), "{again:?}");
}

/// A second of both sides' waits, in the story of three Services.
const SCALE: f64 = 0.3;

/// One action never ends, and another load balancer gets 150 targets one after the other. Both take minutes. A new
/// Service waits for neither, and a Service that is deleted meanwhile waits only for its own running actions.
#[test]
fn a_service_waits_for_no_other_services_changes() {
    let sandbox = builder(150).scale(SCALE).start();
    let env = at_scale(&sandbox, SCALE);
    ccm(&env, &["node", "sync"]).with_code(0);
    let new = |name: &str, more: &[(&str, &str)]| {
        let all = [&[("location", "fsn1"), ("type", "lb31")], more].concat();
        sandbox.create(name, &all, &[80]);
    };
    let cloud = sandbox.cloud();
    for command in ["create_load_balancer", "add_target"] {
        cloud.set_action_duration(command, Some(Duration::from_secs(1)));
    }
    new("endless", &[]);
    new("many", &[("node-selector", "role=edge")]);
    new("plain", &[]);
    ccm(&env, &["lb", "sync"]).with_code(0);
    let for_ever = Some(Duration::from_secs(1_000_000));
    cloud.set_action_duration("change_algorithm", for_ever);
    sandbox.annotate("endless", "algorithm-type", Some("least_connections"));
    sandbox.annotate("many", "node-selector", None);
    let daemon = Daemon::start(&env, &[]);
    let sent = |end: &str| {
        let is_sent = |call: &Call| call.is_write() && call.path.ends_with(end);
        sandbox.calls().count(is_sent)
    };
    wait_until("both changes to run", || sent("/change_algorithm") > 0 && sent("/add_target") > 1);

    // The action of the creation takes one second more.
    let limit = Duration::from_secs(11).mul_f64(SCALE);
    let begun = Instant::now();
    new("late", &[]);
    wait_at_most(limit, "the address of the new Service", || sandbox.has_address("late"));
    println!("an address after {:?} of {limit:?}", begun.elapsed());
    sandbox.annotate("plain", "health-check-interval", Some("20s"));
    wait_at_most(limit, "a change of another Service", || sent("/update_service") > 0);
    assert!(sent("/add_target") < 150, "the case shows nothing");

    // The other targets are not added any more.
    sandbox.delete("many");
    wait_at_most(limit, "the end of the deleted Service", || sandbox.service("many").is_none());
    let log = daemon.log();
    assert!(sent("/add_target") < 100, "{log}");
    assert!(!log.contains("endless: algorithm"), "{log}");
}
