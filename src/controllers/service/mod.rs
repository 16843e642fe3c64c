//! The service controller creates a load balancer for each Service of type LoadBalancer, keeps it in the desired state,
//! and removes it.
//!
//! In each `tick` (one run of the controller), `take_up` polls Services and nodes, and makes a plan for each Service
//! that needs one. These plans may use cached data (`observe`, `plan`). When a plan has a write, `sync` reads
//! everything again and makes a new plan. Then it adds the finalizer, the executor makes the changes in the cloud, and
//! `sync` writes the status.
//!
//! | file | its one job |
//! |---|---|
//! | `agenda` | decides when a Service is planned and why; how fresh the data must be, and how urgent the calls are |
//! | `admission` | decides which changes may begin now, and which namespace's share of API calls is charged for them |
//! | `certificates` | deletes certificates that were uploaded from Secrets and that nothing uses any more |
//! | `observe` | reads the data for plans from Kubernetes and from the cloud |
//! | `plan` | decides what should be done, as a pure function |
//! | `sync` | carries out the plans of a tick, for all Services |
//! | `departures` | notes which nodes will stop soon, and since when |
//! | `pods` | reads on which nodes the pods of Services run |
//! | `events` | reports what happens |
//! | `health` | finds which Services get no traffic, and why |
//! | `orphans` | finds and deletes load balancers whose Service does not exist |
//!
//! The provider decides what a load balancer should look like. This controller does what Kubernetes asks. It adds the
//! finalizer before it creates anything, and writes the status after that. Each write is planned from data that were
//! just read, and not from cached data. A Service waits for another Service only when both want the same object in the
//! cloud.

mod admission;
mod agenda;
mod certificates;
mod departures;
mod events;
mod health;
mod observe;
mod orphans;
mod plan;
mod pods;
mod sync;

pub use departures::departs;
pub use events::{ago, failed_tries, past_events};
pub use health::{inspect, trouble};
pub use observe::{Management, NAME, ServiceSettings, groups};
pub use orphans::{kept, known_orphans};
pub use plan::{ServiceChange, ServicePlan, ServiceWrite, Want, check, want};
pub use sync::ServiceController;

use super::controller::{self, Controller, Progress, Proposal, Selection};
use super::executor::{Execution, Executor, Requests};
use super::report::{Outage, Report};
use super::schedule::{Reads, Why};
use crate::cache::{Apis, CacheError, Poll, ReadFrom};
use crate::kube::KubeService;
use crate::metrics::{
    CERTIFICATE_EXPIRY, LOAD_BALANCERS, LOAD_BALANCERS_HEALTH, LOAD_BALANCERS_READ,
    LOAD_BALANCERS_TRAFFIC, LOAD_BALANCERS_USE,
};
use crate::provider::order;
use crate::provider::{
    Balancer, BalancerHealth, BalancerUse, Cluster, KeptObject, LoadBalancers, SeenHealth,
    Snapshot, TargetHistory, TlsSecrets, Urgency, calls::counted, clock,
};
use admission::Admission;
use agenda::{Agenda, Dependencies, PassScope};
use certificates::CertificateSearch;
use departures::Departures;
use health::{Look, ServiceOutages};
use jiff::Timestamp;
use observe::{ObservedServices, SeenObjects, full_name};
use pods::Pods;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use sync::{ServiceSync, Task};

/// How old the labels of nodes may be. A label can make a node a target or exclude it, and such a change is noticed
/// within this time.
const METADATA_MAX_AGE: Duration = Duration::from_secs(30);

impl Controller for ServiceController {
    fn name(&self) -> &'static str {
        NAME
    }

    fn interval(&self) -> Duration {
        self.settings.sync_interval
    }

    fn tick(&mut self, apis: &Apis, selection: &Selection) -> Report {
        self.sync(apis, selection, false).0
    }

    fn propose(&self, apis: &Apis, selection: &Selection) -> Result<Vec<Proposal>, CacheError> {
        let plans = self.evaluate_pass(apis, selection)?;
        Ok(plans.iter().map(|plan| plan.proposal()).collect())
    }
}

