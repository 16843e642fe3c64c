//! The rate limit of a project. A project has a number of requests that it can still make. Each request lowers this
//! number by one. The number also rises all the time, so fast that it would rise from 0 to the limit in an hour.

use std::time::{Duration, Instant};

use super::clock::Clock;
use crate::exchange::Response;
use crate::time;

/// The API's documented limit: 3,600 requests per hour and project. This means one request a second.
const DEFAULT_LIMIT: u32 = 3600;
const HOUR: Duration = Duration::from_secs(3600);

#[derive(Clone, Debug)]
pub struct Budget {
    limit: u32,
    /// The number of requests that are left. It rises continuously, so it is not always a whole number. A request is
    /// only allowed when the number is at least 1.
    remaining: f64,
    updated: Instant,
}

impl Budget {
    pub fn new(now: Instant) -> Budget {
        Budget { limit: DEFAULT_LIMIT, remaining: f64::from(DEFAULT_LIMIT), updated: now }
    }

    pub fn set(&mut self, limit: u32, remaining: u32, now: Instant) {
        *self = Budget { limit, remaining: f64::from(remaining), updated: now };
    }

    /// Counts one request. Returns false when no request is left, so that the request must be refused.
    pub fn spend(&mut self, clock: Clock, now: Instant) -> bool {
        self.refill(clock, now);
        let allowed = self.remaining >= 1.0;
        if allowed {
            self.remaining -= 1.0;
        }
        allowed
    }

    /// Adds the `RateLimit-*` headers to an answer.
    pub fn annotate(&self, response: Response, clock: Clock) -> Response {
        let missing = 1.0 - self.remaining / f64::from(self.limit.max(1));
        let until_full = HOUR.mul_f64(missing.clamp(0.0, 1.0) * clock.scale());
        let reset = time::timestamp().as_second() + until_full.as_secs_f64().ceil() as i64;
        response
            .with_header("RateLimit-Limit", self.limit.to_string())
            .with_header("RateLimit-Remaining", format!("{}", self.remaining.floor().max(0.0)))
            .with_header("RateLimit-Reset", reset.to_string())
    }

    fn refill(&mut self, clock: Clock, now: Instant) {
        let limit = f64::from(self.limit);
        let hours = now.saturating_duration_since(self.updated).as_secs_f64()
            / (HOUR.as_secs_f64() * clock.scale());
        // With the time scale 0 an hour takes no time, so every refill is complete. The number of `hours` is then
        // infinite, or NaN when no time has passed since the last refill.
        let refill = if hours.is_nan() { limit } else { hours * limit };
        // A test can set more remaining requests than the limit. A refill does not lower this number.
        self.remaining = self.remaining.max((self.remaining + refill).min(limit));
        self.updated = now;
    }
}
