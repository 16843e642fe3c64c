//! Servers: creating, switching, attaching, deleting, and a test's hand in the world.

use sandbox::hetzner::ServerSpec;
use serde_json::{Value, json};

use crate::api::Api;

#[test]
fn servers_are_created_by_the_rules() {
    let api = Api::new();
    api.cloud.create_server(
        api.project,
        ServerSpec {
            name: "taken".into(),
            ..ServerSpec::default()
        },
    );
    let network = api.cloud.create_network(api.project, "net", "10.0.0.0/16");
    let long = "x".repeat(64);
    let no_public = json!({"enable_ipv4": false, "enable_ipv6": false});
    // What is changed in a request that would be accepted.
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
        (
            json!({"networks": [network, network]}),
            422,
            "server_already_attached",
        ),
        (json!({"ssh_keys": ["my-key"]}), 404, "not_found"),
        (json!({"volumes": [1]}), 404, "not_found"),
        (json!({"labels": {"a": "b c"}}), 422, "invalid_input"),
        (
            json!({"user_data": "x".repeat(32 * 1024 + 1)}),
            422,
            "invalid_input",
        ),
        (
            json!({"name": "a.b-c.example", "server_type": 45, "location": "2", "labels": {"a": "b"}}),
            201,
            "",
        ),
        (
            json!({"name": "private", "public_net": no_public, "networks": [network]}),
            201,
            "",
        ),
        (
            json!({"name": "dark", "public_net": no_public, "start_after_create": false}),
            201,
            "",
        ),
        (
            json!({"name": "full", "ssh_keys": [], "volumes": [], "firewalls": [], "automount": false}),
            201,
            "",
        ),
    ];
    for (changes, status, code) in cases {
        let mut body = json!({"name": "new", "server_type": "cx23", "image": "ubuntu-24.04"});
        body.as_object_mut()
            .unwrap()
            .extend(changes.as_object().unwrap().clone());
        let answer = api.post("/servers", body);
        assert_eq!(
            (answer.status, answer.code()),
            (status, code),
            "{changes}: {}",
            answer.body
        );
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
    // Status before, action, its command, status afterwards.
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
        // The guest's own shutdown begins when the action is over: the second look sees its end.
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
    let id = api.cloud.create_server(
        api.project,
        ServerSpec {
            name: "one".into(),
            ..ServerSpec::default()
        },
    );
    api.cloud.create_server(
        api.project,
        ServerSpec {
            name: "two".into(),
            ..ServerSpec::default()
        },
    );
    let path = format!("/servers/{id}");
    assert_eq!(
        api.call("PUT", &path, json!({"name": "two"})).code(),
        "uniqueness_error"
    );
    assert_eq!(
        api.call("PUT", &path, json!({"name": "no_name"})).code(),
        "invalid_input"
    );
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
    assert_eq!(
        (deleted.status, deleted.at("/action/command")),
        (200, &json!("delete_server"))
    );
    assert_eq!(api.get(&path).at("/server/status"), "deleting");
    api.cloud.hold_actions(false);
    assert_eq!(api.get(&path).status, 404);
    assert_eq!(api.get("/servers").names("servers"), ["two"]);
}

