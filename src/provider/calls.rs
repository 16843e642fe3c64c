//! Counts the calls to a cloud's API that are made for a piece of work, e.g. to limit the calls that the Services of
//! one namespace cause.
//!
//! A call is counted for the thread that makes it. Calls that other threads make at the same time belong to other work.

use std::cell::Cell;

thread_local! {
    static MADE: Cell<u64> = const { Cell::new(0) };
}

/// Counts one call for the calling thread. A provider (the code for one cloud) calls this function each time it sends a
/// request, also when it sends a request again.
pub fn note_call() {
    MADE.set(MADE.get() + 1);
}

/// Runs `work`. Returns the result of `work`, and the number of calls to the cloud that this thread made for it.
pub fn counted<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let before = MADE.get();
    let done = work();
    (done, MADE.get() - before)
}
