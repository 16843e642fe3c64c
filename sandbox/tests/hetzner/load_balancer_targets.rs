//! Targets of load balancers: which targets are allowed, how many, and their health.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use sandbox::hetzner::{Cloud, Health, Machine, ServerSpec};
use serde_json::{Value, json};

use crate::api::{Api, TOKEN};
use crate::load_balancers::{create, expect, path, server};

fn target(id: u64, private: bool) -> Value {
    json!({"type": "server", "server": {"id": id}, "use_private_ip": private})
}

fn ip(ip: &str) -> Value {
    json!({"type": "ip", "ip": {"ip": ip}})
}

fn labelled(selector: &str, private: bool) -> Value {
    json!({"type": "label_selector", "label_selector": {"selector": selector}, "use_private_ip": private})
}

#[test]
fn targets_are_accepted_or_refused_by_the_rules() {
    let api = Api::new();
    let network = api.cloud.create_network(api.project, "net", "10.0.0.0/16");
    let vswitch = json!({"type": "vswitch", "network_zone": "eu-central", "ip_range": "10.0.9.0/24",
        "vswitch_id": 7});
    api.post(&format!("/networks/{network}/actions/add_subnet"), vswitch);
    let (inside, outside) = (server(&api, "inside", &[network]), server(&api, "outside", &[]));
    let hidden = api.cloud.create_server(
        api.project,
        ServerSpec {
            name: "hidden".into(),
            ipv4: false,
            labels: [("no".to_owned(), "address".to_owned())].into(),
            ..ServerSpec::default()
        },
    );
    let cloud_ip = api.cloud.servers(api.project)[0]["public_net"]["ipv4"]["ip"].clone();
    let cloud_ip = cloud_ip.as_str().unwrap_or_default();
    let dedicated = IpAddr::from(Ipv4Addr::new(88, 198, 0, 7));
    api.cloud.add_dedicated_ip(api.project, dedicated);
    api.cloud.add_dedicated_ip(api.project + 1, Ipv4Addr::new(88, 198, 0, 8).into());
    let id = create(&api, "web", json!({}));
    let (not_attached, taken) = ("load_balancer_not_attached_to_network", "target_already_defined");
    // Each step: the command of the action, the body of the request, and the expected status and error code. The steps
    // run in this order on the same load balancer.
    let steps = [
        ("add_target", target(1, false), 404, "not_found"),
        ("add_target", target(inside, true), 422, not_attached),
        ("add_target", ip("10.0.9.5"), 422, not_attached),
        ("attach_to_network", json!({"network": network}), 201, ""),
        ("add_target", target(inside, true), 201, ""),
        ("add_target", target(inside, false), 422, taken),
        ("add_target", target(outside, true), 422, "server_not_attached_to_network"),
        ("add_target", target(outside, false), 201, ""),
        ("add_target", target(hidden, false), 422, "missing_ipv4"),
        ("add_target", labelled("no=address", false), 422, "missing_ipv4"),
        ("add_target", labelled("no in", false), 422, "invalid_input"),
        ("add_target", labelled("some=thing", true), 201, ""),
        ("add_target", labelled("some=thing", false), 422, taken),
        ("add_target", ip(cloud_ip), 422, "cloud_resource_ip_not_allowed"),
        ("add_target", ip("10.0.0.2"), 422, "cloud_resource_ip_not_allowed"),
        ("add_target", ip("10.0.5.2"), 422, "ip_not_owned"),
        ("add_target", ip("10.0.9.5"), 201, ""),
        ("add_target", ip("88.198.0.8"), 422, "ip_not_owned"),
        ("add_target", ip("88.198.0.9"), 422, "ip_not_owned"),
        ("add_target", ip("88.198.0.7"), 201, ""),
        ("add_target", ip("88.198.0.7"), 422, taken),
        ("add_target", ip("nonsense"), 422, "invalid_input"),
        ("add_target", json!({"type": "ip"}), 422, "invalid_input"),
        ("add_target", json!({"type": "pod", "pod": {"id": 1}}), 422, "invalid_input"),
        ("remove_target", ip("88.198.0.9"), 404, "load_balancer_target_not_found"),
        ("remove_target", ip("88.198.0.7"), 201, ""),
        ("remove_target", json!({"type": "server", "server": {"id": outside}}), 201, ""),
        ("disable_public_interface", Value::Null, 201, ""),
        ("add_target", target(outside, false), 422, "load_balancer_public_interface_disabled"),
    ];
    for (command, body, status, code) in steps {
        expect(&api, id, command, body, status, code);
    }
    let shown = api.get(&path(id));
    let targets = shown.at("/load_balancer/targets");
    assert_eq!(targets.as_array().map(Vec::len), Some(3), "{targets}");
}

