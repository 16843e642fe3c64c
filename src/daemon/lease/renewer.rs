//! The thread that waits for the Lease, acquires it and renews it, at every retry period.

use super::election::{Now, Step};
use super::{Acquired, Election, Lease, WaitPolicy};
use crate::kube::{self, LeaseSpec};
use crate::provider::Moment;

/// Writes of one try, when others write at the same time.
const WRITES_AT_MOST: u32 = 3;

pub(super) struct Renewer {
    lease: &'static Lease,
    policy: WaitPolicy,
    election: Election,
    /// The Lease as we wrote it last.
    held: Option<kube::Lease>,
    /// The holder that was logged last.
    logged_holder: Option<String>,
    is_failing: bool,
    /// An answer came, once.
    worked_once: bool,
}

/// What one try came to.
enum Outcome {
    Leading,
    Standby {
        holder: String,
        renewed: bool,
    },
    Lost {
        holder: String,
    },
    /// We were asked to end.
    Stopped,
}

impl Renewer {
    pub(super) fn new(lease: &'static Lease, policy: WaitPolicy) -> Renewer {
        Renewer {
            lease,
            policy,
            election: election(lease),
            held: None,
            logged_holder: None,
            is_failing: false,
            worked_once: false,
        }
    }

    /// Until we are asked to end, or the Lease is lost. The last renewal still counts while the controllers end: every
    /// write that the gate let pass ends before the lease does.
    pub(super) fn keep(mut self) {
        loop {
            let outcome = self.try_once();
            if self.lease.stop.is_set() || !self.continues(outcome) {
                return;
            }
            if self.lease.stop.wait(self.lease.settings.retry_period) {
                return;
            }
        }
    }

    /// Logs what is new; false at the end.
    fn continues(&mut self, outcome: Result<Outcome, kube::Error>) -> bool {
        let key = &self.lease.settings.key;
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => return self.failed(&error),
        };
        self.worked_once = true;
        self.lease
            .stand_by(matches!(outcome, Outcome::Standby { .. }));
        if std::mem::take(&mut self.is_failing) {
            log::info!("{key}: the API server answers again");
        }
        match outcome {
            Outcome::Leading => true,
            Outcome::Stopped => false,
            Outcome::Lost { holder } => {
                let holder = if holder.is_empty() {
                    "no process"
                } else {
                    &holder
                };
                self.lease.lose(&format!("held by {holder} now"));
                false
            }
            Outcome::Standby { holder, renewed } => {
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

    fn failed(&mut self, error: &kube::Error) -> bool {
        let key = &self.lease.settings.key;
        let is_final = match self.policy {
            WaitPolicy::Forever => error.is_permanent() && !self.worked_once,
            WaitPolicy::UntilRenewed => self.held.is_none(),
        };
        if is_final {
            let hint = match error.is_forbidden() {
                true => "; --leader-elect=false works without a Lease",
                false => "",
            };
            self.lease
                .refuse(Acquired::Failed(format!("{key}: {error}{hint}")));
            return false;
        }
        if !std::mem::replace(&mut self.is_failing, true) {
            let again_s = self.lease.settings.retry_period.as_secs_f64();
            log::warn!("{key}: {error}; trying again every {again_s} s");
        }
        true
    }

    /// In steady state one PUT over what we wrote last; else what is there decides.
    fn try_once(&mut self) -> Result<Outcome, kube::Error> {
        if let Some(held) = &self.held {
            let renewal = self.election.renewal(&held.spec(), Now::read());
            let sent = self.lease.now();
            match self.write(Some(held), &renewal) {
                Ok(lease) => return Ok(self.leading(lease, sent)),
                Err(error) => log::debug!("{error}"),
            }
        }
        let mut writes = 0;
        loop {
            if self.lease.stop.is_set() {
                return Ok(Outcome::Stopped);
            }
            let read = self.lease.client.lease(&self.lease.settings.key)?;
            let spec = read.as_ref().map(kube::Lease::spec);
            let leads = self.held.is_some();
            let record = match self.election.step(spec.as_ref(), leads, Now::read()) {
                Step::Write(record) => record,
                Step::Wait { holder, renewed } => return Ok(Outcome::Standby { holder, renewed }),
                Step::Lost { holder } => return Ok(Outcome::Lost { holder }),
            };
            let sent = self.lease.now();
            writes += 1;
            match self.write(read.as_ref(), &record) {
                Ok(lease) => return Ok(self.leading(lease, sent)),
                Err(error) if is_beaten(&error) && writes < WRITES_AT_MOST => {
                    log::debug!("{error}");
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Over what was read, or as a new one. Guarded by the resourceVersion. After the
    /// wish to end only the release writes.
    fn write(
        &self,
        read: Option<&kube::Lease>,
        record: &LeaseSpec,
    ) -> Result<kube::Lease, kube::Error> {
        let Lease {
            client, settings, ..
        } = self.lease;
        match read {
            Some(read) => client.replace_lease(&settings.key, read, record),
            None => client.create_lease(&settings.key, record),
        }
    }

    fn leading(&mut self, lease: kube::Lease, sent: Moment) -> Outcome {
        self.held = Some(lease);
        if self.lease.renewed(sent) {
            let settings = &self.lease.settings;
            log::info!("{}: leading as {}", settings.key, settings.identity);
        }
        Outcome::Leading
    }
}

/// Hands it back when it is ours.
pub(super) fn release(lease: &Lease) -> Result<(), kube::Error> {
    let Lease {
        client, settings, ..
    } = lease;
    let election = election(lease);
    let mut writes = 0;
    loop {
        let Some(read) = client.lease(&settings.key)? else {
            return Ok(());
        };
        let spec: LeaseSpec = read.spec();
        if !election.is_ours(&spec) {
            return Ok(());
        }
        let released = election.release(&spec, Now::read());
        writes += 1;
        match client.release_lease(&settings.key, &read, &released) {
            Ok(_) => return Ok(()),
            // A renewal that was under way.
            Err(error) if is_beaten(&error) && writes < WRITES_AT_MOST => {}
            Err(error) => return Err(error),
        }
    }
}

fn election(lease: &Lease) -> Election {
    let settings = &lease.settings;
    Election::new(&settings.identity, settings.lease_seconds, settings.second)
}

/// Another process wrote first.
fn is_beaten(error: &kube::Error) -> bool {
    error.is_conflict() || error.is_already_exists() || error.is_not_found()
}
