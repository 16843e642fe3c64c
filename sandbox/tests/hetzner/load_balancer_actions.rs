//! Actions of load balancers: networks, public interface, type, reverse DNS, locks, failures and durations.

use std::time::{Duration, Instant};

use sandbox::hetzner::Cloud;
use serde_json::{Value, json};

use crate::api::{Api, TOKEN};
use crate::load_balancers::{create, expect, path, server};

#[test]
fn a_load_balancer_is_attached_to_one_network_at_a_time() {
    let api = Api::new();
    let net = api.cloud.create_network_with(
        api.project,
        "net",
        "10.0.0.0/16",
        &["10.0.0.0/24", "10.0.1.0/30"],
    );
    let other = api.cloud.create_network(api.project, "other", "10.1.0.0/16");
    let worker = server(&api, "worker", &[net]);
    let id = create(&api, "web", json!({}));
    let far = create(&api, "far", json!({"location": "ash"}));
    let unavailable = "ip_not_available";
    let attach = "attach_to_network";
    // The steps run in this order. Each step: the load balancer, the command of the action, the body of the request,
    // and the expected status and error code. The address 10.0.0.2 belongs to the server `worker`.
    let steps = [
        (id, attach, json!({}), 422, "invalid_input"),
        (id, attach, json!({"network": 1}), 404, "not_found"),
        (id, attach, json!({"network": net, "ip": "10.0.0.1"}), 422, unavailable),
        (id, attach, json!({"network": net, "ip": "10.0.0.2"}), 422, unavailable),
        (id, attach, json!({"network": net, "ip": "10.0.7.2"}), 422, unavailable),
        (
            id,
            attach,
            json!({"network": net, "ip_range": "10.0.7.0/24"}),
            422,
            "no_subnet_available",
        ),
        (
            id,
            attach,
            json!({"network": net, "ip": "10.0.0.9", "ip_range": "10.0.1.0/30"}),
            422,
            "invalid_input",
        ),
        (far, attach, json!({"network": net}), 422, "no_subnet_available"),
        (id, "disable_public_interface", Value::Null, 422, "load_balancer_not_attached_to_network"),
        (id, attach, json!({"network": net, "ip_range": "10.0.1.0/30"}), 201, ""),
        (id, attach, json!({"network": net}), 422, "load_balancer_already_attached"),
        (id, attach, json!({"network": other}), 422, "load_balancer_already_attached"),
        (id, "add_target", json!({"type": "server", "server": {"id": worker}}), 201, ""),
        (id, "disable_public_interface", Value::Null, 422, "targets_without_use_private_ip"),
        (id, "remove_target", json!({"type": "server", "server": {"id": worker}}), 201, ""),
        (
            id,
            "add_target",
            json!({"type": "server", "server": {"id": worker},
            "use_private_ip": true}),
            201,
            "",
        ),
        (id, "disable_public_interface", Value::Null, 201, ""),
        (id, "enable_public_interface", Value::Null, 201, ""),
        (id, "detach_from_network", json!({"network": other}), 404, "not_found"),
        (id, "detach_from_network", json!({"network": net}), 201, ""),
        (id, attach, json!({"network": net, "ip": "10.0.0.9"}), 201, ""),
    ];
    for (one, command, body, status, code) in steps {
        expect(&api, one, command, body, status, code);
    }
    let shown = api.get(&path(id));
    assert_eq!(
        shown.at("/load_balancer/private_net"),
        &json!([{"network": net, "ip": "10.0.0.9"}])
    );
    // Detaching the load balancer from its network has removed the target with a private address.
    assert_eq!(shown.at("/load_balancer/targets"), &json!([]));
    api.call("DELETE", &format!("/networks/{net}"), Value::Null);
    assert_eq!(api.get(&path(id)).at("/load_balancer/private_net"), &json!([]));
}

#[test]
fn reverse_dns_is_set_for_its_own_addresses() {
    let api = Api::new();
    let id = create(&api, "web", json!({}));
    let shown = api.get(&path(id));
    let (v4, v6) = (
        shown.at("/load_balancer/public_net/ipv4/ip").clone(),
        shown.at("/load_balancer/public_net/ipv6/ip").clone(),
    );
    let default = shown.at("/load_balancer/public_net/ipv4/dns_ptr").clone();
    assert!(default.is_string());
    // Each case: the public address, its new reverse DNS name, and the reverse DNS names that the IPv4 and the IPv6
    // address have afterwards.
    let cases = [
        (&v4, json!("lb.example.com"), json!("lb.example.com"), Value::Null),
        (&v6, json!("six.example.com"), json!("lb.example.com"), json!("six.example.com")),
        (&v4, Value::Null, default.clone(), json!("six.example.com")),
        (&v6, Value::Null, default.clone(), Value::Null),
    ];
    for (ip, name, four, six) in cases {
        expect(&api, id, "change_dns_ptr", json!({"ip": ip, "dns_ptr": name}), 201, "");
        let shown = api.get(&path(id));
        assert_eq!(shown.at("/load_balancer/public_net/ipv4/dns_ptr"), &four, "{ip} {name}");
        assert_eq!(shown.at("/load_balancer/public_net/ipv6/dns_ptr"), &six, "{ip} {name}");
    }
    for body in [json!({"ip": "192.0.2.77", "dns_ptr": "x.example.com"}), json!({"ip": v4})] {
        expect(&api, id, "change_dns_ptr", body, 422, "invalid_input");
    }
}

