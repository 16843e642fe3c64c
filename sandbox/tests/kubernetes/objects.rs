//! The life of an object from its creation to its deletion, invalid requests, and the OpenAPI documents.

use serde_json::{Value, json};

use crate::world;

#[test]
fn every_write_raises_the_version_once_and_one_without_a_change_does_not() {
    let world = world();
    world.nodes(1);
    let version = || {
        world.cluster.get("nodes", None, "n0").expect("there")["metadata"]["resourceVersion"]
            .clone()
    };
    let start: u64 = version().as_str().and_then(|text| text.parse().ok()).expect("a number");
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
        assert_eq!(version(), (start + expected).to_string(), "{patch} {suffix}");
    }
}

#[test]
fn a_lease_that_does_not_exist_can_be_put() {
    let world = world();
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let lease = json!({"metadata": {"name": "x"}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15}});
    assert_eq!(world.send("PUT", &format!("{leases}/x"), &lease).0, 201);
    // The first PUT has created the object. A second PUT without a `resourceVersion` is refused.
    assert_eq!(world.send("PUT", &format!("{leases}/x"), &lease).0, 422);
    assert_eq!(world.send("PUT", &format!("{leases}/y"), &lease).0, 400);
    assert_eq!(world.send("PUT", "/api/v1/nodes/x", &json!({"metadata": {"name": "x"}})).0, 404);
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
fn a_namespace_is_deleted_when_it_is_empty() {
    let world = world();
    world.cluster.create("namespaces", None, json!({"metadata": {"name": "shop"}}));
    let metadata = json!({"name": "web", "finalizers": ["example.com/hold"]});
    let service = json!({"metadata": metadata, "spec": {"ports": [{"port": 80}]}});
    world.cluster.create("services", Some("shop"), service.clone());
    let (_, answer) = world.send("DELETE", "/api/v1/namespaces/shop", &Value::Null);
    assert_eq!(answer["status"]["phase"], "Terminating");
    let (status, answer) = world.send("POST", "/api/v1/namespaces/shop/services", &service);
    assert_eq!(
        (status, &answer["details"]["causes"][0]["reason"]),
        (403, &json!("NamespaceTerminating"))
    );
    let release = json!({"metadata": {"finalizers": null}});
    assert_eq!(world.send("PATCH", "/api/v1/namespaces/shop/services/web", &release).0, 200);
    assert_eq!(world.get("/api/v1/namespaces/shop").0, 404);
    assert_eq!(world.send("DELETE", "/api/v1/namespaces/default", &Value::Null).0, 403);
}

#[test]
fn a_service_keeps_what_the_cluster_assigned() {
    let world = world();
    let spec =
        json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"port": 80}]});
    let manifest = json!({"metadata": {"name": "web"}, "spec": spec});
    let (_, created) = world.send("POST", "/api/v1/namespaces/default/services", &manifest);
    let (status, replaced) =
        world.send("PUT", "/api/v1/namespaces/default/services/web", &manifest);
    assert_eq!((status, &replaced["spec"]), (200, &created["spec"]));
    let to_cluster_ip = json!({"spec": {"type": "ClusterIP"}});
    let (_, inside) =
        world.send("PATCH", "/api/v1/namespaces/default/services/web", &to_cluster_ip);
    for field in ["healthCheckNodePort", "externalTrafficPolicy", "allocateLoadBalancerNodePorts"] {
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
fn services_that_no_cluster_accepts_are_refused() {
    let world = world();
    let port = json!({"port": 80});
    let cases = [
        (json!({"ports": [{"port": 0}]}), "spec.ports[0].port"),
        (json!({"ports": [{"port": 80, "protocol": "ICMP"}]}), "spec.ports[0].protocol"),
        (json!({"ports": [{"port": 80, "nodePort": 30001}]}), "spec.ports[0].nodePort"),
        (
            json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]}),
            "spec.ports[0].nodePort",
        ),
        (json!({"type": "Nonsense", "ports": [port]}), "spec.type"),
        (
            json!({"type": "LoadBalancer", "clusterIP": "None", "ports": [port]}),
            "spec.clusterIPs[0]",
        ),
        (json!({"loadBalancerClass": "a/b", "ports": [port]}), "spec.loadBalancerClass"),
        (json!({"externalTrafficPolicy": "Local", "ports": [port]}), "spec.externalTrafficPolicy"),
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
fn a_body_that_contradicts_its_path_is_refused() {
    let world = world();
    let cases = [
        ("POST", "/api/v1/nodes", json!({"spec": {"nothing": 1}, "metadata": {"name": "a"}}), 400),
        ("POST", "/api/v1/nodes", json!({"metadata": {"name": "a", "labels": {"a": 1}}}), 400),
        ("POST", "/api/v1/nodes", json!({"apiVersion": "apps/v1", "metadata": {"name": "a"}}), 400),
        ("POST", "/api/v1/nodes", json!({"metadata": {"name": "a", "resourceVersion": "1"}}), 500),
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
        ("GET", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", Value::Null, 200),
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
