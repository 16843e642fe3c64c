//! Servers: creating them, switching them on and off, deleting them, and changes that a test makes in the simulated
//! cloud without an API call.

use sandbox::hetzner::ServerSpec;
use serde_json::{Value, json};

use crate::api::Api;

#[test]
fn servers_are_created_by_the_rules() {
    let api = Api::new();
    api.cloud
        .create_server(api.project, ServerSpec { name: "taken".into(), ..ServerSpec::default() });
    let network = api.cloud.create_network(api.project, "net", "10.0.0.0/16");
    let long = "x".repeat(64);
    let no_public = json!({"enable_ipv4": false, "enable_ipv6": false});
    // Each case: a change to a valid request that makes it invalid, and the expected status and error code.
    let cases = [
        (json!({"name": "taken"}), 409, "uniqueness_error"),
        (json!({"name": null}), 422, "invalid_input"),
        (json!({"name": ""}), 422, "invalid_input"),
        (json!({"name": "under_score"}), 422, "invalid_input"),
        (json!({"name": "-dash"}), 422, "invalid_input"),
        (json!({"name": "dots..dots"}), 422, "invalid_input"),
        (json!({"name": long}), 422, "invalid_input"),
        (json!({"server_type": "cx9000"}), 422, "invalid_input"),
        (json!({"server_type": "cx22"}), 422, "invalid_input"),
        (json!({"location": "mars1"}), 422, "invalid_input"),
        (json!({"location": "ash"}), 422, "invalid_input"),
        (json!({"datacenter": "fsn1-dc14"}), 422, "invalid_input"),
        (json!({"image": "windows-95"}), 422, "invalid_input"),
        (json!({"public_net": no_public}), 422, "invalid_input"),
        (json!({"public_net": {"ipv4": 1}}), 404, "not_found"),
        (json!({"public_net": {"ipv5": true}}), 422, "invalid_input"),
        (json!({"networks": [1]}), 404, "not_found"),
        (json!({"networks": ["1"]}), 422, "invalid_input"),
        (json!({"networks": [network, network]}), 422, "server_already_attached"),
        (json!({"ssh_keys": ["my-key"]}), 404, "not_found"),
        (json!({"volumes": [1]}), 404, "not_found"),
        (json!({"labels": {"a": "b c"}}), 422, "invalid_input"),
        (json!({"user_data": "x".repeat(32 * 1024 + 1)}), 422, "invalid_input"),
        (
            json!({"name": "a.b-c.example", "server_type": 45, "location": "2", "labels": {"a": "b"}}),
            201,
            "",
        ),
        (json!({"name": "private", "public_net": no_public, "networks": [network]}), 201, ""),
        (json!({"name": "dark", "public_net": no_public, "start_after_create": false}), 201, ""),
        (
            json!({"name": "full", "ssh_keys": [], "volumes": [], "firewalls": [], "automount": false}),
            201,
            "",
        ),
    ];
    for (changes, status, code) in cases {
        let mut body = json!({"name": "new", "server_type": "cx23", "image": "ubuntu-24.04"});
        body.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        let answer = api.post("/servers", body);
        assert_eq!((answer.status, answer.code()), (status, code), "{changes}: {}", answer.body);
    }
    let free = api.get(&format!("/networks/{network}"));
    assert_eq!(
        free.at("/network/servers").as_array().map(Vec::len),
        Some(1),
        "a refused server leaves nothing behind"
    );
}

#[test]
fn a_new_server_is_initializing_then_runs() {
    let api = Api::new();
    let network = api.cloud.create_network(api.project, "net", "10.0.0.0/16");
    api.cloud.hold_actions(true);
    let created = api.post("/servers", json!({
        "name": "new", "server_type": "cpx22", "image": "debian-12", "location": "nbg1", "networks": [network],
    }));
    assert_eq!(created.at("/action/command"), "create_server");
    assert_eq!(created.at("/next_actions/0/command"), "start_server");
    assert_eq!(created.at("/server/status"), "initializing");
    assert_eq!(created.at("/server/private_net"), &json!([]));
    assert!(created.at("/root_password").is_string());
    api.cloud.hold_actions(false);

    let shown = api.get(&format!("/servers/{}", created.at("/server/id")));
    let expected = [
        ("status", json!("running")),
        ("location/name", json!("nbg1")),
        ("location/network_zone", json!("eu-central")),
        ("server_type/name", json!("cpx22")),
        ("image/name", json!("debian-12")),
        ("public_net/ipv4/ip", json!("203.0.113.1")),
        ("public_net/ipv6/ip", json!("2001:db8:0:1::/64")),
        ("private_net/0/ip", json!("10.0.0.2")),
        ("private_net/0/network", json!(network)),
        ("locked", json!(false)),
        ("datacenter", Value::Null),
    ];
    for (pointer, value) in expected {
        assert_eq!(shown.at(&format!("/server/{pointer}")), &value, "{pointer}");
    }
}

