//! The service controller: a Service of type LoadBalancer gets a load balancer, kept right, and taken away.
//!
//! From a Service to its writes: `tick` → `polled` (Services and nodes) → `propose_for` (plans on what was read last) →
//! `sync`: for what has to be written everything is read again (`observe`), planned once more (`plan`), the finalizer is
//! written (`write`), and the executor makes the changes in the cloud; then the status (`write`).
//!
//! | file | its one job |
//! |---|---|
//! | `due` | when a Service is planned |
//! | `observe` | what both APIs say, as new as a write demands |
//! | `plan` | what should be done: pure |
//! | `sync` | from a plan to its end, for all Services of a tick |
//! | `write` | finalizer and status |
//! | `events` | what is reported |
//! | `orphans` | load balancers whose Service does not exist |
//!
//! What a load balancer should look like is the provider's business; here is what Kubernetes
//! asks: finalizer before anything is created, status after, nothing on an old view, and no
//! Service waits for another one's changes.

mod due;
mod events;
mod observe;
mod orphans;
mod plan;
mod sync;
mod write;

pub use events::{FailedTry, failed_tries};
pub use observe::{Observed, Servers, offered};
pub use orphans::known_orphans;
pub use plan::{ServicePlan, View, Want, plan, want};

use super::executor::Executor;
use super::report::Report;
use super::{Controller, Proposal, Selection};
use crate::cache::{Apis, Error, Poll, ReadFrom};
use crate::kube::{Node, Service};
use crate::metrics::LOAD_BALANCERS;
use crate::provider::{Kept, Urgency};
use due::{Due, Fingerprint};
use observe::Freshness;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use sync::{Held, Planned, Sync};

pub const NAME: &str = "service-lb-controller";

/// As upstream's events are signed.
pub const EVENT_COMPONENT: &str = "service-controller";

/// How late a label that changes which nodes are targets may be seen.
const METADATA_MAX_AGE: Duration = Duration::from_secs(30);

/// How often load balancers are listed for orphans alone, where there are neither Services of ours nor orphans:
/// what could become one is seen before.
const QUIET_LOOK_PERIOD: Duration = Duration::from_secs(24 * 3600);

/// Settings of the service controller.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `--service-sync-interval`: how often Services are looked at.
    pub sync_interval: Duration,
    /// `--load-balancer-resync-period`: how often unchanged load balancers are compared.
    pub resync_period: Duration,
    /// `--concurrent-service-syncs`: requests in flight.
    pub concurrency: usize,
    /// `--cluster-name`: for people.
    pub cluster_name: String,
    /// `--delete-orphaned-load-balancers`: at the resync.
    pub delete_orphans: bool,
    /// Multiplies waits; 1 outside of tests.
    pub time_scale: f64,
}

pub struct ServiceController {
    settings: Settings,
    due: Due,
    /// Services whose load balancers are being changed; they go on in the next tick.
    executor: Executor<Planned>,
    /// Services that wait for the end of such an execution.
    held: Vec<Held>,
    /// Names of the Services of type LoadBalancer that were listed last: one that is missing
    /// from a later list has changed its type, or is gone.
    listed: BTreeSet<(String, String)>,
    /// Names of Services that may carry our finalizer although they are of another type.
    suspects: BTreeSet<(String, String)>,
    /// There is no Service that has or wants a load balancer of ours.
    has_no_services: bool,
    /// Before that, what was read of load balancers is older than what was written to them.
    last_write: Option<Instant>,
    /// All Services were compared then, and orphans were not searched since.
    orphans_due: Option<Instant>,
    /// When orphans were searched last, where there were neither any nor Services of ours.
    all_quiet: Option<Instant>,
}

/// What Kubernetes shows at one moment.
struct Polled {
    nodes: Arc<Vec<Arc<Node>>>,
    /// Every Service that we may have to do with.
    services: Vec<Arc<Service>>,
    fingerprint: Fingerprint,
    is_resync: bool,
}

