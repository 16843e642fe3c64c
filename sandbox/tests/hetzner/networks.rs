//! Tests of networks, their subnets and their routes.

use sandbox::hetzner::ServerSpec;
use serde_json::{Value, json};

use crate::api::Api;

#[test]
fn networks_are_created_by_the_rules() {
    let api = Api::new();
    api.cloud.create_network(api.project, "taken", "10.0.0.0/16");
    let with = |changes: Value| {
        let mut body = json!({"name": "net", "ip_range": "10.0.0.0/16"});
        body.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        body
    };
    let subnet =
        |range: &str| json!({"type": "cloud", "network_zone": "eu-central", "ip_range": range});
    let cases = [
        (with(json!({"name": "taken"})), 409, "uniqueness_error"),
        (with(json!({"name": ""})), 422, "invalid_input"),
        (with(json!({"name": null})), 422, "invalid_input"),
        (with(json!({"ip_range": null})), 422, "invalid_input"),
        (with(json!({"ip_range": "8.8.0.0/16"})), 422, "invalid_input"),
        (with(json!({"ip_range": "10.0.0.0/25"})), 422, "invalid_input"),
        (with(json!({"ip_range": "10.0.0.1/16"})), 422, "invalid_input"),
        (with(json!({"ip_range": "172.0.0.0/8"})), 422, "invalid_input"),
        (with(json!({"ip_range": "fd00::/64"})), 422, "invalid_input"),
        (with(json!({"subnets": [subnet("10.1.0.0/24")]})), 422, "invalid_input"),
        (
            with(json!({"subnets": [subnet("10.0.0.0/24"), subnet("10.0.0.128/25")]})),
            422,
            "invalid_input",
        ),
        (with(json!({"subnets": [subnet("10.0.0.0/31")]})), 422, "invalid_input"),
        (with(json!({"subnets": [{"type": "cloud"}]})), 422, "invalid_input"),
        (
            with(json!({"subnets": [{"type": "fog", "network_zone": "eu-central"}]})),
            422,
            "invalid_input",
        ),
        (
            with(json!({"subnets": [{"type": "vswitch", "network_zone": "eu-central"}]})),
            422,
            "invalid_input",
        ),
        (
            with(json!({"routes": [{"destination": "10.1.0.0/24", "gateway": "10.0.0.1"}]})),
            422,
            "invalid_input",
        ),
        (with(json!({"labels": {"a": "b"}, "expose_routes_to_vswitch": true})), 201, ""),
    ];
    for (body, status, code) in cases {
        let answer = api.post("/networks", body.clone());
        assert_eq!((answer.status, answer.code()), (status, code), "{body}: {}", answer.body);
    }
}

#[test]
fn subnets_and_routes_are_shown_with_what_was_filled_in() {
    let api = Api::new();
    let answer = api.post("/networks", json!({
        "name": "net", "ip_range": "10.0.0.0/8",
        "subnets": [
            {"type": "cloud", "network_zone": "eu-central"},
            {"type": "server", "network_zone": "eu-central", "ip_range": null},
            {"type": "vswitch", "network_zone": "eu-central", "ip_range": "10.0.9.0/24", "vswitch_id": 7},
        ],
        "routes": [{"destination": "10.244.0.0/24", "gateway": "10.0.0.2"}],
    }));
    let subnet = |index: usize| answer.at(&format!("/network/subnets/{index}")).clone();
    let expected = |kind: &str, range: &str, gateway: &str, vswitch: Value| json!({"type": kind, "ip_range": range, "network_zone": "eu-central", "gateway": gateway, "vswitch_id": vswitch});
    assert_eq!(subnet(0), expected("cloud", "10.0.0.0/24", "10.0.0.1", Value::Null));
    assert_eq!(subnet(1), expected("server", "10.0.1.0/24", "10.0.0.1", Value::Null));
    assert_eq!(subnet(2), expected("vswitch", "10.0.9.0/24", "10.0.9.1", json!(7)));
    assert_eq!(
        answer.at("/network/routes"),
        &json!([{"destination": "10.244.0.0/24", "gateway": "10.0.0.2"}])
    );
}

