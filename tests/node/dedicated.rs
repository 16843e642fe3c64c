//! Nodes on dedicated servers. The binary runs against the simulated Cloud API and Robot.

use crate::common::{
    self, Cluster, Daemon, Env, SHUTDOWN, Simulate, addresses, answer, ccm, env, run_in_parallel,
    wait_until, with, writes,
};
use sandbox::calls::Call;
use sandbox::exchange::Response;
use sandbox::faults::{Effect, Rule};
use sandbox::robot::Sees;
use sandbox::{Half, Sandbox};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// Cloud servers and dedicated ones in one Network.
fn start(nodes: usize, robot: usize) -> Arc<Sandbox> {
    let builder = common::builder().nodes(nodes).robot(robot);
    builder.network("10.0.0.0/8").heartbeats(false).simulated()
}

/// Starts a sandbox with initialised nodes.
fn initialised(nodes: usize, robot: usize) -> Arc<Sandbox> {
    let sandbox = start(nodes, robot);
    sandbox.converge();
    sandbox
}

fn number(sandbox: &Sandbox, name: &str) -> u64 {
    sandbox.robot().number_of(name).unwrap()
}

fn is_new(sandbox: &Sandbox, name: &str) -> bool {
    sandbox.has_taint(name, common::UNINITIALIZED)
}

fn robot_calls(sandbox: &Sandbox, path: &str) -> usize {
    let is_it = |call: &Call| {
        call.half == Half::Robot
            && (call.path == path || call.path.starts_with(&format!("{path}/")))
    };
    sandbox.calls().count(is_it)
}

#[test]
fn dedicated_nodes_are_initialised_beside_cloud_nodes_and_then_cost_one_list() {
    let sandbox = start(2, 2);
    sandbox.converge();
    for name in ["metal-1", "metal-2"] {
        let server = sandbox.robot().server(number(&sandbox, name)).unwrap();
        let node = sandbox.node(name);
        let id = format!("hrobot://{}", server.number);
        assert_eq!(node["spec"]["providerID"], json!(id));
        assert!(!is_new(&sandbox, name));
        let expected = [
            format!("Hostname {name}"),
            format!("ExternalIP {}", server.server_ip.unwrap()),
            format!("InternalIP {}", server.private_ip.unwrap()),
        ];
        // The kubelet was given an address, which comes first.
        let mut found = addresses(&node);
        found.sort();
        let mut expected = expected.to_vec();
        expected.sort();
        assert_eq!(found, expected);
        let labels = &node["metadata"]["labels"];
        assert_eq!(labels["node.kubernetes.io/instance-type"], "AX41-NVMe");
        assert_eq!(labels["topology.kubernetes.io/zone"], "fsn1");
        assert_eq!(labels["topology.kubernetes.io/region"], "eu-central");
    }
    assert!(!is_new(&sandbox, "worker-1") && !is_new(&sandbox, "worker-2"));
    assert_eq!(robot_calls(&sandbox, "/server"), 1, "one list for all");
    let before = writes(&sandbox).len();
    let again = sandbox.ccm(&["run", "--once"]);
    assert_eq!((again.code, writes(&sandbox).len()), (0, before));
    assert_eq!(robot_calls(&sandbox, "/server"), 2);
}

#[test]
fn an_outage_of_one_api_does_not_hold_the_nodes_of_the_other() {
    for (away, goes_on, waits) in
        [(Half::Robot, "worker-1", "metal-1"), (Half::Hetzner, "metal-1", "worker-1")]
    {
        let sandbox = start(1, 1);
        sandbox.stop(away);
        let daemon = sandbox.daemon(&[]);
        wait_until("the node of the other API", || !is_new(&sandbox, goes_on));
        assert!(is_new(&sandbox, waits), "{away}:\n{}", daemon.log());
        sandbox.resume(away).unwrap();
        wait_until("the node that waited", || !is_new(&sandbox, waits));
    }
}

#[test]
fn an_unreachable_robot_is_one_line_and_fails_a_pass() {
    let sandbox = start(1, 2);
    sandbox.stop(Half::Robot);
    let ran = sandbox.ccm(&["run", "--once"]).with_code(1);
    assert!(!is_new(&sandbox, "worker-1") && is_new(&sandbox, "metal-1"));
    assert!(ran.stderr.contains(&sandbox.robot_url()) && ran.stderr.contains("refused"), "{ran:?}");
}

