//! The wish to end: set once, seen by every thread at once, also by those that wait.

use crate::provider::{Gate, Refused};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[derive(Default)]
pub struct Stop {
    is_set: Mutex<bool>,
    changed: Condvar,
}

/// Lets writes pass until the wish to end: the write in flight is finished, no other is started.
pub struct StopGate<'a>(pub &'a Stop);

impl Stop {
    pub fn set(&self) {
        *self.lock() = true;
        self.changed.notify_all();
    }

    /// Every thread that waits checks its condition again.
    pub fn wake(&self) {
        // With the lock, so that no thread is between its check and its wait.
        let _lock = self.lock();
        self.changed.notify_all();
    }

    pub fn is_set(&self) -> bool {
        *self.lock()
    }

    /// Waits that long, or until it is set; is it?
    pub fn wait(&self, time: Duration) -> bool {
        let deadline = Instant::now() + time;
        let mut is_set = self.lock();
        while !*is_set {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            is_set = self
                .changed
                .wait_timeout(is_set, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        true
    }

    pub fn wait_until_set(&self) {
        self.wait_until_set_or(|| false);
    }

    /// Waits until it is set, or until `ready`; the code that makes that true calls [`wake`](Stop::wake).
    pub fn wait_until_set_or(&self, ready: impl Fn() -> bool) {
        let mut is_set = self.lock();
        while !*is_set && !ready() {
            is_set = self
                .changed
                .wait(is_set)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_set.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gate for StopGate<'_> {
    fn pass(&self, _what: &str) -> Result<(), Refused> {
        match self.0.is_set() {
            true => Err(Refused("ccm is ending".into())),
            false => Ok(()),
        }
    }

    fn pass_at_end(&self, _what: &str) -> Result<(), Refused> {
        Ok(())
    }

    fn may_wait(&self) -> bool {
        !self.0.is_set()
    }
}
