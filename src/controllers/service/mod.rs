//! The service controller: a Service of type LoadBalancer gets a load balancer, kept right, and taken away.
//!
//! From a Service to its writes: `tick` → `take_up`: Services and nodes are polled, those that are due are planned on
//! what was read last (`observe`, `plan`) → `sync`: for what has to be written everything is read again, planned once
//! more, the finalizer is written, and the executor makes the changes in the cloud; then the status is written.
//!
//! | file | its one job |
//! |---|---|
//! | `due` | when a Service is planned |
//! | `admission` | which changes are taken up, and who pays for their calls |
//! | `certificates` | those from Secrets that nothing uses any more |
//! | `observe` | what both APIs say, as new as a write demands |
//! | `plan` | what should be done: pure |
//! | `sync` | from a plan to its end, for all Services of a tick |
//! | `events` | what is reported |
//! | `health` | which Services get no traffic, and why |
//! | `orphans` | load balancers whose Service does not exist |
//!
//! What a load balancer should look like is the provider's business; here is what Kubernetes
//! asks: finalizer before anything is created, status after, nothing on an old view, and no
//! Service waits for another one's changes.

mod admission;
mod certificates;
mod due;
mod events;
mod health;
mod observe;
mod orphans;
mod plan;
mod sync;

pub use events::{ago, failed_tries, past_events};
pub use health::{inspect, trouble};
pub use observe::{Management, NAME, Settings, groups};
pub use orphans::{kept, known_orphans};
pub use plan::{ServicePlan, Want, check, want};

use super::controller::{self, Controller, Proposal, Selection};
use super::executor::{Execution, Executor, Requests};
use super::report::{Outage, Report};
use crate::cache::{Apis, Error, Poll, ReadFrom};
use crate::kube::{Node, Service};
use crate::metrics::{
    CERTIFICATE_EXPIRY, LOAD_BALANCERS, LOAD_BALANCERS_HEALTH, LOAD_BALANCERS_READ,
    LOAD_BALANCERS_USE,
};
use crate::provider::{
    Balancer, BalancerHealth, BalancerUse, Cluster, Kept, LoadBalancerPlan, LoadBalancers,
    SeenHealth, Snapshot, TlsSecrets, Urgency, calls::counted, clock,
};
use admission::Admission;
use certificates::Unused;
use due::{Dependencies, Due, Seen};
use health::{Look, Outages};
use jiff::Timestamp;
use observe::{Observed, full_name};
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use sync::{State, Sync, Task};

/// How often load balancers are listed for orphans alone, where there are neither Services of ours nor orphans:
/// what could become one is seen before.
const QUIET_PERIOD: Duration = Duration::from_secs(24 * 3600);

/// How late a label that changes which nodes are targets may be seen.
const METADATA_MAX_AGE: Duration = Duration::from_secs(30);

/// The Services that Kubernetes shows at one moment.
struct Listed {
    /// As the API server listed those of type LoadBalancer.
    list: Arc<Vec<Arc<Service>>>,
    /// Every Service that we may have to do with, by name.
    services: Vec<Arc<Service>>,
    /// All Services are compared.
    is_resync: bool,
    /// How old a list may be.
    age: Duration,
    from: ReadFrom,
}

/// What Kubernetes shows at one moment.
struct Polled {
    seen: Seen,
    nodes: Arc<Vec<Arc<Node>>>,
    /// Every Service that we may have to do with, by name.
    services: Vec<Arc<Service>>,
    /// All Services are compared.
    is_resync: bool,
    /// What the Secrets hold that these Services name; empty where a person chose Services.
    tls_secrets: TlsSecrets,
}

pub struct ServiceController {
    state: State,
    /// All Services were compared then, and orphans were not searched since.
    orphans_due: Option<Instant>,
    /// When orphans were searched last, where there were neither any nor Services of ours.
    all_quiet: Option<Instant>,
}

