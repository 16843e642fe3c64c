//! The node controller: gives nodes their identity, addresses and labels, and keeps them right.
//!
//! From a node to its patch, all in this file: `tick` → `observe` (which nodes are due, and a list of servers that is
//! young enough) → `write_all` (a few nodes at a time: `plan_node`, `apply`) → `note`. What should be done is decided in
//! `plan`, with the addresses and labels of `desired`; `apply` writes.
//!
//! Addresses are written first; removing the `uninitialized` taint is the commit point, because pods must not land on a
//! node whose addresses are not there yet.

mod desired;
mod plan;

pub use super::matching::{UNINITIALIZED, is_uninitialized};
pub use crate::provider::PROVIDED_NODE_IP;
pub use plan::{NodePlan, Server, join_anew, plan};

use super::NodeChange;
use super::backoff::Backoff;
use super::controller::{self, Controller, Outage, Progress, Proposal, Report, Selection};
use super::lifecycle::SHUTDOWN;
use super::matching::Index;
use super::node_writes::{Applied, apply};
use super::parallel::in_parallel;
use super::report::{publish, recovered};
use crate::cache::{self, AllServers, Apis, Error, Freshness};
use crate::kube::{self, Node};
use crate::metrics::NODES;
use crate::provider::{Finding, InstanceId, Provider, ProviderId, Reason, Urgency, clock};
use jiff::Timestamp;
use plan::plan_node;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub const NAME: &str = "cloud-node-controller";

/// However young `HCLOUD_SERVER_CACHE_MAX_AGE` wants a list to be, the tick that read it may use it.
const YOUNGEST: Duration = Duration::from_secs(1);

/// Of so many the plans are kept at the same time, for each that is written at the same time.
const NODES_FOR_EACH_WRITER: usize = 10;

/// A new node that no server matches may be not ready for that long: its machine may be slow to come up.
const NOT_READY_PATIENCE: Duration = Duration::from_secs(600);

/// Settings of the node controller.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `--node-sync-interval`.
    pub sync_interval: Duration,
    /// `--node-status-update-frequency`: how often initialised nodes are compared.
    pub status_update_frequency: Duration,
    /// `HCLOUD_SERVER_CACHE_MAX_AGE`: how old a list of servers a write may rest on.
    pub server_cache_max_age: Duration,
}

pub struct NodeController {
    settings: Settings,
    backoff: Backoff,
    last_refresh: Option<Instant>,
}

/// What both APIs say: all nodes, and servers where they are needed.
struct Observed {
    nodes: cache::Nodes,
    servers: Option<AllServers>,
    /// The list of cloud servers is an older one, in which these alone were read now. None: all were.
    named: Option<HashSet<InstanceId>>,
}

/// See [`Observed::named`].
type Named = (cache::Instances, HashSet<InstanceId>);

impl Observed {
    /// The list of cloud servers decides about this plan, as far as it was read now.
    fn is_enough_for(&self, plan: &NodePlan) -> bool {
        let is_named = |named: &HashSet<InstanceId>| match &plan.server {
            Server::Matched(instance, _) => named.contains(&instance.id),
            _ => false,
        };
        !plan.is_of_cloud() || self.named.as_ref().is_none_or(is_named)
    }

    /// Lists that are fresh enough for these plans. `needs_all`: single servers that were read are not.
    fn renew(&mut self, apis: &Apis, fresh: Freshness, needs_all: bool) -> Result<(), Error> {
        let servers = self.servers.take();
        let is_partial = self.named.is_some() && needs_all;
        self.servers = match servers {
            Some(_) if is_partial => Some(apis.all_servers(fresh)?),
            servers => servers
                .map(|servers| apis.renewed(servers, fresh))
                .transpose()?,
        };
        if is_partial {
            self.named = None;
        }
        Ok(())
    }

    fn index<'a>(&'a self, provider: &'a dyn Provider) -> Index<'a> {
        let servers = self.servers.as_ref();
        let servers = servers.map_or_else(|| [][..].into(), AllServers::servers);
        Index::new(provider, self.nodes.value.as_slice(), servers)
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

    fn propose(&self, apis: &Apis, selection: &Selection) -> Result<Vec<Proposal>, Error> {
        let plans = self.evaluate(apis, selection)?;
        Ok(plans.iter().map(|plan| plan.proposal()).collect())
    }
}

impl NodeController {
    pub fn new(settings: Settings) -> NodeController {
        NodeController {
            settings,
            backoff: Backoff::new(),
            last_refresh: None,
        }
    }

    /// What would be done, for the nodes that are due or selected.
    pub fn evaluate(&self, apis: &Apis, selection: &Selection) -> Result<Vec<NodePlan>, Error> {
        let (observed, wanted) = self.observe(apis, selection)?;
        let index = observed.index(&*apis.provider);
        let plan = |node: &Arc<Node>| plan_node(node, &index, &*apis.provider, self.overdue());
        Ok(wanted.iter().map(plan).collect())
    }

