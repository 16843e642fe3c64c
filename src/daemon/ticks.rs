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

/// The state that the threads of all controllers share.
pub(super) struct Ticks {
    apis: &'static Apis,
    stop: &'static Stop,
    /// The controllers that can't work because an API does not answer or refuses calls. The key is the name of the
    /// controller. The value is a text that names the API and says what is wrong. When several controllers have the
    /// same text, only the first of them logs it. When all controllers can work again, this is logged once.
    outages: Mutex<BTreeMap<&'static str, &'static str>>,
    /// Whether the daemon can't work until an operator corrects something: a setting, the credentials or an RBAC role.
    pub(super) failed: AtomicBool,
    /// The number of controllers whose first run has not ended yet.
    first_ticks: AtomicUsize,
}

pub(super) struct Ticking {
    controller: Box<dyn Controller>,
    /// Whether the first run of this controller has not ended yet.
    is_first: bool,
    /// Whether a run of this controller has ended without an outage of Kubernetes or the Cloud API.
    worked_once: bool,
}

impl Ticking {
    pub(super) fn new(controller: Box<dyn Controller>) -> Ticking {
        Ticking { controller, is_first: true, worked_once: false }
    }
}

/// Calls the cloud once, unless the cloud has answered some call before. This shows whether the token and the private
/// Network in the settings are right, even when no controller has to call the cloud.
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

    /// Runs a controller once. Returns the pause before its next run, or `None` when the daemon can't work until an
    /// operator corrects something.
    pub(super) fn tick(&self, ticking: &mut Ticking) -> Option<Duration> {
        let controller = &mut ticking.controller;
        let (name, interval) = (controller.name(), controller.interval());
        heartbeat::beat();
        let begun = clock::now();
        let mut report = controller.tick(self.apis, &Selection::Due);
        let others_may_ask =
            self.first_ticks.load(Ordering::Relaxed) > usize::from(ticking.is_first);
        if !others_may_ask && report.outage.is_none() {
            // The first runs of all other controllers have ended. If none of them had to call the cloud, this
            // controller calls it now. Before the cloud has answered, it is not known whether the token is valid, and
            // the readiness probe fails.
            report.outage = reach_cloud(self.apis).err().map(Outage::from);
        }
        if let Some(outage) = &report.outage
            && outage.error.is_permanent()
            && !ticking.worked_once
            && !self.is_rotation(&outage.error)
        {
            // The API refuses the daemon's calls permanently, e.g. because the token is wrong, so the daemon ends.
            // Several controllers can find this out at the same time. Only the first of them logs the error.
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
        // Unfinished changes are changes that the cloud is still carrying out. This run has already waited for them as
        // long as the interval lasts. Therefore the next run begins at once and goes on with them.
        let pause = if report.has(Progress::Unfinished) { Duration::ZERO } else { interval };
        heartbeat::pause(pause);
        Some(pause)
    }

    /// Whether an API refuses credentials that it accepted before. The credentials are then probably being replaced, so
    /// the daemon goes on.
    fn is_rotation(&self, error: &cache::CacheError) -> bool {
        error.is_unauthorized()
            && match error {
                cache::CacheError::Kube(_) => self.apis.kube.is_reached(),
                cache::CacheError::Cloud(_) => self.apis.provider.is_reached(),
                cache::CacheError::Dedicated(_) => true,
            }
    }

    /// Stores whether the controller's last run was stopped by an outage, i.e. by an API that does not answer or
    /// refuses calls. Logs when an outage has begun or ended since the run before.
    fn note_outage(&self, controller: &'static str, outage: Option<&Outage>, interval: Duration) {
        let mut states = lock(&self.outages);
        let state = outage.map(|outage| outage.error.state());
        let is_robot = states.get(controller).is_some_and(|before| before.starts_with("robot "));
        if state.is_none() && is_robot && self.apis.dedicated_fails() {
            // This run of the controller made no call to Robot, and the last call to Robot had failed. So the outage of
            // Robot may still last, and its end is not logged.
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
                let again = if state.ends_with("rate limit") {
                    "after a pause".to_owned()
                } else {
                    format!("every {} s", interval.as_secs_f64())
                };
                log::warn!(controller; "{controller}: {outage} (trying again {again})");
            }
        }
        let was_put_off = before == Some(PUT_OFF);
        if was_put_off && states.is_empty() {
            log::info!(
                controller;
                "{controller}: ccm refreshes its lists again, because enough calls of the project's rate limit remain"
            );
        } else if before.is_some() && !was_put_off && states.len() == count(PUT_OFF) {
            log::info!(controller; "{controller}: Kubernetes and the cloud answer again");
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

/// Logs the failures of one run of a controller, except those that were already logged as a finding (a message for the
/// operator). Findings and changes are not logged here, because each of them was logged during the run.
pub fn log_report(report: &Report) {
    for failure in report.failures.iter().filter(|failure| failure.finding.is_none()) {
        let object = failure.object.as_str();
        log::warn!(object; "{object}: {}", failure.short_why());
    }
}
