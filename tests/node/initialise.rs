//! Nodes are initialised while nothing fails. The binary runs against the sandbox.

use crate::common::{
    self, Cluster, Daemon, Ran, Simulate, addresses, all_initialised, ccm, env, events,
    hetzner_calls, is_initialised, is_lease, simulated_cluster, socket_cluster, wait_until, with,
    writes,
};
use sandbox::Half;
use sandbox::calls::Call;
use sandbox::faults::{Effect, Rule};
use serde_json::{Value, json};
use std::io::Write;
use std::time::Instant;

#[test]
fn the_daemon_initialises_new_nodes_and_ends_cleanly() {
    let sandbox = common::builder().nodes(3).network("10.0.0.0/8").start();
    let daemon = sandbox.daemon(&[]);
    sandbox.wait_for_nodes();
    let worker = sandbox.node("worker-1");
    let expected = ["Hostname worker-1", "ExternalIP 203.0.113.1", "InternalIP 10.0.0.2"];
    assert_eq!(addresses(&worker), expected);
    let id = sandbox.servers()[0]["id"].as_u64().unwrap();
    let expected = format!("ccm-from-scratch://{id}");
    assert_eq!(worker["spec"]["providerID"], expected);
    for (key, value) in [
        ("node.kubernetes.io/instance-type", "cx22"),
        ("beta.kubernetes.io/instance-type", "cx22"),
        ("topology.kubernetes.io/zone", "fsn1"),
        ("failure-domain.beta.kubernetes.io/zone", "fsn1"),
        ("topology.kubernetes.io/region", "eu-central"),
        ("failure-domain.beta.kubernetes.io/region", "eu-central"),
    ] {
        assert_eq!(worker["metadata"]["labels"][key], value, "{key}");
    }
    sandbox.join_node("late");
    sandbox.wait_for_node("late");
    wait_until("its event", || events(&sandbox, "late") == [("Synced".to_owned(), 1)]);
    let begun = Instant::now();
    // Some send the same wish twice.
    daemon.signal("-TERM");
    daemon.stop();
    assert!(begun.elapsed().as_secs() < 2, "it had nothing left to do");
}

#[test]
fn ctrl_c_ends_a_pass_at_once_even_while_it_waits_for_an_answer() {
    let sandbox = socket_cluster(1);
    let slow = Effect::Slow(std::time::Duration::from_secs(60));
    sandbox.fault(Rule::new(slow).half(Half::Hetzner));
    // The test runs in real time, so that the answer may take longer than a pod may take to end.
    let real_time = common::real_time(&sandbox);
    let daemon = Daemon::start(&real_time, &[]);
    wait_until("a call", || hetzner_calls(&sandbox) > 0);
    let begun = Instant::now();
    daemon.signal("-INT");
    assert!(daemon.ended().success(), "{}", daemon.log());
    assert!(begun.elapsed().as_secs() < 10);
}

/// A CronJob's pod is given 30 s, a person at a terminal less.
#[test]
fn a_pass_ends_in_time_even_while_it_waits_for_an_answer() {
    let left_behind = [
        "cloud-node-controller: ccm was stopped before an API answered. Each object without a log line above was not processed",
        "cloud-node-lifecycle-controller: not started, because ccm was asked to stop",
    ];
    std::thread::scope(|scope| {
        scope.spawn(|| ends_in_time("--once", "-TERM", Some(1), &left_behind));
        scope.spawn(|| ends_in_time("--once", "-INT", Some(1), &left_behind));
        // There is nothing to finish, so the signal itself ends the command.
        scope.spawn(|| ends_in_time("--dry-run", "-TERM", None, &[]));
    });
}

fn ends_in_time(flag: &str, signal: &str, code: Option<i32>, lines: &[&str]) {
    let sandbox = socket_cluster(2);
    let slow = Effect::Slow(std::time::Duration::from_secs(60));
    sandbox.fault(Rule::new(slow).half(Half::Hetzner));
    let real_time = common::real_time(&sandbox);
    let pass = Daemon::start(&real_time, &[flag]);
    wait_until("a call", || hetzner_calls(&sandbox) > 0);
    let begun = Instant::now();
    pass.signal(signal);
    assert_eq!(pass.ended().code(), code, "{flag}: {}", pass.log());
    assert!(begun.elapsed().as_secs() < 10, "{flag}");
    for line in lines {
        pass.logs(line);
    }
}

