//! `run --once` as a CronJob and as cron run it. Its last line is the result.

use crate::common::{self, Cluster, Daemon, LIMIT, ccm, env, socket_cluster, wait_until};
use sandbox::Half;
use sandbox::faults::{Effect, Rule};
use std::time::Instant;

fn last_line(log: &str) -> String {
    log.lines().last().unwrap_or_default().to_owned()
}

#[test]
fn the_last_line_of_the_job_is_its_result() {
    let sandbox = socket_cluster(2);
    let env = env(&sandbox);
    let says = |code: i32, parts: &[&str]| {
        let ran = ccm(&env, &["run", "--once"]);
        assert_eq!(ran.code, code, "{}", ran.stderr);
        let line = last_line(&ran.stderr);
        for part in parts {
            assert!(line.contains(part), "{part:?} is not in {line:?}");
        }
    };
    says(0, &["pass done after ", " 2 changed, ", " 0 failed; calls made: "]);
    says(0, &["pass done after ", " 0 changed, ", " 0 failed; "]);
    // A node without a server.
    sandbox.register("stray", None, "");
    says(1, &["pass failed after ", " 0 changed, ", " 1 failed; "]);
    // The cluster cannot be reached at all, which is also reported.
    let cluster = Rule::new(Effect::gateway_timeout()).half(Half::Kubernetes);
    sandbox.fault(cluster.path("/api/v1/nodes"));
    says(1, &["pass failed after ", ": 0 changed, "]);
}

/// The test does what `activeDeadlineSeconds` does to the Pod, and `timeout` in a crontab.
#[test]
fn the_time_limit_of_the_job_ends_it_cleanly() {
    let sandbox = socket_cluster(2);
    let env = env(&sandbox);
    // An API that does not answer.
    let slow = Rule::new(Effect::Slow(LIMIT)).half(Half::Hetzner);
    sandbox.fault(slow.path("/v1/servers"));
    let daemon = Daemon::start(&env, &["--once"]);
    wait_until("its question", || common::hetzner_calls(&sandbox) > 0);
    let begun = Instant::now();
    daemon.signal("-TERM");
    assert_eq!(daemon.ended().code(), Some(1), "{}", daemon.log());
    assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
    daemon.logs("pass ended early after ");
    assert_eq!(sandbox.lease()["spec"]["holderIdentity"], "");
}