impl Controller for ServiceController {
    fn name(&self) -> &'static str {
        NAME
    }

    fn interval(&self) -> Duration {
        self.state.settings.sync_interval
    }

    fn tick(&mut self, apis: &Apis, selection: &Selection) -> Report {
        self.sync_services(apis, selection, false).0
    }

    fn propose(&self, apis: &Apis, selection: &Selection) -> Result<Vec<Proposal>, Error> {
        let plans = self.evaluate_pass(apis, selection)?;
        Ok(plans.iter().map(ServicePlan::proposal).collect())
    }
}

impl ServiceController {
    pub fn new(settings: Settings) -> ServiceController {
        ServiceController {
            state: State {
                management: Management::Usual,
                due: Due::new(),
                admission: Admission::default(),
                executor: Executor::new(NAME),
                queued: Vec::new(),
                ended: HashSet::new(),
                seen: Seen::default(),
                settings,
                known: BTreeSet::new(),
                has_no_services: false,
                last_write: None,
                tls_secrets: TlsSecrets::new(),
                unused_certificates: Unused::default(),
                outages: Outages::default(),
            },
            orphans_due: None,
            all_quiet: None,
        }
    }

    /// For the Services that `evaluate` and `sync` are asked for from now on.
    pub fn set_management(&mut self, management: Management) {
        self.state.management = management;
    }

    /// What a pass over these Services would do: beside their plans those of what no Service has any more.
    pub fn evaluate_pass(
        &self,
        apis: &Apis,
        selection: &Selection,
    ) -> Result<Vec<ServicePlan>, Error> {
        let begun = clock::now();
        let (mut plans, wanted) = self.evaluate_with_secrets(apis, selection)?;
        if self.state.settings.delete_orphans {
            let mut orphans = self.orphans(apis, begun)?;
            orphans.retain(ServicePlan::has_writes);
            plans.extend(orphans);
        }
        if let Some(provider) = apis
            .provider
            .load_balancers()
            .filter(|_| selection.is_of_all())
        {
            let settings = &self.state.settings;
            plans.extend(certificates::propose(apis, provider, settings, &wanted)?);
        }
        Ok(plans)
    }

    /// What would be done, by what both APIs say, for the Services that are asked for.
    /// And what there is of Services that are left alone.
    pub fn evaluate(&self, apis: &Apis, selection: &Selection) -> Result<Vec<ServicePlan>, Error> {
        Ok(self.evaluate_with_secrets(apis, selection)?.0)
    }

    /// The same, with what the Secrets hold that all Services name.
    fn evaluate_with_secrets(
        &self,
        apis: &Apis,
        selection: &Selection,
    ) -> Result<(Vec<ServicePlan>, TlsSecrets), Error> {
        if apis.provider.load_balancers().is_none() {
            return Ok(Default::default());
        }
        let begun = clock::now();
        let listed = self.state.list(apis, selection, begun)?;
        let polled = self.state.poll(apis, selection, listed)?;
        let dependencies = polled.dependencies(apis);
        let observed = self
            .state
            .observe_due(apis, selection, &polled, &dependencies, true)?;
        let Some(mut observed) = observed else {
            return Ok((Vec::new(), polled.tls_secrets));
        };
        let mut plans = plan::plan(&observed, true);
        let needs = plan::needs(&plans);
        if observed.read_needs(apis, &polled.nodes, needs, begun, Urgency::Asked)? {
            plans = plan::plan(&observed, true);
        }
        plans.retain(|plan| plan.want != Want::Nothing || plan.cloud.found.is_some());
        plan::in_turn(&*apis.provider, &mut plans);
        health::explain(apis, &polled.nodes, &mut plans);
        Ok((plans, polled.tls_secrets))
    }

    /// All Services of ours, where the cloud does not answer: nothing is planned. `manifests`: what their annotations are
    /// checked by.
    pub fn by_kubernetes(
        &self,
        apis: &Apis,
        manifests: &dyn Snapshot,
    ) -> Result<Vec<ServicePlan>, Error> {
        let (state, selection) = (&self.state, &Selection::All);
        let listed = state.list(apis, selection, clock::now())?;
        let polled = state.poll(apis, selection, listed)?;
        let services = polled.services.iter();
        let cluster = Cluster {
            groups: groups(&*apis.provider, services.clone().map(|one| &**one)),
            ..Cluster::default()
        };
        let ours = services.filter(|one| want(one) != Want::Nothing);
        let plan = |one: &Arc<Service>| {
            let cloud = LoadBalancerPlan {
                findings: check(one, manifests, &cluster).unwrap_or_default(),
                ..LoadBalancerPlan::default()
            };
            ServicePlan::new(one.object(), Arc::clone(one), want(one), cloud)
        };
        Ok(ours.map(plan).collect())
    }

