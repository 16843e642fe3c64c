//! The node controller gives nodes their identity, addresses and labels, and keeps these right.
//!
//! The way from a node to its patch is all in this file: `tick` → `observe` (finds which nodes are due, and reads a
//! list of servers that is young enough) → `write_all` (takes a few nodes at a time: `plan_node`, `apply`) → `note`.
//! `plan` decides what should be done, with the addresses and labels of `desired`. `apply` writes.
//!
//! Addresses are written first. Removing the `uninitialized` taint is the commit point, because pods must not land on a
//! node whose addresses are not there yet.

mod desired;
mod plan;

pub use super::matching::{UNINITIALIZED, is_uninitialized};
pub use crate::provider::PROVIDED_NODE_IP;
pub use plan::{NodePlan, ServerMatch, join_anew, plan};

use super::backoff::Backoff;
use super::controller::{self, Controller, Outage, Progress, Proposal, Report, Selection};
use super::lifecycle::{OUT_OF_SERVICE, SHUTDOWN};
use super::matching::MatchIndex;
use super::node_writes::{AppliedPlan, NodeChange, apply};
use super::parallel::in_parallel;
use super::report::{publish, recovered};
use super::schedule::Schedule;
use crate::cache::{self, AllServers, Apis, CacheError, ServerNeeds};
use crate::kube::{self, KubeNode};
use crate::metrics::NODES;
use crate::provider::{Finding, InstanceId, Provider, ProviderId, Reason, Urgency, clock};
use jiff::Timestamp;
use plan::{NodeFacts, plan_node};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub const NAME: &str = "cloud-node-controller";

/// The lowest limit for the age of a list of servers. A tick may always use the list that it has read, even when
/// `HCLOUD_SERVER_CACHE_MAX_AGE` is shorter.
const YOUNGEST: Duration = Duration::from_secs(1);

/// How many plans are kept in memory for each concurrent writer.
const NODES_FOR_EACH_WRITER: usize = 10;

/// How long a new node that no server matches may be not ready, because its machine may be slow to come up.
const NOT_READY_PATIENCE: Duration = Duration::from_secs(600);

/// Settings of the node controller.
#[derive(Clone, Debug)]
pub struct NodeControllerSettings {
    /// The setting `--node-sync-interval`.
    pub sync_interval: Duration,
    /// How often initialised nodes are compared. This is the setting `--node-status-update-frequency`.
    pub status_update_frequency: Duration,
    /// How old a list of servers may be on which a write rests. This is the setting `HCLOUD_SERVER_CACHE_MAX_AGE`.
    pub server_cache_max_age: Duration,
}

pub struct NodeController {
    settings: NodeControllerSettings,
    schedule: Schedule,
}

/// The answers of both APIs: all nodes, and servers when they are needed.
struct ObservedNodes {
    nodes: cache::ListedNodes,
    servers: Option<AllServers>,
    /// The moment when the tick began.
    begun: Instant,
}

impl ObservedNodes {
    fn index<'a>(&'a self, provider: &'a dyn Provider) -> MatchIndex<'a> {
        let servers = self.servers.as_ref();
        let servers = servers.map_or_else(|| [][..].into(), AllServers::servers);
        MatchIndex::new(provider, self.nodes.value.as_slice(), servers)
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
        self.tick_with(apis, selection, drop)
    }

    fn propose(&self, apis: &Apis, selection: &Selection) -> Result<Vec<Proposal>, CacheError> {
        let plans = self.evaluate(apis, selection)?;
        Ok(plans.iter().map(|plan| plan.proposal()).collect())
    }
}

impl NodeController {
    pub fn new(settings: NodeControllerSettings) -> NodeController {
        NodeController { settings, schedule: Schedule::default() }
    }

    /// Returns the plans for the nodes that are due or selected.
    pub fn evaluate(
        &self,
        apis: &Apis,
        selection: &Selection,
    ) -> Result<Vec<NodePlan>, CacheError> {
        let (observed, wanted) = self.observe(apis, selection)?;
        let index = observed.index(&*apis.provider);
        let plan = |node: &Arc<KubeNode>| plan_node(node, &index, self.overdue());
        Ok(wanted.iter().map(plan).collect())
    }

    /// Makes one tick. Returns the report, and the plans with which the tick ended.
    pub fn sync(&mut self, apis: &Apis, selection: &Selection) -> (Report, Vec<NodePlan>) {
        let mut plans = Vec::new();
        let report = self.tick_with(apis, selection, |plan| plans.push(plan));
        (report, plans)
    }

