//! SSH keys, firewalls and images: the rules for them, and their use by new servers.

use serde_json::{Value, json};

use crate::api::Api;

fn key(name: &str, key: &str) -> Value {
    json!({"name": name, "public_key": format!("ssh-ed25519 AAAA{key} me@here"), "labels": {"a": "b"}})
}

fn rule(change: Value) -> Value {
    let mut rule = json!({"direction": "in", "protocol": "tcp", "port": "22", "source_ips": ["0.0.0.0/0", "::/0"]});
    for (name, value) in change.as_object().expect("an object") {
        rule[name] = value.clone();
    }
    rule
}

#[test]
fn a_key_is_kept_once() {
    let api = Api::new();
    let made = api.post("/ssh_keys", key("own", "x"));
    assert_eq!(made.status, 201, "{}", made.body);
    let own = made.at("/ssh_key").clone();
    assert_eq!(own["public_key"], key("own", "x")["public_key"]);
    let fingerprint = own["fingerprint"].as_str().expect("a fingerprint");
    assert_eq!(fingerprint.len(), 16 * 3 - 1);
    let cases = [
        (key("own", "y"), 409, "uniqueness_error"),
        // The project already has this public key under another name.
        (key("other", "x"), 409, "uniqueness_error"),
        (json!({"name": "other"}), 422, "invalid_input"),
        (json!({"name": "other", "public_key": "-----BEGIN"}), 422, "invalid_input"),
    ];
    for (body, status, code) in cases {
        let answer = api.post("/ssh_keys", body.clone());
        assert_eq!((answer.status, answer.code()), (status, code), "{body}");
    }
    assert_eq!(api.post("/ssh_keys", key("other", "y")).status, 201);
    let one = format!("/ssh_keys?fingerprint={fingerprint}&label_selector=a=b");
    assert_eq!(api.get(&one).names("ssh_keys"), ["own"]);
    let path = format!("/ssh_keys/{}", own["id"]);
    let renamed = api.call("PUT", &path, json!({"name": "new", "labels": {}}));
    assert_eq!(renamed.at("/ssh_key/name"), "new");
    assert_eq!(api.get(&path).at("/ssh_key/labels"), &json!({}));
    assert_eq!(api.call("DELETE", &path, Value::Null).status, 204);
    assert_eq!(api.get(&path).status, 404);
}

#[test]
fn rules_of_a_firewall_are_checked() {
    let api = Api::new();
    let firewall = |rule: &Value| json!({"name": "f", "rules": [rule]});
    let wrong = [
        rule(json!({"direction": "up"})),
        rule(json!({"protocol": "sctp"})),
        rule(json!({"port": null})),
        rule(json!({"protocol": "icmp"})),
        rule(json!({"port": "0"})),
        rule(json!({"port": "1-2-3"})),
        rule(json!({"source_ips": []})),
        rule(json!({"source_ips": ["10.0.0.1/8"]})),
        rule(json!({"destination_ips": ["10.0.0.0/8"]})),
        rule(json!({"direction": "out"})),
        rule(json!({"colour": "red"})),
    ];
    for rule in wrong {
        let answer = api.post("/firewalls", firewall(&rule));
        assert_eq!(answer.code(), "invalid_input", "{rule}");
    }
    let right = [
        rule(json!({"port": "80-443"})),
        rule(json!({"protocol": "udp", "port": "any"})),
        rule(json!({"protocol": "icmp", "port": null})),
        rule(json!({"direction": "out", "source_ips": [], "destination_ips": ["::/0"]})),
    ];
    let made = api.post("/firewalls", json!({"name": "f", "rules": right}));
    assert_eq!(made.status, 201, "{}", made.body);
    assert_eq!(made.at("/firewall/rules/0/port"), "80-443");
    assert_eq!(made.at("/firewall/rules/2/port"), &Value::Null);
    assert_eq!(api.post("/firewalls", json!({"name": "f"})).code(), "uniqueness_error");
    let body = json!({"name": "g", "apply_to": [{"type": "server", "server": {"id": 1}}]});
    assert_eq!(api.post("/firewalls", body).code(), "invalid_input");
}

#[test]
fn a_server_has_its_firewalls_from_its_creation_to_its_deletion() {
    let api = Api::new();
    let firewall = api.post("/firewalls", json!({"name": "f"}));
    let firewall = firewall.at("/firewall/id").clone();
    api.post("/ssh_keys", key("own", "x"));
    let server = |change: Value| {
        let mut body = json!({"name": "s", "server_type": "cx23", "image": "debian-12"});
        for (name, value) in change.as_object().expect("an object") {
            body[name] = value.clone();
        }
        body
    };
    let unknown = [
        (server(json!({"ssh_keys": ["other"]})), "not_found"),
        (server(json!({"firewalls": [{"firewall": 1}]})), "not_found"),
        (server(json!({"volumes": [1]})), "not_found"),
    ];
    for (body, code) in unknown {
        assert_eq!(api.post("/servers", body.clone()).code(), code, "{body}");
    }
    let body = server(json!({"ssh_keys": ["own"], "firewalls": [{"firewall": firewall}]}));
    let made = api.post("/servers", body);
    assert_eq!(made.status, 201, "{}", made.body);
    // A server with an SSH key gets no root password.
    assert_eq!(made.at("/root_password"), &Value::Null);
    let id = made.at("/server/id").clone();
    let shown = made.at("/server/public_net/firewalls");
    assert_eq!(shown, &json!([{"id": firewall, "status": "applied"}]));
    let path = format!("/firewalls/{firewall}");
    let applied = json!([{"type": "server", "server": {"id": id}}]);
    assert_eq!(api.get(&path).at("/firewall/applied_to"), &applied);
    let refused = api.call("DELETE", &path, Value::Null);
    assert_eq!((refused.status, refused.code()), (422, "resource_in_use"));
    // The creation of the server still runs, and a server cannot be deleted before its creation has ended. Any call,
    // such as this GET, ends the running action.
    api.get("/servers");
    assert_eq!(api.call("DELETE", &format!("/servers/{id}"), Value::Null).status, 200);
    api.get("/servers");
    assert_eq!(api.call("DELETE", &path, Value::Null).status, 204);
    let plain = api.post("/servers", server(json!({})));
    assert_eq!(plain.at("/root_password").as_str().map(str::len), Some(20));
}

#[test]
fn images_are_found_by_name_and_architecture() {
    let api = Api::new();
    let both = api.get("/images?name=debian-12");
    assert_eq!(both.names("images"), ["debian-12", "debian-12"]);
    assert_eq!(both.at("/images/0/architecture"), "x86");
    let arm = api.get("/images?name=debian-12&architecture=arm&type=system&status=available");
    assert_eq!(arm.at("/images/0/architecture"), "arm");
    assert_eq!(arm.names("images").len(), 1);
    assert_eq!(api.get("/images?type=snapshot").names("images"), [""; 0]);
    let id = arm.at("/images/0/id");
    assert_eq!(api.get(&format!("/images/{id}")).at("/image/name"), "debian-12");
    assert_eq!(api.get("/images/1").status, 404);
    assert_eq!(api.post("/images", json!({})).status, 405);
}