impl ServiceController {
    pub fn new(settings: ServiceSettings) -> ServiceController {
        ServiceController {
            management: Management::Usual,
            agenda: Agenda::default(),
            departures: Departures::new(settings.departing_cordoned),
            pods: Pods::default(),
            admission: Admission::default(),
            executor: Executor::new(NAME),
            queued: Vec::new(),
            settings,
            certificates: CertificateSearch::default(),
            outages: ServiceOutages::default(),
        }
    }

    /// Returns the plans that a sync pass would make now for these Services. Also returns the plans that delete unused
    /// certificates and, when a setting asks for that, load balancers whose Service does not exist.
    pub fn evaluate_pass(
        &self,
        apis: &Apis,
        selection: &Selection,
    ) -> Result<Vec<ServicePlan>, CacheError> {
        let begun = clock::now();
        let (mut plans, wanted) = self.evaluate_with_secrets(apis, selection)?;
        if self.settings.delete_orphans {
            plans.extend(self.orphans(apis, begun)?.into_iter().filter(|plan| plan.has_writes()));
        }
        if selection.is_of_all() {
            let unused = certificates::find(apis, &wanted, Urgency::Asked)?;
            plans.extend(unused.and_then(certificates::plan));
        }
        Ok(plans)
    }

    /// Returns the plans for the Services in `selection`. A Service that this controller must not manage gets a plan
    /// only when it has a load balancer, so that a user can see the load balancer.
    pub fn evaluate(
        &self,
        apis: &Apis,
        selection: &Selection,
    ) -> Result<Vec<ServicePlan>, CacheError> {
        Ok(self.evaluate_with_secrets(apis, selection)?.0)
    }

    /// Returns the plans for the Services that `selection` asks for, and the contents of all Secrets that Services
    /// name. When `selection` asks only for Services with certain names, no Secrets are read, and the second value is
    /// empty.
    fn evaluate_with_secrets(
        &self,
        apis: &Apis,
        selection: &Selection,
    ) -> Result<(Vec<ServicePlan>, TlsSecrets), CacheError> {
        if apis.provider.load_balancers().is_none() {
            return Ok(Default::default());
        }
        let begun = clock::now();
        let seen = self.look(apis, selection)?;
        let observed = self.observe_next(apis, selection, &seen, true)?;
        let Some(mut observed) = observed else {
            return Ok((Vec::new(), seen.tls_secrets));
        };
        let mut plans = plan::plan(&observed, true);
        let mut pods = Pods::default();
        if pods.read_for(apis, &plans, &seen.nodes, None) {
            observed.cluster.history.pods = pods.known();
            plans = plan::plan(&observed, true);
        }
        while observed.read_needs(apis, &seen.nodes, plan::needs(&plans), begun)? {
            plans = plan::plan(&observed, true);
        }
        plans.retain(|plan| plan.want != Want::Nothing || plan.cloud.found.is_some());
        plan::in_turn(&*apis.provider, &mut plans);
        health::explain(apis, &seen.nodes, &mut plans);
        Ok((plans, seen.tls_secrets))
    }

    /// Returns a plan without changes for each Service that this controller manages. It is used when the cloud does not
    /// answer. The annotations of the Services are then checked in the same way as those in a manifest file, i.e.
    /// without the state of the cloud. The snapshot `manifests` stands for a Hetzner Cloud project without load
    /// balancers.
    pub fn by_kubernetes(
        &self,
        apis: &Apis,
        manifests: &dyn Snapshot,
    ) -> Result<Vec<ServicePlan>, CacheError> {
        let seen = self.look(apis, &Selection::All)?;
        let services = seen.services.iter().map(|service| &**service);
        let namespaces = Arc::clone(&seen.namespaces);
        let groups = groups(&*apis.provider, &namespaces, services);
        let cluster = Cluster { groups, namespaces, ..Cluster::default() };
        let plan = |service: &Arc<KubeService>| {
            let mut plan = ServicePlan::of(service, want(service));
            plan.findings = check(service, manifests, &cluster).unwrap_or_default();
            plan
        };
        Ok(ours(&seen.services).map(plan).collect())
    }

    /// Returns a plan without changes for each load balancer in the cloud that was made for a Service of any cluster.
    /// It is used when Kubernetes does not answer.
    pub fn by_cloud(&self, apis: &Apis) -> Result<Vec<ServicePlan>, CacheError> {
        let snapshot = apis.load_balancers(&[], Duration::ZERO, Urgency::Asked)?;
        let plan =
            |(balancer, service): (Balancer, String)| orphans::plan_alone(&service, balancer);
        Ok(snapshot.value.all().into_iter().map(plan).collect())
    }

