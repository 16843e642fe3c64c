//! Works off the Services that a proposal wants to change: everything is read again, planned
//! again, and only that plan is applied. When a change may have dropped other state, the same
//! once more.

use super::Settings;
use super::observe::{self, Freshness, Observed};
use super::plan::{self, ServicePlan, View, Want, status_line};
use super::project;
use super::rounds::{Rounds, Work};
use super::tell::{self, Told};
use super::write;
use crate::cloud::{
    Change, ChangeKind, ErrorKind, Gate, Landscape, LoadBalancers, Reason, Urgency,
    without_correlations,
};
use crate::controllers::report::{Failure, Report, tell_change};
use crate::kube::{self, Node, Service};
use crate::text;
use crate::world::{Error, ReadFrom, World};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

/// Created, attached, and then right: more looks at one Service than this are left to the next tick.
const LOOKS_AT_MOST: u32 = 5;

pub(super) struct Pass<'a> {
    pub(super) world: &'a World,
    pub(super) gate: &'a dyn Gate,
    pub(super) provider: &'a dyn LoadBalancers,
    pub(super) settings: &'a Settings,
    /// See `plan::View`.
    for_people: bool,
    pub(super) report: Report,
    /// The plans that were made last, one for each Service that is still there.
    pub(super) done: Vec<Done>,
    /// What was changed for each Service, by UID.
    touched: HashMap<String, ChangeKind>,
    /// For people: every write that was made for each Service, by UID.
    made: HashMap<String, Vec<Value>>,
    closed: bool,
}

/// What came of one Service.
pub(super) struct Done {
    pub(super) plan: ServicePlan,
    /// As the API server has it now.
    pub(super) service: Option<Arc<Service>>,
    /// It failed, or something it waits for is still to come: it is looked at again by the back-off.
    pub(super) again: bool,
}

