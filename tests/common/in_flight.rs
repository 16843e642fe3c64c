//! Counts how many writes to Nodes the simulated API server receives at the same time.

use sandbox::exchange::Request;
use sandbox::faults::{Effect, Rule};
use sandbox::{Half, Sandbox};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Counts the writes to Nodes that the simulated API server has received and not yet answered. Only writes with one
/// HTTP method, e.g. `PATCH`, are counted.
#[derive(Default)]
pub struct InFlight {
    counts: Mutex<Counts>,
    changed: Condvar,
}

#[derive(Default)]
struct Counts {
    now: usize,
    at_most: usize,
}

impl InFlight {
    /// Makes the simulated API server delay each write with this HTTP method to a Node, until `wanted` of these writes
    /// have arrived and are not yet answered. A write is never delayed for longer than `patience_s` seconds.
    pub fn of(sandbox: &Sandbox, method: &str, wanted: usize, patience_s: u64) -> Arc<InFlight> {
        let patience = Duration::from_secs(patience_s);
        let all = Arc::<InFlight>::default();
        let (before, after) = (Arc::clone(&all), Arc::clone(&all));
        let begins = move |_: &Request| {
            let mut counts = before.counts.lock().unwrap();
            counts.now += 1;
            counts.at_most = counts.at_most.max(counts.now);
            before.changed.notify_all();
            let is_early = |counts: &mut Counts| counts.at_most < wanted;
            let waited = before.changed.wait_timeout_while(counts, patience, is_early);
            drop(waited.unwrap());
        };
        let ends = move |_: &Request| after.counts.lock().unwrap().now -= 1;
        for effect in [Effect::before(begins), Effect::after(ends)] {
            let rule = Rule::new(effect).half(Half::Kubernetes).method(method);
            sandbox.faults().add(rule.path("/api/v1/nodes/**"));
        }
        all
    }

    /// Returns the largest number of writes that have been in flight at the same time.
    pub fn at_most(&self) -> usize {
        self.counts.lock().unwrap().at_most
    }
}
