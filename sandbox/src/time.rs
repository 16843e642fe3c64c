//! The clock of the simulated APIs. It shows the real time, or a simulated time that only the calling thread sees.
//!
//! Sockets and their deadlines do not use this module, because they always need the real time.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};

/// The wall-clock time at which simulated time begins: 2026-11-23T12:00:00Z, in seconds since 1970.
pub const BEGINNING_S: i64 = 1_795_435_200;

thread_local! {
    static PASSED: RefCell<Option<Arc<AtomicU64>>> = const { RefCell::new(None) };
}

/// A guard that simulates time on its thread until it is dropped.
pub struct Simulated {
    before: Option<Arc<AtomicU64>>,
    /// A marker that prevents this value from being sent to another thread, because it simulates the time of its own
    /// thread only.
    thread: PhantomData<*const ()>,
}

/// Simulates the time of this thread until the returned guard is dropped. The simulated time begins at a fixed date
/// ([`BEGINNING_S`]). `nanoseconds` is the time that has passed since then, and the caller raises this number to let
/// time pass. Guards must be dropped in the reverse order of their creation.
#[must_use]
pub fn simulate(nanoseconds: Arc<AtomicU64>) -> Simulated {
    Simulated { before: PASSED.replace(Some(nanoseconds)), thread: PhantomData }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        PASSED.set(self.before.take());
    }
}

pub fn is_simulated() -> bool {
    passed().is_some()
}

pub fn now() -> Instant {
    static BEGINNING: OnceLock<Instant> = OnceLock::new();
    match passed() {
        Some(passed) => *BEGINNING.get_or_init(Instant::now) + passed,
        None => Instant::now(),
    }
}

pub fn timestamp() -> Timestamp {
    let Some(passed) = passed() else {
        return Timestamp::now();
    };
    let beginning = Timestamp::from_second(BEGINNING_S).unwrap_or_default();
    let passed = SignedDuration::try_from(passed).unwrap_or_default();
    // A simulated time after the year 9999 is larger than any timestamp. The largest timestamp is returned instead.
    beginning.checked_add(passed).unwrap_or(Timestamp::MAX)
}

/// Returns how long ago `then` was, or zero when `then` is in the future.
pub fn since(then: Instant) -> Duration {
    now().saturating_duration_since(then)
}

fn passed() -> Option<Duration> {
    PASSED.with_borrow(|passed| {
        let passed = passed.as_ref()?;
        Some(Duration::from_nanos(passed.load(Ordering::Relaxed)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simulated_time_passes_only_when_a_test_lets_it_pass() {
        let outer = Arc::new(AtomicU64::new(0));
        let simulated = simulate(outer.clone());
        let begun = now();
        assert_eq!(timestamp().to_string(), "2026-11-23T12:00:00Z");
        outer.store(90_000_000_000, Ordering::Relaxed);
        assert_eq!(since(begun), Duration::from_secs(90));
        assert_eq!(timestamp().to_string(), "2026-11-23T12:01:30Z");

        let inner = simulate(Arc::default());
        assert_eq!((now(), since(begun)), (begun, Duration::ZERO));
        drop(inner);
        assert_eq!(since(begun), Duration::from_secs(90));
        assert!(!std::thread::spawn(is_simulated).join().unwrap());
        drop(simulated);
        assert!(!is_simulated());
    }
}
