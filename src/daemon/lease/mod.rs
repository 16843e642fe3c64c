//! The Lease: which of several daemons works, and until when it may write.
//!
//! The same Lease and the same rules as client-go's leader election, so that two
//! cloud-controller-managers hand over instead of fighting. Beyond client-go: the [`Gate`]
//! lets a write start only when it ends before the lease does, by two clocks: the monotonic one
//! goes on while the process is stopped, and the wall clock knows of a machine that was suspended.
//!
//! | file | its one job |
//! |---|---|
//! | `election` | what to do about the Lease; pure |
//! | `keeper` | the thread that does it |
//! | `gate` | may a write start now |
//! | `identity` | who we are |

mod election;
mod gate;
mod identity;
mod keeper;

pub use identity::identity;

use super::{Stop, StopGate};
use crate::kube::{Client, LeaseKey};
use crate::metrics::LEADER;
use crate::provider::Moment;
use election::Election;
use keeper::Keeper;
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
    /// Without a renewal for that long, somebody else may lead.
    pub renew_deadline: Duration,
    /// Between two looks at the Lease.
    pub retry_period: Duration,
    /// What a write may take, as the HTTP clients have it.
    pub write_timeout: Duration,
}

/// How long to wait for a Lease that somebody else holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// A standby's.
    Forever,
    /// Until it is seen renewed: its holder is alive, and does the work.
    UntilRenewed,
}

/// What came of waiting for the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gained {
    /// We lead.
    Lease,
    /// We were asked to end first.
    Stopped,
    /// Somebody leads and is alive; only without patience.
    HeldBy(String),
    /// The Lease can't be had before somebody mends something, or, without patience, now.
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
    standing: Mutex<Standing>,
    /// Another one was seen to lead.
    is_standby: AtomicBool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Standing {
    Waiting,
    Leading {
        /// Just before the last renewal that succeeded was sent.
        renewed: Moment,
    },
    Lost,
    /// Never led, and won't.
    Refused(Gained),
}

impl Lease {
    pub fn new(client: Client, settings: Settings, stop: &'static Stop) -> Lease {
        LEADER.set(&[], 0.0);
        Lease {
            client,
            settings,
            stop,
            clock: Box::new(Moment::now),
            standing: Mutex::new(Standing::Waiting),
            is_standby: AtomicBool::new(false),
        }
    }

    /// Waits until we lead, and keeps the Lease from then on. When it is lost, `stop` is set.
    pub fn gain(&'static self, patience: Patience) -> Gained {
        std::thread::spawn(move || Keeper::new(self, patience).keep());
        self.stop
            .wait_until_set_or(|| *self.standing() != Standing::Waiting);
        match &*self.standing() {
            Standing::Leading { .. } => Gained::Lease,
            Standing::Refused(why) => why.clone(),
            Standing::Waiting | Standing::Lost => Gained::Stopped,
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
        *self.standing() == Standing::Lost
    }

    /// Hands the Lease back, so that the next one need not wait for its end. Nothing is
    /// written after it: `stop` is set.
    pub fn release(&'static self) {
        self.stop.set();
        if !matches!(*self.standing(), Standing::Leading { .. }) {
            return;
        }
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || {
            // Nobody listens when it took too long.
            let _ = tell.send(keeper::release(self));
        });
        let key = &self.settings.key;
        match told.recv_timeout(RELEASE_TIMEOUT) {
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
            let mut standing = self.standing();
            // What was lost stays lost: the process is ending.
            if *standing == Standing::Lost {
                return false;
            }
            std::mem::replace(&mut *standing, Standing::Leading { renewed: sent })
        };
        self.stop.wake();
        if before != Standing::Waiting {
            return false;
        }
        LEADER.set(&[], 1.0);
        std::thread::spawn(move || self.watch());
        true
    }

    fn refuse(&self, why: Gained) {
        *self.standing() = Standing::Refused(why);
        self.stop.wake();
    }

    fn lose(&self, why: &str) {
        LEADER.set(&[], 0.0);
        let before = std::mem::replace(&mut *self.standing(), Standing::Lost);
        if before != Standing::Lost {
            let key = &self.settings.key;
            log::error!("{key}: {why}; no write starts any more, ending");
            self.stop.set();
        }
    }

    /// Sees the deadline pass, whatever the keeper hangs in.
    fn watch(&self) {
        let deadline = self.settings.renew_deadline;
        loop {
            let Standing::Leading { renewed } = *self.standing() else {
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

    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
