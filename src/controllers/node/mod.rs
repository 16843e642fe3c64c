//! The node controller: gives nodes their identity, addresses and labels, and keeps them right.
//!
//! Decides in `plan`, writes in `apply`; `due` says which nodes a tick is about and how old a
//! list of servers it may rest on, `pass` works off the plans. Addresses are written first;
//! removing the `uninitialized` taint is the commit point, because pods must not land on a
//! node whose addresses are not there yet.

mod apply;
mod change;
mod desired;
mod due;
mod observe;
mod pass;
mod plan;

pub use change::{Change, Field, FieldName};
pub use desired::PROVIDED_NODE_IP;
pub use observe::Observed;
pub use plan::{NodePlan, Server, UNINITIALIZED, View, is_uninitialised, plan};

use super::backoff::Backoff;
use super::lifecycle::SHUTDOWN;
use super::report::{Report, publish, recovered};
use super::{Controller, Proposal, Selection};
use crate::cache::{self, Apis, Error, Poll, ReadFrom};
use crate::kube::{self, Node};
use crate::metrics::NODES;
use crate::provider::{Provider, ProviderId, Urgency};
use due::Work;
use jiff::Timestamp;
use observe::Need;
use pass::Pass;
use plan::plan_node;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub const NAME: &str = "cloud-node-controller";

/// However young `HCLOUD_SERVER_CACHE_MAX_AGE` wants a list to be, the look that read it may use it.
const YOUNGEST: Duration = Duration::from_secs(1);

/// A new node that no server matches may be not ready for that long: its machine may be slow to come up.
const NOT_READY_PATIENCE: Duration = Duration::from_secs(600);

type Nodes = Vec<Arc<Node>>;

/// Settings of the node controller.
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
        apis: &Apis,
        selection: &Selection,
    ) -> Result<cache::View<Vec<Arc<Node>>>, Error> {
        let table_max_age = self.settings.sync_interval / 2;
        if selection.is_explicit() {
            return apis.nodes(table_max_age, ReadFrom::Latest);
        }
        apis.poll_nodes(Poll {
            table_max_age,
            whole_max_age: self.whole_max_age(Instant::now()),
            metadata_max_age: None,
        })
    }

    /// What both APIs say and what would be done, for the nodes that are due or asked for.
    pub fn evaluate(
        &self,
        apis: &Apis,
        selection: &Selection,
    ) -> Result<(Observed, Vec<NodePlan>), Error> {
        let (observed, wanted) = self.look(apis, selection)?;
        let index = observed.index(&*apis.provider);
        let overdue = self.overdue();
        let plans = wanted
            .iter()
            .map(|node| plan_node(node, &index, &*apis.provider, overdue));
        let plans = plans.collect();
        drop(index);
        Ok((observed, plans))
    }

    /// One pass, with the plans that it ended with.
    pub fn sync(&mut self, apis: &Apis, selection: &Selection) -> (Report, Vec<NodePlan>) {
        let mut done = Vec::new();
        let report = self.pass(apis, selection, |plan| {
            publish_findings(apis, &plan);
            done.push(plan);
        });
        (report, done)
    }

    /// What both APIs say, and the nodes that are due or asked for; servers are only asked
    /// for when there are any, and are as young as their plans need.
    fn look(&self, apis: &Apis, selection: &Selection) -> Result<(Observed, Nodes), Error> {
        let nodes = self.nodes(apis, selection)?;
        let now = Instant::now();
        let urgency = match self.work(apis, &nodes.value, selection, now) {
            Work::Nothing => return Ok((Observed::only(nodes), Vec::new())),
            Work::Refresh if self.last_refresh.is_some() => Urgency::CanWait,
            Work::Refresh | Work::Needed => Urgency::Needed,
        };
        let proposal_age = match urgency {
            Urgency::Needed | Urgency::Asked => self.young(),
            Urgency::CanWait => self.settings.status_update_frequency / 2,
        };
        let mut observed = observe::observe(apis, nodes, Need::in_use(proposal_age), urgency)?;
        if !selection.is_explicit() {
            // After the cloud answered: while it does not, no node is read in vain.
            observed.nodes = self.read_again(apis, &observed.nodes.value, now)?;
        }
        let refresh = selection.is_explicit() || self.is_refresh_due(now);
        // One that came while this tick looked would need a list of its own: it is left to the next.
        let is_late = |node: &Node| apis.node_first_seen(node).is_some_and(|seen| seen > now);
        let wanted = |node: &&Arc<Node>| {
            selection.names(node.name())
                && (refresh || self.is_due(node, apis, now))
                && !is_late(node)
        };
        let wanted: Nodes = observed
            .nodes
            .value
            .iter()
            .filter(wanted)
            .cloned()
            .collect();
        let overdue = self.overdue();
        let need = {
            let index = observed.index(&*apis.provider);
            let plans = wanted
                .iter()
                .map(|node| plan_node(node, &index, &*apis.provider, overdue));
            due::need(apis, plans, now, self.young())
        };
        if !observed.is_good_for(need) {
            observed = observe::observe(apis, observed.nodes, need, urgency)?;
        }
        Ok((observed, wanted))
    }

    /// One pass; `done` is given each plan as it was applied last.
    fn pass(&mut self, apis: &Apis, selection: &Selection, done: impl FnMut(NodePlan)) -> Report {
        let begun = Instant::now();
        let was_refresh = selection.is_explicit() || self.is_refresh_due(begun);
        let (observed, wanted) = match self.look(apis, selection) {
            Ok(looked) => looked,
            Err(error) => return Report::outage(error, self.waiting(apis, begun)),
        };
        let nodes = observed.nodes.value.iter();
        let uids: HashSet<&str> = nodes.map(|node| node.metadata.uid.as_str()).collect();
        self.backoff.keep(|uid| uids.contains(uid));
        if was_refresh {
            apis.recorder.keep(kube::NODE, uids.iter().copied());
            self.last_refresh = Some(begun);
        }
        let (young, overdue) = (self.young(), self.overdue());
        measure(&observed.nodes.value, &*apis.provider, &self.backoff);
        let pass = Pass::new(apis, young, overdue, &mut self.backoff, done);
        pass.run(observed, wanted)
    }

    fn young(&self) -> Duration {
        self.settings
            .server_cache_max_age
            .max(YOUNGEST.mul_f64(self.settings.time_scale))
    }

    /// Not ready since before this is not ready for too long.
    fn overdue(&self) -> Timestamp {
        let patience = NOT_READY_PATIENCE.mul_f64(self.settings.time_scale);
        let now = Timestamp::now();
        now.checked_sub(patience).unwrap_or(now)
    }
}

