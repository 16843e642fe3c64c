//! `ccm` as a program of its own, with its threads: in stories over sockets it is killed by SIGKILL at a write.

use crate::common::{Daemon, Env, env, holds_within, is_lease, with};
use crate::process::PRIMARY_IP_SELECTOR;
use crate::random::Random;
use sandbox::Sandbox;
use sandbox::exchange::Request;
use sandbox::faults::Rule;
use std::time::Duration;

/// One that has nothing left to write is killed all the same.
const DIES_AFTER: Duration = Duration::from_millis(700);

/// Starts one, which is killed before or after its n-th write to either API happened.
pub fn live(sandbox: &Sandbox, token: &str, random: &mut Random) -> String {
    let (nth, after) = (1 + random.below(8), random.percent(50));
    let is_about_objects =
        |request: &Request| !is_lease(&request.path) && !request.path.contains("/events");
    let calls = |rule: Rule| rule.writes().when(is_about_objects).nth(nth);
    let mut flags = vec!["--leader-elect=false", "--load-balancer-resync-period=10s"];
    if sandbox.network().is_some() {
        flags.push("--cluster-cidr=10.244.0.0/16");
    }
    let env = settings(sandbox, token);
    let (daemon, rule) = Daemon::killed_at(sandbox, &env, &flags, !after, calls);
    let is_killed = holds_within(DIES_AFTER, || daemon.status().is_some());
    drop(daemon);
    sandbox.faults().remove(rule);
    format!("a program was killed at write {nth}: {is_killed}")
}

/// As in [`crate::process`].
fn settings(sandbox: &Sandbox, token: &str) -> Env {
    #[rustfmt::skip] // A case is a line.
    let settings = [
        ("HCLOUD_TOKEN", token),
        ("CCM_TEST_TIME_SCALE", "0.002"),
        ("HCLOUD_LOAD_BALANCERS_LOCATION", "fsn1"),
        ("HCLOUD_LOAD_BALANCERS_PRIMARY_IP_SELECTOR", PRIMARY_IP_SELECTOR),
        ("HCLOUD_INSTANCES_LABEL_PREFIXES", "node.example.com/"),
    ];
    with(env(sandbox), &settings)
}
