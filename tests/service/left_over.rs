//! A new node that no server matches and that is not ready for ten minutes: told, never deleted.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common;
use crate::common::memory;

use ccm::controllers::node::{NodePlan, UNINITIALIZED, plan};
use ccm::kube::Node;
use ccm::provider::Reason;
use ccm::provider::clock;
use common::{Daemon, Simulate, env, events, node, wait_until};
use jiff::Timestamp;
use memory::Memory;
use sandbox::kubelet::NodeSpec;
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
    let nodes: [Node; 1] = [serde_json::from_value(object).unwrap()];
    let overdue = OVERDUE.parse().unwrap();
    plan(&nodes, &[], &Memory::default(), overdue).remove(0)
}

#[test]
fn it_is_told_when_the_node_s_own_times_say_so() {
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
        let plan = plan_of(
            created,
            ready,
            json!([{ "key": UNINITIALIZED, "effect": "NoSchedule" }]),
        );
        let expected = match is_told {
            true => Reason::PossibleNodeDeletion,
            false => Reason::ServerNotFound,
        };
        // One of the two, never both.
        let reasons: Vec<Reason> = plan.all_findings().map(|finding| finding.reason).collect();
        assert_eq!(reasons, [expected], "{case}");
        assert_eq!(plan.changes, [], "{case}");
        assert_eq!(
            plan.obstacle
                .unwrap()
                .message
                .contains("kubectl delete node w"),
            is_told,
            "{case}"
        );
    }
}

#[test]
fn an_initialised_node_is_no_such_node() {
    let ready = json!({ "type": "Ready", "status": "False", "lastTransitionTime": BEFORE });
    let plan = plan_of(json!(BEFORE), ready, json!([]));
    let reasons: Vec<Reason> = plan.all_findings().map(|finding| finding.reason).collect();
    assert_eq!(reasons, [Reason::NotExternal, Reason::ServerNotFound]);
}

fn not_ready_since(sandbox: &Sandbox, name: &str, since: Timestamp) {
    let since = since.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let condition = json!({
        "type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "no network",
        "lastHeartbeatTime": since, "lastTransitionTime": since,
    });
    sandbox.cluster().edit("nodes", None, name, |node| {
        node["status"]["conditions"] = json!([condition]);
    });
}

/// In the order of the alphabet: events of one second have no other.
fn reasons(sandbox: &Sandbox, name: &str) -> Vec<String> {
    let mut reasons: Vec<String> = events(sandbox, name)
        .into_iter()
        .map(|(reason, _)| reason)
        .collect();
    reasons.sort();
    reasons
}

#[test]
fn ten_minutes_later_it_is_told_what_to_do_once_and_the_node_stays() {
    let sandbox = Sandbox::builder().nodes(1).heartbeats(false).simulated();
    let spec = |name: &str| NodeSpec {
        name: name.into(),
        ..NodeSpec::default()
    };
    sandbox.register_node(spec("fresh"));
    sandbox.register_node(spec("stale"));
    not_ready_since(&sandbox, "fresh", clock::timestamp());
    // What Kubernetes wrote down lasts longer than any process.
    not_ready_since(
        &sandbox,
        "stale",
        clock::timestamp() - jiff::SignedDuration::from_hours(1),
    );
    let daemon = Daemon::start(&env(&sandbox), &[]);
    daemon.logs("node/stale: not ready since ");
    wait_until("its event", || {
        reasons(&sandbox, "stale") == ["PossibleNodeDeletion"]
    });
    wait_until("both events", || {
        reasons(&sandbox, "fresh") == ["PossibleNodeDeletion", "ServerNotFound"]
    });
    daemon.logs("if its machine is gone for good, delete the node (kubectl delete node fresh)");
    drop(daemon);
    let again = Daemon::start(&env(&sandbox), &[]);
    again.logs("node/fresh: not ready since ");
    assert!(
        !again.log().contains("node/fresh: no server"),
        "{}",
        again.log()
    );
    assert_eq!(
        reasons(&sandbox, "stale"),
        ["PossibleNodeDeletion"],
        "the same event is found again"
    );
    let is_delete =
        |call: &sandbox::calls::Call| call.half == Half::Kubernetes && call.method == "DELETE";
    assert_eq!(sandbox.calls().count(is_delete), 0);
    assert_eq!(node(&sandbox, "fresh")["spec"]["providerID"], Value::Null);
}
