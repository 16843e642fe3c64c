//! A node gets the taint `out-of-service` only while its server is surely off, and loses it again. The whole program
//! runs in simulated time.

use crate::common::{
    self, Cluster, SHUTDOWN, Simulate, answer, on, pass, seconds_since, wait_until,
};
use ccm::provider::clock;
use sandbox::Sandbox;
use sandbox::calls::Call;
use sandbox::faults::{Effect, Rule};
use serde_json::{Value, json};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const KEY: &str = "node.kubernetes.io/out-of-service";
const AFTER: &str = "--node-out-of-service-after=5m";
const MINUTE: Duration = Duration::from_secs(60);

/// Starts a sandbox with this number of initialised nodes, which change only when somebody changes them.
fn initialised(nodes: usize) -> Arc<Sandbox> {
    let sandbox = common::builder().nodes(nodes).heartbeats(false).simulated();
    sandbox.converge();
    sandbox
}

/// Switches the server of a node off. The node controller of Kubernetes has noticed that the kubelet is silent.
fn switch_off(sandbox: &Sandbox, name: &str) {
    sandbox.set_power(name, false);
    sandbox.kubelets().expire();
}

fn set_taint(sandbox: &Sandbox, name: &str, value: &str) {
    sandbox.edit_node(name, |node| {
        node["spec"]["taints"] = json!([{ "key": KEY, "value": value, "effect": "NoExecute" }]);
    });
}

fn values(sandbox: &Sandbox, name: &str) -> Vec<Value> {
    let node = sandbox.node(name);
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    taints.filter(|taint| taint["key"] == KEY).map(|taint| taint["value"].clone()).collect()
}

fn reads_of_actions(sandbox: &Sandbox) -> usize {
    sandbox.calls_of(0, "/v1/servers/actions")
}

/// Fails when an event came too early or too late. `took` is the number of seconds on the clock of `ccm`. A real API
/// server shares the processors with all tests and answers slowly, so only an event that came much too early counts.
#[track_caller]
fn assert_took(sandbox: &Sandbox, took: f64, range: Range<f64>) {
    let is_real = sandbox.cluster().is_real();
    let range = if is_real { range.start * 0.5..f64::INFINITY } else { range };
    assert!(range.contains(&took), "after {took:.0} s");
}

/// Waits until the node has the taint, and returns after how many seconds it got it.
fn seconds_until_tainted(sandbox: &Sandbox, name: &str) -> f64 {
    let begun = clock::now();
    wait_until(&format!("the taint of {name}"), || sandbox.has_taint(name, KEY));
    seconds_since(sandbox, begun)
}

#[test]
fn a_node_is_out_of_service_while_its_server_stays_off() {
    let sandbox = initialised(3);
    let daemon = sandbox.daemon(&[AFTER]);
    switch_off(&sandbox, "worker-1");
    wait_until("the taint shutdown", || sandbox.has_taint("worker-1", SHUTDOWN));
    let mark = sandbox.mark();
    let took = seconds_until_tainted(&sandbox, "worker-1");
    assert_took(&sandbox, took, 295.0..370.0);
    assert_eq!(values(&sandbox, "worker-1"), ["ccm-from-scratch"]);
    assert!(sandbox.has_taint("worker-1", SHUTDOWN), "other taints stay");
    sandbox.wait_for_event("worker-1", "NodeOutOfService", &["stays off", "hcloud server poweron"]);
    let calls = sandbox.calls().calls_since(mark);
    let patch = calls.iter().find(|call| call.method == "PATCH").unwrap().json().unwrap();
    assert_eq!(patch["metadata"]["uid"], sandbox.node("worker-1")["metadata"]["uid"]);
    assert!(patch["metadata"]["resourceVersion"].is_string(), "{patch}");
    assert_eq!(reads_of_actions(&sandbox), 1, "only when the taint is due");

    // The server is switched on, and its kubelet needs some time.
    sandbox.set_power("worker-1", true);
    wait_until("the taint to go", || !sandbox.has_taint("worker-1", KEY));
    assert!(!sandbox.is_ready("worker-1") && sandbox.has_taint("worker-1", SHUTDOWN));
    sandbox.kubelets().heartbeat();
    wait_until("the taint shutdown to go", || !sandbox.has_taint("worker-1", SHUTDOWN));
    assert!(!daemon.log().contains("OutOfServiceHeld"), "{}", daemon.log());
    sandbox.assert_nothing_refused();
}

