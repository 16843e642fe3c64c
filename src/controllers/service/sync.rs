//! Takes the plans of a tick to their end. Everything is read again for what has to be written, and only a plan
//! on these reads is executed. After a change that may have dropped other state, the Service is read and
//! planned once more.
//!
//! A Service is taken up, planned, executed and ended by itself. The Service waits for another Service only when that
//! one already works on the load balancer, or takes the name that the Service wants.

use super::admission::{self, Admission};
use super::agenda::{self, Agenda};
use super::certificates::CertificateSearch;
use super::departures::Departures;
use super::events;
use super::health::ServiceOutages;
use super::observe::{self, Management, NAME, ObservedServices, SeenObjects, ServiceSettings};
use super::plan::{self, ServiceChange, ServicePlan, ServiceWrite, Want};
use crate::cache::{Apis, CacheError, ReadFrom};
use crate::controllers::controller::{Progress, Selection};
use crate::controllers::executor::{End, Execution, Executor, Requests};
use crate::controllers::report::{Report, count_write, log_change};
use crate::controllers::schedule::Why;
use crate::controllers::share::Payer;
use crate::kube::{
    CONFLICT_TRIES, KubeClient, KubeError, KubeService, LOAD_BALANCER_FINALIZER, retry_on_conflict,
};
use crate::provider::{
    ChangeKind, Claim, ErrorKind, Finding, Write, calls::counted, clock, without_correlations,
};
use crate::text;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

/// How many plans a Service gets in one tick. For example, the first plan creates a load balancer, the second one
/// attaches it, and the third one finds nothing left to do. A Service that needs more plans than this is left to the
/// next tick, and has failed when nothing was written by its plans.
const PLANS_AT_MOST: u32 = CONFLICT_TRIES;

/// The controller of Services, with the state that is kept from one tick to the next.
pub struct ServiceController {
    pub(super) settings: ServiceSettings,
    pub management: Management,
    pub(super) agenda: Agenda,
    pub(super) departures: Departures,
    pub(super) admission: Admission,
    /// The executions that change the load balancers of Services. They are continued in the next tick.
    pub(super) executor: Executor<Work>,
    /// The Services that wait for the end of an execution, because it claims the load balancer or the name
    /// that they want.
    pub(super) queued: Vec<Task>,
    pub(super) certificates: CertificateSearch,
    /// The Services that get no traffic, as of the last comparison of all load balancers.
    pub(super) outages: ServiceOutages,
}

/// The work on the Services in one tick.
pub(super) struct ServiceSync<'a> {
    pub(super) state: &'a mut ServiceController,
    pub(super) apis: &'a Apis,
    pub(super) selection: &'a Selection,
    /// Whether a person reads the plans, see `plan::plan`. When a person reads them, the last plan of each
    /// Service is kept.
    pub(super) for_people: bool,
    /// Whether changes of Services wait when their namespace has no calls left. A person's request never
    /// waits for this.
    pub(super) is_limited: bool,
    /// The payers of the changes that were made in this tick.
    pub(super) payers: Vec<Payer>,
    pub(super) report: Report,
    pub(super) plans: Vec<ServicePlan>,
    /// When the comparison of all Services began, if this tick made one.
    pub(super) compared: Option<Instant>,
    /// Whether the gate refused a write. Then no other write is tried.
    pub(super) is_closed: bool,
    /// Whether changes in the cloud have begun or ended in this tick.
    pub(super) has_written: bool,
}

/// A Service in work, from the moment when it is taken up until its work ends.
pub(super) struct Task {
    /// The Service as it was read or written last.
    pub(super) service: Arc<KubeService>,
    /// The payer of the calls. `None` means that no change of a Service asked for them.
    payer: Option<Payer>,
    /// The moment since which the list of load balancers for a plan must have been requested. Before this moment,
    /// changes of this Service were being made.
    since: Instant,
    plans: u32,
    /// How many creations were refused in part. After the first, the servers are read again for the next plan. After
    /// the second, the load balancer is created without what may be refused.
    refused: u32,
    /// The kind of the change in the cloud with which the present plan began. `None` when no change was begun.
    kind: Option<ChangeKind>,
    /// The name and the ID of the load balancer on which the Service is worked on.
    balancer: Option<(String, u64)>,
    /// Whether a write was made for the Service.
    has_changed: bool,
    /// The change of the last plan that was not made because the cloud had changed meanwhile, see `Applied::Overtaken`.
    overtaken: Option<String>,
    /// Every write that was made, as JSON for programs.
    made: Vec<Value>,
    /// The execution after whose end a queued Service is taken up.
    waits_for: Option<u64>,
}