#[test]
fn addresses_are_written_before_the_taint_is_removed() {
    let sandbox = simulated_cluster(1);
    sandbox.converge();
    let expected = [
        "PATCH /api/v1/nodes/worker-1/status",
        "PATCH /api/v1/nodes/worker-1",
        "POST /api/v1/namespaces/default/events",
    ];
    assert_eq!(writes(&sandbox), expected);
    let bodies: Vec<Value> = sandbox
        .calls()
        .calls()
        .iter()
        .filter(|call| call.method == "PATCH")
        .map(|call| call.json().unwrap())
        .collect();
    for body in &bodies {
        assert!(
            body["metadata"]["resourceVersion"].is_string(),
            "a patch names the version it was planned on"
        );
    }
    assert!(bodies[0]["spec"].is_null() && bodies[1]["spec"]["providerID"].is_string());
}

#[test]
fn a_steady_state_costs_no_hetzner_call_and_no_write() {
    let sandbox = common::builder().nodes(3).scale(0.02).simulated();
    let daemon = sandbox.daemon(&["--node-status-update-frequency=1h"]);
    sandbox.wait_for_nodes();
    wait_until("all events", || {
        (1..=3).all(|n| !events(&sandbox, &format!("worker-{n}")).is_empty())
    });
    // A daemon makes some calls only once, at its start.
    wait_until("a search for orphans", || {
        let is_look = |call: &Call| call.path == "/v1/load_balancers";
        sandbox.calls().count(is_look) > 0
    });
    let mark = sandbox.mark();
    let since = || sandbox.calls().calls_since(mark);
    wait_until("thirty polls", || sandbox.calls_of(mark, "/api/v1/nodes") > 30);
    let others: Vec<String> = since()
        .iter()
        .filter(|call| !is_lease(&call.path))
        .filter(|call| {
            let is_look = ["/api/v1/nodes", "/api/v1/services"].contains(&call.path.as_str());
            !(is_look && call.method == "GET")
        })
        .map(ToString::to_string)
        .collect();
    assert_eq!(others, Vec::<String>::new(), "{}", daemon.log());
}

#[test]
fn a_node_without_a_server_waits_with_a_growing_pause() {
    let sandbox = simulated_cluster(1);
    sandbox.register("stray", None, "");
    let daemon = sandbox.daemon(&[]);
    wait_until("its event", || events(&sandbox, "stray") == [("ServerNotFound".to_owned(), 1)]);
    let lists = || {
        let calls = sandbox.calls().calls();
        let lists = calls.iter().filter(|call| call.path == "/v1/servers");
        lists.map(|call| call.started).collect::<Vec<_>>()
    };
    wait_until("six polls", || lists().len() >= 6);
    let pauses: Vec<_> = lists().windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses[4] > pauses[1] * 2, "{pauses:?}");
    assert!(!is_initialised(&sandbox.node("stray")), "{}", daemon.log());
    let expected = [("ServerNotFound".to_owned(), 1)];
    assert_eq!(events(&sandbox, "stray"), expected, "told once");
    sandbox.create_server("stray");
    sandbox.wait_for_node("stray");
}

#[test]
fn another_project_s_token_changes_nothing() {
    let sandbox = simulated_cluster(2);
    sandbox.converge();
    let before = sandbox.nodes();
    let foreign = common::foreign(&sandbox);
    let ran = ccm(&foreign, &["run", "--once"]);
    ran.warns("does the token belong to another project?");
    assert_eq!(sandbox.nodes(), before);
}