#[test]
fn changes_of_a_network_are_checked() {
    let api = Api::new();
    let network =
        format!("/networks/{}", api.cloud.create_network(api.project, "net", "10.0.0.0/16"));
    let vswitch = json!({"type": "vswitch", "network_zone": "eu-central", "ip_range": "10.0.200.0/24", "vswitch_id": 1});
    let subnet =
        |zone: &str, range: &str| json!({"type": "cloud", "network_zone": zone, "ip_range": range});
    let route =
        |destination: &str, gateway: &str| json!({"destination": destination, "gateway": gateway});
    // Each case: the command of the action, the body of the request, and the expected status and error code. The cases
    // run in this order on the same network.
    let cases = [
        ("add_subnet", vswitch, 201, ""),
        ("add_subnet", subnet("us-east", "10.0.1.0/24"), 422, "invalid_input"),
        ("add_subnet", subnet("eu-central", "10.0.0.0/25"), 422, "invalid_input"),
        ("add_subnet", subnet("eu-central", "10.0.1.0/24"), 201, ""),
        ("add_route", route("10.244.0.0/24", "10.0.0.2"), 201, ""),
        ("add_route", route("10.244.0.0/24", "10.0.0.2"), 422, "invalid_input"),
        ("add_route", route("10.244.0.0/24", "10.0.0.3"), 422, "invalid_input"),
        ("add_route", route("10.244.0.128/25", "10.0.0.3"), 422, "invalid_input"),
        ("add_route", route("10.0.1.0/24", "10.0.0.3"), 422, "invalid_input"),
        ("add_route", route("10.0.2.0/24", "10.0.0.3"), 201, ""),
        ("add_route", route("8.8.8.0/24", "10.0.0.3"), 422, "invalid_input"),
        ("add_route", route("172.31.0.0/16", "10.0.0.3"), 422, "invalid_input"),
        ("add_route", route("10.244.1.1/24", "10.0.0.3"), 422, "invalid_input"),
        ("add_route", route("fd00::/64", "10.0.0.3"), 422, "invalid_input"),
        ("add_route", route("10.244.1.0/24", "10.1.0.3"), 422, "invalid_input"),
        ("add_route", route("10.244.1.0/24", "10.0.0.1"), 422, "invalid_input"),
        ("add_route", route("10.244.1.0/24", "10.0.200.9"), 422, "invalid_input"),
        ("add_route", json!({"destination": "10.244.1.0/24"}), 422, "invalid_input"),
        ("add_route", route("0.0.0.0/0", "10.0.0.9"), 201, ""),
        ("add_route", route("0.0.0.0/0", "10.0.0.8"), 422, "invalid_input"),
        ("add_subnet", subnet("eu-central", "10.0.2.0/25"), 422, "invalid_input"),
        ("delete_route", route("10.244.0.0/24", "10.0.0.3"), 404, "not_found"),
        ("delete_route", route("10.244.0.0/24", "10.0.0.2"), 201, ""),
        ("delete_route", route("10.244.0.0/24", "10.0.0.2"), 404, "not_found"),
        ("delete_subnet", json!({"ip_range": "10.0.1.0/25"}), 404, "not_found"),
        ("delete_subnet", json!({"ip_range": "10.0.1.0/24"}), 201, ""),
        ("change_ip_range", json!({"ip_range": "10.0.0.0/17"}), 422, "invalid_input"),
        ("change_ip_range", json!({"ip_range": "10.1.0.0/16"}), 422, "invalid_input"),
        ("change_ip_range", json!({"ip_range": "10.0.0.0/15"}), 201, ""),
        ("change_protection", json!({"delete": "yes"}), 422, "invalid_input"),
        ("change_protection", json!({"delete": true}), 201, ""),
    ];
    for (command, body, status, code) in cases {
        let answer = api.post(&format!("{network}/actions/{command}"), body.clone());
        assert_eq!(
            (answer.status, answer.code()),
            (status, code),
            "{command} {body}: {}",
            answer.body
        );
        if status == 201 {
            assert_eq!(answer.at("/action/command"), command);
            assert_eq!(answer.at("/action/resources/0/type"), "network");
        }
    }
    let shown = api.get(&network);
    assert_eq!(shown.at("/network/ip_range"), "10.0.0.0/15");
    let routes = json!([route("10.0.2.0/24", "10.0.0.3"), route("0.0.0.0/0", "10.0.0.9")]);
    assert_eq!(shown.at("/network/routes"), &routes);
    let refused = api.call("DELETE", &network, Value::Null);
    assert_eq!((refused.status, refused.code()), (423, "protected"));
}

