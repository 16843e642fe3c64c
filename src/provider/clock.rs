//! The time, waits and randomness. All other code gets them from this module.
//!
//! A test can replace the clock, the randomness and the network of one thread with a [`Simulation`]. A wait then takes
//! no real time, tasks run one after the other in an order that the simulation chooses, and network connections exist
//! only in memory. Each run of such a test has the same result. Outside of tests there is no simulation.
//!
//! The functions [`now`], [`since`], [`sleep`] and [`wait`] use the program's clock. Usually this clock shows real
//! time. A test with real sockets can make it run faster, with [`quicken`]. Sockets, other programs and people are not
//! faster in such a test, so code that waits for them needs real time. The functions [`to_machine`], [`machine_until`],
//! [`from_machine`], [`at_least`] and [`took`] convert between the program's clock and real time.
//!
//! This module also compares the monotonic clock and the wall clock of the machine. While a machine is suspended, its
//! monotonic clock stands still. Only the wall clock shows how long the suspension was.

use jiff::Timestamp;
use log::Log;
use std::cell::RefCell;
use std::ffi::OsString;
use std::fmt::Debug;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::rc::Rc;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// The simulated clocks, randomness and network of one thread in a test.
pub trait Simulation: Debug {
    fn now(&self) -> Instant;

    fn wall(&self) -> SystemTime;

    /// Waits for this much simulated time.
    fn sleep(&self, time: Duration);

    /// Lets simulated threads other than the calling thread make some progress. The calling thread waits for another
    /// thread by calling this function again and again.
    fn others(&self);

    /// Returns a random number.
    fn random(&self) -> u64;

    /// Sends an HTTP request to a host and port (`authority`) of the simulated network, and returns the bytes of the
    /// answer. The error is the one that a real socket would return, e.g. `TimedOut` when no answer came before
    /// `until`.
    fn exchange(&self, authority: &str, request: &[u8], until: Instant) -> io::Result<Vec<u8>>;

    /// Returns the simulated environment variables, outputs (stdout and stderr), logger and threads of the process that
    /// runs in the simulation (a test with a simulated clock and network). `None` when the simulation runs only a part
    /// of the program.
    fn surroundings(&self) -> Option<&dyn Surroundings> {
        None
    }
}

/// The simulated environment variables, outputs (stdout and stderr), logger and threads of a process. Only a
/// [`Simulation`] that runs a whole program has them.
pub trait Surroundings {
    /// Returns the environment variables of the simulated process whose code calls this function.
    fn variables(&self) -> Vec<(OsString, OsString)>;

    /// Receives the text that the simulated process prints. `is_stderr` says whether the text goes to stderr or to
    /// stdout.
    fn print(&self, is_stderr: bool, text: &[u8]);

    /// Sets the logger of the simulated process. A test can simulate several processes, so each of them has a logger of
    /// its own, and the global logger of the crate `log` is not used.
    fn log_with(&self, logger: Box<dyn Log>);

    /// Runs a simulated thread, which calls `work` again and again. `work` returns the pause before the next call, or
    /// `None` to end the thread. `is_apart` says that `work` uses no lock that another thread uses, so that the
    /// simulation can call `work` at any time. When it is `false`, the simulation calls `work` only when no other
    /// thread is in the middle of its own work, because that thread could hold a lock.
    fn repeat(&self, is_apart: bool, work: Box<dyn FnMut() -> Option<Duration>>);
}

thread_local! {
    static SIMULATION: RefCell<Option<Rc<dyn Simulation>>> = const { RefCell::new(None) };
}

/// A guard that keeps the calling thread in a simulation (with a simulated clock and network, for a test) until the
/// guard is dropped.
#[derive(Debug)]
#[must_use]
pub struct SimulationGuard(Option<Rc<dyn Simulation>>);

/// Puts the calling thread into this simulation, so that it gets the simulated time, random numbers and network
/// connections.
pub fn simulate(simulation: Rc<dyn Simulation>) -> SimulationGuard {
    SimulationGuard(SIMULATION.replace(Some(simulation)))
}

impl Drop for SimulationGuard {
    fn drop(&mut self) {
        SIMULATION.set(self.0.take());
    }
}

/// Returns the simulation of the calling thread. Outside of tests there is none.
fn simulation() -> Option<Rc<dyn Simulation>> {
    // A thread that ends drops its thread-local values one after the other. Sometimes the simulation is dropped before
    // another value whose destructor asks for the time. The thread then counts as not simulated.
    SIMULATION.try_with(|own| own.borrow().clone()).ok().flatten()
}

