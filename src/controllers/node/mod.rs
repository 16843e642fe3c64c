//! The node controller gives nodes their provider ID, addresses and labels, and corrects the addresses and
//! labels later.
//!
//! A sync pass begins with `observe`, which finds the nodes that need a check and lists the servers again if the last
//! list is too old. `write_all` then takes a few nodes at a time, and calls `plan_node` and `apply` for each of them.
//! `note` reports the outcome. The file `plan` decides what should be done, and the file `desired` decides which
//! addresses and labels a node should have.
//!
//! The file `relabel` is used only by the command `ccm node relabel`.
//!
//! Addresses are written first. The removal of the `uninitialized` taint is the last write, because pods must not be
//! scheduled to a node that has no addresses yet.

mod desired;
mod plan;
mod relabel;
mod zone;

pub use super::matching::{UNINITIALIZED, is_uninitialized};
pub use crate::provider::PROVIDED_NODE_IP;
pub use plan::{NodePlan, ServerMatch, join_anew, plan};
pub use relabel::{Dependent, Relabelling};
pub use zone::ZoneState;

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
use std::cell::LazyCell;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub const NAME: &str = "cloud-node-controller";

/// The greatest age of a list of servers for writes is never less than this, even if `HCLOUD_SERVER_CACHE_MAX_AGE` is
/// less. With a lower limit, even the list that the sync pass has just read would be too old for every write.
const YOUNGEST: Duration = Duration::from_secs(1);

/// Nodes are planned and written in batches. The size of a batch is this number for each thread that writes. Small
/// batches keep few plans in memory at the same time.
const NODES_FOR_EACH_WRITER: usize = 10;

/// How long a new node without a matching server can stay not ready before a message says that its machine probably
/// does not exist any more. Until then, the machine may just be slow to start.
const NOT_READY_PATIENCE: Duration = Duration::from_secs(600);

/// Settings of the node controller.
#[derive(Clone, Debug)]
pub struct NodeControllerSettings {
    /// How long the daemon waits after a sync pass of this controller before the next sync pass. This is the setting
    /// `--node-sync-interval`.
    pub sync_interval: Duration,
    /// How often initialised nodes are compared with their servers. This is the setting
    /// `--node-status-update-frequency`.
    pub status_update_frequency: Duration,
    /// How old a list of servers may be when writes to nodes are planned from it. This is the setting
    /// `HCLOUD_SERVER_CACHE_MAX_AGE`.
    pub server_cache_max_age: Duration,
}

pub struct NodeController {
    settings: NodeControllerSettings,
    schedule: Schedule,
}

/// What the APIs of Kubernetes and the cloud have answered in a sync pass: all nodes, and the servers if they were
/// needed.
struct ObservedNodes {
    nodes: cache::ListedNodes,
    servers: Option<AllServers>,
    /// The moment when the sync pass began.
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

    /// Returns the plans for the nodes that need a check now, or that a person named in a command.
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

    /// Makes one sync pass. Returns the report, and the last plan of each node.
    pub fn sync(&mut self, apis: &Apis, selection: &Selection) -> (Report, Vec<NodePlan>) {
        let mut plans = Vec::new();
        let report = self.tick_with(apis, selection, |plan| plans.push(plan));
        (report, plans)
    }

    /// Makes one sync pass. Calls `done` with the last plan of each node as soon as the plan was carried out. Thousands
    /// of plans are therefore not kept in memory until the end of the sync pass.
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
        // Most sync passes find no node for which the UIDs are needed.
        let nodes = &observed.nodes.value;
        let uids: LazyCell<HashSet<&str>, _> =
            LazyCell::new(|| nodes.iter().map(|node| node.metadata.uid.as_str()).collect());
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

    /// Returns all nodes. A list that is younger than half of the sync interval is used again.
    pub fn nodes(
        &self,
        apis: &Apis,
        selection: &Selection,
    ) -> Result<cache::ListedNodes, CacheError> {
        let whole_max_age = self.whole_max_age(clock::now());
        selection.nodes(apis, self.settings.sync_interval / 2, whole_max_age)
    }

