//! The daemon: a thread per controller that ticks until it is stopped, while we lead.
//!
//! Knows: when a tick is due, who leads, how to stop, what is worth a line in the log. Must never know
//! what a controller decides, or which provider is plugged in.

pub mod lease;
mod outage;
mod signals;
mod stop;

pub use signals::stop_on_signals;
pub use stop::{Stop, StopGate};

use crate::cloud::Gate;
use crate::controllers::{Controller, Report, Selection};
use crate::world::World;
use outage::Outages;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A write in flight is over after 8 s, releasing the Lease may take one more, and the whole
/// end at most 10. (Kubernetes kills after 30 s by default.)
const GRACE: Duration = Duration::from_millis(8_500);

/// How the daemon ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was asked to.
    Stopped,
    /// It can't do its work before somebody mends a setting, a credential or a role.
    NeedsAPerson,
}

/// Ticks every controller on a thread of its own until `stop`.
pub fn run(
    world: &'static World,
    gate: &'static dyn Gate,
    controllers: Vec<Box<dyn Controller>>,
    stop: &'static Stop,
) -> Ended {
    let failed: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
    let threads: Vec<_> = controllers
        .into_iter()
        .map(|controller| {
            std::thread::spawn(move || tick_until_stopped(world, gate, controller, stop, failed))
        })
        .collect();
    stop.wait_until_set();
    let deadline = Instant::now() + GRACE;
    while threads.iter().any(|thread| !thread.is_finished()) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    if threads.iter().any(|thread| !thread.is_finished()) {
        log::warn!("an answer is still waited for; ending without it");
    }
    match failed.load(Ordering::Relaxed) {
        true => Ended::NeedsAPerson,
        false => Ended::Stopped,
    }
}

fn tick_until_stopped(
    world: &World,
    gate: &dyn Gate,
    mut controller: Box<dyn Controller>,
    stop: &Stop,
    failed: &AtomicBool,
) {
    let mut outages = Outages::default();
    let mut worked_once = false;
    loop {
        let report = controller.tick(world, gate, &Selection::Due);
        if let Some(outage) = &report.outage
            && outage.error.needs_a_person()
            && !worked_once
        {
            log::error!("{}: {outage}", controller.name());
            failed.store(true, Ordering::Relaxed);
            stop.set();
            return;
        }
        worked_once |= report.outage.is_none();
        outages.tell(
            controller.name(),
            report.outage.as_ref(),
            controller.interval(),
        );
        log_report(&report);
        if stop.wait(controller.interval()) {
            return;
        }
    }
}

/// What failed; changes were told as they were made, and findings where they were found.
pub fn log_report(report: &Report) {
    for failure in report.failures.iter().filter(|failure| !failure.is_finding) {
        log::warn!("{}: {}", failure.object, failure.why);
    }
}
