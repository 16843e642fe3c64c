//! The only place where the program asks for the time, waits, and asks for randomness.
//!
//! A test may take the place of the machine for one thread: it gives a [`Simulation`], in which a wait costs nothing,
//! tasks run one after the other in an order that it chooses, and connections end in its memory. A story is then the same
//! each time. Outside of tests there is none, and all is the machine's.
//!
//! Also here: two clocks, compared. A machine that was suspended has a monotonic clock that stood still, and only its
//! wall clock says how long that was.

use jiff::Timestamp;
use log::Log;
use std::cell::RefCell;
use std::ffi::OsString;
use std::fmt::Debug;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::rc::Rc;
use std::sync::{Condvar, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// What takes the machine's place for one thread.
pub trait Simulation: Debug {
    fn now(&self) -> Instant;

    fn wall(&self) -> SystemTime;

    /// Time passes.
    fn sleep(&self, time: Duration);

    /// Other threads of the process have their turn: one waits for them.
    fn others(&self);

    /// Any number.
    fn random(&self) -> u64;

    /// The answer to the bytes of one HTTP request that were sent to this host and port. An error is what a socket
    /// would say; `TimedOut`: no answer until then.
    fn exchange(&self, authority: &str, request: &[u8], until: Instant) -> io::Result<Vec<u8>>;

    /// What a whole program has around it. `None`: the simulation runs parts of one alone.
    fn surroundings(&self) -> Option<&dyn Surroundings> {
        None
    }
}

/// What a whole program has around it in a [`Simulation`], beside clocks, chance and network.
pub trait Surroundings {
    /// The variables of the process that is at work.
    fn variables(&self) -> Vec<(OsString, OsString)>;

    /// Takes what the process writes to stderr, or to stdout.
    fn print(&self, is_stderr: bool, text: &[u8]);

    /// Takes the logger of the process.
    fn log_with(&self, logger: Box<dyn Log>);

    /// Takes a thread of the process: `work` is done again and again, each time after the pause that it returned, until it
    /// returns none. `is_apart`: it may be done while another thread of the process waits, because it shares no lock
    /// with it.
    fn repeat(&self, is_apart: bool, work: Box<dyn FnMut() -> Option<Duration>>);
}

thread_local! {
    static SIMULATION: RefCell<Option<Rc<dyn Simulation>>> = const { RefCell::new(None) };
}

/// Until it is dropped, the calling thread is in a simulation.
#[derive(Debug)]
#[must_use]
pub struct Simulated(Option<Rc<dyn Simulation>>);

/// Puts the calling thread into this simulation. For tests.
pub fn simulate(simulation: Rc<dyn Simulation>) -> Simulated {
    Simulated(SIMULATION.replace(Some(simulation)))
}

impl Drop for Simulated {
    fn drop(&mut self) {
        SIMULATION.set(self.0.take());
    }
}

/// The calling thread's; none outside of tests.
pub fn simulation() -> Option<Rc<dyn Simulation>> {
    // A thread that ends has none any more, and what it drops may still ask for the time.
    let own = SIMULATION.try_with(|own| own.borrow().clone());
    own.ok().flatten()
}

/// By the monotonic clock.
pub fn now() -> Instant {
    simulation().map_or_else(Instant::now, |simulation| simulation.now())
}

/// How long this moment is past; zero for one that comes.
pub fn since(moment: Instant) -> Duration {
    now().saturating_duration_since(moment)
}

/// By the wall clock.
pub fn wall() -> SystemTime {
    simulation().map_or_else(SystemTime::now, |simulation| simulation.wall())
}

/// By the wall clock.
pub fn timestamp() -> Timestamp {
    Timestamp::try_from(wall()).unwrap_or_default()
}

pub fn sleep(time: Duration) {
    match simulation() {
        Some(simulation) => simulation.sleep(time),
        None => std::thread::sleep(time),
    }
}

/// Until it is notified, or for so long. In a simulation there is no other thread that could notify it.
pub fn wait<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    time: Duration,
) -> MutexGuard<'a, T> {
    if let Some(simulation) = simulation() {
        simulation.sleep(time);
        return guard;
    }
    let waited = condvar.wait_timeout(guard, time);
    waited.unwrap_or_else(PoisonError::into_inner).0
}

