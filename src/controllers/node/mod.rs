//! The node controller: gives nodes their identity, addresses and labels, and keeps them right.
//!
//! Decides in `plan`, writes in `apply`. Addresses are written first; removing the
//! `uninitialized` taint is the commit point, because pods must not land on a node whose
//! addresses are not there yet.

mod addresses;
mod apply;
mod labels;
mod observe;
mod plan;

pub use addresses::PROVIDED_NODE_IP;
pub use observe::Observed;
pub use plan::{Change, Field, NodePlan, Server, UNINITIALIZED, View, is_uninitialised, plan};

use super::backoff::Backoff;
use super::report::{Failure, Report, publish};
use super::{Controller, Proposal, Selection};
use crate::cloud::{Finding, Gate, Provider, ProviderId, Reason, Urgency};
use crate::kube::{self, Node};
use crate::world::{self, Error, ReadFrom, World};
use std::collections::HashSet;
use std::time::{Duration, Instant};

pub const NAME: &str = "cloud-node-controller";

/// What the node controller is told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `--node-sync-interval`.
    pub sync_interval: Duration,
    /// `--node-status-update-frequency`: how often initialised nodes are compared.
    pub status_update_frequency: Duration,
    /// `HCLOUD_SERVER_CACHE_MAX_AGE`: how old a list of servers a write may rest on.
    pub server_cache_max_age: Duration,
    /// Multiplies back-offs; 1 outside of tests.
    pub time_scale: f64,
}

pub struct NodeController {
    settings: Settings,
    backoff: Backoff,
    last_refresh: Option<Instant>,
}

/// What a tick is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Nothing,
    /// Only initialised nodes, only because it is time again.
    Refresh,
    /// A node or a person waits.
    Needed,
}

impl NodeController {
    pub fn new(settings: Settings) -> NodeController {
        let backoff = Backoff::new(settings.time_scale);
        NodeController {
            settings,
            backoff,
            last_refresh: None,
        }
    }

    /// All nodes; those that the next evaluation within the interval plans on.
    pub fn nodes(
        &self,
        world: &World,
        selection: &Selection,
    ) -> Result<world::View<Vec<Node>>, Error> {
        let from = match selection.is_explicit() {
            true => ReadFrom::Latest,
            false => ReadFrom::Cache,
        };
        world.nodes(self.settings.sync_interval / 2, from)
    }

    /// What both APIs say and what would be done, for the nodes that are due or asked for.
    pub fn evaluate(
        &self,
        world: &World,
        selection: &Selection,
    ) -> Result<(Observed, Vec<NodePlan>), Error> {
        let nodes = self.nodes(world, selection)?;
        let now = Instant::now();
        let refresh = selection.is_explicit() || self.is_refresh_due(now);
        let due = |node: &Node| {
            selection.names(node.name()) && (refresh || self.is_due(node, world, now))
        };
        let urgency = match self.work(world, &nodes.value, selection, now) {
            Work::Nothing => return Ok((Observed::only(nodes), Vec::new())),
            Work::Refresh if self.last_refresh.is_some() => Urgency::CanWait,
            Work::Refresh | Work::Needed => Urgency::Needed,
        };
        let proposal_age = match urgency {
            Urgency::Needed => self.settings.server_cache_max_age,
            Urgency::CanWait => self.settings.status_update_frequency / 2,
        };
        let observed = observe::observe(world, nodes, proposal_age, urgency)?;
        let plans = plan(&observed.view(), &*world.provider, due);
        let age = observed.instances_age();
        let acceptable = self.acceptable_age(&plans, now.elapsed());
        if age <= acceptable {
            return Ok((observed, plans));
        }
        let observed = observe::observe(world, observed.nodes, acceptable, urgency)?;
        let plans = plan(&observed.view(), &*world.provider, due);
        Ok((observed, plans))
    }

    /// How old a list of servers these plans may rest on; made on an older one, they only propose.
    fn acceptable_age(&self, plans: &[NodePlan], since_this_look: Duration) -> Duration {
        if plans.iter().any(NodePlan::misses_its_server) {
            // A server that is missing from an older list may have been made since, and a new
            // node must not be told that it has none.
            since_this_look
        } else if plans.iter().any(|plan| !plan.changes.is_empty()) {
            self.settings.server_cache_max_age
        } else {
            Duration::MAX
        }
    }

    fn work(&self, world: &World, nodes: &[Node], selection: &Selection, now: Instant) -> Work {
        if selection.is_explicit() || nodes.iter().any(|node| self.is_due(node, world, now)) {
            Work::Needed
        } else if self.is_refresh_due(now) {
            Work::Refresh
        } else {
            Work::Nothing
        }
    }