impl<'a> Pass<'a> {
    pub(super) fn new(
        world: &'a World,
        gate: &'a dyn Gate,
        provider: &'a dyn LoadBalancers,
        settings: &'a Settings,
        for_people: bool,
    ) -> Pass<'a> {
        Pass {
            world,
            gate,
            provider,
            settings,
            for_people,
            report: Report::default(),
            done: Vec::new(),
            touched: HashMap::new(),
            made: HashMap::new(),
            closed: false,
        }
    }

    /// Of load balancers the first look takes what was listed since `begun`, for the proposal:
    /// nothing was written since. Services and nodes it reads itself.
    pub(super) fn run(&mut self, services: Vec<Arc<Service>>, begun: Instant) -> Result<(), Error> {
        let mut pending = services;
        let mut listed_since = begun;
        for _ in 0..LOOKS_AT_MOST {
            if pending.is_empty() || self.closed {
                break;
            }
            let (count, looked) = (pending.len(), self.look(&pending, listed_since));
            pending = match looked {
                Ok(None) => Vec::new(),
                Ok(Some((observed, plans))) => self.make(&observed, plans),
                Err(error) => {
                    self.report.unreached += count;
                    return Err(error);
                }
            };
            listed_since = Instant::now();
        }
        self.report.unreached += pending.len();
        Ok(())
    }

    /// Was anything written to the cloud, or tried to be?
    pub(super) fn has_begun_changes(&self) -> bool {
        !self.touched.is_empty()
    }

    /// Both APIs as they are now, and what should be done; none: the Services are gone.
    fn look(
        &self,
        services: &[Arc<Service>],
        listed_since: Instant,
    ) -> Result<Option<(Observed, Vec<ServicePlan>)>, Error> {
        let begun = Instant::now();
        let services = observe::read_again(self.world, services)?;
        if services.is_empty() {
            return Ok(None);
        }
        // Targets are removed by this list: an old one must not take a node away.
        let nodes = self.world.nodes(begun.elapsed(), ReadFrom::Latest)?;
        let mut observed = self.observe(services, &nodes.value, listed_since)?;
        let mut plans = plan::plan(&observed.view(self.for_people), self.provider);
        if plans.iter().any(|plan| plan.cloud.rests_on_servers) {
            observed.ask_for_servers(self.world, &nodes.value, begun, Urgency::Needed)?;
            plans = plan::plan(&observed.view(self.for_people), self.provider);
        }
        if plans.iter().any(|plan| plan.cloud.rests_on_whole_cluster) {
            let all = self.world.any_services(begun.elapsed())?;
            let name = &self.settings.cluster_name;
            observed.cluster = observe::cluster(self.world, name, &all.value, &nodes.value)?;
            plans = plan::plan(&observed.view(self.for_people), self.provider);
        }
        project::doubt(self.world, &observed.cluster, &mut plans);
        Ok(Some((observed, plans)))
    }

    fn observe(
        &self,
        services: Vec<Arc<Service>>,
        nodes: &[Arc<Node>],
        listed_since: Instant,
    ) -> Result<Observed, Error> {
        observe::observe(
            self.world,
            &self.settings.cluster_name,
            services,
            nodes,
            Freshness::Since(listed_since),
            Urgency::Needed,
        )
    }

    /// Makes what was planned; the Services that have to be looked at again.
    fn make(&mut self, observed: &Observed, plans: Vec<ServicePlan>) -> Vec<Arc<Service>> {
        let mut again = Vec::new();
        let mut works = Vec::new();
        let mut claimed = HashSet::new();
        let mut names = HashSet::new();
        for plan in plans {
            // Two Services may ask for one load balancer or certificate that nobody lives in: the
            // first gets it, and the second sees who lives there when it is looked at again.
            let found = plan.cloud.found.as_ref().map(|balancer| balancer.id);
            let mut takes = found.into_iter().chain(plan.cloud.takes.iter().copied());
            let new = plan.makes().map(|name| name.value.clone());
            // A new one's name can be had once, too.
            if takes.any(|id| !claimed.insert(id)) || new.is_some_and(|name| !names.insert(name)) {
                again.push(plan.service);
                continue;
            }
            tell::findings(self.world, &plan);
            if let Some(obstacle) = plan.cloud.obstacle.clone() {
                self.fail(plan, obstacle.message, Some(obstacle.reason));
            } else if self.closed {
                self.report.unreached += 1;
            } else {
                match self.begin(plan) {
                    Begun::Work(work) => works.push(*work),
                    Begun::Over => {}
                    Begun::Again(service) => again.push(service),
                }
            }
        }
        let rounds = Rounds {
            provider: self.provider,
            gate: self.gate,
            concurrency: self.settings.concurrency,
            time_scale: self.settings.time_scale,
        };
        rounds.run(&mut works);
        let ends = works.into_iter();
        again.extend(ends.filter_map(|work| self.end(observed, work)));
        again
    }

    /// What comes before the first change in the cloud: our finalizer, and a word about it.
    fn begin(&mut self, mut plan: ServicePlan) -> Begun {
        if plan.add_finalizer {
            match write::finalizer(self.world, self.gate, &plan.service) {
                Ok(service) => {
                    self.note(&plan, plan::finalizer_added);
                    let line = "finalizer: added".to_owned();
                    tell_change(super::NAME, &plan.name(), &line);
                    self.report.changes.push((plan.name(), line));
                    plan.service = service;
                    plan.add_finalizer = false;
                }
                Err(error) if error.is_conflict() => return Begun::Again(plan.service),
                Err(error) => return self.failed_on_kubernetes(plan, &error),
            }
        }
        if plan.cloud.changes.is_empty() {
            return match self.finish(plan) {
                None => Begun::Over,
                Some(service) => Begun::Again(service),
            };
        }
        let uid = &plan.object.uid;
        if !self.touched.contains_key(uid) {
            let kind = kind_of(&plan.cloud.changes);
            self.touched.insert(uid.clone(), kind);
            tell::begin(self.world, &plan, kind);
        }
        Begun::Work(Box::new(Work::new(plan)))
    }

    /// After the changes in the cloud. The Service when it has to be looked at again.
    fn end(&mut self, observed: &Observed, work: Work) -> Option<Arc<Service>> {
        let name = work.plan.name();
        let is_overtaken = work.look_again && work.made.is_empty();
        for made in work.made {
            tell::changed(self.world, &work.plan, &*made);
            self.note(&work.plan, || made.json());
        }
        let lines = work.lines.into_iter().map(|line| (name.clone(), line));
        self.report.changes.extend(lines);
        if let Some(error) = work.error {
            self.closed |= error.kind == ErrorKind::Refused;
            self.failed(work.plan, error.to_string());
            return None;
        }
        if !work.refused.is_empty() {
            let all: Vec<String> = work.refused.iter().map(ToString::to_string).collect();
            // The address is there, so the status is written all the same.
            let plan = self.write_status(work.plan);
            self.failed(plan, text::told_once(&all, without_correlations));
            return None;
        }
        if !work.look_again {
            return self.finish(work.plan);
        }
        let service = work.plan.service;
        if is_overtaken {
            // Nothing was done, so no end of it is told.
            self.touched.remove(&service.metadata.uid);
        }
        match work
            .shown
            .and_then(|shown| self.left(observed, shown, &service))
        {
            Some(plan) => self.finish(plan),
            None => Some(service),
        }
    }

    /// The plan on what the answer of a write showed; none where there is more to do in the cloud.
    fn left(
        &self,
        observed: &Observed,
        shown: Landscape,
        service: &Arc<Service>,
    ) -> Option<ServicePlan> {
        let view = View {
            landscape: &shown,
            ..observed.view(self.for_people)
        };
        let plan = plan::plan_for(&view, self.provider, service);
        (plan.cloud.obstacle.is_none() && plan.cloud.changes.is_empty()).then(|| {
            tell::findings(self.world, &plan);
            plan
        })
    }

    /// The cloud is as it should be: now Kubernetes. The Service when it has to be looked at again.
    fn finish(&mut self, plan: ServicePlan) -> Option<Arc<Service>> {
        let outcome = match (plan.want, &plan.status) {
            (Want::Remove, _) => {
                write::nothing_left(self.world, self.gate, &plan.service).map(|()| None)
            }
            (_, Some(status)) => {
                write::status(self.world, self.gate, &plan.service, status).map(Some)
            }
            (_, None) => Ok(Some(Arc::clone(&plan.service))),
        };
        match outcome {
            Ok(service) => self.succeeded(plan, service),
            Err(error) if error.is_conflict() => return Some(plan.service),
            Err(error) => drop(self.failed_on_kubernetes(plan, &error)),
        }
        None
    }

    fn write_status(&mut self, mut plan: ServicePlan) -> ServicePlan {
        let Some(status) = &plan.status else {
            return plan;
        };
        match write::status(self.world, self.gate, &plan.service, status) {
            Ok(service) => {
                let line = status_line(status);
                tell_change(super::NAME, &plan.name(), &line);
                self.report.changes.push((plan.name(), line));
                self.note(&plan, || plan::status_set(status));
                plan.service = service;
                plan.status = None;
            }
            Err(error) if error.is_not_found() => self.tell_left(&plan),
            Err(error) => log::debug!("{}: status not written: {error}", plan.name()),
        }
        plan
    }

    fn note(&mut self, plan: &ServicePlan, made: impl FnOnce() -> Value) {
        if self.for_people {
            let uid = plan.object.uid.clone();
            self.made.entry(uid).or_default().push(made());
        }
    }

    fn succeeded(&mut self, mut plan: ServicePlan, service: Option<Arc<Service>>) {
        let made = match (plan.want, &plan.status) {
            (Want::Remove, _) => Some((
                "status emptied, finalizer removed".to_owned(),
                plan::finalizer_removed(),
            )),
            (_, Some(status)) => Some((status_line(status), plan::status_set(status))),
            (_, None) => None,
        };
        if let Some((line, made)) = made {
            self.note(&plan, || made);
            tell_change(super::NAME, &plan.name(), &line);
            self.report.changes.push((plan.name(), line));
        }
        let name = plan.name();
        match self
            .report
            .changes
            .iter()
            .any(|(object, _)| *object == name)
        {
            true => self.report.changed += 1,
            false => self.report.unchanged += 1,
        }
        if let Some(kind) = self.touched.get(&plan.object.uid) {
            tell::end(self.world, &plan, *kind, Told::Done);
        }
        if let Some(service) = &service {
            plan.service = Arc::clone(service);
        }
        plan.made = self.made.remove(&plan.object.uid).unwrap_or_default();
        self.done.push(Done {
            again: plan.cloud.is_unfinished,
            plan,
            service,
        });
    }

    fn failed_on_kubernetes(&mut self, plan: ServicePlan, error: &kube::Error) -> Begun {
        if error.is_not_found() {
            // Somebody took the Service away: nothing is left to be done.
            self.tell_left(&plan);
            return Begun::Over;
        }
        self.closed |= error.is_refused();
        self.failed(plan, error.to_string());
        Begun::Over
    }

    /// It went by force, and what was made for it stands: the log is the only place left to say so at once.
    fn tell_left(&self, plan: &ServicePlan) {
        let is_made = self.touched.contains_key(&plan.object.uid) && plan.want == Want::Ensure;
        if let Some(balancer) = plan.cloud.found.as_ref().filter(|_| is_made) {
            log::warn!(
                "{}: it went while its load balancer {} ({}) was worked on, which stays and costs money; ccm lb sync \
                 --delete-orphans deletes it",
                plan.name(),
                balancer.name,
                balancer.id
            );
        }
    }

    fn failed(&mut self, plan: ServicePlan, why: String) {
        let kind = self.touched.get(&plan.object.uid).copied();
        let kind = kind.unwrap_or_else(|| kind_of(&plan.cloud.changes));
        if !self.closed {
            tell::end(self.world, &plan, kind, Told::Failed(&why));
        }
        let told = (!self.closed).then(|| tell::failed(kind));
        self.fail(plan, why, told);
    }

    fn fail(&mut self, mut plan: ServicePlan, why: String, finding: Option<Reason>) {
        plan.made = self.made.remove(&plan.object.uid).unwrap_or_default();
        self.report.failures.push(Failure {
            object: plan.name(),
            why,
            finding,
        });
        self.done.push(Done {
            service: Some(Arc::clone(&plan.service)),
            plan,
            again: true,
        });
    }
}

/// What comes after the finalizer.
enum Begun {
    Work(Box<Work>),
    Over,
    Again(Arc<Service>),
}

fn kind_of(changes: &[Box<dyn Change>]) -> ChangeKind {
    let mut kinds = changes.iter().map(|change| change.kind());
    let first = kinds.next().unwrap_or(ChangeKind::Settings);
    match kinds.all(|kind| kind == first) {
        true => first,
        false => ChangeKind::Settings,
    }
}

/// A Service for which there is nothing to do.
pub(super) fn settle(world: &World, plan: ServicePlan, report: &mut Report, done: &mut Vec<Done>) {
    tell::findings(world, &plan);
    report.unchanged += 1;
    done.push(Done {
        service: Some(Arc::clone(&plan.service)),
        again: plan.cloud.is_unfinished,
        plan,
    });
}