/// Whether the calling thread is in a simulation, i.e. in a test with a simulated clock and network.
pub fn is_simulated() -> bool {
    simulation().is_some()
}

/// Calls `ask` with the [`Surroundings`] of the calling thread's simulation, e.g. its environment variables, and
/// returns the result. `None` when there is no simulation, or when it has no surroundings.
pub fn surroundings<T>(ask: impl FnOnce(&dyn Surroundings) -> T) -> Option<T> {
    simulation()?.surroundings().map(ask)
}

/// The speed of the program's clock compared with real time. Only a test changes this speed.
struct Pace {
    /// The moment when the test set the speed of the program's clock. Until this moment the program's clock showed real
    /// time.
    begun: Instant,
    /// The number of real seconds in one second of the program's clock.
    factor: f64,
}

static PACE: OnceLock<Pace> = OnceLock::new();

/// Makes the program's clock run faster or slower than real time, for a test. One second of the program's clock then
/// takes `factor` real seconds. Only the first call in a process has an effect. A call with the factor 1, or from a
/// thread in a simulation, is ignored.
pub fn quicken(factor: f64) {
    if factor == 1.0 || is_simulated() {
        return;
    }
    let pace = PACE.get_or_init(|| Pace { begun: Instant::now(), factor });
    debug_assert!(pace.factor == factor, "a process has one factor");
}

/// Returns the number of real seconds in one second of the program's clock. The result is 1 in a simulation, and when
/// no test has set a factor.
fn factor() -> f64 {
    PACE.get().filter(|_| !is_simulated()).map_or(1.0, |pace| pace.factor)
}

/// Converts a duration of the program's clock to real time. Time-outs of sockets, and waits that do not use this
/// module, need real time. Outside of tests the result is equal to `time`.
pub fn to_machine(time: Duration) -> Duration {
    multiplied(time, factor())
}

/// Converts a real duration to a duration of the program's clock. Outside of tests the result is equal to `time`.
pub fn from_machine(time: Duration) -> Duration {
    multiplied(time, factor().recip())
}

/// Returns the longer of two durations: `time`, and the duration of the program's clock that passes in the real time
/// `of_machine`. `time` and the result are durations of the program's clock, which can run faster than real time in a
/// test. Callers use this when an API or another program needs some real time to answer.
pub fn at_least(time: Duration, of_machine: Duration) -> Duration {
    time.max(from_machine(of_machine))
}

/// Returns how much real time has passed since `begun`, which is a moment of the program's clock. The result is for
/// display, for metrics, and for comparisons with the wall clock.
pub fn took(begun: Instant) -> Duration {
    to_machine(since(begun))
}

/// The longest result of [`multiplied`] for every factor except 1. It is a thousand years, which can be added to an
/// instant without overflow.
const LONGEST: Duration = Duration::from_secs(1000 * 365 * 24 * 3600);

/// Multiplies a duration by a factor. When the factor is 1, the result is exactly `time`. Otherwise it can be rounded,
/// and is at most [`LONGEST`].
fn multiplied(time: Duration, factor: f64) -> Duration {
    if factor == 1.0 {
        return time;
    }
    let product = Duration::try_from_secs_f64(time.as_secs_f64() * factor);
    product.unwrap_or(LONGEST).min(LONGEST)
}

impl Pace {
    /// Converts a moment of the machine's monotonic clock to a moment of the program's clock, which can run faster in a
    /// test.
    fn moment(&self, machine: Instant) -> Instant {
        let passed = machine.saturating_duration_since(self.begun);
        self.begun + multiplied(passed, self.factor.recip())
    }
}

/// Returns the present moment of the program's clock. Outside of tests this is the machine's monotonic clock.
pub fn now() -> Instant {
    if let Some(simulation) = simulation() {
        return simulation.now();
    }
    let now = Instant::now();
    PACE.get().map_or(now, |pace| pace.moment(now))
}

/// Returns how much time has passed since this moment, by the program's clock. The result is zero for a moment in the
/// future.
pub fn since(moment: Instant) -> Duration {
    now().saturating_duration_since(moment)
}

/// Returns how much real time is left until this moment of the program's clock. The result is zero for a moment in the
/// past.
pub fn machine_until(moment: Instant) -> Duration {
    to_machine(moment.saturating_duration_since(now()))
}