/// The Service for which an execution makes changes, with the plan of these changes.
pub(super) struct Work {
    task: Task,
    plan: ServicePlan,
    /// The facts on which the plan rests, if the plan creates a load balancer. Other plans do not keep them, because
    /// facts about thousands of nodes take much memory.
    observed: Option<Arc<ObservedServices>>,
    claims: HashSet<Claim>,
}

/// The plans, and the facts on which they rest. The facts are `None` when none of the Services exists any more.
type Plans = (Option<Arc<ObservedServices>>, Vec<ServicePlan>);

impl ServiceController {
    /// Returns the Services whose changes are being made, or wait for the changes of another Service.
    pub(super) fn tasks(&self) -> impl Iterator<Item = &Task> {
        let executed = self.executor.executions().iter().map(|execution| &execution.subject.task);
        executed.chain(&self.queued)
    }

    /// Returns the UIDs of the Services whose changes are being made, or wait for the changes of another Service.
    pub(super) fn busy(&self) -> HashSet<&str> {
        self.tasks().map(Task::uid).collect()
    }

    /// Returns the payers of the Services whose changes are being made, or wait for the changes of another Service.
    pub(super) fn payers(&self) -> Vec<Payer> {
        self.tasks().filter_map(|task| task.payer.clone()).collect()
    }

    /// Stops the executions whose plan is out of date, so that their remaining changes are dropped. This happens when
    /// the Service was changed or deleted. When nodes have changed, or Services that share the load balancer, the
    /// remaining changes are dropped only if they take something away, because the replacement must be added first, and
    /// a target may be another owner's now. Changes that only add targets do no harm, and are followed by the next
    /// plan. A Service that waits for a load balancer leaves the queue when the Service has changed, because it may
    /// want another load balancer, and is due again.
    pub(super) fn stop_stale(&mut self, services: &[Arc<KubeService>]) {
        let agenda = &self.agenda;
        let services = by_uid(services);
        let is_stale = |uid: &str, takes_away: bool| match services.get(uid) {
            None => true,
            Some(service) => match agenda.outdated(service) {
                Some(Why::Overtaken) => takes_away,
                why => why.is_some(),
            },
        };
        self.executor
            .stop(|execution| is_stale(execution.subject.task.uid(), execution.takes_away()));
        self.queued.retain(|task| !is_stale(task.uid(), false));
    }
}

