//! Notes what this process waits for, so that a person who waits for the process can see it. This is part of the
//! contract, like the heartbeat, because `http` notes its calls, and a controller notes the actions of the cloud.

use super::clock;
use super::heartbeat::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Whether waits are recorded. This is `false` until [`note_waits`] is called. The threads of a daemon then do no more
/// than read this flag.
static IS_NOTED: AtomicBool = AtomicBool::new(false);
static NUMBER: AtomicU64 = AtomicU64::new(0);
static OPEN: Mutex<Vec<Open>> = Mutex::new(Vec::new());

/// A wait that has not ended.
#[derive(Clone, Debug)]
pub struct Open {
    /// The number of the wait, which no other wait of this process has.
    number: u64,
    /// What is waited for. For a call, the method and the URL.
    pub what: String,
    pub since: Instant,
}

/// A guard for a wait. The wait ends when the guard is dropped.
#[derive(Debug)]
#[must_use]
pub struct Waiting(Option<u64>);

/// Starts the recording of waits, so that [`longest_wait`] can find them.
pub fn note_waits() {
    IS_NOTED.store(true, Ordering::Relaxed);
}

/// Returns the wait that began first, or `None` when nothing is waited for.
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
