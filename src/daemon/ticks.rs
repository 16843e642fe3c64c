//! The ticks of all controllers, each on its own thread, and what they find out together.

use super::outage::Outages;
use super::{Stop, log_report};
use crate::cache::{self, Apis};
use crate::controllers::{Controller, Outage, Report, Selection};
use crate::metrics::{PLANNED, TICK_DURATION, TICKS};
use crate::provider::{Urgency, heartbeat};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What the threads share.
pub(super) struct Ticks {
    apis: &'static Apis,
    stop: &'static Stop,
    outages: Outages,
    /// None of them can work before a setting, a credential or a role is fixed.
    failed: AtomicBool,
    /// Controllers that have not ended their first tick.
    first_ticks: AtomicUsize,
}

/// Asks the cloud for something, unless it has answered already since the start. A wrong token
/// or Network is found out at the start, also where no controller has a question yet.
pub fn reach_cloud(apis: &Apis) -> Result<(), cache::Error> {
    match apis.provider.is_reached() {
        true => Ok(()),
        false => apis.instances(Duration::MAX, Urgency::Needed).map(drop),
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
            outages: Outages::default(),
            failed: AtomicBool::new(false),
            first_ticks: AtomicUsize::new(controllers.len()),
        }
    }

    pub(super) fn need_a_person(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Ticks one controller until the wish to end.
    pub(super) fn go_on(&self, mut controller: Box<dyn Controller>) {
        let (name, interval) = (controller.name(), controller.interval());
        let mut is_first = true;
        let mut worked_once = false;
        loop {
            heartbeat::beat();
            let begun = Instant::now();
            let mut report = controller.tick(self.apis, &Selection::Due);
            let others_may_ask = self.first_ticks.load(Ordering::Relaxed) > usize::from(is_first);
            if !others_may_ask && report.outage.is_none() {
                self.look_at_cloud(&mut report);
            }
            if let Some(outage) = &report.outage
                && outage.error.is_permanent()
                && !worked_once
                && !self.is_rotation(&outage.error)
            {
                // The first controller to see it says it for all.
                if !self.failed.swap(true, Ordering::Relaxed) {
                    log::error!(controller = name; "{name}: {outage}");
                }
                self.stop.set();
                return;
            }
            worked_once |= report.outage.is_none() && self.apis.provider.is_reached();
            measure(name, &report, begun.elapsed());
            self.outages.note(name, report.outage.as_ref(), interval);
            log_report(&report);
            if std::mem::take(&mut is_first) {
                self.first_ticks.fetch_sub(1, Ordering::Relaxed);
            }
            let pause = match report.unfinished {
                0 => interval,
                // It has taken an interval already.
                _ => Duration::ZERO,
            };
            heartbeat::pause(pause);
            if self.stop.wait(pause) {
                return;
            }
        }
    }

    /// Credentials that were good for another call and are not any more are being replaced.
    fn is_rotation(&self, error: &cache::Error) -> bool {
        error.is_unauthorized()
            && match error {
                cache::Error::Kube(_) => self.apis.kube.is_reached(),
                cache::Error::Cloud(_) => self.apis.provider.is_reached(),
            }
    }

    /// When no controller had a question for the cloud in its first tick, one asks for all: until
    /// then the daemon is not ready, and does not know whether its token is good.
    fn look_at_cloud(&self, report: &mut Report) {
        if let Err(error) = reach_cloud(self.apis) {
            report.outage = Some(Outage {
                error,
                waiting: String::new(),
            });
        }
    }
}

fn measure(name: &str, report: &Report, took: Duration) {
    let result = match (&report.outage, report.failed()) {
        (Some(_), _) => "outage",
        (None, 0) => "ok",
        (None, _) => "failed",
    };
    TICKS.count(&[name, result]);
    TICK_DURATION.observe(&[name], took);
    PLANNED.set(&[name], report.planned as f64);
}
