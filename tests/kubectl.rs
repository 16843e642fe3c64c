//! The ordinary kubectl against the sandbox, before and after ccm.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{Env, ccm, env};
use sandbox::Sandbox;
use std::process::Command;

fn kubectl(env: &Env, words: &[&str]) -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("kubectl")
        .args(words)
        .env_clear()
        .env("PATH", path)
        .env("HOME", "/nonexistent")
        .envs(env.iter().cloned())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "kubectl {words:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

fn is_there() -> bool {
    let found = Command::new("kubectl")
        .args(["version", "--client"])
        .output()
        .is_ok_and(|out| out.status.success());
    if !found {
        sandbox::skipped::skip("kubectl", "kubectl", "there is no kubectl on this machine");
    }
    found
}

#[test]
fn kubectl_sees_what_ccm_did() {
    if !is_there() {
        return;
    }
    let sandbox = Sandbox::builder()
        .nodes(3)
        .network("10.0.0.0/16")
        .heartbeats(false)
        .start();
    let admin = sandbox.env();
    let external_ip = |table: &str| {
        let row = table
            .lines()
            .find(|line| line.starts_with("worker-2"))
            .unwrap()
            .to_owned();
        row.split_whitespace().nth(6).unwrap().to_owned()
    };
    assert_eq!(
        external_ip(&kubectl(&admin, &["get", "nodes", "-o", "wide"])),
        "<none>"
    );
    assert_eq!(ccm(&env(&sandbox), &["run", "--once"]).code, 0);
    assert_eq!(
        external_ip(&kubectl(&admin, &["get", "nodes", "-o", "wide"])),
        "203.0.113.2"
    );
    let described = kubectl(&admin, &["describe", "node", "worker-2"]);
    for text in [
        "ProviderID:",
        "ccm-from-scratch://",
        "topology.kubernetes.io/zone=fsn1",
        "Synced",
        "cloud-node-controller",
    ] {
        assert!(
            described.contains(text),
            "{text} is missing in\n{described}"
        );
    }
}

#[test]
fn what_a_person_changes_with_kubectl_is_followed() {
    if !is_there() {
        return;
    }
    let sandbox = Sandbox::builder().nodes(1).heartbeats(false).start();
    let admin = sandbox.env();
    assert_eq!(ccm(&env(&sandbox), &["run", "--once"]).code, 0);
    kubectl(
        &admin,
        &[
            "label",
            "node",
            "worker-1",
            "--overwrite",
            "failure-domain.beta.kubernetes.io/zone=rack-7",
        ],
    );
    kubectl(&admin, &["cordon", "worker-1"]);
    assert_eq!(ccm(&env(&sandbox), &["node", "sync", "worker-1"]).code, 0);
    let zone = "jsonpath={.metadata.labels.topology\\.kubernetes\\.io/zone} {.spec.unschedulable}";
    assert_eq!(
        kubectl(&admin, &["get", "node", "worker-1", "-o", zone]),
        "rack-7 true"
    );
}
