//! The Lease decides which of several daemons works, and until when this daemon is allowed to write.
//!
//! The rules are those of client-go's leader election, so that two cloud-controller-managers do not work at the same
//! time, and one can take over from the other. A thread tries to acquire the Lease. When this process holds the Lease,
//! the thread renews it again and again (`RenewalPauses`). The main functions are, in the order of their calls,
//! `acquire`, `begin`, `try_once` and `renewed`. The module `election` decides what is done with the Lease.
//!
//! ccm adds one rule to those of client-go: a write is started only when it is certain that it ends before the Lease
//! expires.

mod election;
mod leadership;

pub use leadership::{Acquired, LeaderElection, LeaseSettings, RenewalPauses, identity};

use crate::kube::{self, retry_on_conflict};
use crate::provider::{Moment, clock, lock};
use election::{Election, LeaseStep};
use leadership::Leadership;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// How long a daemon that is ending waits for the release of its Lease. This is real time, even in tests in which the
/// program's clock runs faster.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a process waits for a Lease that another process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitPolicy {
    /// The process waits for the Lease without a limit, as a standby daemon does (it takes over when the leader ends).
    Forever,
    /// The process waits until it sees that the holder has renewed the Lease. The holder is then alive, so this process
    /// is not needed and ends.
    UntilRenewed,
}

impl LeaderElection {
    /// Waits until this process is the leader, or until it must not wait any longer. Returns which of the two has
    /// happened. While this process is the leader, a thread renews the Lease. If the Lease is lost later, `stop` is
    /// set, so that the process ends.
    pub fn acquire(self: &Arc<Self>, policy: WaitPolicy) -> Acquired {
        self.begin(policy);
        self.stop.wait_until_set_or(|| *lock(&self.leadership) != Leadership::Waiting);
        match &*lock(&self.leadership) {
            Leadership::Leading { .. } => Acquired::Lease,
            Leadership::Refused(why) => why.clone(),
            Leadership::Waiting | Leadership::Lost => Acquired::Stopped,
        }
    }

    /// Starts a thread that acquires the Lease and renews it. When the process has to end or the Lease is lost, the
    /// thread ends and renews no more. Writes that were started before can still be finished, because a write is
    /// started only when it is certain to end before the Lease expires.
    pub fn begin(self: &Arc<Self>, policy: WaitPolicy) {
        let mut renewer = self.renewer(policy);
        self.stop.repeat(true, move || renewer.renew());
    }

    /// Creates the object that acquires the Lease and then renews it.
    pub fn renewer(self: &Arc<Self>, policy: WaitPolicy) -> Renewer {
        Renewer {
            lease: Arc::clone(self),
            policy,
            election: election(self),
            held: None,
            logged_holder: None,
            is_failing: false,
            worked_once: false,
        }
    }

    /// Releases the Lease, so that another process can take it at once. `stop` is set first, so that this process
    /// starts no write after the release.
    pub fn release(self: &Arc<Self>) {
        self.stop.set();
        if !self.leads() {
            return;
        }
        if clock::is_simulated() {
            return drop(self.release_now());
        }
        let (sender, result) = mpsc::channel();
        let lease = Arc::clone(self);
        // Sending the result fails when nobody waits for it any more, because the release took too long. This error is
        // ignored.
        std::thread::spawn(move || drop(sender.send(lease.release_now())));
        let key = &self.settings.key;
        match result.recv_timeout(RELEASE_TIMEOUT) {
            Ok(Ok(())) => log::info!("{key}: released"),
            Ok(Err(error)) => {
                log::warn!(
                    "{key}: ccm could not release the Lease ({error}). The Lease expires by itself"
                )
            }
            Err(_) => log::warn!(
                "{key}: the Lease was not released within {} s; it expires by itself",
                RELEASE_TIMEOUT.as_secs()
            ),
        }
    }

    /// Releases the Lease. A renewal that this process sends at the same time can cause a conflict. The release is then
    /// tried again.
    fn release_now(&self) -> Result<(), kube::KubeError> {
        let (key, election) = (&self.settings.key, election(self));
        retry_on_conflict(|_| {
            let Some(read) = self.client.lease(key)? else {
                return Ok(());
            };
            match election.release(&read.spec(), Moment::now()) {
                Some(released) => {
                    let read = self.noted(read);
                    let written = self.client.write_lease(key, Some(read), &released);
                    written.map(drop)
                }
                None => Ok(()),
            }
        })
    }
}

fn election(lease: &LeaderElection) -> Election {
    let settings = &lease.settings;
    Election::new(&settings.identity, settings.lease_seconds, settings.second)
}

/// Acquires the Lease for this process, and then renews it again and again.
pub struct Renewer {
    lease: Arc<LeaderElection>,
    policy: WaitPolicy,
    election: Election,
    /// The Lease as this process has last written it. `None` means that this process has never held the Lease.
    held: Option<kube::Lease>,
    /// The holder that the log named last. Each new holder is logged once.
    logged_holder: Option<String>,
    is_failing: bool,
    /// Whether at least one try to get the Lease was answered without an error.
    worked_once: bool,
}

