//! What the recordings do not show: access, the cache, pages, the life of an object.

use std::sync::Arc;

use sandbox::exchange::{Handler, Request, Response};
use sandbox::kubernetes::{Cluster, PolicyRule, User};
use serde_json::{Value, json};

const ADMIN: &str = "admin";

/// A cluster, and requests by whoever has the token.
struct World {
    cluster: Arc<Cluster>,
}

fn world() -> World {
    let cluster = Cluster::new();
    cluster.add_user(User {
        name: "admin".into(),
        groups: vec!["system:masters".into()],
        tokens: vec![ADMIN.into()],
        ..User::default()
    });
    World { cluster }
}

impl World {
    fn send(&self, method: &str, target: &str, body: &Value) -> (u16, Value) {
        self.send_as(ADMIN, method, target, body)
    }

    fn send_as(&self, token: &str, method: &str, target: &str, body: &Value) -> (u16, Value) {
        let content_type = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let headers = [
            ("authorization", format!("Bearer {token}")),
            ("content-type", content_type.into()),
        ];
        let mut request = request(method, target);
        request.headers = headers.map(|(name, value)| (name.into(), value)).into();
        request.body = if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        };
        read(&self.cluster.handle(&request))
    }

    fn get(&self, target: &str) -> (u16, Value) {
        self.send("GET", target, &Value::Null)
    }

    /// `n0`, `n1`, …
    fn nodes(&self, count: usize) {
        (0..count).for_each(|number| self.node(&format!("n{number}")));
    }

    fn node(&self, name: &str) {
        self.cluster
            .create("nodes", None, json!({"metadata": {"name": name}}));
    }
}

fn request(method: &str, target: &str) -> Request {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let query = query.split('&').filter_map(|pair| pair.split_once('='));
    Request {
        method: method.into(),
        path: path.into(),
        query: query
            .map(|(name, value)| (name.into(), value.into()))
            .collect(),
        ..Request::default()
    }
}

fn read(response: &Response) -> (u16, Value) {
    let body = serde_json::from_slice(&response.body)
        .unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&response.body).as_ref()));
    (response.status, body)
}

fn names(list: &Value) -> Vec<&str> {
    list["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|item| item["metadata"]["name"].as_str())
        .collect()
}

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
    world.cluster.add_user(User {
        name: "ccm".into(),
        rules,
        ..User::default()
    });
    world.cluster.add_token("ccm", "t");
    let lease = serde_yaml::from_str(
        "[{apiGroups: [coordination.k8s.io], resources: [leases], verbs: ['*']}]",
    );
    world
        .cluster
        .grant_in_namespace("ccm", "kube-system", lease.expect("rules as in a Role"));
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
        let body = if method == "PATCH" {
            &label
        } else {
            &Value::Null
        };
        let (status, answer) = world.send_as("t", method, target, body);
        assert_eq!(status, expected, "{method} {target}: {answer}");
    }
    world.cluster.remove_token("t");
    assert_eq!(
        world.send_as("t", "GET", "/api/v1/nodes", &Value::Null).0,
        401
    );
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
    for (shown, expected) in [(Some(certificate), 200), (Some(vec![4]), 403), (None, 403)] {
        let request = Request {
            client_certificate: shown,
            ..request("GET", "/api/v1/nodes")
        };
        assert_eq!(world.cluster.handle(&request).status, expected);
    }
}

#[test]
fn a_watch_is_refused() {
    let (status, answer) = world().get("/api/v1/nodes?watch=true");
    assert_eq!(
        (status, &answer["reason"]),
        (405, &json!("MethodNotAllowed"))
    );
    assert_eq!(
        answer["message"],
        r#"watch is not supported on resources of kind "nodes""#
    );
}

#[test]
fn reads_of_version_0_are_content_with_a_frozen_cache() {
    let world = world();
    world.nodes(1);
    world.cluster.freeze_cache(true);
    world.node("late");
    let cases: [(&str, &[&str]); 2] = [("?resourceVersion=0", &["n0"]), ("", &["late", "n0"])];
    for (query, expected) in cases {
        assert_eq!(
            names(&world.get(&format!("/api/v1/nodes{query}")).1),
            expected,
            "{query}"
        );
    }
    assert_eq!(world.get("/api/v1/nodes/late?resourceVersion=0").0, 404);
    assert_eq!(world.get("/api/v1/nodes/late").0, 200);
    world.cluster.freeze_cache(false);
    assert_eq!(world.get("/api/v1/nodes/late?resourceVersion=0").0, 200);
}