#[test]
fn servers_are_attached_by_the_rules() {
    let api = Api::new();
    let net = api.cloud.create_network_with(
        api.project,
        "net",
        "10.0.0.0/16",
        &["10.0.0.0/24", "10.0.1.0/30"],
    );
    let overlapping = api
        .cloud
        .create_network(api.project, "overlapping", "10.0.0.0/8");
    let apart = api
        .cloud
        .create_network(api.project, "apart", "192.168.0.0/16");
    let no_subnets = api
        .cloud
        .create_network_with(api.project, "no-subnets", "172.16.0.0/16", &[]);
    let server = |name: &str, location: &str, server_type: &str| {
        let (location, server_type) = (location.into(), server_type.into());
        api.cloud.create_server(
            api.project,
            ServerSpec {
                name: name.into(),
                location,
                server_type,
                ..ServerSpec::default()
            },
        )
    };
    let (a, b, far) = (
        server("a", "fsn1", "cx22"),
        server("b", "hel1", "cx22"),
        server("far", "ash", "ccx13"),
    );
    // In this order. The address that is shown for success.
    let cases = [
        (a, json!({}), 422, "invalid_input", ""),
        (a, json!({"network": 1}), 404, "not_found", ""),
        (
            a,
            json!({"network": net, "ip": "10.0.0.1"}),
            422,
            "ip_not_available",
            "",
        ),
        (
            a,
            json!({"network": net, "ip": "10.0.0.0"}),
            422,
            "ip_not_available",
            "",
        ),
        (
            a,
            json!({"network": net, "ip": "10.0.7.7"}),
            422,
            "ip_not_available",
            "",
        ),
        (
            a,
            json!({"network": net, "ip": "ten"}),
            422,
            "invalid_input",
            "",
        ),
        (
            a,
            json!({"network": net, "ip": "10.0.0.9", "ip_range": "10.0.1.0/30"}),
            422,
            "invalid_input",
            "",
        ),
        (
            a,
            json!({"network": net, "ip_range": "10.0.7.0/24"}),
            422,
            "no_subnet_available",
            "",
        ),
        (
            a,
            json!({"network": no_subnets}),
            422,
            "no_subnet_available",
            "",
        ),
        (far, json!({"network": net}), 422, "no_subnet_available", ""),
        (
            a,
            json!({"network": net, "alias_ips": ["10.0.0.1"]}),
            422,
            "ip_not_available",
            "",
        ),
        (
            a,
            json!({"network": net, "alias_ips": ["10.0.0.5", "10.0.0.5"]}),
            422,
            "ip_not_available",
            "",
        ),
        (
            a,
            json!({"network": net, "ip": "10.0.0.5", "alias_ips": ["10.0.0.6", "10.0.0.7"]}),
            201,
            "",
            "10.0.0.5",
        ),
        (
            a,
            json!({"network": net}),
            422,
            "server_already_attached",
            "",
        ),
        (
            a,
            json!({"network": overlapping}),
            422,
            "networks_overlap",
            "",
        ),
        (a, json!({"network": apart}), 201, "", "192.168.0.2"),
        (
            b,
            json!({"network": net, "ip": "10.0.0.6"}),
            422,
            "ip_not_available",
            "",
        ),
        (
            b,
            json!({"network": net, "ip_range": "10.0.1.0/30"}),
            201,
            "",
            "10.0.1.1",
        ),
        (
            server("c", "fsn1", "cx22"),
            json!({"network": net}),
            201,
            "",
            "10.0.0.2",
        ),
    ];
    for (id, body, status, code, ip) in cases {
        let answer = api.post(
            &format!("/servers/{id}/actions/attach_to_network"),
            body.clone(),
        );
        assert_eq!(
            (answer.status, answer.code()),
            (status, code),
            "{body}: {}",
            answer.body
        );
        if status == 201 {
            let shown = api.get(&format!("/servers/{id}"));
            let attached = shown
                .at("/server/private_net")
                .as_array()
                .cloned()
                .unwrap_or_default();
            assert_eq!(
                attached.last().map(|last| last["ip"].clone()),
                Some(json!(ip)),
                "{body}"
            );
        }
    }

    let alias = |alias_ips: Value| {
        let answer = api.post(
            &format!("/servers/{a}/actions/change_alias_ips"),
            json!({"network": net, "alias_ips": alias_ips}),
        );
        (
            answer.status,
            answer.code().to_owned(),
            api.get(&format!("/servers/{a}"))
                .at("/server/private_net/0/alias_ips")
                .clone(),
        )
    };
    assert_eq!(
        alias(json!(["10.0.0.7", "10.0.0.8"])),
        (201, "".into(), json!(["10.0.0.7", "10.0.0.8"]))
    );
    assert_eq!(
        alias(json!(["10.0.0.2"])),
        (
            422,
            "ip_not_available".into(),
            json!(["10.0.0.7", "10.0.0.8"])
        )
    );
    assert_eq!(alias(json!([])), (201, "".into(), json!([])));

    let detach = |id: u64| {
        api.post(
            &format!("/servers/{id}/actions/detach_from_network"),
            json!({"network": net}),
        )
    };
    assert_eq!(detach(far).code(), "not_found");
    assert_eq!(detach(a).status, 201);
    assert_eq!(detach(a).code(), "not_found");
    let again = api.post(
        &format!("/servers/{a}/actions/attach_to_network"),
        json!({"network": net, "ip": "10.0.0.6"}),
    );
    assert_eq!(again.status, 201, "what was given back is free again");
}