impl ServiceController {
    pub fn new(settings: Settings) -> ServiceController {
        ServiceController {
            due: Due::new(settings.time_scale),
            executor: Executor::new(NAME, settings.time_scale),
            held: Vec::new(),
            settings,
            listed: BTreeSet::new(),
            suspects: BTreeSet::new(),
            has_no_services: false,
            last_write: None,
            orphans_due: None,
            all_quiet: None,
        }
    }

    /// What both APIs say and what would be done, for the Services that are asked for.
    pub fn evaluate(
        &self,
        apis: &Apis,
        selection: &Selection,
    ) -> Result<(Option<Observed>, Vec<ServicePlan>), Error> {
        if apis.provider.load_balancers().is_none() {
            return Ok((None, Vec::new()));
        }
        let begun = Instant::now();
        let polled = self.polled(apis, selection, begun)?;
        let Some(mut observed) = self.observe_due(apis, selection, &polled)? else {
            return Ok((None, Vec::new()));
        };
        observed.read_needs(apis, &polled.nodes, begun, false, Urgency::Asked)?;
        let mut plans = plan(&observed.view(true));
        plan::refuse_in_wrong_project(&observed.cluster, observed.has_own_servers, &mut plans);
        plan::refuse_second_claims(&mut plans);
        Ok((Some(observed), plans))
    }

    /// What is kept in the cloud of Services that do not exist any more.
    pub fn kept(&self, apis: &Apis) -> Result<Vec<Kept>, Error> {
        let Some(provider) = apis.provider.load_balancers() else {
            return Ok(Vec::new());
        };
        let all = apis.any_services(Duration::MAX)?;
        let name = &self.settings.cluster_name;
        let cluster = observe::cluster(apis, name, &all.value, &[])?;
        provider.kept(&cluster).map_err(Error::Cloud)
    }

    /// One tick, with the plans that it ended with, for a person.
    pub fn sync(&mut self, apis: &Apis, selection: &Selection) -> (Report, Vec<ServicePlan>) {
        self.sync_services(apis, selection, true)
    }

    fn sync_services(
        &mut self,
        apis: &Apis,
        selection: &Selection,
        for_people: bool,
    ) -> (Report, Vec<ServicePlan>) {
        let Some(provider) = apis.provider.load_balancers() else {
            return (Report::default(), Vec::new());
        };
        let mut sync = Sync {
            controller: self,
            apis,
            provider,
            selection,
            for_people,
            report: Report::default(),
            plans: Vec::new(),
            is_closed: false,
            has_written: false,
            compared: None,
        };
        sync.run();
        let (compared, has_written) = (sync.compared, sync.has_written);
        let (mut report, mut plans) = (sync.report, sync.plans);
        if for_people {
            // In whatever order they ended: the lines of one Service stand together.
            plans.sort_by_cached_key(ServicePlan::name);
            report.changes.sort_by(|one, other| one.0.cmp(&other.0));
            let failures = &mut report.failures;
            failures.sort_by(|one, other| one.object.cmp(&other.object));
        }
        // What was read of load balancers is mostly what there is still: then no call for orphans alone.
        let is_read = !has_written || self.settings.delete_orphans;
        let is_whole = report.outage.is_none() && report.unreached == 0;
        if let Some(compared) = compared
            && is_whole
            && is_read
            && !self.was_quiet()
        {
            self.orphans_due = Some(compared);
        }
        if report.outage.is_none()
            && report.unfinished == 0
            && let Some(begun) = self.orphans_due.take()
        {
            orphans::look_after(apis, provider, &self.settings, begun, &mut report);
            let is_quiet = self.has_no_services && report.orphans == Some(0);
            self.all_quiet = is_quiet.then_some(begun);
        }
        (report, plans)
    }

