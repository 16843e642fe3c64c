//! The node lifecycle controller deletes a node whose server was deleted, and taints a node whose server is off.
//!
//! A sync pass has three parts. `evaluate` finds the nodes that need a check, asks the cloud about their servers, and
//! plans. `node_writes::apply` makes the writes of the plans. `note` reports the outcomes.
//!
//! Deleting a node is the most dangerous thing that this program does. `plan` deletes a node only when two API answers
//! agree that its server does not exist. `apply` reads the node again before the deletion. The request for the deletion
//! contains the node's UID and resource version, so the API server refuses it when another program has changed or
//! replaced the node in the meantime.

mod observe;
mod plan;

pub use plan::{Fact, Facts, LifecyclePlan, SHUTDOWN, plan};

use super::backoff::Backoff;
use super::controller::{Controller, Outage, Proposal, Report, Selection};
use super::matching::Claims;
use super::node_writes::{AppliedPlan, NodeChange, apply};
use super::parallel::in_parallel;
use super::report::{publish, recovered};
use crate::cache::{Apis, CacheError};
use crate::kube::{self, KubeNode};
use crate::provider::{Finding, InstanceId, Reason, Write, clock};
use crate::text::shell_command;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

pub const NAME: &str = "cloud-node-lifecycle-controller";

/// The server of a node is read as soon as the node is not ready. While the node is still not ready, the server is read
/// again after 15 s, then after 30 s, and then every minute.
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
}

/// Returns a text for the operator that advises to switch this server on, with the command for it.
pub fn switch_on(server: InstanceId) -> String {
    let command = shell_command("hcloud server poweron", &[&server]);
    format!(
        "switch the server on ({command}); when it is not needed, delete it, and the daemon deletes its node"
    )
}

