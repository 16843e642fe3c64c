//! Until when the bytes of a call may move.
//!
//! A library between us and the socket knows how long each of its steps may take, and computes that
//! before the step begins: a process that was paused in between, or a peer that takes a byte now and
//! then, makes the sum longer than it should be. A write must not outlive the lease that allowed it,
//! so the moment itself is held here and looked at before every single system call. Everything is
//! blocking, so a call is on one thread from its beginning to its end.

use std::cell::Cell;
use std::time::Instant;

thread_local! {
    static DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Until it is dropped, no byte of this thread's calls moves after its moment.
#[must_use]
pub(super) struct Held {
    before: Option<Instant>,
}

/// The earlier of the two counts when one is held already.
pub(super) fn hold(deadline: Instant) -> Held {
    let before = DEADLINE.get();
    DEADLINE.set(Some(capped(deadline)));
    Held { before }
}

/// `deadline`, or the one that is held when that is earlier.
pub(super) fn capped(deadline: Instant) -> Instant {
    DEADLINE.get().map_or(deadline, |held| held.min(deadline))
}

/// There is a deadline, and it has passed.
pub(super) fn is_over() -> bool {
    DEADLINE.get().is_some_and(|held| Instant::now() >= held)
}

impl Drop for Held {
    fn drop(&mut self) {
        DEADLINE.set(self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_earliest_counts_and_each_ends_with_its_guard() {
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        {
            let _call = hold(at(8));
            assert_eq!((capped(at(5)), capped(at(9))), (at(5), at(8)));
            {
                let _connecting = hold(at(5));
                assert_eq!(capped(at(9)), at(5));
                let _longer = hold(at(20));
                assert_eq!(capped(at(9)), at(5));
            }
            assert_eq!(capped(at(9)), at(8));
        }
        assert_eq!(capped(at(9)), at(9));
    }
}