/// Returns the time of the machine's wall clock, which the APIs use in requests and answers. Even when a test makes the
/// program's clock run faster, this clock shows real time.
pub fn wall() -> SystemTime {
    simulation().map_or_else(SystemTime::now, |simulation| simulation.wall())
}

/// Returns the time of [`wall`] as a `Timestamp`.
pub fn timestamp() -> Timestamp {
    Timestamp::try_from(wall()).unwrap_or_default()
}

pub fn sleep(time: Duration) {
    match simulation() {
        Some(simulation) => simulation.sleep(time),
        None => std::thread::sleep(to_machine(time)),
    }
}

/// Waits until the condition variable is notified, but not longer than `time`. In a simulation there are no
/// notifications, so the whole `time` passes.
pub fn wait<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    time: Duration,
) -> MutexGuard<'a, T> {
    if let Some(simulation) = simulation() {
        simulation.sleep(time);
        return guard;
    }
    let waited = condvar.wait_timeout(guard, to_machine(time));
    waited.unwrap_or_else(PoisonError::into_inner).0
}

/// Waits while `must_wait` returns `true`, but not longer than `time`. `must_wait` is called again after each
/// notification of the condition variable. In a simulation there are no notifications, so the whole `time` passes.
pub fn wait_at_most<'a, T>(
    condvar: &Condvar,
    mut guard: MutexGuard<'a, T>,
    time: Duration,
    mut must_wait: impl FnMut(&mut T) -> bool,
) -> MutexGuard<'a, T> {
    if let Some(simulation) = simulation() {
        if must_wait(&mut guard) {
            simulation.sleep(time);
        }
        return guard;
    }
    let waited = condvar.wait_timeout_while(guard, to_machine(time), must_wait);
    waited.unwrap_or_else(PoisonError::into_inner).0
}

/// Waits while `must_wait` returns `true`. `must_wait` is called again after each notification of the condition
/// variable. In a simulation there are no notifications. Instead, the other simulated threads work between two calls of
/// `must_wait`.
pub fn wait_while<T>(condvar: &Condvar, mutex: &Mutex<T>, must_wait: impl Fn(&mut T) -> bool) {
    let locked = || mutex.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(simulation) = simulation() {
        while must_wait(&mut locked()) {
            simulation.others();
        }
        return;
    }
    let waited = condvar.wait_while(locked(), |value| must_wait(value));
    drop(waited.unwrap_or_else(PoisonError::into_inner));
}

/// Sends an HTTP request to the simulated network, see [`Simulation::exchange`]. Without a simulation the result is the
/// error that the host can't be reached.
pub fn exchange(authority: &str, request: &[u8], until: Instant) -> io::Result<Vec<u8>> {
    let simulation = simulation().ok_or(io::ErrorKind::HostUnreachable)?;
    simulation.exchange(authority, request, until)
}

/// Returns a random number.
pub fn random() -> u64 {
    // Outside of a simulation, the number comes from the standard library: each `RandomState` has random keys, so that
    // even the hash of nothing is a random number.
    let of_machine = || RandomState::new().build_hasher().finish();
    simulation().map_or_else(of_machine, |simulation| simulation.random())
}

/// The largest accepted difference between the monotonic clock and the wall clock, when both measure the same period. A
/// larger difference means that one of the clocks jumped.
///
/// The limit is real time, even in a test that makes the program's clock run faster. Two seconds of the program's clock
/// can be a few real milliseconds in such a test. With so small a limit, every short delay of the machine would count
/// as a jump.
///
/// The limit is larger than the usual corrections of the wall clock. An NTP daemon changes the speed of this clock by
/// at most 500 ppm, which is 8 ms in 15 s, the default duration of a Lease. Except just after the start of the machine,
/// it rarely sets the clock forward or back by a second or more. The limit is smaller than 5 s, the default time from
/// the renew deadline (10 s), when a leader gives up, to the end of its Lease (15 s).
pub const LARGEST_DRIFT: Duration = Duration::from_secs(2);

/// A moment, with the times of the monotonic clock and of the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The time of the monotonic clock. This clock never jumps, but stands still while a virtual machine is suspended.
    pub monotonic: Instant,
    /// The time of the wall clock. It includes the time of a suspension, but somebody can set this clock to any time.
    pub wall: SystemTime,
}

