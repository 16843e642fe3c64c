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
use super::report::{Report, publish};
use super::{Controller, Proposal, Selection};
use crate::cloud::{Finding, Gate, Reason, Urgency};
use crate::kube::Node;
use crate::world::{Error, World};
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

    /// What both APIs say and what would be done, for the nodes that are due or asked for.
    pub fn evaluate(
        &self,
        world: &World,
        selection: &Selection,
    ) -> Result<(Observed, Vec<NodePlan>), Error> {
        let nodes = world.nodes(self.settings.sync_interval / 2)?;
        let now = Instant::now();
        let refresh = selection.is_explicit() || self.is_refresh_due(now);
        let due = |node: &Node| selection.names(node.name()) && (refresh || self.is_due(node, now));
        let urgency = match self.work(&nodes.value, selection, now) {
            Work::Nothing => return Ok((Observed::only(nodes), Vec::new())),
            Work::Refresh if self.last_refresh.is_some() => Urgency::CanWait,
            Work::Refresh | Work::Needed => Urgency::Needed,
        };
        // A plan from an older view only proposes; when it holds a write it is made again on a young one.
        let young = self.settings.server_cache_max_age;
        let proposal_age = match urgency {
            Urgency::Needed => young,
            Urgency::CanWait => young.max(self.settings.status_update_frequency / 2),
        };
        let observed = observe::observe(world, nodes, proposal_age, urgency)?;
        let plans = plan(&observed.view(), &*world.provider, due);
        if observed.instances_age() <= young || plans.iter().all(|plan| plan.changes.is_empty()) {
            return Ok((observed, plans));
        }
        let observed = observe::observe(world, observed.nodes, young, urgency)?;
        let plans = plan(&observed.view(), &*world.provider, due);
        Ok((observed, plans))
    }

    fn work(&self, nodes: &[Node], selection: &Selection, now: Instant) -> Work {
        if selection.is_explicit() || nodes.iter().any(|node| self.is_due(node, now)) {
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
    fn is_due(&self, node: &Node, now: Instant) -> bool {
        let uid = &node.metadata.uid;
        let retry = self.backoff.is_retry_due(uid, now);
        retry
            || (is_uninitialised(node)
                && !is_left_alone(node)
                && !self.backoff.is_waiting(uid, now))
    }

    fn apply_all(
        &mut self,
        world: &World,
        gate: &dyn Gate,
        observed: &Observed,
        plans: Vec<NodePlan>,
    ) -> Report {
        let mut report = Report::default();
        let mut told = Vec::new();
        for plan in plans {
            let (object, uid) = (plan.object.clone(), plan.object.uid.clone());
            let label = format!("node/{}", object.name);
            let replan = |node: &Node| observed.replan(node, &*world.provider);
            let applied = apply::apply(world, gate, plan, replan);
            match applied.lines.is_empty() {
                true => report.unchanged += 1,
                false => report.changed += 1,
            }
            report
                .changes
                .extend(applied.lines.into_iter().map(|line| (label.clone(), line)));
            let blocked = applied.plan.as_ref().is_some_and(|plan| plan.is_blocked);
            match (&applied.error, blocked) {
                (None, false) => self.backoff.succeeded(&uid),
                _ => self.backoff.failed(&uid, Instant::now()),
            }
            let mut findings = applied.plan.map(|plan| plan.findings).unwrap_or_default();
            if blocked && applied.error.is_none() {
                let why = findings
                    .last()
                    .map(|finding| finding.message.clone())
                    .unwrap_or_default();
                report.failures.push((label.clone(), why));
            }
            if applied.initialised {
                findings.push(Finding::info(Reason::Synced, "Node synced successfully"));
            }
            told.push((object, findings));
            if let Some(error) = applied.error {
                let refused = error.is_refused();
                report.failures.push((label, error.to_string()));
                if refused {
                    break;
                }
            }
        }
        // Events come last: a hundred nodes are ready before the first of them is talked about.
        for (object, findings) in &told {
            publish(world, gate, NAME, object, findings);
        }
        report
    }
}

/// A node being deleted gets nothing any more.
fn is_left_alone(node: &Node) -> bool {
    node.metadata.deletion_timestamp.is_some()
}

impl Controller for NodeController {
    fn name(&self) -> &'static str {
        NAME
    }

    fn interval(&self) -> Duration {
        self.settings.sync_interval
    }

    fn tick(&mut self, world: &World, gate: &dyn Gate, selection: &Selection) -> Report {
        let begun = Instant::now();
        let was_refresh = selection.is_explicit() || self.is_refresh_due(begun);
        match self.evaluate(world, selection) {
            Err(error) => Report::outage(error, self.waiting(world, begun)),
            Ok((observed, plans)) => {
                let uids: std::collections::HashSet<&str> = observed
                    .nodes
                    .value
                    .iter()
                    .map(|node| node.metadata.uid.as_str())
                    .collect();
                self.backoff.keep(|uid| uids.contains(uid));
                if was_refresh {
                    self.last_refresh = Some(begun);
                }
                self.apply_all(world, gate, &observed, plans)
            }
        }
    }

    fn propose(&self, world: &World, selection: &Selection) -> Result<Vec<Proposal>, Error> {
        let (_, plans) = self.evaluate(world, selection)?;
        let proposal = |plan: NodePlan| Proposal {
            object: format!("node/{}", plan.object.name),
            lines: plan.changes.iter().flat_map(Change::lines).collect(),
        };
        Ok(plans.into_iter().map(proposal).collect())
    }
}

impl NodeController {
    /// What an outage keeps waiting, for the line that tells it.
    fn waiting(&self, world: &World, now: Instant) -> String {
        let Ok(nodes) = world.nodes(Duration::MAX) else {
            return String::new();
        };
        match nodes
            .value
            .iter()
            .filter(|node| self.is_due(node, now))
            .count()
        {
            0 => String::new(),
            1 => "1 node waits".into(),
            count => format!("{count} nodes wait"),
        }
    }
}