#[test]
fn a_node_that_is_ready_again_loses_the_taint_at_once() {
    let sandbox = initialised(3);
    let _daemon = sandbox.daemon(&[AFTER]);
    switch_off(&sandbox, "worker-1");
    seconds_until_tainted(&sandbox, "worker-1");
    sandbox.set_power("worker-1", true);
    sandbox.kubelets().heartbeat();
    let begun = clock::now();
    wait_until("the taints to go", || {
        !sandbox.has_taint("worker-1", KEY) && !sandbox.has_taint("worker-1", SHUTDOWN)
    });
    let took = seconds_since(&sandbox, begun);
    assert_took(&sandbox, took, 0.0..11.0);
}

/// The time begins anew with each read that does not say `off`.
#[test]
fn the_time_begins_anew_when_the_server_was_on() {
    let sandbox = initialised(3);
    let _daemon = sandbox.daemon(&[AFTER]);
    switch_off(&sandbox, "worker-1");
    pass(&sandbox, 4 * MINUTE);
    sandbox.set_power("worker-1", true);
    pass(&sandbox, MINUTE + Duration::from_secs(10));
    sandbox.set_power("worker-1", false);
    let took = seconds_until_tainted(&sandbox, "worker-1");
    assert_took(&sandbox, took, 295.0..f64::INFINITY);
}

/// A read that fails says nothing about the server, and neither does a read that waits for more calls of the rate
/// limit.
#[test]
fn the_time_begins_anew_after_a_read_that_failed_or_was_put_off() {
    if common::needs_simulation(&initialised(0), common::EXACT_TIME) {
        return;
    }
    let one = "/v1/servers/*";
    let failed = on(one, Effect::hetzner_error(500, "server_error", "no"));
    let last_call = on(
        one,
        Effect::changed(|mut answer| {
            answer.headers.retain(|(name, _)| name != "RateLimit-Remaining");
            answer.with_header("RateLimit-Remaining", "1")
        }),
    );
    for (case, rule, minutes) in [("failed", failed, 1), ("put off", last_call, 2)] {
        let sandbox = initialised(3);
        let _daemon = sandbox.daemon(&[AFTER, "--node-status-update-frequency=10h"]);
        switch_off(&sandbox, "worker-1");
        // The server is read at once, and after 15 s. The next reads come after 45 s and 105 s, so that the time between
        // two reads that say `off` is not too long when one fails.
        pass(&sandbox, Duration::from_secs(25));
        let (rule, mark) = (sandbox.fault(rule), sandbox.mark());
        let faults = || sandbox.faults().hits(rule);
        wait_until("the read", || faults() > 0);
        sandbox.faults().remove(rule);
        let took = seconds_until_tainted(&sandbox, "worker-1");
        let reads = sandbox.count_since(mark, |call| call.path.starts_with("/v1/servers/"));
        let least = 60.0 * f64::from(minutes) + 295.0;
        assert!(took > least, "{case}: after {took:.0} s and {reads} reads");
    }
}

/// The server of a kubelet that only lost its connection runs.
#[test]
fn a_node_whose_server_runs_gets_no_taint() {
    let sandbox = initialised(3);
    let _daemon = sandbox.daemon(&[AFTER]);
    sandbox.set_ready("worker-1", "Unknown");
    pass(&sandbox, 30 * MINUTE);
    assert!(!sandbox.has_taint("worker-1", KEY) && !sandbox.has_taint("worker-1", SHUTDOWN));
    assert_eq!(reads_of_actions(&sandbox), 0);
}

/// A kubelet that reports that it is not ready is alive, whatever the API says about its server.
#[test]
fn a_node_whose_kubelet_reports_gets_no_taint() {
    let sandbox = initialised(3);
    let daemon = sandbox.daemon(&[AFTER]);
    sandbox.set_power("worker-1", false);
    sandbox.set_ready("worker-1", "False");
    pass(&sandbox, 30 * MINUTE);
    assert!(sandbox.has_taint("worker-1", SHUTDOWN) && !sandbox.has_taint("worker-1", KEY));
    assert!(daemon.log().contains("because rule 2 is not fulfilled"), "{}", daemon.log());
    assert_eq!(reads_of_actions(&sandbox), 0);
}

