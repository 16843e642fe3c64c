//! A new node that no server matches and that is not ready for ten minutes is reported and never deleted.

use crate::common::cluster::Cluster;
use crate::common::fake_provider::FakeProvider;
use crate::common::{Daemon, Simulate, env, events, wait_until};
use ccm::controllers::node::{NodePlan, UNINITIALIZED, plan};
use ccm::kube::KubeNode;
use ccm::provider::Reason;
use ccm::provider::clock;
use jiff::Timestamp;
use sandbox::calls::Call;
use sandbox::{Half, Sandbox};
use serde_json::{Value, json};

const BEFORE: &str = "2026-11-20T09:00:00Z";
const OVERDUE: &str = "2026-11-20T10:00:00Z";
const AFTER: &str = "2026-11-20T11:00:00Z";

fn plan_of(created: Value, ready: Value, taints: Value) -> NodePlan {
    let object = json!({
        "metadata": { "name": "w", "uid": "u", "resourceVersion": "1", "creationTimestamp": created },
        "spec": { "taints": taints },
        "status": { "conditions": [{ "type": "DiskPressure", "status": "False" }, ready] },
    });
    let nodes: [KubeNode; 1] = [serde_json::from_value(object).unwrap()];
    let overdue = OVERDUE.parse().unwrap();
    plan(&nodes, &[], &FakeProvider::default(), overdue).remove(0)
}

fn found(plan: &NodePlan) -> Vec<Reason> {
    plan.all_findings().map(|finding| finding.reason).collect()
}

#[test]
fn a_left_over_node_is_reported_when_its_own_times_say_so() {
    let ready = |status: &str, since: Value| json!({ "type": "Ready", "status": status, "lastTransitionTime": since });
    let no_condition = json!({ "type": "PIDPressure", "status": "False" });
    let since = |time: &str| json!(time);
    // Created, the Ready condition → is it told?
    let cases = [
        (since(BEFORE), ready("False", since(BEFORE)), true),
        (since(BEFORE), ready("Unknown", since(BEFORE)), true),
        (since(BEFORE), ready("False", since(AFTER)), false),
        (since(BEFORE), ready("False", since(OVERDUE)), false),
        (since(BEFORE), ready("True", since(BEFORE)), false),
        (since(BEFORE), ready("False", Value::Null), false),
        (since(BEFORE), ready("False", since("yesterday")), false),
        (since(BEFORE), no_condition.clone(), true),
        (since(AFTER), no_condition.clone(), false),
        (Value::Null, no_condition, false),
    ];
    for (created, ready, is_told) in cases {
        let case = format!("created {created}, {ready}");
        let new = json!([{ "key": UNINITIALIZED, "effect": "NoSchedule" }]);
        let plan = plan_of(created, ready, new);
        let expected = match is_told {
            true => Reason::PossibleNodeDeletion,
            false => Reason::ServerNotFound,
        };
        // The plan has one of the two findings, never both.
        assert_eq!(found(&plan), [expected], "{case}");
        assert_eq!(plan.changes, [], "{case}");
        let message = plan.obstacle.clone().unwrap().message;
        let has_command = message.contains("kubectl delete node w");
        assert_eq!(has_command, is_told, "{case}: {message}");
    }
}

#[test]
fn an_initialised_node_is_never_reported_as_left_over() {
    let ready = json!({ "type": "Ready", "status": "False", "lastTransitionTime": BEFORE });
    let plan = plan_of(json!(BEFORE), ready, json!([]));
    assert_eq!(found(&plan), [Reason::NotExternal, Reason::ServerNotFound]);
}

fn not_ready_since(sandbox: &Sandbox, name: &str, since: Timestamp) {
    let since = since.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let condition = json!({
        "type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "no network",
        "lastHeartbeatTime": since, "lastTransitionTime": since,
    });
    sandbox.edit_node(name, |node| {
        node["status"]["conditions"] = json!([condition]);
    });
}

/// Returns the reasons of the events in alphabetical order, because events of the same second have no other order.
fn reasons(sandbox: &Sandbox, name: &str) -> Vec<String> {
    let events = events(sandbox, name).into_iter();
    let mut reasons: Vec<String> = events.map(|(reason, _)| reason).collect();
    reasons.sort();
    reasons
}

#[test]
fn a_left_over_node_is_reported_once_after_ten_minutes_and_stays() {
    let sandbox = Sandbox::builder().nodes(1).heartbeats(false).simulated();
    let now = clock::timestamp();
    // The times that Kubernetes stores outlast any process.
    let an_hour_ago = now - jiff::SignedDuration::from_hours(1);
    for (name, since) in [("fresh", now), ("stale", an_hour_ago)] {
        sandbox.register(name, None, "");
        not_ready_since(&sandbox, name, since);
    }
    let daemon = Daemon::start(&env(&sandbox), &[]);
    daemon.logs("node/stale: the node has not been ready since ");
    wait_until("its event", || reasons(&sandbox, "stale") == ["PossibleNodeDeletion"]);
    wait_until("both events", || {
        reasons(&sandbox, "fresh") == ["PossibleNodeDeletion", "ServerNotFound"]
    });
    daemon.logs(
        "If the machine of the node is gone forever, delete the node (kubectl delete node fresh)",
    );
    drop(daemon);
    let again = Daemon::start(&env(&sandbox), &[]);
    again.logs("node/fresh: the node has not been ready since ");
    let log = again.log();
    assert!(!log.contains("node/fresh: no server"), "{log}");
    // The same event is found again.
    assert_eq!(reasons(&sandbox, "stale"), ["PossibleNodeDeletion"]);
    let is_delete = |call: &Call| call.half == Half::Kubernetes && call.method == "DELETE";
    assert_eq!(sandbox.calls().count(is_delete), 0);
    assert!(sandbox.node("fresh")["spec"]["providerID"].is_null());
}