    /// Returns the load balancers and certificates that stay in the cloud because Services that do not exist any more
    /// asked to keep them.
    pub fn kept(&self, apis: &Apis) -> Result<Vec<KeptObject>, CacheError> {
        let Some(provider) = apis.provider.load_balancers() else {
            return Ok(Vec::new());
        };
        let (cluster, mut kept) = orphans::kept(apis)?;
        kept.extend(provider.kept(&cluster).map_err(CacheError::Cloud)?);
        Ok(kept)
    }

    /// Makes one sync pass over the Services that `selection` asks for. Returns a report of what came of each Service.
    /// When `for_people` is `true` (a person waits for the result), the last plan of each Service is returned, too.
    pub fn sync(
        &mut self,
        apis: &Apis,
        selection: &Selection,
        for_people: bool,
    ) -> (Report, Vec<ServicePlan>) {
        let Some(provider) = apis.provider.load_balancers() else {
            return (Report::default(), Vec::new());
        };
        let mut sync = ServiceSync {
            state: self,
            apis,
            selection,
            for_people,
            is_limited: !for_people && !selection.is_explicit(),
            payers: Vec::new(),
            report: Report::default(),
            plans: Vec::new(),
            compared: None,
            is_closed: false,
            has_written: false,
        };
        sync.run(provider);
        let ServiceSync { payers, mut report, mut plans, compared, is_closed, has_written, .. } =
            sync;
        if for_people {
            // The work on Services ends in any order. The plans, changes and failures are sorted here by the names of
            // the Services, so that the lines about one Service stand together in the output.
            order::sort_by_key(&mut plans, |plan| plan.name());
            order::sort_by(&mut report.changes, |one, other| one.0.cmp(&other.0));
            order::sort_by(&mut report.failures, |one, other| one.object.cmp(&other.object));
        }
        let compared = compared.filter(|_| !report.has(Progress::Unreached));
        let ServiceController { settings, agenda, certificates, .. } = self;
        certificates.is_due |= has_written || compared.is_some();
        if report.outage.is_none() {
            // The search for orphans (load balancers whose Service does not exist) needs the list of load balancers.
            // After a sync pass without writes, it uses the list that was read for the comparison, and needs no API
            // call. After a sync pass with writes, that list is too old. The search is then skipped, unless a setting
            // asks for the deletion of orphans.
            let compared = compared.filter(|_| !has_written || settings.delete_orphans);
            if let Some(begun) =
                agenda.next_orphan_search(compared, !report.has(Progress::Unfinished))
            {
                orphans::look_after(apis, settings, begun, &mut report);
                agenda.searched_orphans(begun, report.orphans);
            }
        }
        let is_settled = report.is_complete() && report.outage.is_none();
        if is_settled && selection.is_of_all() && !is_closed {
            plans.extend(certificates.delete_unused(apis, &payers, &mut report));
        }
        (report, plans)
    }

    /// Returns the plans for load balancers of this cluster whose Service does not exist. The plans are made from data
    /// that were read after `begun`.
    pub fn orphans(&self, apis: &Apis, begun: Instant) -> Result<Vec<ServicePlan>, CacheError> {
        let found = orphans::find(apis, begun, Duration::ZERO, Urgency::Needed)?;
        Ok(found.into_iter().map(orphans::plan).collect())
    }

    /// Deletes those load balancers with the given IDs that are still orphans (their Service does not exist). Returns a
    /// report, and the plans of these load balancers, which also say what was deleted.
    pub fn delete_orphans(&self, apis: &Apis, ids: &HashSet<u64>) -> (Report, Vec<ServicePlan>) {
        let mut report = Report::default();
        let is_chosen = |id| ids.contains(&id);
        let plans = orphans::delete(apis, &self.settings, is_chosen, &mut report);
        (report, plans)
    }
}

