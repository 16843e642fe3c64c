//! Which certificate requests of kubelets the cloud proves, as a table.

use crate::common::{fake_provider, objects};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ccm::controllers::MatchIndex;
use ccm::controllers::kubelet_certificates::{
    APPROVALS_OF_NODE, Asked, PendingRequest, RequestPlan, asked as asked_of, plan,
};
use ccm::kube::{AltName, KubeNode, ServingRequest, SigningRequest, SigningRow, SigningState};
use ccm::provider::{ErrorKind, Instance, InstanceId, ProviderError, Servers};
use fake_provider::FakeProvider;
use jiff::Timestamp;
use sandbox::kubelet::CertificateAsk;
use serde_json::{Value, json};
use std::time::Instant;

fn node(name: &str, provider_id: &str) -> KubeNode {
    objects::node(name, json!({ "spec": { "providerID": provider_id } }))
}

fn changed(name: &str, more: Value) -> KubeNode {
    let mut whole = json!({ "spec": { "providerID": "memory://1" } });
    objects::merge(&mut whole, more);
    objects::node(name, whole)
}

/// Returns the server of the node `n`. Its addresses are 203.0.113.2, 10.0.0.2 and 2001:db8:0:1::/64.
fn server() -> Instance {
    Instance {
        public_ipv6: Some("2001:db8:0:1::/64".parse().unwrap()),
        private: vec![objects::private(1, "10.0.0.2")],
        ..objects::server(1, "n")
    }
}

fn asked(names: &[&str]) -> Asked {
    let name = |name: &&str| match name.parse() {
        Ok(ip) => AltName::Ip(ip),
        Err(_) => AltName::Dns((*name).to_owned()),
    };
    let names = names.iter().map(name).collect();
    Ok(ServingRequest { common_name: "system:node:n".into(), names })
}

fn row(node: &str) -> SigningRow {
    SigningRow {
        created: Timestamp::UNIX_EPOCH,
        name: "csr-1".into(),
        uid: "uid".into(),
        node: Some(node.into()),
        state: SigningState::Pending,
    }
}

/// Returns `approves`, `waits` or `pending`, and the message.
fn outcome(plan: &RequestPlan) -> (&'static str, String) {
    match (plan.changes.as_slice(), &plan.obstacle, &plan.waits) {
        ([change], None, None) => ("approves", change.server.clone()),
        ([], Some(why), None) => ("pending", why.text().into_owned()),
        ([], None, Some(why)) => ("waits", why.clone()),
        other => panic!("{other:?}"),
    }
}

fn plan_of(asked: Asked, approved: usize, nodes: &[KubeNode], servers: Servers) -> RequestPlan {
    let provider = FakeProvider::default();
    let candidate = PendingRequest { row: row("n"), asked, approved, first_seen: Instant::now() };
    plan(&candidate, &MatchIndex::new(&provider, nodes, servers))
}

#[rustfmt::skip] // A case is a line.
#[test]
fn each_name_must_be_one_that_the_cloud_states() {
    let state = "does not list";
    let cases: &[(&[&str], &str, &str)] = &[
        (&["n"], "approves", "n (1)"),
        (&["N", "203.0.113.2", "10.0.0.2"], "approves", ""),
        (&["n", "2001:db8:0:1::1", "2001:db8:0:1:ffff::"], "approves", ""),
        (&["203.0.113.2"], "approves", ""),
        (&["n", "2001:db8:0:1::"], "pending", state),
        (&["n", "2001:db8:0:2::1"], "pending", state),
        (&["n", "203.0.113.3"], "pending", "203.0.113.3"),
        (&["n", "10.0.0.3"], "pending", state),
        (&["n", "::ffff:203.0.113.2"], "pending", state),
        (&["n", "127.0.0.1"], "pending", state),
        (&["n", "0.0.0.0", "::"], "pending", state),
        (&["m"], "pending", "not the name"),
        (&["n.example.com"], "pending", "not the name"),
        (&["*.n"], "pending", "not the name"),
        (&["*"], "pending", "not the name"),
        (&["n."], "pending", "not the name"),
        (&["n", "localhost"], "pending", "API server"),
        (&["kubernetes"], "pending", "API server"),
        (&["Kubernetes.Default.svc"], "pending", "API server"),
    ];
    for (names, what, message) in cases {
        let servers = [server()];
        let nodes = [node("n", "memory://1")];
        let (found, why) = outcome(&plan_of(asked(names), 0, &nodes, servers[..].into()));
        assert_eq!(found, *what, "{names:?}: {why}");
        assert!(why.contains(message), "{names:?}: {why}");
        assert_eq!(why.contains("kubectl certificate approve csr-1"), found == "pending", "{why}");
    }
}