impl Renewer {
    /// Tries once to acquire or renew the Lease. Returns the pause before the next try. Returns `None` when this process
    /// must not try again, because it has to end, has lost the Lease, or gives up waiting for the Lease.
    pub fn renew(&mut self) -> Option<Duration> {
        let outcome = self.try_once();
        (!self.lease.stop.is_set() && self.continues(outcome)).then(|| self.pause())
    }

    /// Returns the pause before the next try to acquire or renew the Lease.
    fn pause(&self) -> Duration {
        let settings = &self.lease.settings;
        match (self.held.is_some(), self.is_failing) {
            (false, _) => settings.retry_period,
            (true, true) => settings.renewal.after_failure,
            (true, false) => settings.renewal.after_success,
        }
    }

    /// Tries once to acquire or renew the Lease, and returns the step that was taken. A process that holds the Lease
    /// sends a PUT with the resourceVersion of its last write, without reading the Lease before. When this PUT fails,
    /// or when the process does not hold the Lease, the Lease is read, and its content decides the step.
    fn try_once(&mut self) -> Result<LeaseStep, kube::KubeError> {
        if let Some(held) = &self.held {
            let renewal = LeaseStep::Write(self.election.renewal(&held.spec(), Moment::now()));
            match self.take(Some(held.clone()), &renewal) {
                Ok(()) => return Ok(renewal),
                Err(error) => log::debug!("{error}"),
            }
        }
        retry_on_conflict(|_| {
            let read = self.lease.client.lease(&self.lease.settings.key)?;
            let spec = read.as_ref().map(kube::Lease::spec);
            let leads = self.held.is_some();
            let step = self.election.step(spec.as_ref(), leads, Moment::now());
            self.take(read, &step)?;
            Ok(step)
        })
    }

    /// Writes the Lease if `step` says so (`LeaseStep::Write`), and otherwise does nothing. The API server refuses the
    /// write when the Lease has changed since it was read.
    fn take(&mut self, read: Option<kube::Lease>, step: &LeaseStep) -> Result<(), kube::KubeError> {
        let LeaseStep::Write(record) = step else {
            return Ok(());
        };
        let settings = &self.lease.settings;
        if self.held.is_none() {
            self.lease.recall(read.as_ref());
        }
        let noted = read.map(|read| self.lease.noted(read));
        let sent = self.lease.now();
        let client = &self.lease.client;
        let written = client.write_lease(&settings.key, noted, record)?;
        self.held = Some(written);
        if self.lease.renewed(sent) {
            log::info!("{}: leading as {}", settings.key, settings.identity);
        }
        Ok(())
    }

    /// Logs what has changed since the last try to get or renew the Lease, e.g. that another process is the leader now.
    /// Returns `false` when this process must not try again.
    fn continues(&mut self, outcome: Result<LeaseStep, kube::KubeError>) -> bool {
        let key = &self.lease.settings.key;
        let step = match outcome {
            Ok(step) => step,
            Err(error) => return self.failed(&error),
        };
        self.worked_once = true;
        let is_standby = matches!(step, LeaseStep::Wait { .. });
        self.lease.is_standby.store(is_standby, Ordering::Relaxed);
        if std::mem::take(&mut self.is_failing) {
            log::info!("{key}: the API server answers again");
        }
        match step {
            LeaseStep::Write(_) => true,
            LeaseStep::Lost { holder } => {
                let holder = match holder.as_str() {
                    "" => "no process",
                    holder => holder,
                };
                self.lease.lose(&format!("{holder} holds the Lease now"));
                false
            }
            LeaseStep::Wait { holder, renewed } => {
                if renewed && self.policy == WaitPolicy::UntilRenewed {
                    self.lease.refuse(Acquired::HeldBy(holder));
                    return false;
                }
                if self.logged_holder.as_ref() != Some(&holder) {
                    log::info!("{key}: {holder} leads; standing by");
                    self.logged_holder = Some(holder);
                }
                true
            }
        }
    }

    fn failed(&mut self, error: &kube::KubeError) -> bool {
        let key = &self.lease.settings.key;
        let is_final = match self.policy {
            WaitPolicy::Forever => error.is_permanent() && !self.worked_once,
            WaitPolicy::UntilRenewed => self.held.is_none(),
        };
        if is_final {
            let hint = if error.is_forbidden() {
                "; with --leader-elect=false, ccm needs no Lease"
            } else {
                ""
            };
            let why = Acquired::Failed(format!("{key}: {error}{hint}"));
            self.lease.refuse(why);
            return false;
        }
        if !std::mem::replace(&mut self.is_failing, true) {
            let again_s = self.pause().as_secs_f64();
            log::warn!("{key}: {error}; trying again every {again_s} s");
        }
        true
    }
}
