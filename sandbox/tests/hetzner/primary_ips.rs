//! Primary IPs: addresses that can stay when their server or load balancer is deleted.

use sandbox::hetzner::ServerSpec;
use serde_json::{Value, json};

use crate::api::Api;
use crate::load_balancers::{create, order, path, server};

fn wanted(name: &str, kind: &str) -> Value {
    json!({"name": name, "type": kind, "location": "fsn1"})
}

#[test]
fn a_load_balancer_keeps_an_address_for_good() {
    let api = Api::new();
    let v4 = api.cloud.create_primary_ip(api.project, wanted("four", "ipv4"));
    let v6 = api.cloud.create_primary_ip(api.project, wanted("six", "ipv6"));
    let ip = api.get(&format!("/primary_ips/{v4}")).at("/primary_ip/ip").clone();
    let both = json!({"public_net": {"ipv4": v4, "ipv6": v6}});
    let id = create(&api, "web", both.clone());
    let shown = api.get(&path(id));
    assert_eq!(shown.at("/load_balancer/public_net/ipv4/ip"), &ip);
    assert_eq!(shown.at("/load_balancer/public_net/ipv6/id"), &json!(v6));
    let primary = api.get(&format!("/primary_ips/{v4}"));
    assert_eq!(primary.at("/primary_ip/assignee_type"), "load_balancer");
    assert_eq!(primary.at("/primary_ip/assignee_id"), id);
    let second = api.post("/load_balancers", order("second", both.clone()));
    assert_eq!((second.status, second.code()), (422, "primary_ip_assigned"));

    api.call("DELETE", &path(id), Value::Null);
    let primary = api.get(&format!("/primary_ips/{v4}"));
    assert_eq!(primary.at("/primary_ip/assignee_type"), "unassigned");
    assert_eq!(primary.at("/primary_ip/assignee_id"), &Value::Null);
    let again = api.get(&path(create(&api, "web", both)));
    assert_eq!(again.at("/load_balancer/public_net/ipv4/ip"), &ip);
}

#[test]
fn only_a_free_primary_ip_of_the_right_kind_can_be_assigned() {
    let api = Api::new();
    let add = |name: &str, kind: &str| api.cloud.create_primary_ip(api.project, wanted(name, kind));
    let (v4, v6, blocked) = (add("four", "ipv4"), add("six", "ipv6"), add("blocked", "ipv4"));
    api.cloud.block_primary_ip(blocked, true);
    let far = json!({"name": "far", "type": "ipv4", "location": "ash"});
    let far = api.cloud.create_primary_ip(api.project, far);
    let cases = [
        (json!({"ipv4": v6}), "primary_ip_version_mismatch"),
        (json!({"ipv6": v4}), "primary_ip_version_mismatch"),
        (json!({"ipv4": far}), "primary_ip_datacenter_mismatch"),
        (json!({"ipv4": blocked}), "invalid_input"),
        (json!({"ipv4": "four"}), "invalid_input"),
        (json!({"ipv4": 1}), "not_found"),
    ];
    for (public_net, code) in cases {
        let more = json!({"public_net": public_net});
        let answer = api.post("/load_balancers", order("web", more.clone()));
        assert_eq!(answer.code(), code, "{more}: {}", answer.body);
    }
}