#[test]
fn a_taint_of_another_program_stays() {
    let sandbox = initialised(3);
    let _daemon = sandbox.daemon(&[AFTER]);
    set_taint(&sandbox, "worker-1", "nodeshutdown");
    switch_off(&sandbox, "worker-1");
    pass(&sandbox, 20 * MINUTE);
    assert_eq!(values(&sandbox, "worker-1"), ["nodeshutdown"]);
    assert_eq!(reads_of_actions(&sandbox), 0);
    sandbox.set_power("worker-1", true);
    pass(&sandbox, 5 * MINUTE);
    sandbox.kubelets().heartbeat();
    wait_until("the taint shutdown to go", || !sandbox.has_taint("worker-1", SHUTDOWN));
    pass(&sandbox, 5 * MINUTE);
    assert_eq!(values(&sandbox, "worker-1"), ["nodeshutdown"]);
}

/// When many nodes are not ready, the cause is probably not that their servers are off.
#[test]
fn no_node_gets_the_taint_while_more_than_half_are_not_ready() {
    let sandbox = initialised(5);
    let daemon = sandbox.daemon(&[AFTER]);
    switch_off(&sandbox, "worker-1");
    sandbox.set_ready("worker-2", "Unknown");
    sandbox.set_ready("worker-3", "Unknown");
    pass(&sandbox, 20 * MINUTE);
    assert!(!sandbox.has_taint("worker-1", KEY));
    let held =
        "because rule 5 is not fulfilled: at least half of the nodes must be ready (2 of 5 are)";
    assert!(daemon.log().contains(held), "{}", daemon.log());
    assert!(!sandbox.has_event("worker-1", "OutOfServiceHeld"), "it is only logged");
    assert_eq!(reads_of_actions(&sandbox), 0);
    sandbox.set_ready("worker-2", "True");
    let took = seconds_until_tainted(&sandbox, "worker-1");
    assert_took(&sandbox, took, 0.0..70.0);
}

#[test]
fn nodes_get_the_taint_one_after_the_other() {
    let sandbox = initialised(8);
    let _daemon = sandbox.daemon(&[AFTER]);
    for name in ["worker-1", "worker-2", "worker-3"] {
        // The servers are read at different times.
        switch_off(&sandbox, name);
        pass(&sandbox, Duration::from_secs(20));
    }
    let count = || {
        sandbox
            .nodes()
            .iter()
            .filter(|node| sandbox.has_taint(node["metadata"]["name"].as_str().unwrap(), KEY))
            .count()
    };
    wait_until("the first taint", || count() >= 1);
    for more in [2, 3] {
        let begun = clock::now();
        wait_until("the next taint", || count() >= more);
        let took = seconds_since(&sandbox, begun);
        assert_took(&sandbox, took, 59.0..130.0);
    }
}

#[test]
fn a_new_daemon_measures_the_time_anew() {
    let sandbox = initialised(3);
    let daemon = sandbox.daemon(&[AFTER]);
    switch_off(&sandbox, "worker-1");
    pass(&sandbox, 4 * MINUTE);
    drop(daemon);
    assert!(!sandbox.has_taint("worker-1", KEY));
    let _second = sandbox.daemon(&[AFTER]);
    let took = seconds_until_tainted(&sandbox, "worker-1");
    assert_took(&sandbox, took, 295.0..f64::INFINITY);
}

/// The cloud has locked the server, or an action runs on it that may switch it on.
#[test]
fn a_server_that_may_be_switched_on_holds_the_taint() {
    let sandbox = initialised(3);
    let id = sandbox.server_id("worker-1");
    let action = |resource: Value| {
        json!({ "actions": [{
            "id": 4711, "command": "start_server", "status": "running", "progress": 0, "error": null,
            "started": "2026-11-20T10:00:00Z", "finished": null, "resources": [resource],
        }], "meta": { "pagination": {
            "page": 1, "per_page": 50, "previous_page": null, "next_page": null, "last_page": 1, "total_entries": 1,
        } } })
    };
    let daemon = sandbox.daemon(&[AFTER]);
    let said = |what: &str| daemon.log().contains(&format!("no action may run on it ({what}"));
    switch_off(&sandbox, "worker-1");
    sandbox.edit_server("worker-1", |server| server["locked"] = json!(true));
    pass(&sandbox, 10 * MINUTE);
    assert!(said("the server was locked"), "{}", daemon.log());
    assert_eq!(reads_of_actions(&sandbox), 0);
    let error = Effect::hetzner_error(500, "server_error", "no");
    let rule = sandbox.fault(on("/v1/servers/actions", error));
    sandbox.edit_server("worker-1", |server| server["locked"] = json!(false));
    pass(&sandbox, 5 * MINUTE);
    assert!(said("GET "), "{}", daemon.log());
    sandbox.faults().remove(rule);
    let running = answer(200, &action(json!({ "id": id, "type": "server" })));
    let rule = sandbox.fault(on("/v1/servers/actions", running));
    pass(&sandbox, 10 * MINUTE);
    let runs = format!("/servers/{id}: action 4711 (start_server) still runs");
    assert!(said(&runs), "{}", daemon.log());
    assert!(!sandbox.has_taint("worker-1", KEY));
    sandbox.faults().remove(rule);
    // The action of another server, or of a volume with the same ID, says nothing.
    let others = answer(200, &action(json!({ "id": id, "type": "volume" })));
    sandbox.fault(on("/v1/servers/actions", others));
    seconds_until_tainted(&sandbox, "worker-1");
}