#[test]
fn a_node_whose_dedicated_server_was_deleted_is_deleted_with_an_event() {
    let sandbox = initialised(1, 3);
    let _daemon = sandbox.daemon(&[]);
    sandbox.robot().remove(number(&sandbox, "metal-2"));
    sandbox.kubelets().expire();
    wait_until("the node to go", || !sandbox.has_node("metal-2"));
    assert!(sandbox.has_node("metal-1") && sandbox.has_node("metal-3"));
    sandbox.wait_for_event("metal-2", "DeletingNode", &[]);
}

#[test]
fn a_node_whose_dedicated_server_is_shut_off_is_tainted_until_it_is_ready_again() {
    let sandbox = initialised(1, 3);
    let _daemon = sandbox.daemon(&[]);
    sandbox.robot().edit(number(&sandbox, "metal-2"), |server| {
        server.operating_status = Some("not supported".into());
    });
    sandbox.robot().edit(number(&sandbox, "metal-3"), |server| server.reset_types.clear());
    for name in ["metal-1", "metal-2", "metal-3"] {
        sandbox.robot().set_power(number(&sandbox, name), false);
    }
    sandbox.kubelets().expire();
    wait_until("the taint", || sandbox.has_taint("metal-1", SHUTDOWN));
    wait_until("a poll of each", || robot_calls(&sandbox, "/reset") >= 6);
    assert!(!sandbox.has_taint("metal-2", SHUTDOWN));
    assert!(!sandbox.has_taint("metal-3", SHUTDOWN));
    sandbox.robot().set_power(number(&sandbox, "metal-1"), true);
    sandbox.kubelets().heartbeat();
    wait_until("the taint to go", || !sandbox.has_taint("metal-1", SHUTDOWN));
}

type Change = fn(&Sandbox) -> Env;

/// Changes after which a server may seem not to exist any more.
#[rustfmt::skip] // A case is a paragraph.
const DOUBTS: [(&str, Change); 18] = [
    ("an empty account",
        |sandbox| { for server in sandbox.robot().servers() { sandbox.robot().remove(server.number); } env(sandbox) }),
    ("an empty account, without the guard",
        |sandbox| { for server in sandbox.robot().servers() { sandbox.robot().remove(server.number); } env(sandbox) }),
    ("another account's credentials", |sandbox| {
        let other = sandbox.robot().create("other");
        sandbox.robot().edit(other, |server| server.account = 7);
        sandbox
            .robot()
            .set_login("#ws+other", "secret", Sees::Account(7));
        let login = [("ROBOT_USER", "#ws+other"), ("ROBOT_PASSWORD", "secret")];
        with(env(sandbox), &login)
    }),
    ("a single server's credentials", |sandbox| {
        let one = number(sandbox, "metal-2");
        sandbox
            .robot()
            .set_login("admin", "secret", Sees::Server(one));
        let login = [("ROBOT_USER", "admin"), ("ROBOT_PASSWORD", "secret")];
        with(env(sandbox), &login)
    }),
    ("a wrong password", |sandbox| {
        sandbox.robot().remove(number(sandbox, "metal-1"));
        with(env(sandbox), &[("ROBOT_PASSWORD", "wrong")])
    }),
    ("a block of ten minutes", |sandbox| {
        sandbox.robot().remove(number(sandbox, "metal-1"));
        for _ in 0..3 {
            common::fail_to_log_in(sandbox);
        }
        assert!(sandbox.robot().blocked_for().is_some());
        env(sandbox)
    }),
    ("403, rate limit", |sandbox| {
        let body = json!({ "error": {
            "status": 403, "code": "RATE_LIMIT_EXCEEDED", "message": "no", "max_request": 200, "interval": 3600,
        } });
        gone_and(sandbox, "/server /server/*", answer(403, &body))
    }),
    ("403 of another kind",
        |sandbox| { let page = page(403, "Forbidden"); gone_and(sandbox, "/server /server/*", Effect::Instead(page)) }),
    ("503, maintenance", |sandbox| gone_and(sandbox, "/server /server/*", Effect::Instead(page(503, "maintenance")))),
    ("a 404 that is a proxy's", |sandbox| gone_and(sandbox, "/server/*", Effect::Instead(page(404, "Not Found")))),
    ("a 404 of another code", |sandbox| {
        let body =
            json!({ "error": { "status": 404, "code": "NOT_FOUND", "message": "Not Found" } });
        gone_and(sandbox, "/server/*", answer(404, &body))
    }),
    ("no answer in time", |sandbox| gone_and(sandbox, "/server/*", Effect::Slow(Duration::from_secs(60)))),
    ("a list that is cut off", |sandbox| gone_and(sandbox, "/server", Effect::cut_off())),
    ("a list that is malformed", |sandbox| {
        let body = json!([{ "server": { "server_number": "x" } }]);
        gone_and(sandbox, "/server", answer(200, &body))
    }),
    ("a number that is another machine's now", |sandbox| {
        let one = number(sandbox, "metal-1");
        sandbox
            .robot()
            .edit(one, |server| server.name = "somebody-else".into());
        env(sandbox)
    }),
    ("a cancelled server", |sandbox| {
        let one = number(sandbox, "metal-1");
        sandbox.robot().edit(one, |server| server.cancelled = true);
        env(sandbox)
    }),
    ("Robot turned off", |sandbox| {
        sandbox.robot().remove(number(sandbox, "metal-1"));
        with(env(sandbox), &[("ROBOT_ENABLED", "false")])
    }),
    ("credentials removed", |sandbox| {
        sandbox.robot().remove(number(sandbox, "metal-1"));
        with(env(sandbox), &[("ROBOT_USER", ""), ("ROBOT_PASSWORD", "")])
    }),
];