#[test]
fn primary_ips_are_made_found_changed_and_deleted() {
    let api = Api::new();
    let mut body = wanted("four", "ipv4");
    body["labels"] = json!({"a": "b"});
    body["assignee_type"] = "load_balancer".into();
    let made = api.post("/primary_ips", body.clone());
    assert_eq!(made.status, 201, "{}", made.body);
    let id = made.at("/primary_ip/id").clone();
    let ip = made.at("/primary_ip/ip").as_str().unwrap_or_default();
    let holder = create(&api, "web", json!({}));
    let with = |field: &str, value: Value| {
        let mut changed = wanted("new", "ipv4");
        changed[field] = value;
        changed
    };
    let cases = [
        (body, 409, "uniqueness_error"),
        (with("type", "ipv5".into()), 422, "invalid_input"),
        (with("location", Value::Null), 422, "invalid_input"),
        (with("location", "moon1".into()), 422, "invalid_input"),
        (
            json!({"name": "new", "type": "ipv4", "assignee_type": "load_balancer",
            "assignee_id": holder}),
            422,
            "invalid_input",
        ),
    ];
    for (body, status, code) in cases {
        let answer = api.post("/primary_ips", body);
        assert_eq!((answer.status, answer.code()), (status, code), "{}", answer.body);
    }
    let allocated = api.get(&path(holder)).at("/load_balancer/public_net/ipv4/id").clone();
    for query in [format!("ip={ip}"), "name=four".into(), "label_selector=a=b".into()] {
        let found = api.get(&format!("/primary_ips?{query}"));
        assert_eq!(found.names("primary_ips"), ["four"], "{query}");
    }
    let refused = api.call("DELETE", &format!("/primary_ips/{allocated}"), Value::Null);
    assert_eq!((refused.status, refused.code()), (422, "must_be_unassigned"));
    let own = format!("/primary_ips/{id}");
    let protect =
        |on: bool| api.post(&format!("{own}/actions/change_protection"), json!({"delete": on}));
    assert_eq!(protect(true).status, 201);
    assert_eq!(api.call("DELETE", &own, Value::Null).code(), "protected");
    protect(false);
    let changed = api.call("PUT", &own, json!({"name": "new", "auto_delete": true}));
    assert_eq!(changed.at("/primary_ip/auto_delete"), &json!(true));
    assert_eq!(api.call("DELETE", &own, Value::Null).status, 204);
    assert_eq!(api.get(&own).status, 404);
}

#[test]
fn servers_have_primary_ips_too() {
    let api = Api::new();
    let plain = server(&api, "plain", &[]);
    let shown = api.get(&format!("/servers/{plain}"));
    let v4 = shown.at("/server/public_net/ipv4/id").clone();
    let own = format!("/primary_ips/{v4}");
    assert_eq!(api.get(&own).at("/primary_ip/assignee_id"), plain);
    let bare = api.cloud.create_server(
        api.project,
        ServerSpec { name: "bare".into(), ipv4: false, ..ServerSpec::default() },
    );
    let assign = |server: u64| json!({"assignee_id": server, "assignee_type": "server"});
    let target = json!({"targets": [{"type": "server", "server": {"id": plain}}]});
    let load_balancer = create(&api, "web", target);
    // Each step: the command of an action of the Primary IP, the body of the request, and the error code of the answer.
    // The steps run in this order.
    let steps: [(&str, Value, &str); 3] = [
        ("assign", assign(plain), "server_not_stopped"),
        ("unassign", Value::Null, "server_not_stopped"),
        ("assign", assign(1), "not_found"),
    ];
    for (command, body, code) in steps {
        let answer = api.post(&format!("{own}/actions/{command}"), body);
        assert_eq!(answer.code(), code, "{command}: {}", answer.body);
    }
    api.cloud.set_power(plain, false);
    api.cloud.set_power(bare, false);
    let act = |command: &str, body: Value| api.post(&format!("{own}/actions/{command}"), body);
    assert_eq!(act("unassign", Value::Null).code(), "server_is_load_balancer_target");
    api.cloud.delete_load_balancer(load_balancer);
    assert_eq!(act("assign", assign(plain)).code(), "server_has_ipv4");
    assert_eq!(act("assign", assign(bare)).code(), "primary_ip_assigned");
    assert_eq!(act("unassign", Value::Null).status, 201);
    let shown = api.get(&format!("/servers/{plain}"));
    assert_eq!(shown.at("/server/public_net/ipv4"), &Value::Null);
    assert_eq!(act("assign", assign(bare)).status, 201);
    let shown = api.get(&format!("/servers/{bare}"));
    assert_eq!(shown.at("/server/public_net/ipv4/id"), &v4);

    // When `auto_delete` is off, the Primary IP stays when its server is deleted, and a new server can use it.
    api.call("PUT", &own, json!({"auto_delete": false}));
    api.cloud.delete_server(bare);
    assert_eq!(api.get(&own).at("/primary_ip/assignee_type"), "unassigned");
    let made = api.post(
        "/servers",
        json!({"name": "new", "server_type": "cx23", "image": "debian-12",
        "location": "fsn1", "public_net": {"ipv4": v4, "enable_ipv6": false}}),
    );
    assert_eq!(made.at("/server/public_net/ipv4/id"), &v4, "{}", made.body);
    assert_eq!(made.at("/server/public_net/ipv6"), &Value::Null);
}