fn publish_findings(apis: &Apis, plan: &NodePlan) {
    publish(apis, NAME, &plan.object, plan.all_findings());
    if !plan
        .all_findings()
        .any(|finding| finding.reason.is_failure())
    {
        recovered(apis, NAME, &plan.object);
    }
}

/// How many nodes there are in each state, for the metrics.
fn measure(nodes: &Nodes, provider: &dyn Provider, backoff: &Backoff) {
    const STATES: [&str; 6] = [
        "foreign",
        "unmatched",
        "uninitialised",
        "shutdown",
        "ready",
        "not_ready",
    ];
    let mut counts = [0; STATES.len()];
    for node in nodes {
        let id = node.spec.provider_id.as_str();
        let is_ours = || matches!(provider.parse_provider_id(id), ProviderId::Ours(_));
        let state = if !id.is_empty() && !is_ours() {
            0
        } else if is_uninitialised(node) {
            match backoff.has_failed(&node.metadata.uid) {
                true => 1,
                false => 2,
            }
        } else if node.taint(SHUTDOWN).is_some() {
            3
        } else if node.is_ready() {
            4
        } else {
            5
        };
        counts[state] += 1;
    }
    for (state, count) in STATES.iter().zip(counts) {
        NODES.set(&[state], f64::from(count));
    }
}

impl Controller for NodeController {
    fn name(&self) -> &'static str {
        NAME
    }

    fn interval(&self) -> Duration {
        self.settings.sync_interval
    }

    fn tick(&mut self, apis: &Apis, selection: &Selection) -> Report {
        self.pass(apis, selection, |plan| {
            publish_findings(apis, &plan);
        })
    }

    fn propose(&self, apis: &Apis, selection: &Selection) -> Result<Vec<Proposal>, Error> {
        let (_, plans) = self.evaluate(apis, selection)?;
        Ok(plans.iter().map(NodePlan::proposal).collect())
    }
}
