//! The requests about load balancers, certificates and Primary IPs that are checked against the OpenAPI document of the
//! Hetzner Cloud API.

use std::net::Ipv4Addr;

use sandbox::hetzner::{Health, Machine, ServerSpec};
use serde_json::{Value, json};

use super::Tour;

pub fn tour(tour: &mut Tour) {
    for path in [
        "/load_balancer_types",
        "/load_balancer_types?name=lb21&page=1&per_page=50",
        "/load_balancer_types/1",
        "/load_balancer_types/9",
    ] {
        tour.get(path);
    }
    primary_ips(tour);
    let certificate = certificates(tour);
    let id = create(tour);
    change(tour, id, &certificate);
    end(tour, id, &certificate);
}

fn primary_ips(tour: &mut Tour) {
    let body = json!({"name": "kept", "type": "ipv4", "location": "fsn1", "labels": {"a": "b"},
        "auto_delete": false, "assignee_type": "load_balancer"});
    let made = tour.call("POST", "/primary_ips", body);
    let id = made.at("/primary_ip/id").clone();
    let gone = tour.call(
        "POST",
        "/primary_ips",
        json!({"name": "gone", "type": "ipv6", "location": "fsn1"}),
    );
    for path in [
        "/primary_ips".to_owned(),
        "/primary_ips?name=kept&label_selector=a=b&sort=created:desc&page=1&per_page=50".into(),
        format!("/primary_ips?ip={}", made.at("/primary_ip/ip").as_str().unwrap_or_default()),
        format!("/primary_ips/{id}"),
    ] {
        tour.get(&path);
    }
    let path = format!("/primary_ips/{}", gone.at("/primary_ip/id"));
    assert_eq!(tour.call("DELETE", &path, Value::Null).status, 204);
    tour.get(&path);
}

/// Sends the requests about certificates, and returns the ID of an issued certificate.
fn certificates(tour: &mut Tour) -> Value {
    let body = |name: &str| json!({"name": name, "type": "managed", "domain_names": ["example.com"], "labels": {}});
    tour.api.cloud.hold_actions(true);
    let made = tour.call("POST", "/certificates", body("issued"));
    let id = made.at("/certificate/id").clone();
    tour.get(&format!("/certificates/{id}"));
    tour.call("DELETE", &format!("/certificates/{id}"), Value::Null);
    tour.api.cloud.hold_actions(false);
    tour.api.cloud.fail_next_action(
        "create_certificate",
        "dns_zone_not_found",
        "DNS zone not found",
    );
    let failed = tour.call("POST", "/certificates", body("failed"));
    let failed = format!("/certificates/{}", failed.at("/certificate/id"));
    tour.get(&failed);
    let retried = tour.call("POST", &format!("{failed}/actions/retry"), Value::Null);
    let action = retried.at("/action/id").clone();
    for path in [
        "/certificates?type=managed&type=uploaded&sort=name&page=1&per_page=50".to_owned(),
        format!("{failed}/actions?status=success&sort=id:desc"),
        format!("{failed}/actions/{action}"),
        format!("/certificates/actions/{action}"),
        "/certificates/actions".into(),
    ] {
        tour.get(&path);
    }
    tour.call("PUT", &failed, json!({"name": "renamed", "labels": {"a": "b"}}));
    tour.call("POST", "/certificates", body("issued"));
    id
}

fn create(tour: &mut Tour) -> u64 {
    let (cloud, project) = (tour.api.cloud.clone(), tour.api.project);
    let network = cloud.create_network(project, "balanced", "10.7.0.0/16");
    let worker = cloud.create_server(
        project,
        ServerSpec {
            name: "balanced".into(),
            networks: vec![(network, None)],
            labels: [("role".to_owned(), "web".to_owned())].into(),
            ..ServerSpec::default()
        },
    );
    cloud.add_dedicated_ip(project, Ipv4Addr::new(88, 198, 0, 7).into());
    let kept = cloud.primary_ips(project).into_iter().find(|ip| ip["name"] == "kept");
    let body = json!({
        "name": "web", "load_balancer_type": "lb11", "location": "fsn1", "labels": {"a": "b"},
        "algorithm": {"type": "round_robin"}, "network": network, "public_interface": true,
        "public_net": {"ipv4": kept.map(|ip| ip["id"].clone())},
        "services": [{
            "protocol": "tcp", "listen_port": 80, "destination_port": 30080, "proxyprotocol": false,
            "health_check": {"protocol": "tcp", "port": 30080, "interval": 15, "timeout": 10, "retries": 3},
        }],
        "targets": [
            {"type": "server", "server": {"id": worker}, "use_private_ip": true},
            {"type": "label_selector", "label_selector": {"selector": "role=web"}},
            {"type": "ip", "ip": {"ip": "88.198.0.7"}},
        ],
    });
    tour.api.cloud.hold_actions(true);
    let created = tour.call("POST", "/load_balancers", body.clone());
    assert_eq!(created.status, 201, "{}", created.body);
    tour.api.cloud.hold_actions(false);
    tour.call("POST", "/load_balancers", body);
    let id = created.at("/load_balancer/id").as_u64().unwrap_or_default();
    let detail = Health::unhealthy("layer7_timeout");
    cloud.set_health(id, Machine::Server(worker), None, Some(detail));
    for path in [
        "/load_balancers".to_owned(),
        "/load_balancers?name=web&label_selector=a=b&sort=id&page=1&per_page=50".into(),
        format!(
            "/load_balancers/{id}/metrics?type=open_connections&type=bandwidth\
             &start=2026-11-22T10:00:00Z&end=2026-11-22T10:10:00Z&step=60"
        ),
        format!("/load_balancers/{id}/metrics?type=nonsense"),
        format!("/load_balancers/{id}"),
        format!("/servers/{worker}"),
        format!("/networks/{network}"),
    ] {
        tour.get(&path);
    }
    tour.call("PUT", &format!("/load_balancers/{id}"), json!({"name": "new", "labels": {}}));
    id
}

