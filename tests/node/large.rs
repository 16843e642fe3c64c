//! A project with more servers than a few pages contain: which servers are read one by one, and what that proves.

use crate::common::{self, Cluster, Daemon, Simulate, answer, on, run_in_parallel, wait_until};
use sandbox::Sandbox;
use sandbox::calls::Call;
use sandbox::faults::Effect;
use sandbox::hetzner::ServerSpec;
use sandbox::kubelet::NodeSpec;
use serde_json::{Value, json};
use std::sync::Arc;

/// The number of servers without nodes that are listed before and after those of the nodes. All servers
/// make five pages.
const OTHERS: usize = 110;
const PAGES: usize = 5;

/// A flag with which no refresh is made during a test.
const RARELY: &str = "--node-status-update-frequency=24h";

fn spec(name: &str) -> ServerSpec {
    ServerSpec { name: name.into(), ..ServerSpec::default() }
}

/// Three nodes among many servers, and a daemon that has listed them all.
fn world() -> (Arc<Sandbox>, Daemon) {
    let sandbox = common::builder().nodes(0).heartbeats(false).simulated();
    let create = |name: &str| sandbox.cloud().create_server(sandbox.project(), spec(name));
    for n in 0..OTHERS {
        create(&format!("before-{n}"));
    }
    let ids: Vec<u64> = (1..=3).map(|n| create(&format!("worker-{n}"))).collect();
    for n in 0..OTHERS {
        create(&format!("behind-{n}"));
    }
    sandbox.register_nodes_of(&ids);
    let daemon = sandbox.daemon(&[RARELY]);
    sandbox.wait_for_nodes();
    (sandbox, daemon)
}

fn of_servers(sandbox: &Sandbox, mark: u64) -> Vec<Call> {
    let calls = sandbox.calls().calls_since(mark).into_iter();
    calls.filter(|call| call.path.starts_with("/v1/servers")).collect()
}

fn lose(sandbox: &Sandbox, name: &str) {
    sandbox.delete_server(name);
    sandbox.kubelets().expire();
}

#[test]
fn a_new_node_costs_one_call() {
    let (sandbox, daemon) = world();
    let mark = sandbox.mark();
    sandbox.join(spec("late"));
    sandbox.wait_for_node("late");
    let calls = of_servers(&sandbox, mark);
    let names: Vec<_> = calls.iter().map(|call| call.query("name")).collect();
    assert_eq!(names, [Some("late")], "{}", daemon.log());
    let id = format!("ccm-from-scratch://{}", sandbox.server_id("late"));
    assert_eq!(sandbox.provider_id("late"), id.as_str());
}

/// Many at once are a list.
#[test]
fn more_new_nodes_than_pages_share_a_list() {
    let (sandbox, _daemon) = world();
    let servers = (0..2 * PAGES).map(|n| spec(&format!("late-{n}")));
    let create = |server| sandbox.cloud().create_server(sandbox.project(), server);
    let ids: Vec<u64> = servers.map(create).collect();
    let mark = sandbox.mark();
    sandbox.register_nodes_of(&ids);
    sandbox.wait_for_nodes();
    let calls = of_servers(&sandbox, mark).len();
    assert!(calls <= 2 * (PAGES + 1), "{calls}");
}

/// The server of that name was deleted, and another server has its name. An older list contains only the old server.
#[test]
fn a_new_node_gets_the_server_that_has_its_name_now() {
    let (sandbox, _daemon) = world();
    sandbox.delete_server("before-7");
    let id = sandbox.join(spec("before-7"));
    sandbox.wait_for_node("before-7");
    let id = format!("ccm-from-scratch://{id}");
    assert_eq!(sandbox.provider_id("before-7"), id.as_str());
}

/// The node is then matched by its address, which is compared with those of all servers.
#[test]
fn a_new_node_without_a_server_of_its_name_is_matched_by_all_servers() {
    let (sandbox, _daemon) = world();
    let id = sandbox.cloud().create_server(sandbox.project(), spec("machine"));
    let servers = sandbox.servers();
    let server = servers.iter().find(|server| server["id"] == id).unwrap();
    let ip = server.pointer("/public_net/ipv4/ip").and_then(Value::as_str);
    sandbox.register_node(NodeSpec {
        name: "other-name".into(),
        server: Some(id),
        internal_ip: ip.map(str::to_owned),
        ..NodeSpec::default()
    });
    sandbox.wait_for_node("other-name");
    let id = format!("ccm-from-scratch://{id}");
    assert_eq!(sandbox.provider_id("other-name"), id.as_str());
}

#[test]
fn a_deleted_server_costs_few_calls() {
    let (sandbox, daemon) = world();
    let mark = sandbox.mark();
    lose(&sandbox, "worker-2");
    wait_until("the node to go", || !sandbox.has_node("worker-2"));
    let calls = of_servers(&sandbox, mark);
    assert!(calls.len() <= 3, "{calls:#?}\n{}", daemon.log());
    assert!(sandbox.has_node("worker-1") && sandbox.has_node("worker-3"));
}

/// The page can't be read, is incomplete, still shows the server, or shows no other node's server.
#[test]
fn a_node_stays_when_the_page_of_servers_is_unclear() {
    let error = |status, code| Effect::hetzner_error(status, code, "no");
    let cases = vec![
        ("500", error(500, "server_error")),
        ("cut off", Effect::cut_off()),
        ("malformed", Effect::Malformed),
        ("a proxy's 404", Effect::proxy_not_found()),
        ("an empty page", {
            let body = json!({ "servers": [], "meta": { "pagination": {
                "page": 3, "per_page": 50, "previous_page": 2, "next_page": 4, "last_page": 5, "total_entries": 223,
            } } });
            answer(200, &body)
        }),
    ];
    run_in_parallel(cases, |(name, effect)| {
        let (sandbox, daemon) = world();
        sandbox.fault(on("/v1/servers", effect));
        let mark = sandbox.mark();
        lose(&sandbox, "worker-2");
        let is_look = |call: &&Call| call.path != "/v1/servers";
        wait_until("a second poll", || {
            let calls = of_servers(&sandbox, mark);
            calls.iter().filter(is_look).count() >= 2
        });
        assert!(sandbox.has_node("worker-2"), "{name}: {}", daemon.log());
    });
}

#[test]
fn a_server_that_its_page_shows_counts_as_existing() {
    let (sandbox, daemon) = world();
    let lie = Effect::hetzner_error(404, "not_found", "no");
    sandbox.fault(on("/v1/servers/*", lie));
    sandbox.set_ready("worker-2", "Unknown");
    daemon.logs("the list of servers contains the server");
    assert!(sandbox.has_node("worker-2"));
}

/// The node is the last one of its cluster, or the token is another project's. Neither the page nor the list shows
/// another node's server.
#[test]
fn a_node_stays_when_no_other_node_s_server_is_visible() {
    let (sandbox, daemon) = world();
    drop(daemon);
    // A provider ID can't be changed, so the nodes are registered again.
    for name in ["worker-1", "worker-3"] {
        sandbox.delete_node(name);
        let provider_id = Some("other://1".into());
        sandbox.register_node(NodeSpec { name: name.into(), provider_id, ..NodeSpec::default() });
    }
    lose(&sandbox, "worker-2");
    let daemon = sandbox.daemon(&[RARELY]);
    daemon.logs("is not in this token's project");
    assert!(sandbox.has_node("worker-2"), "{}", daemon.log());
}
