//! Load balancers: creating, finding, changing and deleting them.

use sandbox::hetzner::ServerSpec;
use serde_json::{Value, json};

use crate::api::{Answer, Api};

/// Returns the path of a load balancer.
pub fn path(id: u64) -> String {
    format!("/load_balancers/{id}")
}

/// Creates a load balancer in fsn1 and returns its ID. The fields of `more` are added to the request.
pub fn create(api: &Api, name: &str, more: Value) -> u64 {
    api.cloud.create_load_balancer(api.project, order(name, more))
}

pub fn order(name: &str, more: Value) -> Value {
    let mut body = json!({"name": name, "load_balancer_type": "lb11", "location": "fsn1"});
    for (field, value) in more.as_object().into_iter().flatten() {
        body[field] = value.clone();
    }
    body
}

/// Creates a running server in these networks and returns its ID.
pub fn server(api: &Api, name: &str, networks: &[u64]) -> u64 {
    let server = ServerSpec {
        name: name.into(),
        networks: networks.iter().map(|network| (*network, None)).collect(),
        ..ServerSpec::default()
    };
    api.cloud.create_server(api.project, server)
}

/// Starts an action of a load balancer and checks the status and error code of the answer. For a success these are 201
/// and an empty code.
pub fn expect(api: &Api, id: u64, command: &str, body: Value, status: u16, code: &str) -> Answer {
    let answer = api.post(&format!("{}/actions/{command}", path(id)), body.clone());
    let seen = (answer.status, answer.code());
    assert_eq!(seen, (status, code), "{command} {body}: {}", answer.body);
    answer
}

#[test]
fn one_request_creates_a_whole_load_balancer() {
    let api = Api::new();
    let network = api.cloud.create_network(api.project, "net", "10.0.0.0/16");
    let worker = server(&api, "worker", &[network]);
    api.cloud.hold_actions(true);
    let created = api.post("/load_balancers", order("web", json!({
        "labels": {"a": "b"}, "algorithm": {"type": "least_connections"}, "network": network,
        "services": [{"protocol": "tcp", "listen_port": 80, "destination_port": 30080}],
        "targets": [{"type": "server", "server": {"id": worker}, "use_private_ip": true}],
    })));
    assert_eq!(created.status, 201, "{}", created.body);
    assert_eq!(created.at("/action/command"), "create_load_balancer");
    let id = created.at("/load_balancer/id").as_u64().unwrap_or_default();
    // The new load balancer has reserved a private address already, but shows its network only after the creation has
    // ended.
    assert_eq!(created.at("/load_balancer/private_net"), &json!([]));
    let again = api.call("DELETE", &path(id), Value::Null);
    assert_eq!((again.status, again.code()), (423, "locked"));
    api.cloud.hold_actions(false);

    let shown = api.get(&path(id));
    let expected = [
        ("/name", json!("web")),
        ("/labels", json!({"a": "b"})),
        ("/algorithm/type", json!("least_connections")),
        ("/location/name", json!("fsn1")),
        ("/load_balancer_type/name", json!("lb11")),
        ("/private_net", json!([{"network": network, "ip": "10.0.0.3"}])),
        ("/protection/delete", json!(false)),
        ("/public_net/enabled", json!(true)),
        (
            "/services/0/health_check",
            json!({
                "protocol": "tcp", "port": 30080, "interval": 15, "timeout": 10, "retries": 3,
            }),
        ),
        ("/services/0/http", Value::Null),
        ("/targets/0/server/id", json!(worker)),
        ("/targets/0/use_private_ip", json!(true)),
        ("/targets/0/health_status/0/listen_port", json!(80)),
    ];
    for (pointer, value) in expected {
        assert_eq!(shown.at(&format!("/load_balancer{pointer}")), &value, "{pointer}");
    }
    let net = api.get(&format!("/networks/{network}"));
    assert_eq!(net.at("/network/load_balancers"), &json!([id]));
    let worker = api.get(&format!("/servers/{worker}"));
    assert_eq!(worker.at("/server/load_balancers"), &json!([id]));
}