    /// All load balancers of Services, of any cluster, where Kubernetes does not answer: nothing is planned.
    pub fn by_cloud(&self, apis: &Apis) -> Result<Vec<ServicePlan>, Error> {
        let snapshot = apis.load_balancers(&[], Duration::ZERO, Urgency::Asked)?;
        let all = snapshot.value.all().into_iter();
        let plan = |(balancer, service): (Balancer, String)| {
            orphans::plan_alone(&service, balancer, LoadBalancerPlan::default())
        };
        Ok(all.map(plan).collect())
    }

    /// What is kept in the cloud of Services that do not exist any more.
    pub fn kept(&self, apis: &Apis) -> Result<Vec<Kept>, Error> {
        let Some(provider) = apis.provider.load_balancers() else {
            return Ok(Vec::new());
        };
        let (cluster, mut kept) = orphans::kept(apis)?;
        kept.extend(provider.kept(&cluster).map_err(Error::Cloud)?);
        Ok(kept)
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
            state: &mut self.state,
            apis,
            for_people,
            is_limited: !for_people && !selection.is_explicit(),
            payers: Vec::new(),
            report: Report::default(),
            plans: Vec::new(),
            is_closed: false,
            has_written: false,
        };
        let compared = sync.run(provider, selection);
        let (has_written, is_closed) = (sync.has_written, sync.is_closed);
        let payers = sync.payers;
        let (mut report, mut plans) = (sync.report, sync.plans);
        if for_people {
            // In whatever order they ended: the lines of one Service stand together.
            plans.sort_by_cached_key(ServicePlan::name);
            report.changes.sort_by(|one, other| one.0.cmp(&other.0));
            let failures = &mut report.failures;
            failures.sort_by(|one, other| one.object.cmp(&other.object));
        }
        let compared = compared.filter(|_| report.unreached == 0);
        let unused = &mut self.state.unused_certificates;
        unused.is_due |= has_written || compared.is_some();
        self.search_orphans(apis, provider, compared, has_written, &mut report);
        let is_settled = report.unfinished + report.unreached == 0 && report.outage.is_none();
        if is_settled && selection.is_of_all() && !is_closed {
            let state = &mut self.state;
            let (settings, wanted) = (&state.settings, &state.tls_secrets);
            let unused = &mut state.unused_certificates;
            let done = unused.delete(apis, provider, settings, wanted, &payers, &mut report);
            plans.extend(done);
        }
        (report, plans)
    }

    /// `compared`: when all Services were compared, where this tick did so.
    fn search_orphans(
        &mut self,
        apis: &Apis,
        provider: &dyn LoadBalancers,
        compared: Option<Instant>,
        has_written: bool,
        report: &mut Report,
    ) {
        if !self.state.has_no_services {
            self.all_quiet = None;
        }
        if report.outage.is_some() {
            return;
        }
        let settings = &self.state.settings;
        let was_quiet = self
            .all_quiet
            .is_some_and(|at| clock::since(at) < QUIET_PERIOD);
        // What was read of load balancers is mostly what there is still: then no call for orphans alone.
        if !was_quiet && (!has_written || settings.delete_orphans) {
            self.orphans_due = compared.or(self.orphans_due);
        }
        if report.unfinished == 0
            && let Some(begun) = self.orphans_due.take()
        {
            orphans::look_after(apis, provider, settings, begun, report);
            let is_quiet = self.state.has_no_services && report.orphans == Some(0);
            self.all_quiet = is_quiet.then_some(begun);
        }
    }

    /// Load balancers of this cluster whose Service does not exist, as they are since `begun`.
    pub fn orphans(&self, apis: &Apis, begun: Instant) -> Result<Vec<ServicePlan>, Error> {
        let name = &self.state.settings.cluster_name;
        let found = orphans::find(apis, name, begun, Duration::ZERO, Urgency::Needed)?;
        Ok(found.into_iter().map(orphans::plan).collect())
    }

    /// Deletes those of these numbers that still are orphans, each with what was made.
    pub fn delete_orphans(&self, apis: &Apis, ids: &HashSet<u64>) -> (Report, Vec<ServicePlan>) {
        let mut report = Report::default();
        let Some(provider) = apis.provider.load_balancers() else {
            return (report, Vec::new());
        };
        let is_chosen = |id| ids.contains(&id);
        let settings = &self.state.settings;
        let plans = orphans::delete(apis, provider, settings, is_chosen, &mut report);
        (report, plans)
    }
}

