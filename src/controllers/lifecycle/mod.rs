//! The node lifecycle controller deletes a node whose server was deleted, and taints a node whose server is off.
//!
//! A sync pass has four parts. `observe` finds the nodes that need a check, and asks the cloud about their servers.
//! `plan` decides for each node. `node_writes::apply` makes the writes of the plans. `note` reports the outcomes.
//!
//! Deleting a node is the most dangerous thing that this program does. `plan` deletes a node only when two API answers
//! agree that its server does not exist. `apply` reads the node again before the deletion. The request for the deletion
//! contains the node's UID and resource version, so the API server refuses it when another program has changed or
//! replaced the node in the meantime.

mod observe;
mod out_of_service;
mod plan;

pub use out_of_service::{OUT_OF_SERVICE, OffReads, OffServers, SHUTDOWN, TaintRule, is_own};
pub use plan::{Fact, Facts, LifecyclePlan, plan};

use super::backoff::Backoff;
use super::controller::{Controller, Outage, Proposal, Report, Selection};
use super::matching::{Claims, server_of};
use super::node_writes::{AppliedPlan, NodeChange, apply};
use super::parallel::in_parallel;
use super::report::{publish, recovered};
use crate::cache::{Apis, CacheError};
use crate::kube::{self, KubeNode, Taint};
use crate::provider::{Finding, InstanceId, Reason, Write, clock};
use crate::text::shell_command;
use observe::read_for_taint;
use std::cell::LazyCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

pub const NAME: &str = "cloud-node-lifecycle-controller";

/// The pause between the first and the second read of the server of a node that is not ready. The first read is made as
/// soon as the node is not ready. The second read is made after 15 s, the third after 30 s more, and then one every
/// minute as long as the node is not ready.
const FIRST_PAUSE: Duration = Duration::from_secs(15);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Settings of the lifecycle controller.
#[derive(Clone, Debug)]
pub struct LifecycleSettings {
    /// How often the controller looks for nodes that are not ready. This is the setting `--node-monitor-period`.
    pub monitor_period: Duration,
    /// The greatest age of complete Node objects. Between two complete reads, only a table with a few columns is read,
    /// which does not show e.g. taints. This is the setting `--node-status-update-frequency`.
    pub node_max_age: Duration,
    /// The greatest age of a list of servers from which the controller learns whether a server is on, off or deleted.
    /// This is the setting `HCLOUD_SERVER_CACHE_MAX_AGE`.
    pub server_cache_max_age: Duration,
    /// Whether a node is deleted only when the list of servers contains the server of another node. Such a server
    /// proves that the token belongs to the right project. This is the setting `--node-deletion-guard`.
    pub deletion_guard: bool,
    /// How long a server must be off before its node gets the taint `out-of-service`. `None` means that no node gets
    /// it. This is the setting `--node-out-of-service-after`.
    pub out_of_service_after: Option<Duration>,
}

/// Returns a text for the operator that advises to switch this server on, with the command for it.
pub fn switch_on(server: InstanceId) -> String {
    let command = shell_command("hcloud server poweron", &[&server]);
    format!(
        "switch the server on ({command}). If the server is not needed, delete it, and the daemon deletes its node"
    )
}

pub struct LifecycleController {
    settings: LifecycleSettings,
    /// The pauses between two reads of the server of a node that is not ready.
    pauses: Backoff,
    /// The pauses between tries to remove a taint from a ready node, after such a write has failed.
    backoff: Backoff,
    off: OffServers,
}

/// The nodes that must be checked, what the cloud says about their servers, and an error when one of the two APIs
/// (Cloud, Robot) did not answer.
type Observed = (Vec<Arc<KubeNode>>, Facts, Option<CacheError>);

impl Controller for LifecycleController {
    fn name(&self) -> &'static str {
        NAME
    }

    fn interval(&self) -> Duration {
        self.settings.monitor_period
    }

    fn tick(&mut self, apis: &Apis, selection: &Selection) -> Report {
        self.sync(apis, selection).0
    }

    fn propose(&self, apis: &Apis, selection: &Selection) -> Result<Vec<Proposal>, CacheError> {
        let plans = self.evaluate(apis, selection)?;
        Ok(plans.iter().map(LifecyclePlan::proposal).collect())
    }
}

impl LifecycleController {
    pub fn new(settings: LifecycleSettings) -> LifecycleController {
        LifecycleController {
            pauses: Backoff::exact(FIRST_PAUSE, LONGEST_PAUSE),
            backoff: Backoff::default(),
            off: OffServers::new(settings.out_of_service_after),
            settings,
        }
    }

    /// Returns the plans for the nodes that `selection` asks for: the nodes that need work now, or the nodes that a
    /// person named in a command.
    pub fn evaluate(
        &self,
        apis: &Apis,
        selection: &Selection,
    ) -> Result<Vec<LifecyclePlan>, CacheError> {
        let mut off = self.off.clone();
        let (due, facts, _) = self.observe(apis, selection, &mut off)?;
        // The reads in `off.reads` say since when a server has been off. Only a daemon reads a server often enough for
        // that. A command reads each server only once, so it makes its plans without `off.reads`.
        off.reads = Arc::default();
        let guard = self.settings.deletion_guard;
        Ok(due.iter().map(|node| plan(node, &facts, &off, &*apis.provider, guard)).collect())
    }

