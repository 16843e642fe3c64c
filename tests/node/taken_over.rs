//! A worker that was taken over: what its kubelet writes takes nothing from other nodes. The binary against the sandbox.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common;

use common::{Env, Simulate, addresses, ccm, env, is_initialised, node, with};
use sandbox::Sandbox;
use sandbox::kubelet::NodeSpec;
use serde_json::{Value, json};
use std::sync::Arc;

const ONCE: &[&str] = &["run", "--once"];
const INTERNAL_IP: &str = "instance.hetzner.cloud/internal-ip";
const PROVIDED: &str = "alpha.kubernetes.io/provided-node-ip";
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
const LONG_AGO: &str = "2026-01-01T00:00:00Z";

/// Initialised nodes `worker-1` and so on, which were created long ago; they change only when somebody changes them.
fn initialised(nodes: usize, services: usize) -> (Arc<Sandbox>, Env) {
    let sandbox = common::builder()
        .nodes(nodes)
        .services(services)
        .network("10.0.0.0/8")
        .heartbeats(false)
        .simulated();
    // What is not set in a shell is held back.
    let settings = [
        ("HCLOUD_LOAD_BALANCERS_LOCATION", "fsn1"),
        ("HCLOUD_INSTANCES_ADDRESS_FAMILY", "ipv4"),
    ];
    let env = with(env(&sandbox), &settings);
    let ran = ccm(&env, ONCE);
    assert_eq!(ran.code, 0, "{ran:?}");
    for number in 1..=nodes {
        let name = format!("worker-{number}");
        edit(&sandbox, &name, |node| {
            node["metadata"]["creationTimestamp"] = json!(LONG_AGO)
        });
    }
    (sandbox, env)
}

fn edit(sandbox: &Sandbox, name: &str, edit: impl FnMut(&mut Value)) {
    assert!(sandbox.cluster().edit("nodes", None, name, edit));
}

fn annotate(sandbox: &Sandbox, name: &str, key: &str, value: &str) {
    edit(sandbox, name, |node| {
        node["metadata"]["annotations"][key] = json!(value)
    });
}

fn reports(sandbox: &Sandbox, name: &str, ip: &str) {
    edit(sandbox, name, |node| {
        node["status"]["addresses"] = json!([{ "type": "InternalIP", "address": ip }]);
    });
}

fn taint(sandbox: &Sandbox, name: &str) {
    let taint = json!({ "key": common::UNINITIALIZED, "value": "true", "effect": "NoSchedule" });
    edit(sandbox, name, |node| {
        node["spec"]["taints"] = json!([taint])
    });
}

/// A Node that names the server of another one, as who took over a worker can register it.
fn claim(sandbox: &Sandbox, name: &str, of: &str, is_new: bool) {
    let id = node(sandbox, of)["spec"]["providerID"]
        .as_str()
        .unwrap()
        .to_owned();
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
            let real = node(&sandbox, "worker-1");
            claim(&sandbox, evil, "worker-1", is_new);
            let before = node(&sandbox, evil);
            let ran = ccm(&env, &["node", "sync"]);
            assert_eq!(ran.code, i32::from(is_new), "{ran:?}");
            assert_eq!(node(&sandbox, evil), before, "{ran:?}");
            assert_eq!(is_initialised(&before), !is_new);
            assert_eq!(node(&sandbox, "worker-1"), real, "{ran:?}");
            // The real node is still kept in order.
            reports(&sandbox, "worker-1", "192.0.2.1");
            let ran = ccm(&env, &["node", "sync"]);
            assert_eq!(
                addresses(&node(&sandbox, "worker-1")),
                addresses(&real),
                "{ran:?}"
            );
            let doctor = ccm(&env, &["doctor"]).stdout;
            let is_blamed = |name: &str| doctor.contains(&format!("node/{name}:"));
            assert!(is_blamed(evil) && !is_blamed("worker-1"), "{doctor}");
        }
    }
}

/// IDs of the servers that are targets.
fn targets(sandbox: &Sandbox) -> Vec<u64> {
    let balancers = sandbox.cloud().load_balancers(sandbox.project());
    let targets = balancers[0]["targets"].as_array().unwrap();
    let mut ids: Vec<u64> = targets
        .iter()
        .filter_map(|target| target["server"]["id"].as_u64())
        .collect();
    ids.sort_unstable();
    ids
}

fn server_id(sandbox: &Sandbox, name: &str) -> u64 {
    let id = node(sandbox, name)["spec"]["providerID"]
        .as_str()
        .unwrap()
        .to_owned();
    id.rsplit('/').next().unwrap().parse().unwrap()
}

