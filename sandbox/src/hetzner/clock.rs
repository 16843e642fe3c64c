//! Time of the simulated cloud: every duration passes through one scale, time stamps do not.

use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::time;

/// An hour becomes six weeks: slow enough, and far from what a [`Duration`] cannot hold.
const MAX_SCALE: f64 = 1000.0;

/// Scales durations, so that a test can run a hundred times faster than the real API.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    scale: f64,
}

impl Clock {
    /// `scale` multiplies every duration: 1.0 is the real pace, 0.01 a hundred times faster, 0.0 at once. What is not
    /// between 0 and 1000 is taken as the nearest that is, what is no number as 1.0.
    pub fn new(scale: f64) -> Clock {
        Clock { scale: if scale.is_nan() { 1.0 } else { scale.clamp(0.0, MAX_SCALE) } }
    }

    pub fn now(&self) -> Instant {
        time::now()
    }

    /// How long something takes here that takes `real` on the real API.
    pub fn scaled(&self, real: Duration) -> Duration {
        real.mul_f64(self.scale)
    }

    pub fn scale(&self) -> f64 {
        self.scale
    }
}

/// `Date` of an answer from an API whose clock is by so much ahead of ours.
pub fn date_ahead(seconds: i64) -> String {
    let now = time::timestamp();
    let shown = Timestamp::from_second(now.as_second().saturating_add(seconds)).unwrap_or(now);
    shown.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

/// A time stamp as the API writes it: RFC 3339 in UTC, whole seconds.
pub fn show(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}