#[test]
fn addresses_that_change_in_the_cloud_are_written_at_the_refresh() {
    let sandbox = simulated_cluster(1);
    let _daemon = sandbox.daemon(&["--node-status-update-frequency=10s"]);
    sandbox.wait_for_nodes();
    let id = sandbox.servers()[0]["id"].as_u64().unwrap();
    sandbox
        .cloud()
        .edit_server(id, |server| server["public_net"]["ipv4"]["ip"] = json!("203.0.113.77"));
    wait_until("the new address", || {
        addresses(&sandbox.node("worker-1")) == ["Hostname worker-1", "ExternalIP 203.0.113.77"]
    });
}

/// This is the case of `HCLOUD_TOKEN_FILE=<(pass hcloud) ccm run --once`.
#[test]
fn a_token_from_a_pipe_is_read_once_and_kept() {
    let sandbox = socket_cluster(60);
    let from_stdin = [
        ("HCLOUD_TOKEN", ""),
        ("HCLOUD_TOKEN_FILE", "/dev/stdin"),
        // In scaled time the list of servers would become too old for so many writes.
        ("CCM_TEST_TIME_SCALE", "1"),
    ];
    let env = with(env(&sandbox), &from_stdin);
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(sandbox.projects().token.as_bytes()).unwrap();
    drop(writer);
    let output = common::command(&env, &["run", "--once"]).stdin(reader).output().unwrap();
    Ran::from(output).with_code(0);
    assert!(all_initialised(&sandbox));
}

#[test]
fn every_request_fits_the_api_s_own_document() {
    let Some(spec) = common::openapi() else {
        return;
    };
    let sandbox = common::networked(60).simulated();
    sandbox.converge();
    let calls = sandbox.calls().calls();
    let hetzner: Vec<_> = calls
        .iter()
        // The metadata service is on the same half, and has no document.
        .filter(|call| call.half == Half::Hetzner && call.path.starts_with("/v1/"))
        .collect();
    assert!(hetzner.len() >= 3, "a network and two pages");
    for call in hetzner {
        spec.check_request(&call.method, &call.path, &call.query, &call.body)
            .unwrap_or_else(|e| panic!("{call}: {e:?}"));
    }
}

/// The kubelet of the new machine reports on the old machine's Node. So the Node is ready, and stays.
#[test]
fn a_node_whose_server_was_replaced_under_its_name_is_reported_with_the_fix() {
    let sandbox = simulated_cluster(2);
    sandbox.converge();
    let servers = sandbox.servers();
    let id = |server: &Value| server["id"].as_u64().unwrap();
    let of = |name: &str| servers.iter().find(|server| server["name"] == name);
    let old = id(of("worker-2").unwrap());
    sandbox.cloud().delete_server(old);
    let new = sandbox.create_server("worker-2");
    let message = format!(
        "names server {old}, which does not exist, but server {new} has the node's name. A provider ID can't be \
         changed, so delete the node (kubectl delete node worker-2)"
    );
    let inspected = sandbox.ccm(&["node", "inspect", "worker-2", "-o", "json"]);
    inspected.prints(&message);
    let daemon = sandbox.daemon(&["--node-sync-interval=1s", "--node-status-update-frequency=2s"]);
    daemon.logs(&message);
    let lists = || sandbox.calls().count(|call| call.path == "/v1/servers");
    let enough = lists() + 5;
    wait_until("five refreshes", || lists() >= enough);
    let reported = events(&sandbox, "worker-2");
    let is_it = |(reason, _): &&(String, u64)| reason == "ServerReplaced";
    let reported: Vec<_> = reported.iter().filter(is_it).collect();
    assert_eq!(reported, [&("ServerReplaced".to_owned(), 1)]);
    daemon.logged(&message, 1);
    let worker = sandbox.node("worker-2");
    let expected = format!("ccm-from-scratch://{old}");
    assert_eq!(worker["spec"]["providerID"], expected, "it stays");
    // The fix.
    sandbox.delete_node("worker-2");
    sandbox.register_nodes_of(&[new]);
    wait_until("the new node", || {
        let id = &sandbox.node("worker-2")["spec"]["providerID"];
        *id == format!("ccm-from-scratch://{new}")
    });
}
