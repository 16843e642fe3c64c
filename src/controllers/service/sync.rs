//! Brings Services in order: those that are due are planned, everything is read again for what has to be written, and
//! only a plan on that is executed. After a change that may have dropped other state the same once more.
//!
//! A Service is taken up, planned, executed and ended by itself: it waits for no other one, except for the one that
//! already works on the load balancer or takes the name that it wants.

use super::events::{self, End};
use super::observe::{self, Freshness, Observed};
use super::plan::{self, ServicePlan, View, Want, status_line};
use super::{Polled, ServiceController, write};
use crate::cache::{Apis, Error, ReadFrom};
use crate::controllers::Selection;
use crate::controllers::executor::{Execution, Requests};
use crate::controllers::report::{Failure, Outage, Report, log_change};
use crate::kube::{self, Service};
use crate::provider::{
    Change, ChangeKind, ErrorKind, LoadBalancers, Reason, Snapshot, Urgency, without_correlations,
};
use crate::text;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

/// Created, attached, and then right: a Service that needs more plans than this is left to the next tick. It has failed
/// when nothing came of them.
const PLANS_AT_MOST: u32 = kube::CONFLICT_TRIES;

/// One tick's work.
pub(super) struct Sync<'a> {
    pub(super) controller: &'a mut ServiceController,
    pub(super) apis: &'a Apis,
    pub(super) provider: &'a dyn LoadBalancers,
    pub(super) selection: &'a Selection,
    /// See `plan::View`; then the plans that were made last are kept.
    pub(super) for_people: bool,
    pub(super) report: Report,
    pub(super) plans: Vec<ServicePlan>,
    /// The gate refused a write: no other one is tried.
    pub(super) is_closed: bool,
    /// When the comparison of all Services began, where this tick made one.
    pub(super) compared: Option<Instant>,
    /// Changes in the cloud were begun or ended in this tick.
    pub(super) has_written: bool,
}

/// A Service from the moment it is taken up until its end.
pub(super) struct Task {
    /// As it was read or written last.
    pub(super) service: Arc<Service>,
    /// A plan must rest on a list of load balancers that was requested since then: before it, its own changes were
    /// being made.
    since: Instant,
    plans: u32,
    /// A creation was refused in part: the next plan rests on a list of servers that is read for it.
    has_refused: bool,
    /// What kind of change was begun in the cloud, where one was.
    kind: Option<ChangeKind>,
    /// Name and ID of the load balancer that is worked on.
    balancer: Option<(String, u64)>,
    /// Something was written for it.
    has_changed: bool,
    /// The change that the last plan was not made for: see `Applied::Overtaken`.
    overtaken: Option<String>,
    /// For people: every write that was made.
    made: Vec<Value>,
}

/// What an execution of changes is for.
pub(super) struct Planned {
    task: Task,
    plan: ServicePlan,
    /// What the plan rests on.
    observed: Arc<Observed>,
    claims: Claims,
}

/// What a plan takes, and no other one may take at the same time.
#[derive(Default)]
struct Claims {
    /// IDs of load balancers and certificates.
    ids: HashSet<u64>,
    /// Names of new load balancers.
    names: HashSet<String>,
}

/// It waits for the end of the execution that claims what it wants.
pub(super) struct Held {
    task: Task,
    execution: u64,
}

/// What comes after `begin_one`.
enum Next {
    Execute(Task, Box<ServicePlan>),
    Ended,
    PlanAgain(Task),
}

