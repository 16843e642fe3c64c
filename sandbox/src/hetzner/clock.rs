//! The time scale of the simulated cloud, by which all durations are multiplied. With the scale 0.01, for example, an
//! action takes 10 ms instead of a second. Timestamps in answers, e.g. in the field `created`, are not scaled.

use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::time;

/// The largest time scale. With this scale an hour becomes six weeks, which is still far below the limit of a
/// [`Duration`].
const MAX_SCALE: f64 = 1000.0;

/// Multiplies durations by a time scale, so that for example a test runs a hundred times faster than the real API.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    scale: f64,
}

impl Clock {
    /// Creates a clock whose durations are multiplied by `scale`: 1.0 is the speed of the real API, 0.01 is a hundred
    /// times faster, and with 0.0 nothing takes time. A scale outside of 0 to 1000 becomes the nearest number in this
    /// range, and NaN becomes 1.0.
    pub fn new(scale: f64) -> Clock {
        Clock { scale: if scale.is_nan() { 1.0 } else { scale.clamp(0.0, MAX_SCALE) } }
    }

    pub fn now(&self) -> Instant {
        time::now()
    }

    /// Returns how long something takes in the simulated cloud when the same thing takes `real` on the real API.
    pub fn scaled(&self, real: Duration) -> Duration {
        real.mul_f64(self.scale)
    }

    pub fn scale(&self) -> f64 {
        self.scale
    }
}

/// Returns the value of the header `Date` for an API whose clock is `seconds` ahead of the real clock.
pub fn date_ahead(seconds: i64) -> String {
    let now = time::timestamp();
    let shown = Timestamp::from_second(now.as_second().saturating_add(seconds)).unwrap_or(now);
    shown.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

/// Formats a timestamp as the API does: RFC 3339 in UTC with whole seconds.
pub fn show(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}
