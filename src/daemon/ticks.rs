//! Runs the controllers. One run of a controller is called a tick. Each controller has a thread of its own, and the
//! threads share the state in [`Ticks`].

use super::stop::Stop;
use crate::cache::{self, Apis, PUT_OFF};
use crate::controllers::{Controller, Outage, Progress, Report, Selection};
use crate::metrics::{PLANNED, TICK_DURATION, TICKS};
use crate::provider::{Urgency, clock, heartbeat, lock};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// The state that is shared by the threads of all controllers.
pub(super) struct Ticks {
    apis: &'static Apis,
    stop: &'static Stop,
    /// For each controller that can't work, the reason. A reason is logged once when it begins and once when it ends,
    /// whatever the number of ticks and controllers.
    outages: Mutex<BTreeMap<&'static str, &'static str>>,
    /// Whether no controller can work until an operator corrects a setting, a credential or an RBAC role.
    pub(super) failed: AtomicBool,
    /// How many controllers have not finished their first tick yet.
    first_ticks: AtomicUsize,
}

pub(super) struct Ticking {
    controller: Box<dyn Controller>,
    /// Whether the controller has not finished its first tick yet.
    is_first: bool,
    /// Whether a tick of this controller has ended without an outage of the Kubernetes or the cloud API.
    worked_once: bool,
}

impl Ticking {
    pub(super) fn new(controller: Box<dyn Controller>) -> Ticking {
        Ticking { controller, is_first: true, worked_once: false }
    }
}

/// Makes a call to the cloud if the cloud has not answered any call yet. The call shows whether the token and the
/// Network are right, even when no controller needs the cloud.
pub fn reach_cloud(apis: &Apis) -> Result<(), cache::CacheError> {
    if apis.provider.is_reached() {
        Ok(())
    } else {
        apis.instances(None, Duration::MAX, Urgency::Needed).map(drop)
    }
}

impl Ticks {
    pub(super) fn new(
        apis: &'static Apis,
        stop: &'static Stop,
        controllers: &[Box<dyn Controller>],
    ) -> Ticks {
        Ticks {
            apis,
            stop,
            outages: Mutex::default(),
            failed: AtomicBool::new(false),
            first_ticks: AtomicUsize::new(controllers.len()),
        }
    }

    /// Makes one tick of a controller. Returns the pause before the next tick, or `None` when the controller can't work
    /// at all.
    pub(super) fn tick(&self, ticking: &mut Ticking) -> Option<Duration> {
        let controller = &mut ticking.controller;
        let (name, interval) = (controller.name(), controller.interval());
        heartbeat::beat();
        let begun = clock::now();
        let mut report = controller.tick(self.apis, &Selection::Due);
        let others_may_ask =
            self.first_ticks.load(Ordering::Relaxed) > usize::from(ticking.is_first);
        if !others_may_ask && report.outage.is_none() {
            // All other controllers have finished their first tick. If the cloud was not called in these ticks, it is
            // called now. Without an answer of the cloud, it is not known whether the token is valid, and the readiness
            // probe fails.
            report.outage = reach_cloud(self.apis).err().map(Outage::from);
        }
        if let Some(outage) = &report.outage
            && outage.error.is_permanent()
            && !ticking.worked_once
            && !self.is_rotation(&outage.error)
        {
            // Only the first controller that notices the outage logs it.
            if !self.failed.swap(true, Ordering::Relaxed) {
                log::error!(controller = name; "{name}: {outage}");
            }
            self.stop.set();
            return None;
        }
        let outage = report.outage.as_ref();
        ticking.worked_once |= outage
            .is_none_or(|it| matches!(it.error, cache::CacheError::Dedicated(_)))
            && self.apis.provider.is_reached();
        measure(name, &report, clock::took(begun));
        self.note_outage(name, report.outage.as_ref(), interval);
        log_report(&report);
        if std::mem::take(&mut ticking.is_first) {
            self.first_ticks.fetch_sub(1, Ordering::Relaxed);
        }
        // A tick with unfinished changes has used its whole interval to wait for the cloud. The next tick begins
        // without a pause and continues with these changes.
        let pause = if report.has(Progress::Unfinished) { Duration::ZERO } else { interval };
        heartbeat::pause(pause);
        Some(pause)
    }

    /// Whether an API that accepted the credentials earlier refuses them now. The credentials are probably being
    /// replaced, so the daemon goes on.
    fn is_rotation(&self, error: &cache::CacheError) -> bool {
        error.is_unauthorized()
            && match error {
                cache::CacheError::Kube(_) => self.apis.kube.is_reached(),
                cache::CacheError::Cloud(_) => self.apis.provider.is_reached(),
                cache::CacheError::Dedicated(_) => true,
            }
    }

    /// Records whether the controller's tick ended with an outage, and logs when this has changed since the last tick.
    fn note_outage(&self, controller: &'static str, outage: Option<&Outage>, interval: Duration) {
        let mut states = lock(&self.outages);
        let state = outage.map(|outage| outage.error.state());
        let is_robot = states.get(controller).is_some_and(|before| before.starts_with("robot "));
        if state.is_none() && is_robot && self.apis.dedicated_fails() {
            // This tick made no call to the API of dedicated servers. An outage of that API may still last, so it is
            // not logged as ended.
            return;
        }
        let before = match state {
            Some(state) => states.insert(controller, state),
            None => states.remove(controller),
        };
        if before == state {
            return;
        }
        let count = |state: &str| states.values().filter(|other| **other == state).count();
        if let (Some(state), Some(outage)) = (state, outage)
            && count(state) == 1
        {
            if state == PUT_OFF {
                log::info!(controller; "{controller}: {outage}");
            } else {
                let again_s = interval.as_secs_f64();
                log::warn!(controller; "{controller}: {outage} (trying again every {again_s} s)");
            }
        }
        let was_put_off = before == Some(PUT_OFF);
        if was_put_off && states.is_empty() {
            log::info!(
                controller;
                "{controller}: lists are refreshed again, because enough calls of the project's rate limit remain"
            );
        } else if before.is_some() && !was_put_off && states.len() == count(PUT_OFF) {
            log::info!(controller; "{controller}: both APIs answer again");
        }
    }
}

fn measure(name: &str, report: &Report, took: Duration) {
    let result = match &report.outage {
        Some(_) => "outage",
        None if report.failures.is_empty() => "ok",
        None => "failed",
    };
    TICKS.count(&[name, result]);
    TICK_DURATION.observe(&[name], took);
    PLANNED.set(&[name], report.planned as f64);
}

/// Logs the failures that were not yet reported by a finding (a message for the operator). Findings and changes were
/// already logged when they occurred.
pub fn log_report(report: &Report) {
    for failure in report.failures.iter().filter(|failure| failure.finding.is_none()) {
        let object = failure.object.as_str();
        log::warn!(object; "{object}: {}", failure.short_why());
    }
}