#[test]
fn label_selectors_follow_the_servers_and_count() {
    let api = Api::new();
    let labels = |value: &str| [("role".to_owned(), value.to_owned())].into();
    let add = |number: usize| {
        api.cloud.create_server(
            api.project,
            ServerSpec {
                name: format!("web-{number}"),
                labels: labels("web"),
                ..ServerSpec::default()
            },
        )
    };
    let first = add(0);
    let id = create(&api, "web", json!({"targets": [labelled("role=web", false)]}));
    let selected = || {
        let shown = api.get(&path(id));
        let targets = shown.at("/load_balancer/targets/0/targets").as_array().cloned();
        let ids = targets.unwrap_or_default().into_iter().map(|one| one["server"]["id"].clone());
        ids.collect::<Vec<_>>()
    };
    assert_eq!(selected(), [first]);
    let more: Vec<u64> = (1..25).map(add).collect();
    assert_eq!(selected().len(), 25);
    let other = server(&api, "other", &[]);
    expect(&api, id, "add_target", target(other, false), 403, "resource_limit_exceeded");
    api.call("PUT", &format!("/servers/{first}"), json!({"labels": {}}));
    assert_eq!(selected().first(), Some(&json!(more[0])));
    expect(&api, id, "add_target", target(other, false), 201, "");
    expect(
        &api,
        id,
        "remove_target",
        json!({"type": "label_selector",
        "label_selector": {"selector": "role=web"}}),
        201,
        "",
    );
    assert_eq!(api.get(&path(id)).at("/load_balancer/targets/0/server/id"), other);
}

#[test]
fn a_deleted_server_is_no_target_any_more() {
    let api = Api::new();
    let (gone, kept) = (server(&api, "gone", &[]), server(&api, "kept", &[]));
    let id = create(&api, "web", json!({"targets": [target(gone, false), target(kept, false)]}));
    api.call("DELETE", &format!("/servers/{gone}"), Value::Null);
    let shown = api.get(&path(id));
    assert_eq!(shown.at("/load_balancer/targets/0/server/id"), kept);
    assert_eq!(shown.at("/load_balancer/targets/1"), &Value::Null);
}

#[test]
fn health_follows_the_server_and_the_test() {
    let api = Api::new();
    let worker = server(&api, "worker", &[]);
    let tcp = |port: u16| json!({"protocol": "tcp", "listen_port": port, "destination_port": 1});
    let id = create(
        &api,
        "web",
        json!({"services": [tcp(80), tcp(81)], "targets": [target(worker, false)]}),
    );
    let health = || {
        let shown = api.get(&path(id));
        let status = shown.at("/load_balancer/targets/0/health_status").clone();
        let show = |port: usize| {
            let entry = &status[port];
            let text = |field: &str| entry[field].as_str().unwrap_or("-").to_owned();
            format!("{} {} {}", text("status"), text("detail"), entry["http_status_code"])
        };
        [show(0), show(1)]
    };
    let both = |text: &str| [text.to_owned(), text.to_owned()];
    let set = |port, health| api.cloud.set_health(id, Machine::Server(worker), port, health);
    assert_eq!(health(), both("healthy - null"));
    api.cloud.set_power(worker, false);
    assert_eq!(health(), both("unhealthy layer4_timeout null"));
    api.cloud.set_power(worker, true);
    assert_eq!(health(), both("healthy - null"));
    set(None, Some(Health::unhealthy("layer4_no_connection")));
    let mut odd = Health::unhealthy("unexpected_http_status");
    odd.http_status_code = Some(503);
    set(Some(81), Some(odd));
    let expected = ["unhealthy layer4_no_connection null", "unhealthy unexpected_http_status 503"];
    assert_eq!(health(), expected);
    set(None, None);
    assert_eq!(health(), ["healthy - null", "unhealthy unexpected_http_status 503"]);
    set(Some(81), Some(Health::healthy()));
    assert_eq!(health(), both("healthy - null"));
}

/// The cloud simulates all durations at half of their real length. At a smaller scale, the first health check could be
/// over before the test sees the status `unknown`.
#[test]
fn health_is_unknown_at_first_and_a_server_that_starts_needs_a_moment() {
    let cloud = Cloud::new(0.5);
    let project = cloud.add_project();
    cloud.add_token(project, TOKEN, false);
    let api = Api { cloud, project };
    let worker = server(&api, "worker", &[]);
    let service = json!({"protocol": "tcp", "listen_port": 80, "destination_port": 1});
    let more = json!({"services": [service], "targets": [target(worker, false)]});
    let id = create(&api, "web", more);
    let health = || {
        let one = api.cloud.load_balancer(id);
        one["targets"][0]["health_status"][0].clone()
    };
    let wait_for_health = || {
        let begin = Instant::now();
        while health()["status"] != "healthy" {
            assert!(begin.elapsed() < Duration::from_secs(20), "never healthy");
            std::thread::yield_now();
        }
    };
    assert_eq!(health()["status"], "unknown");
    wait_for_health();
    api.cloud.set_power(worker, false);
    assert_eq!(health()["detail"], "layer4_timeout");
    api.cloud.set_power(worker, true);
    assert_eq!(health()["detail"], "layer4_no_connection");
    wait_for_health();
}

#[test]
fn a_server_that_left_the_network_does_not_answer() {
    let api = Api::new();
    let network = api.cloud.create_network(api.project, "net", "10.0.0.0/16");
    let worker = server(&api, "worker", &[network]);
    let service = json!({"protocol": "tcp", "listen_port": 80, "destination_port": 1});
    let more =
        json!({"network": network, "services": [service], "targets": [target(worker, true)]});
    let id = create(&api, "web", more);
    let status = || api.cloud.load_balancer(id)["targets"][0]["health_status"][0]["status"].clone();
    assert_eq!(status(), "healthy");
    let body = json!({"network": network});
    api.post(&format!("/servers/{worker}/actions/detach_from_network"), body.clone());
    assert_eq!(status(), "unhealthy");
    api.post(&format!("/servers/{worker}/actions/attach_to_network"), body);
    assert_eq!(status(), "healthy");
}