/// Deletes the server and answers with something that is not the API's own answer.
fn gone_and(sandbox: &Sandbox, path: &str, effect: Effect) -> Env {
    sandbox.robot().remove(number(sandbox, "metal-1"));
    // The list, a server alone, or both.
    for path in path.split(' ') {
        let rule = Rule::new(effect.clone()).path(path).half(Half::Robot);
        sandbox.fault(rule);
    }
    env(sandbox)
}

fn page(status: u16, text: &str) -> Response {
    Response {
        status,
        headers: vec![("Content-Type".into(), "text/html".into())],
        body: format!("<html>{text}</html>").into(),
    }
}

#[test]
fn a_dedicated_node_stays_unchanged_when_anything_is_unclear() {
    let cases = DOUBTS.to_vec();
    run_in_parallel(cases, |(name, change)| {
        let sandbox = initialised(1, 3);
        let env = change(&sandbox);
        // The kubelet reports nothing, whatever its machine does.
        sandbox.set_ready("metal-1", "Unknown");
        let shown = |name: &str| {
            let node = sandbox.node(name);
            (node["spec"].clone(), node["metadata"]["labels"].clone(), addresses(&node))
        };
        let before = shown("metal-1");
        let cloud = sandbox.calls().count(|call| call.half == Half::Hetzner);
        let flags: &[&str] = match name.contains("without the guard") {
            true => &["--node-deletion-guard=false"],
            false => &[],
        };
        let daemon = Daemon::start(&env, flags);
        let ticks = || {
            let calls = sandbox.calls().calls();
            let lists = calls.iter().filter(|call| call.path == "/api/v1/nodes");
            lists.count()
        };
        let first = ticks();
        wait_until("some ticks", || ticks() > first + 12);
        let now = sandbox.calls().count(|call| call.half == Half::Hetzner);
        assert!(now > cloud, "{name}: the Cloud side goes on");
        for one in ["metal-1", "metal-2", "metal-3"] {
            assert!(sandbox.has_node(one), "{name}:\n{}", daemon.log());
        }
        assert_eq!(shown("metal-1"), before, "{name}:\n{}", daemon.log());
        let deleted = sandbox.calls().count(|call| call.method == "DELETE");
        assert_eq!(deleted, 0, "{name}");
    });
}

#[test]
fn another_name_in_robot_is_a_warning_and_never_a_deletion() {
    let sandbox = initialised(1, 2);
    let one = number(&sandbox, "metal-1");
    sandbox.robot().edit(one, |server| server.name = "renamed".into());
    sandbox.set_ready("metal-1", "Unknown");
    let _daemon = sandbox.daemon(&[]);
    sandbox.wait_for_event("metal-1", "PossibleNodeDeletion", &[]);
    assert!(sandbox.has_node("metal-1"));
}

#[test]
fn a_name_that_both_apis_have_is_never_guessed() {
    let sandbox = start(1, 1);
    let one = number(&sandbox, "metal-1");
    sandbox.robot().edit(one, |server| server.name = "worker-1".into());
    sandbox.ccm(&["run", "--once"]).with_code(1);
    assert!(is_new(&sandbox, "worker-1"));
    assert!(sandbox.has_event("worker-1", "InstanceLookupFailed"));
}

