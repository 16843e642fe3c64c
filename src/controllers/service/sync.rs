//! Carries out the plans of a sync pass. Before a write, everything is read again, and only a plan that is made from
//! these reads is executed. After some changes, e.g. the creation of a load balancer, the plan can be out of date. The
//! Service is then read and planned once more.
//!
//! Each Service is planned, and its changes are made, independently of other Services. A Service waits only while the
//! changes of another Service use the same load balancer or take the name that it wants.

use super::admission::{self, Admission};
use super::agenda::{self, Agenda};
use super::certificates::CertificateSearch;
use super::departures::Departures;
use super::events;
use super::health::ServiceOutages;
use super::observe::{self, Management, NAME, ObservedServices, SeenObjects, ServiceSettings};
use super::plan::{self, ServiceChange, ServicePlan, ServiceWrite, Want};
use super::pods::Pods;
use crate::cache::{Apis, CacheError, ReadFrom};
use crate::controllers::controller::{Progress, Selection};
use crate::controllers::executor::{End, Execution, ExecutionResult, Executor, Requests};
use crate::controllers::report::{Report, count_write, log_change};
use crate::controllers::schedule::Why;
use crate::controllers::share::Payer;
use crate::kube::{
    CONFLICT_TRIES, KubeClient, KubeError, KubeService, LOAD_BALANCER_FINALIZER, retry_on_conflict,
};
use crate::provider::{
    ChangeKind, Claim, ErrorKind, Finding, Needs, SoftRemoval, Write, calls::counted, clock,
    without_correlations,
};
use crate::text;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many plans a Service gets in one sync pass at most. For example, the first plan creates a load balancer, the
/// second one attaches it to the Network, and the third one finds nothing left to do. After the last allowed plan, the
/// Service is continued in the next sync pass. But if none of its plans has written anything, the Service has failed.
const PLANS_AT_MOST: u32 = CONFLICT_TRIES;

/// The controller of Services, with the state that is kept from one sync pass to the next.
pub struct ServiceController {
    pub(super) settings: ServiceSettings,
    pub management: Management,
    pub(super) agenda: Agenda,
    pub(super) departures: Departures,
    pub(super) pods: Pods,
    pub(super) admission: Admission,
    /// Makes the changes in the cloud. It has an execution (the changes of one Service) for each Service that is being
    /// changed. An execution can continue in the next sync pass.
    pub(super) executor: Executor<Work>,
    /// The Services that wait until an execution (the changes of another Service) has ended, because that execution
    /// uses the load balancer or the name that they want.
    pub(super) queued: Vec<Task>,
    pub(super) certificates: CertificateSearch,
    /// The Services that had no healthy target when all Services were last compared with their load balancers. Each of
    /// them is reported once when it stops getting traffic, and once when it gets traffic again.
    pub(super) outages: ServiceOutages,
}

/// The work on the Services in one sync pass.
pub(super) struct ServiceSync<'a> {
    pub(super) state: &'a mut ServiceController,
    pub(super) apis: &'a Apis,
    pub(super) selection: &'a Selection,
    /// Whether a person has asked for this work by a command. The last plan of each Service is then kept for the
    /// output.
    pub(super) for_people: bool,
    /// Whether a changed Service waits when its namespace has used up its share of API calls. The work that a person
    /// has asked for never waits for this reason.
    pub(super) is_limited: bool,
    /// The payers of the changes that ended in this sync pass. A payer is the namespace from whose share of API calls
    /// (the calls that ccm allows each namespace) the calls for a change are subtracted. The search for unused
    /// certificates is charged to the same namespaces.
    pub(super) payers: Vec<Payer>,
    pub(super) report: Report,
    pub(super) plans: Vec<ServicePlan>,
    /// When the comparison of all Services with their load balancers began. `None` when this sync pass made no
    /// comparison.
    pub(super) compared: Option<Instant>,
    /// Whether a write was refused because this process is not allowed to write any more, e.g. because it has lost the
    /// Lease. No other write is tried then.
    pub(super) is_closed: bool,
    /// Whether changes in the cloud have begun or ended in this sync pass.
    pub(super) has_written: bool,
}

