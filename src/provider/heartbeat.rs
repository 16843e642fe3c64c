//! A heartbeat, which shows whether a thread of the daemon still works or hangs.
//!
//! Each thread of the daemon has a [`Heartbeat`], which another thread of the daemon watches. The code in a thread
//! calls [`beat`] whenever it has made progress. For example, the module `http` calls it after every request. Commands
//! of users and `run --once` have no heartbeat, and [`beat`] does nothing there.

use super::clock;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// The time at which a thread last made progress.
#[derive(Debug)]
pub struct Heartbeat {
    begun: Instant,
    /// The time of the last beat or, when the thread announced a pause after that beat, the end of the pause. The unit
    /// is milliseconds since `begun`.
    heard_until: AtomicU64,
}

thread_local! {
    static OWN: RefCell<Option<Arc<Heartbeat>>> = const { RefCell::new(None) };
}

/// Sets the heartbeat of the calling thread, i.e. the record of its last progress, which [`beat`] then updates. When
/// the thread ends, it drops its reference to the heartbeat. A watcher that has only a `Weak` reference then sees that
/// the thread has ended.
pub fn install(heartbeat: Arc<Heartbeat>) {
    OWN.set(Some(heartbeat));
}

/// Returns the heartbeat of the calling thread, or `None` when it has none. A thread that starts a helper thread can
/// install this heartbeat for the helper. The progress of the helper then counts as progress of the first thread.
pub fn installed() -> Option<Arc<Heartbeat>> {
    OWN.with_borrow(Option::clone)
}

/// Records that the calling thread has made progress at this moment.
pub fn beat() {
    pause(Duration::ZERO);
}

/// Announces that the calling thread will do nothing for this long. The liveness probe then does not take the pause for
/// a hang.
pub fn pause(time: Duration) {
    if let Some(heartbeat) = installed() {
        heartbeat.hear(time);
    }
}

/// Takes a lock that other threads hold only for a moment. A lock that was poisoned by a panic is taken like any other
/// lock, because a panic ends the whole process.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The real time between two attempts to take a lock that another thread holds during an API call.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Takes a lock that another thread sometimes holds for minutes, while it makes API calls. Until it has the lock, the
/// calling thread shows again and again that it is alive, so that the wait is not taken for a hang.
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
    /// Returns the time since the last beat or, when the thread announced a pause after that beat, since the end of the
    /// pause. The result is zero during the pause.
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