#[rustfmt::skip] // A case is a line.
#[test]
fn the_server_must_have_the_name_and_the_id_of_the_node_alone() {
    let new = json!({ "spec": { "taints": [{ "key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule" }] } });
    let (deleted, no_id) = (json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }), json!({ "spec": { "providerID": "" } }));
    let mut new_without_id = new.clone();
    objects::merge(&mut new_without_id, no_id.clone());
    let other = || Instance { name: "other".into(), ..server() };
    let cases: Vec<(Vec<KubeNode>, Vec<Instance>, &str, &str)> = vec![
        (vec![node("n", "memory://1"), node("m", "memory://2")], vec![server()], "approves", ""),
        (vec![changed("n", new)], vec![server()], "approves", ""),
        (vec![changed("n", new_without_id)], vec![server()], "waits", "not initialised"),
        (vec![changed("n", no_id)], vec![server()], "pending", "does not name a server"),
        (vec![changed("n", deleted)], vec![server()], "waits", "being deleted"),
        (vec![node("m", "memory://1")], vec![server()], "waits", "does not exist"),
        (vec![node("n", "k3s://n")], vec![server()], "pending", "\"k3s://n\""),
        (vec![node("n", "memory://x")], vec![server()], "pending", "does not name a server"),
        (vec![node("n", "memory://1"), node("m", "memory://1")], vec![server()], "pending", "node \"m\" has the same"),
        (vec![node("n", "memory://1")], vec![other()], "pending", "is named \"other\""),
        (vec![node("n", "memory://2")], vec![server()], "pending", "server 2 of the node does not exist"),
        (vec![node("n", "memory://1")], vec![], "pending", "does not exist"),
    ];
    for (nodes, servers, what, message) in cases {
        let (found, why) = outcome(&plan_of(asked(&["n"]), 0, &nodes, servers[..].into()));
        assert_eq!((found, why.contains(message)), (what, true), "{message}: {why}");
    }
}

#[test]
fn a_dedicated_server_proves_as_a_cloud_server_does_and_a_failed_list_proves_nothing() {
    let dedicated = [Instance { id: InstanceId::Dedicated(7), ..server() }];
    let away = ProviderError::new(ErrorKind::Unavailable, "away");
    let nodes = [node("n", "metal://7")];
    let servers = Servers { cloud: Ok(&[]), dedicated: Ok(&dedicated) };
    assert_eq!(outcome(&plan_of(asked(&["n"]), 0, &nodes, servers)).0, "approves");
    let servers = Servers { cloud: Err(&away), dedicated: Ok(&dedicated) };
    assert_eq!(outcome(&plan_of(asked(&["n"]), 0, &nodes, servers)).0, "approves");
    let servers = Servers { cloud: Ok(&dedicated), dedicated: Err(&away) };
    let (found, why) = outcome(&plan_of(asked(&["n"]), 0, &nodes, servers));
    assert_eq!((found, why.contains("away")), ("waits", true), "{why}");
}

