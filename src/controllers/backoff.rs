//! When an object that failed is tried again: jittered, doubling, per object, on a common grid.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

const FIRST: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(300);

/// Failures by object UID.
#[derive(Debug)]
pub(super) struct Backoff {
    failed: HashMap<String, Entry>,
    /// The grid's origin.
    origin: Instant,
    /// Multiplies the waits; 1 outside of tests.
    scale: f64,
}

#[derive(Debug)]
struct Entry {
    wait: Duration,
    next: Instant,
}

impl Backoff {
    pub(super) fn new(scale: f64) -> Backoff {
        Backoff {
            failed: HashMap::new(),
            origin: Instant::now(),
            scale,
        }
    }

    /// Has it failed, and is its wait over?
    pub(super) fn is_retry_due(&self, uid: &str, now: Instant) -> bool {
        self.failed.get(uid).is_some_and(|entry| entry.next <= now)
    }

    pub(super) fn has_failed(&self, uid: &str) -> bool {
        self.failed.contains_key(uid)
    }

    pub(super) fn is_waiting(&self, uid: &str, now: Instant) -> bool {
        self.failed.get(uid).is_some_and(|entry| entry.next > now)
    }

    pub(super) fn failed(&mut self, uid: &str, now: Instant) {
        let last = self.failed.get(uid).map(|entry| entry.wait);
        let wait = last.map_or(FIRST, |wait| (wait * 2).min(LONGEST));
        let next = self.on_grid(now + jittered(uid, wait).mul_f64(self.scale), wait);
        self.failed.insert(uid.to_owned(), Entry { wait, next });
    }

    /// The next moment of a grid as wide as half the wait: objects that wait equally long come
    /// back together and share what has to be asked for them.
    fn on_grid(&self, next: Instant, wait: Duration) -> Instant {
        let width = (wait / 2).mul_f64(self.scale);
        let since = next.duration_since(self.origin).as_secs_f64();
        let cells = (since / width.as_secs_f64()).ceil();
        self.origin + width.mul_f64(cells)
    }

    pub(super) fn succeeded(&mut self, uid: &str) {
        self.failed.remove(uid);
    }

    /// Forgets objects that are gone.
    pub(super) fn keep(&mut self, exists: impl Fn(&str) -> bool) {
        self.failed.retain(|uid, _| exists(uid));
    }
}

/// Between half of a wait and the whole of it, by object: a hundred that failed together do
/// not come back together.
fn jittered(uid: &str, wait: Duration) -> Duration {
    let mut hasher = DefaultHasher::new();
    (uid, wait).hash(&mut hasher);
    wait.mul_f64(0.5 + hasher.finish() as f64 / u64::MAX as f64 / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn objects_that_wait_equally_long_come_back_together() {
        let mut backoff = Backoff::new(1.0);
        let now = Instant::now();
        for round in 0..8 {
            for n in 0..100 {
                backoff.failed(
                    &format!("uid-{n}"),
                    now + Duration::from_millis(round * 40 + n),
                );
            }
        }
        let moments: HashSet<Instant> = backoff.failed.values().map(|entry| entry.next).collect();
        assert!(
            moments.len() <= 3,
            "{} moments for 100 objects",
            moments.len()
        );
    }

    #[test]
    fn waits_double_up_to_five_minutes_and_end_with_success() {
        let mut backoff = Backoff::new(1.0);
        let now = Instant::now();
        for longest_s in [5, 10, 20, 40, 80, 160, 300, 300] {
            backoff.failed("a", now);
            let longest = Duration::from_secs(longest_s);
            assert!(backoff.is_waiting("a", now + longest / 2 - Duration::from_millis(1)));
            assert!(backoff.is_retry_due("a", now + longest + longest / 2));
        }
        assert!(!backoff.is_waiting("b", now) && !backoff.is_retry_due("b", now));
        backoff.succeeded("a");
        assert!(!backoff.is_waiting("a", now) && !backoff.is_retry_due("a", now));
    }
}
