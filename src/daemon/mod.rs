//! The daemon: a thread for each controller, which ticks until it is stopped, while this process leads.
//!
//! This module knows when a tick is due, who leads, how to stop, what is worth a line in the log, and how a probe is
//! answered. It must never know what a controller decides, or which provider is plugged in.

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

/// How long an ending daemon waits for its threads. A write in flight is over after 8 s, and releasing the Lease may
/// take one more second, so that the whole end takes at most 10 s. Kubernetes kills a process after 30 s by default.
/// These times are real time, even in a test that makes time run faster.
const GRACE: Duration = Duration::from_millis(8_500);

/// The longest time that an ending daemon waits for its last events to be written, while it holds the Lease.
const EVENTS_AT_MOST: Duration = Duration::from_secs(1);
/// The longest time that one pass waits at its end for its events to be written, when the pass was not asked to end.
const EVENTS_OF_A_PASS_AT_MOST: Duration = Duration::from_secs(10);
/// The shortest time that an ending daemon leaves for its last events, even when the last write used up all the time
/// before the deadline.
const EVENTS_AT_LEAST: Duration = Duration::from_millis(200);

/// How often a thread that waits for some work checks whether it should stop waiting.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The way the daemon ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DaemonEnd {
    /// The daemon was asked to end.
    Stopped,
    /// The daemon can't do its work before a setting, a credential or a role is fixed.
    Blocked,
}

/// The controllers at work, each on a thread of its own.
pub struct RunningDaemon {
    apis: &'static Apis,
    stop: &'static Stop,
    ticks: &'static Ticks,
    threads: Vec<JoinHandle<()>>,
}

/// Ticks every controller on a thread of its own until `stop` is set. `watch` takes the name of a controller, and
/// returns the heartbeat for its thread.
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
    /// Waits until the daemon is asked to end, and then until all threads have ended. The second wait lasts
    /// at most `GRACE`.
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
        // The last events may be written until the deadline, but for no less than
        // `EVENTS_AT_LEAST` and no more than `EVENTS_AT_MOST`.
        let left = deadline.saturating_duration_since(clock::now());
        let [at_least, at_most] = [EVENTS_AT_LEAST, EVENTS_AT_MOST].map(clock::from_machine);
        self.apis.recorder.end(left.clamp(at_least, at_most));
        self.ended()
    }

    /// Returns `Blocked` when no controller can work, and otherwise `Stopped`. The daemon need not have ended yet.
    fn ended(&self) -> DaemonEnd {
        if self.ticks.failed.load(Ordering::Relaxed) {
            DaemonEnd::Blocked
        } else {
            DaemonEnd::Stopped
        }
    }

    /// Writes the last events of a simulated daemon that was asked to end. Returns how the daemon ended.
    pub fn end_in_simulation(&self) -> DaemonEnd {
        self.apis.recorder.alongside(&self.apis.kube, || ());
        self.ended()
    }
}

/// Writes events from now on, on a thread of its own.
fn write_events(apis: &'static Apis) {
    let write_due = || apis.recorder.write_due(&apis.kube);
    if clock::surroundings(|process| process.repeat(false, Box::new(write_due))).is_none() {
        std::thread::spawn(|| apis.recorder.write_events(&apis.kube));
    }
}

/// Does the work of one pass, while another thread writes its events. Returns when the last event is written.
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

/// Does a piece of work on a thread of its own. Returns `None` when `stop` was set and the work did not end soon after.
/// Nobody waits for that thread any longer.
pub fn unless_stopped<T: Send + 'static>(
    stop: &Stop,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    if clock::is_simulated() {
        return Some(work());
    }
    let (done, result) = mpsc::channel();
    // The send fails when nobody waits for the result any more. This error is ignored.
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