/// A Service that is being worked on. The task exists from the first plan until the work on the Service ends.
pub(super) struct Task {
    /// The Service as it was read or written last.
    pub(super) service: Arc<KubeService>,
    /// The namespace's share of API calls that is charged for the work on this Service. `None` means that no share is
    /// charged, because no change of a Service has caused the work.
    payer: Option<Payer>,
    /// A list of load balancers for a new plan must have been requested after this moment, because changes of this
    /// Service were being made until then.
    since: Instant,
    plans: u32,
    /// How many creations of a load balancer were refused because of a part of the request, e.g. a target. After the
    /// first refusal, the servers are read again for the next plan. After the second, the load balancer is created
    /// without the parts that can cause a refusal.
    refused: u32,
    /// The kind of the changes in the cloud that are being made. It decides which event is written when the changes
    /// have ended. `None` when no change was begun.
    kind: Option<ChangeKind>,
    /// The name and the ID of the load balancer that is being changed for the Service. `None` when no load balancer of
    /// the Service is known yet.
    balancer: Option<(String, u64)>,
    /// Whether anything was written for the Service, to Kubernetes or in the cloud.
    has_changed: bool,
    /// A description of the change that could not be made, because something in the cloud had changed after its plan
    /// was made. `None` when the last plan did not end in this way, see `Applied::Overtaken`.
    overtaken: Option<String>,
    /// Every write that was made for the Service so far, as JSON that commands can print.
    made: Vec<Value>,
    /// The ID of the execution (the changes of another Service) for whose end this Service waits. `None` when it does
    /// not wait.
    waits_for: Option<u64>,
}

/// What an execution (the changes of one Service) works on: the Service, and the plan that contains its changes.
pub(super) struct Work {
    task: Task,
    plan: ServicePlan,
    /// The data from which the plan was made, if the plan creates a load balancer. After the creation, the next plan is
    /// made from these data and the cloud's answer. The field is `None` for any other plan, because data about
    /// thousands of nodes take much memory.
    observed: Option<Arc<ObservedServices>>,
    claims: HashSet<Claim>,
}

/// The data from which the plans were made, and the plans. The data are `None` when none of the Services exists any
/// more.
type Plans = (Option<Arc<ObservedServices>>, Vec<ServicePlan>);

impl ServiceController {
    /// Returns the work on each Service whose changes are being made, and on each Service that waits until the changes
    /// of another Service have ended.
    pub(super) fn tasks(&self) -> impl Iterator<Item = &Task> {
        let executed = self.executor.executions().iter().map(|execution| &execution.subject.task);
        executed.chain(&self.queued)
    }

    /// Returns the UIDs of the Services whose changes are being made, or that wait until the changes of another Service
    /// have ended.
    pub(super) fn busy(&self) -> HashSet<&str> {
        self.tasks().map(Task::uid).collect()
    }

    /// Returns the payers (namespaces' shares of API calls) of the Services whose changes are being made, or that wait
    /// until the changes of another Service have ended.
    pub(super) fn payers(&self) -> Vec<Payer> {
        self.tasks().filter_map(|task| task.payer.clone()).collect()
    }

    /// Stops the executions (each makes the changes of one Service) whose plan is out of date, i.e. drops the changes
    /// that were not sent yet.
    ///
    /// An execution is stopped when its Service was changed or deleted. When only nodes, or other Services on the same
    /// load balancer, have changed, it is stopped only if its changes take something away. Those changes may be wrong
    /// now. For example, a new target may have to be added before an old one is removed, or the target that is removed
    /// may belong to somebody else now. Changes that only add targets do no harm, and the next plan corrects them. An
    /// execution is always stopped when it still has to remove a target on a node that will stop soon or runs no pods,
    /// because that removal was planned from old health checks.
    ///
    /// The Services in `queued` wait until the changes of another Service have ended. A Service that has changed in the
    /// meantime is removed from there and gets a new plan at once, because it may want another load balancer now.
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
        self.executor.stop(|execution| {
            is_stale(execution.subject.task.uid(), execution.takes_away())
                || execution.rests_on_health()
        });
        self.queued.retain(|task| !is_stale(task.uid(), false));
    }
}

