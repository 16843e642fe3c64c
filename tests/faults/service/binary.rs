//! The same stories with the binary: killed by SIGKILL at a write, and two of them at once without a Lease.

use super::library::Place;
use super::others::PRIMARY_IP_SELECTOR;
use super::story::Story;
use super::watch::{Watch, all_writes};
use super::{at_rest, end, storm};
use crate::common::seeds::for_each_seed;
use crate::common::{Daemon, LIMIT, env, is_lease, with};
use crate::service::random::Random;
use sandbox::exchange::Request;
use sandbox::faults::{Effect, Rule};
use sandbox::{Half, Sandbox};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

const FLAGS: &[&str] = &[
    "--leader-elect=false",
    "--controllers=service-lb-controller",
    "--load-balancer-resync-period=10s",
];

/// A daemon that has nothing left to write is killed all the same.
const DIES_AFTER: Duration = Duration::from_millis(700);

#[test]
fn killed_at_any_write_it_ends_the_same() {
    for_each_seed("faults service", 1001..=1008, |seed| {
        let story = Story::with(seed, false);
        let mut random = Random::new(seed);
        told_by(&story, 1, |sandbox| {
            killed_at_write(sandbox, 1 + random.below(8), random.percent(50));
            Ok(Vec::new())
        })
    });
}

#[test]
fn two_at_once_without_a_lease_end_the_same() {
    for_each_seed("faults service", 2001..=2006, |seed| {
        told_by(&Story::with(seed, true), 2, |sandbox| {
            let two = [(); 2].map(|()| start(sandbox));
            some_looks(sandbox)?;
            Ok(two.into())
        })
    });
}

/// The story in bad weather, with `ccm` doing in each chapter what it is told to; in the end so many daemons.
fn told_by(
    story: &Story,
    in_the_end: usize,
    mut ccm: impl FnMut(&Sandbox) -> Result<Vec<Daemon>, String>,
) -> Result<(), String> {
    let sandbox = story.begin();
    let (watch, others) = (
        Watch::with(&sandbox, story.two_at_once),
        end::others(&sandbox),
    );
    storm(story, &sandbox, &watch, |_| ccm(&sandbox).map(drop))?;
    let last: Vec<Daemon> = (0..in_the_end).map(|_| start(&sandbox)).collect();
    let begun = Instant::now();
    let outcome = loop {
        let outcome = end::is_right(&sandbox);
        if outcome.is_ok() || begun.elapsed() > LIMIT {
            break outcome;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let logs: String = last.iter().map(Daemon::log).collect();
    drop(last);
    watch.no_harm(&sandbox)?;
    outcome.map_err(|why| format!("{why}\n{logs}\n{}", all_writes(&sandbox)))?;
    // What the daemons began has ended, and the next one sees it.
    end::actions_end(&sandbox);
    super::life::Ccm::new(&Place::new(&sandbox), true).settle()?;
    at_rest(&sandbox, &Place::new(&sandbox))?;
    match end::others(&sandbox) == others {
        true => Ok(()),
        false => Err("somebody else's load balancer was touched".into()),
    }
}

fn start(sandbox: &Sandbox) -> Daemon {
    let settings = [
        ("HCLOUD_LOAD_BALANCERS_LOCATION", "fsn1"),
        (
            "HCLOUD_LOAD_BALANCERS_PRIMARY_IP_SELECTOR",
            PRIMARY_IP_SELECTOR,
        ),
    ];
    let env = with(env(sandbox), &settings);
    Daemon::start(&env, FLAGS)
}

/// Kills a daemon before or after its n-th write, to either API, happened.
fn killed_at_write(sandbox: &Sandbox, n: u64, after: bool) {
    let killer: Arc<OnceLock<Box<dyn Fn() + Send + Sync>>> = Arc::default();
    let kill = Arc::clone(&killer);
    let hook = move |_: &Request| kill.wait()();
    let effect = match after {
        true => Effect::after(hook),
        false => Effect::before(hook),
    };
    let is_about_services =
        |request: &Request| !is_lease(&request.path) && !request.path.contains("/events");
    let rule = Rule::new(effect).writes().when(is_about_services).nth(n);
    let rule = sandbox.faults().add(rule);
    let daemon = start(sandbox);
    assert!(killer.set(Box::new(daemon.killer())).is_ok());
    let begun = Instant::now();
    while sandbox.faults().hits(rule) == 0 && begun.elapsed() < DIES_AFTER {
        std::thread::sleep(Duration::from_millis(5));
    }
    daemon.killer()();
}

/// Some looks at the Services by both.
fn some_looks(sandbox: &Sandbox) -> Result<(), String> {
    let mark = sandbox.calls().mark();
    let looks = || {
        let calls = sandbox.calls().calls_since(mark);
        let is_look = |call: &&sandbox::calls::Call| {
            call.half == Half::Kubernetes
                && call.method == "GET"
                && call.path.ends_with("/services")
        };
        calls.iter().filter(is_look).count()
    };
    let begun = Instant::now();
    while looks() < 20 {
        if begun.elapsed() > LIMIT {
            return Err("nobody looks at the Services any more".into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
