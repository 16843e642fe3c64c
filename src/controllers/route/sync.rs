//! Brings the routes of the network into the state that the nodes need. A sync reads the APIs of Kubernetes and the
//! cloud again, plans, and makes the changes of that plan. It repeats this when the data became too old before all
//! changes were made. It also repeats this when the cloud refused a change, because a new plan shows whether another
//! program has made that change.

use super::observe::{ObservedRoutes, RouteController};
use super::types::{NAME, NodeRoutePlan, RoutePlan};
use crate::cache::{Apis, CacheError};
use crate::controllers::executor::{End, Execution, Executor, Requests};
use crate::controllers::node_writes::{AppliedPlan, apply};
use crate::controllers::parallel::in_parallel;
use crate::controllers::report::{Outage, Report};
use crate::controllers::{NodeChange, Progress};
use crate::kube::{self, KubeNode};
use crate::provider::{self, ErrorKind, Instance, Route, RouteChange, Routes, Write};
use ipnet::Ipv4Net;
use serde_json::Value;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many plans one sync makes at most. Each plan is carried out only while its data are new enough, so many changes
/// need several plans. This number is enough for a hundred deletions. The next sync makes the changes that are left.
const PLANS_AT_MOST: u32 = 40;

/// A route is added only if the data of its plan were read at most this long ago. If the node was deleted in the
/// meantime, the new route does no harm, because the node's pods do not exist any more. The next sync deletes the
/// route.
const ADDS_WITHIN: Duration = Duration::from_secs(60);

/// A route is deleted only if the data of its plan were read at most this long ago. If the time in the setting
/// `HCLOUD_SERVER_CACHE_MAX_AGE` is shorter, that time is the limit.
const DELETES_WITHIN: Duration = Duration::from_secs(10);

/// The result of a sync of the Network's routes.
#[derive(Debug, Default)]
pub struct Synced {
    pub report: Report,
    /// The last plan that was made in the sync.
    pub plan: RoutePlan,
    /// The writes that were made, each with the name of the object and the write as JSON.
    pub made: Vec<(String, Value)>,
    /// The routes of the network: as they were read last, with the changes that this sync has made since.
    pub(super) routes: HashSet<Route>,
    /// The list of servers from which the plan was made.
    pub(super) instances: Arc<Vec<Instance>>,
    /// Whether a route was deleted and its replacement could not be added.
    pub(super) is_interrupted: bool,
    /// Whether a route was added or deleted.
    pub(super) has_changed_routes: bool,
}

pub(super) struct RouteSync<'a> {
    apis: &'a Apis,
    controller: &'a mut RouteController,
    /// The node conditions that were written, each with the name of the node.
    conditions: Vec<(String, NodeChange)>,
    /// The UIDs of the nodes whose condition this sync has written or tried to write. No condition is written twice in
    /// a sync.
    said: HashSet<String>,
    /// The error after which no more node conditions (`NetworkUnavailable`) are written: the API server did not answer,
    /// or this process is not allowed to write any more. `None` means that there was no such error.
    mute: Option<CacheError>,
    /// The changes that the cloud refused, each with the error. They are not tried again in this sync.
    refused: Vec<(RouteChange, provider::ProviderError)>,
    /// The destinations whose route this sync has deleted, or may have deleted because the API did not say whether the
    /// deletion has succeeded.
    deleted: HashSet<Ipv4Net>,
    /// The error that has ended the sync early: an API did not answer, or this process is not allowed to write any
    /// more. `None` means that there was no such error.
    stopped: Option<CacheError>,
    synced: Synced,
}