    /// Load balancers of this cluster whose Service does not exist, as they are since `begun`.
    pub fn orphans(&self, apis: &Apis, begun: Instant) -> Result<Vec<ServicePlan>, Error> {
        if apis.provider.load_balancers().is_none() {
            return Ok(Vec::new());
        }
        let name = &self.settings.cluster_name;
        let found = orphans::find(apis, name, begun, Duration::ZERO, Urgency::Needed)?;
        Ok(found.into_iter().map(orphans::plan).collect())
    }

    /// Deletes those of these numbers that still are orphans, each with what was made.
    pub fn delete_orphans(&self, apis: &Apis, ids: &HashSet<u64>) -> (Report, Vec<ServicePlan>) {
        let Some(provider) = apis.provider.load_balancers() else {
            return (Report::default(), Vec::new());
        };
        let chosen = orphans::Chosen::These(ids);
        orphans::delete(apis, provider, &self.settings, chosen)
    }

    /// Services and nodes: read from Kubernetes alone.
    fn polled(&self, apis: &Apis, selection: &Selection, now: Instant) -> Result<Polled, Error> {
        let is_resync = self.due.is_resync_due(self.settings.resync_period, now);
        let shared = self.settings.sync_interval / 2;
        let (age, from) = match selection.is_explicit() {
            true => (shared, ReadFrom::Latest),
            false if self.unfinished() == 0 => (shared, ReadFrom::Cache),
            // What is executed is compared with what there is now: its plan rests on a read of an earlier tick, and an
            // old list would not show that a load balancer which is to be deleted is wanted again.
            false => (Duration::ZERO, ReadFrom::Latest),
        };
        let listed = apis.load_balancer_services(age, from)?;
        let mut suspects = self.suspects.clone();
        suspects.extend(self.listed.iter().cloned());
        if is_resync || selection.is_explicit() {
            let all = apis.any_services(self.settings.resync_period / 2)?;
            let ours = all
                .value
                .iter()
                .filter(|service| service.has_our_finalizer());
            suspects.extend(ours.map(|service| {
                let metadata = &service.metadata;
                (metadata.namespace.clone(), metadata.name.clone())
            }));
        }
        let mut services = listed.value.as_ref().clone();
        services.extend(observe::leftovers(apis, &services, suspects)?);
        services.sort_by_cached_key(|service| service.full_name());
        let nodes = match (selection.is_explicit(), services.is_empty()) {
            (true, _) => apis.nodes(age, from)?.value,
            // Without Services the nodes are not needed.
            (false, true) => Arc::default(),
            (false, false) => {
                apis.poll_nodes(Poll {
                    table_max_age: age,
                    // The node controller reads them whole more often, where it runs.
                    whole_max_age: self.settings.resync_period * 2,
                    metadata_max_age: Some(METADATA_MAX_AGE.mul_f64(self.settings.time_scale)),
                })?
                .value
            }
        };
        Ok(Polled {
            fingerprint: Fingerprint::new(&nodes, &*apis.provider),
            nodes,
            services,
            is_resync,
        })
    }