impl ServiceSync<'_> {
    /// Works on all executions (each has the changes of one Service) until none is left, or until the moment `until`.
    /// `None` means that there is no time limit. As soon as an execution has ended, the status of its Service is
    /// written, or the Service gets a new plan if it needs one.
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

    /// Reads the data for these Services again, makes new plans from them, and begins the changes of these plans.
    /// Repeats this for those Services that need another plan.
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

    /// Returns the tasks (each is the work on one Service) that may go on. The other tasks are stopped, because the
    /// namespaces of their Services have used up their shares of API calls. They go on when these namespaces have calls
    /// again.
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

    /// Leaves the work on these Services to the next sync pass, which makes new plans for them. Without this, a
    /// difference between a Service and its load balancer would stay until all Services are next compared with their
    /// load balancers.
    fn leave(&mut self, tasks: &[Task]) {
        for task in tasks {
            let object = task.service.object().for_people();
            self.report.note(object, Progress::Unreached);
            self.state.agenda.missed(task.uid());
        }
    }

    /// Ends tasks (each is the work on one Service) for which this sync pass has made as many plans as are allowed, or
    /// which are not allowed to write any more. A task that has written nothing counts as failed and is tried again
    /// after a wait. Without the wait, it would be tried again at once in each sync pass, and the regular comparison of
    /// all Services with their load balancers would never be complete.
    fn leave_or_fail(&mut self, tasks: Vec<Task>) {
        let is_closed = self.is_closed;
        let is_left = |task: &Task| is_closed || task.has_changed;
        let (left, failed): (Vec<_>, Vec<_>) = tasks.into_iter().partition(is_left);
        self.leave(&left);
        for task in failed {
            let planned = format!("not done in {PLANS_AT_MOST} tries, because in each of them");
            let why = match &task.overtaken {
                Some(line) => {
                    format!(
                        "{line}: {planned} the API answered that something in the cloud had changed. The daemon tries again \
                         later"
                    )
                }
                None => format!(
                    "the changes for the Service were {planned} the Service had changed. The daemon tries again later"
                ),
            };
            let reason = plan::want(&task.service).failed();
            let object = task.service.object();
            events::failed(self.apis, &object, reason, &why);
            self.state.agenda.schedule.backoff.ended(task.uid(), true);
            self.report.fail(object.for_people(), why, Some(reason));
        }
    }

    /// Reads the APIs of Kubernetes and the cloud again, and makes a new plan for each task. A Service that does not
    /// exist any more gets no plan.
    fn plan(&mut self, tasks: &mut [Task]) -> Result<Plans, CacheError> {
        let begun = clock::now();
        let apis = self.apis;
        let list = || apis.load_balancer_services(clock::since(begun), ReadFrom::Latest);
        // A plan for a Service that shares a load balancer needs all Services of the group. So when there is such a
        // group in the cluster, all Services are listed. Otherwise each Service of a task is read by itself.
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
        // A target is removed when its node is missing in the list that is read here. An old list could lack a node
        // that exists, so the list is read from etcd, and not from the API server's cache.
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
        let mut seen = SeenObjects {
            services: listed.filter_map(|service| self.admitted(service)).collect(),
            nodes: nodes.value,
            namespaces: apis.namespaces(Duration::MAX),
            ..SeenObjects::default()
        };
        let mut observed = self.state.observe(apis, services, &seen, reads)?;
        let mut plans = plan::plan(&observed, self.for_people);
        let may_create = |plan: &ServicePlan| {
            let (cloud, outcome) = (&plan.cloud, &plan.cloud.outcome);
            let creates = outcome.changes().iter().any(|change| change.new_name().is_some());
            let is_open = cloud.found.is_none() || outcome.obstacle().is_some();
            plan.want == Want::Ensure && (is_open || creates)
        };
        if plans.iter().any(may_create) {
            // A new load balancer is created with the defaults in the annotations of the Service's Namespace. Some of
            // them, e.g. the location, can't be changed later. So these annotations are read again before a creation.
            seen.namespaces = apis.namespaces(clock::since(begun));
            if seen.namespaces != observed.cluster.namespaces {
                let services = observed.services;
                observed = self.state.observe(apis, services, &seen, reads)?;
                plans = plan::plan(&observed, self.for_people);
            }
        }
        if self.state.pods.read_for(apis, &plans, &seen.nodes, Some(begun)) {
            observed.cluster.history.pods = self.state.pods.known();
            plans = plan::plan(&observed, self.for_people);
        }
        let servers = tasks.iter().any(|task| task.refused > 0);
        let refused = Needs { servers, ..Needs::default() };
        while observed.read_needs(apis, &seen.nodes, plan::needs(&plans).and(refused), begun)? {
            plans = plan::plan(&observed, self.for_people);
        }
        Ok((Some(Arc::new(observed)), plans))
    }

    /// Returns the present version of the task's Service. This is `listed`, if the Services were listed and the list
    /// contains the Service. Otherwise the Service is read by its name. Returns `None` when the Service does not exist
    /// any more. Also returns `None` for a new Service that must wait because its namespace has used up its share of
    /// API calls. A new Service with the name of a deleted Service is not the same Service. It is planned in the next
    /// sync pass.
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
        // When the Service has not changed, the object that was read before is returned, so that two equal objects do
        // not take memory. When the Service has changed but its annotations have not, the new object shares the memory
        // of the old annotations, which can take 32 kB.
        Ok(now.map(|mut now| {
            if now == task.service {
                return Arc::clone(&task.service);
            }
            Arc::make_mut(&mut now).share_annotations(&task.service);
            now
        }))
    }

    /// Takes a Service that was just read again, and returns it as it is planned now. When its last change must wait,
    /// because its namespace has used up its share of API calls, this is the Service as it was before that change. For
    /// a new Service that must wait, the result is `None`.
    fn admitted(&mut self, service: Arc<KubeService>) -> Option<Arc<KubeService>> {
        if !self.is_limited {
            return Some(service);
        }
        self.state.admission.again(service, &self.state.agenda)
    }

    /// Begins the changes of these plans. Returns the Services that need a new plan at once, e.g. because the Service
    /// object was changed by somebody else before our write to it.
    fn begin(&mut self, tasks: Vec<Task>, (observed, plans): Plans) -> Vec<Task> {
        let mut claimed = HashMap::new();
        let executions = self.state.executor.executions();
        executions.iter().for_each(|execution| note(&mut claimed, execution));
        let mut again = Vec::new();
        // Each task is a Service that must be worked on. The plans have the same order as the tasks. When the Service
        // of a task does not exist any more, there is no plan for this task.
        let mut plans = plans.into_iter().peekable();
        for mut task in tasks {
            let Some(plan) = plans.next_if(|plan| plan.object.uid == task.uid()) else {
                task.warn_of_leftover();
                continue;
            };
            task.service = Arc::clone(&plan.service);
            self.state.agenda.planned(&task.service);
            // Two Services can want the same load balancer, which no Service owns yet. The Service whose plan comes
            // first gets it. The other Service waits until the first one's changes have ended, and is then planned
            // again.
            let claims = claims(&plan);
            task.waits_for = claims.iter().filter_map(|claim| claimed.get(claim)).min().copied();
            if task.waits_for.is_some() {
                self.state.queued.push(task);
                continue;
            }
            self.report_findings(&plan);
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

    /// Writes our finalizer and an event if they are still missing, and then begins the changes in the cloud. Returns
    /// the task (the work on one Service) when the Service needs a new plan before its changes can begin. Otherwise
    /// returns `None`: the changes have begun, nothing has to be changed, the work is left to the next sync pass, or it
    /// has failed.
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
        if !self.state.pods.admit(plan) {
            self.leave(&[work.task]);
            return None;
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
                        "{name}: the API did not create the load balancer, because it refused a port or a target. ccm \
                         creates the load balancer first, and then adds ports and targets. Next change: {}",
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

    /// Handles the result of an execution (the changes of one Service in the cloud) that has ended. Returns the task of
    /// the Service when the Service must be planned again.
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
            self.report.add_changes(&name, &made.description());
        }
        self.note_soft_removals(&plan, &result);
        if self.for_people {
            task.made.extend(result.made.iter().map(|made| made.json()));
        }
        // After the creation of a load balancer, the Service needs a new plan. If the answer to the creation shows that
        // nothing is left to change, `in_order` becomes the plan that is made from this answer, and nothing has to be
        // read again. A Service that moves to another load balancer gets no such plan, because the answer does not show
        // the load balancer that the Service leaves.
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
        // Some changes were dropped before they were sent, e.g. because their plan was out of date. Nothing that
        // depends on these changes, e.g. the status, is written now, and the Service is planned again.
        if result.is_stopped {
            return Some(task);
        }
        let needs_new_plan = !matches!(result.end, End::AllMade);
        match result.end {
            End::Failed(error) => return self.failed(task, plan, error.to_string()),
            End::AllMade | End::PlanAgain(_) => {}
            End::Overtaken(line) => task.overtaken = Some(line),
            End::RefusedInPart(error) => {
                log::info!("{name}: {error}; ccm makes a new plan for the Service and tries again");
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
            // No change was made. So `kind` becomes `None`, and no event says later that changes were made.
            task.kind = None;
        }
        let Some(plan) = in_order else {
            return Some(task);
        };
        self.report_findings(&plan);
        self.finish(task, plan)
    }

    /// Reports the findings (messages for the operator) of a plan. The finding that the replacement of the load
    /// balancer waits for something is reported only when the replacement has waited for a long time.
    fn report_findings(&mut self, plan: &ServicePlan) {
        let (agenda, uid) = (&mut self.state.agenda, &plan.object.uid);
        agenda.awaits(uid, plan.waits_for());
        events::findings(self.apis, plan, agenda.has_waited_long(uid));
    }

    /// Remembers which targets were removed because their nodes depart (will stop soon) or run no pods. The number of
    /// such removals is limited.
    fn note_soft_removals(&mut self, plan: &ServicePlan, result: &ExecutionResult) {
        let removals: Vec<SoftRemoval> =
            result.made.iter().filter_map(|made| made.soft_removal()).collect();
        for removal in &removals {
            self.state.departures.removed(removal.balancer, removal.node);
        }
        if let Some(balancer) = &plan.cloud.found {
            let nodes: Vec<&str> = removals.iter().map(|removal| removal.node).collect();
            let is_known = !matches!(result.end, End::Failed(_));
            self.state.pods.made(balancer.id, &nodes, is_known);
        }
    }

    /// Ends the work on a Service that can't be synced, for the reason in `obstacle`. The only write that is still
    /// possible corrects the field `ipMode` of the addresses in the status of the Service.
    fn blocked(&mut self, mut task: Task, mut plan: ServicePlan, obstacle: &Finding) {
        if let Err(error) = self.write(&mut task, &mut plan) {
            log::debug!("{}: status not written: {error}", plan.name());
        }
        self.report.fail(plan.name(), obstacle.text().into_owned(), Some(obstacle.reason));
        self.ended(task, plan, true);
    }

    /// Ends the work on a Service for which the cloud refused some changes. The planned status is nevertheless written,
    /// except when the Service moves to another load balancer. In that case the status keeps the addresses of the
    /// previous load balancer, which still serves the Service. Returns no task, because the Service is not planned
    /// again in this sync pass.
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

    /// Writes to the Service object after all changes in the cloud were made. When the Service needs a new plan,
    /// returns the task (the work for this Service) again. Otherwise the work has ended, and the result is `None`.
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

    /// If the next write of the plan is a write to the Service object, makes it and returns `true`. If the next write
    /// is in the cloud, or no write is left, does nothing and returns `true`. Returns `false` when the plan is out of
    /// date, because the Service has changed.
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

    /// Ends the work on a Service without a new plan from fresh data. Either the Service needs no write, or its large
    /// fields were dropped to save memory.
    pub(super) fn leave_as_it_is(&mut self, plan: ServicePlan) {
        self.state.agenda.planned(&plan.service);
        self.report_findings(&plan);
        let task = Task::new(Arc::clone(&plan.service), None, clock::now());
        if let Some(obstacle) = plan.obstacle.clone() {
            self.blocked(task, plan, &obstacle);
        } else {
            self.finish(task, plan);
        }
    }

    fn not_written(&mut self, task: Task, plan: ServicePlan, error: &KubeError) -> Option<Task> {
        if error.is_not_found() {
            // The Service was deleted after the plan was made, so its status can't be written, and the plan is not
            // tried again. A warning says that its load balancer may still exist.
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

    /// Records the end of the work on a Service in this sync pass. When the Service failed, or waits for something in
    /// the cloud, it is tried again after a wait. The API calls of the next try are charged to the same share (usually
    /// that of the Service's namespace) as the calls of this try.
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

/// Makes one write to the Service object, and returns the Service as it is after the write.
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
        // The Service is already deleted, so its finalizer need not be removed any more.
        Err(error) if error.is_not_found() && write.ends_management() => Ok(Arc::clone(service)),
        Err(error) => Err(error),
    }
}

/// Returns a merge patch for the status subresource of a Service, because the role in `manifests/base/role.yaml` allows
/// no other write to Services. The patch contains the resource version of the planned Service, so that it fails when
/// the Service has changed.
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

    /// Warns that a load balancer has lost its Service: the Service was deleted while its load balancer was being
    /// changed, although the finalizer should have prevented that. An event can't be written for a deleted Service, so
    /// the warning is only logged.
    fn warn_of_leftover(&self) {
        if let Some((name, id)) = &self.balancer {
            log::warn!(
                "{}: the Service was deleted while its load balancer {name:?} ({id}) was being changed, so the load \
                 balancer still exists and costs money; ccm lb sync --delete-orphans deletes it",
                self.service.object().for_people(),
            );
        }
    }
}

/// Stores the ID of this execution (the changes of one Service) for each object in the cloud that its plan claims, i.e.
/// wants to change or create.
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
