//! An API that does not answer is told once for each change of state, not at every tick and
//! not by every controller.

use crate::controllers::Outage;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Which controllers are stopped by which state of an API.
#[derive(Default)]
pub(super) struct Outages {
    told: Mutex<BTreeMap<&'static str, BTreeSet<&'static str>>>,
}

impl Outages {
    /// Takes note of how a controller's tick went, and tells it when that is new.
    pub(super) fn tell(
        &self,
        controller: &'static str,
        outage: Option<&Outage>,
        interval: Duration,
    ) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let state = outage.map(|outage| outage.error.state());
        if let (Some(state), Some(outage)) = (state, outage)
            && told.entry(state).or_default().insert(controller)
            && told[state].len() == 1
        {
            let again_s = interval.as_secs_f64();
            log::warn!("{controller}: {outage} (trying again every {again_s} s)");
        }
        let mut ended = false;
        told.retain(|other, controllers| {
            if Some(*other) != state {
                ended |= controllers.remove(controller) && controllers.is_empty();
            }
            !controllers.is_empty()
        });
        if ended && told.is_empty() {
            log::info!("{controller}: both APIs answer again");
        }
    }
}
