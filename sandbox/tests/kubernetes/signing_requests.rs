//! CertificateSigningRequests: who has asked, who may approve, and what a decision can't take back.
//! Sources: kubernetes `pkg/registry/certificates`, `pkg/apis/certificates/validation`, and the admission plugin
//! `certificates/approval`.

use sandbox::kubelet::{CertificateAsk, sign_approved};
use sandbox::kubernetes::{PolicyRule, User};
use serde_json::{Value, json};

use crate::{World, names, world};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

fn rule(resource: &str, verb: &str, names: &[&str]) -> PolicyRule {
    PolicyRule {
        api_groups: vec!["certificates.k8s.io".into()],
        resources: vec![resource.into()],
        verbs: vec![verb.into()],
        resource_names: names.iter().map(|name| (*name).to_owned()).collect(),
        ..PolicyRule::default()
    }
}

/// A cluster with a kubelet that may ask, and with an approver for these signers.
fn with_kubelet_and_approver(signers: &[&str]) -> World {
    let world = world();
    let all = "certificatesigningrequests";
    let approver = vec![
        rule(all, "list", &[]),
        rule(&format!("{all}/approval"), "update", &[]),
        rule("signers", "approve", signers),
    ];
    for (name, groups, rules) in [
        ("system:node:n", vec!["system:nodes".to_owned()], vec![rule(all, "create", &[])]),
        ("approver", Vec::new(), approver),
    ] {
        let (name, tokens) = (name.to_owned(), vec![name.to_owned()]);
        world.cluster.add_user(User { name, groups, tokens, rules, ..User::default() });
    }
    world
}

/// Asks as the kubelet, which claims to be another user.
fn ask(world: &World) -> Value {
    let mut request = CertificateAsk::of("n", &["n"]).object();
    request["spec"]["username"] = json!("system:node:other");
    request["spec"]["groups"] = json!(["system:masters"]);
    let (status, made) = world.send_as("system:node:n", "POST", REQUESTS, &request);
    assert_eq!(status, 201, "{made}");
    made
}

fn decided(request: &Value, kinds: &[&str]) -> Value {
    let conditions: Vec<Value> = kinds
        .iter()
        .map(|kind| json!({"type": kind, "status": "True", "reason": "Test"}))
        .collect();
    let mut request = request.clone();
    request["status"]["conditions"] = conditions.into();
    request
}

fn approve(world: &World, request: &Value, kinds: &[&str]) -> (u16, Value) {
    let name = request["metadata"]["name"].as_str().unwrap();
    let path = format!("{REQUESTS}/{name}/approval");
    world.send_as("approver", "PUT", &path, &decided(request, kinds))
}

#[test]
fn the_server_sets_the_user_and_checks_the_request() {
    let world = with_kubelet_and_approver(&["kubernetes.io/kubelet-serving"]);
    let made = ask(&world);
    assert_eq!(made["spec"]["username"], "system:node:n");
    assert_eq!(made["spec"]["groups"], json!(["system:nodes", "system:authenticated"]));
    let mut wrong = CertificateAsk::of("n", &["n"]).object();
    wrong["spec"]["request"] = json!("aGVsbG8=");
    let (status, told) = world.send_as("system:node:n", "POST", REQUESTS, &wrong);
    assert_eq!(status, 422, "{told}");
    // A PUT of the object itself changes neither spec nor status.
    let name = made["metadata"]["name"].as_str().unwrap();
    let (status, same) =
        world.send("PUT", &format!("{REQUESTS}/{name}"), &decided(&made, &["Approved"]));
    assert_eq!((status, &same["status"]), (200, &json!({})));
}

#[test]
fn an_approval_needs_the_signer_and_the_version_and_is_final() {
    let other = with_kubelet_and_approver(&["kubernetes.io/kube-apiserver-client"]);
    let (status, told) = approve(&other, &ask(&other), &["Approved"]);
    assert_eq!(status, 403, "{told}");
    let told = told["message"].as_str().unwrap();
    assert!(told.contains("not permitted to approve requests with signerName"), "{told}");

    let world = with_kubelet_and_approver(&["kubernetes.io/kubelet-serving"]);
    let made = ask(&world);
    assert_eq!(approve(&world, &made, &["Approved", "Denied"]).0, 422);
    let (status, approved) = approve(&world, &made, &["Approved"]);
    assert_eq!(status, 200, "{approved}");
    assert!(approved["status"]["conditions"][0]["lastUpdateTime"].is_string());
    assert_eq!(approved["spec"], made["spec"]);
    assert_eq!(approve(&world, &made, &["Denied"]).0, 409, "an old version");
    assert_eq!(approve(&world, &approved, &[]).0, 422, "an approval stays");
    sign_approved(&world.cluster);
    let list = format!("{REQUESTS}?fieldSelector=spec.signerName=kubernetes.io/kubelet-serving");
    let (_, list) = world.send_as("approver", "GET", &list, &Value::Null);
    assert_eq!(names(&list).len(), 1);
    assert!(list["items"][0]["status"]["certificate"].is_string());
}