impl Moment {
    pub fn now() -> Moment {
        Moment { monotonic: now(), wall: wall() }
    }

    /// Returns the time that has passed since `earlier`. When the monotonic clock and the wall clock measured slightly
    /// different times, the result is the longer time. The result is `None` when the two times differ by more than
    /// [`LARGEST_DRIFT`], because one of the clocks has jumped, and the true time is not known.
    pub fn since(self, earlier: Moment) -> Option<Duration> {
        self.since_at(earlier, factor())
    }

    fn since_at(self, earlier: Moment, factor: f64) -> Option<Duration> {
        let from_machine = |time| multiplied(time, factor.recip());
        let monotonic = self.monotonic.saturating_duration_since(earlier.monotonic);
        // `wall` is the time by which the wall clock has moved forward since `earlier`. `back` is the time by which it
        // is behind `earlier`, because somebody has set it back. At least one of the two is zero.
        let wall = self.wall.duration_since(earlier.wall).unwrap_or_default();
        let back = earlier.wall.duration_since(self.wall).unwrap_or_default();
        let wall = from_machine(wall);
        let drift = monotonic.abs_diff(wall).saturating_add(from_machine(back));
        let largest = LARGEST_DRIFT.max(from_machine(LARGEST_DRIFT));
        (drift <= largest).then_some(monotonic.max(wall))
    }
}

/// A simulation for unit tests, in which a wait takes no real time.
#[cfg(test)]
pub(crate) mod for_tests {
    use super::*;
    use std::cell::Cell;

    #[derive(Debug)]
    struct TestMachine {
        begun: (Instant, SystemTime),
        passed: Cell<Duration>,
        last_random: Cell<u64>,
    }

    impl Simulation for TestMachine {
        fn now(&self) -> Instant {
            self.begun.0 + self.passed.get()
        }

        fn wall(&self) -> SystemTime {
            self.begun.1 + self.passed.get()
        }

        /// Moves the clock forward by `time` and ten microseconds, so that even a wait of zero takes some time.
        fn sleep(&self, time: Duration) {
            let time = time + Duration::from_micros(10);
            self.passed.update(|passed| passed + time);
        }

        fn others(&self) {}

        fn random(&self) -> u64 {
            let last = self.last_random.get();
            let next = last.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            self.last_random.set(next);
            next >> 33
        }

        fn exchange(&self, _: &str, _: &[u8], _: Instant) -> io::Result<Vec<u8>> {
            Err(io::ErrorKind::ConnectionRefused.into())
        }
    }