impl Sync<'_> {
    /// Due Services are taken up at each interval, whatever the executions wait for. Executions that only wait for
    /// actions when the interval is over go on in the next tick; a person's selection is worked on until its end.
    pub(super) fn run(&mut self) {
        let provider = self.provider;
        let concurrency = self.controller.settings.concurrency;
        std::thread::scope(|scope| {
            let mut requests = Requests::new(scope, provider, concurrency);
            loop {
                let begun = Instant::now();
                let interval = self.controller.settings.sync_interval;
                let until = (!self.selection.is_explicit()).then(|| begun + interval);
                if let Err(outage) = self.take_up(begun, &mut requests) {
                    self.report.outage = Some(outage);
                }
                self.execute(&mut requests, until);
                // The scope's end would wait for a request that is slow.
                if self.controller.executor.executions().is_empty() || !requests.are_in_flight() {
                    break;
                }
                self.report.outage = None;
            }
        });
        self.report.unfinished = self.controller.unfinished();
    }

    /// Plans for all Services that are due and not being executed, and begins what is to be done.
    fn take_up(&mut self, begun: Instant, requests: &mut Requests) -> Result<(), Outage> {
        let without = |error| Outage {
            error,
            waiting: String::new(),
        };
        let (apis, selection) = (self.apis, self.selection);
        let polled = self.controller.polled(apis, selection, begun);
        let polled = polled.map_err(|error| {
            // Whether it still fits is not known.
            self.controller.executor.stop(Execution::takes_away);
            without(error)
        })?;
        let waiting = |error| Outage {
            error,
            waiting: super::waiting(&polled),
        };
        self.stop_stale(&polled);
        let observed = self.controller.observe_due(apis, selection, &polled);
        let observed = observed.map_err(waiting)?;
        let proposals = observed.map(|observed| plan::plan(&observed.view(self.for_people)));
        let proposals = proposals.unwrap_or_default();
        self.controller.remember(&polled);
        super::measure(&polled);
        // A blocked Service may not be blocked any more, and what an unfinished one waits for may have come.
        let (to_do, in_order): (Vec<_>, Vec<_>) = proposals.into_iter().partition(|plan| {
            plan.has_writes() || plan.cloud.obstacle.is_some() || plan.cloud.is_unfinished
        });
        let writes: usize = to_do.iter().map(ServicePlan::writes).sum();
        self.report.planned += writes;
        // Nothing was written for them since `begun`: what was listed for the proposal serves the first plan.
        let tasks = to_do.into_iter();
        let tasks = tasks.map(|plan| Task::new(plan.service, begun));
        let planned = self.plan_and_begin(tasks.collect());
        self.controller.executor.send(requests);
        for plan in in_order {
            self.in_order(plan);
        }
        planned.map_err(waiting)?;
        if polled.is_resync && self.report.unreached == 0 {
            self.controller.due.resynced(begun);
            self.compared = Some(begun);
        }
        Ok(())
    }

    /// The rest of a plan for a Service that was changed or deleted since is dropped. So is a rest that takes something
    /// away when nodes have changed: what comes instead must be added first, and a target may be another owner's now.
    /// One that only adds targets does no harm, and is followed by the next plan. A Service that waited for a load balancer may want another one: it is due.
    fn stop_stale(&mut self, polled: &Polled) {
        if self.selection.is_explicit() {
            return;
        }
        let controller = &mut *self.controller;
        let due = &controller.due;
        let services = polled.services.iter();
        let services: HashMap<&str, &Arc<Service>> = services
            .map(|service| (service.metadata.uid.as_str(), service))
            .collect();
        let is_stale = |uid: &str, takes_away: bool| match services.get(uid) {
            None => true,
            Some(service) => {
                let has_other_nodes = due.has_other_nodes(service, polled.fingerprint);
                due.is_changed(service) || (takes_away && has_other_nodes)
            }
        };
        let executor = &mut controller.executor;
        executor.stop(|one| is_stale(one.subject.uid(), one.takes_away()));
        controller.held.retain(|held| !is_stale(held.uid(), false));
    }

    /// Works on all executions until none is left, or until then. What has ended is finished at once, and planned
    /// again at once where that is needed.
    fn execute(&mut self, requests: &mut Requests, until: Option<Instant>) {
        loop {
            let over = self.controller.executor.work(requests, until);
            if over.is_empty() {
                return;
            }
            let mut again = self.release(&over);
            self.controller.last_write = Some(Instant::now());
            self.has_written = true;
            again.extend(over.into_iter().filter_map(|one| self.end(one)));
            if let Err(error) = self.plan_and_begin(again) {
                self.report.outage = Report::outage(error, String::new()).outage;
            }
            if until.is_some_and(|until| until <= Instant::now()) {
                return;
            }
        }
    }

    /// Services that waited for the end of these executions.
    fn release(&mut self, over: &[Execution<Planned>]) -> Vec<Task> {
        let held = &mut self.controller.held;
        let is_free = |held: &mut Held| over.iter().any(|one| one.id == held.execution);
        let free = held.extract_if(.., is_free);
        free.map(|held| held.task.since_now()).collect()
    }

    /// Reads everything again for these Services, plans, and begins the changes; until none has to be planned again.
    fn plan_and_begin(&mut self, mut tasks: Vec<Task>) -> Result<(), Error> {
        loop {
            let (mut now, left) = tasks
                .into_iter()
                .partition::<Vec<_>, _>(|task| task.plans < PLANS_AT_MOST && !self.is_closed);
            self.leave_or_fail(left);
            if now.is_empty() {
                return Ok(());
            }
            now.iter_mut().for_each(|task| task.plans += 1);
            tasks = match self.plan(&now) {
                Ok((observed, plans)) => self.begin(now, &observed, plans),
                Err(error) => {
                    self.leave(&now);
                    return Err(error);
                }
            };
        }
    }

    /// They are due at once. Else what a comparison of all Services found would wait for the next one.
    fn leave(&mut self, tasks: &[Task]) {
        self.report.unreached += tasks.len();
        for task in tasks {
            self.controller.due.missed(task.uid());
        }
    }

    /// Of these all plans were made, or the gate is closed. One for which nothing was written is tried again by the
    /// back-off: due at once, it would be tried for ever, and no comparison of all Services would end.
    fn leave_or_fail(&mut self, tasks: Vec<Task>) {
        let is_closed = self.is_closed;
        let (left, failed): (Vec<_>, Vec<_>) = tasks
            .into_iter()
            .partition(|task| is_closed || task.has_changed);
        self.leave(&left);
        for task in failed {
            let why = task.why_overtaken();
            let reason = match plan::want(&task.service) {
                Want::Remove => Reason::DeleteLoadBalancerFailed,
                Want::Ensure | Want::Nothing => Reason::SyncLoadBalancerFailed,
            };
            let object = task.service.object();
            events::overtaken(self.apis, &object, reason, &why);
            let backoff = &mut self.controller.due.backoff;
            backoff.failed(task.uid(), Instant::now());
            self.report.failures.push(Failure {
                object: object.for_people(),
                why,
                finding: Some(reason),
            });
        }
    }

    /// Both APIs as they are now, and what should be done. A Service that does not exist any more has no plan.
    fn plan(&self, tasks: &[Task]) -> Result<(Option<Arc<Observed>>, Vec<ServicePlan>), Error> {
        let begun = Instant::now();
        let services: Vec<_> = tasks.iter().map(|task| Arc::clone(&task.service)).collect();
        let services = observe::read_again(self.apis, &services)?;
        if services.is_empty() {
            return Ok((None, Vec::new()));
        }
        // Targets are removed by this list: an old one must not take a node away.
        let nodes = self.apis.nodes(begun.elapsed(), ReadFrom::Latest)?.value;
        let listed_since = tasks.iter().map(|task| task.since).max().unwrap_or(begun);
        let name = &self.controller.settings.cluster_name;
        let mut observed = observe::observe(
            self.apis,
            name,
            services,
            &nodes,
            Freshness::Since(listed_since),
            Urgency::Needed,
        )?;
        let has_refused = tasks.iter().any(|task| task.has_refused);
        observed.read_needs(self.apis, &nodes, begun, has_refused, Urgency::Needed)?;
        let mut plans = plan::plan(&observed.view(self.for_people));
        plan::refuse_in_wrong_project(&observed.cluster, observed.has_own_servers, &mut plans);
        Ok((Some(Arc::new(observed)), plans))
    }

    /// Begins what was planned; the Services that have to be planned again.
    fn begin(
        &mut self,
        tasks: Vec<Task>,
        observed: &Option<Arc<Observed>>,
        plans: Vec<ServicePlan>,
    ) -> Vec<Task> {
        let tasks = tasks.into_iter();
        let mut tasks: HashMap<String, Task> =
            tasks.map(|task| (task.uid().to_owned(), task)).collect();
        let mut again = Vec::new();
        let mut claimed = Claims::default();
        for plan in plans {
            let Some(mut task) = tasks.remove(&plan.object.uid) else {
                continue;
            };
            task.service = Arc::clone(&plan.service);
            self.controller.due.planned(&task.service);
            // Two Services may want one load balancer that no Service owns: the first gets it, and the second is
            // planned again when it has it.
            let claims = Claims::of(&plan);
            let mut executions = self.controller.executor.executions().iter();
            let other = executions.find(|one| one.subject.claims.overlap(&claims));
            if let Some(execution) = other.map(|one| one.id) {
                self.controller.held.push(Held { task, execution });
                continue;
            }
            if claimed.overlap(&claims) {
                again.push(task);
                continue;
            }
            claimed.extend(&claims);
            events::findings(self.apis, &plan);
            if let Some(obstacle) = plan.cloud.obstacle.clone() {
                self.fail(task, plan, obstacle.message, Some(obstacle.reason));
                continue;
            }
            if self.is_closed {
                self.leave(&[task]);
                continue;
            }
            match (self.begin_one(task, plan), observed) {
                (Next::Execute(task, mut plan), Some(observed)) => {
                    let changes = plan.take_changes();
                    let planned = Planned {
                        task,
                        plan: *plan,
                        observed: Arc::clone(observed),
                        claims,
                    };
                    let name = planned.plan.name();
                    let plans_again = !planned.task.has_refused;
                    let executor = &mut self.controller.executor;
                    executor.begin(name, changes, planned, plans_again);
                }
                (Next::PlanAgain(task), _) => again.push(task),
                (Next::Execute(..) | Next::Ended, _) => {}
            }
        }
        // Services that do not exist any more.
        tasks.values().for_each(Task::warn_of_leftover);
        again
    }

    /// What comes before the first change in the cloud: our finalizer, and an event.
    fn begin_one(&mut self, mut task: Task, mut plan: ServicePlan) -> Next {
        if plan.add_finalizer {
            match write::finalizer(self.apis, &plan.service) {
                Ok(service) => {
                    let line = "finalizer: added".to_owned();
                    self.note_write(&mut task, &plan, line, plan::finalizer_added);
                    self.controller.due.written(&service);
                    task.service = Arc::clone(&service);
                    plan.service = service;
                    plan.add_finalizer = false;
                }
                Err(error) if error.is_conflict() => return Next::PlanAgain(task),
                Err(error) => {
                    self.failed_on_kubernetes(task, plan, &error);
                    return Next::Ended;
                }
            }
        }
        if plan.cloud.changes.is_empty() {
            return match self.finish(task, plan) {
                None => Next::Ended,
                Some(task) => Next::PlanAgain(task),
            };
        }
        self.has_written = true;
        if task.kind.is_none() {
            let kind = kind_of(&plan.cloud.changes);
            task.kind = Some(kind);
            events::begin(self.apis, &plan, kind);
        }
        task.works_on(&plan);
        Next::Execute(task, Box::new(plan))
    }

    /// After the changes in the cloud. The task where the Service has to be planned again.
    fn end(&mut self, over: Execution<Planned>) -> Option<Task> {
        let Planned {
            task,
            plan,
            observed,
            ..
        } = over.subject;
        let mut task = task.since_now();
        let name = plan.name();
        let is_overtaken = over.needs_new_plan && over.made.is_empty();
        task.has_changed |= !over.made.is_empty();
        task.has_refused |= over.refused_in_part;
        task.overtaken = over.overtaken;
        for made in &over.made {
            events::changed(self.apis, &plan, &**made);
        }
        if self.for_people {
            task.made.extend(over.made.iter().map(|made| made.json()));
        }
        let lines = over.lines.into_iter().map(|line| (name.clone(), line));
        self.report.changes.extend(lines);
        let shown = over.shown;
        let in_order = shown.and_then(|shown| self.plan_on(&observed, shown, &task.service));
        if let Some(plan) = &in_order {
            task.works_on(plan);
        }
        if let Some(error) = &over.error {
            self.is_closed |= error.kind == ErrorKind::Refused;
        }
        if over.is_stopped && !self.is_closed {
            return Some(task);
        }
        if let Some(error) = over.error {
            self.failed(task, plan, error.to_string());
            return None;
        }
        if !over.refused.is_empty() {
            let all: Vec<String> = over.refused.iter().map(ToString::to_string).collect();
            // The address is there, so the status is written all the same.
            let plan = self.write_status(&mut task, plan);
            self.failed(task, plan, text::reported_once(&all, without_correlations));
            return None;
        }
        if !over.needs_new_plan {
            return self.finish(task, plan);
        }
        if is_overtaken {
            // Nothing was done, so no event reports its end.
            task.kind = None;
        }
        let Some(plan) = in_order else {
            return Some(task);
        };
        events::findings(self.apis, &plan);
        self.finish(task, plan)
    }

    /// The plan on what the answer of a write showed; none where there is more to do in the cloud.
    fn plan_on(
        &self,
        observed: &Observed,
        shown: Arc<dyn Snapshot>,
        service: &Arc<Service>,
    ) -> Option<ServicePlan> {
        let view = View {
            snapshot: &*shown,
            ..observed.view(self.for_people)
        };
        let plan = plan::plan_for(&view, service);
        (plan.cloud.obstacle.is_none() && plan.cloud.changes.is_empty()).then_some(plan)
    }

    /// The load balancer is as it should be: now Kubernetes. The task where the Service has to be planned again.
    fn finish(&mut self, mut task: Task, plan: ServicePlan) -> Option<Task> {
        task.works_on(&plan);
        let outcome = match (plan.want, &plan.status) {
            (Want::Remove, _) => write::nothing_left(self.apis, &plan.service).map(|()| None),
            (_, Some(status)) => write::status(self.apis, &plan.service, status).map(Some),
            (_, None) => Ok(Some(Arc::clone(&plan.service))),
        };
        match outcome {
            Ok(service) => self.succeeded(task, plan, service),
            Err(error) if error.is_conflict() => return Some(task),
            Err(error) => self.failed_on_kubernetes(task, plan, &error),
        }
        None
    }

    fn write_status(&mut self, task: &mut Task, mut plan: ServicePlan) -> ServicePlan {
        let Some(status) = &plan.status else {
            return plan;
        };
        match write::status(self.apis, &plan.service, status) {
            Ok(service) => {
                let line = status_line(status);
                self.note_write(task, &plan, line, || plan::status_set(status));
                self.controller.due.written(&service);
                plan.service = service;
                plan.status = None;
            }
            Err(error) if error.is_not_found() => task.warn_of_leftover(),
            Err(error) => log::debug!("{}: status not written: {error}", plan.name()),
        }
        plan
    }

    fn succeeded(&mut self, mut task: Task, mut plan: ServicePlan, service: Option<Arc<Service>>) {
        match (plan.want, &plan.status) {
            (Want::Remove, _) => {
                let line = "status emptied, finalizer removed".to_owned();
                self.note_write(&mut task, &plan, line, plan::finalizer_removed);
            }
            (_, Some(status)) => {
                let line = status_line(status);
                self.note_write(&mut task, &plan, line, || plan::status_set(status));
            }
            (_, None) => {}
        }
        match task.has_changed {
            true => self.report.changed += 1,
            false => self.report.unchanged += 1,
        }
        if let Some(kind) = task.kind {
            events::end(self.apis, &plan, kind, End::Done);
        }
        if let Some(service) = service {
            self.controller.due.written(&service);
            plan.service = service;
        }
        self.ended(task.made, plan, false);
    }

    /// A Service for which there is nothing to do.
    fn in_order(&mut self, plan: ServicePlan) {
        events::findings(self.apis, &plan);
        self.report.unchanged += 1;
        self.controller.due.planned(&plan.service);
        self.ended(Vec::new(), plan, false);
    }

    fn failed_on_kubernetes(&mut self, task: Task, plan: ServicePlan, error: &kube::Error) {
        if error.is_not_found() {
            // The Service does not exist any more: nothing is left to be done.
            return task.warn_of_leftover();
        }
        self.is_closed |= error.is_refused();
        self.failed(task, plan, error.to_string());
    }

    fn failed(&mut self, task: Task, plan: ServicePlan, why: String) {
        let kind = task.kind.unwrap_or_else(|| kind_of(&plan.cloud.changes));
        if !self.is_closed {
            events::end(self.apis, &plan, kind, End::Failed(&why));
        }
        let finding = (!self.is_closed).then(|| events::failed(kind));
        self.fail(task, plan, why, finding);
    }

    fn fail(&mut self, task: Task, plan: ServicePlan, why: String, finding: Option<Reason>) {
        self.report.failures.push(Failure {
            object: plan.name(),
            why,
            finding,
        });
        self.ended(task.made, plan, true);
    }

    /// The end of a Service in this tick. One that failed, or that something in the cloud keeps unfinished, is taken
    /// up again by the back-off.
    fn ended(&mut self, made: Vec<Value>, mut plan: ServicePlan, has_failed: bool) {
        let (uid, backoff) = (&plan.object.uid, &mut self.controller.due.backoff);
        match has_failed || plan.cloud.is_unfinished {
            true => backoff.failed(uid, Instant::now()),
            false => backoff.succeeded(uid),
        }
        if self.for_people {
            plan.made = made;
            self.plans.push(plan);
        }
    }

    /// A write to the Service itself.
    fn note_write(
        &mut self,
        task: &mut Task,
        plan: &ServicePlan,
        line: String,
        made: impl FnOnce() -> Value,
    ) {
        let name = plan.name();
        log_change(super::NAME, &name, &line);
        self.report.changes.push((name, line));
        task.has_changed = true;
        if self.for_people {
            task.made.push(made());
        }
    }
}

