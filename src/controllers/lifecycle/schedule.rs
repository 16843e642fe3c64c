//! When a not-ready node's server is asked for: at once, after 15 s, after 30 s, then every minute.

use std::collections::HashMap;
use std::time::{Duration, Instant};

const PAUSES: [Duration; 3] = [
    Duration::from_secs(15),
    Duration::from_secs(30),
    Duration::from_secs(60),
];

/// Nodes asked for, by UID.
#[derive(Debug)]
pub(super) struct Schedule {
    asked: HashMap<String, Asked>,
    /// Multiplies the pauses; 1 outside of tests.
    scale: f64,
}

#[derive(Debug)]
struct Asked {
    times: usize,
    next: Instant,
}

impl Schedule {
    pub(super) fn new(scale: f64) -> Schedule {
        Schedule {
            asked: HashMap::new(),
            scale,
        }
    }

    pub(super) fn is_due(&self, uid: &str, now: Instant) -> bool {
        self.asked.get(uid).is_none_or(|asked| asked.next <= now)
    }

    pub(super) fn asked(&mut self, uid: &str, now: Instant) {
        let times = self.asked.get(uid).map_or(0, |asked| asked.times);
        let pause = PAUSES[times.min(PAUSES.len() - 1)].mul_f64(self.scale);
        self.asked.insert(
            uid.to_owned(),
            Asked {
                times: times + 1,
                next: now + pause,
            },
        );
    }

    /// Forgets those that it holds no longer for.
    pub(super) fn keep(&mut self, holds: impl Fn(&str) -> bool) {
        self.asked.retain(|uid, _| holds(uid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_minute_and_begin_anew() {
        let mut schedule = Schedule::new(1.0);
        let mut now = Instant::now();
        for pause_s in [15, 30, 60, 60, 60] {
            assert!(schedule.is_due("a", now));
            schedule.asked("a", now);
            assert!(!schedule.is_due(
                "a",
                now + Duration::from_secs(pause_s) - Duration::from_millis(1)
            ));
            now += Duration::from_secs(pause_s);
        }
        schedule.asked("a", now);
        schedule.keep(|_| false);
        assert!(schedule.is_due("a", now));
    }
}
