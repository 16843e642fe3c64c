//! The fields that Robot shows for a server.

use sandbox::Sandbox;
use serde_json::{Value, json};

use super::{code, get, servers};

fn first(sandbox: &Sandbox) -> u64 {
    sandbox.robot().number_of("metal-1").unwrap()
}

#[test]
fn a_server_has_the_fields_of_the_documentation_in_both_calls() {
    let sandbox = servers(2).start();
    let in_list = json!({
        "server_ip": "198.19.0.1", "server_ipv6_net": "2001:db8:ffff:1::", "server_number": 2_000_001,
        "server_name": "metal-1", "product": "AX41-NVMe", "dc": "FSN1-DC16", "traffic": "unlimited",
        "status": "ready", "cancelled": false, "paid_until": "2027-01-31", "ip": ["198.19.0.1"],
        "subnet": [{"ip": "2001:db8:ffff:1::", "mask": "64"}],
    });
    let (status, all) = get(&sandbox, "/server");
    assert_eq!((status, &all[0]), (200, &json!({"server": in_list})));
    assert_eq!(all[1]["server"]["server_name"], "metal-2");
    assert_eq!(all.as_array().unwrap().len(), 2);

    let mut alone = in_list;
    for (name, can) in [("reset", true), ("rescue", true), ("wol", true)] {
        alone[name] = can.into();
    }
    for name in ["vnc", "windows", "plesk", "cpanel", "hot_swap"] {
        alone[name] = false.into();
    }
    alone["linked_storagebox"] = Value::Null;
    let seen = get(&sandbox, "/server/2000001");
    assert_eq!(seen, (200, json!({"server": alone})));
}

#[test]
fn a_changed_dedicated_server_is_shown_with_its_changes() {
    let sandbox = servers(1).start();
    let number = first(&sandbox);
    sandbox.robot().edit(number, |server| {
        server.number = 7;
        server.name = "other".into();
        server.server_ip = None;
        server.server_ipv6_net = Some(String::new());
        server.product = "Dell R6415 (AMD)".into();
        server.dc = "HEL1-DC2".into();
        server.status = "in process".into();
        server.cancelled = true;
        server.ips.clear();
        server.subnets = None;
    });
    let expected = [
        ("/server_number", json!(7)),
        ("/server_name", json!("other")),
        ("/server_ip", Value::Null),
        ("/server_ipv6_net", json!("")),
        ("/product", json!("Dell R6415 (AMD)")),
        ("/dc", json!("HEL1-DC2")),
        ("/status", json!("in process")),
        ("/cancelled", json!(true)),
        ("/ip", json!([])),
        ("/subnet", Value::Null),
    ];
    let old = get(&sandbox, &format!("/server/{number}"));
    assert_eq!(code(&old), (404, "SERVER_NOT_FOUND"));
    for seen in [get(&sandbox, "/server/7").1, get(&sandbox, "/server").1[0].clone()] {
        for (pointer, value) in &expected {
            let shown = seen["server"].pointer(pointer);
            assert_eq!(shown, Some(value), "{pointer} of {seen}");
        }
    }
}

#[test]
fn the_operating_status_is_shown_of_one_server_only() {
    let sandbox = servers(2).start();
    let (robot, number) = (sandbox.robot(), first(&sandbox));
    let path = format!("/reset/{number}");
    let status = || get(&sandbox, &path).1["reset"]["operating_status"].clone();
    let mut reset = json!({
        "server_ip": "198.19.0.1", "server_ipv6_net": "2001:db8:ffff:1::", "server_number": number,
        "type": ["power", "power_long", "hw", "man"],
    });
    let (_, list) = get(&sandbox, "/reset");
    assert_eq!(list[0], json!({ "reset": reset }));
    reset["operating_status"] = "running".into();
    assert_eq!(get(&sandbox, &path), (200, json!({ "reset": reset })));

    robot.set_power(number, false);
    assert_eq!(status(), "shut off");
    robot.set_power(number, true);
    assert_eq!(status(), "running");
    robot.edit(number, |server| {
        server.operating_status = Some("not supported".into());
    });
    assert_eq!(status(), "not supported");

    robot.edit(number, |server| server.reset_types.clear());
    let seen = get(&sandbox, &path);
    assert_eq!(code(&seen), (404, "RESET_NOT_AVAILABLE"));
    let (_, list) = get(&sandbox, "/reset");
    assert_eq!(list.as_array().unwrap().len(), 1, "left out: {list}");
    let (_, alone) = get(&sandbox, &format!("/server/{number}"));
    assert_eq!(alone["server"]["reset"], false);
}

#[test]
fn a_list_without_servers_is_not_found() {
    let sandbox = servers(1).start();
    let number = first(&sandbox);
    sandbox.robot().remove(number);
    let cases = [
        ("/server", "SERVER_NOT_FOUND", "No server found"),
        ("/server/2000001", "SERVER_NOT_FOUND", "Server with id 2000001 not found"),
        ("/reset", "NOT_FOUND", "No servers with reset option found"),
        ("/reset/2000001", "SERVER_NOT_FOUND", "Server with id 2000001 not found"),
    ];
    for (path, code, message) in cases {
        let error = json!({"error": {"status": 404, "code": code, "message": message}});
        assert_eq!(get(&sandbox, path), (404, error), "{path}");
    }
    assert_eq!(sandbox.robot().create("next"), number, "numbers come back");
}
