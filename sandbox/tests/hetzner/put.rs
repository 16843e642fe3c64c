//! Tests of `Cloud::put`, with which a test adds a resource to a project from JSON. The JSON has the form in which the
//! real API shows the resource.

use serde_json::{Value, json};

use crate::api::Api;

/// Returns the JSON of five resources as the real API shows them: a load balancer, and the network, the server, the
/// certificate and the Primary IP that it uses.
fn documents() -> [Value; 5] {
    let subnets = json!([
        {"type": "cloud", "ip_range": "10.0.0.0/24", "network_zone": "eu-central"},
        {"type": "vswitch", "ip_range": "10.0.1.0/24", "network_zone": "eu-central"},
    ]);
    let network = json!({"id": 4, "name": "net", "ip_range": "10.0.0.0/16", "subnets": subnets});
    let server = json!({
        "id": 5, "name": "worker", "labels": {"a": "b"}, "public_net": {"ipv4": null, "ipv6": {}},
        "private_net": [{"network": 4, "ip": "10.0.0.7"}],
    });
    let certificate = json!({
        "id": 6, "name": "cert", "labels": {}, "domain_names": ["a.example"],
        "not_valid_after": "2027-01-01T00:00:00Z", "status": {"issuance": "completed"},
    });
    let primary_ip = json!({
        "id": 7, "name": "kept", "ip": "203.0.113.1", "location": {"name": "fsn1"}, "labels": {},
        "assignee_id": 8, "assignee_type": "load_balancer", "auto_delete": false,
        "dns_ptr": [{"ip": "203.0.113.1", "dns_ptr": "a.example"}],
    });
    let check = json!({"protocol": "tcp", "port": 80, "interval": 15, "timeout": 10, "retries": 3});
    let http = json!({"certificates": [6]});
    let service = json!({
        "protocol": "https", "listen_port": 443, "destination_port": 80, "proxyprotocol": false,
        "http": http, "health_check": check,
    });
    let target = json!({"type": "server", "server": {"id": 5}, "use_private_ip": true});
    let load_balancer = json!({
        "id": 8, "name": "lb", "created": "2026-01-02T03:04:05Z", "labels": {"c": "d"},
        "load_balancer_type": {"name": "lb21"}, "location": {"name": "fsn1"},
        "algorithm": {"type": "least_connections"}, "protection": {"delete": true},
        "public_net": {"enabled": true, "ipv4": {"id": 7}},
        "private_net": [{"network": 4, "ip": "10.0.0.9"}], "services": [service], "targets": [target],
    });
    [
        json!({"network": network}),
        json!({"server": server}),
        json!({"certificate": certificate}),
        json!({"primary_ip": primary_ip}),
        json!({"load_balancer": load_balancer}),
    ]
}

#[test]
fn a_document_that_is_put_is_shown_and_can_be_changed() {
    let api = Api::new();
    for document in documents() {
        api.cloud.put(api.project, &document);
    }
    let shown = api.cloud.shown(api.project);
    let kinds: Vec<(&str, u64)> = shown.keys().copied().filter(|(_, id)| *id < 10).collect();
    assert_eq!(kinds, [("certificate", 6), ("load_balancer", 8), ("primary_ip", 7)]);
    let one = api.get("/load_balancers/8");
    for (pointer, value) in [
        ("/load_balancer/created", json!("2026-01-02T03:04:05Z")),
        ("/load_balancer/load_balancer_type/name", json!("lb21")),
        ("/load_balancer/algorithm/type", json!("least_connections")),
        ("/load_balancer/public_net/ipv4/ip", json!("203.0.113.1")),
        ("/load_balancer/public_net/ipv4/dns_ptr", json!("a.example")),
        ("/load_balancer/private_net/0/ip", json!("10.0.0.9")),
        ("/load_balancer/services/0/http/certificates", json!([6])),
        ("/load_balancer/targets/0/health_status/0/status", json!("healthy")),
    ] {
        assert_eq!(one.at(pointer), &value, "{pointer}");
    }
    assert_eq!(api.get("/networks/4").at("/network/servers"), &json!([5]));
    assert_eq!(api.get("/networks/4").at("/network/load_balancers"), &json!([8]));
    assert_eq!(api.get("/certificates/6").at("/certificate/used_by/0/id"), 8);
    assert_eq!(api.call("DELETE", "/load_balancers/8", Value::Null).code(), "protected");

    // A new load balancer gets an ID and addresses that are different from those of all resources in `documents`.
    let request =
        json!({"name": "new", "load_balancer_type": "lb11", "location": "fsn1", "network": 4});
    let new = api.post("/load_balancers", request);
    let id = new.at("/load_balancer/id").as_u64().unwrap();
    assert!(id > 8);
    let new = api.get(&format!("/load_balancers/{id}"));
    assert_ne!(new.at("/load_balancer/public_net/ipv4/ip"), "203.0.113.1");
    assert_eq!(new.at("/load_balancer/private_net/0/ip"), "10.0.0.2");
    // The server with the ID 5 has no public IPv4 address, so a target without `use_private_ip` is refused.
    let target = json!({"type": "server", "server": {"id": 5}});
    let path = format!("/load_balancers/{id}/actions/add_target");
    assert_eq!(api.post(&path, target).code(), "missing_ipv4");
}

#[test]
fn a_document_that_cannot_be_put_is_refused_with_the_field() {
    let api = Api::new();
    let balancer = |more: Value| {
        let mut all = json!({"id": 1, "location": {"name": "fsn1"}, "load_balancer_type": {"name": "lb11"}, "services": [],
            "targets": []});
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"load_balancer": all})
    };
    for (document, says) in [
        (json!({}), "not one resource"),
        (json!({"server": {"name": "x"}}), "no ID"),
        (json!({"volume": {"id": 1}}), "no kind of resource: volume"),
        (json!({"network": {"id": 1, "ip_range": "10.0.0.1"}}), "ip_range"),
        (json!({"primary_ip": {"id": 1, "ip": "x"}}), "neither an IPv4 address nor a /64"),
        (balancer(json!({"location": {"name": "mars"}})), "location"),
        (balancer(json!({"load_balancer_type": {"name": "lb99"}})), "type"),
        (balancer(json!({"targets": [{"type": "moon"}]})), "or targets are not understood"),
        (balancer(json!({"private_net": [{"network": 4}]})), "private_net"),
    ] {
        let put = std::panic::AssertUnwindSafe(|| api.cloud.put(api.project, &document));
        let error = std::panic::catch_unwind(put).unwrap_err();
        let message = error.downcast_ref::<String>().unwrap();
        assert!(message.contains(says), "{message}");
    }
}