pub struct LifecycleController {
    settings: LifecycleSettings,
    /// The pauses between two reads of the server of a node that is not ready.
    pauses: Backoff,
    /// The waits before the next try to remove the shutdown taint from a node that is ready, after a try has failed.
    backoff: Backoff,
}

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
            settings,
        }
    }

    /// Returns the plans for the nodes that need work now, or for the nodes that a person selected.
    pub fn evaluate(
        &self,
        apis: &Apis,
        selection: &Selection,
    ) -> Result<Vec<LifecyclePlan>, CacheError> {
        self.plan(apis, selection).map(|(plans, ..)| plans)
    }

    /// Makes one sync pass. Returns its report, and the plans as they were made before the first write of the sync
    /// pass.
    pub fn sync(&mut self, apis: &Apis, selection: &Selection) -> (Report, Vec<LifecyclePlan>) {
        let (plans, facts, outage) = match self.plan(apis, selection) {
            Ok(planned) => planned,
            Err(error) => return (Report::outage(error, String::new()), Vec::new()),
        };
        self.forget(apis);
        // In a large project, reads with the usual pauses would use up the API calls that the rate limit allows, so all
        // pauses are lengthened by the same factor.
        let longest = apis.look_period(LONGEST_PAUSE);
        self.pauses.stretch = longest.div_duration_f64(LONGEST_PAUSE);
        let mut report = Report { outage: outage.map(Outage::from), ..Report::default() };
        let guard = self.settings.deletion_guard;
        // When a node is planned again in this sync pass, the facts about its server are used again. A server that was
        // deleted stays deleted, because the cloud never uses its ID again.
        let plan_again = |node: &KubeNode| Ok(plan(node, &facts, &*apis.provider, guard));
        let write = |plan: &LifecyclePlan| apply(apis, NAME, plan.clone(), true, plan_again);
        // A deletion is made alone, not in parallel with another write.
        for batch in plans.chunk_by(|one, next| !is_deletion(one) && !is_deletion(next)) {
            let all = in_parallel(batch, apis.concurrent_nodes, write, AppliedPlan::is_closed);
            let is_over = all.iter().any(AppliedPlan::is_closed);
            for (plan, applied) in batch.iter().zip(all) {
                publish(apis, plan.object.seen_by(NAME), &plan.obstacle);
                self.note(apis, &mut report, plan, applied);
            }
            if is_over {
                break;
            }
        }
        (report, plans)
    }

    fn plan(
        &self,
        apis: &Apis,
        selection: &Selection,
    ) -> Result<(Vec<LifecyclePlan>, Facts, Option<CacheError>), CacheError> {
        let table_max_age = self.settings.monitor_period / 2;
        let mut nodes = selection.nodes(apis, table_max_age, self.settings.node_max_age)?;
        let due = self.due(apis, &nodes.value, selection);
        if due.is_empty() {
            return Ok((Vec::new(), Facts::new(), None));
        }
        let max_age = self.settings.server_cache_max_age;
        let (facts, outage) = match observe::facts(apis, &nodes.value, &due, max_age) {
            (facts, Some(error)) if facts.is_empty() => return Err(error),
            observed => observed,
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
        let guard = self.settings.deletion_guard;
        let plans = due.into_iter().map(|node| plan(node, &facts, &*apis.provider, guard));
        Ok((plans.collect(), facts, outage))
    }

    /// Returns the nodes that need work now: nodes that are not ready, and nodes whose shutdown taint may have to be
    /// removed. A node that must wait for its next try is left out, unless a person selected it. A node that names a
    /// server which belongs to another node is also left out, because it must be neither tainted nor deleted.
    fn due<'a>(
        &self,
        apis: &Apis,
        nodes: &'a [Arc<KubeNode>],
        selection: &Selection,
    ) -> Vec<&'a KubeNode> {
        let now = clock::now();
        let is_waiting = |node: &KubeNode| {
            if node.is_ready() {
                self.backoff.is_waiting(&node.metadata.uid, now)
            } else {
                self.pauses.is_waiting(&node.metadata.uid, now)
            }
        };
        let claims = Claims::new(&*apis.provider, nodes);
        let is_due = |node: &&KubeNode| {
            concerns_us(node)
                && selection.names(node.name())
                && (selection.is_explicit() || !is_waiting(node))
                && !claims.is_second(node)
        };
        nodes.iter().map(Arc::as_ref).filter(is_due).collect()
    }

    /// Reports the outcome for a node, and sets the time of the next try.
    fn note(
        &mut self,
        apis: &Apis,
        report: &mut Report,
        planned: &LifecyclePlan,
        applied: AppliedPlan<()>,
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
        let is_deleted = !applied.made.is_empty() && is_deletion(last);
        if error.is_none() && planned.obstacle.is_none() && !is_deleted {
            recovered(apis, planned.object.seen_by(NAME));
        }
        applied.note_in(report, object, finding.map(|finding| finding.reason));
    }

    /// Forgets the waits of nodes that are ready again or do not exist any more. When such a node becomes not ready
    /// later, its server is read at once. Also forgets the failed tries for nodes that have no shutdown taint to remove
    /// any more.
    fn forget(&mut self, apis: &Apis) {
        let Some(nodes) = apis.nodes.last() else {
            return;
        };
        let nodes = nodes.value.iter();
        let nodes: HashMap<&str, &Arc<KubeNode>> =
            nodes.map(|node| (node.metadata.uid.as_str(), node)).collect();
        let is =
            |uid: &str, such: fn(&KubeNode) -> bool| nodes.get(uid).is_some_and(|node| such(node));
        self.pauses.keep(|uid| is(uid, |node| !node.is_ready()));
        self.backoff.keep(|uid| is(uid, |node| node.is_ready() && concerns_us(node)));
    }
}

/// Whether the node is not ready or has the shutdown taint. The controller checks only such nodes.
fn concerns_us(node: &KubeNode) -> bool {
    !node.is_ready() || node.taint(SHUTDOWN).is_some()
}

fn is_deletion(plan: &LifecyclePlan) -> bool {
    matches!(plan.changes.first(), Some(NodeChange::DeleteNode { .. }))
}

/// Returns the finding (a message for the operator) about a change that could not be made. A conflict with another
/// program's write to the node gives no finding, unless the change was a deletion. Such conflicts are common and are
/// solved by the next try.
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
            format!("not done; ccm tries again later: {}: {error}", change.description()),
        ),
    };
    Some(Finding::warning(reason, message))
}
