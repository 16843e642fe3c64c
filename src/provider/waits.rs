//! Records what this process waits for, so that a command can show it to its user. This is defined here because both
//! `http` and the controllers use it.

use super::clock;
use super::heartbeat::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Whether waits are recorded. This is `false` until a command calls [`note_waits`]. A daemon never does, so its
/// threads only read this flag.
static IS_NOTED: AtomicBool = AtomicBool::new(false);
static NUMBER: AtomicU64 = AtomicU64::new(0);
static OPEN: Mutex<Vec<Open>> = Mutex::new(Vec::new());

/// A wait that has not ended yet.
#[derive(Clone, Debug)]
pub struct Open {
    /// The number of this wait. Each wait of the process has another number.
    number: u64,
    /// A description of what the process waits for. For a call, the method and the URL.
    pub what: String,
    pub since: Instant,
}

/// A guard that records a wait until the guard is dropped.
#[derive(Debug)]
#[must_use]
pub struct Waiting(Option<u64>);

/// Starts to record waits, so that [`longest_wait`] returns them.
pub fn note_waits() {
    IS_NOTED.store(true, Ordering::Relaxed);
}

/// Returns the oldest wait that has not ended. `None` when the process waits for nothing.
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