    /// Puts the calling thread into a simulation in which a wait takes no real time, and every network connection is
    /// refused.
    pub(crate) fn simulated() -> SimulationGuard {
        simulate(Rc::new(TestMachine {
            begun: (Instant::now(), SystemTime::now()),
            passed: Cell::default(),
            last_random: Cell::new(1),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_of_one_clock_is_no_time_that_is_known() {
        // Each row has the milliseconds that passed by the monotonic clock, those by the wall clock, and the expected
        // result in milliseconds.
        for (monotonic, wall, expected) in [
            (0, 0, Some(0)),
            (7_000, 7_000, Some(7_000)),
            // An NTP daemon has adjusted the wall clock, so the monotonic clock and the wall clock measured slightly
            // different times. The result is the longer of the two.
            (7_000, 7_004, Some(7_004)),
            (7_000, 6_996, Some(7_000)),
            (7_000, 9_000, Some(9_000)),
            (7_000, 5_000, Some(7_000)),
            // The machine was suspended for a while, so the wall clock measured much more time than the monotonic
            // clock. The true time is not known, and the result is `None`.
            (7_000, 9_001, None),
            (0, 60_000, None),
            (0, 365 * 86_400_000, None),
            // The wall clock was set back, so it seems that less time has passed. The true time is not known, and the
            // result is `None`.
            (7_000, 4_999, None),
            (0, -60_000, None),
            (0, -365 * 86_400_000, None),
        ] {
            let earlier = Moment::now();
            let by = Duration::from_millis(i64::unsigned_abs(wall));
            let later = Moment {
                monotonic: earlier.monotonic + Duration::from_millis(monotonic),
                wall: if wall < 0 { earlier.wall - by } else { earlier.wall + by },
            };
            let since = later.since(earlier).map(|since| since.as_millis());
            assert_eq!(since, expected, "{monotonic} ms, {wall} ms");
        }
    }

    #[test]
    fn both_clocks_agree_on_the_program_s_time() {
        // Each row has the number of real seconds in a second of the program's clock, the milliseconds that passed by
        // the program's monotonic clock, and the real milliseconds that passed by the wall clock. The last value is the
        // expected result: the passed time in milliseconds of the program's clock, or `None` when the two clocks differ
        // too much.
        for (factor, monotonic, wall, expected) in [
            (0.02, 50_000, 1_000, Some(50_000)),
            (0.02, 50_000, 1_010, Some(50_500)),
            (0.02, 50_500, 1_000, Some(50_500)),
            // The factor 0.02 means that the program's clock runs 50 times as fast as real time. The times that passed
            // by the program's monotonic clock and by the wall clock are allowed to differ by two real seconds, which
            // are 100 seconds of the program's clock.
            (0.02, 50_000, 3_000, Some(150_000)),
            (0.02, 50_000, 3_001, None),
            (0.02, 150_000, 1_000, Some(150_000)),
            (0.02, 150_050, 1_000, None),
            (0.02, 0, 60_000, None),
            (0.02, 0, -1_000, Some(0)),
            (0.02, 0, -2_001, None),
            // The factor 2 means that the program's clock runs at half the speed of real time. The monotonic clock and
            // the wall clock are then allowed to differ by two seconds of the program's clock, which are four real
            // seconds.
            (2.0, 1_000, 2_000, Some(1_000)),
            (2.0, 1_000, 6_000, Some(3_000)),
            (2.0, 1_000, 6_002, None),
        ] {
            let earlier = Moment::now();
            let by = Duration::from_millis(i64::unsigned_abs(wall));
            let later = Moment {
                monotonic: earlier.monotonic + Duration::from_millis(monotonic),
                wall: if wall < 0 { earlier.wall - by } else { earlier.wall + by },
            };
            let since = later.since_at(earlier, factor).map(|since| since.as_millis());
            assert_eq!(since, expected, "{factor}: {monotonic} ms, {wall} ms");
        }
    }

    #[test]
    fn a_second_of_the_program_lasts_as_many_seconds_as_the_factor() {
        let begun = Instant::now();
        let ms = Duration::from_millis;
        // Each row has the number of real seconds in a second of the program's clock, a duration of that clock in
        // milliseconds, and the same duration in real milliseconds.
        for (factor, program, machine) in [
            (1.0, 0, 0),
            (1.0, 1_234, 1_234),
            (0.02, 50_000, 1_000),
            (0.002, 500, 1),
            (4.0, 250, 1_000),
        ] {
            let pace = Pace { begun, factor };
            assert_eq!(pace.moment(begun + ms(machine)), begun + ms(program));
            assert_eq!(multiplied(ms(program), factor), ms(machine));
            assert_eq!(multiplied(ms(machine), factor.recip()), ms(program));
        }
        // The program's clock begins to run with another speed at the moment `begun`. Every moment before `begun` is
        // converted to `begun` itself, so the program's clock never runs backwards.
        let pace = Pace { begun, factor: 0.5 };
        assert_eq!(pace.moment(begun - ms(7)), begun);
    }

    #[test]
    fn the_longest_times_are_no_panic() {
        let begun = Instant::now();
        for factor in [1e-300, 0.002, 1000.0] {
            assert_eq!(multiplied(Duration::ZERO, factor), Duration::ZERO);
            let pace = Pace { begun, factor };
            let last = pace.moment(begun + Duration::from_secs(1 << 32));
            for time in [factor, factor.recip()].map(|by| multiplied(Duration::MAX, by)) {
                assert!(last.checked_add(time).is_some(), "{factor}: {time:?}");
            }
        }
        assert_eq!(multiplied(Duration::MAX, 1.0), Duration::MAX);
    }

    /// No unit test makes the program's clock run faster or slower, so in this test it must show real time.
    #[test]
    fn without_a_factor_the_program_s_time_is_the_machine_s() {
        let time = Duration::from_nanos(1_234_567_891);
        assert_eq!((to_machine(time), from_machine(time)), (time, time));
        assert_eq!(at_least(time, time / 2), time);
        assert_eq!(at_least(time, time * 2), time * 2);
        let before = Instant::now();
        let between = now();
        assert!(before <= between && between <= Instant::now());
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
                assert_eq!((there.is_some(), back.is_some()), (seconds == 0, seconds == 0));
            }
        }
    }
}