impl ServiceSync<'_> {
    /// Begins the changes of the Services that need a sync, and works on them for at most one sync interval. If a
    /// request to the cloud is still in flight at the end of the interval, the work goes on for another interval, and
    /// the changes of more Services can begin. A change that only waits until the cloud has ended an action is
    /// continued in the next sync pass. When a person asked for the Services by a command, the work goes on until all
    /// changes have ended.
    fn run(&mut self, provider: &dyn LoadBalancers) {
        let concurrency = self.state.settings.concurrency;
        std::thread::scope(|scope| {
            let mut requests = Requests::new(scope, provider, concurrency);
            loop {
                let begun = clock::now();
                let interval = self.state.settings.sync_interval;
                let until = (!self.selection.is_explicit()).then(|| begun + interval);
                self.report.outage = self.take_up(begun, &mut requests).err();
                self.execute(&mut requests, until);
                // The threads that send requests run in a thread scope, and the end of the scope waits until all
                // requests are answered. This wait would delay the work on other Services. So the loop goes on as long
                // as there are unfinished changes and a request is in flight.
                if self.state.executor.executions().is_empty() || !requests.are_in_flight() {
                    break;
                }
            }
        });
        for task in self.state.tasks() {
            let object = task.service.object().for_people();
            self.report.note(object, Progress::Unfinished);
        }
    }

    /// Makes plans for all Services that need a plan and are not being changed yet, and begins their changes.
    fn take_up(&mut self, begun: Instant, requests: &mut Requests) -> Result<(), Outage> {
        let mut seen = self.look_admitted().map_err(|error| {
            // Kubernetes did not answer, so it is not certain that changes which remove something are still right.
            // These changes are stopped.
            self.state.executor.stop(Execution::takes_away);
            Outage::from(error)
        })?;
        let (apis, selection, state) = (self.apis, self.selection, &mut *self.state);
        let is_waiting = state.admission.is_anything_waiting();
        let is_settled = state.agenda.is_settled(&seen, begun)
            && !state.departures.is_pending()
            && !state.pods.is_due();
        if !selection.is_explicit() && !is_waiting && is_settled {
            return Ok(());
        }
        let waiting = |error| {
            let waiting = controller::waiting(ours(&seen.services).count(), "Service");
            Outage { error, waiting }
        };
        state.saw(apis, &seen);
        let observed = state.observe_next(apis, selection, &seen, false);
        let observed = observed.map_err(waiting)?;
        if observed.is_none() && state.busy().is_empty() {
            state.agenda.settle(&seen);
        }
        let health = measure_health(&seen, observed.as_ref());
        let is_comparison = seen.is_comparison && selection.is_of_all() && !self.for_people;
        if let Some(observed) = observed.as_ref().filter(|_| is_comparison) {
            let look = Look {
                services: &seen.services,
                health: &health,
                age: clock::took(observed.answered),
                period: apis.resync_period(state.settings.resync_period),
            };
            events::outages(apis, &mut state.outages, &look);
        }
        let mut in_order = match observed {
            Some(observed) => self.first_plans(observed, &seen),
            None => Vec::new(),
        };
        measure(&seen);
        // All nodes are read again before a write. The list of nodes from the beginning of this sync pass is not needed
        // any more and is dropped here, because two lists of thousands of nodes would take most of the memory.
        seen.nodes = Arc::default();
        let is_taken_up = |plan: &mut ServicePlan| plan.is_taken_up();
        let mut to_do: Vec<_> = in_order.extract_if(.., is_taken_up).collect();
        // Older Services already take all the memory that is allowed for Services, so this Service has lost large
        // fields, e.g. its annotations. A new read of this Service could not change that, so no new plan is made.
        let is_above =
            |plan: &mut ServicePlan| plan.service.above.is_some() && plan.obstacle.is_some();
        for plan in to_do.extract_if(.., is_above) {
            self.leave_as_it_is(plan);
        }
        self.report.planned += to_do.iter().map(|plan| plan.changes.len()).sum::<usize>();
        // `begun` is the time at which this sync pass began. The changes of the Services in `to_do` begin only now, so
        // this program has not changed their load balancers since `begun`. A list of load balancers that was requested
        // after `begun` is therefore new enough for these Services.
        let tasks = self.tasks(to_do, begun);
        let planned = self.plan_and_begin(tasks);
        self.state.executor.send(requests);
        for plan in in_order {
            self.leave_as_it_is(plan);
        }
        planned.map_err(waiting)?;
        if seen.is_comparison && !self.report.has(Progress::Unreached) {
            self.state.agenda.schedule.compared = Some(begun);
            self.compared = Some(begun);
        }
        Ok(())
    }

    /// Makes the first plans of a sync pass for the observed Services, from data that may be cached. When a plan
    /// depends on the pods of a Service, and these pods were not read yet, they are read, and the plans are made again.
    fn first_plans(
        &mut self,
        mut observed: ObservedServices,
        seen: &SeenObjects,
    ) -> Vec<ServicePlan> {
        let state = &mut *self.state;
        let mut plans = plan::plan(&observed, self.for_people);
        if state.pods.read_for(self.apis, &plans, &seen.nodes, None) {
            observed.cluster.history.pods = state.pods.known();
            plans = plan::plan(&observed, self.for_people);
        }
        state.departures.planned(plans.iter().map(|plan| (&plan.object.uid, &plan.cloud)));
        for plan in &plans {
            state.agenda.keeps_targets(&plan.object.uid, plan.cloud.keeps_targets());
        }
        plans
    }

    /// Reads Services and nodes. A change of a Service has to wait when its namespace has used up its share of API
    /// calls (the calls that ccm allows each namespace). The result then contains the Service as it was before the
    /// change.
    fn look_admitted(&mut self) -> Result<SeenObjects, CacheError> {
        let (apis, selection, state) = (self.apis, self.selection, &mut *self.state);
        let mut seen = state.list(apis, selection)?;
        if self.is_limited {
            let busy = state.payers();
            let begin_to_wait = state.admission.look(&mut seen.services, &state.agenda, &busy);
            for service in begin_to_wait {
                events::waits(apis, &service);
            }
        }
        state.read_dependencies(apis, selection, &mut seen)?;
        Ok(seen)
    }

    /// Returns a task for each plan. A task is the work on the Service of the plan. It says which namespace's share of
    /// API calls (the calls that ccm allows each namespace) is charged for this work.
    fn tasks(&self, plans: Vec<ServicePlan>, begun: Instant) -> Vec<Task> {
        let admission = &self.state.admission;
        let group = observe::known_group(self.apis);
        let of_groups = admission.payers_of_groups(&group);
        let task = |plan: ServicePlan| {
            let payer = admission.payer(&plan.service, group(&plan.service), &of_groups);
            let payer = payer.filter(|_| self.is_limited);
            Task::new(plan.facts.service, payer, begun)
        };
        plans.into_iter().map(task).collect()
    }
}