impl Sync<'_> {
    /// Due Services are taken up at each interval, whatever the executions wait for. Executions that only wait for
    /// actions when the interval is over are continued in the next tick; a person's selection is worked on until its
    /// end. When the comparison of all Services began, where this tick made one.
    fn run(&mut self, provider: &dyn LoadBalancers, selection: &Selection) -> Option<Instant> {
        let mut compared = None;
        let concurrency = self.state.settings.concurrency;
        std::thread::scope(|scope| {
            let mut requests = Requests::new(scope, provider, concurrency);
            loop {
                let begun = clock::now();
                let interval = self.state.settings.sync_interval;
                let until = (!selection.is_explicit()).then(|| begun + interval);
                match self.take_up(selection, begun, &mut requests) {
                    Ok(is_resync) => compared = is_resync.then_some(begun).or(compared),
                    Err(outage) => self.report.outage = Some(outage),
                }
                self.execute(&mut requests, until);
                // The scope's end would wait for a request that is slow.
                if self.state.executor.executions().is_empty() || !requests.are_in_flight() {
                    break;
                }
                self.report.outage = None;
            }
        });
        self.report.unfinished = self.state.busy().len();
        compared
    }

    /// Plans for all Services that are due and not being executed, and begins what is to be done. True: all Services
    /// were compared.
    fn take_up(
        &mut self,
        selection: &Selection,
        begun: Instant,
        requests: &mut Requests,
    ) -> Result<bool, Outage> {
        let mut polled = self.poll_admitted(selection, begun).map_err(|error| {
            // Whether it still fits is not known.
            self.state.executor.stop(Execution::takes_away);
            Outage::new(error, String::new())
        })?;
        let (apis, state) = (self.apis, &mut *self.state);
        if !selection.is_explicit() && state.has_seen(&polled, begun) {
            return Ok(false);
        }
        let waiting = |error| Outage::new(error, waiting(&polled.services));
        let dependencies = polled.dependencies(apis);
        state.stop_stale(&polled.services, &dependencies);
        let observed = state.observe_due(apis, selection, &polled, &dependencies, false);
        let proposals = observed.map_err(waiting)?;
        state.seen = match proposals.is_none() && state.busy().is_empty() {
            true => polled.seen.clone(),
            false => Seen::default(),
        };
        let is_comparison = polled.is_resync && selection.is_of_all() && !self.for_people;
        state.report_health(apis, &polled, proposals.as_ref(), is_comparison);
        let proposals = proposals.map(|observed| plan::plan(&observed, self.for_people));
        let proposals = proposals.unwrap_or_default();
        state.remember(&polled, dependencies);
        measure(&polled);
        // All nodes are read anew for what has to be written: two lists of thousands would be most of the memory.
        polled.nodes = Arc::default();
        let (to_do, in_order): (Vec<_>, Vec<_>) =
            proposals.into_iter().partition(ServicePlan::is_taken_up);
        // Whether a Service is above a limit is decided by the list of all: to read it alone tells nothing new.
        let (above, to_do): (Vec<_>, Vec<_>) = to_do
            .into_iter()
            .partition(|plan| plan.service.above.is_some() && plan.obstacle().is_some());
        for plan in above {
            self.leave_as_it_is(plan, begun);
        }
        self.report.planned += to_do.iter().map(ServicePlan::writes).sum::<usize>();
        // Nothing was written for them since `begun`: what was listed for the proposal serves the first plan.
        let tasks = self.tasks(to_do, begun);
        let planned = self.plan_and_begin(tasks);
        self.state.executor.send(requests);
        for plan in in_order {
            self.in_order(plan);
        }
        planned.map_err(waiting)?;
        let is_compared = polled.is_resync && self.report.unreached == 0;
        if is_compared {
            self.state.due.resynced(begun);
        }
        Ok(is_compared)
    }

    /// Services and nodes, without the changes of Services that wait for calls.
    fn poll_admitted(&mut self, selection: &Selection, now: Instant) -> Result<Polled, Error> {
        let (apis, state) = (self.apis, &mut *self.state);
        let mut listed = state.list(apis, selection, now)?;
        if self.is_limited {
            let busy = state.payers();
            let (services, begin_to_wait) =
                state.admission.look(&listed.services, &state.due, &busy);
            listed.services = services;
            for service in begin_to_wait {
                events::waits(apis, &service);
            }
        }
        state.poll(apis, selection, listed)
    }

    /// Each with who pays for it.
    fn tasks(&self, plans: Vec<ServicePlan>, begun: Instant) -> Vec<Task> {
        let admission = &self.state.admission;
        let snapshot = self.apis.load_balancers_last();
        let snapshot = snapshot.as_deref();
        let group = |service: &Service| due::group(self.apis, snapshot, service);
        let of_groups = admission.payers_of_groups(group);
        let task = |plan: ServicePlan| {
            let payer = admission.payer(&plan.service, group(&plan.service), &of_groups);
            let payer = payer.filter(|_| self.is_limited);
            Task::new(plan.service, payer, begun)
        };
        plans.into_iter().map(task).collect()
    }
}