#[test]
fn power_actions_change_the_status() {
    let api = Api::new();
    let id = api.cloud.create_server(api.project, ServerSpec::default());
    // Each case: whether the server is on, the last segment of the request's path, the `command` of the started action,
    // and the server's status afterwards.
    let cases = [
        (true, "poweron", "start_server", "running"),
        (false, "poweron", "start_server", "running"),
        (true, "poweroff", "stop_server", "off"),
        (false, "poweroff", "stop_server", "off"),
        (true, "shutdown", "shutdown_server", "off"),
        (false, "shutdown", "shutdown_server", "off"),
        (true, "reboot", "reboot_server", "running"),
        (false, "reboot", "reboot_server", "off"),
        (true, "reset", "reset_server", "running"),
        (false, "reset", "reset_server", "running"),
    ];
    for (on, action, command, after) in cases {
        api.cloud.set_power(id, on);
        let answer = api.post(&format!("/servers/{id}/actions/{action}"), Value::Null);
        assert_eq!(
            (answer.status, answer.at("/action/command")),
            (201, &json!(command)),
            "{action}"
        );
        // The server's operating system shuts down after the action has ended. This GET ends the action, so the GET
        // after it sees the new status.
        api.get("/servers");
        assert_eq!(
            api.get(&format!("/servers/{id}")).at("/server/status"),
            after,
            "{action} when on is {on}"
        );
    }
}

#[test]
fn servers_are_renamed_protected_and_deleted() {
    let api = Api::new();
    let id = api
        .cloud
        .create_server(api.project, ServerSpec { name: "one".into(), ..ServerSpec::default() });
    api.cloud
        .create_server(api.project, ServerSpec { name: "two".into(), ..ServerSpec::default() });
    let path = format!("/servers/{id}");
    assert_eq!(api.call("PUT", &path, json!({"name": "two"})).code(), "uniqueness_error");
    assert_eq!(api.call("PUT", &path, json!({"name": "no_name"})).code(), "invalid_input");
    let changed = api.call("PUT", &path, json!({"name": "three", "labels": {"a": "b"}}));
    assert_eq!(
        (changed.at("/server/name"), changed.at("/server/labels")),
        (&json!("three"), &json!({"a": "b"}))
    );

    let protect = |delete: bool, rebuild: bool| {
        api.post(
            &format!("{path}/actions/change_protection"),
            json!({"delete": delete, "rebuild": rebuild}),
        )
        .status
    };
    assert_eq!(protect(true, false), 422);
    assert_eq!(protect(true, true), 201);
    let refused = api.call("DELETE", &path, Value::Null);
    assert_eq!((refused.status, refused.code()), (423, "protected"));
    assert_eq!(protect(false, false), 201);
    api.get(&path);

    api.cloud.hold_actions(true);
    let deleted = api.call("DELETE", &path, Value::Null);
    assert_eq!((deleted.status, deleted.at("/action/command")), (200, &json!("delete_server")));
    assert_eq!(api.get(&path).at("/server/status"), "deleting");
    api.cloud.hold_actions(false);
    assert_eq!(api.get(&path).status, 404);
    assert_eq!(api.get("/servers").names("servers"), ["two"]);
}

#[test]
fn a_test_can_set_any_field_of_a_server() {
    let api = Api::new();
    let net = api.cloud.create_network(api.project, "net", "10.0.0.0/16");
    let spec = ServerSpec { networks: vec![(net, None)], ..ServerSpec::default() };
    let id = api.cloud.create_server(api.project, spec);
    let path = format!("/servers/{id}");
    api.cloud.edit_server(id, |server| {
        server["public_net"]["ipv4"] = Value::Null;
        server["status"] = json!("dreaming");
        server["labels"] = json!({"edited": "yes"});
        server["private_net"] = json!([]);
        server["colour"] = json!("red");
        server.as_object_mut().map(|fields| fields.remove("location"));
    });
    let shown = api.get(&path);
    let expected = [
        ("public_net/ipv4", Value::Null),
        ("status", json!("dreaming")),
        ("labels", json!({"edited": "yes"})),
        ("private_net", json!([])),
        ("colour", json!("red")),
        ("location", Value::Null),
    ];
    for (pointer, value) in expected {
        assert_eq!(shown.at(&format!("/server/{pointer}")), &value, "{pointer}");
    }
    assert_eq!(shown.body["server"].get("location"), None);
    assert_eq!(api.get("/servers?label_selector=edited=yes").names("servers"), ["server"]);
    assert_eq!(api.get(&format!("/networks/{net}")).at("/network/servers"), &json!([]));

    // The test has set the status of this server to `dreaming`, directly in the simulated cloud. The API shows this
    // status only until an action, such as this `poweroff`, changes the status.
    assert_eq!(api.post(&format!("{path}/actions/poweroff"), Value::Null).status, 201);
    assert_eq!(api.get(&path).at("/server/status"), "off");
    assert_eq!(api.cloud.servers(api.project)[0]["status"], "off");
    api.cloud.delete_server(id);
    assert_eq!(api.get(&path).status, 404);
}