    /// For the Services that are due: what was read last, or for a person what is true now. A Service whose changes are
    /// being executed is not planned a second time.
    fn observe_due(
        &self,
        apis: &Apis,
        selection: &Selection,
        polled: &Polled,
    ) -> Result<Option<Observed>, Error> {
        let now = Instant::now();
        let explicit = selection.is_explicit();
        let executions = self.executor.executions().iter();
        let executed = executions.map(|execution| execution.subject.uid());
        let is_busy: HashSet<&str> = executed.chain(self.held.iter().map(Held::uid)).collect();
        let is_changed = |service: &Arc<Service>| self.due.is_due(service, polled.fingerprint, now);
        // One that failed has times of its own.
        let is_compared =
            |service: &Arc<Service>| polled.is_resync && !self.due.is_waiting(service, now);
        let is_due = |service: &&Arc<Service>| {
            let is_ours = want(service) != Want::Nothing;
            is_ours
                && selection.names(&service.full_name())
                && !is_busy.contains(service.metadata.uid.as_str())
                && (explicit || is_compared(service) || is_changed(service))
        };
        let due: Vec<Arc<Service>> = polled.services.iter().filter(is_due).cloned().collect();
        if due.is_empty() {
            return Ok(None);
        }
        let since_write = self.last_write.map_or(Duration::MAX, |at| at.elapsed());
        let age = match (explicit, polled.is_resync) {
            (true, _) => Duration::ZERO,
            (false, true) => self.settings.resync_period / 2,
            (false, false) => Duration::MAX,
        };
        // What only is compared again can wait; a Service that changed can't.
        let urgency = match explicit {
            true => Urgency::Asked,
            false if due.iter().any(is_changed) => Urgency::Needed,
            false => Urgency::CanWait,
        };
        let freshness = Freshness::Proposes(age.min(since_write));
        let name = &self.settings.cluster_name;
        let observed = observe::observe(apis, name, due, &polled.nodes, freshness, urgency)?;
        Ok(Some(observed))
    }

    /// A while ago there was nothing at all in the cloud that is ours.
    fn was_quiet(&self) -> bool {
        let period = QUIET_LOOK_PERIOD.mul_f64(self.settings.time_scale);
        self.all_quiet.is_some_and(|at| at.elapsed() < period)
    }

    fn remember(&mut self, polled: &Polled) {
        let name = |service: &Arc<Service>| {
            let metadata = &service.metadata;
            (metadata.namespace.clone(), metadata.name.clone())
        };
        let of_type = |is: bool| {
            let services = polled.services.iter();
            services
                .filter(|service| service.is_of_type_load_balancer() == is)
                .map(name)
                .collect()
        };
        self.listed = of_type(true);
        self.suspects = of_type(false);
        self.due.listed(&polled.services, polled.fingerprint);
        let mut services = polled.services.iter();
        self.has_no_services = services.all(|one| want(one) == Want::Nothing);
        if !self.has_no_services {
            self.all_quiet = None;
        }
    }

    /// Services whose changes go on, or wait for those of another one.
    fn unfinished(&self) -> usize {
        self.executor.executions().len() + self.held.len()
    }
}

/// For the metrics.
fn measure(polled: &Polled) {
    let (mut managed, mut pending, mut leaving) = (0, 0, 0);
    for service in &polled.services {
        match want(service) {
            Want::Nothing => {}
            Want::Remove => leaving += 1,
            Want::Ensure if service.status.load_balancer.ingress.is_empty() => pending += 1,
            Want::Ensure => managed += 1,
        }
    }
    for (state, count) in [
        ("managed", managed),
        ("pending", pending),
        ("leaving", leaving),
    ] {
        LOAD_BALANCERS.set(&[state], f64::from(count));
    }
}

fn waiting(polled: &Polled) -> String {
    let count = polled
        .services
        .iter()
        .filter(|service| want(service) != Want::Nothing)
        .count();
    match count {
        0 => String::new(),
        1 => "1 Service waits".into(),
        count => format!("{count} Services wait"),
    }
}

impl Controller for ServiceController {
    fn name(&self) -> &'static str {
        NAME
    }

    fn interval(&self) -> Duration {
        self.settings.sync_interval
    }

    fn tick(&mut self, apis: &Apis, selection: &Selection) -> Report {
        self.sync_services(apis, selection, false).0
    }

    fn propose(&self, apis: &Apis, selection: &Selection) -> Result<Vec<Proposal>, Error> {
        let begun = Instant::now();
        let (_, mut plans) = self.evaluate(apis, selection)?;
        if self.settings.delete_orphans {
            let mut orphans = self.orphans(apis, begun)?;
            orphans.retain(ServicePlan::has_writes);
            plans.extend(orphans);
        }
        Ok(plans.iter().map(ServicePlan::proposal).collect())
    }
}
