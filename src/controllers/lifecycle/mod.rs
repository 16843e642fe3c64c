//! The node lifecycle controller: a node whose server was deleted is deleted; one whose server is off is tainted.
//!
//! A tick: `evaluate` (which nodes are due, `facts` about their servers, `plan`) → `node_writes::apply` → `note`.
//!
//! Deleting a node is the most dangerous thing this program does. `plan` decides it only on
//! facts that leave no doubt, and `apply` reads the node once more and names its UID and
//! version, so that a node that was renewed in between stays.

mod observe;
mod plan;

pub use plan::{Fact, Facts, LifecyclePlan, SHUTDOWN, plan};

use super::backoff::Backoff;
use super::controller::{Controller, Outage, Proposal, Report, Selection};
use super::matching::Claims;
use super::node_writes::{Applied, NodeChange, apply};
use super::parallel::in_parallel;
use super::report::{publish, recovered};
use crate::cache::{Apis, Error};
use crate::kube::{self, Node};
use crate::provider::{Finding, InstanceId, Reason, Write, clock};
use crate::text::shell_command;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

pub const NAME: &str = "cloud-node-lifecycle-controller";

/// The server of a not-ready node is read at once, after 15 s, after 30 s, then every minute.
const FIRST_PAUSE: Duration = Duration::from_secs(15);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Settings of the lifecycle controller.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `--node-monitor-period`: how often not-ready nodes are looked for.
    pub monitor_period: Duration,
    /// `--node-status-update-frequency`: how old what a table of nodes can't show may be.
    pub node_max_age: Duration,
    /// `HCLOUD_SERVER_CACHE_MAX_AGE`: how old a list of servers may be that says what state they are in.
    pub server_cache_max_age: Duration,
    /// `--node-deletion-guard`: no deletion unless another node's server is in the same list.
    pub deletion_guard: bool,
}

/// What to do about a server that is off.
pub fn switch_on(server: InstanceId) -> String {
    let command = shell_command("hcloud server poweron", &[&server]);
    format!(
        "switch the server on ({command}); when it is not needed, delete it, and the daemon deletes its node"
    )
}

pub struct LifecycleController {
    settings: Settings,
    /// Of nodes that are not ready.
    pauses: Backoff,
    /// Of nodes that are ready, and keep the shutdown taint because it could not be removed.
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

    fn propose(&self, apis: &Apis, selection: &Selection) -> Result<Vec<Proposal>, Error> {
        let plans = self.evaluate(apis, selection)?;
        Ok(plans.iter().map(LifecyclePlan::proposal).collect())
    }
}

impl LifecycleController {
    pub fn new(settings: Settings) -> LifecycleController {
        LifecycleController {
            pauses: Backoff::exact(FIRST_PAUSE, LONGEST_PAUSE),
            backoff: Backoff::new(),
            settings,
        }
    }

    /// What would be done to the nodes that are due or selected.
    pub fn evaluate(
        &self,
        apis: &Apis,
        selection: &Selection,
    ) -> Result<Vec<LifecyclePlan>, Error> {
        self.plan(apis, selection).map(|(plans, ..)| plans)
    }

