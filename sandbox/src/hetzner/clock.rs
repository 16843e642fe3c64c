//! The time of the simulated cloud. One scale multiplies every duration. Timestamps are not scaled.

use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::time;

/// The largest scale, at which an hour becomes six weeks. This is slow enough, and far below the limit
/// of a [`Duration`].
const MAX_SCALE: f64 = 1000.0;

/// Scales durations, so that a test can run a hundred times faster than the real API.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    scale: f64,
}

impl Clock {
    /// Creates a clock. `scale` multiplies every duration: 1.0 is the real pace, 0.01 is a hundred times faster, 0.0
    /// takes no time. A scale outside of 0 to 1000 becomes the nearest number in that range, and NaN becomes 1.0.
    pub fn new(scale: f64) -> Clock {
        Clock { scale: if scale.is_nan() { 1.0 } else { scale.clamp(0.0, MAX_SCALE) } }
    }

    pub fn now(&self) -> Instant {
        time::now()
    }

    /// Returns how long something takes in the simulated cloud when it takes `real` on the real API.
    pub fn scaled(&self, real: Duration) -> Duration {
        real.mul_f64(self.scale)
    }

    pub fn scale(&self) -> f64 {
        self.scale
    }
}

/// Returns the value of the header `Date` in an answer of an API whose clock is `seconds` ahead
/// of this machine's clock.
pub fn date_ahead(seconds: i64) -> String {
    let now = time::timestamp();
    let shown = Timestamp::from_second(now.as_second().saturating_add(seconds)).unwrap_or(now);
    shown.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

/// Returns a timestamp in the API's format, which is RFC 3339 in UTC with whole seconds.
pub fn show(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}