impl ServiceSync<'_> {
    /// Works on all executions until none is left, or until the moment `until`. As soon as the execution of a Service
    /// has ended, the Service is finished, or planned again if it needs a new plan.
    pub(super) fn execute(&mut self, requests: &mut Requests, until: Option<Instant>) {
        loop {
            let over = self.state.executor.work(requests, until);
            if over.is_empty() {
                return;
            }
            let ended: HashSet<u64> = over.iter().map(|execution| execution.id).collect();
            let is_free = |task: &mut Task| task.waits_for.is_some_and(|id| ended.contains(&id));
            let free: Vec<Task> = self.state.queued.extract_if(.., is_free).collect();
            let since = clock::now();
            let free = free.into_iter().map(|task| Task { since, ..task });
            self.state.agenda.schedule.last_write = Some(since);
            self.has_written = true;
            let over = over.into_iter().filter_map(|execution| self.end(execution));
            let again = free.chain(over).collect();
            if let Err(error) = self.plan_and_begin(again) {
                self.report.outage = Some(error.into());
            }
            if until.is_some_and(|until| until <= clock::now()) {
                return;
            }
        }
    }

    /// Reads everything again for these Services, plans, and begins the changes, until no Service has to
    /// be planned again.
    pub(super) fn plan_and_begin(&mut self, mut tasks: Vec<Task>) -> Result<(), CacheError> {
        loop {
            let may_plan = |task: &mut Task| task.plans < PLANS_AT_MOST && !self.is_closed;
            let now = tasks.extract_if(.., may_plan).collect();
            self.leave_or_fail(tasks);
            tasks = self.without_stopped(now);
            if tasks.is_empty() {
                return Ok(());
            }
            tasks.iter_mut().for_each(|task| task.plans += 1);
            let (planned, calls) = counted(|| self.plan(&mut tasks));
            let payers = tasks.iter().filter_map(|task| task.payer.clone());
            for payer in admission::different(payers) {
                payer.share.charge_reads(calls, clock::now());
            }
            let plans = planned.inspect_err(|_| self.leave(&tasks))?;
            tasks = self.begin(tasks, plans);
        }
    }

    /// Returns the tasks whose namespaces have calls left. Work on the other tasks goes on when their namespaces
    /// have calls again.
    fn without_stopped(&mut self, mut tasks: Vec<Task>) -> Vec<Task> {
        let now = clock::now();
        let must_stop =
            |task: &mut Task| task.payer.as_ref().is_some_and(|payer| payer.must_stop(now));
        for task in tasks.extract_if(.., must_stop) {
            self.state.agenda.stopped(task.uid(), task.has_changed);
            if self.state.admission.stopped(task.uid(), task.has_changed) {
                events::waits(self.apis, &task.service);
            }
        }
        tasks
    }

    /// Leaves the work on these Services for later, and makes them due at once. Otherwise the differences that were
    /// found in a comparison would stay until the next comparison.
    fn leave(&mut self, tasks: &[Task]) {
        for task in tasks {
            let object = task.service.object().for_people();
            self.report.note(object, Progress::Unreached);
            self.state.agenda.missed(task.uid());
        }
    }

    /// Ends tasks that had as many plans as a tick allows, or whose writes the gate refuses. A task without any write
    /// is tried again by the backoff, because otherwise it would be tried without a pause, and no comparison would end.
    fn leave_or_fail(&mut self, tasks: Vec<Task>) {
        let is_closed = self.is_closed;
        let is_left = |task: &Task| is_closed || task.has_changed;
        let (left, failed): (Vec<_>, Vec<_>) = tasks.into_iter().partition(is_left);
        self.leave(&left);
        for task in failed {
            let planned = format!("not done in {PLANS_AT_MOST} tries, because each time");
            let why = match &task.overtaken {
                Some(line) => {
                    format!("{line}: {planned} the API answered that something else had changed")
                }
                None => format!("{planned} the Service changed"),
            };
            let reason = plan::want(&task.service).failed();
            let object = task.service.object();
            events::failed(self.apis, &object, reason, &why);
            self.state.agenda.schedule.backoff.ended(task.uid(), true);
            self.report.fail(object.for_people(), why, Some(reason));
        }
    }

    /// Reads both APIs again, and plans from what they show now. There is no plan for a Service that does
    /// not exist any more.
    fn plan(&mut self, tasks: &mut [Task]) -> Result<Plans, CacheError> {
        let begun = clock::now();
        let apis = self.apis;
        let list = || apis.load_balancer_services(clock::since(begun), ReadFrom::Latest);
        // When some Services share load balancers, all Services are needed. Otherwise each Service is read by itself.
        let mut listed = Arc::default();
        if self.state.agenda.dependencies.has_groups {
            listed = list()?.value;
        }
        let by_uid = by_uid(&listed);
        let mut services = Vec::new();
        for task in tasks.iter_mut() {
            let listed = by_uid.get(task.uid()).copied();
            services.extend(self.read_again(task, listed)?);
        }
        if services.is_empty() {
            return Ok(Plans::default());
        }
        // Targets are removed because of this list. An old list could lack a node that is there.
        let nodes = apis.nodes.whole(clock::since(begun), ReadFrom::Latest)?;
        let listed_since = tasks.iter().map(|task| task.since).max().unwrap_or(begun);
        let reads = Agenda::reads_for_writes(listed_since, self.for_people);
        let shares =
            |service: &Arc<KubeService>| observe::group(&*apis.provider, service).is_some();
        if listed.is_empty() && services.iter().any(shares) {
            listed = list()?.value;
        }
        self.state.departures.saw_nodes(&nodes.value);
        let listed = listed.iter().cloned();
        let seen = SeenObjects {
            services: listed.filter_map(|service| self.admitted(service)).collect(),
            nodes: nodes.value,
            ..SeenObjects::default()
        };
        let mut observed = self.state.observe(apis, services, &seen, reads)?;
        let mut plans = plan::plan(&observed, self.for_people);
        let mut needs = plan::needs(&plans);
        needs.servers |= tasks.iter().any(|task| task.refused > 0);
        if observed.read_needs(apis, &seen.nodes, needs, begun)? {
            plans = plan::plan(&observed, self.for_people);
        }
        Ok((Some(Arc::new(observed)), plans))
    }

    /// Returns the Service of a task as it is now, from the list when the list has the Service. `None` when the Service
    /// does not exist any more. A new Service with the same name is planned in the next tick.
    fn read_again(
        &mut self,
        task: &mut Task,
        listed: Option<&Arc<KubeService>>,
    ) -> Result<Option<Arc<KubeService>>, CacheError> {
        let meta = &task.service.metadata;
        let now = match listed {
            Some(now) => Some(Arc::clone(now)),
            None => self.apis.kube.service(&meta.namespace, &meta.name)?,
        };
        let now = now.filter(|now| now.metadata.uid == meta.uid);
        let now = now.and_then(|now| self.admitted(now));
        let own = self.state.admission.own_payer(&meta.uid);
        task.payer = own.filter(|_| self.is_limited).or(task.payer.take());
        // A Service that did not change shares its memory with the earlier version, because its annotations
        // may have 32 kB.
        Ok(now.map(|mut now| {
            if now == task.service {
                return Arc::clone(&task.service);
            }
            Arc::make_mut(&mut now).share_annotations(&task.service);
            now
        }))
    }

    /// Returns the Service, which was just read again, as it may be planned now. When a change of the Service waits
    /// because its namespace has no calls left, the Service is returned as it was before that change.
    fn admitted(&mut self, service: Arc<KubeService>) -> Option<Arc<KubeService>> {
        if !self.is_limited {
            return Some(service);
        }
        self.state.admission.again(service, &self.state.agenda)
    }

    /// Begins what was planned. Returns the Services that have to be planned again.
    fn begin(&mut self, tasks: Vec<Task>, (observed, plans): Plans) -> Vec<Task> {
        let mut claimed = HashMap::new();
        let executions = self.state.executor.executions();
        executions.iter().for_each(|execution| note(&mut claimed, execution));
        let mut again = Vec::new();
        // The plans have the same order as the tasks. A task whose Service does not exist any more has no plan.
        let mut plans = plans.into_iter().peekable();
        for mut task in tasks {
            let Some(plan) = plans.next_if(|plan| plan.object.uid == task.uid()) else {
                task.warn_of_leftover();
                continue;
            };
            task.service = Arc::clone(&plan.service);
            self.state.agenda.planned(&task.service);
            // Two Services may want one load balancer that no Service owns. The first Service gets the load balancer,
            // and the second is planned again after that.
            let claims = claims(&plan);
            task.waits_for = claims.iter().filter_map(|claim| claimed.get(claim)).min().copied();
            if task.waits_for.is_some() {
                self.state.queued.push(task);
                continue;
            }
            events::findings(self.apis, &plan);
            if let Some(obstacle) = plan.obstacle.clone() {
                self.blocked(task, plan, &obstacle);
            } else if self.is_closed {
                self.leave(&[task]);
            } else {
                let creates = plan.cloud.found.is_none();
                again.extend(self.begin_one(Work {
                    task,
                    observed: observed.clone().filter(|_| creates),
                    plan,
                    claims,
                }));
                if let Some(last) = self.state.executor.executions().last() {
                    note(&mut claimed, last);
                }
            }
        }
        again
    }

    /// Writes our finalizer and an event before the first change in the cloud, and then begins the changes. Returns the
    /// task when the Service has to be planned again.
    fn begin_one(&mut self, mut work: Work) -> Option<Task> {
        let Work { task, plan, .. } = &mut work;
        if plan.first_write().is_some() {
            match self.write(task, plan) {
                Ok(true) => {}
                Ok(false) => return Some(work.task),
                Err(error) => return self.not_written(work.task, work.plan, &error),
            }
        }
        if plan.changes_now().next().is_none() {
            return self.finish(work.task, work.plan);
        }
        self.has_written = true;
        if task.kind.is_none() {
            let kind = kind_of(plan);
            task.kind = Some(kind);
            events::begin(self.apis, plan, kind);
        }
        task.works_on(plan);
        let (name, mut changes) = (plan.name(), plan.take_changes());
        if task.refused > 1 {
            for change in &mut changes {
                if let Some(rest) = change.without_parts() {
                    log::warn!(
                        "{name}: {}: everything except the refused parts is written first",
                        rest.description()
                    );
                    *change = rest;
                }
            }
        }
        let payer = work.task.payer.clone();
        let execution = self.state.executor.begin(name, changes, work, None);
        execution.payer = payer;
        None
    }

    /// Ends an execution after its changes in the cloud. Returns the task when the Service has to be planned again.
    fn end(&mut self, over: Execution<Work>) -> Option<Task> {
        let Work { mut task, plan, observed, .. } = over.subject;
        let result = over.result;
        self.payers.extend(task.payer.clone());
        task.since = clock::now();
        let name = plan.name();
        task.has_changed |= !result.made.is_empty();
        task.overtaken = None;
        for made in &result.made {
            events::changed(self.apis, &plan, &**made);
            if let Some((balancer, node)) = made.departed() {
                self.state.departures.removed(balancer, node);
            }
            self.report.add_changes(&name, &made.description());
        }
        if self.for_people {
            task.made.extend(result.made.iter().map(|made| made.json()));
        }
        // The plan that shows that the new load balancer needs no more changes. It is made from the answer to the
        // creation, and it is `None` when there was no creation or when changes are left. A Service that moves has no
        // such plan, because the answer does not contain the load balancer that the Service leaves.
        let mut in_order = None;
        if let (End::PlanAgain(Some(shown)), Some(observed)) = (&result.end, observed)
            && !plan.cloud.outcome.moves()
        {
            let plan = plan::plan_for(&observed, &**shown, &task.service, self.for_people);
            let is_in_order = plan.obstacle.is_none() && plan.changes_now().next().is_none();
            in_order = is_in_order.then_some(plan);
        }
        if let Some(plan) = &in_order {
            task.works_on(plan);
        }
        self.is_closed |=
            matches!(&result.end, End::Failed(error) if error.kind == ErrorKind::Refused);
        // Some changes were not made, so nothing that depends on them is written.
        if result.is_stopped {
            return Some(task);
        }
        let needs_new_plan = !matches!(result.end, End::AllMade);
        match result.end {
            End::Failed(error) => return self.failed(task, plan, error.to_string()),
            End::AllMade | End::PlanAgain(_) => {}
            End::Overtaken(line) => task.overtaken = Some(line),
            End::RefusedInPart(error) => {
                log::info!("{name}: {error}; reading again");
                task.refused += 1;
            }
        }
        if !result.refused.is_empty() {
            let all: Vec<String> = result.refused.iter().map(ToString::to_string).collect();
            let why = text::reported_once(&all, without_correlations);
            return self.refused(task, plan, why);
        }
        if !needs_new_plan {
            return self.finish(task, plan);
        }
        if result.made.is_empty() {
            // Nothing was done, so no event reports the end of a change.
            task.kind = None;
        }
        let Some(plan) = in_order else {
            return Some(task);
        };
        events::findings(self.apis, &plan);
        self.finish(task, plan)
    }

    /// Ends the work on a Service of which nothing can be synced. Only the mode of the addresses in its
    /// status may change.
    fn blocked(&mut self, mut task: Task, mut plan: ServicePlan, obstacle: &Finding) {
        if let Err(error) = self.write(&mut task, &mut plan) {
            log::debug!("{}: status not written: {error}", plan.name());
        }
        self.report.fail(plan.name(), obstacle.text().into_owned(), Some(obstacle.reason));
        self.ended(task, plan, true);
    }

    /// Ends the work on a Service of which the cloud refused some changes. The status is written if the load balancer
    /// has its address, unless another load balancer still serves the Service.
    fn refused(&mut self, mut task: Task, mut plan: ServicePlan, why: String) -> Option<Task> {
        if !plan.cloud.outcome.moves() {
            match self.write(&mut task, &mut plan) {
                Ok(_) => {}
                Err(error) if error.is_not_found() => task.warn_of_leftover(),
                Err(error) => log::debug!("{}: status not written: {error}", plan.name()),
            }
        }
        self.failed(task, plan, why)
    }

    /// Writes to Kubernetes after the load balancer is as it should be. Returns the task when the Service has to
    /// be planned again.
    fn finish(&mut self, mut task: Task, mut plan: ServicePlan) -> Option<Task> {
        task.works_on(&plan);
        match self.write(&mut task, &mut plan) {
            Ok(true) => {}
            Ok(false) => return Some(task),
            Err(error) => return self.not_written(task, plan, &error),
        }
        if let Some(kind) = task.kind.take() {
            events::done(self.apis, &plan, kind);
        }
        if plan.has_writes() {
            return Some(task);
        }
        let progress = Progress::in_order(task.has_changed);
        self.report.note(plan.name(), progress);
        self.ended(task, plan, false);
        None
    }

    /// Makes the next write of the plan if it is a write to the Service itself. Returns `false` when the
    /// plan is out of date.
    fn write(&mut self, task: &mut Task, plan: &mut ServicePlan) -> Result<bool, KubeError> {
        let Some(ServiceChange::Own(write)) = plan.changes.first() else {
            return Ok(true);
        };
        let kube = &self.apis.kube;
        let meta = &plan.service.metadata;
        let written = retry_on_conflict(|is_first| {
            if is_first {
                return patched(kube, &plan.service, write).map(Some);
            }
            let planned = agenda::fingerprint(&plan.service);
            let now = kube.service(&meta.namespace, &meta.name)?;
            let now = now
                .filter(|now| now.metadata.uid == meta.uid && agenda::fingerprint(now) == planned);
            now.map(|now| patched(kube, &now, write)).transpose()
        })?;
        let Some(service) = written else {
            return Ok(false);
        };
        let (name, made) = (plan.name(), write.description());
        log_change(NAME, &name, &made);
        self.report.add_changes(&name, &made);
        task.has_changed = true;
        task.made.push(write.json());
        self.state.agenda.written(&service);
        task.service = Arc::clone(&service);
        plan.service = service;
        plan.changes.remove(0);
        Ok(true)
    }

    /// Ends the work on a Service that needs no write, or of which too little is known for a write.
    pub(super) fn leave_as_it_is(&mut self, plan: ServicePlan) {
        self.state.agenda.planned(&plan.service);
        events::findings(self.apis, &plan);
        let task = Task::new(Arc::clone(&plan.service), None, clock::now());
        if let Some(obstacle) = plan.obstacle.clone() {
            self.blocked(task, plan, &obstacle);
        } else {
            self.finish(task, plan);
        }
    }

    fn not_written(&mut self, task: Task, plan: ServicePlan, error: &KubeError) -> Option<Task> {
        if error.is_not_found() {
            // The Service does not exist any more, so nothing is left to be done.
            task.warn_of_leftover();
            return None;
        }
        self.is_closed |= error.is_refused();
        self.failed(task, plan, error.to_string())
    }

    fn failed(&mut self, task: Task, plan: ServicePlan, why: String) -> Option<Task> {
        let kind = task.kind.unwrap_or_else(|| kind_of(&plan));
        let reason = events::reason_of_failure(kind);
        if !self.is_closed {
            events::failed(self.apis, &plan.object, reason, &why);
        }
        self.report.fail(plan.name(), why, (!self.is_closed).then_some(reason));
        self.ended(task, plan, true);
        None
    }

    /// Notes the end of a Service in this tick. When the Service failed, or waits for something in the cloud, the
    /// backoff decides when it is taken up again, and the same payer pays for the next try.
    fn ended(&mut self, task: Task, mut plan: ServicePlan, has_failed: bool) {
        let is_tried_again = has_failed || plan.cloud.outcome.is_unfinished();
        self.state.agenda.schedule.backoff.ended(&plan.object.uid, is_tried_again);
        let payer = task.payer.filter(|_| is_tried_again);
        self.state.admission.ended(&plan.service, payer);
        if self.for_people {
            plan.made = task.made;
            self.plans.push(plan);
        }
    }
}

