//! Tests of sandboxes with dedicated servers, most of them together with Cloud servers: Nodes and private networks of
//! dedicated servers, the environment variables for programs, and dedicated servers as load balancer targets.

use sandbox::hetzner::{Health, Machine};
use sandbox::{Half, Sandbox};
use serde_json::{Value, json};

use super::{get, raw, servers};

/// Starts a sandbox with two Cloud servers and two dedicated servers.
fn mixed() -> Sandbox {
    let builder = Sandbox::builder().nodes(2).robot(2).scale(0.0001);
    builder.network("10.0.0.0/8").heartbeats(false).start()
}

fn node(sandbox: &Sandbox, name: &str) -> Value {
    sandbox.cluster().get("nodes", None, name).unwrap()
}

fn ready(sandbox: &Sandbox, name: &str) -> String {
    let node = node(sandbox, name);
    let conditions = node["status"]["conditions"].as_array().unwrap();
    let ready = conditions.iter().find(|one| one["type"] == "Ready");
    ready.unwrap()["status"].as_str().unwrap().to_owned()
}

#[test]
fn the_environment_names_robot_where_it_is_served() {
    let names = |sandbox: &Sandbox| {
        let env = sandbox.env().into_iter();
        env.filter(|(name, _)| name.starts_with("ROBOT_")).map(|(name, _)| name).collect::<Vec<_>>()
    };
    let all = ["ROBOT_ENABLED", "ROBOT_USER", "ROBOT_PASSWORD", "ROBOT_ENDPOINT"];
    let cases = [
        (0, None, false),
        (1, None, true),
        (1, Some(Half::Hetzner), true),
        (1, Some(Half::Kubernetes), false),
    ];
    for (count, only, served) in cases {
        let builder = Sandbox::builder().robot(count).heartbeats(false);
        let builder = only.into_iter().fold(builder, |builder, half| builder.only(half));
        let sandbox = builder.start();
        let expected = if served { &all[..] } else { &[] };
        assert_eq!(names(&sandbox), expected, "{count} servers, only {only:?}");
        assert_eq!(sandbox.address(Half::Robot).port() != 0, served);
    }
    let sandbox = servers(1).start();
    let login = sandbox.robot().login();
    let env: std::collections::HashMap<_, _> = sandbox.env().into_iter().collect();
    assert_eq!(env["ROBOT_ENABLED"], "true");
    assert_eq!((&env["ROBOT_USER"], &env["ROBOT_PASSWORD"]), (&login.0, &login.1));
    assert_eq!(env["ROBOT_ENDPOINT"], sandbox.robot_url());
}

#[test]
fn a_dedicated_server_has_a_node_that_waits_for_the_ccm() {
    let sandbox = servers(1).start();
    let node = node(&sandbox, "metal-1");
    assert_eq!(node["spec"].get("providerID"), None);
    let taint = "node.cloudprovider.kubernetes.io/uninitialized";
    assert_eq!(node["spec"]["taints"][0]["key"], taint);
    let addresses = json!([
        {"type": "InternalIP", "address": "198.19.0.1"}, {"type": "Hostname", "address": "metal-1"},
    ]);
    assert_eq!(node["status"]["addresses"], addresses);
}

#[test]
fn dedicated_servers_are_behind_the_vswitch_of_the_network() {
    let sandbox = mixed();
    let network = || sandbox.cloud().networks(sandbox.project())[0].clone();
    let subnet = &network()["subnets"][1];
    assert_eq!(subnet["type"], "vswitch");
    assert_eq!(subnet["ip_range"], "10.0.1.0/24");
    assert!(subnet["vswitch_id"].is_u64());
    for (name, ip) in [("metal-1", "10.0.1.2"), ("metal-2", "10.0.1.3")] {
        let node = node(&sandbox, name);
        let expected = json!({"type": "InternalIP", "address": ip});
        assert_eq!(node["status"]["addresses"][0], expected);
        let given = &node["metadata"]["annotations"]["alpha.kubernetes.io/provided-node-ip"];
        assert_eq!(given, ip);
    }
    assert_eq!(network()["expose_routes_to_vswitch"], false);
    let id = sandbox.network().unwrap();
    sandbox.cloud().set_expose_routes_to_vswitch(id, true);
    assert_eq!(network()["expose_routes_to_vswitch"], true);

    sandbox.robot().remove(2_000_001);
    let number = sandbox.join_dedicated("metal-3");
    let server = sandbox.robot().server(number).unwrap();
    let ip = server.private_ip.unwrap().to_string();
    assert_eq!(ip, "10.0.1.2", "the first that is free");
}

