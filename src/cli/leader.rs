//! Leader election for commands: a command runs its work only while this process holds the Lease. Other functions only
//! read the Lease, e.g. to show who holds it.

use super::output::{Exit, Printer};
use super::wire;
use crate::cache::Apis;
use crate::daemon::Stop;
use crate::daemon::lease::{self, Acquired, LeaderElection, RenewalPauses, WaitPolicy};
use crate::http;
use crate::kube::{LeaseKey, LeaseSpec};
use crate::metrics::LEADER;
use crate::provider::{clock, waiting_for};
use crate::settings::Settings;
use jiff::Timestamp;
use std::sync::Arc;
use std::time::Duration;

/// How long a command tries to read from the Lease whether Robot has refused a login. After this time, the command goes
/// on without this information. This is real time, even in tests in which the program's clock runs faster.
const READ_AT_MOST: Duration = Duration::from_secs(2);

/// Returns the object that acquires and renews the Lease that the settings name, or `None` when leader election is
/// turned off. No call is made yet.
pub(super) fn lease(
    settings: &Settings,
    stop: &'static Stop,
) -> Result<Option<Arc<LeaderElection>>, String> {
    if !settings.leader_elect.value {
        return Ok(None);
    }
    let client = wire::lease_client(settings, Arc::new(stop))?;
    let duration = settings.lease_duration.value;
    let settings = lease::LeaseSettings {
        key: key(settings),
        identity: lease::identity(),
        lease_seconds: whole_seconds(duration),
        second: wire::for_lease(Duration::from_secs(1)),
        lease_duration: wire::for_lease(duration),
        renew_deadline: wire::for_lease(settings.renew_deadline.value),
        retry_period: wire::for_lease(settings.retry_period.value),
        renewal: renewal_pauses(settings),
        write_timeout: wire::for_lease(http::WRITE_TIMEOUT),
    };
    Ok(Some(Arc::new(LeaderElection::new(client, settings, stop))))
}

/// How often a leader renews its Lease when the user has not set `--leader-elect-retry-period`. A renewal is a write, and
/// a daemon at rest makes hardly any other calls so often.
const RENEWED_EVERY: Duration = Duration::from_secs(4);
/// How often such a leader tries again after a renewal has failed.
const RENEWED_AGAIN_EVERY: Duration = Duration::from_secs(1);

/// Returns the pauses between two renewals of the Lease. They are the retry period, if the user has set it. Otherwise
/// they are longer, if the leader can still renew its Lease three times before its time to start a write is over, and
/// before it gives up the leadership.
fn renewal_pauses(settings: &Settings) -> RenewalPauses {
    let third_try = RENEWED_EVERY + 2 * RENEWED_AGAIN_EVERY;
    let may_write_for = settings.lease_duration.value.saturating_sub(http::WRITE_TIMEOUT);
    let at_most = may_write_for.min(settings.renew_deadline.value);
    if settings.retry_period.source.is_default() && third_try < at_most {
        RenewalPauses {
            after_success: wire::for_lease(RENEWED_EVERY),
            after_failure: wire::for_lease(RENEWED_AGAIN_EVERY),
        }
    } else {
        RenewalPauses::equal(wire::for_lease(settings.retry_period.value))
    }
}

/// Waits until this process is the leader, and then runs `work`. When leader election is turned off, `work` is run at
/// once.
pub(super) fn lead(
    settings: &Settings,
    lease: Option<&Arc<LeaderElection>>,
    work: impl FnOnce() -> Exit,
) -> Exit {
    let Some(lease) = lease else {
        LEADER.set(&[], 1.0);
        return work();
    };
    let key = key(settings);
    let policy = if settings.once.value { WaitPolicy::UntilRenewed } else { WaitPolicy::Forever };
    let waiting = waiting_for(|| format!("the Lease {key}"));
    let acquired = lease.acquire(policy);
    drop(waiting);
    match acquired {
        Acquired::Lease => {
            let exit = work();
            lease.release();
            if lease.is_lost() { Exit::Failed } else { exit }
        }
        Acquired::HeldBy(holder) => {
            log::info!("{key}: {holder} is the leader and does the work, so this process ends");
            Exit::Done
        }
        Acquired::Failed(why) => {
            log::error!("{why}");
            Exit::Failed
        }
        Acquired::Stopped if settings.once.value => {
            log::info!("ccm was stopped before it did anything");
            Exit::Failed
        }
        Acquired::Stopped => Exit::Done,
    }
}

/// Finds out from the Lease whether Robot has refused a login of the daemon a short time ago. If it has, this command
/// does not log in to Robot for some time, and this function returns a message that tells the user so. When the Lease
/// can't be read, the command logs in.
pub(super) fn heed_refused_login(settings: &Settings, apis: &Apis) -> Option<String> {
    let dedicated = apis.provider.dedicated()?;
    let key = key(settings);
    let lease = http::within(READ_AT_MOST, || apis.kube.lease(&key));
    let refused = lease.ok()??.login_refused()?;
    dedicated.wait_since(refused);
    let until = dedicated.blocked_until()?;
    Some(format!(
        "Robot refused a login at {refused}, as {key} records, so this command makes no login and knows no dedicated \
         servers until {until}"
    ))
}

/// Makes a command read the identity of the cluster from the daemon's Lease, as soon as the command needs it. The
/// identity is the first UID that the Service `default/kubernetes` had, and the Lease keeps it when that Service is
/// created again. By this UID, ccm recognizes the load balancers of this cluster in a project that several clusters
/// share.
pub(super) fn heed_identity(settings: &Settings, apis: &Apis) {
    if settings.leader_elect.value {
        apis.identity.read_from(key(settings));
    }
}

/// Prints who the leader is, because a daemon may work at the same time as the user's command. The line is only
/// information, so nothing is reported when the Lease can't be read.
pub(super) fn show(settings: &Settings, apis: &Apis) {
    let key = key(settings);
    let Ok(Some(lease)) = apis.kube.lease(&key) else {
        return;
    };
    let spec = lease.spec();
    let is_alive = age_s(&spec).is_some_and(|age_s| age_s <= i64::from(spec.duration_seconds));
    if is_alive && !spec.holder.is_empty() {
        Printer::notice(format_args!("{} is the leader ({key})", spec.holder));
    }
}

/// Returns how many seconds ago the Lease was renewed, or `None` when it was never renewed. The time of the renewal is
/// from the clock of another host, so the result can be wrong by a few seconds. It is only shown to users, and no
/// decision depends on it.
pub(super) fn age_s(spec: &LeaseSpec) -> Option<i64> {
    let renewed: Timestamp = spec.renew_time.parse().ok()?;
    Some((clock::timestamp().as_second() - renewed.as_second()).max(0))
}

pub(super) fn key(settings: &Settings) -> LeaseKey {
    LeaseKey {
        namespace: settings.lease_namespace.value.to_string(),
        name: settings.lease_name.value.to_string(),
    }
}

/// Returns the duration in whole seconds. It is rounded up, because a shorter duration in the Lease would let another
/// process acquire the Lease while this process still writes.
fn whole_seconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_nanos().div_ceil(1_000_000_000)).unwrap_or(u32::MAX)
}
