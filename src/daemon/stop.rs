//! The request to end this process. It is made by a signal, or by the process itself, e.g. after it has lost the Lease.
//! It can't be taken back. It wakes the threads that wait, so that they can end.

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
    /// Wakes the threads that wait until they are allowed to write. It is notified at each renewal of the Lease.
    /// Threads that only sleep are not woken by a renewal, because they wait for `ended`, which is notified only when
    /// the process has to end.
    changed: Condvar,
}

impl Stop {
    pub fn set(&self) {
        *lock(&self.is_set) = true;
        self.ended.notify_all();
        self.changed.notify_all();
    }

    /// Wakes all threads that wait in [`wait_until_set_or`](Stop::wait_until_set_or). Each of them then calls its
    /// function `ready` again, and waits on if the result is still `false`.
    pub fn wake(&self) {
        // The lock keeps a waiting thread from missing the notification. Such a thread holds the lock from the check of
        // its condition until its wait has begun, so the notification can't come between the two.
        let _lock = lock(&self.is_set);
        self.changed.notify_all();
    }

    pub fn is_set(&self) -> bool {
        *lock(&self.is_set)
    }

    /// Waits for this time, but not longer than until the process has to end. Returns `true` when the process has to
    /// end.
    pub fn wait(&self, time: Duration) -> bool {
        let unset = |is_set: &mut bool| !*is_set;
        *clock::wait_at_most(&self.ended, lock(&self.is_set), time, unset)
    }

    /// Calls `work` again and again on a new thread. `work` returns the pause before its next call, or `None` when it
    /// must not be called again. The thread also ends when the process has to end. Returns the new thread, or `None` in
    /// a simulation, which only simulates the thread.
    ///
    /// `is_apart` says that `work` shares no lock with any other thread. Only a simulation, which runs all threads one
    /// after the other, needs to know this, see [`Surroundings::repeat`](clock::Surroundings::repeat).
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

    /// Waits until `ready` returns `true`, but not longer than until the process has to end. Code that changes the
    /// result of `ready` must call [`wake`](Stop::wake) afterwards, so that `ready` is called again.
    pub fn wait_until_set_or(&self, ready: impl Fn() -> bool) {
        let must_wait = |is_set: &mut bool| !*is_set && !ready();
        clock::wait_while(&self.changed, &self.is_set, must_wait);
    }
}

/// The gate, i.e. the check before each write, of a daemon without leader election. It allows writes until the process
/// is asked to end. A write that was started before is finished.
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

/// Two signals within this time count as one request to end. This is needed for the command `timeout` of coreutils,
/// which sends its signal twice: to its child, and to the process group of the child. This is real time, even in tests
/// in which the program's clock runs faster.
const SAME_WISH: Duration = Duration::from_millis(500);

/// Starts a thread that waits for SIGTERM or SIGINT. The first signal sets `stop`, so that the daemon finishes its
/// started writes and then ends. A second signal ends the process at once.
pub fn stop_on_signals(stop: &'static Stop) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    std::thread::spawn(move || {
        let mut first: Option<Instant> = None;
        for signal in signals.forever() {
            if let Some(first) = first {
                if clock::took(first) < SAME_WISH {
                    continue;
                }
                log::warn!("second signal received: ccm exits at once");
                std::process::exit(1);
            }
            first = Some(clock::now());
            let name = signal_name(signal).unwrap_or_default();
            log::info!(
                "{name} received: ccm ends its work and exits; a second signal makes it exit at once"
            );
            stop.set();
        }
    });
    Ok(())
}