/// The last read of the server is read too long ago when the Kubernetes API answers slowly.
#[test]
fn the_taint_is_not_set_long_after_the_last_read_of_the_server() {
    let sandbox = initialised(3);
    if common::needs_simulation(&sandbox, common::EXACT_TIME) {
        return;
    }
    let _daemon = sandbox.daemon(&[AFTER]);
    switch_off(&sandbox, "worker-1");
    wait_until("the taint shutdown", || sandbox.has_taint("worker-1", SHUTDOWN));
    let slow = Rule::new(Effect::Slow(Duration::from_secs(9)));
    let rule = sandbox.fault(slow.method("GET").path("/api/v1/nodes/worker-1"));
    wait_until("the read of the actions", || reads_of_actions(&sandbox) > 0);
    pass(&sandbox, 5 * MINUTE);
    assert!(!sandbox.has_taint("worker-1", KEY) && reads_of_actions(&sandbox) > 1);
    sandbox.faults().remove(rule);
    seconds_until_tainted(&sandbox, "worker-1");
}

/// The server is switched on between the periodic read of a tick and the read just before the taint.
#[test]
fn the_status_is_read_again_just_before_the_taint() {
    let sandbox = initialised(3);
    if common::needs_simulation(&sandbox, common::EXACT_TIME) {
        return;
    }
    let _daemon = sandbox.daemon(&[AFTER]);
    switch_off(&sandbox, "worker-1");
    wait_until("the taint shutdown", || sandbox.has_taint("worker-1", SHUTDOWN));
    let last = Mutex::new(None);
    let switch_on = common::before(&sandbox, move |sandbox| {
        let last = last.lock().unwrap().replace(clock::now());
        if last.is_some_and(|last| clock::since(last) < Duration::from_secs(2)) {
            sandbox.set_power("worker-1", true);
        }
    });
    let path = format!("/v1/servers/{}", sandbox.server_id("worker-1"));
    sandbox.fault(on(&path, switch_on));
    let is_on = || sandbox.servers().iter().all(|server| server["status"] == "running");
    wait_until("the second read of a tick", is_on);
    pass(&sandbox, 20 * MINUTE);
    assert!(!sandbox.has_taint("worker-1", KEY));
    assert!(!sandbox.has_event("worker-1", "NodeOutOfService"));
}

/// Rule C1: only the daemon sets the taint. All remove it, also while the setting is not set.
#[test]
fn commands_only_remove_the_taint() {
    let sandbox = initialised(4);
    switch_off(&sandbox, "worker-1");
    sandbox.ccm(&["run", "--once", AFTER]).with_code(0);
    pass(&sandbox, 10 * MINUTE);
    sandbox.ccm(&["run", "--once", AFTER]).with_code(0);
    sandbox.ccm(&["node", "sync"]).with_code(0);
    assert!(sandbox.has_taint("worker-1", SHUTDOWN) && !sandbox.has_taint("worker-1", KEY));
    assert_eq!(reads_of_actions(&sandbox), 0);
    for words in [&["node", "sync"][..], &["run", "--once"]] {
        for name in ["worker-2", "worker-3"] {
            set_taint(&sandbox, name, "ccm-from-scratch");
        }
        set_taint(&sandbox, "worker-4", "nodeshutdown");
        sandbox.set_ready("worker-3", "Unknown");
        let shown = sandbox.ccm(&["node", "list"]).stdout;
        let shown = shown.lines().filter(|line| line.ends_with("out-of-service taint"));
        assert_eq!(shown.count(), 2);
        let ran = sandbox.ccm(words).with_code(0);
        for name in ["worker-2", "worker-3"] {
            assert!(!sandbox.has_taint(name, KEY), "{name}: {ran:?}");
        }
        assert_eq!(values(&sandbox, "worker-4"), ["nodeshutdown"], "{ran:?}");
    }
}