    /// Makes one tick. Calls `done` with each plan after the plan was applied for the last time, so that thousands of
    /// plans are not kept in memory until the tick ends.
    fn tick_with(
        &mut self,
        apis: &Apis,
        selection: &Selection,
        done: impl FnMut(NodePlan),
    ) -> Report {
        let begun = clock::now();
        let is_refresh = selection.is_explicit() || self.is_refresh_due(apis, begun);
        let (observed, wanted) = match self.observe(apis, selection) {
            Ok(observed) => observed,
            Err(error) => return Report::outage(error, self.waiting(apis, begun)),
        };
        let nodes = observed.nodes.value.iter();
        let uids: HashSet<&str> = nodes.map(|node| node.metadata.uid.as_str()).collect();
        self.schedule.backoff.keep(|uid| uids.contains(uid));
        if is_refresh {
            let mut reported = apis.recorder.reported();
            reported.keep(kube::NODE, uids.iter().copied());
            self.schedule.compared = Some(begun);
        }
        count_states(&observed.nodes.value, &*apis.provider, &self.schedule.backoff);
        let write = || self.write_all(apis, observed, wanted.into(), done);
        apis.recorder.first(write)
    }

    /// Returns all nodes. An evaluation within half of the sync interval gets the same list again.
    pub fn nodes(
        &self,
        apis: &Apis,
        selection: &Selection,
    ) -> Result<cache::ListedNodes, CacheError> {
        let whole_max_age = self.whole_max_age(clock::now());
        selection.nodes(apis, self.settings.sync_interval / 2, whole_max_age)
    }

    /// Returns what both APIs say, and the nodes that are due or selected. Servers are read only when there are such
    /// nodes, and are then as new as the plans for these nodes need.
    fn observe(
        &self,
        apis: &Apis,
        selection: &Selection,
    ) -> Result<(ObservedNodes, Vec<Arc<KubeNode>>), CacheError> {
        let nodes = self.nodes(apis, selection)?;
        let now = clock::now();
        let is_due = |node: &KubeNode| self.is_due(node, apis, now);
        let is_refresh = selection.is_explicit() || self.is_refresh_due(apis, now);
        let due: Vec<&Arc<KubeNode>> = nodes.value.iter().filter(|node| is_due(node)).collect();
        if due.is_empty() && !is_refresh {
            let observed = ObservedNodes { nodes, servers: None, begun: now };
            return Ok((observed, Vec::new()));
        }
        let can_wait =
            due.is_empty() && !selection.is_explicit() && self.schedule.compared.is_some();
        let (urgency, max_age) = if can_wait {
            (Urgency::CanWait, self.refresh_period(apis) / 2)
        } else {
            (Urgency::Needed, self.young())
        };
        let names: Vec<String> = due.iter().map(|node| node.name().to_owned()).collect();
        let named = if is_refresh { None } else { self.read_by_name(apis, &due) };
        let mut servers = match named {
            Some(named) => AllServers::named(named, apis.dedicated(None, urgency)),
            None => apis.servers(None, &ServerNeeds::max_age(max_age), urgency)?,
        };
        // The nodes are read after the cloud has answered, because without that answer they would not be needed. They
        // are read whole, because a poll of the nodes shows no taints.
        let nodes = if selection.is_explicit() {
            nodes
        } else {
            apis.nodes.again(&names, self.settings.sync_interval / 2)?
        };
        // A node that appeared during this tick would need a list of its own, so it is left to the next tick.
        let is_late = |node: &KubeNode| apis.nodes.first_seen(node).is_some_and(|seen| seen > now);
        let is_wanted = |node: &&Arc<KubeNode>| {
            selection.names(node.name()) && (is_refresh || is_due(node)) && !is_late(node)
        };
        let wanted: Vec<Arc<KubeNode>> = nodes.value.iter().filter(is_wanted).cloned().collect();
        let mut observed = ObservedNodes { nodes, servers: Some(servers.clone()), begun: now };
        // These plans rest on the data that were read last. They only show which data must be read for the plans
        // that are applied.
        let index = observed.index(&*apis.provider);
        let plans = wanted.iter().map(|node| plan_node(node, &index, self.overdue()));
        let needs = plans.map(|plan| needs_of(&plan, apis, self.young(), now));
        let unsatisfied = needs.filter(|needs| !servers.satisfy(needs)).reduce(ServerNeeds::and);
        drop(index);
        if let Some(needs) = unsatisfied {
            servers = apis.servers(Some(servers), &needs, urgency)?;
        }
        observed.servers = Some(servers);
        Ok((observed, wanted))
    }

