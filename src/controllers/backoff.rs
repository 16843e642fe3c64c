//! Decides when an object is tried again after a failure. The wait of an object doubles with each failure, up to a
//! limit.

use crate::provider::clock;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The objects that failed, by UID. Each has the length of its last wait and the time of its next try.
#[derive(Debug)]
pub(super) struct Backoff {
    failed: HashMap<String, Entry>,
    first: Duration,
    longest: Duration,
    /// When an object fails, its wait is made longer, so that several objects are tried at the same time. The next try
    /// is a whole number of steps after the moment in this field. A step is half of the object's wait. `None` means
    /// that waits are not made longer.
    grid: Option<Instant>,
    /// The factor by which each wait is multiplied. A larger factor makes retries rarer, e.g. to save API calls.
    pub(super) stretch: f64,
}

#[derive(Debug)]
struct Entry {
    wait: Duration,
    next: Instant,
}

impl Default for Backoff {
    /// Creates a backoff in which the first wait of an object is 5 seconds, and each further wait is twice as long, up
    /// to 5 minutes. Each wait is made longer by up to a half, so that several objects are tried at the same time.
    fn default() -> Backoff {
        Backoff {
            grid: Some(clock::now()),
            ..Backoff::exact(Duration::from_secs(5), Duration::from_secs(300))
        }
    }
}

impl Backoff {
    /// Creates a backoff in which the first wait of an object is `first`. Each further wait is twice as long, up to
    /// `longest`. The waits have exactly these lengths: they are not adjusted to the waits of other objects.
    pub(super) fn exact(first: Duration, longest: Duration) -> Backoff {
        Backoff { failed: HashMap::new(), first, longest, grid: None, stretch: 1.0 }
    }

    /// Whether the object has failed and its wait is over, so that it must be tried again now.
    pub(super) fn is_retry_due(&self, uid: &str, now: Instant) -> bool {
        self.failed.get(uid).is_some_and(|entry| entry.next <= now)
    }

    pub(super) fn has_failed(&self, uid: &str) -> bool {
        self.failed.contains_key(uid)
    }

    pub(super) fn is_waiting(&self, uid: &str, now: Instant) -> bool {
        self.failed.get(uid).is_some_and(|entry| entry.next > now)
    }

    /// Records that the work on the object has ended. When `is_tried_again` is true, a new wait begins, after which the
    /// object is tried again. Otherwise the object is forgotten.
    pub(super) fn ended(&mut self, uid: &str, is_tried_again: bool) {
        if is_tried_again {
            self.failed(uid, clock::now());
        } else {
            self.failed.remove(uid);
        }
    }

    fn failed(&mut self, uid: &str, now: Instant) {
        let last = self.failed.get(uid).map(|entry| entry.wait);
        let wait = last.map_or(self.first, |wait| (wait * 2).min(self.longest));
        let next = now + wait.mul_f64(self.stretch);
        let next = match self.grid {
            None => next,
            Some(origin) => on_grid(next, origin, (wait / 2).mul_f64(self.stretch)),
        };
        self.failed.insert(uid.to_owned(), Entry { wait, next });
    }

    /// Forgets every object for which `exists` returns `false`.
    pub(super) fn keep(&mut self, exists: impl Fn(&str) -> bool) {
        self.failed.retain(|uid, _| exists(uid));
    }
}

/// Returns the moment of the next try for an object whose sync has failed. Possible moments are a whole number of steps
/// after `origin`, and the first of them that is not before `next` is returned. A step has the length `width`, which is
/// half of the object's wait. Objects with equal waits are then tried at the same moment, so the data from the cloud
/// are read once for all of them.
fn on_grid(next: Instant, origin: Instant, width: Duration) -> Instant {
    let since = next.duration_since(origin).as_secs_f64();
    let cells = (since / width.as_secs_f64()).ceil();
    origin + width.mul_f64(cells)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn objects_that_wait_equally_long_come_back_together() {
        let mut backoff = Backoff::default();
        let now = Instant::now();
        for round in 0..8 {
            for n in 0..100 {
                backoff.failed(&format!("uid-{n}"), now + Duration::from_millis(round * 40 + n));
            }
        }
        let moments: HashSet<Instant> = backoff.failed.values().map(|entry| entry.next).collect();
        assert!(moments.len() <= 3, "{} moments for 100 objects", moments.len());
    }

    #[test]
    fn waits_double_up_to_five_minutes_and_end_with_success() {
        let mut backoff = Backoff::default();
        let now = Instant::now();
        for longest_s in [5, 10, 20, 40, 80, 160, 300, 300] {
            backoff.failed("a", now);
            let longest = Duration::from_secs(longest_s);
            assert!(backoff.is_waiting("a", now + longest / 2 - Duration::from_millis(1)));
            assert!(backoff.is_retry_due("a", now + longest + longest / 2));
        }
        assert!(!backoff.is_waiting("b", now) && !backoff.is_retry_due("b", now));
        backoff.ended("a", false);
        assert!(!backoff.is_waiting("a", now) && !backoff.is_retry_due("a", now));
    }

    #[test]
    fn exact_waits_grow_to_their_limit_and_begin_anew() {
        let minute = Duration::from_secs(60);
        let mut backoff = Backoff::exact(minute / 4, minute);
        let mut now = Instant::now();
        for wait_s in [15, 30, 60, 60, 60] {
            assert!(!backoff.is_waiting("a", now));
            backoff.failed("a", now);
            now += Duration::from_secs(wait_s);
            assert!(backoff.is_waiting("a", now - Duration::from_millis(1)));
        }
        backoff.failed("a", now);
        backoff.keep(|_| false);
        assert!(!backoff.is_waiting("a", now));
    }
}