#[test]
fn commands_show_the_rules_and_who_has_set_the_taint() {
    let sandbox = initialised(3);
    let inspect = |words: &[&str]| {
        sandbox.ccm(&[&["node", "inspect", "worker-1"], words].concat()).with_code(0).stdout
    };
    switch_off(&sandbox, "worker-1");
    let shown = inspect(&[AFTER]);
    assert!(
        shown.contains("~ the node must be on a Cloud server and have the taint shutdown"),
        "{shown}"
    );
    sandbox.ccm(&["node", "sync"]).with_code(0);
    let shown = inspect(&[AFTER]);
    let (_, rules) = shown.split_once("TAINT OUT-OF-SERVICE").unwrap();
    let (rules, _) = rules.split_once("\n\n").unwrap();
    let marks = rules.lines().skip(1).filter(|line| !line.starts_with("    "));
    let marks: Vec<&str> = marks.map(|line| &line[2..3]).collect();
    assert_eq!(marks, ["=", "=", "?", "?", "=", "?"], "{rules}");
    let rules: Vec<&str> = rules.split_whitespace().collect();
    let rules = rules.join(" ");
    assert!(rules.contains("must be Unknown (it is Unknown since 20"), "{rules}");
    assert!(rules.contains("nodes must be ready (2 of 3 are)"), "{rules}");
    assert!(!inspect(&[]).contains("TAINT OUT-OF-SERVICE"), "nobody asks for it");

    let daemon = sandbox.daemon(&[AFTER]);
    seconds_until_tainted(&sandbox, "worker-1");
    drop(daemon);
    assert!(inspect(&[]).contains("out-of-service:NoExecute (set by ccm"), "{}", inspect(&[]));
    let status = sandbox.ccm(&["status"]).stdout;
    assert!(status.contains("2 of 3 ready, 1 with the taint out-of-service\n"), "{status}");
    let status = sandbox.ccm(&["status", "-o", "json"]).json();
    assert_eq!(status["outOfServiceNodes"], 1);

    sandbox.set_power("worker-1", true);
    sandbox.kubelets().heartbeat();
    set_taint(&sandbox, "worker-1", "nodeshutdown");
    let shown = inspect(&[AFTER]);
    assert!(shown.contains("out-of-service:NoExecute (not set by ccm"), "{shown}");
    assert!(!shown.contains("TAINT OUT-OF-SERVICE"), "{shown}");
    let doctor = sandbox.ccm(&["doctor"]).stdout;
    let fix = "kubectl taint node worker-1 node.kubernetes.io/out-of-service-";
    let said = doctor.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        said.contains("worker-1: the node is ready, but has the taint out-of-service"),
        "{doctor}"
    );
    assert!(said.contains(fix), "{doctor}");
}

#[test]
fn a_daemon_without_the_setting_removes_the_taint_of_one_with_it() {
    let sandbox = initialised(3);
    let first = sandbox.daemon(&[AFTER]);
    switch_off(&sandbox, "worker-1");
    seconds_until_tainted(&sandbox, "worker-1");
    drop(first);
    let _second = sandbox.daemon(&["--leader-elect=false"]);
    pass(&sandbox, 10 * MINUTE);
    assert!(sandbox.has_taint("worker-1", KEY), "the server is off");
    sandbox.set_power("worker-1", true);
    wait_until("the taint to go", || !sandbox.has_taint("worker-1", KEY));
    assert!(!sandbox.is_ready("worker-1"));
}

/// While no taint is due, the setting costs nothing, and without the setting a node costs what it did.
#[test]
fn the_setting_costs_no_call_until_a_taint_is_due() {
    if common::needs_simulation(&initialised(0), common::EXACT_TIME) {
        return;
    }
    let calls = |flags: &[&str]| {
        let sandbox = initialised(3);
        let _daemon = sandbox.daemon(flags);
        pass(&sandbox, MINUTE);
        switch_off(&sandbox, "worker-1");
        let mark = sandbox.mark();
        pass(&sandbox, 20 * MINUTE);
        let line = |call: &Call| format!("{} {}", call.method, call.path);
        sandbox.calls().calls_since(mark).iter().map(line).collect::<Vec<String>>()
    };
    let off = calls(&[]);
    assert_eq!(off, calls(&["--node-out-of-service-after=30m"]));
    let with = calls(&[AFTER]);
    let hetzner =
        |lines: &[String]| lines.iter().filter(|line| line.contains("/v1/servers")).count();
    assert_eq!(hetzner(&with), hetzner(&off) + 2, "the server and its actions, once");
}
