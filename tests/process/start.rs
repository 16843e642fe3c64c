//! A start reaches both APIs, whichever controllers run, so that a wrong token is noticed at once.

use crate::common::{
    Cluster, Daemon, ccm, env, hetzner_calls, run_in_parallel, socket_cluster, wait_until, with,
};
use sandbox::faults::{Effect, Rule};
use sandbox::{Half, Sandbox};
use std::io::{Read, Write};
use std::net::TcpStream;

const COMBINATIONS: &[&str] =
    &["cloud-node", "cloud-node-lifecycle", "cloud-node,cloud-node-lifecycle"];

/// Nodes that need nothing.
fn synced_cluster() -> Sandbox {
    let sandbox = socket_cluster(2);
    sandbox.converge();
    sandbox
}

#[test]
fn a_wrong_token_ends_every_combination_of_controllers() {
    run_in_parallel(COMBINATIONS.to_vec(), |controllers| {
        let sandbox = synced_cluster();
        let wrong = with(env(&sandbox), &[("HCLOUD_TOKEN", &"x".repeat(64))]);
        let controllers = format!("--controllers={controllers}");
        let daemon = Daemon::start(&wrong, &[&controllers]);
        assert_eq!(daemon.ended().code(), Some(1), "{}", daemon.log());
        daemon.logs("is not accepted");
        daemon.logged(" ERROR ", 1);
        for mode in ["--once", "--dry-run"] {
            let words = ["run", mode, &controllers, "--leader-elect=false"];
            ccm(&wrong, &words).with_code(1).warns("is not accepted");
        }
    });
}

#[test]
fn a_start_costs_one_call_to_the_cloud() {
    run_in_parallel(COMBINATIONS.to_vec(), |controllers| {
        let sandbox = synced_cluster();
        let before = hetzner_calls(&sandbox);
        let flags = [&format!("--controllers={controllers}"), "--node-status-update-frequency=10h"];
        let daemon = sandbox.daemon(&flags);
        daemon.logs("health: listening on ");
        wait_until("readiness", || is_ready(&daemon));
        let mark = sandbox.mark();
        wait_until("more ticks", || sandbox.calls_of(mark, "/api/v1/nodes") > 10);
        assert_eq!(hetzner_calls(&sandbox) - before, 1, "{controllers}");
    });
}

/// The cloud fails at the start. The daemon stays, reports that once, and becomes ready by itself.
#[test]
fn a_cloud_that_fails_at_the_start_is_waited_for() {
    let sandbox = synced_cluster();
    let away = Rule::new(Effect::hetzner_error(503, "maintenance", "later")).half(Half::Hetzner);
    let away = sandbox.fault(away);
    let daemon = sandbox.daemon(&["--controllers=cloud-node-lifecycle"]);
    daemon.logs(" WARN ");
    wait_until("a second try", || sandbox.faults().hits(away) > 3);
    assert!(!is_ready(&daemon), "{}", daemon.log());
    sandbox.faults().remove(away);
    wait_until("readiness", || is_ready(&daemon));
    daemon.logs("Kubernetes and the cloud answer again");
    daemon.logged(" WARN ", 1);
}

fn is_ready(daemon: &Daemon) -> bool {
    let log = daemon.log();
    let Some((_, rest)) = log.split_once("health: listening on ") else {
        return false;
    };
    let mut stream = TcpStream::connect(rest.split_whitespace().next().unwrap()).unwrap();
    stream.write_all(b"GET /readyz HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.starts_with("HTTP/1.1 200 ")
}