impl ServiceController {
    /// Reads Services, and the nodes and Secrets on which their plans depend. Nothing is read from the cloud.
    fn look(&self, apis: &Apis, selection: &Selection) -> Result<SeenObjects, CacheError> {
        let mut seen = self.list(apis, selection)?;
        self.read_dependencies(apis, selection, &mut seen)?;
        Ok(seen)
    }

    /// Returns how old the lists of Services and nodes may be for a sync pass, and whether the API server may answer
    /// the requests for them from its cache.
    fn reads_of_kubernetes(&self, selection: &Selection) -> (Duration, ReadFrom) {
        let shared = self.settings.sync_interval / 2;
        if selection.is_explicit() {
            (shared, ReadFrom::Latest)
        } else if self.busy().is_empty() {
            (shared, ReadFrom::Cache)
        } else {
            // Changes from an earlier sync pass are still being made, and this sync pass must check whether they are
            // still wanted. For example, a Service can need its load balancer again while a deletion of this load
            // balancer is being made. An old list could hide this, so the Services are read now, and not from the API
            // server's cache.
            (Duration::ZERO, ReadFrom::Latest)
        }
    }

    /// Reads the Services, but not their nodes and Secrets. The API server's list contains only Services of type
    /// LoadBalancer. When a Service of the last list is missing now, its type may have been changed. It is then read by
    /// its name, and belongs to the result while it has our finalizer.
    fn list(&self, apis: &Apis, selection: &Selection) -> Result<SeenObjects, CacheError> {
        let period = apis.resync_period(self.settings.resync_period);
        let is_comparison = self.agenda.schedule.is_comparison_due(period, clock::now());
        let (age, from) = self.reads_of_kubernetes(selection);
        let list = apis.load_balancer_services(age, from)?.value;
        let mut known = self.agenda.names();
        if is_comparison || selection.is_explicit() {
            let all = apis.any_services(period / 2)?;
            let metadata = all.value.iter().map(|service| &service.metadata);
            let ours = metadata.filter(|meta| meta.has_our_finalizer);
            known.extend(ours.map(|meta| (meta.namespace.clone(), meta.name.clone())));
        }
        for service in list.iter() {
            known.remove(&full_name(service));
        }
        let mut services = list.as_ref().clone();
        for (namespace, name) in known {
            let service = apis.kube.service(&namespace, &name)?;
            services.extend(service.filter(|service| {
                service.has_our_finalizer() && !service.is_of_type_load_balancer()
            }));
        }
        services.sort_by_cached_key(|service| service.full_name());
        Ok(SeenObjects { list, services, is_comparison, ..SeenObjects::default() })
    }