/// An hour of ten nodes that are not ready. The sandbox's limits are those of the API, in the same scale.
#[test]
fn ten_not_ready_nodes_for_an_hour_cost_less_than_the_limits() {
    let builder = common::builder().nodes(1).robot(10);
    let sandbox = builder.heartbeats(false).simulated();
    let env = env(&sandbox);
    ccm(&env, &["run", "--once"]).with_code(0);
    for server in sandbox.robot().servers() {
        // The power of the server is unknown, and is asked for repeatedly.
        sandbox
            .robot()
            .edit(server.number, |server| server.operating_status = Some("not supported".into()));
    }
    for server in sandbox.robot().servers() {
        sandbox.robot().set_power(server.number, false);
    }
    sandbox.kubelets().expire();
    let daemon = Daemon::start(&env, &[]);
    let marks = (
        robot_calls(&sandbox, "/server"),
        robot_calls(&sandbox, "/reset"),
        common::hetzner_calls(&sandbox),
    );
    common::pass(&sandbox, HOUR);
    let lists = robot_calls(&sandbox, "/server") - marks.0;
    let resets = robot_calls(&sandbox, "/reset") - marks.1;
    let cloud = common::hetzner_calls(&sandbox) - marks.2;
    println!("{lists} calls of /server, {resets} of /reset, {cloud} of the Cloud");
    // A list of servers every five minutes, and the first ones.
    assert!(cloud <= 20, "{cloud}");
    assert!(lists <= 200 && resets <= 400, "{lists} {resets}");
    assert!(resets > 100, "they are asked for: {resets}\n{}", daemon.log());
    let refused =
        sandbox.calls().count(|call| call.half == Half::Robot && call.status == Some(403));
    assert_eq!(refused, 0, "{}", daemon.log());
}

#[test]
fn a_daemon_without_work_lists_dedicated_servers_every_five_minutes() {
    let sandbox = initialised(2, 2);
    let _daemon = sandbox.daemon(&[]);
    let first = robot_calls(&sandbox, "/server");
    common::pass(&sandbox, HOUR);
    let lists = robot_calls(&sandbox, "/server") - first;
    // The first one, and twelve.
    assert!((2..=13).contains(&lists), "{lists}");
    assert_eq!(robot_calls(&sandbox, "/reset"), 0);
}

#[test]
fn a_dedicated_node_gets_no_route_and_no_condition() {
    let sandbox = start(2, 1);
    let flags = ["--cluster-cidr=10.244.0.0/16"];
    let ran = sandbox.ccm(&[&["run", "--once"], &flags[..]].concat()).with_code(0);
    let network = sandbox.cloud().networks(sandbox.project()).remove(0);
    assert_eq!(network["routes"].as_array().unwrap().len(), 2, "{network}");
    let condition = |name: &str| {
        let node = sandbox.node(name);
        let mut all = node["status"]["conditions"].as_array().unwrap().iter();
        all.any(|one| one["type"] == "NetworkUnavailable")
    };
    assert!(condition("worker-1") && !condition("metal-1"));
    assert!(ran.stderr.contains("metal-1"), "one finding: {}", ran.stderr);
}

#[test]
fn dedicated_nodes_are_targets_of_load_balancers_by_their_addresses() {
    let builder = common::builder().nodes(1).robot(2).services(1);
    let sandbox = builder.network("10.0.0.0/8").simulated();
    let env = with(env(&sandbox), &[("HCLOUD_LOAD_BALANCERS_LOCATION", "fsn1")]);
    let daemon = Daemon::start(&env, &[]);
    let targets = || targets(&sandbox);
    let mut expected: Vec<String> =
        sandbox.robot().servers().into_iter().filter_map(|server| server.server_ip).collect();
    expected.sort();
    wait_until("all targets", || targets() == Some((3, expected.clone())));
    sandbox.stop(Half::Robot);
    let mark = sandbox.mark();
    wait_until("some ticks without Robot", || sandbox.calls_of(mark, "/api/v1/services") > 6);
    assert_eq!(targets(), Some((3, expected)), "{}", daemon.log());
    let is_such = |call: &Call| call.is_write() && call.half == Half::Hetzner;
    assert_eq!(sandbox.count_since(mark, is_such), 0);
}