#[test]
fn a_network_is_locked_while_a_server_is_attached() {
    let api = Api::new();
    let net = api.cloud.create_network(api.project, "net", "10.0.0.0/16");
    let server = |name: &str| {
        api.cloud.create_server(
            api.project,
            ServerSpec {
                name: name.into(),
                ..ServerSpec::default()
            },
        )
    };
    let (a, b) = (server("a"), server("b"));
    let attach = |id: u64| {
        api.post(
            &format!("/servers/{id}/actions/attach_to_network"),
            json!({"network": net}),
        )
    };
    api.cloud.hold_actions(true);
    assert_eq!(attach(a).status, 201);
    assert_eq!((attach(a).status, attach(a).code()), (423, "locked"));
    assert_eq!((attach(b).status, attach(b).code()), (409, "conflict"));
    api.cloud.hold_actions(false);
    assert_eq!(attach(b).status, 201);
}

#[test]
fn a_network_takes_100_servers() {
    let api = Api::new();
    let net = api.cloud.create_network(api.project, "net", "10.0.0.0/16");
    for number in 0..=100 {
        let spec = ServerSpec {
            name: format!("s{number}"),
            ..ServerSpec::default()
        };
        let id = api.cloud.create_server(api.project, spec);
        let answer = api.post(
            &format!("/servers/{id}/actions/attach_to_network"),
            json!({"network": net}),
        );
        let expected = if number < 100 {
            (201, "")
        } else {
            (403, "resource_limit_exceeded")
        };
        assert_eq!((answer.status, answer.code()), expected, "server {number}");
    }
}

#[test]
fn a_test_can_make_a_server_say_anything() {
    let api = Api::new();
    let net = api.cloud.create_network(api.project, "net", "10.0.0.0/16");
    let spec = ServerSpec {
        networks: vec![(net, None)],
        ..ServerSpec::default()
    };
    let id = api.cloud.create_server(api.project, spec);
    let path = format!("/servers/{id}");
    api.cloud.edit_server(id, |server| {
        server["public_net"]["ipv4"] = Value::Null;
        server["status"] = json!("dreaming");
        server["labels"] = json!({"edited": "yes"});
        server["private_net"] = json!([]);
        server["colour"] = json!("red");
        server
            .as_object_mut()
            .map(|fields| fields.remove("location"));
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
    assert_eq!(
        api.get("/servers?label_selector=edited=yes")
            .names("servers"),
        ["server"]
    );
    assert_eq!(
        api.get(&format!("/networks/{net}")).at("/network/servers"),
        &json!([])
    );

    // What the API changes afterwards is shown again.
    assert_eq!(
        api.post(&format!("{path}/actions/poweroff"), Value::Null)
            .status,
        201
    );
    assert_eq!(api.get(&path).at("/server/status"), "off");
    assert_eq!(api.cloud.servers(api.project)[0]["status"], "off");
    api.cloud.delete_server(id);
    assert_eq!(api.get(&path).status, 404);
}
