//! Whether this process is the leader, and until when it can start writes. A write is started only when it is certain
//! that it ends before the Lease expires, even if it takes until its timeout.
//!
//! Two clocks measure the time since the last renewal. The monotonic clock can't be set back. The wall clock also
//! counts the time in which the machine was suspended.

use super::super::stop::Stop;
use crate::cache::ClusterIdentity;
use crate::kube::{self, KubeClient, LeaseKey};
use crate::metrics::{LEADER, LEADER_STATUS};
use crate::provider::{Dedicated, Gate, Moment, Refused, clock, lock};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// How long a leader waits before it renews its Lease again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenewalPauses {
    /// The pause after a renewal that has succeeded.
    pub after_success: Duration,
    /// The pause after a renewal that has failed.
    pub after_failure: Duration,
}

impl RenewalPauses {
    /// Returns pauses that are always equally long.
    pub fn equal(pause: Duration) -> RenewalPauses {
        RenewalPauses { after_success: pause, after_failure: pause }
    }
}

#[derive(Clone, Debug)]
pub struct LeaseSettings {
    pub key: LeaseKey,
    /// The identity of this process, in the form `<hostname>_<uuid>`. It is different for each process.
    pub identity: String,
    /// The value that this process writes as `leaseDurationSeconds`. It is the lease duration of the settings in whole
    /// seconds, rounded up.
    pub lease_seconds: u32,
    /// How much real time this process counts as one second of the Lease's field `leaseDurationSeconds`. Outside of
    /// tests this is one second. In a test in which the program's clock runs faster than real time, it is less, but at
    /// least a tenth of a second, because renewing the Lease takes some real time.
    pub second: Duration,
    /// How long this process can be the leader after a renewal. This time begins just before the request of the renewal
    /// is sent.
    pub lease_duration: Duration,
    /// How long this process tries to renew the Lease. When no renewal has succeeded for this time, the process gives
    /// up its leadership.
    pub renew_deadline: Duration,
    /// The pause between two tries to acquire the Lease, as long as this process is not the leader.
    pub retry_period: Duration,
    /// The pauses between two renewals of the Lease, as long as this process is the leader.
    pub renewal: RenewalPauses,
    /// The timeout of a write to any API. A write is started only when at least this much time is left until the Lease
    /// expires.
    pub write_timeout: Duration,
}

/// How the wait of this process for the Lease has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acquired {
    /// The wait has ended because this process holds the Lease and is the leader now.
    Lease,
    /// The process was asked to end while it waited for the Lease.
    Stopped,
    /// Another process, whose identity is the value, is the leader and is alive. Only a wait with
    /// `WaitPolicy::UntilRenewed` ends in this way.
    HeldBy(String),
    /// The wait ended with an error, which this text describes. A standby daemon (`WaitPolicy::Forever`) ends its wait
    /// only for an error that lasts until an operator corrects something, e.g. the credentials or the RBAC role. With
    /// `WaitPolicy::UntilRenewed`, every error ends the wait.
    Failed(String),
}

/// This process as a candidate or leader in the leader election.
pub struct LeaderElection {
    /// The client that reads and writes only the Lease. Its timeouts are short, so that even a slow request ends before
    /// `renew_deadline`.
    pub(super) client: KubeClient,
    pub(super) settings: LeaseSettings,
    pub(super) stop: &'static Stop,
    /// Returns the present time by the monotonic clock and by the wall clock. This function is [`Moment::now`], except
    /// in tests.
    clock: Box<dyn Fn() -> Moment + Send + Sync>,
    pub(super) leadership: Mutex<Leadership>,
    /// Whether another process held the Lease when this process last tried to get it.
    pub(super) is_standby: AtomicBool,
    /// The client of the Robot web service for dedicated servers. When Robot refuses a login, the time of the refusal
    /// is written into the Lease. The next leader then waits before it logs in, so that a restart does not cause
    /// another refused login.
    pub dedicated: OnceLock<&'static dyn Dedicated>,
    /// The UIDs that identify the cluster: the present and the former UIDs of the Service `default/kubernetes`, which
    /// gets a new UID when it is deleted and created again. The leader writes them into the Lease, so that the next
    /// leader knows them.
    pub cluster: OnceLock<Arc<ClusterIdentity>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Leadership {
    Waiting,
    Leading {
        /// The time just before the request of the last successful renewal was sent. This process is the leader for the
        /// lease duration, and that duration begins at this time.
        renewed: Moment,
    },
    Lost,
    /// This process waited for the Lease and did not become the leader. The value says how the wait ended. The process
    /// does not try again.
    Refused(Acquired),
}

impl Gate for LeaderElection {
    /// Returns an error when a write must not start, because this process is not the leader or has to end. When too
    /// little time is left until the Lease expires, this function waits for the next renewal first. `what` describes
    /// the write in the error.
    fn pass(&self, what: &str) -> Result<(), Refused> {
        self.wait_for_renewal();
        self.stop.pass(what)?;
        self.pass_now()
    }

