//! The Lease: which of several daemons works, and until when it may write.
//!
//! The same Lease and the same rules as client-go's leader election, so that two
//! cloud-controller-managers hand over instead of fighting. Beyond client-go: the [`Gate`]
//! lets a write start only when it ends before the lease does, by two clocks: the monotonic one
//! runs while the process is stopped, and the wall clock knows of a machine that was suspended.
//!
//! | file | its one job |
//! |---|---|
//! | `election` | what to do about the Lease; pure |
//! | `renewer` | the thread that does it |
//! | `gate` | may a write start now |
//! | `identity` | who we are |

mod election;
mod gate;
mod identity;
mod renewer;

pub use identity::identity;

use super::{Stop, StopGate};
use crate::kube::{Client, LeaseKey};
use crate::metrics::LEADER;
use crate::provider::Moment;
use election::Election;
use renewer::Renewer;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A daemon that ends waits that long for its Lease to be released.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);

/// Durations as they pass here: a test shortens them all by one factor.
#[derive(Clone, Debug)]
pub struct Settings {
    pub key: LeaseKey,
    /// `<hostname>_<uuid>`; another one for each process.
    pub identity: String,
    /// What we write as `leaseDurationSeconds`: not shorter than the lease.
    pub lease_seconds: u32,
    /// How long one second of anybody's `leaseDurationSeconds` lasts: a second, outside of tests.
    pub second: Duration,
    /// A renewal lasts that long, counted from before it was sent.
    pub lease_duration: Duration,
    /// Without a renewal for that long, another process may lead.
    pub renew_deadline: Duration,
    /// Between two tries.
    pub retry_period: Duration,
    /// What a write may take, as the HTTP clients have it.
    pub write_timeout: Duration,
}

/// How long to wait for a Lease that another process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitPolicy {
    /// A standby's.
    Forever,
    /// Until it is seen renewed: its holder is alive, and does the work.
    UntilRenewed,
}

/// What came of waiting for the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acquired {
    /// We lead.
    Lease,
    /// We were asked to end first.
    Stopped,
    /// Another process leads and is alive; only with `UntilRenewed`.
    HeldBy(String),
    /// The Lease can't be acquired before a setting or a role is fixed, or, with `UntilRenewed`, now.
    Failed(String),
}

/// Our part in one Lease, for as long as the process lives.
pub struct Lease {
    /// Its own, with time-outs that fit into the deadline.
    client: Client,
    settings: Settings,
    stop: &'static Stop,
    /// [`Moment::now`], outside of tests.
    clock: Box<dyn Fn() -> Moment + Send + Sync>,
    leadership: Mutex<Leadership>,
    /// Another one was seen to lead.
    is_standby: AtomicBool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Leadership {
    Waiting,
    Leading {
        /// Just before the last renewal that succeeded was sent.
        renewed: Moment,
    },
    Lost,
    /// Never led, and won't.
    Refused(Acquired),
}

impl Lease {
    pub fn new(client: Client, settings: Settings, stop: &'static Stop) -> Lease {
        LEADER.set(&[], 0.0);
        Lease {
            client,
            settings,
            stop,
            clock: Box::new(Moment::now),
            leadership: Mutex::new(Leadership::Waiting),
            is_standby: AtomicBool::new(false),
        }
    }

    /// Waits until we lead, and keeps the Lease from then on. When it is lost, `stop` is set.
    pub fn acquire(&'static self, policy: WaitPolicy) -> Acquired {
        std::thread::spawn(move || Renewer::new(self, policy).keep());
        self.stop
            .wait_until_set_or(|| *self.leadership() != Leadership::Waiting);
        match &*self.leadership() {
            Leadership::Leading { .. } => Acquired::Lease,
            Leadership::Refused(why) => why.clone(),
            Leadership::Waiting | Leadership::Lost => Acquired::Stopped,
        }
    }

    /// Does another one lead, as far as we saw? Then we are ready to take over.
    pub fn is_standby(&self) -> bool {
        self.is_standby.load(Ordering::Relaxed)
    }

    fn stand_by(&self, another_leads: bool) {
        self.is_standby.store(another_leads, Ordering::Relaxed);
    }

    pub fn is_lost(&self) -> bool {
        *self.leadership() == Leadership::Lost
    }

    /// Hands the Lease back, so that the next one need not wait for its end. Nothing is
    /// written after it: `stop` is set.
    pub fn release(&'static self) {
        self.stop.set();
        if !matches!(*self.leadership(), Leadership::Leading { .. }) {
            return;
        }
        let (sender, result) = mpsc::channel();
        std::thread::spawn(move || {
            // After the timeout the receiver does not exist any more.
            let _ = sender.send(renewer::release(self));
        });
        let key = &self.settings.key;
        match result.recv_timeout(RELEASE_TIMEOUT) {
            Ok(Ok(())) => log::info!("{key}: released"),
            Ok(Err(error)) => log::warn!("{key}: not released: {error}; it ends by itself"),
            Err(_) => log::warn!(
                "{key}: not released within {} s; it ends by itself",
                RELEASE_TIMEOUT.as_secs()
            ),
        }
    }

    /// Takes note of a renewal; true when we did not lead before it.
    fn renewed(&'static self, sent: Moment) -> bool {
        let before = {
            let mut leadership = self.leadership();
            // What was lost stays lost: the process is ending.
            if *leadership == Leadership::Lost {
                return false;
            }
            std::mem::replace(&mut *leadership, Leadership::Leading { renewed: sent })
        };
        self.stop.wake();
        if before != Leadership::Waiting {
            return false;
        }
        LEADER.set(&[], 1.0);
        std::thread::spawn(move || self.watch());
        true
    }

    fn refuse(&self, why: Acquired) {
        *self.leadership() = Leadership::Refused(why);
        self.stop.wake();
    }

    fn lose(&self, why: &str) {
        LEADER.set(&[], 0.0);
        let before = std::mem::replace(&mut *self.leadership(), Leadership::Lost);
        if before != Leadership::Lost {
            let key = &self.settings.key;
            log::error!("{key}: {why}; no write starts any more, ending");
            self.stop.set();
        }
    }

    /// Ends the leadership at the deadline, also when the renewer hangs.
    fn watch(&self) {
        let deadline = self.settings.renew_deadline;
        loop {
            let Leadership::Leading { renewed } = *self.leadership() else {
                return;
            };
            let now = self.now().monotonic;
            let left = deadline.saturating_sub(now.saturating_duration_since(renewed.monotonic));
            if left.is_zero() {
                self.lose(&format!("not renewed for {} s", deadline.as_secs_f64()));
            } else if self.stop.wait(left) {
                return;
            }
        }
    }

    fn now(&self) -> Moment {
        (self.clock)()
    }

    fn leadership(&self) -> MutexGuard<'_, Leadership> {
        self.leadership
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