#[test]
fn a_network_without_room_for_a_vswitch_is_an_error() {
    let builder = Sandbox::builder().robot(1).network("10.0.0.0/24");
    let error = builder.heartbeats(false).try_start().err().unwrap();
    assert!(error.to_string().contains("no room"), "{error}");
}

#[test]
fn a_kubelet_is_silent_while_its_dedicated_server_is_off_or_no_more() {
    let sandbox = mixed();
    let (robot, kubelets) = (sandbox.robot(), sandbox.kubelets());
    let number = robot.number_of("metal-1").unwrap();
    let seen = || {
        kubelets.heartbeat();
        kubelets.expire();
        ["worker-1", "metal-1", "metal-2"].map(|name| ready(&sandbox, name))
    };
    assert_eq!(seen(), ["True", "True", "True"]);
    robot.set_power(number, false);
    assert_eq!(seen(), ["True", "Unknown", "True"]);
    robot.set_power(number, true);
    assert_eq!(seen(), ["True", "True", "True"]);
    robot.edit(number, |server| server.number = 7);
    assert_eq!(seen(), ["True", "True", "True"], "the same machine");
    robot.remove(7);
    assert_eq!(robot.create("other"), number);
    assert_eq!(seen(), ["True", "Unknown", "True"], "another machine");
}

#[test]
fn routes_do_not_pass_dedicated_servers() {
    let sandbox = mixed();
    let network = sandbox.network().unwrap();
    let path = format!("/v1/networks/{network}/actions/add_route");
    let route = |gateway: &str| json!({"destination": "10.244.9.0/24", "gateway": gateway});
    let cases = [("10.0.1.2", 422), ("10.0.1.99", 422), ("10.0.0.2", 201)];
    for (gateway, status) in cases {
        let (seen, body) = cloud(&sandbox, &path, &route(gateway));
        assert_eq!(seen, status, "{gateway}: {body}");
        if status == 422 {
            assert_eq!(body["error"]["code"], "invalid_input");
            assert_eq!(body["error"]["details"]["fields"][0]["name"], "gateway");
        }
    }
}

/// Sends a POST to the Hetzner Cloud API and returns the status and the body.
fn cloud(sandbox: &Sandbox, path: &str, body: &Value) -> (u16, Value) {
    let (token, body) = (&sandbox.projects().token, body.to_string());
    let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}");
    let length = body.len();
    let request = format!("{head}\r\nContent-Length: {length}\r\n\r\n{body}");
    let answer = raw::call(sandbox.address(Half::Hetzner), &request).unwrap();
    (answer.status, serde_json::from_slice(&answer.body).unwrap())
}

/// Creates a load balancer in the sandbox's network and returns its ID.
fn balancer(sandbox: &Sandbox) -> u64 {
    let service = json!({"protocol": "tcp", "listen_port": 80, "destination_port": 1});
    let body = json!({"name": "web", "load_balancer_type": "lb11", "location": "fsn1",
        "network": sandbox.network(), "services": [service]});
    sandbox.cloud().create_load_balancer(sandbox.project(), body)
}

fn target(ip: &str) -> Value {
    json!({"type": "ip", "ip": {"ip": ip}})
}

