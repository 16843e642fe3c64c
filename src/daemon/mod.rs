//! The daemon. While this process is the leader, each controller has a thread that runs the controller at its interval.
//! One such run is called a tick.
//!
//! This module decides when a controller runs, who the leader is, how the process ends, what is logged, and how probes
//! are answered. It must not know what a controller decides, or which cloud provider is used.

mod health;
pub mod lease;
mod stop;
mod ticks;

pub use health::{DaemonHealth, HealthSettings};
pub use stop::{Stop, stop_on_signals};
pub use ticks::{log_report, reach_cloud};

use crate::cache::Apis;
use crate::controllers::Controller;
use crate::provider::clock;
use crate::provider::heartbeat::{self, Heartbeat};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;
use ticks::{Ticking, Ticks};

/// How long a daemon that is ending waits for its threads. A write that was already sent takes at most 8 s. Releasing
/// the Lease takes at most one more second, so the process ends within 10 s. By default, Kubernetes kills a process 30
/// s after it has asked the process to end. These are real times, even in tests in which the program's clock runs
/// faster.
const GRACE: Duration = Duration::from_millis(8_500);

/// When the daemon ends, it waits until its last events are written, but not longer than this. It still holds the Lease
/// in this time.
const EVENTS_AT_MOST: Duration = Duration::from_secs(1);
/// How long `ccm run --once` waits after its work until its events are written. If the process was asked to end, it
/// waits only for [`EVENTS_AT_MOST`].
const EVENTS_OF_A_PASS_AT_MOST: Duration = Duration::from_secs(10);
/// When the daemon ends, at least this much time is left for its last events to be written, even when its threads have
/// used the whole time [`GRACE`].
const EVENTS_AT_LEAST: Duration = Duration::from_millis(200);

/// How often a thread that waits for another thread checks whether the process has to end.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Why the daemon has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DaemonEnd {
    /// The daemon was asked to end, e.g. by a signal.
    Stopped,
    /// The daemon can't work until an operator corrects something: a setting, the credentials or an RBAC role.
    Blocked,
}

/// A daemon whose controllers run, each on a thread of its own.
pub struct RunningDaemon {
    apis: &'static Apis,
    stop: &'static Stop,
    ticks: &'static Ticks,
    threads: Vec<JoinHandle<()>>,
}

/// Starts a thread for each controller. The thread runs the controller again and again until `stop` is set. `watch`
/// gets the name of a controller and creates the heartbeat of its thread, by which the thread shows that it does not
/// hang.
pub fn begin(
    apis: &'static Apis,
    controllers: Vec<Box<dyn Controller>>,
    stop: &'static Stop,
    watch: impl Fn(&'static str) -> Arc<Heartbeat>,
) -> RunningDaemon {
    let ticks: &'static Ticks = Box::leak(Box::new(Ticks::new(apis, stop, &controllers)));
    let threads = controllers.into_iter().filter_map(|controller| {
        let mut heartbeat = Some(watch(controller.name()));
        let mut ticking = Ticking::new(controller);
        stop.repeat(false, move || {
            heartbeat.take().into_iter().for_each(heartbeat::install);
            ticks.tick(&mut ticking)
        })
    });
    let threads = threads.collect();
    write_events(apis);
    RunningDaemon { apis, stop, ticks, threads }
}

impl RunningDaemon {
    /// Waits until the daemon is asked to end. Then waits until its threads have ended, for at most the time `GRACE`,
    /// and until its last events are written.
    pub fn until_stopped(self) -> DaemonEnd {
        self.stop.wait_until_set_or(|| false);
        let deadline = clock::now() + clock::from_machine(GRACE);
        let is_open = || self.threads.iter().any(|thread| !thread.is_finished());
        while is_open() && clock::now() < deadline {
            clock::sleep(clock::from_machine(Duration::from_millis(5)));
        }
        if is_open() {
            log::warn!("ccm exits without waiting longer for the answer of an API");
        }
        // The last events get the time that is left until `deadline` to be written, but at least `EVENTS_AT_LEAST` and
        // at most `EVENTS_AT_MOST`.
        let left = deadline.saturating_duration_since(clock::now());
        let [at_least, at_most] = [EVENTS_AT_LEAST, EVENTS_AT_MOST].map(clock::from_machine);
        self.apis.recorder.end(left.clamp(at_least, at_most));
        self.ended()
    }

    /// Returns why the daemon ends: `Blocked` when it has found that it can't work until an operator corrects
    /// something, and otherwise `Stopped`. The threads of the daemon can still be running when this function is called.
    fn ended(&self) -> DaemonEnd {
        if self.ticks.failed.load(Ordering::Relaxed) {
            DaemonEnd::Blocked
        } else {
            DaemonEnd::Stopped
        }
    }

    /// Ends a daemon in a simulation: writes its last events, and returns why it has ended. The daemon must have been
    /// asked to end before.
    pub fn end_in_simulation(&self) -> DaemonEnd {
        self.apis.recorder.alongside(&self.apis.kube, || ());
        self.ended()
    }
}

/// Starts a thread that writes the events of all controllers to Kubernetes.
fn write_events(apis: &'static Apis) {
    let write_due = || apis.recorder.write_due(&apis.kube);
    if clock::surroundings(|process| process.repeat(false, Box::new(write_due))).is_none() {
        std::thread::spawn(|| apis.recorder.write_events(&apis.kube));
    }
}

/// Calls `work`, e.g. one run of each controller for `run --once`. Meanwhile, another thread writes the events that
/// `work` creates. After `work` has ended, waits until these events are written, but only for a limited time.
pub fn with_events<T>(apis: &'static Apis, stop: &Stop, work: impl FnOnce() -> T) -> T {
    if clock::is_simulated() {
        return apis.recorder.alongside(&apis.kube, work);
    }
    write_events(apis);
    let done = work();
    apis.recorder.end(clock::from_machine(if stop.is_set() {
        EVENTS_AT_MOST
    } else {
        EVENTS_OF_A_PASS_AT_MOST
    }));
    done
}

/// Calls `work` on another thread, and returns its result. When the process has to end, this function waits for the
/// result only for the time `GRACE`, and then returns `None`.
pub fn unless_stopped<T: Send + 'static>(
    stop: &Stop,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    if clock::is_simulated() {
        return Some(work());
    }
    let (done, result) = mpsc::channel();
    // Sending the result fails when the caller does not wait for it any more. This error is ignored.
    std::thread::spawn(move || drop(done.send(work())));
    let mut deadline = None;
    loop {
        match result.recv_timeout(CHECK_INTERVAL) {
            Ok(value) => return Some(value),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) if stop.is_set() => {
                let grace = clock::from_machine(GRACE);
                let deadline = *deadline.get_or_insert_with(|| clock::now() + grace);
                if clock::now() >= deadline {
                    return None;
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}
