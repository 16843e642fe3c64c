//! A worker that was taken over by an attacker. What its kubelet writes takes nothing from other nodes. The binary runs
//! against the sandbox.

use crate::common::{self, Cluster, Env, Simulate, addresses, ccm, env, is_initialised, with};
use sandbox::Sandbox;
use sandbox::kubelet::NodeSpec;
use serde_json::json;
use std::sync::Arc;

const ONCE: &[&str] = &["run", "--once"];
const INTERNAL_IP: &str = "instance.hetzner.cloud/internal-ip";
const PROVIDED: &str = "alpha.kubernetes.io/provided-node-ip";
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
const LONG_AGO: &str = "2026-01-01T00:00:00Z";

/// Starts a sandbox with the initialised nodes `worker-1` and so on, which were created long ago. They change only when
/// somebody changes them.
fn initialised(nodes: usize, services: usize) -> (Arc<Sandbox>, Env) {
    let sandbox = common::networked(nodes).services(services).simulated();
    let settings =
        [("HCLOUD_LOAD_BALANCERS_LOCATION", "fsn1"), ("HCLOUD_INSTANCES_ADDRESS_FAMILY", "ipv4")];
    let env = with(env(&sandbox), &settings);
    ccm(&env, ONCE).with_code(0);
    for number in 1..=nodes {
        let name = format!("worker-{number}");
        sandbox.edit_node(&name, |node| node["metadata"]["creationTimestamp"] = json!(LONG_AGO));
    }
    (sandbox, env)
}

fn annotate(sandbox: &Sandbox, name: &str, key: &str, value: &str) {
    sandbox.edit_node(name, |node| node["metadata"]["annotations"][key] = json!(value));
}

fn reports(sandbox: &Sandbox, name: &str, ip: &str) {
    sandbox.edit_node(name, |node| {
        node["status"]["addresses"] = json!([{ "type": "InternalIP", "address": ip }]);
    });
}

fn taint(sandbox: &Sandbox, name: &str) {
    let taint = json!({ "key": common::UNINITIALIZED, "value": "true", "effect": "NoSchedule" });
    sandbox.edit_node(name, |node| node["spec"]["taints"] = json!([taint]));
}

/// A Node that names the server of another one, as who took over a worker can register it.
fn claim(sandbox: &Sandbox, name: &str, of: &str, is_new: bool) {
    let id = sandbox.node(of)["spec"]["providerID"].as_str().unwrap().to_owned();
    sandbox.cluster().await_next_second();
    sandbox.register_node(NodeSpec {
        name: name.into(),
        provider_id: Some(id),
        ..NodeSpec::default()
    });
    if is_new {
        taint(sandbox, name);
    }
}

#[test]
fn a_second_node_with_a_provider_id_gets_nothing_and_doctor_names_that_node() {
    for evil in ["aa-evil", "zz-evil"] {
        for is_new in [true, false] {
            let (sandbox, env) = initialised(1, 0);
            let real = sandbox.node("worker-1");
            claim(&sandbox, evil, "worker-1", is_new);
            let before = sandbox.node(evil);
            let ran = ccm(&env, &["node", "sync"]);
            assert_eq!(ran.code, i32::from(is_new), "{ran:?}");
            assert_eq!(sandbox.node(evil), before, "{ran:?}");
            assert_eq!(is_initialised(&before), !is_new);
            assert_eq!(sandbox.node("worker-1"), real, "{ran:?}");
            // The real node is still kept in order.
            reports(&sandbox, "worker-1", "192.0.2.1");
            let ran = ccm(&env, &["node", "sync"]);
            let expected = addresses(&real);
            assert_eq!(addresses(&sandbox.node("worker-1")), expected, "{ran:?}");
            let doctor = ccm(&env, &["doctor"]).stdout;
            let is_blamed = |name: &str| doctor.contains(&format!("node/{name}:"));
            assert!(is_blamed(evil) && !is_blamed("worker-1"), "{doctor}");
        }
    }
}

/// IDs of the servers that are targets.
fn targets(sandbox: &Sandbox) -> Vec<u64> {
    let balancers = sandbox.balancers();
    let targets = balancers[0]["targets"].as_array().unwrap();
    let mut ids: Vec<u64> =
        targets.iter().filter_map(|target| target["server"]["id"].as_u64()).collect();
    ids.sort_unstable();
    ids
}

