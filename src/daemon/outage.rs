//! What keeps controllers from their work is logged once for each change of state, not at every
//! tick and not by every controller.

use crate::cache;
use crate::controllers::Outage;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A refresh was put off, which is no outage: calls that can't wait are still made.
const PUT_OFF: &str = "refreshes put off";

/// Which controllers are kept from their work, by what keeps them.
#[derive(Default)]
pub(super) struct Outages {
    logged: Mutex<BTreeMap<&'static str, BTreeSet<&'static str>>>,
}

impl Outages {
    /// Takes note of how a controller's tick ended, and logs it when that is new.
    pub(super) fn note(
        &self,
        controller: &'static str,
        outage: Option<&Outage>,
        interval: Duration,
    ) {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let state = outage.map(state_of);
        if let (Some(state), Some(outage)) = (state, outage) {
            let controllers = logged.entry(state).or_default();
            if controllers.insert(controller) && controllers.len() == 1 {
                log_begin(state, controller, outage, interval);
            }
        }
        let ended = |(other, controllers): (&&'static str, &mut BTreeSet<&'static str>)| {
            let over = Some(*other) != state && controllers.remove(controller);
            (over && controllers.is_empty()).then_some(*other)
        };
        let ended: Vec<&str> = logged.iter_mut().filter_map(ended).collect();
        logged.retain(|_, controllers| !controllers.is_empty());
        let outages_last = logged.keys().any(|state| *state != PUT_OFF);
        if ended.iter().any(|state| *state != PUT_OFF) && !outages_last {
            log::info!(controller; "{controller}: both APIs answer again");
        } else if ended.contains(&PUT_OFF) && logged.is_empty() {
            log::info!(controller; "{controller}: refreshes go on, enough calls remain in the project");
        }
    }
}

fn log_begin(state: &str, controller: &str, outage: &Outage, interval: Duration) {
    if state == PUT_OFF {
        return log::info!(controller; "{controller}: {outage}");
    }
    let again_s = interval.as_secs_f64();
    log::warn!(controller; "{controller}: {outage} (trying again every {again_s} s)");
}

fn state_of(outage: &Outage) -> &'static str {
    match &outage.error {
        cache::Error::Cloud(error) if error.is_put_off() => PUT_OFF,
        error => error.state(),
    }
}