#[test]
fn targets_are_addresses_of_the_account_s_servers() {
    let sandbox = mixed();
    let robot = sandbox.robot();
    let foreign = robot.create("foreign");
    robot.edit(foreign, |server| server.account = 1);
    robot.edit(2_000_002, |server| server.ips.push("198.51.100.200".into()));
    let add = format!("/v1/load_balancers/{}/actions/add_target", balancer(&sandbox));
    let worker = sandbox.cloud().servers(sandbox.project())[0].clone();
    let text = |pointer: &str| worker.pointer(pointer).unwrap().as_str().unwrap().to_owned();
    let (public, private) = (text("/public_net/ipv4/ip"), text("/private_net/0/ip"));
    let cases = [
        ("198.19.0.1", 201, ""),
        ("198.19.0.1", 422, "target_already_defined"),
        ("198.51.100.200", 201, ""),
        ("2001:db8:ffff:1::1", 201, ""),
        ("10.0.1.2", 201, ""),
        ("198.19.0.3", 422, "ip_not_owned"),
        ("198.19.0.4", 422, "ip_not_owned"),
        ("2001:db8:ffff:3::1", 422, "ip_not_owned"),
        ("10.9.9.9", 422, "ip_not_owned"),
        (&public, 422, "cloud_resource_ip_not_allowed"),
        (&private, 422, "cloud_resource_ip_not_allowed"),
    ];
    let check = |ip: &str, status: u16, code: &str| {
        let (seen, body) = cloud(&sandbox, &add, &target(ip));
        let text = body.pointer("/error/code").and_then(Value::as_str);
        assert_eq!((seen, text.unwrap_or_default()), (status, code), "{ip}");
        // The running action locks the load balancer, so the next request must wait. In this sandbox, simulated time is
        // so fast that the action ends within moments.
        while sandbox.cloud().has_running_actions() {
            std::thread::yield_now();
        }
    };
    for (ip, status, code) in cases {
        check(ip, status, code);
    }
    sandbox.cloud().set_robot_unavailable(true);
    for ip in ["198.19.0.2", "198.19.0.4", "10.0.1.3"] {
        check(ip, 503, "robot_unavailable");
    }
    check(&public, 422, "cloud_resource_ip_not_allowed");
    sandbox.cloud().set_robot_unavailable(false);
    check("198.19.0.2", 201, "");
}

#[test]
fn a_target_is_as_healthy_as_its_server() {
    let sandbox = mixed();
    let id = balancer(&sandbox);
    let ips = ["198.19.0.1", "10.0.1.3"];
    for ip in ips {
        let path = format!("/v1/load_balancers/{id}/actions/add_target");
        assert_eq!(cloud(&sandbox, &path, &target(ip)).0, 201);
        while sandbox.cloud().has_running_actions() {
            std::thread::yield_now();
        }
    }
    let health = || {
        let targets = sandbox.cloud().load_balancer(id)["targets"].clone();
        [0, 1].map(|index: usize| {
            let health = &targets[index]["health_status"][0];
            health["status"].as_str().unwrap().to_owned()
        })
    };
    let wait_for = |expected: [&str; 2]| {
        let begun = std::time::Instant::now();
        while health() != expected {
            assert!(begun.elapsed() < raw::PATIENCE, "{:?}, not {expected:?}", health());
            std::thread::yield_now();
        }
    };
    let robot = sandbox.robot();
    wait_for(["healthy", "healthy"]);
    robot.set_power(2_000_001, false);
    wait_for(["unhealthy", "healthy"]);
    robot.set_power(2_000_001, true);
    robot.remove(2_000_002);
    wait_for(["healthy", "unhealthy"]);
    let machine = Machine::Ip(ips[0].parse().unwrap());
    let refuses = Health::unhealthy("layer4_no_connection");
    sandbox.cloud().set_health(id, machine, None, Some(refuses));
    wait_for(["unhealthy", "unhealthy"]);
    assert_eq!(get(&sandbox, "/server").0, 200);
}
