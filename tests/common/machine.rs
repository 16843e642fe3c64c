//! A [`Machine`] simulates the computer on which the programs of a test run. Most tests use such a simulated computer.
//! Its clocks, its network and its random numbers are simulated, so that nothing waits for real time.
//!
//! One thread runs a whole test. Simulated time passes when a program makes an API call or waits, and when the test
//! asks for it. A test can make simulated processes pause at random when they read a clock, like a process in a virtual
//! machine that is moved to another host. A pause lasts up to a minute of simulated time, in which other processes,
//! e.g. another `ccm`, do their work.

use super::library::SCALE;
use super::random::Random;
use super::simulated::Processes;
use allocation_counter::opt_out;
use ccm::provider::clock::{Simulation, Surroundings};
use sandbox::server::Ending;
use sandbox::{Half, Sandbox};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

/// The simulated time that an API call spends on the network, in both directions together.
const CALL: Duration = Duration::from_millis(4);

/// The largest number of API calls that all programs on one [`Machine`] together are allowed to make. A test with more
/// calls fails, because one of its programs probably repeats its calls endlessly.
const CALLS_AT_MOST: u64 = 100_000;

const HALVES: [Half; 3] = [Half::Hetzner, Half::Kubernetes, Half::Robot];

pub struct Machine {
    begun: Instant,
    begun_wall: SystemTime,
    /// The simulated time that has passed since this `Machine` was created, in nanoseconds. All simulated APIs and
    /// programs read their time from this value.
    time: Arc<AtomicU64>,
    /// For how long the simulated computer was suspended in total, as a sleeping laptop is. The monotonic clock that
    /// the programs see does not count this time.
    pub suspended: Cell<Duration>,
    random: RefCell<Random>,
    sandboxes: RefCell<Vec<Weak<Sandbox>>>,
    /// The programs that run on the simulated computer as simulated processes. There are none when the test only calls
    /// functions of the `ccm` library.
    pub processes: Processes,
    /// The probability, in thousandths, that a simulated process is paused when it reads a clock.
    pauses_per_thousand: Cell<u64>,
    /// The function that does the work of other processes while a process is paused. With `None`, no other process
    /// works during a pause.
    meanwhile: RefCell<Option<Meanwhile>>,
    /// A function that a test has set with [`set_others`](Machine::set_others), or `None`. The function is called while
    /// one thread of a simulated process waits, and it runs the other threads of this process.
    others: RefCell<Option<Rc<dyn Fn()>>>,
    pub pauses: Cell<u64>,
    calls: Cell<u64>,
    /// The speed of the clock of the tested programs when the test uses real time and sockets: one second on this clock
    /// lasts this many real seconds. `None` means that time and network are simulated.
    scale: Option<f64>,
}

/// The function that does the work of other processes while a process is paused. It is called twice for each pause:
/// with false when the pause begins, and with true before the paused process continues.
pub type Meanwhile = Rc<dyn Fn(bool)>;

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "machine at {:?}", self.passed())
    }
}

impl Machine {
    /// Creates the computer on which the programs of a test run. Its random numbers depend on `seed`. When `is_real` is
    /// true, time and network are real and not simulated, but each wait lasts only [`SCALE`] times its usual time.
    pub fn new(seed: u64, is_real: bool) -> Rc<Machine> {
        let beginning = Duration::from_secs(sandbox::time::BEGINNING_S.unsigned_abs());
        Rc::new(Machine {
            begun: Instant::now(),
            begun_wall: SystemTime::UNIX_EPOCH + beginning,
            time: Arc::default(),
            suspended: Cell::default(),
            random: RefCell::new(Random::new(seed)),
            sandboxes: RefCell::default(),
            processes: Processes::default(),
            pauses_per_thousand: Cell::new(0),
            meanwhile: RefCell::default(),
            others: RefCell::default(),
            pauses: Cell::new(0),
            calls: Cell::new(0),
            scale: is_real.then_some(SCALE),
        })
    }