impl<'a> RouteSync<'a> {
    pub(super) fn new(apis: &'a Apis, controller: &'a mut RouteController) -> RouteSync<'a> {
        RouteSync {
            apis,
            controller,
            conditions: Vec::new(),
            said: HashSet::new(),
            mute: None,
            refused: Vec::new(),
            deleted: HashSet::new(),
            stopped: None,
            synced: Synced::default(),
        }
    }

    pub(super) fn run(mut self, cloud: &dyn Routes) -> Synced {
        for _ in 0..PLANS_AT_MOST {
            let complete = match self.observe() {
                Ok(complete) => complete,
                Err(error) => {
                    self.stopped = Some(error);
                    break;
                }
            };
            self.set_conditions(false);
            let (there, refused) = (self.synced.routes.len(), self.refused.len());
            if self.left().is_empty() {
                break;
            }
            let is_complete = self.execute(cloud, complete);
            let is_clearer = self.synced.plan.is_in_doubt && self.synced.routes.len() > there;
            // When the cloud refuses a change, another program has often made the same change. Only a new plan shows
            // this, so the sync plans once more after a refusal.
            let is_over = is_complete && self.refused.len() == refused && !is_clearer;
            if is_over || self.stopped.is_some() {
                break;
            }
        }
        self.finish()
    }

    /// Reads the APIs of Kubernetes and the cloud again, and makes a new plan. Returns the time at which all the data
    /// had been read.
    fn observe(&mut self) -> Result<Instant, CacheError> {
        let mut observed = self.controller.observe_all(self.apis, Duration::ZERO)?;
        let (plan, network) = (&mut observed.plan, &observed.network.value);
        self.controller.memory.note_routes(plan, network);
        // A change that the cloud has refused is no longer needed when the new plan does not contain it, e.g. because
        // another program has made it. It is then removed from the refused changes.
        self.refused.retain(|(change, _)| plan.changes.contains(change));
        for (change, error) in &self.refused {
            plan.block(change, error);
        }
        self.synced.routes = network.routes.iter().copied().collect();
        self.synced.instances = observed.instances;
        self.synced.plan = observed.plan;
        Ok(observed.complete)
    }

    /// Returns the changes of the plan that were not made yet, grouped by destination. A destination with a refused
    /// change is left out.
    fn left(&self) -> Vec<Vec<RouteChange>> {
        let is_left = |change: &&RouteChange| {
            let destination = change.route.destination;
            let is_refused =
                self.refused.iter().any(|(refused, _)| refused.route.destination == destination);
            !is_refused && !self.is_made(change)
        };
        let changes = &self.synced.plan.changes;
        let left: Vec<RouteChange> = changes.iter().filter(is_left).cloned().collect();
        let pairs = left.chunk_by(|one, next| one.route.destination == next.route.destination);
        pairs.map(<[RouteChange]>::to_vec).collect()
    }

    fn is_made(&self, change: &RouteChange) -> bool {
        self.synced.routes.contains(&change.route) != change.is_deletion
    }

    /// Makes the remaining changes of the plan. Returns `false` when some changes were dropped, because the data of the
    /// plan had become too old.
    fn execute(&mut self, cloud: &dyn Routes, complete: Instant) -> bool {
        let delete_within = DELETES_WITHIN.min(self.controller.settings.server_cache_max_age);
        let mut executor = Executor::in_turn(NAME);
        for (place, changes) in self.left().into_iter().enumerate() {
            let within = if changes.iter().any(|change| change.is_deletion) {
                delete_within
            } else {
                ADDS_WITHIN
            };
            // The changes for the first destination can begin at any time. Those for the other destinations must begin
            // soon after the data of the plan were read, because the plan may be wrong later. Without the exception for
            // the first destination, no change would ever be made when the API is slow.
            let begins_by = (place > 0).then_some(complete + within);
            let object = changes[0].object();
            let writes = changes.iter().map(|change| cloud.change(change.clone()));
            executor.begin(object, writes.collect(), changes, begins_by);
        }
        let mut is_complete = true;
        std::thread::scope(|scope| {
            let mut requests = Requests::new(scope, cloud, 1);
            while !executor.executions().is_empty() {
                for over in executor.work(&mut requests, None) {
                    is_complete &= !over.result.is_stopped;
                    self.ended(over);
                }
                self.set_conditions(false);
            }
        });
        is_complete
    }

    /// Records which changes of the routes to one destination (a range of pod addresses) were made, and the error of
    /// the first change that failed. The changes after a failed change were not made.
    fn ended(&mut self, over: Execution<Vec<RouteChange>>) {
        let (made, left) = over.subject.split_at(over.result.made.len());
        for change in made {
            let (object, synced) = (change.object(), &mut self.synced);
            synced.has_changed_routes = true;
            synced.made.push((object.clone(), change.json()));
            synced.report.add_changes(&object, &change.description());
            if change.is_deletion {
                synced.routes.remove(&change.route);
                self.controller.memory.routes.remove(&change.route);
                self.deleted.insert(change.route.destination);
            } else {
                synced.routes.insert(change.route);
            }
        }
        let (Some(change), End::Failed(error)) = (left.first(), over.result.end) else {
            return;
        };
        match error.kind {
            ErrorKind::Other | ErrorKind::NotFound => self.refused.push((change.clone(), error)),
            _ => {
                if change.is_deletion {
                    self.deleted.insert(change.route.destination);
                }
                self.stopped.get_or_insert(CacheError::Cloud(error));
            }
        }
    }

    /// Sets the condition `NetworkUnavailable` of nodes, at most once for each node in a sync. `False` is set when all
    /// routes of the node exist. `True` is set when a route of the node can't be made. If the next plan of this sync
    /// may still make the route, `True` is set only at the end of the sync (`is_end`).
    fn set_conditions(&mut self, is_end: bool) {
        if self.mute.is_some() {
            return;
        }
        let is_due = |node: &&NodeRoutePlan| {
            let is_reached = || node.routes.iter().all(|it| self.synced.routes.contains(it));
            let may_be_set = match node.unavailable {
                Some(true) => is_end || !node.is_in_doubt,
                Some(false) => is_reached(),
                None => false,
            };
            may_be_set && !self.said.contains(&node.object.uid)
        };
        let apis = self.apis;
        let due: Vec<&NodeRoutePlan> = self.synced.plan.nodes.iter().filter(is_due).collect();
        let mutes = |error: &kube::KubeError| {
            error.is_refused() || error.is_unavailable() || error.is_permanent()
        };
        let set = |node: &&NodeRoutePlan| {
            apply(apis, NAME, NodeRoutePlan::clone(node), false, |now| {
                if !is_as_planned(now, &node.node) {
                    return Err("another program changed the node");
                }
                let mut plan = NodeRoutePlan::clone(node);
                plan.node = Arc::new(now.clone());
                plan.set_condition();
                Ok(plan)
            })
        };
        let ends = |applied: &AppliedPlan<_>| applied.error.as_ref().is_some_and(mutes);
        let all = in_parallel(&due, apis.concurrent_nodes, set, ends);
        for (node, applied) in due.into_iter().zip(all) {
            self.said.insert(node.object.uid.clone());
            let is_set = !applied.made.is_empty();
            let change = node.unavailable.filter(|_| is_set).map(NodeChange::condition);
            let object = node.object.for_people();
            self.conditions.extend(change.map(|change| (object.clone(), change)));
            if let Some(error) = applied.error {
                if !error.is_refused() {
                    self.synced.report.fail(object, error.to_string(), None);
                }
                if mutes(&error) {
                    self.mute.get_or_insert(CacheError::Kube(error));
                }
            }
        }
    }

    /// Whether this sync has deleted or may have deleted a route whose replacement does not exist.
    fn is_interrupted(&self) -> bool {
        let mut changes = self.synced.plan.changes.iter();
        let is_deleted = |change: &RouteChange| self.deleted.contains(&change.route.destination);
        changes.any(|change| !change.is_deletion && is_deleted(change) && !self.is_made(change))
    }

    fn finish(mut self) -> Synced {
        let left = self.left();
        let is_interrupted = self.stopped.is_some() && self.is_interrupted();
        if self.stopped.is_none() {
            for change in left.iter().map(|changes| &changes[0]) {
                let failed = change.description().failed();
                let why = format!(
                    "{failed}, because other programs change the Network at the same time; the daemon tries again later"
                );
                self.synced.report.fail(change.object(), why, None);
            }
            self.set_conditions(true);
        }
        let Synced { report, plan, made, .. } = &mut self.synced;
        for (object, change) in self.conditions {
            report.add_changes(&object, &change.description());
            made.push((object, change.json()));
        }
        for (change, error) in self.refused {
            // When the cloud has refused to add a node's route, the field `obstacle` of the node's plan has the error.
            // The loop over the nodes below reports this error, so it is not also reported here as the error of the
            // change.
            let mut nodes = plan.nodes.iter().filter(|node| node.obstacle.is_some());
            if change.is_deletion || !nodes.any(|node| node.name() == change.object()) {
                report.fail(change.object(), error.message, None);
            }
        }
        for node in &plan.nodes {
            if let Some(why) = &node.obstacle {
                report.fail(node.object.for_people(), why.text().into_owned(), Some(why.reason));
            }
        }
        let outage = [self.stopped, self.mute].into_iter().flatten().find(|it| !it.is_refused());
        report.outage = outage.map(Outage::from);
        note_outcomes(report, plan);
        for changes in left {
            report.note(changes[0].object(), Progress::Unreached);
        }
        self.synced.is_interrupted = is_interrupted;
        self.synced
    }
}

impl Synced {
    /// Returns the result of a check of the routes which found nothing to change.
    pub(super) fn nothing(observed: ObservedRoutes) -> Synced {
        let mut report = Report::default();
        note_outcomes(&mut report, &observed.plan);
        Synced {
            report,
            routes: observed.network.value.routes.iter().copied().collect(),
            instances: observed.instances,
            plan: observed.plan,
            ..Synced::default()
        }
    }
}

/// Adds the results to the report: `Changed` for each node and each destination with a change, and `Unchanged` for the
/// other nodes of the plan.
fn note_outcomes(report: &mut Report, plan: &RoutePlan) {
    for node in &plan.nodes {
        report.note(node.object.for_people(), Progress::Unchanged);
    }
    let changed: HashSet<String> = report.changes.iter().map(|(one, _)| one.clone()).collect();
    for object in changed {
        report.note(object, Progress::Changed);
    }
}

/// Whether the node still has the UID, the provider ID and the pod CIDRs for which the plan was made.
fn is_as_planned(now: &KubeNode, then: &KubeNode) -> bool {
    now.metadata.uid == then.metadata.uid
        && now.spec.provider_id == then.spec.provider_id
        && now.spec.pod_cidrs == then.spec.pod_cidrs
}
