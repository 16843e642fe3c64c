//! The heartbeat of a thread shows that a long tick is work and not a hang.
//!
//! The daemon gives each of its threads a [`Heartbeat`] and watches it. Code that may take long in such a thread calls
//! [`beat`], e.g. `http` after every call, and a wait after every answer. The heartbeat is part of the contract, like
//! the gate, so that neither `http` nor a provider has to know the daemon. On a thread without a heartbeat, [`beat`]
//! does nothing: client commands and `run --once` have no heartbeat.

use super::clock;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// The time of a thread's last sign of life.
#[derive(Debug)]
pub struct Heartbeat {
    begun: Instant,
    /// The time of the last beat, or of the end of an announced pause, in milliseconds since `begun`.
    heard_until: AtomicU64,
}

thread_local! {
    static OWN: RefCell<Option<Arc<Heartbeat>>> = const { RefCell::new(None) };
}

/// Makes this heartbeat that of the calling thread, so that [`beat`] updates it. When the thread ends, the heartbeat is
/// dropped, so that a watcher with a `Weak` reference notices the end.
pub fn install(heartbeat: Arc<Heartbeat>) {
    OWN.set(Some(heartbeat));
}

/// Returns the calling thread's heartbeat, for another thread that works for the calling thread.
pub fn installed() -> Option<Arc<Heartbeat>> {
    OWN.with_borrow(Option::clone)
}

/// Updates the heartbeat of the calling thread, because this thread is working.
pub fn beat() {
    pause(Duration::ZERO);
}

/// Announces that the calling thread does nothing for this long, and that this is no hang.
pub fn pause(time: Duration) {
    if let Some(heartbeat) = installed() {
        heartbeat.hear(time);
    }
}

/// Waits for a lock that is held for a moment only. A panic ends the process, so the data under the lock
/// are never half changed.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A thread that waits for another thread's API call tries the lock again at this interval of the machine's time.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Waits for a lock that another thread holds while it asks an API, which may take minutes. While this thread waits, it
/// updates its own heartbeat. The other thread does so with its calls.
pub fn turn<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    loop {
        match lock.try_lock() {
            Ok(guard) => return guard,
            Err(TryLockError::Poisoned(poisoned)) => return PoisonError::into_inner(poisoned),
            Err(TryLockError::WouldBlock) => {
                beat();
                clock::sleep(clock::from_machine(RETRY_INTERVAL));
            }
        }
    }
}

impl Heartbeat {
    /// Returns the time since the last beat, or since the end of the announced pause. The time is zero while
    /// the pause lasts.
    pub fn silent_for(&self) -> Duration {
        let heard_until = Duration::from_millis(self.heard_until.load(Ordering::Relaxed));
        clock::since(self.begun).saturating_sub(heard_until)
    }

    fn hear(&self, pause: Duration) {
        let until = clock::since(self.begun).saturating_add(pause).as_millis();
        self.heard_until.store(u64::try_from(until).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

impl Default for Heartbeat {
    /// Creates a heartbeat whose first beat is now.
    fn default() -> Heartbeat {
        Heartbeat { begun: clock::now(), heard_until: AtomicU64::new(0) }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    fn born_an_hour_ago() -> Arc<Heartbeat> {
        Arc::new(Heartbeat {
            begun: Instant::now().checked_sub(LONG).unwrap(),
            heard_until: AtomicU64::new(0),
        })
    }

    #[test]
    fn a_thread_is_silent_since_its_last_beat_or_the_end_of_its_pause() {
        let heartbeat = born_an_hour_ago();
        beat();
        assert!(heartbeat.silent_for() >= LONG, "this thread has no heartbeat yet");
        install(Arc::clone(&heartbeat));
        beat();
        assert!(heartbeat.silent_for() < LONG / 2);
        for (time, is_silent) in [(LONG, false), (Duration::MAX, false)] {
            pause(time);
            assert_eq!(heartbeat.silent_for() > Duration::ZERO, is_silent, "{time:?}");
        }
        beat();
        let heard_until = Duration::from_millis(heartbeat.heard_until.load(Ordering::Relaxed));
        assert!(heard_until <= heartbeat.begun.elapsed(), "a beat ends the pause");
    }

    #[test]
    fn the_end_of_a_thread_is_seen() {
        let heartbeat = Arc::new(Heartbeat::default());
        let watched = Arc::downgrade(&heartbeat);
        std::thread::spawn(move || install(heartbeat)).join().unwrap();
        assert!(watched.upgrade().is_none());
    }
}