#[test]
fn a_second_node_with_a_provider_id_decides_nothing_about_targets() {
    let (sandbox, env) = initialised(2, 1);
    let all = [sandbox.server_id("worker-1"), sandbox.server_id("worker-2")];
    assert_eq!(targets(&sandbox), all);
    // A node that is excluded does not come back by another Node.
    for evil in ["aa-evil", "zz-evil"] {
        claim(&sandbox, evil, "worker-1", false);
    }
    sandbox.edit_node("worker-1", |node| node["metadata"]["labels"][EXCLUDED] = json!("true"));
    ccm(&env, ONCE);
    assert_eq!(targets(&sandbox), [all[1]]);
    // A node that is offered does not go by another Node.
    sandbox.edit_node("worker-1", |node| node["metadata"]["labels"][EXCLUDED] = json!("false"));
    for evil in ["aa-evil", "zz-evil"] {
        sandbox.edit_node(evil, |node| node["metadata"]["labels"][EXCLUDED] = json!("true"));
    }
    ccm(&env, ONCE);
    assert_eq!(targets(&sandbox), all);
}

#[test]
fn a_second_node_with_a_provider_id_is_neither_tainted_nor_deleted() {
    let (sandbox, env) = initialised(2, 0);
    claim(&sandbox, "zz-evil", "worker-1", false);
    let server = sandbox.server_id("worker-1");
    sandbox.cloud().set_power(server, false);
    sandbox.kubelets().expire();
    sandbox.edit_node("zz-evil", |node| {
        node["status"]["conditions"] = json!([{ "type": "Ready", "status": "False" }]);
    });
    ccm(&env, ONCE);
    assert!(sandbox.node("worker-1")["spec"]["taints"].is_array());
    assert!(!sandbox.node("zz-evil")["spec"]["taints"].is_array());
    // The Node would be right if it were the only one, so the real node's server is deleted first.
    sandbox.cloud().delete_server(server);
    ccm(&env, ONCE);
    assert!(!sandbox.has_node("worker-1"));
    assert!(sandbox.has_node("zz-evil"));
    assert!(sandbox.has_node("worker-2"));
}

#[test]
fn an_annotation_or_a_report_takes_no_address_from_an_initialised_node() {
    let (sandbox, env) = initialised(2, 0);
    annotate(&sandbox, "worker-1", INTERNAL_IP, "100.64.0.7");
    ccm(&env, ONCE).with_code(0);
    let real = addresses(&sandbox.node("worker-1"));
    assert!(real.contains(&"InternalIP 100.64.0.7".to_owned()), "{real:?}");
    let evil = addresses(&sandbox.node("worker-2"));
    annotate(&sandbox, "worker-2", INTERNAL_IP, "100.64.0.7");
    ccm(&env, &["node", "sync", "worker-2"]).with_code(1).prints("node \"worker-1\"");
    assert_eq!(addresses(&sandbox.node("worker-2")), evil);
    for is_forged in [false, true] {
        if is_forged {
            reports(&sandbox, "worker-2", "100.64.0.7");
        }
        // Another address of the real node is still kept in order.
        sandbox.edit_node("worker-1", |node| {
            let addresses = node["status"]["addresses"].as_array_mut().unwrap();
            addresses.retain(|one| one["type"] != "ExternalIP");
        });
        let ran = ccm(&env, &["node", "sync", "worker-1"]);
        assert_eq!(ran.code, 0, "{is_forged}: {ran:?}");
        assert_eq!(addresses(&sandbox.node("worker-1")), real, "{is_forged}");
    }
}

#[test]
fn an_address_given_to_a_kubelet_is_refused_when_an_initialised_node_has_it() {
    let (sandbox, env) = initialised(2, 0);
    let env = with(env, &[("HCLOUD_INSTANCES_INTERNAL_IP_FROM", "kubelet")]);
    annotate(&sandbox, "worker-1", PROVIDED, "100.64.0.7");
    ccm(&env, ONCE).with_code(0);
    let real = addresses(&sandbox.node("worker-1"));
    let evil = addresses(&sandbox.node("worker-2"));
    annotate(&sandbox, "worker-2", PROVIDED, "100.64.0.7");
    ccm(&env, &["node", "sync"]).with_code(1).prints("node \"worker-1\"");
    assert_eq!(addresses(&sandbox.node("worker-1")), real);
    assert_eq!(addresses(&sandbox.node("worker-2")), evil);
}
