//! Leader election in everything but the daemon: `run --once`, dry runs, the commands of a
//! person, and `--leader-elect=false`.

use crate::common::cluster::{held, lease_time, text};
use crate::common::{Cluster, all_initialised, is_lease, socket_cluster};
use sandbox::Sandbox;
use sandbox::calls::Call;
use std::time::{Duration, Instant};

fn holder(sandbox: &Sandbox) -> String {
    text(&sandbox.lease()["spec"]["holderIdentity"])
}

fn record(sandbox: &Sandbox, renewed: &str) {
    sandbox.create_lease(held("another-host_1", 15, renewed, 7));
}

fn now() -> String {
    lease_time(jiff::Timestamp::now())
}

fn writes(sandbox: &Sandbox) -> usize {
    let such = |call: &Call| call.is_write() && call.caller != "admin";
    sandbox.calls().count(such)
}

#[test]
fn run_once_takes_a_free_lease_and_releases_it() {
    let sandbox = socket_cluster(1);
    for transitions in [0, 1] {
        sandbox.converge();
        assert!(all_initialised(&sandbox));
        let lease = sandbox.lease();
        assert_eq!(lease["spec"]["holderIdentity"], "");
        assert_eq!(lease["spec"]["leaseTransitions"], transitions);
    }
}

#[test]
fn run_once_takes_the_lease_of_a_holder_that_does_not_renew_it() {
    let sandbox = socket_cluster(1);
    record(&sandbox, &now());
    let begun = Instant::now();
    sandbox.converge();
    assert!(begun.elapsed() > Duration::from_millis(1_400), "watched it first");
    assert!(all_initialised(&sandbox));
    assert_eq!(holder(&sandbox), "", "and handed it back");
}

#[test]
fn run_once_leaves_the_work_to_a_live_leader() {
    let sandbox = socket_cluster(1);
    let daemon = sandbox.daemon(&[]);
    sandbox.wait_for_nodes();
    let before = holder(&sandbox);
    let ran = sandbox.ccm(&["run", "--once"]).with_code(0);
    ran.warns(&format!("{before} is the leader and does the work, so this process ends"));
    assert!(!ran.stderr.contains("calls made"), "{}", ran.stderr);
    assert_eq!(holder(&sandbox), before, "{}", daemon.log());
}

#[test]
fn run_once_fails_when_the_lease_cannot_be_read() {
    let sandbox = socket_cluster(1);
    sandbox.stop(sandbox::Half::Kubernetes);
    sandbox.ccm(&["run", "--once"]).with_code(1).warns("connection refused");
}

#[test]
fn a_role_without_leases_is_reported_and_client_commands_work() {
    let sandbox = socket_cluster(1);
    let mut rules = sandbox::world::official_rules();
    rules.retain(|rule| !rule.resources.contains(&"leases".to_owned()));
    sandbox.add_user("ccm", &[], rules).unwrap();
    let daemon = sandbox.daemon(&[]);
    assert_eq!(daemon.ended().code(), Some(1));
    daemon.logs("lease kube-system/cloud-controller-manager: GET");
    daemon.logs(
        "give this user a role that allows this call; with --leader-elect=false, ccm needs no Lease",
    );
    let ran = sandbox.ccm(&["node", "list", "--own-settings"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    sandbox.ccm(&["run", "--once", "--leader-elect=false"]).with_code(0);
}

#[test]
fn a_sync_names_the_leader_and_a_dry_run_writes_nothing() {
    let commands: [&[&str]; 5] = [
        &["node", "list", "-o", "json"],
        &["node", "inspect", "worker-1"],
        &["node", "sync", "--dry-run"],
        &["run", "--once", "--dry-run"],
        &["node", "sync"],
    ];
    // The Lease is free, held, or held and long expired.
    let long_ago = "2020-01-01T00:00:00.000000Z".to_owned();
    for (renewed, told) in [(None, false), (Some(now()), true), (Some(long_ago), false)] {
        let sandbox = socket_cluster(1);
        if let Some(renewed) = &renewed {
            record(&sandbox, renewed);
        }
        for words in commands {
            let ran = sandbox.ccm(words);
            assert_eq!(ran.code, 0, "{words:?}: {}", ran.stderr);
            let line = "another-host_1 is the leader (lease kube-system/cloud-controller-manager)";
            let is_told = ran.stderr.contains(line);
            let expected = told && words[..2] == ["node", "sync"];
            assert_eq!(is_told, expected, "{words:?}: {}", ran.stderr);
            let is_dry = words != ["node", "sync"];
            assert_eq!(writes(&sandbox) == 0, is_dry, "{words:?}");
        }
    }
}

#[test]
fn two_daemons_without_leader_election_reach_the_same_state() {
    let sandbox = socket_cluster(10);
    let daemons = [0; 2].map(|_| sandbox.daemon(&["--leader-elect=false"]));
    sandbox.wait_for_nodes();
    assert_eq!(sandbox.nodes().len(), 10);
    assert_eq!(sandbox.calls().count(|call| is_lease(&call.path)), 0);
    for daemon in &daemons {
        daemon.stop();
    }
    let ran = sandbox.ccm(&["run", "--once", "--leader-elect=false"]);
    ran.warns("0 changed, 10 unchanged, 0 failed");
}