#[test]
fn a_second_node_with_a_provider_id_decides_nothing_about_targets() {
    let (sandbox, env) = initialised(2, 1);
    let all = [
        server_id(&sandbox, "worker-1"),
        server_id(&sandbox, "worker-2"),
    ];
    assert_eq!(targets(&sandbox), all);
    // A node that is excluded does not come back by another Node.
    for evil in ["aa-evil", "zz-evil"] {
        claim(&sandbox, evil, "worker-1", false);
    }
    edit(&sandbox, "worker-1", |node| {
        node["metadata"]["labels"][EXCLUDED] = json!("true")
    });
    ccm(&env, ONCE);
    assert_eq!(targets(&sandbox), [all[1]]);
    // A node that is offered does not go by another Node.
    edit(&sandbox, "worker-1", |node| {
        node["metadata"]["labels"][EXCLUDED] = json!("false")
    });
    for evil in ["aa-evil", "zz-evil"] {
        edit(&sandbox, evil, |node| {
            node["metadata"]["labels"][EXCLUDED] = json!("true")
        });
    }
    ccm(&env, ONCE);
    assert_eq!(targets(&sandbox), all);
}

#[test]
fn a_second_node_with_a_provider_id_is_neither_tainted_nor_deleted() {
    let (sandbox, env) = initialised(2, 0);
    claim(&sandbox, "zz-evil", "worker-1", false);
    let server = server_id(&sandbox, "worker-1");
    sandbox.cloud().set_power(server, false);
    sandbox.kubelets().expire();
    edit(&sandbox, "zz-evil", |node| {
        node["status"]["conditions"] = json!([{ "type": "Ready", "status": "False" }]);
    });
    ccm(&env, ONCE);
    assert!(node(&sandbox, "worker-1")["spec"]["taints"].is_array());
    assert!(!node(&sandbox, "zz-evil")["spec"]["taints"].is_array());
    // Alone, the Node would be right: the real one goes first.
    sandbox.cloud().delete_server(server);
    ccm(&env, ONCE);
    assert!(sandbox.cluster().get("nodes", None, "worker-1").is_none());
    assert!(sandbox.cluster().get("nodes", None, "zz-evil").is_some());
    assert!(sandbox.cluster().get("nodes", None, "worker-2").is_some());
}

#[test]
fn an_annotation_or_a_report_takes_no_address_from_an_initialised_node() {
    let (sandbox, env) = initialised(2, 0);
    annotate(&sandbox, "worker-1", INTERNAL_IP, "100.64.0.7");
    assert_eq!(ccm(&env, ONCE).code, 0);
    let real = addresses(&node(&sandbox, "worker-1"));
    assert!(
        real.contains(&"InternalIP 100.64.0.7".to_owned()),
        "{real:?}"
    );
    let evil = addresses(&node(&sandbox, "worker-2"));
    annotate(&sandbox, "worker-2", INTERNAL_IP, "100.64.0.7");
    let ran = ccm(&env, &["node", "sync", "worker-2"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stdout.contains("node \"worker-1\""), "{ran:?}");
    assert_eq!(addresses(&node(&sandbox, "worker-2")), evil);
    for is_forged in [false, true] {
        if is_forged {
            reports(&sandbox, "worker-2", "100.64.0.7");
        }
        // Another address of the real node is still kept in order.
        edit(&sandbox, "worker-1", |node| {
            let addresses = node["status"]["addresses"].as_array_mut().unwrap();
            addresses.retain(|one| one["type"] != "ExternalIP");
        });
        let ran = ccm(&env, &["node", "sync", "worker-1"]);
        assert_eq!(ran.code, 0, "{is_forged}: {ran:?}");
        assert_eq!(addresses(&node(&sandbox, "worker-1")), real, "{is_forged}");
    }
}

#[test]
fn an_address_that_a_kubelet_was_given_is_not_one_of_an_initialised_node() {
    let (sandbox, env) = initialised(2, 0);
    let env = with(env, &[("HCLOUD_INSTANCES_INTERNAL_IP_FROM", "kubelet")]);
    annotate(&sandbox, "worker-1", PROVIDED, "100.64.0.7");
    assert_eq!(ccm(&env, ONCE).code, 0);
    let real = addresses(&node(&sandbox, "worker-1"));
    let evil = addresses(&node(&sandbox, "worker-2"));
    annotate(&sandbox, "worker-2", PROVIDED, "100.64.0.7");
    let ran = ccm(&env, &["node", "sync"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stdout.contains("node \"worker-1\""), "{ran:?}");
    assert_eq!(addresses(&node(&sandbox, "worker-1")), real);
    assert_eq!(addresses(&node(&sandbox, "worker-2")), evil);
}
