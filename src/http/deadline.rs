//! Until when the bytes of a call may move.
//!
//! A library between us and the socket knows how long each of its steps may take, and computes that
//! before the step begins: a process that was paused in between, or a peer that takes a byte now and
//! then, makes the sum longer than it should be. A write must not outlive the lease that allowed it,
//! so the moment itself is held here and looked at before every single system call. A machine that is
//! suspended has a monotonic clock that stands still: a call during which the clocks jumped against each
//! other is over as well. Everything is blocking, so a call is on one thread from its beginning to its end.

use crate::provider::Moment;
use std::cell::Cell;
use std::time::Instant;

thread_local! {
    static DEADLINE: Cell<Option<Deadline>> = const { Cell::new(None) };
}

#[derive(Clone, Copy)]
struct Deadline {
    end: Instant,
    /// When the first of the deadlines that are held was set.
    begun: Moment,
}

/// Until it is dropped, no byte of this thread's calls moves after its moment.
#[must_use]
pub(super) struct Held {
    before: Option<Deadline>,
}

/// The earlier of the two counts when one is held already.
pub(super) fn hold(deadline: Instant) -> Held {
    hold_at(deadline, Moment::now())
}

fn hold_at(deadline: Instant, now: Moment) -> Held {
    let before = DEADLINE.get();
    DEADLINE.set(Some(Deadline {
        end: capped(deadline),
        begun: before.map_or(now, |held| held.begun),
    }));
    Held { before }
}

/// `deadline`, or the one that is held when that is earlier.
pub(super) fn capped(deadline: Instant) -> Instant {
    DEADLINE
        .get()
        .map_or(deadline, |held| held.end.min(deadline))
}

/// There is a deadline, and it has passed, or nothing is known about the time since it was set.
pub(super) fn is_over() -> bool {
    is_over_at(Moment::now())
}

fn is_over_at(now: Moment) -> bool {
    DEADLINE
        .get()
        .is_some_and(|held| now.monotonic >= held.end || now.since(held.begun).is_none())
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
    fn a_call_during_which_the_machine_was_suspended_is_over() {
        let now = Moment::now();
        // Seconds that passed by the monotonic clock and by the wall clock.
        for (monotonic, wall, expected) in
            [(1, 1, false), (8, 8, true), (1, 3, false), (1, 4, true)]
        {
            let held = hold_at(now.monotonic + Duration::from_secs(8), now);
            let later = Moment {
                monotonic: now.monotonic + Duration::from_secs(monotonic),
                wall: now.wall + Duration::from_secs(wall),
            };
            assert_eq!(is_over_at(later), expected, "{monotonic} s, {wall} s");
            drop(held);
            assert!(!is_over_at(later), "nothing is held");
        }
    }

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
