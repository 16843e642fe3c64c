//! The time of everything that the APIs decide by time: real, or simulated on the thread that asks.
//!
//! Sockets and their deadlines are not here: they need the real time, whatever an API's clock says.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};

/// 2026-11-23T12:00:00Z, in seconds since 1970: what the clock on the wall says when simulated time begins.
pub const BEGINNING_S: i64 = 1_795_435_200;

thread_local! {
    static PASSED: RefCell<Option<Arc<AtomicU64>>> = const { RefCell::new(None) };
}

/// While it is held, time on its thread is simulated.
pub struct Simulated {
    before: Option<Arc<AtomicU64>>,
    /// It belongs to its thread.
    thread: PhantomData<*const ()>,
}

/// From now on this thread's time is [`BEGINNING_S`] and so many nanoseconds, until the guard is dropped. Guards are
/// dropped in the reverse order of their making.
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
    // Past the year 9999 it stands still.
    beginning.checked_add(passed).unwrap_or(Timestamp::MAX)
}

/// How long ago `then` was; zero where it is still to come.
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
    fn simulated_time_passes_only_when_it_is_made_to() {
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