    /// Reads all nodes, and selects those that get a plan in this sync pass: the nodes that need a check, and the nodes
    /// that a person named in a command. When the regular comparison of nodes with their servers is due, all nodes get
    /// a plan. If any node gets a plan, the servers are also read, so that the list of servers is new enough for writes
    /// to the selected nodes.
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
        // The nodes that need a check are read again as complete objects, because the first list of nodes can come from
        // a table with a few columns, which does not show taints. This read comes only after the cloud has answered,
        // because nothing can be planned for the nodes without that answer.
        let nodes = if selection.is_explicit() {
            nodes
        } else {
            apis.nodes.again(&names, self.settings.sync_interval / 2)?
        };
        // A node that appeared during this sync pass needs a list of servers that is read after its appearance, so it
        // is left to the next sync pass.
        let is_late = |node: &KubeNode| apis.nodes.first_seen(node).is_some_and(|seen| seen > now);
        let is_wanted = |node: &&Arc<KubeNode>| {
            selection.names(node.name()) && (is_refresh || is_due(node)) && !is_late(node)
        };
        let wanted: Vec<Arc<KubeNode>> = nodes.value.iter().filter(is_wanted).cloned().collect();
        let mut observed = ObservedNodes { nodes, servers: Some(servers.clone()), begun: now };
        // These plans are not carried out. They only show whether the list of servers is new enough for the writes in
        // the plans. Each node is planned again just before its writes.
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

    /// Reads the servers of these new nodes by their names, one API call for each node, and adds them to the last list
    /// of all servers. Returns `None` when it is better to read the whole list. This is so when the list takes only a
    /// few calls, or fewer than one for each node. It is also so when an earlier try for one of the nodes has failed,
    /// because its server then probably has another name than the node.
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

    /// Plans and writes a few nodes at a time. The work on thousands of nodes takes so long that the list of servers
    /// can become too old for a write. The list is then read again.
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

    /// Plans and writes one batch of nodes after the other. Stops before a plan that needs a newer list of servers, and
    /// returns the conditions for this list, e.g. its greatest age. Returns `None` when it ends for another reason,
    /// e.g. because all nodes are done. Each plan is made just before its writes, because thousands of plans at once
    /// would need too much memory.
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

    /// Reports whether the writes for the node have succeeded, and decides when the node is planned again. Returns the
    /// last plan for the node.
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
        // The `obstacle` of a plan is the reason why something can't be done for the node. If the node is new, i.e. not
        // initialised yet, it is then tried again soon. An initialised node waits until all nodes are next compared
        // with their servers.
        let is_new = last.is_some_and(|plan| is_uninitialized(&plan.node));
        let is_tried_again = !is_made || (is_blocked && is_new);
        if is_tried_again || !is_blocked {
            self.schedule.backoff.ended(uid, is_tried_again);
        }
        let mut plan = applied.plan?;
        // The removal of the taint `uninitialized` is the last write, so the node is completely initialised now.
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

    /// Returns how old a list of servers may be when writes to nodes are planned from it.
    fn young(&self) -> Duration {
        self.settings.server_cache_max_age.max(YOUNGEST)
    }

    /// Returns the moment that is [`NOT_READY_PATIENCE`] ago. When a new node without a matching server has been not
    /// ready since before this moment, a message says that its machine probably does not exist any more.
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

    /// Returns how old the list of complete Node objects may be. All nodes are compared with their servers once in each
    /// period of `--node-status-update-frequency`. While no comparison is due, the list may be as old as this period.
    /// When a comparison is due, the list must have been read after it became due, or at most one sync interval before.
    fn whole_max_age(&self, now: Instant) -> Duration {
        let frequency = self.settings.status_update_frequency;
        let since_last = self.schedule.compared.map(|last| now.duration_since(last));
        let overdue = since_last.and_then(|time| time.checked_sub(frequency));
        overdue.map_or(frequency, |time| frequency.min(time + self.settings.sync_interval))
    }

    /// Whether work on this node is due: a new node must be initialised, or a node whose last try has failed must be
    /// tried again. Nothing is due for a new node that is being deleted or has the provider ID of another cloud.
    fn is_due(&self, node: &KubeNode, apis: &Apis, now: Instant) -> bool {
        let uid = &node.metadata.uid;
        let is_new = is_uninitialized(node)
            && node.metadata.deletion_timestamp.is_none()
            && !has_foreign_id(node, &*apis.provider);
        let backoff = &self.schedule.backoff;
        backoff.is_retry_due(uid, now) || (is_new && !backoff.has_failed(uid))
    }

    /// Returns how many nodes wait until the APIs answer again, as text for a log line.
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
    // A node can fit several of the states. They are tested in this order, and a node is counted only in the first
    // state that it fits.
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

/// The message when a node has changed and can't be planned again, because the list of servers is too old. The change
/// can mean that another node has this name now, and the old list can lack the server of that node.
const TOO_OLD: &str = "another program changed the node, so ccm must read the list of servers again before it writes \
                       to the node";