    /// One tick, with the plans that it ended with.
    pub fn sync(&mut self, apis: &Apis, selection: &Selection) -> (Report, Vec<NodePlan>) {
        let mut plans = Vec::new();
        let report = self.tick_with(apis, selection, |plan| plans.push(plan));
        (report, plans)
    }

    /// `done` is given each plan as it was applied last: thousands of them are not kept for a tick.
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
        self.backoff.keep(|uid| uids.contains(uid));
        if is_refresh {
            let mut reported = apis.recorder.reported();
            reported.keep(kube::NODE, uids.iter().copied());
            self.last_refresh = Some(begun);
        }
        count_states(&observed.nodes.value, &*apis.provider, &self.backoff);
        let write = || self.write_all(apis, observed, wanted.into(), done);
        apis.recorder.first(write)
    }

    /// All nodes; those that the next evaluation within the interval plans on.
    pub fn nodes(&self, apis: &Apis, selection: &Selection) -> Result<cache::Nodes, Error> {
        let whole_max_age = self.whole_max_age(clock::now());
        selection.nodes(apis, self.settings.sync_interval / 2, whole_max_age)
    }

    /// What both APIs say, and the nodes that are due or selected. Servers are read only when there are any, and are
    /// as young as their plans need.
    fn observe(
        &self,
        apis: &Apis,
        selection: &Selection,
    ) -> Result<(Observed, Vec<Arc<Node>>), Error> {
        let provider = &*apis.provider;
        let nodes = self.nodes(apis, selection)?;
        let now = clock::now();
        let is_due = |node: &Node| self.is_due(node, apis, now);
        let is_refresh = selection.is_explicit() || self.is_refresh_due(apis, now);
        let is_waited_for = selection.is_explicit() || nodes.value.iter().any(|node| is_due(node));
        let (urgency, max_age) = match (is_waited_for, is_refresh) {
            (false, false) => {
                let (servers, named) = (None, None);
                let observed = Observed {
                    nodes,
                    servers,
                    named,
                };
                return Ok((observed, Vec::new()));
            }
            (false, true) if self.last_refresh.is_some() => {
                (Urgency::CanWait, self.refresh_period(apis) / 2)
            }
            _ => (Urgency::Needed, self.young()),
        };
        let mut fresh = Freshness::of(max_age, urgency);
        let due = nodes.value.iter().filter(|node| is_due(node));
        let named = match is_refresh {
            true => None,
            false => self.read_by_name(apis, due.collect()),
        };
        let (servers, named) = match named {
            Some((cloud, ids)) => {
                let (cloud, dedicated) = (Ok(cloud), apis.dedicated(None, urgency));
                (AllServers { cloud, dedicated }, Some(ids))
            }
            None => (apis.all_servers(fresh)?, None),
        };
        // After the cloud answered: while it does not, no node is read in vain. A table shows no taint.
        let nodes = match selection.is_explicit() {
            true => nodes,
            false => {
                let due = nodes.value.iter().filter(|node| is_due(node));
                let names: Vec<String> = due.map(|node| node.name().to_owned()).collect();
                apis.nodes.again(&names, self.settings.sync_interval / 2)?
            }
        };
        // A node that came during this tick would need a list of its own: it is left to the next one.
        let is_late = |node: &Node| apis.nodes.first_seen(node).is_some_and(|seen| seen > now);
        let is_wanted = |node: &&Arc<Node>| {
            selection.names(node.name()) && (is_refresh || is_due(node)) && !is_late(node)
        };
        let wanted: Vec<Arc<Node>> = nodes.value.iter().filter(is_wanted).cloned().collect();
        let mut observed = Observed {
            nodes,
            servers: Some(servers),
            named,
        };
        // What lists these plans may rest on. Made on older ones, they only say what is needed.
        fresh.max_age = Duration::MAX;
        let mut needs_all = false;
        let index = observed.index(provider);
        for node in &wanted {
            let plan = plan_node(node, &index, provider, self.overdue());
            let first_seen = || apis.nodes.first_seen(node).unwrap_or_else(clock::now);
            if !plan.changes.is_empty() && plan.is_of_cloud() {
                fresh.max_age = self.young();
            }
            let needs_list = !plan.changes.is_empty() || plan.misses_its_server();
            if needs_list && !observed.is_enough_for(&plan) {
                needs_all = true;
                fresh.since = fresh.since.max(Some(now));
            }
            if plan.misses_its_server() {
                // A server that an older list lacks may have been made since.
                fresh.since = fresh.since.max(Some(now));
            }
            if plan.needs_later_list() && plan.is_of_cloud() {
                // All new nodes of a tick share the list that the last one of them needs.
                fresh.since = fresh.since.max(Some(first_seen()));
            }
            if plan.may_be_dedicated() {
                fresh.dedicated_since = fresh.dedicated_since.max(Some(first_seen()));
            }
        }
        drop(index);
        observed.renew(apis, fresh, needs_all)?;
        Ok((observed, wanted))
    }