    /// Returns the clock that the sandbox's APIs use. Its value is the simulated time that has passed since this
    /// `Machine` was created, in nanoseconds.
    pub fn time(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.time)
    }

    pub fn connect(&self, sandbox: &Arc<Sandbox>) {
        self.sandboxes.borrow_mut().push(Arc::downgrade(sandbox));
    }

    /// Returns the simulated time that has passed since this `Machine` was created.
    pub fn passed(&self) -> Duration {
        Duration::from_nanos(self.time.load(Ordering::Relaxed))
    }

    /// Returns the speed of the clock of the tested programs: one second on this clock lasts this many real seconds.
    /// The result is 1 when the time is simulated.
    pub fn scale(&self) -> f64 {
        self.scale.unwrap_or(1.0)
    }

    pub fn is_real(&self) -> bool {
        self.scale.is_some()
    }

    pub fn pass(&self, time: Duration) {
        if let Some(scale) = self.scale {
            std::thread::sleep(time.mul_f64(scale));
        }
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.time.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// Lets simulated time pass until `moment`, which is counted from the creation of this `Machine`. Does nothing when
    /// the moment is in the past.
    pub fn pass_until(&self, moment: Duration) {
        let left = moment.saturating_sub(self.passed());
        if !left.is_zero() {
            self.pass(left);
        }
    }

    fn served_at(&self, authority: &str) -> Option<(Arc<Sandbox>, Half)> {
        let sandboxes = self.sandboxes.borrow();
        let mut sandboxes = sandboxes.iter().filter_map(Weak::upgrade);
        sandboxes.find_map(|sandbox| {
            let mut halves = HALVES.into_iter();
            let half = halves.find(|half| sandbox.address(*half).to_string() == authority)?;
            Some((sandbox, half))
        })
    }

    /// Returns the number of sandboxes that use this `Machine` and still exist.
    pub fn sandboxes(&self) -> usize {
        let mut sandboxes = self.sandboxes.borrow_mut();
        sandboxes.retain(|sandbox| sandbox.strong_count() > 0);
        sandboxes.len()
    }

    /// From now on, a simulated process is paused at random when it reads a clock: on average at `of_a_thousand` of
    /// every 1000 readings. The function `meanwhile` does the work of other processes during each pause. With `None`,
    /// no other process works during a pause.
    pub fn pause_randomly(&self, of_a_thousand: u64, meanwhile: Option<Meanwhile>) {
        self.pauses_per_thousand.set(of_a_thousand);
        *self.meanwhile.borrow_mut() = meanwhile;
    }

    /// Sets a function that is called while one thread of a simulated process waits. The function runs the other
    /// threads of this process. Returns the function that was set before.
    pub fn set_others(&self, others: Option<Rc<dyn Fn()>>) -> Option<Rc<dyn Fn()>> {
        self.others.replace(others)
    }

    fn maybe_pause(&self) {
        let stops = self.pauses_per_thousand.get();
        if stops == 0 || !self.hits(stops) {
            return;
        }
        // Clock readings during this pause must not start another pause.
        self.pauses_per_thousand.set(0);
        self.pauses.update(|pauses| pauses + 1);
        let seconds = [1, 7, 11, 20, 60];
        let choice = self.random() as usize;
        let time = Duration::from_secs(seconds[choice % seconds.len()]);
        let meanwhile = self.meanwhile.borrow().clone();
        let others_work = |is_end: bool| {
            if let Some(meanwhile) = &meanwhile {
                ccm::http::apart(|| meanwhile(is_end));
            }
        };
        others_work(false);
        self.pass(time);
        if choice.is_multiple_of(7) {
            // One pause in seven suspends the whole simulated computer, as a laptop is suspended when it sleeps. The
            // monotonic clock that the programs see does not count the time of such a pause.
            self.suspended.update(|suspended| suspended + time);
        }
        others_work(true);
        self.pauses_per_thousand.set(stops);
    }

    fn monotonic(&self) -> Instant {
        self.begun + self.passed() - self.suspended.get()
    }

    fn hits(&self, of_a_thousand: u64) -> bool {
        self.random() % 1000 < of_a_thousand
    }
}

impl Simulation for Machine {
    fn now(&self) -> Instant {
        self.maybe_pause();
        self.monotonic()
    }

    fn wall(&self) -> SystemTime {
        self.begun_wall + self.passed()
    }

    fn sleep(&self, time: Duration) {
        // A wait takes a little longer than `time`. If it took exactly `time`, no time would pass while a program waits
        // for zero seconds again and again.
        let until = self.passed() + time + Duration::from_micros(10);
        while self.processes.work(self, until) {}
        self.pass_until(until);
    }

    fn others(&self) {
        let until = self.passed() + Duration::from_secs(1);
        if self.processes.work(self, until) {
            return;
        }
        self.pass_until(until);
        let others = self.others.borrow().clone();
        if let Some(others) = others {
            ccm::http::apart(|| others());
        }
    }

    fn random(&self) -> u64 {
        self.random.borrow_mut().next()
    }

    fn surroundings(&self) -> Option<&dyn Surroundings> {
        self.processes.at_work()
    }

    fn exchange(&self, authority: &str, request: &[u8], until: Instant) -> io::Result<Vec<u8>> {
        let (sandbox, half) = self.served_at(authority).ok_or(io::ErrorKind::ConnectionRefused)?;
        if !sandbox.is_served(half) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        self.calls.update(|calls| calls + 1);
        assert!(self.calls.get() < CALLS_AT_MOST, "calls without end");
        self.pass(CALL);
        let is_late = Cell::new(false);
        // The simulated API calls this function when it delays its answer by `time`. When the client's deadline comes
        // before the end of the delay, time passes only until the deadline, and the call ends with a time-out.
        let pause = |time: Duration| {
            let left = until.saturating_duration_since(self.monotonic());
            is_late.set(is_late.get() || time >= left);
            self.pass(time.min(left));
        };
        // The memory that the simulated API allocates must not count as memory of the tested program. `opt_out`
        // therefore turns off the counting while the API answers.
        let mut exchanged = None;
        opt_out(|| exchanged = Some(sandbox.exchange(half, request, &pause)));
        let exchanged = exchanged.ok_or(io::ErrorKind::ConnectionRefused)?;
        let answer = exchanged.answer.clone();
        let ending = exchanged.ending;
        opt_out(|| drop(exchanged));
        match ending {
            _ if is_late.get() => Err(io::ErrorKind::TimedOut.into()),
            Ending::Reset => Err(io::ErrorKind::ConnectionReset.into()),
            Ending::KeepAlive | Ending::Close => Ok(answer),
        }
    }
}