#[test]
fn an_invalid_load_balancer_is_refused() {
    let api = Api::new();
    let far = api.cloud.create_network_with(api.project, "empty", "10.0.0.0/16", &[]);
    let worker = server(&api, "worker", &[]);
    create(&api, "taken", json!({}));
    api.cloud.set_sold_out("lb31", "fsn1", true);
    api.cloud.deprecate_load_balancer_type("lb21", "2025-01-01T00:00:00Z", "2025-06-01T00:00:00Z");
    let tcp = |port: u16| json!({"protocol": "tcp", "listen_port": port, "destination_port": 1});
    let six: Vec<Value> = (1..=6).map(tcp).collect();
    let target = json!({"type": "server", "server": {"id": worker}});
    let private = json!({"type": "server", "server": {"id": worker}, "use_private_ip": true});
    let cases = [
        (json!({"name": ""}), 422, "invalid_input"),
        (json!({"name": "taken"}), 409, "uniqueness_error"),
        (json!({"load_balancer_type": "lb99"}), 422, "invalid_input"),
        (json!({"load_balancer_type": "lb21"}), 422, "invalid_input"),
        (json!({"load_balancer_type": "lb31"}), 412, "resource_unavailable"),
        (json!({"location": "moon1"}), 422, "invalid_input"),
        (json!({"location": null}), 422, "invalid_input"),
        (json!({"network_zone": "eu-central"}), 422, "invalid_input"),
        (json!({"algorithm": {"type": "random"}}), 422, "invalid_input"),
        (json!({"colour": "red"}), 422, "invalid_input"),
        (json!({"network": 1}), 404, "not_found"),
        (json!({"network": far}), 422, "no_subnet_available"),
        (json!({"services": [tcp(1), tcp(1)]}), 422, "source_port_already_used"),
        (json!({"services": six}), 403, "resource_limit_exceeded"),
        (json!({"targets": [target, target]}), 422, "target_already_defined"),
        (json!({"targets": [private]}), 422, "load_balancer_not_attached_to_network"),
        (json!({"public_net": {"ipv4": 1}}), 404, "not_found"),
    ];
    for (more, status, code) in cases {
        let answer = api.post("/load_balancers", order("new", more.clone()));
        assert_eq!((answer.status, answer.code()), (status, code), "{more}: {}", answer.body);
    }
    // There is only the load balancer `taken`, because all other requests so far were refused. The next request is
    // accepted. It has a network zone instead of a location.
    assert_eq!(api.cloud.load_balancers(api.project).len(), 1);
    let zone = json!({"location": null, "network_zone": "us-east"});
    let made = api.post("/load_balancers", order("new", zone));
    assert_eq!(made.at("/load_balancer/location/name"), "ash", "{}", made.body);
    api.cloud.set_load_balancer_limit(api.project, 2);
    let refused = api.post("/load_balancers", order("third", json!({})));
    assert_eq!((refused.status, refused.code()), (403, "resource_limit_exceeded"));
    assert!(refused.at("/error/details/limits/0/name").is_string());
}

#[test]
fn load_balancers_are_found_renamed_and_labelled() {
    let api = Api::new();
    let a = create(&api, "a", json!({"labels": {"env": "prod"}}));
    create(&api, "b", json!({"labels": {"env": "test"}}));
    let cases = [
        ("", vec!["a", "b"]),
        ("?sort=name:desc", vec!["b", "a"]),
        ("?name=b", vec!["b"]),
        ("?label_selector=env=prod", vec!["a"]),
        ("?page=2&per_page=1", vec!["b"]),
        ("?name=c", vec![]),
    ];
    for (query, names) in cases {
        let found = api.get(&format!("/load_balancers{query}"));
        assert_eq!(found.names("load_balancers"), names, "{query}: {}", found.body);
    }
    let cases = [
        (json!({"name": "b"}), 409, "uniqueness_error"),
        (json!({"algorithm": {"type": "round_robin"}}), 422, "invalid_input"),
        (json!({"name": "a", "labels": {"new": "1"}}), 200, ""),
        (json!({"name": "c"}), 200, ""),
    ];
    for (body, status, code) in cases {
        let answer = api.call("PUT", &path(a), body.clone());
        assert_eq!((answer.status, answer.code()), (status, code), "{body}");
    }
    let shown = api.get(&path(a));
    assert_eq!(shown.at("/load_balancer/name"), "c");
    assert_eq!(shown.at("/load_balancer/labels"), &json!({"new": "1"}));
    api.cloud.hold_actions(true);
    expect(&api, a, "change_algorithm", json!({"type": "least_connections"}), 201, "");
    let answer = api.call("PUT", &path(a), json!({"name": "d"}));
    assert_eq!((answer.status, answer.code()), (409, "conflict"));
}

#[test]
fn deleting_is_an_action_and_protection_prevents_it() {
    let api = Api::new();
    let network = api.cloud.create_network(api.project, "net", "10.0.0.0/16");
    let id = create(&api, "web", json!({"network": network}));
    expect(&api, id, "change_protection", json!({"delete": true}), 201, "");
    let refused = api.call("DELETE", &path(id), Value::Null);
    assert_eq!((refused.status, refused.code()), (423, "protected"));
    expect(&api, id, "change_protection", json!({"delete": false}), 201, "");

    api.cloud.fail_next_action("delete_load_balancer", "action_failed", "Action failed");
    assert_eq!(api.call("DELETE", &path(id), Value::Null).status, 201);
    assert_eq!(api.get(&path(id)).status, 200, "a failed deletion deletes nothing");

    let deleted = api.call("DELETE", &path(id), Value::Null);
    assert_eq!(deleted.at("/action/command"), "delete_load_balancer");
    let action = api.get(&format!("/load_balancers/actions/{}", deleted.at("/action/id")));
    assert_eq!(action.at("/action/status"), "success");
    assert_eq!(api.get(&path(id)).status, 404);
    let net = api.get(&format!("/networks/{network}"));
    assert_eq!(net.at("/network/load_balancers"), &json!([]));
    assert_eq!(api.cloud.primary_ips(api.project), Vec::<Value>::new());

    // With silent deletes, the API answers as the real API did before 2026-10-05: 204 without an action.
    api.cloud.set_silent_deletes(true);
    let id = create(&api, "old", json!({"network": network}));
    let deleted = api.call("DELETE", &path(id), Value::Null);
    assert_eq!((deleted.status, deleted.body), (204, Value::Null));
    assert_eq!(api.get(&path(id)).status, 404);
}

