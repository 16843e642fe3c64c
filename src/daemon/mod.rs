//! The daemon: while this process is the leader, each controller runs on a thread of its own and makes one tick after
//! the other.
//!
//! This module decides when a tick is due, who leads, how the process stops, what is logged, and how a probe is
//! answered. It must never know what a controller decides, or which cloud provider is used.

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

/// How long an ending daemon waits for its threads. A write that is in flight ends after at most 8 s. The release of
/// the Lease takes at most one more second, so that the process ends within 10 s. Kubernetes kills a process after 30 s
/// by default. These times are real time, even in a test that makes time run faster.
const GRACE: Duration = Duration::from_millis(8_500);

/// The longest time that an ending daemon waits until its last events are written. The daemon still holds the Lease
/// during this wait.
const EVENTS_AT_MOST: Duration = Duration::from_secs(1);
/// How long the command `run --once` waits at its end until its events are written. When the command was asked to end,
/// it waits for [`EVENTS_AT_MOST`] instead.
const EVENTS_OF_A_PASS_AT_MOST: Duration = Duration::from_secs(10);
/// The shortest time that an ending daemon waits for its last events, even if its threads have used up all the time for
/// its end.
const EVENTS_AT_LEAST: Duration = Duration::from_millis(200);

/// How often a thread that waits for the result of another thread checks whether the process has to end.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The way the daemon ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DaemonEnd {
    /// The daemon was asked to end.
    Stopped,
    /// The daemon ended because it can't work until an operator corrects a setting, a credential or an RBAC role.
    Blocked,
}

/// The controllers of a running daemon, each on a thread of its own.
pub struct RunningDaemon {
    apis: &'static Apis,
    stop: &'static Stop,
    ticks: &'static Ticks,
    threads: Vec<JoinHandle<()>>,
}

/// Starts a thread for each controller. The thread makes one tick after the other until `stop` is set. `watch` gets the
/// name of a controller, and returns the heartbeat by which the thread shows signs of life.
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
    /// Waits until the daemon is asked to end. Then waits until all threads have ended, but not longer than `GRACE`.
    pub fn until_stopped(self) -> DaemonEnd {
        self.stop.wait_until_set_or(|| false);
        let deadline = clock::now() + clock::from_machine(GRACE);
        let is_open = || self.threads.iter().any(|thread| !thread.is_finished());
        while is_open() && clock::now() < deadline {
            clock::sleep(clock::from_machine(Duration::from_millis(5)));
        }
        if is_open() {
            log::warn!("ccm ends, although an API has not answered yet");
        }
        // The wait for the last events ends at the deadline, but it lasts at least `EVENTS_AT_LEAST` and at most
        // `EVENTS_AT_MOST`.
        let left = deadline.saturating_duration_since(clock::now());
        let [at_least, at_most] = [EVENTS_AT_LEAST, EVENTS_AT_MOST].map(clock::from_machine);
        self.apis.recorder.end(left.clamp(at_least, at_most));
        self.ended()
    }

    /// Returns `Blocked` when no controller could work, and otherwise `Stopped`. The daemon may still be running when
    /// this is called.
    fn ended(&self) -> DaemonEnd {
        if self.ticks.failed.load(Ordering::Relaxed) {
            DaemonEnd::Blocked
        } else {
            DaemonEnd::Stopped
        }
    }

    /// Ends a daemon that runs in a simulation and was asked to end: writes its last events, and returns how it ended.
    pub fn end_in_simulation(&self) -> DaemonEnd {
        self.apis.recorder.alongside(&self.apis.kube, || ());
        self.ended()
    }
}

/// Starts a thread that writes the events of all controllers to the API server.
fn write_events(apis: &'static Apis) {
    let write_due = || apis.recorder.write_due(&apis.kube);
    if clock::surroundings(|process| process.repeat(false, Box::new(write_due))).is_none() {
        std::thread::spawn(|| apis.recorder.write_events(&apis.kube));
    }
}

/// Runs `work`, e.g. the ticks of `run --once`, while another thread writes the events. Then waits until the events are
/// written, but only for a limited time.
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

/// Runs `work` on a thread of its own and returns its result. When the process has to end and the work does not end
/// within `GRACE`, the function returns `None` without waiting longer.
pub fn unless_stopped<T: Send + 'static>(
    stop: &Stop,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    if clock::is_simulated() {
        return Some(work());
    }
    let (done, result) = mpsc::channel();
    // The send fails when the caller does not wait for the result any more. This error is ignored.
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