impl State {
    /// The metrics, and, when all load balancers were compared, the events of outages.
    fn report_health(
        &mut self,
        apis: &Apis,
        polled: &Polled,
        observed: Option<&Observed>,
        is_comparison: bool,
    ) {
        let health = measure_health(polled, observed);
        if let Some(observed) = observed.filter(|_| is_comparison) {
            let look = Look {
                services: &polled.services,
                health: &health,
                age: clock::took(observed.answered),
                period: apis.resync_period(self.settings.resync_period),
            };
            events::outages(apis, &mut self.outages, &look);
        }
    }

    /// Services, by Kubernetes alone. One that was known and is not in the list any more may be of another type now.
    fn list(&self, apis: &Apis, selection: &Selection, now: Instant) -> Result<Listed, Error> {
        let settings = &self.settings;
        let period = apis.resync_period(settings.resync_period);
        let is_resync = self.due.is_resync_due(period, now);
        let is_explicit = selection.is_explicit();
        let shared = settings.sync_interval / 2;
        let (age, from) = match is_explicit {
            true => (shared, ReadFrom::Latest),
            false if self.busy().is_empty() => (shared, ReadFrom::Cache),
            // What is executed is compared with what there is now: its plan rests on a read of an earlier tick, and an
            // old list would not show that a load balancer which is to be deleted is wanted again.
            false => (Duration::ZERO, ReadFrom::Latest),
        };
        let listed = apis.load_balancer_services(age, from)?;
        let mut known = self.known.clone();
        if is_resync || is_explicit {
            let all = apis.any_services(settings.resync_period / 2)?;
            let metadata = all.value.iter().map(|service| &service.metadata);
            let ours = metadata.filter(|meta| meta.has_our_finalizer);
            known.extend(ours.map(|meta| (meta.namespace.clone(), meta.name.clone())));
        }
        for service in listed.value.iter() {
            known.remove(&full_name(service));
        }
        let mut services = listed.value.as_ref().clone();
        for (namespace, name) in known {
            let service = apis.kube.service(&namespace, &name)?;
            services.extend(
                service.filter(|one| one.has_our_finalizer() && !one.is_of_type_load_balancer()),
            );
        }
        services.sort_by_cached_key(|service| service.full_name());
        Ok(Listed {
            list: listed.value,
            services,
            is_resync,
            age,
            from,
        })
    }