#[test]
fn pages_show_the_state_of_the_first() {
    let world = world();
    world.nodes(5);
    let (_, first) = world.get("/api/v1/nodes?limit=2");
    assert_eq!(names(&first), ["n0", "n1"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    world.cluster.delete("nodes", None, "n3");
    world.node("n9");
    let token = first["metadata"]["continue"]
        .as_str()
        .expect("there is more");
    let (_, second) = world.get(&format!("/api/v1/nodes?limit=9&continue={token}"));
    assert_eq!(names(&second), ["n2", "n3", "n4"]);
    assert_eq!(
        second["metadata"]["resourceVersion"],
        first["metadata"]["resourceVersion"]
    );
    assert_eq!(second["metadata"]["continue"], Value::Null);
}

#[test]
fn an_expired_token_comes_with_one_that_goes_on() {
    let world = world();
    world.nodes(4);
    let (_, first) = world.get("/api/v1/nodes?limit=2");
    world.cluster.expire_continue_tokens();
    world.cluster.delete("nodes", None, "n2");
    let token = first["metadata"]["continue"]
        .as_str()
        .expect("there is more");
    let (status, expired) = world.get(&format!("/api/v1/nodes?limit=2&continue={token}"));
    assert_eq!((status, &expired["reason"]), (410, &json!("Expired")));
    let token = expired["metadata"]["continue"].as_str().expect("a way on");
    assert_eq!(
        names(
            &world
                .get(&format!("/api/v1/nodes?limit=2&continue={token}"))
                .1
        ),
        ["n3"]
    );
}

#[test]
fn a_list_in_a_namespace_has_pages_too() {
    let world = world();
    for name in ["a", "b", "c"] {
        let spec = json!({"ports": [{"port": 80}]});
        world.cluster.create(
            "services",
            Some("default"),
            json!({"metadata": {"name": name}, "spec": spec}),
        );
    }
    let mut seen = Vec::new();
    let mut token = String::new();
    // Four services, one a page.
    for _ in 0..4 {
        let (_, page) = world.get(&format!(
            "/api/v1/namespaces/default/services?limit=1&continue={token}"
        ));
        seen.extend(names(&page).into_iter().map(String::from));
        token = page["metadata"]["continue"]
            .as_str()
            .unwrap_or_default()
            .to_string();
    }
    assert_eq!(
        (seen.join(" ").as_str(), token.as_str()),
        ("a b c kubernetes", "")
    );
}

#[test]
fn a_version_of_the_future_is_not_served() {
    let (status, answer) = world().get("/api/v1/nodes?resourceVersion=999");
    assert_eq!((status, &answer["reason"]), (504, &json!("Timeout")));
}

#[test]
fn every_write_raises_the_version_once_and_a_vain_one_does_not() {
    let world = world();
    world.nodes(1);
    let version = || {
        world.cluster.get("nodes", None, "n0").expect("there")["metadata"]["resourceVersion"]
            .clone()
    };
    let start: u64 = version()
        .as_str()
        .and_then(|text| text.parse().ok())
        .expect("a number");
    let patches = [
        (json!({"metadata": {"labels": {"a": "b"}}}), "", 1),
        (json!({"metadata": {"labels": {"a": "b"}}}), "", 1),
        (json!({"status": {"phase": "Running"}}), "", 1),
        (json!({"status": {"phase": "Running"}}), "/status", 2),
        (json!({"spec": {"unschedulable": true}}), "/status", 2),
        (json!({"spec": {"unschedulable": true}}), "?dryRun=All", 2),
        (json!({"spec": {"unschedulable": true}}), "", 3),
    ];
    for (patch, suffix, expected) in patches {
        let (status, answer) = world.send("PATCH", &format!("/api/v1/nodes/n0{suffix}"), &patch);
        assert_eq!(status, 200, "{answer}");
        assert_eq!(
            version(),
            (start + expected).to_string(),
            "{patch} {suffix}"
        );
    }
}

#[test]
fn a_lease_can_be_put_before_it_is_there() {
    let world = world();
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let lease = json!({"metadata": {"name": "x"}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15}});
    assert_eq!(world.send("PUT", &format!("{leases}/x"), &lease).0, 201);
    // The second needs the version of the first.
    assert_eq!(world.send("PUT", &format!("{leases}/x"), &lease).0, 422);
    assert_eq!(world.send("PUT", &format!("{leases}/y"), &lease).0, 400);
    assert_eq!(
        world
            .send(
                "PUT",
                "/api/v1/nodes/x",
                &json!({"metadata": {"name": "x"}})
            )
            .0,
        404
    );
}

#[test]
fn another_object_of_the_same_name_is_not_overwritten() {
    let world = world();
    world.nodes(1);
    let node = json!({"metadata": {"name": "n0", "uid": "of another life"}});
    let (status, answer) = world.send("PUT", "/api/v1/nodes/n0", &node);
    assert_eq!((status, &answer["reason"]), (409, &json!("Conflict")));
}

#[test]
fn a_namespace_goes_when_all_in_it_is_gone() {
    let world = world();
    world
        .cluster
        .create("namespaces", None, json!({"metadata": {"name": "shop"}}));
    let metadata = json!({"name": "web", "finalizers": ["example.com/hold"]});
    let service = json!({"metadata": metadata, "spec": {"ports": [{"port": 80}]}});
    world
        .cluster
        .create("services", Some("shop"), service.clone());
    let (_, answer) = world.send("DELETE", "/api/v1/namespaces/shop", &Value::Null);
    assert_eq!(answer["status"]["phase"], "Terminating");
    let (status, answer) = world.send("POST", "/api/v1/namespaces/shop/services", &service);
    assert_eq!(
        (status, &answer["details"]["causes"][0]["reason"]),
        (403, &json!("NamespaceTerminating"))
    );
    let release = json!({"metadata": {"finalizers": null}});
    assert_eq!(
        world
            .send("PATCH", "/api/v1/namespaces/shop/services/web", &release)
            .0,
        200
    );
    assert_eq!(world.get("/api/v1/namespaces/shop").0, 404);
    assert_eq!(
        world
            .send("DELETE", "/api/v1/namespaces/default", &Value::Null)
            .0,
        403
    );
}

#[test]
fn what_a_service_was_given_it_keeps() {
    let world = world();
    let spec =
        json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"port": 80}]});
    let manifest = json!({"metadata": {"name": "web"}, "spec": spec});
    let (_, created) = world.send("POST", "/api/v1/namespaces/default/services", &manifest);
    let (status, replaced) =
        world.send("PUT", "/api/v1/namespaces/default/services/web", &manifest);
    assert_eq!((status, &replaced["spec"]), (200, &created["spec"]));
    let to_cluster_ip = json!({"spec": {"type": "ClusterIP"}});
    let (_, inside) = world.send(
        "PATCH",
        "/api/v1/namespaces/default/services/web",
        &to_cluster_ip,
    );
    for field in [
        "healthCheckNodePort",
        "externalTrafficPolicy",
        "allocateLoadBalancerNodePorts",
    ] {
        assert_eq!(inside["spec"][field], Value::Null, "{field}");
    }
    assert_eq!(inside["spec"]["clusterIP"], created["spec"]["clusterIP"]);
}

