//! An hour, simulated: every duration – of the daemon, its Lease, the sandbox's machines – is a fiftieth.
//!
//! Looks at the cluster, renewals of the Lease, refreshes and heartbeats are as many as in a real hour, and so are the
//! calls, the bytes and the processor time they take. Three things differ from the real world: a call takes as long as
//! ever, so that a busy machine fits a few looks and renewals less into the hour (the figures count them, and what
//! depends on them is set right by that); the cloud's API is spoken to without TLS; and a connection that would idle
//! out between two refreshes does not.

use crate::NODE_BYTES;
use crate::common::{Cluster, Daemon, at_scale, is_initialised, is_lease, wait_at_most};
use sandbox::calls::Call;
use sandbox::{Half, Sandbox};
use serde_json::Value;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

pub const SCALE: f64 = 0.02;
const HOUR: Duration = Duration::from_secs(3600);
/// The flag that shortens the Lease's waits. `cli/wire.rs` shortens them to a tenth at most, and 800 ms of that are 4
/// s of `SCALE`.
pub const RETRY_PERIOD: &str = "--leader-elect-retry-period=800ms";
/// The number of polls in a real hour, with the default of `--node-sync-interval`.
pub const POLLS: usize = 720;
/// The number of renewals in a real hour, without `--leader-elect-retry-period`.
pub const RENEWALS: usize = 900;
pub const NODES: usize = 100;

/// Bringing up a world may take so long on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// Longer than the calls of one refresh lie apart, shorter than two refreshes.
const QUIET: Duration = Duration::from_secs(1);

/// What a daemon did in an hour.
pub struct Hour {
    pub calls: Vec<Call>,
    pub cpu: Duration,
    /// The processor time of a fixed amount of work, which was done on the same machine in the same time. On a busy machine
    /// both take longer.
    pub fixed_work: Duration,
}

impl Hour {
    pub fn of(&self, half: Half) -> impl Iterator<Item = &Call> {
        self.calls.iter().filter(move |call| call.half == half)
    }

    pub fn count(&self, half: Half) -> usize {
        self.of(half).count()
    }

    /// Returns the number of polls of all nodes, in any form. Further pages of a list are no polls of their own.
    pub fn polls(&self) -> usize {
        let is_look =
            |call: &&Call| call.path == "/api/v1/nodes" && call.query("continue").is_none();
        self.of(Half::Kubernetes).filter(is_look).count()
    }

    /// Returns the number of renewals of the Lease.
    pub fn renewals(&self) -> usize {
        let is_renewal = |call: &&Call| call.is_write() && is_lease(&call.path);
        self.of(Half::Kubernetes).filter(is_renewal).count()
    }
}

/// A cluster of 100 nodes, all in order, and then with one whose kubelet hangs.
pub struct Steady {
    pub steady: Hour,
    pub one_not_ready: Hour,
    /// All nodes, as one whole list.
    pub list_bytes: usize,
    /// The largest memory from the daemon's start to the end of both hours.
    pub peak_kb: u64,
}

/// Measured once, for all themes that ask.
pub fn steady() -> &'static Steady {
    static STEADY: OnceLock<Steady> = OnceLock::new();
    STEADY.get_or_init(measure)
}

fn measure() -> Steady {
    let sandbox = Sandbox::builder().nodes(NODES).node_bytes(NODE_BYTES).scale(SCALE).start();
    let daemon = Daemon::start(&at_scale(&sandbox, SCALE), &[RETRY_PERIOD]);
    let name = |n: usize| format!("worker-{n}");
    wait_at_most(PATIENCE, "initialised nodes", || {
        (1..=NODES).all(|n| is_initialised(&sandbox.node(&name(n))))
    });
    let steady = hour(&sandbox, &daemon, || {});
    let one_not_ready = hour(&sandbox, &daemon, || sandbox.kubelets().hang(&name(1)));
    let nodes = sandbox.cluster().list("nodes", None);
    Steady {
        steady,
        one_not_ready,
        list_bytes: nodes.iter().map(|node| node.to_string().len()).sum(),
        peak_kb: daemon.memory_kb().0,
    }
}

/// An hour that begins with `change`, right after a refresh, so that it always has the same number of them.
pub fn hour(sandbox: &Sandbox, daemon: &Daemon, change: impl FnOnce()) -> Hour {
    after_a_refresh(sandbox);
    let mark = sandbox.calls().mark();
    let cpu = daemon.cpu();
    let begun = Instant::now();
    change();
    let fixed_work = fixed_work(sandbox, HOUR.mul_f64(SCALE));
    let (cpu, elapsed) = (daemon.cpu() - cpu, begun.elapsed());
    let calls = sandbox.calls().calls_since(mark);
    let within = |call: &Call| call.started.duration_since(begun) < elapsed;
    Hour { calls: calls.into_iter().filter(within).collect(), cpu, fixed_work }
}

/// Parses a list of ten nodes a thousand times, evenly within `time`. Returns the processor time that this takes.
pub fn fixed_work(sandbox: &Sandbox, time: Duration) -> Duration {
    const TIMES: u32 = 1000;
    let nodes: Vec<Value> = sandbox.cluster().list("nodes", None).into_iter().take(10).collect();
    let list = serde_json::to_string(&nodes).unwrap();
    let begun = Instant::now();
    let cpu = cpu_of_this_thread();
    for number in 1..=TIMES {
        let parsed: Vec<Value> = serde_json::from_str(&list).unwrap();
        assert_eq!(parsed.len(), nodes.len());
        drop(parsed);
        thread::sleep((time * number / TIMES).saturating_sub(begun.elapsed()));
    }
    cpu_of_this_thread() - cpu
}

/// The first field of this file is the processor time in nanoseconds.
fn cpu_of_this_thread() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

fn after_a_refresh(sandbox: &Sandbox) {
    let hetzner = || sandbox.calls().count(|call| call.half == Half::Hetzner);
    let before = hetzner();
    wait_at_most(PATIENCE, "a refresh", || hetzner() > before);
    let mut seen = (hetzner(), Instant::now());
    wait_at_most(PATIENCE, "the end of a refresh", || {
        if hetzner() != seen.0 {
            seen = (hetzner(), Instant::now());
        }
        seen.1.elapsed() >= QUIET
    });
}
