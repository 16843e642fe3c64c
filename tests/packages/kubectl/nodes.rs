//! Nodes as kubectl shows and changes them, before and after ccm.

use crate::common::{self, Cluster, UNINITIALIZED, contains};
use crate::kubectl::person::{Person, simulated};
use sandbox::Sandbox;
use serde_json::Value;

#[test]
fn kubectl_sees_what_ccm_did() {
    let builder = Sandbox::builder().nodes(3).network("10.0.0.0/16");
    let sandbox = builder.heartbeats(false).start();
    let Some(admin) = Person::of(&sandbox, "admin") else {
        return;
    };
    let external_ip = || {
        let table = admin.does("get nodes -o wide");
        let row = table.lines().find(|line| line.starts_with("worker-2"));
        row.unwrap().split_whitespace().nth(6).unwrap().to_owned()
    };
    assert_eq!(external_ip(), "<none>");
    sandbox.converge();
    assert_eq!(external_ip(), "203.0.113.2");
    let described = admin.does("describe node worker-2");
    for text in [
        "ProviderID:",
        "ccm-from-scratch://",
        "topology.kubernetes.io/zone=fsn1",
        "Synced",
        "cloud-node-controller",
    ] {
        contains(&described, text);
    }
    let events = admin
        .does("get events --field-selector involvedObject.kind=Node,involvedObject.name=worker-2");
    assert!(events.contains("node/worker-2") && !events.contains("worker-1"), "{events}");
}

#[test]
fn ccm_follows_what_a_person_changes_with_kubectl() {
    let sandbox = simulated(1);
    let Some(admin) = Person::of(&sandbox, "admin") else {
        return;
    };
    sandbox.converge();
    admin.does("label node worker-1 --overwrite failure-domain.beta.kubernetes.io/zone=rack-7");
    admin.does("cordon worker-1");
    sandbox.ccm(&["node", "sync", "worker-1"]).with_code(0);
    let shown = "jsonpath={.metadata.labels.topology\\.kubernetes\\.io/zone}:{.spec.unschedulable}";
    let wanted = "rack-7:true";
    assert_eq!(admin.does(&format!("get node worker-1 -o {shown}")), wanted);
}

#[test]
fn objects_are_shown_in_every_form() {
    let builder = Sandbox::builder().nodes(2).services(1).heartbeats(false);
    let sandbox = builder.start();
    let Some(admin) = Person::of(&sandbox, "admin") else {
        return;
    };
    #[rustfmt::skip] // A case is a line.
    let cases = [
        ("get nodes -o name", "node/worker-1\nnode/worker-2\n"),
        ("get nodes --field-selector metadata.name=worker-2 -o name", "node/worker-2\n"),
        ("get no,svc -l app=web-1 -o name", "service/web-1\n"),
        ("get svc web-1 --no-headers -o custom-columns=:spec.type", "LoadBalancer\n"),
        ("get --raw /readyz", "ok"),
    ];
    for (line, shown) in cases {
        assert_eq!(admin.does(line), shown, "{line}");
    }
    let shown: Value = serde_json::from_str(&admin.does("get node worker-1 -o json")).unwrap();
    assert_eq!(shown, sandbox.node("worker-1"));
    for (line, texts) in [
        ("get node worker-1 -o yaml", [UNINITIALIZED, "kind: Node"]),
        ("describe svc web-1", ["LoadBalancer", "app=web-1"]),
        ("get all -A -o wide", ["service/web-1", "<pending>"]),
    ] {
        let shown = admin.does(line);
        assert!(texts.iter().all(|text| shown.contains(text)), "{shown}");
    }
    let expected = "Error from server (NotFound): nodes \"worker-9\" not found\n";
    assert_eq!(admin.is_refused("get node worker-9"), expected);
}

#[test]
fn a_node_is_changed_by_every_verb() {
    let sandbox = simulated(1);
    let Some(admin) = Person::of(&sandbox, "admin") else {
        return;
    };
    for line in [
        "label node worker-1 role=web",
        "annotate node worker-1 note=kept",
        "taint node worker-1 dedicated=web:NoSchedule",
        "cordon worker-1",
        "label node worker-1 tried=1 --dry-run=server",
        r#"patch node worker-1 --type json -p [{"op":"add","path":"/metadata/labels/json","value":"j"}]"#,
        r#"patch node worker-1 --type merge -p {"metadata":{"labels":{"merge":"m"}}}"#,
        r#"patch node worker-1 --type merge --subresource status -p {"status":{"addresses":[{"type":"InternalIP","address":"10.1.1.1"}]}}"#,
        // A strategic patch merges the list by key.
        r#"patch node worker-1 --subresource status -p {"status":{"conditions":[{"type":"Mine","status":"True"}]}}"#,
    ] {
        admin.does(line);
    }
    let worker = sandbox.node("worker-1");
    let labels = &worker["metadata"]["labels"];
    assert_eq!(labels["role"], "web");
    assert_eq!(labels["json"], "j");
    assert_eq!(labels["merge"], "m");
    assert_eq!(labels["tried"], Value::Null, "a dry run");
    assert_eq!(worker["metadata"]["annotations"]["note"], "kept");
    assert_eq!(worker["spec"]["unschedulable"], true);
    let taints = worker["spec"]["taints"].as_array().unwrap();
    let has = |key: &str| taints.iter().any(|taint| taint["key"] == key);
    assert!(has("dedicated") && has(UNINITIALIZED), "{taints:?}");
    let conditions = worker["status"]["conditions"].as_array().unwrap();
    assert_eq!(conditions.len(), 5, "its own four are kept");
    assert_eq!(common::addresses(&worker), ["InternalIP 10.1.1.1"]);
}

#[test]
fn kubectl_can_undo_a_change() {
    let sandbox = simulated(1);
    let Some(admin) = Person::of(&sandbox, "admin") else {
        return;
    };
    let before = sandbox.node("worker-1");
    for line in [
        "label node worker-1 role=web",
        "label node worker-1 role-",
        "annotate node worker-1 note=1",
        "annotate node worker-1 note-",
        "taint node worker-1 dedicated=web:NoSchedule",
        "taint node worker-1 dedicated-",
        "cordon worker-1",
        "uncordon worker-1",
    ] {
        admin.does(line);
    }
    let mut after = sandbox.node("worker-1");
    assert_ne!(after, before);
    after["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"].clone();
    assert_eq!(after, before);
    let why = admin.is_refused("label node worker-1 a_=d");
    let invalid = "The Node \"worker-1\" is invalid: metadata.labels: Invalid value: \"a_\": ";
    assert!(why.starts_with(invalid), "{why}");
    admin.does("delete node worker-1");
    assert!(!sandbox.has_node("worker-1"));
}
