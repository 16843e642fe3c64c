//! Authentication and authorization: which requests a user is allowed to make.

use sandbox::exchange::{Handler, Request};
use sandbox::kubernetes::{PolicyRule, User};
use serde_json::{Value, json};

use crate::{request, world};

#[test]
fn a_user_may_do_what_its_rules_say() {
    let world = world();
    world.nodes(1);
    let rules: Vec<PolicyRule> = serde_yaml::from_str(
        "
        - {apiGroups: [''], resources: [nodes], verbs: [get, list]}
        - {apiGroups: [''], resources: [nodes/status], verbs: [patch]}
        - {nonResourceURLs: [/metrics], verbs: [get]}
        ",
    )
    .expect("rules as in a ClusterRole");
    world.cluster.add_user(User { name: "ccm".into(), rules, ..User::default() });
    world.cluster.add_token("ccm", "t");
    let lease = serde_yaml::from_str(
        "[{apiGroups: [coordination.k8s.io], resources: [leases], verbs: ['*']}]",
    );
    world.cluster.grant_in_namespace("ccm", "kube-system", lease.expect("rules as in a Role"));
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let leases = "/apis/coordination.k8s.io/v1/namespaces";
    let cases = [
        ("GET", "/api/v1/nodes", 200),
        ("GET", "/api/v1/nodes/n0", 200),
        ("GET", "/api/v1/nodes?watch=true", 403),
        ("PATCH", "/api/v1/nodes/n0/status", 200),
        ("PATCH", "/api/v1/nodes/n0", 403),
        ("DELETE", "/api/v1/nodes/n0", 403),
        ("GET", &format!("{leases}/kube-system/leases"), 200),
        ("GET", &format!("{leases}/default/leases"), 403),
        ("GET", "/apis/coordination.k8s.io/v1/leases", 403),
        ("GET", "/version", 200),
        ("GET", "/apis", 200),
        ("GET", "/metrics", 404),
        ("GET", "/logs", 403),
    ];
    for (method, target, expected) in cases {
        let body = if method == "PATCH" { &label } else { &Value::Null };
        let (status, answer) = world.send_as("t", method, target, body);
        assert_eq!(status, expected, "{method} {target}: {answer}");
    }
    world.cluster.remove_token("t");
    assert_eq!(world.send_as("t", "GET", "/api/v1/nodes", &Value::Null).0, 401);
}

#[test]
fn a_certificate_names_a_user() {
    let world = world();
    let certificate = vec![1, 2, 3];
    world.cluster.add_user(User {
        name: "by-certificate".into(),
        groups: vec!["system:masters".into()],
        certificates: vec![certificate.clone()],
        ..User::default()
    });
    // Each case: the client certificate, and the expected status of the answer. The certificate `[4]` belongs to no
    // user, so the request is anonymous. The empty certificate stands for one that another CA has signed or that is not
    // valid now.
    let cases = [(Some(certificate), 200), (Some(vec![4]), 403), (Some(vec![]), 401), (None, 403)];
    for (shown, expected) in cases {
        let request = Request { client_certificate: shown, ..request("GET", "/api/v1/nodes") };
        assert_eq!(world.cluster.handle(&request).status, expected);
    }
}
