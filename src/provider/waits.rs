//! Records what this process waits for, e.g. the answer to an API call, so that a command can show it to its user.

use super::clock;
use super::heartbeat::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Whether this process records what it waits for, e.g. the answer to an API call. The value is `false` until a command
/// calls [`note_waits`]. The daemon never calls it.
static IS_NOTED: AtomicBool = AtomicBool::new(false);
static NUMBER: AtomicU64 = AtomicU64::new(0);
static OPEN: Mutex<Vec<Open>> = Mutex::new(Vec::new());

/// A wait of this process, e.g. for the answer to an API call, that has not ended yet.
#[derive(Clone, Debug)]
pub struct Open {
    /// A number that identifies this entry. No other wait of this process has the same number.
    number: u64,
    /// A description of what the process waits for. For an API call this is the method and the URL.
    pub what: String,
    pub since: Instant,
}

/// A guard for one wait of this process, e.g. for the answer to an API call. The wait is recorded until the guard is
/// dropped. `None` when waits are not recorded.
#[derive(Debug)]
#[must_use]
pub struct Waiting(Option<u64>);

/// Begins to record what this process waits for, e.g. the answer to an API call. Before this call, [`longest_wait`]
/// always returns `None`.
pub fn note_waits() {
    IS_NOTED.store(true, Ordering::Relaxed);
}

/// Returns what this process has been waiting for longest, e.g. the answer to an API call. `None` when it waits for
/// nothing now.
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