    /// Returns the last list of all servers, with the servers of these new nodes read again by name. `None` means that
    /// all servers must be listed, because that takes fewer calls, or because the server of a node may have another
    /// name than the node. The latter is likely when the node has failed before, or when no server has its name.
    fn read_by_name(
        &self,
        apis: &Apis,
        due: &[&Arc<KubeNode>],
    ) -> Option<(cache::ListedServers, HashSet<InstanceId>)> {
        let has_failed =
            |node: &&Arc<KubeNode>| self.schedule.backoff.has_failed(&node.metadata.uid);
        let is_fewer = due.len() <= apis.server_pages() as usize;
        if !apis.is_large() || !is_fewer || due.iter().any(has_failed) {
            return None;
        }
        let names: Vec<&str> = due.iter().map(|node| node.name()).collect();
        apis.instances_named(&names)
    }

    /// Plans and writes a few nodes at a time. The list of servers is read again when it becomes too old for a write,
    /// because the work on thousands of nodes takes longer than that.
    fn write_all(
        &mut self,
        apis: &Apis,
        mut observed: ObservedNodes,
        mut queue: VecDeque<Arc<KubeNode>>,
        mut done: impl FnMut(NodePlan),
    ) -> Report {
        let mut report = Report::default();
        while let Some(needs) =
            self.write_while_satisfied(apis, &observed, &mut queue, &mut report, &mut done)
        {
            match apis.servers(observed.servers.take(), &needs, Urgency::Needed) {
                Ok(servers) => observed.servers = Some(servers),
                Err(error) => {
                    let waiting = controller::waiting(queue.len(), "node");
                    report.outage = Some(Outage { error, waiting });
                    break;
                }
            }
        }
        report.outage = report.outage.or_else(|| {
            let error = observed.servers.as_ref().and_then(AllServers::outage)?;
            Some(error.into())
        });
        for node in &queue {
            report.note(node.object().for_people(), Progress::Unreached);
        }
        report
    }

    /// Plans and writes until the list of servers is not new enough for the next plan. Returns what that plan needs, or
    /// `None` when nothing is left to write. A thread plans for a node just before it writes to the node, because
    /// thousands of plans at once would need too much memory.
    fn write_while_satisfied(
        &mut self,
        apis: &Apis,
        observed: &ObservedNodes,
        queue: &mut VecDeque<Arc<KubeNode>>,
        report: &mut Report,
        done: &mut impl FnMut(NodePlan),
    ) -> Option<ServerNeeds> {
        let servers = observed.servers.as_ref()?;
        let index = observed.index(&*apis.provider);
        let (young, overdue) = (self.young(), self.overdue());
        let plan_for = |node: &KubeNode| {
            let plan = plan_node(node, &index, overdue);
            let needs = needs_of(&plan, apis, young, observed.begun);
            if plan.changes.is_empty() || servers.satisfy(&needs) { Ok(plan) } else { Err(needs) }
        };
        let plan_and_write = |node: &Arc<KubeNode>| {
            let replan = |node: &KubeNode| plan_for(node).map_err(|_| TOO_OLD);
            plan_for(node).map(|plan| apply(apis, NAME, plan, false, replan))
        };
        let ends =
            |it: &Result<AppliedPlan<_>, _>| it.as_ref().map_or(true, AppliedPlan::is_closed);
        while !queue.is_empty() {
            let count = queue.len().min(NODES_FOR_EACH_WRITER * apis.concurrent_nodes);
            let batch: Vec<Arc<KubeNode>> = queue.drain(..count).collect();
            let all = in_parallel(&batch, apis.concurrent_nodes, plan_and_write, ends);
            let is_over = all.iter().any(ends);
            let (mut needs, mut left) = (None, Vec::new());
            let mut all = all.into_iter();
            for node in batch {
                match all.next() {
                    Some(Ok(applied)) if !applied.is_closed() || !applied.made.is_empty() => {
                        self.note(apis, report, &node, applied).map(&mut *done);
                    }
                    ended => {
                        needs = needs.or(ended.and_then(Result::err));
                        left.push(node);
                    }
                }
            }
            left.into_iter().rev().for_each(|node| queue.push_front(node));
            if is_over {
                return needs;
            }
        }
        None
    }

    /// Reports the outcome for a node, and decides when the node is tried again. Returns the plan that was made last.
    fn note(
        &mut self,
        apis: &Apis,
        report: &mut Report,
        node: &KubeNode,
        applied: AppliedPlan<NodeFacts>,
    ) -> Option<NodePlan> {
        let uid = &node.metadata.uid;
        applied.note_in(report, node.object().for_people(), None);
        let is_made = applied.is_made();
        let last = applied.plan.as_ref();
        let is_blocked = last.is_some_and(|plan| plan.obstacle.is_some());
        // An initialised node with an obstacle is not tried again by its backoff, but with the next
        // comparison of all nodes.
        let is_new = last.is_some_and(|plan| is_uninitialized(&plan.node));
        let is_tried_again = !is_made || (is_blocked && is_new);
        if is_tried_again || !is_blocked {
            self.schedule.backoff.ended(uid, is_tried_again);
        }
        let mut plan = applied.plan?;
        // Removing the taint is the last change.
        if is_made && plan.changes.iter().any(NodeChange::removes_taint) {
            let synced = Finding::info(Reason::Synced, "Node synced successfully");
            plan.findings.push(synced);
        }
        publish(apis, plan.object.seen_by(NAME), plan.all_findings());
        if !plan.all_findings().any(|it| it.reason.is_failure()) {
            recovered(apis, plan.object.seen_by(NAME));
        }
        Some(plan)
    }

