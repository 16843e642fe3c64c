//! The simulated kubelets: how the conditions and taints of a Node change when its server is switched off, switched on
//! or deleted, and when the Node itself is deleted.

use std::time::{Duration, Instant};

use sandbox::kubelet::NodeSpec;
use sandbox::{Builder, Sandbox};
use serde_json::{Value, json};

fn quiet() -> Builder {
    Sandbox::builder().heartbeats(false)
}

fn node(sandbox: &Sandbox) -> Value {
    sandbox.cluster().get("nodes", None, "worker-1").unwrap()
}

fn server(sandbox: &Sandbox) -> u64 {
    sandbox.cloud().servers(sandbox.project())[0]["id"].as_u64().unwrap()
}

fn ready(node: &Value) -> String {
    let conditions = node["status"]["conditions"].as_array().unwrap();
    let ready = conditions.iter().find(|condition| condition["type"] == "Ready").unwrap();
    ready["status"].as_str().unwrap().to_owned()
}

fn taints(node: &Value) -> Vec<&str> {
    let taints = node["spec"]["taints"].as_array().map(Vec::as_slice).unwrap_or_default();
    taints.iter().map(|taint| taint["key"].as_str().unwrap()).collect()
}

const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

#[test]
fn a_node_does_not_change_by_itself_without_heartbeats() {
    let sandbox = quiet().scale(0.0001).start();
    let before = node(&sandbox);
    sandbox.cloud().set_power(server(&sandbox), false);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(node(&sandbox), before);
}

#[test]
fn a_machine_that_is_off_is_unknown_after_the_grace_period_and_ready_when_it_is_back() {
    let sandbox = quiet().start();
    sandbox.cloud().set_power(server(&sandbox), false);
    sandbox.kubelets().heartbeat();
    assert_eq!(ready(&node(&sandbox)), "True", "the grace period has just begun");
    sandbox.kubelets().expire();
    assert_eq!(ready(&node(&sandbox)), "Unknown");
    assert_eq!(taints(&node(&sandbox)), [UNINITIALIZED, UNREACHABLE, UNREACHABLE]);
    sandbox.cloud().set_power(server(&sandbox), true);
    sandbox.kubelets().heartbeat();
    assert_eq!(
        (ready(&node(&sandbox)).as_str(), taints(&node(&sandbox))),
        ("True", vec![UNINITIALIZED])
    );
}

#[test]
fn a_machine_that_is_gone_stays_unknown() {
    let sandbox = quiet().start();
    sandbox.cloud().delete_server(server(&sandbox));
    sandbox.kubelets().expire();
    sandbox.kubelets().heartbeat();
    assert_eq!(ready(&node(&sandbox)), "Unknown");
}

#[test]
fn a_kubelet_does_not_change_the_ccm_s_fields() {
    let sandbox = quiet().start();
    let addresses = json!([{"type": "ExternalIP", "address": "203.0.113.9"}]);
    sandbox.cluster().edit("nodes", None, "worker-1", |node| {
        node["status"]["addresses"] = addresses.clone();
        node["spec"]["taints"] = json!([{"key": "mine", "effect": "NoSchedule"}]);
        node["metadata"]["labels"]["topology.kubernetes.io/zone"] = json!("fsn1");
    });
    let before = node(&sandbox);
    for on in [true, false, true] {
        sandbox.cloud().set_power(server(&sandbox), on);
        sandbox.kubelets().heartbeat();
        sandbox.kubelets().expire();
    }
    let after = node(&sandbox);
    assert_eq!(after["status"]["addresses"], addresses);
    assert_eq!(
        (&after["spec"], &after["metadata"]["labels"]),
        (&before["spec"], &before["metadata"]["labels"])
    );
}

#[test]
fn a_deleted_node_is_registered_again_only_when_its_machine_restarts() {
    let sandbox = quiet().start();
    let there = || sandbox.cluster().get("nodes", None, "worker-1").is_some();
    sandbox.cluster().delete("nodes", None, "worker-1");
    sandbox.kubelets().heartbeat();
    assert!(!there(), "a kubelet that runs only logs that its Node is gone");
    sandbox.cloud().set_power(server(&sandbox), false);
    sandbox.kubelets().heartbeat();
    assert!(!there());
    sandbox.cloud().set_power(server(&sandbox), true);
    sandbox.kubelets().heartbeat();
    assert_eq!(taints(&node(&sandbox)), [UNINITIALIZED]);
}

#[test]
fn a_node_without_a_server_always_runs() {
    let sandbox = quiet().nodes(0).start();
    let spec =
        NodeSpec { name: "metal".into(), node_ip: Some("192.0.2.7".into()), ..NodeSpec::default() };
    sandbox.register_node(spec);
    sandbox.kubelets().expire();
    let node = sandbox.cluster().get("nodes", None, "metal").unwrap();
    assert_eq!(ready(&node), "True");
    assert_eq!(
        node["metadata"]["annotations"]["alpha.kubernetes.io/provided-node-ip"],
        "192.0.2.7"
    );
}

#[test]
fn kubelets_report_by_themselves_and_are_missed_in_scaled_time() {
    let sandbox = Sandbox::builder().scale(0.001).start();
    let limit = Instant::now() + Duration::from_secs(20);
    let wait_for = |what: &str, done: &dyn Fn(&Value) -> bool| {
        while !done(&node(&sandbox)) {
            assert!(Instant::now() < limit, "waited for {what}: {}", node(&sandbox));
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let version = node(&sandbox)["metadata"]["resourceVersion"].clone();
    wait_for("a report", &|node| node["metadata"]["resourceVersion"] != version);
    sandbox.cloud().set_power(server(&sandbox), false);
    wait_for("Unknown", &|node| ready(node) == "Unknown");
    sandbox.cloud().set_power(server(&sandbox), true);
    wait_for("Ready", &|node| ready(node) == "True");
}
