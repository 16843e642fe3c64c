//! What this process waits for, for a person who waits with it. It is part of the contract, as the heartbeat is: `http`
//! notes its calls, a controller the actions of the cloud.

use super::clock;
use super::heartbeat::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Nothing is noted until [`note_waits`] is called: a daemon's threads only read a flag.
static IS_NOTED: AtomicBool = AtomicBool::new(false);
static NUMBER: AtomicU64 = AtomicU64::new(0);
static OPEN: Mutex<Vec<Open>> = Mutex::new(Vec::new());

/// A wait that has not ended.
#[derive(Clone, Debug)]
pub struct Open {
    /// No two of a process have the same.
    number: u64,
    /// Of a call: method and URL.
    pub what: String,
    pub since: Instant,
}

/// The wait ends when this is dropped.
#[derive(Debug)]
#[must_use]
pub struct Waiting(Option<u64>);

/// From now on [`longest_wait`] knows.
pub fn note_waits() {
    IS_NOTED.store(true, Ordering::Relaxed);
}

/// The wait that began first; none: nothing is waited for.
pub fn longest_wait() -> Option<Open> {
    lock(&OPEN).first().cloned()
}

pub fn waiting_for(what: impl FnOnce() -> String) -> Waiting {
    if !IS_NOTED.load(Ordering::Relaxed) {
        return Waiting(None);
    }
    let open =
        Open { number: NUMBER.fetch_add(1, Ordering::Relaxed), what: what(), since: clock::now() };
    let waiting = Waiting(Some(open.number));
    lock(&OPEN).push(open);
    waiting
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(number) = self.0 {
            lock(&OPEN).retain(|open| open.number != number);
        }
    }
}