/// A kubelet can report any address.
#[test]
fn an_address_that_a_kubelet_reports_removes_no_target_of_an_operator() {
    let builder = common::builder().nodes(1).robot(2).services(1);
    let sandbox = builder.network("10.0.0.0/8").heartbeats(false).simulated();
    let env = with(env(&sandbox), &[("HCLOUD_LOAD_BALANCERS_LOCATION", "fsn1")]);
    ccm(&env, &["run", "--once"]).with_code(0);
    let (_, own) = targets(&sandbox).unwrap();
    let others = ["198.51.100.7", "198.51.100.8"];
    let id = sandbox.balancers()[0]["id"].as_u64();
    sandbox.edit_balancer(id.unwrap(), |balancer| {
        let targets = balancer["targets"].as_array_mut().unwrap();
        targets.extend(others.map(|ip| json!({ "type": "ip", "ip": { "ip": ip } })));
    });
    // The node is no target any more. Its own address is removed, and the others stay.
    sandbox.edit_node("metal-1", |node| {
        node["metadata"]["labels"]["node.kubernetes.io/exclude-from-external-load-balancers"] =
            json!("true");
        let kinds = ["InternalIP", "ExternalIP"].into_iter().zip(others);
        let addresses = kinds.map(|(kind, ip)| json!({ "type": kind, "address": ip }));
        node["status"]["addresses"] = addresses.collect();
    });
    let mut ran = ccm(&env, &["run", "--once", "--controllers=service"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let (_, now) = targets(&sandbox).unwrap();
    for other in others {
        assert!(now.contains(&other.to_owned()), "{now:?} {ran:?}");
    }
    ran = ccm(&env, &["run", "--once"]);
    let (_, now) = targets(&sandbox).unwrap();
    let stays = own.iter().filter(|ip| now.contains(ip)).count();
    assert_eq!((now.len(), stays), (3, 1), "{now:?} {ran:?}");
}

/// Most ticks make no call to Robot, so they do not show that Robot works again.
#[test]
fn an_outage_of_robot_is_one_line_when_it_begins_and_one_when_it_ends() {
    let sandbox = initialised(1, 1);
    let env = with(env(&sandbox), &[("ROBOT_CACHE_TIMEOUT", "10s")]);
    let daemon = Daemon::start(&env, &["--node-status-update-frequency=20s"]);
    let lists = || robot_calls(&sandbox, "/server");
    let first = lists();
    wait_until("some lists", || lists() > first + 1);
    sandbox.stop(Half::Robot);
    daemon.logs("trying again every");
    let mark = sandbox.mark();
    wait_until("many ticks", || {
        let calls = sandbox.calls().calls_since(mark);
        let ticks = calls.iter().filter(|call| call.path == "/api/v1/nodes");
        ticks.count() > 25
    });
    let count = |text: &str| daemon.log().matches(text).count();
    assert_eq!(count("trying again every"), 1, "{}", daemon.log());
    assert_eq!(count("answer again"), 0, "{}", daemon.log());
    sandbox.resume(Half::Robot).unwrap();
    daemon.logs("Kubernetes and the cloud answer again");
}

/// Returns the number of targets of the load balancer, and the addresses among them.
fn targets(sandbox: &Sandbox) -> Option<(usize, Vec<String>)> {
    let balancers = sandbox.balancers();
    let targets = balancers.first()?["targets"].as_array()?.clone();
    let mut ips: Vec<String> =
        targets.iter().filter_map(|target| Some(target["ip"]["ip"].as_str()?.to_owned())).collect();
    ips.sort();
    Some((targets.len(), ips))
}

/// The Cloud API asks Robot who owns an address. While that fails, all other changes of the load balancer are made.
#[test]
fn cloud_servers_become_targets_while_the_cloud_cannot_ask_robot() {
    let builder = common::builder().nodes(1).robot(1).services(1);
    let sandbox = builder.network("10.0.0.0/8").simulated();
    let location = [("HCLOUD_LOAD_BALANCERS_LOCATION", "fsn1")];
    sandbox.cloud().set_robot_unavailable(true);
    let daemon = Daemon::start(&with(env(&sandbox), &location), &[]);
    wait_until("the cloud server alone", || targets(&sandbox) == Some((1, Vec::new())));
    wait_until("an address of the Service", || {
        let service = sandbox.service("web-1");
        service.is_some_and(|one| one["status"]["loadBalancer"]["ingress"].is_array())
    });
    daemon.logs("robot_unavailable");
    sandbox.cloud().set_robot_unavailable(false);
    let address = sandbox.robot().servers().remove(0).server_ip.unwrap();
    wait_until("the address", || targets(&sandbox) == Some((2, vec![address.clone()])));
}