impl Task {
    fn new(service: Arc<Service>, since: Instant) -> Task {
        Task {
            service,
            since,
            plans: 0,
            has_refused: false,
            kind: None,
            balancer: None,
            has_changed: false,
            overtaken: None,
            made: Vec::new(),
        }
    }

    fn uid(&self) -> &str {
        &self.service.metadata.uid
    }

    fn since_now(mut self) -> Task {
        self.since = Instant::now();
        self
    }

    fn works_on(&mut self, plan: &ServicePlan) {
        let is_changed = self.kind.is_some() && plan.want == Want::Ensure;
        if let Some(balancer) = plan.cloud.found.as_ref().filter(|_| is_changed) {
            self.balancer = Some((balancer.name.clone(), balancer.id));
        }
    }

    /// For people: why no plan was made to its end.
    fn why_overtaken(&self) -> String {
        match &self.overtaken {
            Some(line) => format!(
                "{line}: not done in {PLANS_AT_MOST} plans, because the API says each time that something else changed \
                 meanwhile"
            ),
            None => format!(
                "not done in {PLANS_AT_MOST} plans: the Service changed during each of them"
            ),
        }
    }

    /// The Service was deleted by force while its load balancer was worked on: the log is the only place left to
    /// report that at once.
    fn warn_of_leftover(&self) {
        if let Some((name, id)) = &self.balancer {
            log::warn!(
                "{}: it was deleted while its load balancer {name} ({id}) was worked on, which stays and costs money; \
                 ccm lb sync --delete-orphans deletes it",
                self.service.object().for_people(),
            );
        }
    }
}

impl Planned {
    pub(super) fn uid(&self) -> &str {
        self.task.uid()
    }
}

impl Held {
    pub(super) fn uid(&self) -> &str {
        self.task.uid()
    }
}

impl Claims {
    fn of(plan: &ServicePlan) -> Claims {
        let found = plan.cloud.found.as_ref().map(|balancer| balancer.id);
        Claims {
            ids: found
                .into_iter()
                .chain(plan.cloud.takes_over.iter().copied())
                .collect(),
            names: plan
                .new_name()
                .map(|name| name.value.clone())
                .into_iter()
                .collect(),
        }
    }

    fn overlap(&self, other: &Claims) -> bool {
        !self.ids.is_disjoint(&other.ids) || !self.names.is_disjoint(&other.names)
    }

    fn extend(&mut self, other: &Claims) {
        self.ids.extend(&other.ids);
        self.names.extend(other.names.iter().cloned());
    }
}

fn kind_of(changes: &[Box<dyn Change>]) -> ChangeKind {
    let mut kinds = changes.iter().map(|change| change.kind());
    let first = kinds.next().unwrap_or(ChangeKind::Settings);
    match kinds.all(|kind| kind == first) {
        true => first,
        false => ChangeKind::Settings,
    }
}
