//! What keeps a controller from its work is told once for each change of state, not at every tick.

use crate::controllers::Outage;
use crate::world;
use std::time::Duration;

#[derive(Default)]
pub(super) struct Outages {
    /// The way in which an API does not answer, as it was told.
    told: Option<&'static str>,
    /// A refresh was put off, which is no outage: what can't wait goes on.
    put_off: bool,
}

impl Outages {
    pub(super) fn tell(&mut self, controller: &str, outage: Option<&Outage>, interval: Duration) {
        match outage {
            None => self.tell_works(controller),
            Some(outage) if is_put_off(outage) => {
                if !std::mem::replace(&mut self.put_off, true) {
                    log::info!("{controller}: {outage}");
                }
            }
            Some(outage) => {
                let state = Some(outage.error.state());
                if std::mem::replace(&mut self.told, state) != state {
                    let again_s = interval.as_secs_f64();
                    log::warn!("{controller}: {outage} (trying again every {again_s} s)");
                }
            }
        }
    }

    fn tell_works(&mut self, controller: &str) {
        match std::mem::take(self) {
            Outages { told: Some(_), .. } => log::info!("{controller}: both APIs answer again"),
            Outages { put_off: true, .. } => {
                log::info!("{controller}: refreshes go on, enough calls remain in the project");
            }
            _ => {}
        }
    }
}

fn is_put_off(outage: &Outage) -> bool {
    match &outage.error {
        world::Error::Cloud(error) => error.is_put_off(),
        world::Error::Kube(_) => false,
    }
}