    /// Reads what the plans for the Services in `seen` need from Kubernetes, and stores it in `seen`: the nodes, and
    /// the Secrets that the Services name.
    fn read_dependencies(
        &self,
        apis: &Apis,
        selection: &Selection,
        seen: &mut SeenObjects,
    ) -> Result<(), CacheError> {
        if selection.is_of_all() {
            let names = observe::tls_secret_names(&*apis.provider, &seen.services);
            apis.keep_tls_secrets(&names);
            seen.tls_secrets = apis.tls_secrets(&names)?;
        }
        if !seen.services.is_empty() {
            let period = apis.resync_period(self.settings.resync_period);
            let max_age = if seen.is_comparison { period / 2 } else { Duration::MAX };
            seen.namespaces = apis.namespaces(max_age);
        }
        let (age, from) = self.reads_of_kubernetes(selection);
        if selection.is_explicit() {
            seen.nodes = apis.nodes.whole(age, from)?.value;
        } else if !seen.services.is_empty() {
            let poll = Poll {
                table_max_age: age,
                // How old the complete Node objects may be. The node controller reads them more often than this. While
                // it runs, its Node objects are used, and the service controller need not list them itself.
                whole_max_age: self.settings.resync_period * 2,
                metadata_max_age: Some(METADATA_MAX_AGE),
            };
            let (provider, services) = (&*apis.provider, &seen.services);
            let is_asked = !departures::delays(provider, services, &seen.namespaces).is_empty();
            let nodes =
                if is_asked { apis.nodes.poll_departing(poll) } else { apis.nodes.poll(poll) };
            seen.nodes = nodes?.value;
        }
        Ok(())
    }

    /// Stores which Services, nodes and Secrets Kubernetes has shown. Then drops those changes of load balancers that
    /// were planned from older versions of these objects and were not sent yet.
    fn saw(&mut self, apis: &Apis, seen: &SeenObjects) {
        let delays = departures::delays(&*apis.provider, &seen.services, &seen.namespaces);
        self.departures.saw(delays, &seen.services, &seen.nodes);
        self.pods.saw(apis, &seen.services, &seen.nodes);
        let departures = self.departures.print(&seen.nodes);
        let dependencies = Dependencies::new(apis, seen, departures, &self.pods);
        self.agenda.saw(seen, dependencies);
        self.certificates.saw(&seen.tls_secrets);
        self.stop_stale(&seen.services);
    }

    /// Reads the data for the Services that need a plan next. Returns `None` when no Service needs one. A person's
    /// request gets fresh data, while a sync pass can use data that were read earlier. Services that are being changed
    /// are left out. With `shows_all`, the result also contains Services that this controller must not manage, because
    /// a command shows them to a user.
    fn observe_next(
        &self,
        apis: &Apis,
        selection: &Selection,
        seen: &SeenObjects,
        shows_all: bool,
    ) -> Result<Option<ObservedServices>, CacheError> {
        let mut barred = self.busy();
        if !selection.is_explicit() {
            barred.extend(self.admission.held_back());
        }
        let scope = PassScope {
            selection,
            shows_all,
            barred,
            period: apis.resync_period(self.settings.resync_period),
        };
        let next = self.agenda.next(seen, &scope);
        if next.services.is_empty() {
            return Ok(None);
        }
        let to_pay = next.services.iter().filter(|(_, why)| *why != Why::Asked);
        let payers = to_pay.filter_map(|(one, _)| self.admission.own_payer(&one.metadata.uid));
        let payers = admission::different(payers);
        let services = next.services.into_iter().map(|(one, _)| one).collect();
        let (observed, calls) = counted(|| self.observe(apis, services, seen, next.reads));
        admission::charge(&payers, calls);
        observed.map(Some)
    }

