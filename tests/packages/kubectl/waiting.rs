//! kubectl without watches lists again and again, and still sees what it waits for.

use crate::common::{Cluster, LIMIT, contains, wait_until};
use crate::kubectl::person::{Person, shop, simulated};
use serde_json::{Value, json};
use std::process::Stdio;

#[test]
fn watches_are_refused_and_the_list_before_is_shown() {
    let sandbox = simulated(1);
    let Some(admin) = Person::of(&sandbox, "admin") else {
        return;
    };
    let watched = admin.run(&["get", "nodes", "--watch"]).with_code(1);
    watched.prints("worker-1");
    let refused = "(MethodNotAllowed): watch is not supported on resources of kind \"nodes\"";
    watched.warns(refused);
}

#[test]
fn kubectl_wait_sees_the_condition() {
    let sandbox = simulated(1);
    let Some(admin) = Person::of(&sandbox, "admin") else {
        return;
    };
    admin.does("wait --for=condition=Ready node/worker-1 --timeout=20s");
    let mut held = shop();
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    admin.gets(&["create", "-f", &admin.file("held.json", &held)]);
    admin.does("delete svc shop --wait=false");
    let is_marked = |service: &Value| !service["metadata"]["deletionTimestamp"].is_null();
    assert!(sandbox.service("shop").as_ref().is_some_and(is_marked));
    let in_vain = admin.is_refused("wait --for=delete svc/shop --timeout=1s");
    contains(&in_vain, "timed out waiting for the condition");

    let limit = format!("--timeout={}s", LIMIT.as_secs());
    let mut waiting = admin
        .command(&["delete", "svc", "shop", &limit])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let watches = || sandbox.calls().count(|call| call.query("watch") == Some("true"));
    let before = watches();
    wait_until("kubectl to wait", || watches() > before);
    admin.does(r#"patch svc shop --type merge -p {"metadata":{"finalizers":null}}"#);
    assert!(waiting.wait().unwrap().success());
    assert_eq!(sandbox.service("shop"), None);
}