    fn pass_at_end(&self, _what: &str) -> Result<(), Refused> {
        self.wait_for_renewal();
        self.pass_now()
    }

    fn may_wait(&self) -> bool {
        self.stop.may_wait()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MayWrite {
    Pass,
    /// The write must wait for the next renewal, because the Lease could expire before the write ends.
    Wait,
    /// The write must not start, because this process is not the leader.
    Never,
}

impl LeaderElection {
    pub fn new(client: KubeClient, settings: LeaseSettings, stop: &'static Stop) -> LeaderElection {
        show_leader(&settings.key, false);
        LeaderElection {
            client,
            settings,
            stop,
            clock: Box::new(Moment::now),
            leadership: Mutex::new(Leadership::Waiting),
            is_standby: AtomicBool::new(false),
            dedicated: OnceLock::new(),
            cluster: OnceLock::new(),
        }
    }

    /// Takes over what earlier leaders have written into the Lease: the time of a login that Robot refused, and the
    /// present and former UIDs of the Service `default/kubernetes`, which identify the cluster. This function is called
    /// just before this process takes the Lease. `read` is `None` when there is no Lease.
    pub(super) fn recall(&self, read: Option<&kube::Lease>) {
        let refused = read.and_then(kube::Lease::login_refused);
        if let Some((dedicated, refused)) = self.dedicated.get().zip(refused) {
            dedicated.wait_since(refused);
        }
        if let Some(cluster) = self.cluster.get() {
            let noted = read.map_or(Ok(None), kube::Lease::identities);
            cluster.recall(noted.unwrap_or_else(|why| {
                log::warn!("{}: {why}", self.settings.key);
                None
            }));
        }
    }

    /// Returns the Lease with two more facts for the next leader. The first is the time of a login that Robot refused.
    /// The second is all UIDs that the Service `default/kubernetes` has had over time. The labels of this cluster's
    /// objects in the cloud contain one of these UIDs, so that the next leader recognizes these objects.
    pub(super) fn noted(&self, read: kube::Lease) -> kube::Lease {
        let read = match self.dedicated.get() {
            Some(dedicated) => read.noting(dedicated.login_refused()),
            None => read,
        };
        match self.cluster.get().and_then(|cluster| cluster.kept()) {
            Some(known) => read.noting_identities(&known),
            None => read,
        }
    }

    /// Whether this process is a standby: another process is the leader, and this process waits to take over.
    pub fn is_standby(&self) -> bool {
        self.is_standby.load(Ordering::Relaxed)
    }

    pub fn leads(&self) -> bool {
        matches!(*lock(&self.leadership), Leadership::Leading { .. })
    }

    pub fn is_lost(&self) -> bool {
        *lock(&self.leadership) == Leadership::Lost
    }

    fn wait_for_renewal(&self) {
        self.stop.wait_until_set_or(|| self.answer() != MayWrite::Wait);
    }

    fn pass_now(&self) -> Result<(), Refused> {
        match self.answer() {
            MayWrite::Pass => Ok(()),
            MayWrite::Wait => {
                Err(Refused("the Lease may expire before the write has ended".into()))
            }
            MayWrite::Never => Err(Refused("this ccm is not the leader".into())),
        }
    }

    fn answer(&self) -> MayWrite {
        let Leadership::Leading { renewed } = *lock(&self.leadership) else {
            return MayWrite::Never;
        };
        let (write, lease) = (self.settings.write_timeout, self.settings.lease_duration);
        match self.now().since(renewed) {
            Some(since) if fits(since, write, lease) => MayWrite::Pass,
            // The Lease could expire before the write ends. Or the monotonic clock and the wall clock show different
            // times since the renewal, e.g. after the machine was suspended. Another process may already be the leader,
            // and only the next renewal shows whether this process still holds the Lease.
            Some(_) | None => MayWrite::Wait,
        }
    }

    /// Records that the Lease was renewed by a request that was sent at the time `sent`. Returns `true` when this
    /// process has just become the leader.
    pub(super) fn renewed(self: &Arc<Self>, sent: Moment) -> bool {
        let before = {
            let mut leadership = lock(&self.leadership);
            // This process has lost the Lease and is ending. It must not become the leader again.
            if *leadership == Leadership::Lost {
                return false;
            }
            std::mem::replace(&mut *leadership, Leadership::Leading { renewed: sent })
        };
        self.stop.wake();
        if before != Leadership::Waiting {
            return false;
        }
        show_leader(&self.settings.key, true);
        // One thread renews the Lease, and another thread checks the deadline of the renewal. Therefore the leadership
        // ends in time even when the request of a renewal hangs.
        let lease = Arc::clone(self);
        self.stop.repeat(true, move || lease.left_until_deadline());
        true
    }

    pub(super) fn refuse(&self, why: Acquired) {
        *lock(&self.leadership) = Leadership::Refused(why);
        self.stop.wake();
    }

    pub(super) fn lose(&self, why: &str) {
        show_leader(&self.settings.key, false);
        let before = std::mem::replace(&mut *lock(&self.leadership), Leadership::Lost);
        if before != Leadership::Lost {
            let key = &self.settings.key;
            log::error!("{key}: {why}; ccm starts no more writes and exits");
            self.stop.set();
        }
    }

    /// Returns the time that is left to renew the Lease. When no time is left, this function ends the leadership.
    /// Returns `None` when this process is not the leader or its leadership has ended.
    pub fn left_until_deadline(&self) -> Option<Duration> {
        let deadline = self.settings.renew_deadline;
        let Leadership::Leading { renewed } = *lock(&self.leadership) else {
            return None;
        };
        let since = self.now().monotonic.saturating_duration_since(renewed.monotonic);
        let left = deadline.saturating_sub(since);
        if left.is_zero() {
            let deadline_s = clock::to_machine(deadline).as_secs_f64();
            self.lose(&format!("the Lease was not renewed for {deadline_s} s"));
            return None;
        }
        Some(left)
    }

    pub(super) fn now(&self) -> Moment {
        (self.clock)()
    }
}

/// Shows in the metrics whether this process is the leader.
fn show_leader(key: &LeaseKey, leads: bool) {
    let value = f64::from(u8::from(leads));
    LEADER.set(&[], value);
    LEADER_STATUS.set(&[&key.name], value);
}

/// Whether a write that starts now is certain to end before the Lease expires. `since_renewal` is the time since the
/// request of the last renewal was sent.
fn fits(since_renewal: Duration, write_timeout: Duration, lease_duration: Duration) -> bool {
    since_renewal.saturating_add(write_timeout) <= lease_duration
}

/// Returns a new identity in the form `<hostname>_<uuid>`, which is also the form that Kubernetes components use. Each
/// call returns another identity, so that a daemon after its restart is another candidate.
pub fn identity() -> String {
    format!("{}_{}", hostname(), uuid(clock::random(), clock::random()))
}

/// Returns the host name of this process. In a pod this is the name of the pod, or the name of the machine when the pod
/// uses the host network.
fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "unknown".to_owned(),
        name => name.to_owned(),
    }
}

/// Returns a UUID of version 4 (RFC 9562) with random bits from `high` and `low`.
fn uuid(high: u64, low: u64) -> String {
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xfff,
        low >> 48 & 0x3fff | 0x8000,
        low & 0xffff_ffff_ffff
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// The time that a test has set. It has a monotonic time and a wall time.
    type Clock = Arc<Mutex<Moment>>;

    /// Returns a leader election for tests. It makes no API call, and takes the time from `clock`.
    fn lease(clock: &Clock, stop: &'static Stop) -> Arc<LeaderElection> {
        let settings = LeaseSettings {
            key: LeaseKey { namespace: "kube-system".into(), name: "ccm".into() },
            identity: "us".into(),
            lease_seconds: 15,
            second: Duration::from_secs(1),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(3600),
            retry_period: Duration::from_secs(2),
            renewal: RenewalPauses::equal(Duration::from_secs(2)),
            write_timeout: Duration::from_secs(8),
        };
        let mut lease = LeaderElection::new(KubeClient::of_nowhere(), settings, stop);
        let clock = Arc::clone(clock);
        lease.clock = Box::new(move || *clock.lock().unwrap());
        Arc::new(lease)
    }

    fn pass_time(clock: &Clock, monotonic_s: u64, wall_s: i64) {
        let mut now = clock.lock().unwrap();
        now.monotonic += Duration::from_secs(monotonic_s);
        let by = Duration::from_secs(wall_s.unsigned_abs());
        match wall_s < 0 {
            true => now.wall -= by,
            false => now.wall += by,
        }
    }

    #[test]
    fn after_a_jump_of_the_clocks_nothing_passes_until_the_next_renewal() {
        let stop: &'static Stop = Box::leak(Box::default());
        let clock: Clock = Arc::new(Mutex::new(Moment::now()));
        let lease = lease(&clock, stop);
        let now = || *clock.lock().unwrap();
        assert_eq!(lease.answer(), MayWrite::Never);
        // Each case has a name, the seconds that pass after a renewal of the Lease by the monotonic clock and by the
        // wall clock, and whether a write may start after these seconds.
        for (name, monotonic_s, wall_s, expected) in [
            ("at once", 0, 0, MayWrite::Pass),
            ("in time", 6, 6, MayWrite::Pass),
            ("slewed", 5, 6, MayWrite::Pass),
            ("too late", 8, 8, MayWrite::Wait),
            ("too late by the wall clock", 6, 8, MayWrite::Wait),
            ("suspended for a while", 1, 6, MayWrite::Wait),
            ("suspended for a day", 0, 86_400, MayWrite::Wait),
            ("set back", 5, -3600, MayWrite::Wait),
        ] {
            lease.renewed(now());
            assert_eq!(lease.answer(), MayWrite::Pass, "{name}");
            let sent = now();
            pass_time(&clock, monotonic_s, wall_s);
            assert_eq!(lease.answer(), expected, "{name}");
            // `sent` is the time of the renewal at the beginning of this case. Time has passed since then. Now the
            // answer to a request that was sent at the time `sent` arrives. Such a late answer must not change whether
            // a write may start.
            lease.renewed(sent);
            assert_eq!(lease.answer(), expected, "{name}");
            assert!(!lease.is_lost(), "{name}: leadership does not end with it");
        }
        lease.renewed(now());
        assert_eq!(lease.pass("a write"), Ok(()));
        // The wall clock moves on by 60 s and the monotonic clock does not, as when the machine was suspended. A write
        // now waits until the next renewal, and is allowed after it.
        pass_time(&clock, 0, 60);
        let waiting = std::thread::spawn({
            let lease = Arc::clone(&lease);
            move || lease.pass("a write")
        });
        lease.renewed(now());
        assert_eq!(waiting.join().unwrap(), Ok(()));
        pass_time(&clock, 0, 60);
        let waiting = std::thread::spawn({
            let lease = Arc::clone(&lease);
            move || lease.pass("a write")
        });
        stop.set();
        assert!(waiting.join().unwrap().is_err());
    }

    #[test]
    fn a_write_that_may_outlive_the_lease_does_not_start() {
        for (since_s, fits_in) in
            [(0.0, true), (7.0, true), (7.001, false), (15.0, false), (9e9, false)]
        {
            let since = Duration::from_secs_f64(since_s);
            let (write, lease) = (Duration::from_secs(8), Duration::from_secs(15));
            assert_eq!(fits(since, write, lease), fits_in, "{since_s} s");
        }
    }

    #[test]
    fn a_uuid_says_its_version() {
        assert_eq!(uuid(0, 0), "00000000-0000-4000-8000-000000000000");
        assert_eq!(uuid(u64::MAX, u64::MAX), "ffffffff-ffff-4fff-bfff-ffffffffffff");
    }

    #[test]
    fn each_process_has_its_own_identity() {
        assert_ne!(identity(), identity());
    }
}