#[test]
fn a_load_balancer_that_could_not_be_created_leaves_nothing() {
    let api = Api::new();
    let network = api.cloud.create_network(api.project, "net", "10.0.0.0/16");
    api.cloud.fail_next_action("create_load_balancer", "action_failed", "Action failed");
    let body = order("web", json!({"network": network}));
    let created = api.post("/load_balancers", body.clone());
    let first = created.at("/load_balancer/id").as_u64().unwrap_or_default();
    assert_eq!(api.get(&path(first)).status, 404);
    assert_eq!(api.cloud.primary_ips(api.project), Vec::<Value>::new());
    let again = api.post("/load_balancers", body);
    let id = again.at("/load_balancer/id").as_u64().unwrap_or_default();
    let shown = api.get(&path(id));
    assert_eq!(shown.at("/load_balancer/private_net/0/ip"), "10.0.0.2");
}

#[test]
fn changes_by_hand_hold_until_the_api_changes_the_field() {
    let api = Api::new();
    let id = create(
        &api,
        "web",
        json!({
            "services": [{"protocol": "http", "listen_port": 80, "destination_port": 30080}],
        }),
    );
    api.cloud.edit_load_balancer(id, |one| {
        one["labels"]["by"] = "hand".into();
        one["algorithm"]["type"] = "least_connections".into();
        one["services"][0]["destination_port"] = 1.into();
        one["services"][0]["http"]["cookie_lifetime"] = 7.into();
        one["private_net"] = json!([{"network": 1, "ip": "192.0.2.1"}]);
    });
    let shown = api.get("/load_balancers?label_selector=by=hand");
    assert_eq!(shown.at("/load_balancers/0/services/0/destination_port"), 1);
    assert_eq!(shown.at("/load_balancers/0/services/0/http/cookie_lifetime"), 7);
    assert_eq!(shown.at("/load_balancers/0/private_net/0/network"), 1);
    expect(&api, id, "update_service", json!({"listen_port": 80, "destination_port": 2}), 201, "");
    expect(&api, id, "change_algorithm", json!({"type": "round_robin"}), 201, "");
    let shown = api.get(&path(id));
    assert_eq!(shown.at("/load_balancer/services/0/destination_port"), 2);
    assert_eq!(shown.at("/load_balancer/services/0/http/cookie_lifetime"), 7);
    assert_eq!(shown.at("/load_balancer/algorithm/type"), "round_robin");
    assert_eq!(shown.at("/load_balancer/private_net/0/network"), 1);
}

/// Every sample has the value that the test has set. Requests with an unknown type or an invalid time are refused.
#[test]
fn metrics_of_a_load_balancer_are_those_that_a_test_sets() {
    let api = Api::new();
    let id = create(&api, "web", json!({}));
    api.cloud.set_metric(id, "bandwidth.out", 1234.5);
    let of = |query: &str| api.get(&format!("{}/metrics?{query}", path(id)));
    let hour = "start=2026-11-22T10:00:00Z&end=2026-11-22T11:00:00Z";

    let both = of(&format!("type=bandwidth,open_connections&step=600&{hour}"));
    assert_eq!(both.status, 200, "{}", both.body);
    assert_eq!(both.at("/metrics/step"), 600);
    let series = |name: &str| both.at(&format!("/metrics/time_series/{name}/values"));
    assert_eq!(series("bandwidth.out").as_array().map(Vec::len), Some(6));
    assert_eq!(series("bandwidth.out")[0][1], "1234.5");
    assert_eq!(series("bandwidth.in")[5][1], "0");
    assert_eq!(series("open_connections")[5][1], "0");

    let adjusted = of(&format!("type=open_connections&step=1&{hour}"));
    assert_eq!(adjusted.at("/metrics/step"), 7);
    for refused in [
        hour,
        "type=nonsense&start=2026-11-22T10:00:00Z&end=2026-11-22T11:00:00Z",
        "type=bandwidth&end=2026-11-22T11:00:00Z",
        "type=bandwidth&start=2026-11-22T11:00:00Z&end=2026-11-22T10:00:00Z",
    ] {
        let answer = of(refused);
        assert_eq!((answer.status, answer.code()), (422, "invalid_input"), "{refused}");
    }
}
