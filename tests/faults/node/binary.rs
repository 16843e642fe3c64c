//! The same stories with the binary: killed by SIGKILL at a write, and two of them at once without a Lease.

use super::story::Story;
use super::watch::Watch;
use super::{End, end, in_calm, storm};
use crate::common::seeds::for_each_seed;
use crate::common::{self, Daemon, Env, LIMIT, is_lease, with};
use crate::node::random::Random;
use sandbox::faults::{Effect, Rule};
use sandbox::{Half, Sandbox};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

const NO_LEASE: &[&str] = &["--leader-elect=false", "--node-status-update-frequency=10s"];

/// A daemon that has nothing left to write is killed all the same.
const DIES_AFTER: Duration = Duration::from_millis(1500);

/// With the labels that the library's controllers take from servers.
fn env(sandbox: &Sandbox) -> Env {
    let prefixes = [("HCLOUD_INSTANCES_LABEL_PREFIXES", "node.example.com/")];
    with(common::env(sandbox), &prefixes)
}

#[test]
fn killed_at_any_write_it_ends_the_same() {
    for_each_seed("faults node", 1001..=1008, |seed| {
        let story = Story::of(seed);
        let calm = in_calm(&story)?;
        let (sandbox, watch) = (story.begin(), Watch::default());
        let mut random = Random::new(seed);
        storm(&story, &sandbox, &watch, |_| {
            killed_at_write(&sandbox, 1 + random.below(6), random.percent(50));
            Ok(())
        })?;
        // With the Lease, as most run.
        let daemon = Daemon::start(&env(&sandbox), &NO_LEASE[1..]);
        let ended = ends_like(&calm, &story, &sandbox);
        watch.no_harm(&sandbox)?;
        ended.map_err(|why| format!("{why}\n{}", daemon.log()))
    });
}

#[test]
fn two_at_once_without_a_lease_lose_no_node_and_end_the_same() {
    for_each_seed("faults node", 2001..=2006, |seed| {
        let story = Story::of(seed);
        let calm = in_calm(&story)?;
        let (sandbox, watch) = (story.begin(), Watch::default());
        let two = [(); 2].map(|()| Daemon::start(&env(&sandbox), NO_LEASE));
        // A token that is refused at the start ends a daemon, as it should.
        some_ticks(&sandbox)?;
        storm(&story, &sandbox, &watch, |_| some_ticks(&sandbox))?;
        let ended = ends_like(&calm, &story, &sandbox);
        watch.no_harm(&sandbox)?;
        ended.map_err(|why| format!("{why}\n{}\n{}", two[0].log(), two[1].log()))
    });
}

/// Kills a daemon before or after its n-th write happened.
fn killed_at_write(sandbox: &Sandbox, n: u64, after: bool) {
    let killer: Arc<OnceLock<Box<dyn Fn() + Send + Sync>>> = Arc::default();
    let kill = Arc::clone(&killer);
    let hook = move |_: &sandbox::exchange::Request| kill.wait()();
    let effect = match after {
        true => Effect::after(hook),
        false => Effect::before(hook),
    };
    let of_a_controller = |request: &sandbox::exchange::Request| !is_lease(&request.path);
    let rule = Rule::new(effect).half(Half::Kubernetes).writes();
    let rule = sandbox.faults().add(rule.when(of_a_controller).nth(n));
    let daemon = Daemon::start(&env(sandbox), NO_LEASE);
    assert!(killer.set(Box::new(daemon.killer())).is_ok());
    let begun = Instant::now();
    while sandbox.faults().hits(rule) == 0 && begun.elapsed() < DIES_AFTER {
        std::thread::sleep(Duration::from_millis(5));
    }
    daemon.killer()();
}

/// Some looks at the cluster by both.
fn some_ticks(sandbox: &Sandbox) -> Result<(), String> {
    let mark = sandbox.calls().mark();
    let looks = || {
        let calls = sandbox.calls().calls_since(mark);
        let looks = calls.iter().filter(|call| call.path == "/api/v1/nodes");
        looks.count()
    };
    let begun = Instant::now();
    while looks() < 20 {
        if begun.elapsed() > LIMIT {
            return Err("nobody looks at the cluster any more".into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn ends_like(calm: &End, story: &Story, sandbox: &Sandbox) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        let outcome = story.same_end(&end(sandbox), calm);
        if outcome.is_ok() || begun.elapsed() > LIMIT {
            return outcome;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
