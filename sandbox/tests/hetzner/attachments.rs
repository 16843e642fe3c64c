//! Attaching servers to private networks.

use sandbox::hetzner::ServerSpec;
use serde_json::{Value, json};

use crate::api::Api;

#[test]
fn servers_are_attached_by_the_rules() {
    let api = Api::new();
    let net = api.cloud.create_network_with(
        api.project,
        "net",
        "10.0.0.0/16",
        &["10.0.0.0/24", "10.0.1.0/30"],
    );
    let overlapping = api.cloud.create_network(api.project, "overlapping", "10.0.0.0/8");
    let apart = api.cloud.create_network(api.project, "apart", "192.168.0.0/16");
    let no_subnets = api.cloud.create_network_with(api.project, "no-subnets", "172.16.0.0/16", &[]);
    let server = |name: &str, location: &str, server_type: &str| {
        let (location, server_type) = (location.into(), server_type.into());
        api.cloud.create_server(
            api.project,
            ServerSpec { name: name.into(), location, server_type, ..ServerSpec::default() },
        )
    };
    let (a, b, far) =
        (server("a", "fsn1", "cx22"), server("b", "hel1", "cx22"), server("far", "ash", "ccx13"));
    // The requests run in this order. Each case has the server, the request, and the expected status, error code and
    // private address. The address is empty when the request must fail.
    let cases = [
        (a, json!({}), 422, "invalid_input", ""),
        (a, json!({"network": 1}), 404, "not_found", ""),
        (a, json!({"network": net, "ip": "10.0.0.1"}), 422, "ip_not_available", ""),
        (a, json!({"network": net, "ip": "10.0.0.0"}), 422, "ip_not_available", ""),
        (a, json!({"network": net, "ip": "10.0.7.7"}), 422, "ip_not_available", ""),
        (a, json!({"network": net, "ip": "ten"}), 422, "invalid_input", ""),
        (
            a,
            json!({"network": net, "ip": "10.0.0.9", "ip_range": "10.0.1.0/30"}),
            422,
            "invalid_input",
            "",
        ),
        (a, json!({"network": net, "ip_range": "10.0.7.0/24"}), 422, "no_subnet_available", ""),
        (a, json!({"network": no_subnets}), 422, "no_subnet_available", ""),
        (far, json!({"network": net}), 422, "no_subnet_available", ""),
        (a, json!({"network": net, "alias_ips": ["10.0.0.1"]}), 422, "ip_not_available", ""),
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
        (a, json!({"network": net}), 422, "server_already_attached", ""),
        (a, json!({"network": overlapping}), 422, "networks_overlap", ""),
        (a, json!({"network": apart}), 201, "", "192.168.0.2"),
        (b, json!({"network": net, "ip": "10.0.0.6"}), 422, "ip_not_available", ""),
        (b, json!({"network": net, "ip_range": "10.0.1.0/30"}), 201, "", "10.0.1.1"),
        (server("c", "fsn1", "cx22"), json!({"network": net}), 201, "", "10.0.0.2"),
    ];
    for (id, body, status, code, ip) in cases {
        let answer = api.post(&format!("/servers/{id}/actions/attach_to_network"), body.clone());
        assert_eq!((answer.status, answer.code()), (status, code), "{body}: {}", answer.body);
        if status == 201 {
            let shown = api.get(&format!("/servers/{id}"));
            let attached = shown.at("/server/private_net").as_array().cloned().unwrap_or_default();
            assert_eq!(attached.last().map(|last| last["ip"].clone()), Some(json!(ip)), "{body}");
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
            api.get(&format!("/servers/{a}")).at("/server/private_net/0/alias_ips").clone(),
        )
    };
    assert_eq!(
        alias(json!(["10.0.0.7", "10.0.0.8"])),
        (201, "".into(), json!(["10.0.0.7", "10.0.0.8"]))
    );
    assert_eq!(
        alias(json!(["10.0.0.2"])),
        (422, "ip_not_available".into(), json!(["10.0.0.7", "10.0.0.8"]))
    );
    assert_eq!(alias(json!([])), (201, "".into(), json!([])));

    let detach = |id: u64| {
        api.post(&format!("/servers/{id}/actions/detach_from_network"), json!({"network": net}))
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
        api.cloud
            .create_server(api.project, ServerSpec { name: name.into(), ..ServerSpec::default() })
    };
    let (a, b) = (server("a"), server("b"));
    let attach = |id: u64| {
        api.post(&format!("/servers/{id}/actions/attach_to_network"), json!({"network": net}))
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
        let spec = ServerSpec { name: format!("s{number}"), ..ServerSpec::default() };
        let id = api.cloud.create_server(api.project, spec);
        let answer =
            api.post(&format!("/servers/{id}/actions/attach_to_network"), json!({"network": net}));
        let expected = if number < 100 { (201, "") } else { (403, "resource_limit_exceeded") };
        assert_eq!((answer.status, answer.code()), expected, "server {number}");
    }
}