    /// Makes one sync pass. Returns its report, and the plans as they were made before the first write of the sync
    /// pass.
    pub fn sync(&mut self, apis: &Apis, selection: &Selection) -> (Report, Vec<LifecyclePlan>) {
        let mut off = self.off.clone();
        let observed = self.observe(apis, selection, &mut off);
        self.off = off;
        let (due, mut facts, outage) = match observed {
            Ok(observed) => observed,
            Err(error) => return (Report::outage(error, String::new()), Vec::new()),
        };
        read_for_taint(apis, &due, &mut facts, &mut self.off);
        self.forget(apis);
        // Each server is read again after a pause. With many servers, the usual pauses would lead to more API calls
        // than the rate limit allows. All pauses are therefore lengthened by the same factor.
        let longest = apis.look_period(LONGEST_PAUSE);
        self.pauses.stretch = longest.div_duration_f64(LONGEST_PAUSE);
        let mut report = Report { outage: outage.map(Outage::from), ..Report::default() };
        let (off, guard) = (self.off.clone(), self.settings.deletion_guard);
        let plans: Vec<LifecyclePlan> =
            due.iter().map(|node| plan(node, &facts, &off, &*apis.provider, guard)).collect();
        // A node can get a new plan in the same sync pass. The servers are not read again for it. A server that was
        // found to be deleted stays deleted, because its ID is never used again. A server that was found to be off can
        // be switched on by now, so the taint `out-of-service` is only set when the last read of the server is at most
        // some seconds old.
        let plan_again = |node: &KubeNode| {
            let off = OffServers { now: clock::now(), ..off.clone() };
            Ok(plan(node, &facts, &off, &*apis.provider, guard))
        };
        let write = |plan: &LifecyclePlan| apply(apis, NAME, plan.clone(), true, plan_again);
        // A deletion is a batch of its own, so it is not made in parallel with another write.
        for batch in plans.chunk_by(|one, next| !is_deletion(one) && !is_deletion(next)) {
            let all = in_parallel(batch, apis.concurrent_nodes, write, AppliedPlan::is_closed);
            let is_over = all.iter().any(AppliedPlan::is_closed);
            for (plan, applied) in batch.iter().zip(all) {
                publish(apis, plan.object.seen_by(NAME), plan.all_findings());
                self.note(apis, &mut report, plan, applied);
            }
            if is_over {
                break;
            }
        }
        (report, plans)
    }

    /// Reads the nodes, and what the cloud says about the servers of the nodes that must be checked. Stores in `off`
    /// which servers the cloud has reported as off, and how many nodes are ready.
    fn observe(
        &self,
        apis: &Apis,
        selection: &Selection,
        off: &mut OffServers,
    ) -> Result<Observed, CacheError> {
        let table_max_age = self.settings.monitor_period / 2;
        let mut nodes = selection.nodes(apis, table_max_age, self.settings.node_max_age)?;
        let due = self.due(apis, &nodes.value, selection);
        if due.is_empty() {
            return Ok(Observed::default());
        }
        let max_age = self.settings.server_cache_max_age;
        let (facts, outage) = observe::facts(apis, &nodes.value, &due, max_age);
        let longest_pause = apis.look_period(LONGEST_PAUSE).max(self.settings.monitor_period);
        for node in &due {
            let fact = server_of(node, &*apis.provider).and_then(|server| facts.get(&server));
            off.note(&node.metadata.uid, fact.and_then(Fact::is_locked), 2 * longest_pause);
        }
        let outage = match outage {
            Some(error) if facts.is_empty() => return Err(error),
            outage => outage,
        };
        let known: HashSet<String> = due.iter().map(|node| node.metadata.uid.clone()).collect();
        if !selection.is_explicit() {
            // The nodes are read again only after the cloud has answered. Without that answer, nothing can be decided
            // about them, and the read would be useless.
            let names: Vec<String> = due.iter().map(|node| node.name().to_owned()).collect();
            nodes = apis.nodes.again(&names, table_max_age)?;
        }
        // The nodes were read twice. Between the two reads, a new node can have replaced a node of the same name. The
        // new node is left out, because the cloud was not asked about its server.
        let mut due = self.due(apis, &nodes.value, selection);
        due.retain(|node| known.contains(&node.metadata.uid));
        off.nodes = nodes.value.len();
        off.ready = nodes.value.iter().filter(|node| node.is_ready()).count();
        off.now = clock::now();
        Ok((due, facts, outage))
    }