#[test]
fn a_node_gets_ten_approvals_and_no_request_of_another_form() {
    let (nodes, servers) = ([node("n", "memory://1")], [server()]);
    let plan = |asked, approved| outcome(&plan_of(asked, approved, &nodes, servers[..].into()));
    assert_eq!(plan(asked(&["n"]), APPROVALS_OF_NODE - 1).0, "approves");
    let (found, why) = plan(asked(&["n"]), APPROVALS_OF_NODE);
    assert_eq!((found, why.contains("10 or more")), ("pending", true), "{why}");
    let (found, why) = plan(Err("it has a wrong form".into()), 0);
    assert_eq!((found, why.contains("a wrong form")), ("pending", true), "{why}");
}

#[rustfmt::skip] // A case is a line.
#[test]
fn only_the_form_of_a_kubelets_own_request_is_accepted() {
    let honest = || CertificateAsk::of("n", &["n", "203.0.113.2"]);
    let edited = |pointer: &str, value: Value| {
        let mut object = honest().object();
        *object.pointer_mut(pointer).unwrap() = value;
        object
    };
    let pem = |change: &dyn Fn(String) -> String| edited("/spec/request", STANDARD.encode(change(honest().pem())).into());
    let with = |change: &dyn Fn(&mut CertificateAsk)| {
        let mut ask = honest();
        change(&mut ask);
        ask.object()
    };
    let many: Vec<String> = (1..=17).map(|n| format!("10.0.0.{n}")).collect();
    let three = json!(["key encipherment", "server auth", "digital signature"]);
    let cases: Vec<(&str, Value, &str)> = vec![
        ("honest", honest().object(), ""),
        ("the third usage of RSA keys", edited("/spec/usages", three), ""),
        ("16 names", with(&|ask| ask.names = many[..16].to_vec()), ""),
        ("17 names", with(&|ask| ask.names = many.clone()), "more than 16"),
        ("no names", with(&|ask| ask.names.clear()), "the request ends"),
        ("another signer", with(&|ask| ask.signer = "kubernetes.io/kube-apiserver-client-kubelet".into()), "another signer"),
        ("a client certificate", edited("/spec/usages", json!(["digital signature", "client auth"])), "usages"),
        ("a usage too many", edited("/spec/usages", json!(["digital signature", "server auth", "client auth"])), "usages"),
        ("a usage twice", edited("/spec/usages", json!(["digital signature", "server auth", "server auth"])), "usages"),
        ("the name of another", with(&|ask| ask.common_name = "system:node:m".into()), "common name"),
        ("the user of another", edited("/spec/username", json!("system:node:m")), "not the kubelet of this node"),
        ("a service account", edited("/spec/username", json!("system:serviceaccount:a:b")), "not the kubelet of this node"),
        ("another group", edited("/spec/groups", json!(["system:authenticated", "system:masters"])), "group of kubelets"),
        ("another organisation", with(&|ask| ask.organisation = "system:masters".into()), "organisation"),
        ("text before the block", pem(&|pem| format!("hello\n{pem}")), "one PEM block"),
        ("two blocks", pem(&|pem| format!("{pem}{pem}")), "base64"),
        ("text after the block", pem(&|pem| format!("{pem}hello\n")), "one PEM block"),
        ("a header", pem(&|pem| pem.replacen("-\n", "-\nProc-Type: 4\n\n", 1)), "base64"),
        ("other line ends", pem(&|pem| pem.replace('\n', "\r\n")), "one PEM block"),
        ("another block", pem(&|pem| pem.replace("CERTIFICATE REQUEST", "CERTIFICATE")), "one PEM block"),
        ("17 KiB", pem(&|pem| pem.replacen("-\n", &format!("-\n{}", "\n".repeat(17 << 10)), 1)), "16 KiB"),
        ("nothing", edited("/spec/request", json!("")), "one PEM block"),
        ("no text", edited("/spec/request", json!(7)), "one PEM block"),
    ];
    for (name, object, message) in cases {
        let why = asked_of(&SigningRequest::new(object), "n").err().unwrap_or_default();
        assert_eq!((why.is_empty(), why.contains(message)), (message.is_empty(), true), "{name}: {why}");
    }
}