#[test]
fn a_network_has_at_most_100_routes_and_50_subnets() {
    let api = Api::new();
    let id = api.cloud.create_network_with(api.project, "net", "10.0.0.0/8", &[]);
    for number in 0..=100 {
        let route = json!({"destination": format!("10.244.{number}.0/24"), "gateway": "10.0.0.2"});
        let answer = api.post(&format!("/networks/{id}/actions/add_route"), route);
        let expected = if number < 100 { (201, "") } else { (403, "resource_limit_exceeded") };
        assert_eq!((answer.status, answer.code()), expected, "route {number}");
    }
    for number in 0..=50 {
        let subnet = json!({"type": "cloud", "network_zone": "eu-central"});
        let answer = api.post(&format!("/networks/{id}/actions/add_subnet"), subnet);
        let expected = if number < 50 { (201, "") } else { (403, "resource_limit_exceeded") };
        assert_eq!((answer.status, answer.code()), expected, "subnet {number}");
    }
}

#[test]
fn a_network_allows_one_change_at_a_time() {
    let api = Api::new();
    let network =
        format!("/networks/{}", api.cloud.create_network(api.project, "net", "10.0.0.0/16"));
    api.cloud.hold_actions(true);
    let route =
        |number: u8| json!({"destination": format!("10.244.{number}.0/24"), "gateway": "10.0.0.2"});
    assert_eq!(api.post(&format!("{network}/actions/add_route"), route(1)).status, 201);
    assert_eq!(api.get(&network).at("/network/routes"), &json!([]));
    let cases = [
        ("POST", "/actions/add_route", route(2)),
        ("POST", "/actions/change_protection", json!({"delete": true})),
        ("PUT", "", json!({"name": "other"})),
        ("DELETE", "", Value::Null),
    ];
    for (method, path, body) in cases {
        let answer = api.call(method, &format!("{network}{path}"), body);
        assert_eq!((answer.status, answer.code()), (409, "conflict"), "{method} {path}");
    }
    api.cloud.hold_actions(false);
    assert_eq!(api.post(&format!("{network}/actions/add_route"), route(2)).status, 201);
    assert_eq!(api.get(&network).at("/network/routes"), &json!([route(1), route(2)]));
}

#[test]
fn networks_are_renamed_and_deleted() {
    let api = Api::new();
    let id = api.cloud.create_network(api.project, "net", "10.0.0.0/16");
    api.cloud.create_network(api.project, "other", "10.0.0.0/16");
    let spec = ServerSpec { networks: vec![(id, None)], ..ServerSpec::default() };
    let server = api.cloud.create_server(api.project, spec);
    let network = format!("/networks/{id}");
    assert_eq!(api.get(&network).at("/network/servers"), &json!([server]));

    assert_eq!(api.call("PUT", &network, json!({"name": "other"})).code(), "uniqueness_error");
    let changed = api.call("PUT", &network, json!({"name": "net", "labels": {"a": "b"}}));
    assert_eq!((changed.status, changed.at("/network/labels")), (200, &json!({"a": "b"})));
    let renamed = api.call("PUT", &network, json!({"name": "new"}));
    assert_eq!(
        (renamed.at("/network/name"), renamed.at("/network/labels")),
        (&json!("new"), &json!({"a": "b"}))
    );
    assert_eq!(api.get("/networks?label_selector=a=b").names("networks"), ["new"]);
    assert_eq!(api.get("/networks?name=other").names("networks"), ["other"]);

    let refused =
        api.post(&format!("{network}/actions/delete_subnet"), json!({"ip_range": "10.0.0.0/24"}));
    assert_eq!(refused.code(), "service_error", "a server is in it");
    let deleted = api.call("DELETE", &network, Value::Null);
    assert_eq!((deleted.status, deleted.body), (204, Value::Null));
    assert_eq!(api.get(&network).status, 404);
    assert_eq!(api.get(&format!("/servers/{server}")).at("/server/private_net"), &json!([]));
}