/// Any number, another one each time.
pub fn random() -> u64 {
    // A fresh RandomState is std's source of randomness.
    let of_machine = || RandomState::new().build_hasher().finish();
    simulation().map_or_else(of_machine, |simulation| simulation.random())
}

/// By so much the two clocks may differ over the same time without being taken for a jump.
///
/// An NTP daemon slews by at most 500 ppm, that is 8 ms in a lease of 15 s, and steps by less than a second once a
/// machine runs; a leader that renews in time has 5 s to spare. Two seconds lie between.
pub const LARGEST_DRIFT: Duration = Duration::from_secs(2);

/// A moment by both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Never steps; stands still while a virtual machine is suspended.
    pub monotonic: Instant,
    /// Says how long a suspension was, once it is set again; may be set to anything.
    pub wall: SystemTime,
}

impl Moment {
    pub fn now() -> Moment {
        Moment {
            monotonic: now(),
            wall: wall(),
        }
    }

    /// How long `earlier` is past, by the clock that says more. None: one clock jumped against the other by more than
    /// [`LARGEST_DRIFT`], and nothing is known.
    pub fn since(self, earlier: Moment) -> Option<Duration> {
        let monotonic = self.monotonic.saturating_duration_since(earlier.monotonic);
        // Zero when it was set back.
        let wall = self.wall.duration_since(earlier.wall).unwrap_or_default();
        let back = earlier.wall.duration_since(self.wall).unwrap_or_default();
        let drift = monotonic.abs_diff(wall).saturating_add(back);
        (drift <= LARGEST_DRIFT).then_some(monotonic.max(wall))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_of_one_clock_is_no_time_that_is_known() {
        // Milliseconds that passed by the monotonic clock and by the wall clock, and what is made of them.
        for (monotonic, wall, expected) in [
            (0, 0, Some(0)),
            (7_000, 7_000, Some(7_000)),
            // Slewed, or stepped a little.
            (7_000, 7_004, Some(7_004)),
            (7_000, 6_996, Some(7_000)),
            (7_000, 9_000, Some(9_000)),
            (7_000, 5_000, Some(7_000)),
            // Suspended.
            (7_000, 9_001, None),
            (0, 60_000, None),
            (0, 365 * 86_400_000, None),
            // Set back.
            (7_000, 4_999, None),
            (0, -60_000, None),
            (0, -365 * 86_400_000, None),
        ] {
            let earlier = Moment::now();
            let by = Duration::from_millis(i64::unsigned_abs(wall));
            let later = Moment {
                monotonic: earlier.monotonic + Duration::from_millis(monotonic),
                wall: match wall < 0 {
                    true => earlier.wall - by,
                    false => earlier.wall + by,
                },
            };
            let since = later.since(earlier).map(|since| since.as_millis());
            assert_eq!(since, expected, "{monotonic} ms, {wall} ms");
        }
    }

    #[test]
    fn clocks_at_the_ends_of_time_are_no_panic() {
        let now = Moment::now();
        for seconds in [0, 1 << 40, i64::MAX.unsigned_abs() / 2] {
            let step = Duration::from_secs(seconds);
            for wall in [now.wall.checked_add(step), now.wall.checked_sub(step)] {
                let Some(wall) = wall else { continue };
                let other = Moment { wall, ..now };
                let (there, back) = (other.since(now), now.since(other));
                assert_eq!(
                    (there.is_some(), back.is_some()),
                    (seconds == 0, seconds == 0)
                );
            }
        }
    }
}