    /// All servers as they were listed last, with those of these new nodes read by name now: where that is fewer calls.
    /// None: all are to be listed, also because a server of an unknown name may have a node's address.
    fn read_by_name(&self, apis: &Apis, due: Vec<&Arc<Node>>) -> Option<Named> {
        let has_failed = |node: &&Arc<Node>| self.backoff.has_failed(&node.metadata.uid);
        let is_fewer = due.len() <= apis.server_pages() as usize;
        if !apis.is_large() || !is_fewer || due.iter().any(has_failed) {
            return None;
        }
        let names: Vec<&str> = due.iter().map(|node| node.name()).collect();
        apis.instances_named(&names)
    }

    /// Plans and writes, a few nodes at a time. Thousands of them, or a slow API server, take longer than a list of
    /// servers may be old: then the list is read again.
    fn write_all(
        &mut self,
        apis: &Apis,
        mut observed: Observed,
        mut queue: VecDeque<Arc<Node>>,
        mut done: impl FnMut(NodePlan),
    ) -> Report {
        let mut report = Report::default();
        while !queue.is_empty()
            && self.write_until_too_old(apis, &observed, &mut queue, &mut report, &mut done)
        {
            let mut fresh = Freshness::of(self.young(), Urgency::Needed);
            fresh.since = observed.named.is_some().then(clock::now);
            if let Err(error) = observed.renew(apis, fresh, true) {
                let waiting = controller::waiting(queue.len(), "node");
                report.outage = Some(Outage::new(error, waiting));
                break;
            }
        }
        if report.outage.is_none() {
            let outage = observed.servers.as_ref().and_then(AllServers::outage);
            report.outage = outage.map(|error| Outage::new(error, String::new()));
        }
        for node in &queue {
            report.note(node.object().for_people(), Progress::Unreached);
        }
        report
    }

    /// True: the list of servers is too old for the next write. A plan is made when it is its node's turn, by the thread
    /// that writes it, and noted with those of its batch: thousands at once would need the memory of thousands.
    fn write_until_too_old(
        &mut self,
        apis: &Apis,
        observed: &Observed,
        queue: &mut VecDeque<Arc<Node>>,
        report: &mut Report,
        done: &mut impl FnMut(NodePlan),
    ) -> bool {
        let provider = &*apis.provider;
        let index = observed.index(provider);
        let (young, overdue) = (self.young(), self.overdue());
        let cloud = observed.servers.as_ref().map(|servers| &servers.cloud);
        let is_young = |plan: &NodePlan| match cloud {
            Some(Ok(view)) => view.time_in_use() <= young && observed.is_enough_for(plan),
            // Nothing is planned for cloud servers.
            Some(Err(_)) => true,
            None => false,
        } || !plan.is_of_cloud();
        let plan_for = |node: &Node| plan_node(node, &index, provider, overdue);
        // None: the list is too old.
        let plan_and_write = |node: &Arc<Node>| {
            let plan = plan_for(node);
            let replan = |node: &Node| {
                let plan = plan_for(node);
                if is_young(&plan) {
                    Ok(plan)
                } else {
                    Err(TOO_OLD)
                }
            };
            let is_ready = plan.changes.is_empty() || is_young(&plan);
            is_ready.then(|| apply(apis, NAME, plan, false, replan))
        };
        let ends = |it: &Option<Applied<_>>| it.as_ref().is_none_or(Applied::is_closed);
        while !queue.is_empty() {
            let count = queue
                .len()
                .min(NODES_FOR_EACH_WRITER * apis.concurrent_nodes);
            let batch: Vec<Arc<Node>> = queue.drain(..count).collect();
            let all = in_parallel(&batch, apis.concurrent_nodes, plan_and_write, ends);
            let is_over = all.iter().any(ends);
            let is_too_old = all.iter().any(Option::is_none);
            let is_begun = |one: &Applied<_>| !one.is_closed() || !one.made.is_empty();
            let mut all = all.into_iter().map(|it| it.filter(is_begun));
            let mut left = Vec::new();
            for node in batch {
                match all.next().flatten() {
                    Some(applied) => drop(self.note(apis, report, &node, applied).map(&mut *done)),
                    None => left.push(node),
                }
            }
            left.into_iter()
                .rev()
                .for_each(|node| queue.push_front(node));
            if is_over {
                return is_too_old;
            }
        }
        false
    }