    /// Returns how old a list of servers may be when a write rests on it.
    fn young(&self) -> Duration {
        self.settings.server_cache_max_age.max(YOUNGEST)
    }

    /// Returns the moment that decides about nodes which no server matches. A node that has been not ready since before
    /// this moment is reported as left over.
    fn overdue(&self) -> Timestamp {
        let patience = clock::to_machine(NOT_READY_PATIENCE);
        let now = clock::timestamp();
        now.checked_sub(patience).unwrap_or(now)
    }

    fn refresh_period(&self, apis: &Apis) -> Duration {
        apis.refresh_period(self.settings.status_update_frequency)
    }

    fn is_refresh_due(&self, apis: &Apis, now: Instant) -> bool {
        self.schedule.is_comparison_due(self.refresh_period(apis), now)
    }

    /// Returns how old the last list of whole nodes may be. A refresh needs a list that was read since the refresh
    /// became due, or within one sync interval before, when another controller read it.
    fn whole_max_age(&self, now: Instant) -> Duration {
        let frequency = self.settings.status_update_frequency;
        let since_last = self.schedule.compared.map(|last| now.duration_since(last));
        let overdue = since_last.and_then(|time| time.checked_sub(frequency));
        overdue.map_or(frequency, |time| frequency.min(time + self.settings.sync_interval))
    }

    /// Whether a node waits for its initialisation or has failed before, and its backoff is over. A node that is being
    /// deleted, or that belongs to another cloud, gets nothing, so that no call is made for it.
    fn is_due(&self, node: &KubeNode, apis: &Apis, now: Instant) -> bool {
        let uid = &node.metadata.uid;
        let is_new = is_uninitialized(node)
            && node.metadata.deletion_timestamp.is_none()
            && !has_foreign_id(node, &*apis.provider);
        let backoff = &self.schedule.backoff;
        backoff.is_retry_due(uid, now) || (is_new && !backoff.has_failed(uid))
    }

    /// Returns what waits for the end of the outage, for a log line.
    fn waiting(&self, apis: &Apis, now: Instant) -> String {
        let nodes = apis.nodes.last();
        let nodes = nodes.iter().flat_map(|view| view.value.iter());
        let due = nodes.filter(|node| self.is_due(node, apis, now));
        controller::waiting(due.count(), "node")
    }
}

fn needs_of(plan: &NodePlan, apis: &Apis, young: Duration, begun: Instant) -> ServerNeeds {
    let first_seen = apis.nodes.first_seen(&plan.node);
    plan.needs(young, begun, first_seen.unwrap_or(begun))
}

fn has_foreign_id(node: &KubeNode, provider: &dyn Provider) -> bool {
    let id = &node.spec.provider_id;
    !id.is_empty() && !matches!(provider.parse_provider_id(id), ProviderId::Ours(_))
}

/// The values of the label `state` of the metric `ccm_nodes`.
const STATES: [&str; 7] =
    ["foreign", "unmatched", "uninitialized", "out_of_service", "shutdown", "ready", "not_ready"];

/// Counts the nodes in each state for the metrics.
fn count_states(nodes: &[Arc<KubeNode>], provider: &dyn Provider, backoff: &Backoff) {
    // A node that is in several of these states is counted in the first one.
    let state = |node: &KubeNode| match node {
        _ if has_foreign_id(node, provider) => "foreign",
        _ if is_uninitialized(node) && backoff.has_failed(&node.metadata.uid) => "unmatched",
        _ if is_uninitialized(node) => "uninitialized",
        _ if node.taint(OUT_OF_SERVICE).is_some() => "out_of_service",
        _ if node.taint(SHUTDOWN).is_some() => "shutdown",
        _ if node.is_ready() => "ready",
        _ => "not_ready",
    };
    let states: Vec<&str> = nodes.iter().map(|node| state(node)).collect();
    for one in STATES {
        let count = states.iter().filter(|state| **state == one).count();
        NODES.set(&[one], count as f64);
    }
}

/// The reason why a changed node is not planned again: another node may have its name now, and the old list of servers
/// may lack the server of that node.
const TOO_OLD: &str =
    "another program changed the node, and the list of servers is too old to plan again";