    /// And nodes.
    fn poll(&self, apis: &Apis, selection: &Selection, listed: Listed) -> Result<Polled, Error> {
        let Listed {
            services,
            is_resync,
            age,
            from,
            ..
        } = listed;
        let settings = &self.settings;
        let mut tls_secrets = TlsSecrets::new();
        if selection.is_of_all() {
            let names = observe::tls_secret_names(&*apis.provider, &services);
            apis.keep_tls_secrets(&names);
            tls_secrets = apis.tls_secrets(&names)?;
        }
        let poll = Poll {
            table_max_age: age,
            // The node controller reads them whole more often, where it runs.
            whole_max_age: settings.resync_period * 2,
            metadata_max_age: Some(METADATA_MAX_AGE),
        };
        let nodes = match (selection.is_explicit(), services.is_empty()) {
            (true, _) => apis.nodes.whole(age, from)?.value,
            // Without Services the nodes are not needed.
            (false, true) => Arc::default(),
            (false, false) => apis.nodes.poll(poll)?.value,
        };
        let seen = Seen {
            services: Arc::downgrade(&listed.list),
            nodes: Arc::downgrade(&nodes),
        };
        Ok(Polled {
            seen,
            nodes,
            services,
            is_resync,
            tls_secrets,
        })
    }

    /// In the same lists no Service was due, and none is now.
    fn has_seen(&self, polled: &Polled, now: Instant) -> bool {
        let (old, new) = (&self.seen, &polled.seen);
        let mut services = polled.services.iter();
        old.services.ptr_eq(&new.services)
            && old.nodes.ptr_eq(&new.nodes)
            && !polled.is_resync
            && !self.admission.is_anything_waiting()
            // Those are read apart from these lists.
            && polled.tls_secrets.is_empty()
            && polled.services.len() == new.services.upgrade().map_or(0, |listed| listed.len())
            && !services.any(|one| self.due.backoff.is_retry_due(&one.metadata.uid, now))
    }

    /// For the Services that are due: what was read last, or for a person what is true now. A Service whose changes are
    /// being executed is not planned a second time. `shows_all`: those that are left alone, too.
    fn observe_due(
        &self,
        apis: &Apis,
        selection: &Selection,
        polled: &Polled,
        dependencies: &Dependencies,
        shows_all: bool,
    ) -> Result<Option<Observed>, Error> {
        let now = clock::now();
        let explicit = selection.is_explicit();
        let busy = self.busy();
        let is_changed = |service: &Arc<Service>| self.due.is_due(service, dependencies, now);
        // One that failed has times of its own.
        let backoff = &self.due.backoff;
        let is_compared = |service: &Arc<Service>| {
            polled.is_resync && !backoff.is_waiting(&service.metadata.uid, now)
        };
        let is_due = |service: &&Arc<Service>| {
            (want(service) != Want::Nothing || (shows_all && service.left_alone.is_some()))
                && (explicit || !self.ended.contains(&service.metadata.uid))
                && (explicit || !self.admission.is_held_back(&service.metadata.uid))
                && selection.names(&service.full_name())
                && !busy.contains(service.metadata.uid.as_str())
                && (explicit || is_compared(service) || is_changed(service))
        };
        let due: Vec<Arc<Service>> = polled.services.iter().filter(is_due).cloned().collect();
        if due.is_empty() {
            return Ok(None);
        }
        let since_write = self.last_write.map_or(Duration::MAX, clock::since);
        let age = match (explicit, polled.is_resync) {
            (true, _) => Duration::ZERO,
            (false, true) => apis.resync_period(self.settings.resync_period) / 2,
            (false, false) => Duration::MAX,
        };
        // What only is compared again can wait; a Service that changed can't.
        let urgency = match explicit {
            true => Urgency::Asked,
            false if due.iter().any(is_changed) => Urgency::Changed,
            false => Urgency::CanWait,
        };
        let (name, age) = (&self.settings.cluster_name, age.min(since_write));
        let (listed, nodes) = (&polled.services, &polled.nodes);
        let payers = due.iter().filter(|_| !explicit);
        let payers = payers.filter_map(|one| self.admission.own_payer(&one.metadata.uid));
        let payers = admission::different(payers);
        let (observed, calls) =
            counted(|| observe::observe(apis, name, due, listed, nodes, age, urgency));
        admission::charge(&payers, calls);
        let mut observed = observed?;
        observed.management = self.management;
        observed.waiting = self.admission.waiting_of(&observed.services);
        Ok(Some(observed))
    }

