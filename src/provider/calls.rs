//! Counts the calls to a cloud's API that are made for a piece of work, e.g. to limit the calls that one tenant causes.
//!
//! A call is counted for the thread that makes it. Calls that other threads make at the same time belong to other work.

use std::cell::Cell;

thread_local! {
    static MADE: Cell<u64> = const { Cell::new(0) };
}

/// Counts one call for the calling thread. A provider calls this function each time it sends a request, and also when
/// it sends the same request again.
pub fn note_call() {
    MADE.set(MADE.get() + 1);
}

/// Does the work. Returns its result, and how many calls to the cloud this thread made during the work.
pub fn counted<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let before = MADE.get();
    let done = work();
    (done, MADE.get() - before)
}
