//! Counts the calls to a cloud's API that a piece of work makes, so that they can be charged to
//! whoever caused the work.
//!
//! A call counts for the thread that makes it. Calls that other threads make at the same time do not
//! belong to this work.

use std::cell::Cell;

thread_local! {
    static MADE: Cell<u64> = const { Cell::new(0) };
}

/// Counts one call. A provider calls this for each try.
pub fn note_call() {
    MADE.set(MADE.get() + 1);
}

/// Does the work. Returns its result, and the number of calls to the cloud that this thread made during the work.
pub fn counted<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let before = MADE.get();
    let done = work();
    (done, MADE.get() - before)
}
