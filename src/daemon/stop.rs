//! The request that the process ends. A signal or the process itself sets the request, and it stays set. Every thread
//! notices it at once, even a thread that waits.

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
    /// The condition variable for threads that wait until they are allowed to write. Each renewal of the Lease notifies
    /// it. Threads that only sleep wait for `ended` instead, so a renewal does not wake them.
    changed: Condvar,
}

impl Stop {
    pub fn set(&self) {
        *lock(&self.is_set) = true;
        self.ended.notify_all();
        self.changed.notify_all();
    }

    /// Wakes every thread that waits in [`wait_until_set_or`](Stop::wait_until_set_or), so that it checks its condition
    /// again.
    pub fn wake(&self) {
        // The lock is needed here. Otherwise a thread could miss the notification between the check of its condition
        // and the start of its wait.
        let _lock = lock(&self.is_set);
        self.changed.notify_all();
    }

    pub fn is_set(&self) -> bool {
        *lock(&self.is_set)
    }

    /// Waits for this time, or until the process has to end. Returns `true` when the process has to end.
    pub fn wait(&self, time: Duration) -> bool {
        let unset = |is_set: &mut bool| !*is_set;
        *clock::wait_at_most(&self.ended, lock(&self.is_set), time, unset)
    }

    /// Calls `work` again and again on a thread of its own. `work` returns the pause before its next call, or `None`
    /// when there is no next call. The thread also ends when the process has to end. `is_apart` must be `true` only
    /// when `work` shares no lock with other threads, see [`Surroundings::repeat`](clock::Surroundings::repeat).
    /// Returns the thread, or `None` in a simulation.
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

    /// Waits until the process has to end, or until `ready` returns `true`. Code that changes the result of `ready`
    /// must call [`wake`](Stop::wake) afterwards.
    pub fn wait_until_set_or(&self, ready: impl Fn() -> bool) {
        let must_wait = |is_set: &mut bool| !*is_set && !ready();
        clock::wait_while(&self.changed, &self.is_set, must_wait);
    }
}

/// Allows writes until the process is asked to end. A write that is in flight at that moment is finished, and no new
/// write is started.
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

/// Two signals within this time count as one request to end. This is real time, even in a test that makes time run
/// faster. The reason is the command `timeout` of coreutils, which signals its child twice: once directly and once with
/// the process group.
const SAME_WISH: Duration = Duration::from_millis(500);

/// Starts a thread that sets `stop` at the first SIGTERM or SIGINT. A second signal ends the process at once.
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
