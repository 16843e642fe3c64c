//! Which calls this process waits for, for a person who waits with it. Nothing is noted until [`note_waits`] is
//! called: a daemon's threads only read a flag.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

static IS_NOTED: AtomicBool = AtomicBool::new(false);
static NUMBER: AtomicU64 = AtomicU64::new(0);
static OPEN: Mutex<Vec<Open>> = Mutex::new(Vec::new());

/// A call, or another wait, that has not ended.
#[derive(Clone, Debug)]
pub struct Open {
    /// No two of a process have the same.
    pub number: u64,
    /// Method and URL, or what else it is.
    pub what: String,
    pub since: Instant,
}

/// The wait ends when this is dropped.
#[must_use]
pub(super) struct Waiting(Option<u64>);

/// From now on [`longest_wait`] knows.
pub fn note_waits() {
    IS_NOTED.store(true, Ordering::Relaxed);
}

/// What is waited for longest; none: nothing is.
pub fn longest_wait() -> Option<Open> {
    lock().first().cloned()
}

pub(super) fn on(what: impl FnOnce() -> String) -> Waiting {
    if !IS_NOTED.load(Ordering::Relaxed) {
        return Waiting(None);
    }
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let what = what();
    let mut open = lock();
    open.push(Open {
        number,
        what,
        since: Instant::now(),
    });
    Waiting(Some(number))
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(number) = self.0 {
            lock().retain(|open| open.number != number);
        }
    }
}

/// In the order in which they began.
fn lock() -> MutexGuard<'static, Vec<Open>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}
