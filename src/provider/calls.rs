//! How many calls of a cloud's API a piece of work made, so that somebody can be charged for them.
//!
//! A call is counted on the thread that makes it: what other threads do at the same time is not this work's.

use std::cell::Cell;

thread_local! {
    static MADE: Cell<u64> = const { Cell::new(0) };
}

/// A provider notes a call, each try by itself.
pub fn note_call() {
    MADE.set(MADE.get() + 1);
}

/// Does the work; the calls that this thread made for it.
pub fn counted<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let before = MADE.get();
    let done = work();
    (done, MADE.get() - before)
}