#[test]
fn a_service_of_a_type_without_addresses_has_none() {
    let world = world();
    let cases = [
        (
            json!({"type": "ExternalName", "externalName": "a.example"}),
            json!({"type": "ExternalName", "externalName": "a.example", "sessionAffinity": "None"}),
        ),
        (
            json!({"clusterIP": "None"}),
            json!({"type": "ClusterIP", "clusterIP": "None", "clusterIPs": ["None"], "sessionAffinity": "None",
                "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "internalTrafficPolicy": "Cluster"}),
        ),
    ];
    for (spec, expected) in cases {
        let service = json!({"metadata": {"generateName": "x-"}, "spec": spec});
        let (status, created) = world.send("POST", "/api/v1/namespaces/default/services", &service);
        assert_eq!((status, &created["spec"]), (201, &expected));
    }
}

#[test]
fn services_that_no_cluster_would_take() {
    let world = world();
    let port = json!({"port": 80});
    let cases = [
        (json!({"ports": [{"port": 0}]}), "spec.ports[0].port"),
        (
            json!({"ports": [{"port": 80, "protocol": "ICMP"}]}),
            "spec.ports[0].protocol",
        ),
        (
            json!({"ports": [{"port": 80, "nodePort": 30001}]}),
            "spec.ports[0].nodePort",
        ),
        (
            json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]}),
            "spec.ports[0].nodePort",
        ),
        (json!({"type": "Nonsense", "ports": [port]}), "spec.type"),
        (
            json!({"type": "LoadBalancer", "clusterIP": "None", "ports": [port]}),
            "spec.clusterIPs[0]",
        ),
        (
            json!({"loadBalancerClass": "a/b", "ports": [port]}),
            "spec.loadBalancerClass",
        ),
        (
            json!({"externalTrafficPolicy": "Local", "ports": [port]}),
            "spec.externalTrafficPolicy",
        ),
        (
            json!({"type": "LoadBalancer", "loadBalancerSourceRanges": ["x"], "ports": [port]}),
            "spec.loadBalancerSourceRanges[0]",
        ),
    ];
    for (spec, field) in cases {
        let service = json!({"metadata": {"name": "x"}, "spec": spec});
        let (status, answer) = world.send("POST", "/api/v1/namespaces/default/services", &service);
        assert_eq!(
            (status, &answer["details"]["causes"][0]["field"]),
            (422, &json!(field)),
            "{answer}"
        );
    }
}