    fn is_refresh_due(&self, now: Instant) -> bool {
        let frequency = self.settings.status_update_frequency;
        self.last_refresh
            .is_none_or(|last| now.duration_since(last) >= frequency)
    }

    /// Waits for its initialisation, or failed before; and its back-off is over.
    fn is_due(&self, node: &Node, world: &World, now: Instant) -> bool {
        let uid = &node.metadata.uid;
        let retry = self.backoff.is_retry_due(uid, now);
        retry
            || (is_uninitialised(node)
                && !is_left_alone(node, &*world.provider)
                && !self.backoff.is_waiting(uid, now))
    }

    /// One pass, with the plans that it ended with.
    pub fn sync(
        &mut self,
        world: &World,
        gate: &dyn Gate,
        selection: &Selection,
    ) -> (Report, Vec<NodePlan>) {
        let begun = Instant::now();
        let was_refresh = selection.is_explicit() || self.is_refresh_due(begun);
        let (observed, plans) = match self.evaluate(world, selection) {
            Ok(evaluated) => evaluated,
            Err(error) => {
                return (
                    Report::outage(error, self.waiting(world, begun)),
                    Vec::new(),
                );
            }
        };
        let uids: HashSet<&str> = observed
            .nodes
            .value
            .iter()
            .map(|node| node.metadata.uid.as_str())
            .collect();
        self.backoff.keep(|uid| uids.contains(uid));
        if was_refresh {
            self.last_refresh = Some(begun);
        }
        let mut report = Report::default();
        let mut done = Vec::new();
        for plan in plans {
            let (plan, goes_on) = self.sync_one(world, gate, &observed, plan, &mut report);
            done.extend(plan);
            if !goes_on {
                break;
            }
        }
        // Events come last: a hundred nodes are ready before the first of them is talked about.
        for plan in &done {
            publish(world, gate, NAME, &plan.object, &plan.findings);
        }
        (report, done)
    }

    /// Applies one plan and takes note of what came of it; false when no write may follow.
    fn sync_one(
        &mut self,
        world: &World,
        gate: &dyn Gate,
        observed: &Observed,
        plan: NodePlan,
        report: &mut Report,
    ) -> (Option<NodePlan>, bool) {
        let object = format!("node/{}", plan.object.name);
        let uid = plan.object.uid.clone();
        let mut applied = apply::apply(world, gate, plan, |node| {
            observed.replan(node, &*world.provider)
        });
        let changed = !applied.lines.is_empty();
        report
            .changes
            .extend(applied.lines.into_iter().map(|line| (object.clone(), line)));
        let obstacle = applied.plan.as_ref().and_then(NodePlan::obstacle);
        let goes_on = !applied.error.as_ref().is_some_and(kube::Error::is_refused);
        let why = applied.error.as_ref().map(ToString::to_string);
        match why.or_else(|| obstacle.map(|finding| finding.message.clone())) {
            None => {
                self.backoff.succeeded(&uid);
                report.changed += usize::from(changed);
                report.unchanged += usize::from(!changed);
            }
            Some(why) => {
                self.backoff.failed(&uid, Instant::now());
                report.failures.push(Failure {
                    object,
                    why,
                    is_finding: applied.error.is_none(),
                });
            }
        }
        if let Some(plan) = applied.plan.as_mut().filter(|_| applied.initialised) {
            plan.findings
                .push(Finding::info(Reason::Synced, "Node synced successfully"));
        }
        (applied.plan, goes_on)
    }

    /// What an outage keeps waiting, for the line that tells it.
    fn waiting(&self, world: &World, now: Instant) -> String {
        let Some(nodes) = world.nodes_seen() else {
            return String::new();
        };
        match nodes
            .value
            .iter()
            .filter(|node| self.is_due(node, world, now))
            .count()
        {
            0 => String::new(),
            1 => "1 node waits".into(),
            count => format!("{count} nodes wait"),
        }
    }
}

/// A node being deleted, or of another cloud, gets nothing: no reason to ask anybody about it.
fn is_left_alone(node: &Node, provider: &dyn Provider) -> bool {
    let id = &node.spec.provider_id;
    node.metadata.deletion_timestamp.is_some()
        || !(id.is_empty() || matches!(provider.parse_provider_id(id), ProviderId::Ours(_)))
}

impl Controller for NodeController {
    fn name(&self) -> &'static str {
        NAME
    }

    fn interval(&self) -> Duration {
        self.settings.sync_interval
    }

    fn tick(&mut self, world: &World, gate: &dyn Gate, selection: &Selection) -> Report {
        self.sync(world, gate, selection).0
    }

    fn propose(&self, world: &World, selection: &Selection) -> Result<Vec<Proposal>, Error> {
        let (_, plans) = self.evaluate(world, selection)?;
        Ok(plans.iter().map(NodePlan::proposal).collect())
    }
}
