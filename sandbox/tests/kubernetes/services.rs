//! Services: allocated addresses and ports, refused values, and fields that cannot change.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{World, names, world};

const SERVICES: &str = "/api/v1/namespaces/default/services";

fn manifest(name: &str, more: Value) -> Value {
    let mut spec = json!({"type": "LoadBalancer", "ports": [{"port": 80}]});
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

fn post(world: &World, name: &str, more: Value) -> (u16, Value) {
    world.send("POST", SERVICES, &manifest(name, more))
}

fn patch(world: &World, name: &str, spec: Value) -> (u16, Value) {
    world.send("PATCH", &format!("{SERVICES}/{name}"), &json!({"spec": spec}))
}

#[test]
fn every_node_port_is_given_once_and_from_the_range() {
    let world = world();
    let mut seen = BTreeSet::new();
    for number in 0..60 {
        let more = json!({"externalTrafficPolicy": "Local", "ports": [
            {"name": "a", "port": 80}, {"name": "b", "port": 81, "protocol": "UDP"},
        ]});
        let (status, made) = post(&world, &format!("s{number}"), more);
        assert_eq!(status, 201, "{made}");
        let spec = &made["spec"];
        let ports = [
            &spec["ports"][0]["nodePort"],
            &spec["ports"][1]["nodePort"],
            &spec["healthCheckNodePort"],
        ];
        for port in ports.map(|port| port.as_u64().unwrap_or_default()) {
            assert!((30000..=32767).contains(&port), "{port}");
            assert!(seen.insert(port), "{port} is given twice");
        }
        let ip = spec["clusterIP"].as_str().unwrap_or_default().to_owned();
        assert!(ip.starts_with("10.96."), "{ip}");
    }
    let (_, made) = post(&world, "none", json!({"allocateLoadBalancerNodePorts": false}));
    assert_eq!(made["spec"]["ports"][0].get("nodePort"), None);
    assert_eq!(made["spec"]["allocateLoadBalancerNodePorts"], false);
}

#[test]
fn invalid_fields_and_taken_ports_of_a_service_are_refused() {
    let world = world();
    let local = |port: u64| json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": port});
    let node_port = |port: u64| json!({"ports": [{"port": 80, "nodePort": port}]});
    assert_eq!(post(&world, "first", local(30500)).0, 201);
    assert_eq!(post(&world, "second", node_port(30600)).0, 201);
    let own_twice = json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 30700,
        "ports": [{"port": 80, "nodePort": 30700}]});
    // Each case: the fields of the Service, and the field that the error names.
    let cases = [
        (local(30500), "spec.healthCheckNodePort"),
        (local(30600), "spec.healthCheckNodePort"),
        (local(80), "spec.healthCheckNodePort"),
        (own_twice, "spec.healthCheckNodePort"),
        (json!({"healthCheckNodePort": 30800}), "spec.healthCheckNodePort"),
        (node_port(30500), "spec.ports[0].nodePort"),
        (node_port(30600), "spec.ports[0].nodePort"),
        (node_port(29999), "spec.ports[0].nodePort"),
        (node_port(32768), "spec.ports[0].nodePort"),
        (json!({"ports": [{"port": 65536, "targetPort": 80}]}), "spec.ports[0].port"),
        (json!({"clusterIP": "10.96.0.1"}), "spec.clusterIPs"),
        (json!({"clusterIP": "10.97.0.1"}), "spec.clusterIPs"),
        (json!({"clusterIP": "nonsense"}), "spec.clusterIPs[0]"),
        (json!({"externalIPs": ["nonsense"]}), "spec.externalIPs[0]"),
        (json!({"loadBalancerClass": "a b"}), "spec.loadBalancerClass"),
        (json!({"loadBalancerSourceRanges": ["10.0.0.1"]}), "spec.loadBalancerSourceRanges[0]"),
        (json!({"externalTrafficPolicy": "Some"}), "spec.externalTrafficPolicy"),
        (
            json!({"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 1}}}),
            "spec.sessionAffinityConfig",
        ),
        (
            json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig":
            {"clientIP": {"timeoutSeconds": 86401}}}),
            "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
        ),
    ];
    for (more, field) in cases {
        let (status, answer) = post(&world, "new", more.clone());
        let causes = answer["details"]["causes"].as_array().cloned().unwrap_or_default();
        let fields: Vec<&Value> = causes.iter().map(|cause| &cause["field"]).collect();
        assert_eq!((status, fields), (422, vec![&json!(field)]), "{more}: {answer}");
    }
}