    /// One tick, with the plans that it was made of.
    pub fn sync(&mut self, apis: &Apis, selection: &Selection) -> (Report, Vec<LifecyclePlan>) {
        let (plans, facts, outage) = match self.plan(apis, selection) {
            Ok(planned) => planned,
            Err(error) => return (Report::outage(error, String::new()), Vec::new()),
        };
        self.forget(apis);
        // As many looks are too many calls in a large project.
        let longest = apis.look_period(LONGEST_PAUSE);
        self.pauses.stretch = longest.div_duration_f64(LONGEST_PAUSE);
        let mut report = Report {
            outage: outage.map(|error| Outage::new(error, String::new())),
            ..Report::default()
        };
        let guard = self.settings.deletion_guard;
        // The facts are this tick's: a server that was deleted does not come back, its number is never used again.
        let plan_again = |node: &Node| Ok(plan(node, &facts, &*apis.provider, guard));
        let write = |plan: &LifecyclePlan| {
            if plan.changes.is_empty() {
                Applied::new(plan.clone())
            } else {
                apply(apis, NAME, plan.clone(), true, plan_again)
            }
        };
        // A deletion is made alone.
        for batch in plans.chunk_by(|one, next| !is_deletion(one) && !is_deletion(next)) {
            let all = in_parallel(batch, apis.concurrent_nodes, write, Applied::is_closed);
            let is_over = all.iter().any(Applied::is_closed);
            for (plan, applied) in batch.iter().zip(all) {
                publish(apis, NAME, &plan.object, &plan.obstacle);
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
    ) -> Result<(Vec<LifecyclePlan>, Facts, Option<Error>), Error> {
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
            // After the cloud answered: while it does not, no node is read in vain.
            let names: Vec<String> = due.iter().map(|node| node.name().to_owned()).collect();
            nodes = apis.nodes.again(&names, table_max_age)?;
        }
        // Of a node that was made anew meanwhile there are no facts.
        let mut due = self.due(apis, &nodes.value, selection);
        due.retain(|node| known.contains(&node.metadata.uid));
        let guard = self.settings.deletion_guard;
        let plans = due.into_iter().map(|node| plan(node, &facts, &*apis.provider, guard));
        Ok((plans.collect(), facts, outage))
    }

    /// The nodes that are not ready or shall lose the shutdown taint, when it is their time. A node whose server another
    /// node has is neither tainted nor deleted.
    fn due<'a>(&self, apis: &Apis, nodes: &'a [Arc<Node>], selection: &Selection) -> Vec<&'a Node> {
        let now = clock::now();
        let is_waiting = |node: &Node| {
            if node.is_ready() {
                self.backoff.is_waiting(&node.metadata.uid, now)
            } else {
                self.pauses.is_waiting(&node.metadata.uid, now)
            }
        };
        let is_due = |node: &&Node| {
            concerns_us(node)
                && selection.names(node.name())
                && (selection.is_explicit() || !is_waiting(node))
        };
        let due: Vec<&Node> = nodes.iter().map(Arc::as_ref).filter(is_due).collect();
        if due.is_empty() {
            return due;
        }
        let claims = Claims::new(&*apis.provider, nodes);
        due.into_iter().filter(|node| !claims.is_second(node)).collect()
    }

    /// Reports what came of a node, and when it is tried again.
    fn note(
        &mut self,
        apis: &Apis,
        report: &mut Report,
        planned: &LifecyclePlan,
        applied: Applied<LifecyclePlan>,
    ) {
        let (uid, object) = (&planned.object.uid, planned.object.for_people());
        let is_closed = applied.is_closed();
        self.pauses.failed(uid, clock::now());
        match applied.error {
            Some(_) if !is_closed => self.backoff.failed(uid, clock::now()),
            _ => self.backoff.succeeded(uid),
        }
        let last = applied.plan.as_ref().unwrap_or(planned);
        let first = last.changes.first();
        let error = applied.error.as_ref();
        let finding = error.and_then(|error| not_written(first?, error));
        publish(apis, NAME, &planned.object, &finding);
        let is_deleted = !applied.made.is_empty() && is_deletion(last);
        if error.is_none() && planned.obstacle.is_none() && !is_deleted {
            recovered(apis, NAME, &planned.object);
        }
        applied.note_in(report, object, finding.map(|finding| finding.reason));
    }

    /// The server of a node that was ready again, or did not exist, is read at once when it is not ready the next time.
    fn forget(&mut self, apis: &Apis) {
        let Some(nodes) = apis.nodes.last() else {
            return;
        };
        let uids = |such: fn(&Node) -> bool| -> HashSet<&str> {
            let nodes = nodes.value.iter().filter(|node| such(node));
            nodes.map(|node| node.metadata.uid.as_str()).collect()
        };
        let not_ready = uids(|node| !node.is_ready());
        self.pauses.keep(|uid| not_ready.contains(uid));
        let to_untaint = uids(|node| node.is_ready() && concerns_us(node));
        self.backoff.keep(|uid| to_untaint.contains(uid));
    }
}

/// Is it not ready, or shall it lose the shutdown taint?
fn concerns_us(node: &Node) -> bool {
    !node.is_ready() || node.taint(SHUTDOWN).is_some()
}

fn is_deletion(plan: &LifecyclePlan) -> bool {
    matches!(plan.changes.first(), Some(NodeChange::DeleteNode { .. }))
}

/// What is reported of a change that was not made. Other writers were first, as happens to a node that is to be
/// tainted: no event is worth that.
fn not_written(change: &NodeChange, error: &kube::Error) -> Option<Finding> {
    let (reason, message) = match change {
        _ if error.is_refused() => return None,
        NodeChange::DeleteNode { .. } => {
            (Reason::DeletingNodeFailed, format!("not deleted, tried again later: {error}"))
        }
        _ if error.is_conflict() => return None,
        _ => (
            Reason::TaintingNodeFailed,
            format!("not done, tried again later: {}: {error}", change.description()),
        ),
    };
    Some(Finding::warning(reason, message))
}