/// Makes one write to the Service itself.
fn patched(
    kube: &KubeClient,
    service: &Arc<KubeService>,
    write: &ServiceWrite,
) -> Result<Arc<KubeService>, KubeError> {
    let meta = &service.metadata;
    let written = kube.patch_service_status(&meta.namespace, &meta.name, &patch(service, write));
    count_write(NAME, write.word(), written.as_ref().map(drop));
    match written {
        Ok(mut written) => {
            written.share_annotations(service);
            Ok(Arc::new(written))
        }
        // The Service was already deleted.
        Err(error) if error.is_not_found() && write.ends_management() => Ok(Arc::clone(service)),
        Err(error) => Err(error),
    }
}

/// Returns a merge patch for the status subresource, because the official role allows no other write. The patch names
/// the version for which it was planned.
fn patch(service: &KubeService, write: &ServiceWrite) -> Value {
    let own = LOAD_BALANCER_FINALIZER;
    let finalizers = service.metadata.finalizers.iter().map(String::as_str);
    let others = finalizers.filter(|finalizer| *finalizer != own);
    let mut body = json!({ "metadata": { "resourceVersion": service.metadata.resource_version } });
    let finalizers = match write {
        ServiceWrite::AddFinalizer => others.chain([own]).collect(),
        ServiceWrite::SetStatus(status) => {
            body["status"] = json!({ "loadBalancer": { "ingress": status } });
            return body;
        }
        ServiceWrite::EndManagement => others.collect(),
        ServiceWrite::RemoveFinalizer { .. } => {
            body["status"] = json!({ "loadBalancer": { "ingress": null } });
            others.collect::<Vec<_>>()
        }
    };
    body["metadata"]["finalizers"] = json!(finalizers);
    body
}

