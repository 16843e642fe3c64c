//! `ccm` as a program of its own, with its threads. In stories over sockets the program is killed by SIGKILL
//! at a write.

use crate::common::{Daemon, Env, env, holds_within, is_lease, with};
use crate::library::SandboxAccess;
use crate::process::PRIMARY_IP_SELECTOR;
use crate::random::Random;
use ccm::provider::ForeignNodes;
use sandbox::Sandbox;
use sandbox::exchange::Request;
use sandbox::faults::Rule;
use std::time::Duration;

/// How long a program runs at most, even when it has nothing left to write.
const KILLED_AFTER: Duration = Duration::from_millis(700);

/// Starts a program that is killed before or after its n-th write to any API.
pub fn run_until_killed(sandbox: &Sandbox, access: &SandboxAccess, random: &mut Random) -> String {
    let (nth, after) = (1 + random.below(8), random.percent(50));
    let is_about_objects =
        |request: &Request| !is_lease(&request.path) && !request.path.contains("/events");
    let calls = |rule: Rule| rule.writes().when(is_about_objects).nth(nth);
    let mut flags = vec!["--leader-elect=false", "--load-balancer-resync-period=10s"];
    if sandbox.network().is_some() {
        flags.push("--cluster-cidr=10.244.0.0/16");
    }
    let env = environment(sandbox, access);
    let (daemon, rule) = Daemon::killed_at(sandbox, &env, &flags, !after, calls);
    let is_killed = holds_within(KILLED_AFTER, || daemon.status().is_some());
    drop(daemon);
    sandbox.faults().remove(rule);
    format!("a program was killed at write {nth}: {is_killed}")
}

/// Returns the environment of a program, with the same settings as in [`crate::process`].
fn environment(sandbox: &Sandbox, access: &SandboxAccess) -> Env {
    let namespace_defaults = if access.namespace_defaults { "true" } else { "false" };
    let foreign_nodes = match access.foreign_nodes {
        ForeignNodes::Ignore => "ignore",
        ForeignNodes::Match => "match",
    };
    let token = access.token();
    #[rustfmt::skip] // A case is a line.
    let settings = [
        ("HCLOUD_TOKEN", token.as_str()),
        ("CCM_TEST_TIME_SCALE", "0.002"),
        ("HCLOUD_LOAD_BALANCERS_LOCATION", "fsn1"),
        ("HCLOUD_LOAD_BALANCERS_PRIMARY_IP_SELECTOR", PRIMARY_IP_SELECTOR),
        ("HCLOUD_INSTANCES_LABEL_PREFIXES", "node.example.com/"),
        ("HCLOUD_LOAD_BALANCERS_FOREIGN_NODES", foreign_nodes),
        ("HCLOUD_LOAD_BALANCERS_NAMESPACE_DEFAULTS", namespace_defaults),
    ];
    with(env(sandbox), &settings)
}