#[test]
fn fields_of_a_service_that_were_set_stay() {
    let world = world();
    let more = json!({"externalTrafficPolicy": "Local", "loadBalancerClass": "example.com/a"});
    let (_, made) = post(&world, "web", more);
    let uid = made["metadata"]["uid"].clone();
    // Each case: the changed fields, and the status of the answer.
    let cases = [
        (json!({"healthCheckNodePort": 30999}), 422),
        (json!({"loadBalancerClass": "example.com/b"}), 422),
        (json!({"loadBalancerClass": null}), 422),
        (json!({"clusterIP": "10.96.7.7", "clusterIPs": ["10.96.7.7"]}), 422),
        (json!({"externalTrafficPolicy": "Cluster"}), 200),
        (json!({"externalTrafficPolicy": "Local"}), 200),
        (json!({"type": "ClusterIP"}), 200),
    ];
    for (spec, expected) in cases {
        let (status, answer) = patch(&world, "web", spec.clone());
        assert_eq!(status, expected, "{spec}: {answer}");
        assert_eq!(world.get(&format!("{SERVICES}/web")).1["metadata"]["uid"], uid);
    }
    let (_, shown) = world.get(&format!("{SERVICES}/web"));
    assert_eq!(shown["spec"]["clusterIP"], made["spec"]["clusterIP"]);
    assert_eq!(shown["spec"].get("healthCheckNodePort"), None);
    // The Service `web` now has the type `ClusterIP` and has released its node port, so another Service can have that
    // port.
    let port = made["spec"]["ports"][0]["nodePort"].clone();
    assert_eq!(post(&world, "next", json!({"ports": [{"port": 80, "nodePort": port}]})).0, 201);
}

#[test]
fn services_are_selected_by_type_and_name() {
    let world = world();
    post(&world, "balanced", json!({}));
    post(&world, "inside", json!({"type": "ClusterIP"}));
    let cases = [
        ("spec.type=LoadBalancer", vec!["balanced"]),
        ("spec.type!=LoadBalancer", vec!["inside", "kubernetes"]),
        ("metadata.name=inside", vec!["inside"]),
        ("spec.type=LoadBalancer,metadata.name=inside", vec![]),
        ("metadata.namespace=default,spec.type=LoadBalancer", vec!["balanced"]),
    ];
    for (selector, expected) in cases {
        for path in ["/api/v1/services", SERVICES] {
            let (_, list) = world.get(&format!("{path}?fieldSelector={selector}"));
            assert_eq!(names(&list), expected, "{path} {selector}");
        }
    }
    let (status, _) = world.get(&format!("{SERVICES}?fieldSelector=spec.ports=80"));
    assert_eq!(status, 400);
}

/// Clients recognise a cluster by the UID of its Service `kubernetes`, so this UID must not change.
#[test]
fn the_uid_of_the_api_servers_own_service_is_for_good() {
    let world = world();
    let own = format!("{SERVICES}/kubernetes");
    let uid = || world.get(&own).1["metadata"]["uid"].clone();
    let before = uid();
    assert!(before.is_string());
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(world.send("PATCH", &own, &label).0, 200);
    assert_eq!(uid(), before);
    assert_ne!(self::world().get(&own).1["metadata"]["uid"], before);
}
