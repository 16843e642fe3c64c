//! The request that the process ends. A signal or the process itself makes the request once. Every thread sees the
//! request at once, even a thread that waits.

use crate::provider::{Gate, Refused, clock, lock};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::signal_name;
use std::io;
use std::sync::{Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

#[derive(Default)]
pub struct Stop {
    is_set: Mutex<bool>,
    ended: Condvar,
    /// The condition variable for threads that wait before a write. A renewal of the Lease notifies it. Threads that
    /// sleep use `ended`, so that a renewal does not wake them.
    changed: Condvar,
}

impl Stop {
    pub fn set(&self) {
        *lock(&self.is_set) = true;
        self.ended.notify_all();
        self.changed.notify_all();
    }

    /// Makes every thread in [`wait_until_set_or`](Stop::wait_until_set_or) check its condition again.
    pub fn wake(&self) {
        // The lock is held here, so that no thread misses the notification between its check of the
        // condition and its wait.
        let _lock = lock(&self.is_set);
        self.changed.notify_all();
    }

    pub fn is_set(&self) -> bool {
        *lock(&self.is_set)
    }

    /// Waits for this time, or until the daemon has to end. Returns whether it has to end.
    pub fn wait(&self, time: Duration) -> bool {
        let unset = |is_set: &mut bool| !*is_set;
        *clock::wait_at_most(&self.ended, lock(&self.is_set), time, unset)
    }

    /// Does the work on a thread of its own, again and again. The work returns the pause before its next run, or `None`
    /// when it is done. The repetition also ends when the daemon has to end. `is_apart` means that the work shares no
    /// lock with other threads, see [`Surroundings::repeat`](clock::Surroundings::repeat). Returns the thread, or
    /// `None` in a simulation.
    pub fn repeat(
        &'static self,
        is_apart: bool,
        mut work: impl FnMut() -> Option<Duration> + Send + 'static,
    ) -> Option<JoinHandle<()>> {
        let mut work = move || work().filter(|_| !self.is_set());
        if clock::is_simulated() {
            clock::surroundings(|process| process.repeat(is_apart, Box::new(work)));
            return None;
        }
        Some(std::thread::spawn(move || {
            while let Some(pause) = work() {
                if self.wait(pause) {
                    return;
                }
            }
        }))
    }

    /// Waits until the daemon has to end, or until `ready` returns true. Code that changes the result of
    /// `ready` calls [`wake`](Stop::wake).
    pub fn wait_until_set_or(&self, ready: impl Fn() -> bool) {
        let must_wait = |is_set: &mut bool| !*is_set && !ready();
        clock::wait_while(&self.changed, &self.is_set, must_wait);
    }
}

/// Lets each write begin until the process is asked to end. A write that is in flight at that moment is finished, and
/// no write begins after that moment.
impl Gate for &Stop {
    fn pass(&self, _what: &str) -> Result<(), Refused> {
        if self.is_set() { Err(Refused("ccm is ending".into())) } else { Ok(()) }
    }

    fn pass_at_end(&self, _what: &str) -> Result<(), Refused> {
        Ok(())
    }

    fn may_wait(&self) -> bool {
        !self.is_set()
    }
}

/// Two signals within this time count as one request to end. This is real time, even in a test that makes
/// time run faster. The `timeout` of coreutils signals its child and then the whole process group, so that
/// its child gets the signal twice.
const SAME_WISH: Duration = Duration::from_millis(500);

/// Sets `stop` at the first SIGTERM or SIGINT, on a thread of its own. A second signal ends the process at once.
pub fn stop_on_signals(stop: &'static Stop) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    std::thread::spawn(move || {
        let mut first: Option<Instant> = None;
        for signal in signals.forever() {
            if let Some(first) = first {
                if clock::took(first) < SAME_WISH {
                    continue;
                }
                log::warn!("second signal: ending at once");
                std::process::exit(1);
            }
            first = Some(clock::now());
            let name = signal_name(signal).unwrap_or_default();
            log::info!("{name}: ending; a second signal ends at once");
            stop.set();
        }
    });
    Ok(())
}