impl Task {
    pub(super) fn new(service: Arc<KubeService>, payer: Option<Payer>, since: Instant) -> Task {
        Task {
            service,
            payer,
            since,
            plans: 0,
            refused: 0,
            kind: None,
            balancer: None,
            has_changed: false,
            overtaken: None,
            made: Vec::new(),
            waits_for: None,
        }
    }

    fn uid(&self) -> &str {
        &self.service.metadata.uid
    }

    fn works_on(&mut self, plan: &ServicePlan) {
        let is_changed = self.kind.is_some() && plan.want == Want::Ensure;
        if let Some(balancer) = plan.cloud.found.as_ref().filter(|_| is_changed) {
            self.balancer = Some((balancer.name.clone(), balancer.id));
        }
    }

    /// Warns that a Service was deleted without its finalizer while its load balancer was worked on. The Service can't
    /// get an event any more, so this is only logged.
    fn warn_of_leftover(&self) {
        if let Some((name, id)) = &self.balancer {
            log::warn!(
                "{}: it was deleted while its load balancer {name} ({id}) was being changed; the load balancer stays \
                 and costs money; ccm lb sync --delete-orphans deletes it",
                self.service.object().for_people(),
            );
        }
    }
}

/// Enters the ID of this execution for each of its claims.
fn note(claimed: &mut HashMap<Claim, u64>, execution: &Execution<Work>) {
    claimed.extend(execution.subject.claims.iter().cloned().map(|claim| (claim, execution.id)));
}

fn claims(plan: &ServicePlan) -> HashSet<Claim> {
    let cloud = &plan.cloud;
    let found = cloud.found.iter().map(|balancer| Claim::Id(balancer.id));
    let name = plan.new_name().map(|name| Claim::Name(name.value.clone()));
    cloud.claims.iter().cloned().chain(found).chain(name).collect()
}

fn by_uid(services: &[Arc<KubeService>]) -> HashMap<&str, &Arc<KubeService>> {
    services.iter().map(|service| &*service.metadata.uid).zip(services).collect()
}

fn kind_of(plan: &ServicePlan) -> ChangeKind {
    let mut kinds = plan.changes_now().map(|change| change.kind());
    let first = kinds.next().unwrap_or(ChangeKind::Settings);
    let is_only = kinds.all(|kind| kind == first);
    if is_only { first } else { ChangeKind::Settings }
}
