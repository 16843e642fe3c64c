//! Services as kubectl creates and applies them.

use crate::common::{Cluster, contains};
use crate::kubectl::person::{Person, shop, simulated};
use serde_json::json;

/// A three-way merge compares what was applied last, what exists, and what is wanted now.
#[test]
fn apply_creates_leaves_alone_and_changes_what_differs() {
    let sandbox = simulated(0);
    let Some(admin) = Person::of(&sandbox, "admin") else {
        return;
    };
    let file = admin.file("shop.json", &shop());
    let apply = |file: &str| admin.gets(&["apply", "-f", file]);
    assert_eq!(apply(&file), "service/shop created\n");
    admin.does("label svc shop somebody=else");
    let before = sandbox.service("shop").unwrap();
    assert_eq!(apply(&file), "service/shop unchanged\n");
    assert_eq!(sandbox.service("shop").unwrap(), before);

    let mut changed = shop();
    changed["metadata"]["labels"] = json!({ "kept": "3" });
    changed["spec"]["ports"] = json!([{ "name": "https", "port": 8443 }]);
    let file = admin.file("changed.json", &changed);
    assert_eq!(
        admin.gets(&["apply", "--dry-run=server", "-f", &file]),
        "service/shop configured (server dry run)\n"
    );
    assert_eq!(sandbox.service("shop").unwrap(), before);
    assert_eq!(apply(&file), "service/shop configured\n");
    let after = sandbox.service("shop").unwrap();
    let expected = json!({ "kept": "3", "somebody": "else" });
    assert_eq!(after["metadata"]["labels"], expected);
    let ports = after["spec"]["ports"].as_array().unwrap();
    assert_eq!((ports.len(), &ports[0]["port"]), (1, &json!(8443)));
    assert_eq!(after["spec"]["clusterIP"], before["spec"]["clusterIP"]);
    let annotations = &after["metadata"]["annotations"];
    let applied = &annotations["kubectl.kubernetes.io/last-applied-configuration"];
    assert!(applied.as_str().unwrap().contains("8443"), "{applied}");

    let mut wrong = changed;
    wrong["spec"]["ports"][0]["colour"] = json!("red");
    let file = admin.file("wrong.json", &wrong);
    let why = admin.is_refused(&format!("apply -f {file}"));
    contains(&why, "strict decoding error: unknown field \"spec.ports[0].colour\"");
}

#[test]
fn a_kustomization_is_applied_and_deleted_as_one() {
    let sandbox = simulated(0);
    let Some(admin) = Person::of(&sandbox, "admin") else {
        return;
    };
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "market" } });
    let all = json!({ "namespace": "market", "resources": ["shop.json", "namespace.json"] });
    admin.file("shop.json", &shop());
    admin.file("namespace.json", &namespace);
    admin.file("kustomization.yaml", &all);
    let folder = sandbox.folder().display();
    let there = || sandbox.service("market/shop");
    let apply = format!("apply -k {folder}");
    admin.does(&apply);
    assert!(there().is_some());
    let again = admin.does(&apply);
    assert_eq!(again.matches(" unchanged\n").count(), 2, "{again}");
    // The namespace goes first, and takes with it what is inside.
    admin.does(&format!("delete -k {folder} --ignore-not-found"));
    assert_eq!(there(), None);
    assert_eq!(sandbox.cluster().get("namespaces", None, "market"), None);
}

/// Commands that speak protobuf and nothing else.
#[test]
fn kubectl_create_creates_namespaces_and_services() {
    let sandbox = simulated(0);
    let Some(admin) = Person::of(&sandbox, "admin") else {
        return;
    };
    admin.does("create namespace market");
    admin.does("create service loadbalancer web --tcp=80:8080 -n market");
    let web = sandbox.service("market/web");
    let spec = &web.unwrap()["spec"];
    assert_eq!(spec["type"], "LoadBalancer");
    assert_eq!(spec["selector"], json!({ "app": "web" }));
    let port = &spec["ports"][0];
    assert_eq!(port["port"], 80);
    assert_eq!(port["targetPort"], 8080);
    let why = admin.is_refused("create namespace market");
    contains(&why, "(AlreadyExists): namespaces \"market\" already exists");
}