    fn remember(&mut self, polled: &Polled, dependencies: Dependencies) {
        let services = &polled.services;
        self.known = services.iter().map(|one| full_name(one)).collect();
        let left_alone = services.iter().filter(|one| one.left_alone.is_some());
        let left_alone: HashSet<&str> = left_alone.map(|one| &*one.metadata.uid).collect();
        self.ended.retain(|uid| left_alone.contains(uid.as_str()));
        self.unused_certificates.is_due |= self.tls_secrets != polled.tls_secrets;
        self.unused_certificates.none_exist &= polled.tls_secrets.is_empty();
        self.tls_secrets.clone_from(&polled.tls_secrets);
        self.due.listed(services, dependencies);
        self.has_no_services = services.iter().all(|one| want(one) == Want::Nothing);
    }
}

impl Polled {
    fn dependencies(&self, apis: &Apis) -> Dependencies {
        Dependencies::new(apis, &self.nodes, &self.services, &self.tls_secrets)
    }
}

/// For the metrics.
fn measure(polled: &Polled) {
    let is_in = |service: &Service, state: &str| match want(service) {
        Want::Nothing | Want::Release => false,
        Want::Remove => state == "leaving",
        Want::Ensure if service.status.load_balancer.ingress.is_empty() => state == "pending",
        Want::Ensure => state == "managed",
    };
    for state in ["managed", "pending", "leaving"] {
        let services = polled.services.iter().filter(|one| is_in(one, state));
        LOAD_BALANCERS.set(&[state], services.count() as f64);
    }
}

/// The same, by what was read of the load balancers for the plans, which is returned. It stays as it is until the next
/// read.
fn measure_health(polled: &Polled, observed: Option<&Observed>) -> Vec<SeenHealth> {
    let services = polled.services.iter();
    let wanted = services.filter(|one| want(one) == Want::Ensure);
    let wanted: HashSet<&str> = wanted.map(|one| &*one.metadata.uid).collect();
    let health = match observed {
        Some(observed) => observed.snapshot.health(&wanted),
        None if wanted.is_empty() => Vec::new(),
        None => return Vec::new(),
    };
    for state in BalancerHealth::ALL {
        let such = health.iter().filter(|one| one.counts.health() == *state);
        LOAD_BALANCERS_HEALTH.set(&[state.name()], such.count() as f64);
    }
    for use_of in BalancerUse::ALL {
        let such = health.iter().filter(|one| one.use_of == *use_of);
        LOAD_BALANCERS_USE.set(&[use_of.name()], such.count() as f64);
    }
    let certificates = observed.and_then(|observed| observed.snapshot.certificates(&wanted));
    // Where a comparison of all Services read none, none names one.
    if certificates.is_some() || polled.is_resync {
        let ends = certificates
            .iter()
            .flatten()
            .filter_map(|one| one.not_valid_after);
        let first = ends.min().map_or(0, Timestamp::as_second);
        CERTIFICATE_EXPIRY.set(&[], first as f64);
    }
    let age = observed.map_or(Duration::ZERO, |observed| clock::took(observed.answered));
    let read = clock::timestamp().as_second() as f64 - age.as_secs_f64();
    LOAD_BALANCERS_READ.set(&[], read.floor());
    health
}

fn waiting(services: &[Arc<Service>]) -> String {
    let services = services.iter();
    let ours = services.filter(|service| want(service) != Want::Nothing);
    controller::waiting(ours.count(), "Service")
}
