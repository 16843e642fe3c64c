//! The daemon: a thread per controller that ticks until it is stopped, while we lead.
//!
//! Knows: when a tick is due, who leads, how to stop, what is worth a line in the log, what a
//! probe is answered. Must never know what a controller decides, or which provider is plugged in.

mod health;
pub mod lease;
mod stop;
mod ticks;

pub use health::{Health, HealthSettings};
pub use stop::{Stop, StopGate, stop_on_signals};
pub use ticks::{log_report, reach_cloud};

use crate::cache::Apis;
use crate::controllers::Controller;
use crate::provider::{clock, heartbeat};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use ticks::Ticks;

/// A write in flight is over after 8 s, releasing the Lease may take one more, and the whole
/// end at most 10. (Kubernetes kills after 30 s by default.) These times of the end are the machine's.
const GRACE: Duration = Duration::from_millis(8_500);

/// At the end events are waited for as long as that, while the Lease is held.
const EVENTS_AT_MOST: Duration = Duration::from_secs(1);
/// The same at the end of one pass, which was not asked to end.
const EVENTS_OF_A_PASS_AT_MOST: Duration = Duration::from_secs(10);
/// After a write that took all the time.
const EVENTS_AT_LEAST: Duration = Duration::from_millis(200);

/// How often a wait for the end of some work checks whether to end without it.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// How the daemon ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was asked to.
    Stopped,
    /// It can't do its work before a setting, a credential or a role is fixed.
    Blocked,
}

/// Ticks every controller on a thread of its own until `stop`.
pub fn run(
    apis: &'static Apis,
    controllers: Vec<Box<dyn Controller>>,
    stop: &'static Stop,
    health: &Health,
) -> Ended {
    let ticks: &'static Ticks = Box::leak(Box::new(Ticks::new(apis, stop, &controllers)));
    let threads: Vec<_> = controllers
        .into_iter()
        .map(|controller| {
            let heartbeat = health.watch(controller.name());
            std::thread::spawn(move || {
                heartbeat::install(heartbeat);
                ticks.go_on(controller);
            })
        })
        .collect();
    std::thread::spawn(|| apis.recorder.write_events(&apis.kube));
    stop.wait_until_set_or(|| false);
    let deadline = clock::now() + clock::from_machine(GRACE);
    while threads.iter().any(|thread| !thread.is_finished()) && clock::now() < deadline {
        clock::sleep(clock::from_machine(Duration::from_millis(5)));
    }
    if threads.iter().any(|thread| !thread.is_finished()) {
        log::warn!("an answer is still waited for; ending without it");
    }
    // The last events, as long as the end of everything has time for them.
    let left = deadline.saturating_duration_since(clock::now());
    let [at_least, at_most] = [EVENTS_AT_LEAST, EVENTS_AT_MOST].map(clock::from_machine);
    apis.recorder.end(left.clamp(at_least, at_most));
    match ticks.failed.load(Ordering::Relaxed) {
        true => Ended::Blocked,
        false => Ended::Stopped,
    }
}

/// Does the work of one pass while its events are written, and waits for the last of them.
pub fn with_events<T>(apis: &'static Apis, stop: &Stop, work: impl FnOnce() -> T) -> T {
    std::thread::spawn(|| apis.recorder.write_events(&apis.kube));
    let done = work();
    apis.recorder.end(clock::from_machine(match stop.is_set() {
        true => EVENTS_AT_MOST,
        false => EVENTS_OF_A_PASS_AT_MOST,
    }));
    done
}

/// Does one piece of work on a thread of its own. None: after `stop` it did not end in time, and
/// is left behind.
pub fn unless_stopped<T: Send + 'static>(
    stop: &Stop,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (done, result) = mpsc::channel();
    // After the timeout the receiver does not exist any more.
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