    /// Reports what came of a node, and when it is tried again. The plan that was made last.
    fn note(
        &mut self,
        apis: &Apis,
        report: &mut Report,
        node: &Node,
        applied: Applied<NodePlan>,
    ) -> Option<NodePlan> {
        let uid = &node.metadata.uid;
        applied.note_in(report, node.object().for_people(), None);
        let is_made = applied.is_made();
        let last = applied.plan.as_ref();
        let is_blocked = last.is_some_and(|plan| plan.obstacle.is_some());
        // An initialised node that can't be brought in order is compared again with the others.
        let is_new = last.is_some_and(|plan| is_uninitialized(&plan.node));
        if !is_made || (is_blocked && is_new) {
            self.backoff.failed(uid, clock::now());
        } else if !is_blocked {
            self.backoff.succeeded(uid);
        }
        let mut plan = applied.plan?;
        // Removing the taint is the last change.
        if is_made && plan.changes.iter().any(NodeChange::removes_taint) {
            let synced = Finding::info(Reason::Synced, "Node synced successfully");
            plan.findings.push(synced);
        }
        publish(apis, NAME, &plan.object, plan.all_findings());
        if !plan.all_findings().any(|it| it.reason.is_failure()) {
            recovered(apis, NAME, &plan.object);
        }
        Some(plan)
    }

    /// How old a list of servers a write may rest on.
    fn young(&self) -> Duration {
        self.settings.server_cache_max_age.max(YOUNGEST)
    }

    /// Not ready since before this is not ready for too long.
    fn overdue(&self) -> Timestamp {
        let patience = clock::to_machine(NOT_READY_PATIENCE);
        let now = clock::timestamp();
        now.checked_sub(patience).unwrap_or(now)
    }

    fn refresh_period(&self, apis: &Apis) -> Duration {
        apis.refresh_period(self.settings.status_update_frequency)
    }

    fn is_refresh_due(&self, apis: &Apis, now: Instant) -> bool {
        let is_over = |last| now.duration_since(last) >= self.refresh_period(apis);
        self.last_refresh.is_none_or(is_over)
    }

    /// How old a read of whole nodes may be: a refresh needs one made since it became due, or shortly before by another
    /// controller.
    fn whole_max_age(&self, now: Instant) -> Duration {
        let frequency = self.settings.status_update_frequency;
        let since_last = self.last_refresh.map(|last| now.duration_since(last));
        let overdue = since_last.and_then(|time| time.checked_sub(frequency));
        overdue.map_or(frequency, |time| {
            frequency.min(time + self.settings.sync_interval)
        })
    }

    /// Waits for its initialisation, or failed before; and its back-off is over. A node being deleted, or of another
    /// cloud, gets nothing: no call is made for it.
    fn is_due(&self, node: &Node, apis: &Apis, now: Instant) -> bool {
        let uid = &node.metadata.uid;
        let is_new = is_uninitialized(node)
            && node.metadata.deletion_timestamp.is_none()
            && !has_foreign_id(node, &*apis.provider);
        self.backoff.is_retry_due(uid, now) || (is_new && !self.backoff.is_waiting(uid, now))
    }

    /// What an outage keeps waiting, for its log line.
    fn waiting(&self, apis: &Apis, now: Instant) -> String {
        let nodes = apis.nodes.last();
        let nodes = nodes.iter().flat_map(|view| view.value.iter());
        let due = nodes.filter(|node| self.is_due(node, apis, now));
        controller::waiting(due.count(), "node")
    }
}

fn has_foreign_id(node: &Node, provider: &dyn Provider) -> bool {
    let id = &node.spec.provider_id;
    !id.is_empty() && !matches!(provider.parse_provider_id(id), ProviderId::Ours(_))
}

/// How many nodes there are in each state, for the metrics.
fn count_states(nodes: &[Arc<Node>], provider: &dyn Provider, backoff: &Backoff) {
    // The first that fits.
    let state = |node: &Node| match node {
        _ if has_foreign_id(node, provider) => "foreign",
        _ if is_uninitialized(node) && backoff.has_failed(&node.metadata.uid) => "unmatched",
        _ if is_uninitialized(node) => "uninitialized",
        _ if node.taint(SHUTDOWN).is_some() => "shutdown",
        _ if node.is_ready() => "ready",
        _ => "not_ready",
    };
    let states: Vec<&str> = nodes.iter().map(|node| state(node)).collect();
    let all = [
        "foreign",
        "unmatched",
        "uninitialized",
        "shutdown",
        "ready",
        "not_ready",
    ];
    for one in all {
        let count = states.iter().filter(|state| **state == one).count();
        NODES.set(&[one], count as f64);
    }
}

/// Of a node that came to carry this name meanwhile the list may know nothing.
const TOO_OLD: &str =
    "another program changed it, and the list of servers is too old to plan again";