    fn observe(
        &self,
        apis: &Apis,
        services: Vec<Arc<KubeService>>,
        seen: &SeenObjects,
        reads: Reads,
    ) -> Result<ObservedServices, CacheError> {
        let waiting = self.admission.waiting_of(&services);
        let mut observed = observe::observe(apis, &self.departures, services, seen, reads)?;
        observed.cluster.history = TargetHistory {
            removed_often: self.departures.removed_often(),
            exchanged: self.pods.exchanged(),
            pods: self.pods.known(),
        };
        self.settings.cluster_name.clone_into(&mut observed.cluster.name);
        Ok(ObservedServices { management: self.management, waiting, ..observed })
    }
}

/// Sets the metric that counts the Services by the state of their load balancers: `managed` when the status of the
/// Service has an address, `pending` while it has none, and `leaving` while the load balancer is removed.
fn measure(seen: &SeenObjects) {
    let state = |service: &Arc<KubeService>| match want(service) {
        Want::Nothing | Want::Release => "",
        Want::Remove => "leaving",
        Want::Ensure if service.status.load_balancer.ingress.is_empty() => "pending",
        Want::Ensure => "managed",
    };
    for name in ["managed", "pending", "leaving"] {
        let count = seen.services.iter().map(state).filter(|state| *state == name).count();
        LOAD_BALANCERS.set(&[name], count as f64);
    }
}

/// Sets the metrics about load balancers: how many of their targets are healthy, whether they are shared or external,
/// and when their certificates expire. `observed` is the data that was read for the plans. Returns how healthy the
/// targets are according to this data. When Services want load balancers but `observed` is `None`, the metrics keep
/// their values, and the result is empty.
fn measure_health(seen: &SeenObjects, observed: Option<&ObservedServices>) -> Vec<SeenHealth> {
    let wanted = ours(&seen.services).filter(|service| want(service) == Want::Ensure);
    let wanted: HashSet<&str> = wanted.map(|service| &*service.metadata.uid).collect();
    let health = match observed {
        Some(observed) => observed.snapshot.health(&wanted),
        None if wanted.is_empty() => Vec::new(),
        None => return Vec::new(),
    };
    for state in BalancerHealth::ALL {
        let such = health.iter().filter(|health| health.counts.health() == *state);
        LOAD_BALANCERS_HEALTH.set(&[state.name()], such.count() as f64);
    }
    for use_of in BalancerUse::ALL {
        let such = health.iter().filter(|health| health.use_of == *use_of);
        LOAD_BALANCERS_USE.set(&[use_of.name()], such.count() as f64);
    }
    let replacing = health.iter().filter(|health| health.is_replacing).count();
    LOAD_BALANCERS_USE.set(&["replacing"], replacing as f64);
    let traffic = health.iter().filter_map(|health| health.traffic_ratio);
    LOAD_BALANCERS_TRAFFIC.set(&[], traffic.fold(0.0, f64::max));
    let certificates = observed.and_then(|observed| observed.snapshot.certificates(&wanted));
    // This metric says when the first certificate of a load balancer expires. Certificates are read only while a
    // Service uses a certificate. When a comparison of all Services with their load balancers (`is_comparison`) has not
    // read them, no Service uses one, and the metric becomes 0. When another sync pass has not read them, nothing is
    // known, and the metric keeps its value.
    if certificates.is_some() || seen.is_comparison {
        let all = certificates.iter().flatten();
        let first = all.filter_map(|certificate| certificate.not_valid_after).min();
        let first = first.map_or(0, Timestamp::as_second);
        CERTIFICATE_EXPIRY.set(&[], first as f64);
    }
    let age = observed.map_or(Duration::ZERO, |observed| clock::took(observed.answered));
    let read = clock::timestamp().as_second() as f64 - age.as_secs_f64();
    LOAD_BALANCERS_READ.set(&[], read.floor());
    health
}

fn ours(services: &[Arc<KubeService>]) -> impl Iterator<Item = &Arc<KubeService>> {
    services.iter().filter(|service| want(service) != Want::Nothing)
}
