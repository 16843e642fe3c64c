//! An API that does not answer is told once for each change of state, not at every tick.

use crate::controllers::Outage;
use std::time::Duration;

#[derive(Default)]
pub(super) struct Outages {
    told: Option<&'static str>,
}

impl Outages {
    pub(super) fn tell(&mut self, controller: &str, outage: Option<&Outage>, interval: Duration) {
        let state = outage.map(|outage| outage.error.state());
        if state == self.told {
            return;
        }
        self.told = state;
        match outage {
            Some(outage) => {
                let again_s = interval.as_secs_f64();
                log::warn!("{controller}: {outage} (trying again every {again_s} s)");
            }
            None => log::info!("{controller}: both APIs answer again"),
        }
    }
}