fn change(tour: &mut Tour, id: u64, certificate: &Value) {
    let one = tour.api.cloud.load_balancer(id);
    let (network, ip) = (&one["private_net"][0]["network"], &one["public_net"]["ipv4"]["ip"]);
    let worker = one["targets"][0]["server"].clone();
    let check = json!({"protocol": "http", "port": 9, "interval": 15, "timeout": 10, "retries": 3, "http":
        {"domain": null, "path": "/healthz", "response": "ok", "status_codes": ["2??"], "tls": true}});
    let http = json!({"cookie_name": "C", "cookie_lifetime": 60, "certificates": [certificate],
        "redirect_http": false, "sticky_sessions": true, "timeout_idle": 90});
    let steps = [
        (
            "add_service",
            json!({"protocol": "https", "listen_port": 443, "destination_port": 1,
            "proxyprotocol": true, "http": http, "health_check": check}),
        ),
        ("update_service", json!({"listen_port": 443, "health_check": {"retries": 5}})),
        ("delete_service", json!({"listen_port": 80})),
        (
            "remove_target",
            json!({"type": "label_selector", "label_selector": {"selector": "role=web"}}),
        ),
        ("remove_target", json!({"type": "ip", "ip": {"ip": "88.198.0.7"}})),
        ("change_algorithm", json!({"type": "least_connections"})),
        ("change_type", json!({"load_balancer_type": "lb21"})),
        ("change_dns_ptr", json!({"ip": ip, "dns_ptr": "lb.example.com"})),
        ("disable_public_interface", Value::Null),
        ("enable_public_interface", Value::Null),
        ("remove_target", json!({"type": "server", "server": worker})),
        ("add_target", json!({"type": "server", "server": worker, "use_private_ip": false})),
        ("detach_from_network", json!({"network": network})),
        (
            "attach_to_network",
            json!({"network": network, "ip": "10.7.0.99", "ip_range": "10.7.0.0/24"}),
        ),
        ("change_protection", json!({"delete": true})),
    ];
    for (command, body) in steps {
        let path = format!("/load_balancers/{id}");
        let started = tour.call("POST", &format!("{path}/actions/{command}"), body);
        assert_eq!(started.status, 201, "{command}: {}", started.body);
        let action = started.at("/action/id").clone();
        tour.get(&path);
        tour.get(&format!("{path}/actions/{action}"));
        tour.get(&format!("/load_balancers/actions/{action}"));
    }
    let refused = [
        ("add_target", json!({"type": "server", "server": worker}), "target_already_defined"),
        ("disable_public_interface", Value::Null, "targets_without_use_private_ip"),
        ("attach_to_network", json!({"network": network}), "load_balancer_already_attached"),
    ];
    for (command, body, code) in refused {
        let answer = tour.call("POST", &format!("/load_balancers/{id}/actions/{command}"), body);
        assert_eq!(answer.code(), code);
    }
}

fn end(tour: &mut Tour, id: u64, certificate: &Value) {
    let path = format!("/load_balancers/{id}");
    tour.get(&format!("{path}/actions?status=success&sort=command&page=1&per_page=5"));
    tour.get("/load_balancers/actions?sort=finished:desc&page=2&per_page=5");
    tour.call("DELETE", &format!("/certificates/{certificate}"), Value::Null);
    tour.call("DELETE", &path, Value::Null);
    tour.call("POST", &format!("{path}/actions/change_protection"), json!({"delete": false}));
    assert_eq!(tour.call("DELETE", &path, Value::Null).status, 201);
    tour.get(&path);
    assert_eq!(
        tour.call("DELETE", &format!("/certificates/{certificate}"), Value::Null).status,
        204
    );
}