#[test]
fn what_the_body_says_must_fit_the_path() {
    let world = world();
    let cases = [
        (
            "POST",
            "/api/v1/nodes",
            json!({"spec": {"nothing": 1}, "metadata": {"name": "a"}}),
            400,
        ),
        (
            "POST",
            "/api/v1/nodes",
            json!({"metadata": {"name": "a", "labels": {"a": 1}}}),
            400,
        ),
        (
            "POST",
            "/api/v1/nodes",
            json!({"apiVersion": "apps/v1", "metadata": {"name": "a"}}),
            400,
        ),
        (
            "POST",
            "/api/v1/nodes",
            json!({"metadata": {"name": "a", "resourceVersion": "1"}}),
            500,
        ),
        (
            "POST",
            "/api/v1/namespaces/default/events",
            json!({"metadata": {"name": "a", "namespace": "b"}}),
            400,
        ),
        ("POST", "/api/v1/nodes/a", json!({}), 405),
        ("POST", "/api/v1/services", json!({}), 405),
        ("POST", "/api/v1/namespaces/default/pods", json!({}), 405),
        ("GET", "/api/v1/namespaces/default/nodes", Value::Null, 404),
        ("GET", "/api/v1/nodes/a/nonsense", Value::Null, 404),
        ("GET", "/api/v1/pods", Value::Null, 200),
        (
            "GET",
            "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
            Value::Null,
            200,
        ),
    ];
    for (method, path, body, expected) in cases {
        let (status, answer) = world.send(method, &format!("{path}?fieldValidation=Strict"), &body);
        assert_eq!(status, expected, "{method} {path} {body}: {answer}");
    }
}

#[test]
fn the_openapi_documents_name_kinds_parameters_and_merge_keys() {
    let world = world();
    let (_, index) = world.get("/openapi/v3");
    for (path, entry) in index["paths"].as_object().expect("paths") {
        let url = entry["serverRelativeURL"].as_str().expect("a URL");
        assert_eq!(world.get(url).0, 200, "{path}");
    }
    let (_, core) = world.get("/openapi/v3/api/v1");
    let patch = &core["paths"]["/api/v1/nodes/{name}"]["patch"];
    assert_eq!(patch["x-kubernetes-group-version-kind"]["kind"], "Node");
    assert!(
        patch["parameters"]
            .as_array()
            .is_some_and(|all| all.iter().any(|one| one["name"] == "fieldValidation"))
    );
    let ports =
        &core["components"]["schemas"]["io.k8s.api.core.v1.ServiceSpec"]["properties"]["ports"];
    assert_eq!(ports["x-kubernetes-patch-merge-key"], "port");
}