/// Returns one entry for each action: the last segment of its path, its `command` in the answer, the body of the
/// request, and the field of the load balancer that the action changes.
fn changes(worker: u64, network: u64) -> [(&'static str, &'static str, Value, &'static str); 9] {
    let target = json!({"type": "server", "server": {"id": worker}});
    let service = json!({"protocol": "tcp", "listen_port": 90, "destination_port": 1});
    [
        ("add_service", "add_service", service, "/services"),
        (
            "update_service",
            "update_service",
            json!({"listen_port": 80, "destination_port": 5}),
            "/services",
        ),
        ("delete_service", "delete_service", json!({"listen_port": 80}), "/services"),
        ("add_target", "add_target", target.clone(), "/targets"),
        (
            "change_algorithm",
            "change_algorithm",
            json!({"type": "least_connections"}),
            "/algorithm",
        ),
        (
            "change_type",
            "change_load_balancer_type",
            json!({"load_balancer_type": "lb31"}),
            "/load_balancer_type",
        ),
        ("change_protection", "change_protection", json!({"delete": true}), "/protection"),
        ("attach_to_network", "attach_to_network", json!({"network": network}), "/private_net"),
        ("remove_target", "remove_target", target, "/targets"),
    ]
}

#[test]
fn a_failed_action_has_no_effect_and_the_next_one_works() {
    let api = Api::new();
    let network = api.cloud.create_network(api.project, "net", "10.0.0.0/16");
    let worker = server(&api, "worker", &[]);
    let service = json!({"protocol": "tcp", "listen_port": 80, "destination_port": 1});
    let id = create(&api, "web", json!({"services": [service]}));
    for (path_command, command, body, pointer) in changes(worker, network) {
        let pointer = format!("/load_balancer{pointer}");
        let before = api.get(&path(id)).at(&pointer).clone();
        api.cloud.fail_next_action(command, "action_failed", "Action failed");
        let started = expect(&api, id, path_command, body.clone(), 201, "");
        let over = api.get(&format!("/actions?id={}", started.at("/action/id")));
        assert_eq!(over.at("/actions/0/command"), command);
        assert_eq!(over.at("/actions/0/status"), "error", "{command}");
        assert_eq!(over.at("/actions/0/resources/0"), &json!({"id": id, "type": "load_balancer"}));
        assert_eq!(api.get(&path(id)).at(&pointer), &before, "{command}");
        expect(&api, id, path_command, body, 201, "");
        assert_ne!(api.get(&path(id)).at(&pointer), &before, "{command}");
    }
    let listed = api.get(&format!("{}/actions?status=error&per_page=50", path(id)));
    assert_eq!(listed.body["actions"].as_array().map(Vec::len), Some(9));
    let listed = api.get("/load_balancers/actions?per_page=50");
    assert_eq!(listed.body["actions"].as_array().map(Vec::len), Some(18));
}

#[test]
fn a_running_action_locks_its_load_balancer_alone() {
    let api = Api::new();
    let network = api.cloud.create_network(api.project, "net", "10.0.0.0/16");
    let (one, two) = (create(&api, "one", json!({})), create(&api, "two", json!({})));
    api.cloud.hold_actions(true);
    expect(&api, one, "attach_to_network", json!({"network": network}), 201, "");
    expect(&api, two, "attach_to_network", json!({"network": network}), 409, "conflict");
    expect(&api, two, "change_algorithm", json!({"type": "least_connections"}), 201, "");
    let worker = server(&api, "worker", &[]);
    let service = json!({"protocol": "tcp", "listen_port": 90, "destination_port": 1});
    api.cloud.edit_load_balancer(one, |one| one["services"] = json!([service]));
    for (command, _, body, _) in changes(worker, network) {
        expect(&api, one, command, body, 423, "locked");
    }
    api.cloud.hold_actions(false);
    assert_eq!(api.get(&path(one)).at("/load_balancer/private_net/0/ip"), "10.0.0.2");
    expect(&api, one, "change_color", json!({}), 404, "not_found");
    let answer = api.get(&format!("{}/actions/add_target", path(one)));
    assert_eq!((answer.status, answer.code()), (405, "method_not_allowed"));
}

#[test]
fn a_test_can_set_the_duration_of_an_action() {
    let cloud = Cloud::new(1.0);
    let project = cloud.add_project();
    cloud.add_token(project, TOKEN, false);
    cloud.set_rate_limit(project, u32::MAX, u32::MAX);
    let api = Api { cloud, project };
    let id = create(&api, "web", json!({}));
    let run = |takes: Option<Duration>| {
        api.cloud.set_action_duration("change_algorithm", takes);
        let begin = Instant::now();
        let started = expect(&api, id, "change_algorithm", json!({"type": "round_robin"}), 201, "");
        let action = format!("/actions/{}", started.at("/action/id"));
        while api.get(&action).at("/action/status") == "running" {
            assert!(begin.elapsed() < Duration::from_secs(10), "the action never ends");
        }
        begin.elapsed()
    };
    assert!(run(Some(Duration::ZERO)) < Duration::from_millis(900));
    let slow = Duration::from_millis(1100);
    assert!(run(Some(slow)) >= slow);
}

#[test]
fn actions_of_a_held_load_balancer_do_not_end_and_others_do() {
    let api = Api::new();
    let ids = ["held", "free"].map(|name| create(&api, name, json!({})));
    api.cloud.hold_load_balancer(ids[0], true);
    let least = json!({"type": "least_connections"});
    for id in ids {
        expect(&api, id, "change_algorithm", least.clone(), 201, "");
    }
    let algorithm = |id| api.cloud.load_balancer(id)["algorithm"]["type"].clone();
    assert_eq!(ids.map(algorithm), ["round_robin", "least_connections"]);
    expect(&api, ids[0], "change_algorithm", least, 423, "locked");
    api.cloud.hold_load_balancer(ids[0], false);
    assert_eq!(algorithm(ids[0]), "least_connections");
}