    /// Returns the nodes that need work now: nodes that are not ready, and ready nodes from which a taint must be
    /// removed. After a failed try, a node is left out until the pause before its next try is over. A person's command
    /// does not wait for the end of this pause. When the provider IDs of several nodes name the same server, only the
    /// node to which the server belongs is returned, because the other nodes must be neither tainted nor deleted.
    fn due(
        &self,
        apis: &Apis,
        nodes: &[Arc<KubeNode>],
        selection: &Selection,
    ) -> Vec<Arc<KubeNode>> {
        let now = clock::now();
        let is_waiting = |node: &KubeNode| {
            if node.is_ready() {
                self.backoff.is_waiting(&node.metadata.uid, now)
            } else {
                self.pauses.is_waiting(&node.metadata.uid, now)
            }
        };
        // Most sync passes find no node for which the claims are needed.
        let claims = LazyCell::new(|| Claims::new(&*apis.provider, nodes));
        let is_due = |node: &&Arc<KubeNode>| {
            concerns_us(node)
                && selection.names(node.name())
                && (selection.is_explicit() || !is_waiting(node))
                && !claims.is_second(node)
        };
        nodes.iter().filter(is_due).cloned().collect()
    }

    /// Reports what was done for a node, or what has failed. Sets the time at which the node is examined next.
    fn note(
        &mut self,
        apis: &Apis,
        report: &mut Report,
        planned: &LifecyclePlan,
        applied: AppliedPlan<Vec<TaintRule>>,
    ) {
        let (uid, object) = (&planned.object.uid, planned.object.for_people());
        self.pauses.ended(uid, true);
        let has_failed = applied.error.is_some() && !applied.is_closed();
        self.backoff.ended(uid, has_failed);
        let last = applied.plan.as_ref().unwrap_or(planned);
        let first = last.changes.first();
        let error = applied.error.as_ref();
        let finding = error.and_then(|error| not_written(first?, error));
        publish(apis, planned.object.seen_by(NAME), &finding);
        let is_made = !applied.made.is_empty();
        if let Some(NodeChange::AddOutOfServiceTaint { server, .. }) = first {
            // When the API server did not answer the write, it may have set the taint `out-of-service` nevertheless. So
            // the taint counts as set, and no other node gets it within a minute.
            if is_made || error.is_some_and(kube::KubeError::is_unavailable) {
                self.off.last_taint = Some(clock::now());
            }
            let was_set = out_of_service::was_set(*server).with_fix(switch_on(*server));
            publish(apis, planned.object.seen_by(NAME), is_made.then_some(&was_set));
        }
        let is_deleted = is_made && is_deletion(last);
        if error.is_none() && planned.obstacle.is_none() && !is_deleted {
            recovered(apis, planned.object.seen_by(NAME));
        }
        applied.note_in(report, object, finding.map(|finding| finding.reason));
    }

    /// Removes the records that are not needed any more. When a node is ready again or does not exist any more, the
    /// pauses between reads of its server are removed. So if it becomes not ready again, its server is read at once.
    /// When a node has no taint to remove any more, the pauses after failed writes are removed.
    fn forget(&mut self, apis: &Apis) {
        let Some(nodes) = apis.nodes.last() else {
            return;
        };
        let nodes: LazyCell<HashMap<&str, &Arc<KubeNode>>, _> = LazyCell::new(|| {
            nodes.value.iter().map(|node| (node.metadata.uid.as_str(), node)).collect()
        });
        let is =
            |uid: &str, such: fn(&KubeNode) -> bool| nodes.get(uid).is_some_and(|node| such(node));
        self.pauses.keep(|uid| is(uid, |node| !node.is_ready()));
        self.backoff.keep(|uid| is(uid, |node| node.is_ready() && concerns_us(node)));
        Arc::make_mut(&mut self.off.reads).retain(|uid, _| is(uid, |node| !node.is_ready()));
    }
}

/// Whether the node is not ready, has the taint that says that its server is off, or has a taint `out-of-service` that
/// this program has set.
fn concerns_us(node: &KubeNode) -> bool {
    let is_ours = |taint: &Taint| taint.key == SHUTDOWN || is_own(taint);
    !node.is_ready() || node.spec.taints.iter().any(is_ours)
}

fn is_deletion(plan: &LifecyclePlan) -> bool {
    matches!(plan.changes.first(), Some(NodeChange::DeleteNode { .. }))
}

/// Returns the finding (a message for the operator) about a change that could not be made. `None` when this process was
/// not allowed to make the change. Also `None` when another program has written to the node at the same time, unless
/// the change was the deletion of the node. Such conflicts are common, and the next try solves them.
fn not_written(change: &NodeChange, error: &kube::KubeError) -> Option<Finding> {
    let (reason, message) = match change {
        _ if error.is_refused() => return None,
        NodeChange::DeleteNode { .. } => (
            Reason::DeletingNodeFailed,
            format!("the node was not deleted; ccm tries again later: {error}"),
        ),
        _ if error.is_conflict() => return None,
        _ => (
            Reason::TaintingNodeFailed,
            format!("could not {}; ccm tries again later: {error}", change.description()),
        ),
    };
    Some(Finding::warning(reason, message))
}
