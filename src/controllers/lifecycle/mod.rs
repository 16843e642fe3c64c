//! The node lifecycle controller: a node whose server was deleted is deleted; one whose server is off is tainted.
//!
//! Deleting a node is the most dangerous thing this program does. `plan` decides it only on
//! facts that leave no doubt, and `apply` reads the node once more and names its UID and
//! version, so that a node that was renewed in between stays.

mod apply;
mod observe;
mod plan;
mod schedule;

pub use plan::{Change, Fact, Facts, LifecyclePlan, SHUTDOWN, View, plan};

use super::backoff::Backoff;
use super::report::{Failure, Report, publish, recovered};
use super::{Controller, Proposal, Selection};
use crate::cache::{self, Apis, Error, Poll, ReadFrom};
use crate::kube::Node;
use schedule::Schedule;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub const NAME: &str = "cloud-node-lifecycle-controller";

type Nodes = Vec<Arc<Node>>;

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
    /// Multiplies the waits between two questions about a node; 1 outside of tests.
    pub time_scale: f64,
}

pub struct LifecycleController {
    settings: Settings,
    /// Of nodes that are not ready.
    schedule: Schedule,
    /// Of nodes that are ready, and keep the shutdown taint because it could not be removed.
    backoff: Backoff,
}

impl LifecycleController {
    pub fn new(settings: Settings) -> LifecycleController {
        LifecycleController {
            schedule: Schedule::new(settings.time_scale),
            backoff: Backoff::new(settings.time_scale),
            settings,
        }
    }

    /// What would be done to the nodes that are due or asked for.
    pub fn evaluate(
        &self,
        apis: &Apis,
        selection: &Selection,
    ) -> Result<(Vec<LifecyclePlan>, Facts), Error> {
        let nodes = self.nodes(apis, selection)?;
        let due = self.due(&nodes.value, selection);
        if due.is_empty() {
            return Ok((Vec::new(), Facts::new()));
        }
        let max_age = self.settings.server_cache_max_age;
        let facts = observe::facts(apis, &nodes.value, &due, max_age)?;
        // After the cloud answered: while it does not, no node is read in vain.
        let nodes = match selection.is_explicit() {
            true => nodes.clone(),
            false => self.read_again(apis, &due)?,
        };
        // One that was made anew meanwhile is no node that was asked about.
        let asked: HashSet<&str> = due.iter().map(|node| node.metadata.uid.as_str()).collect();
        let mut due = self.due(&nodes.value, selection);
        due.retain(|node| asked.contains(node.metadata.uid.as_str()));
        let view = View {
            nodes: &due,
            facts: &facts,
        };
        let plans = plan(&view, &*apis.provider, self.settings.deletion_guard);
        Ok((plans, facts))
    }

    fn nodes(&self, apis: &Apis, selection: &Selection) -> Result<cache::View<Nodes>, Error> {
        let table_max_age = self.settings.monitor_period / 2;
        if selection.is_explicit() {
            return apis.nodes(table_max_age, ReadFrom::Latest);
        }
        apis.poll_nodes(Poll {
            table_max_age,
            whole_max_age: self.settings.node_max_age,
            metadata_max_age: None,
        })
    }

    fn read_again(&self, apis: &Apis, due: &[&Node]) -> Result<cache::View<Nodes>, Error> {
        let names: Vec<String> = due.iter().map(|node| node.name().to_owned()).collect();
        apis.nodes_again(&names, self.settings.monitor_period / 2)
    }

    /// Those that are not ready or shall lose the shutdown taint, when it is their time.
    fn due<'a>(&self, nodes: &'a Nodes, selection: &Selection) -> Vec<&'a Node> {
        let now = Instant::now();
        let is_its_time = |node: &Node| match node.is_ready() {
            true => !self.backoff.is_waiting(&node.metadata.uid, now),
            false => self.schedule.is_due(&node.metadata.uid, now),
        };
        let is_due = |node: &&Node| {
            concerns_us(node)
                && selection.names(node.name())
                && (selection.is_explicit() || is_its_time(node))
        };
        nodes.iter().map(Arc::as_ref).filter(is_due).collect()
    }

    /// One pass, with the plans that it was made of.
    pub fn sync(&mut self, apis: &Apis, selection: &Selection) -> (Report, Vec<LifecyclePlan>) {
        let (plans, facts) = match self.evaluate(apis, selection) {
            Ok(evaluated) => evaluated,
            Err(error) => return (Report::outage(error, String::new()), Vec::new()),
        };
        self.keep_schedule(apis);
        let mut report = Report {
            planned: plans.iter().filter(|plan| plan.change.is_some()).count(),
            ..Report::default()
        };
        for plan in &plans {
            let object = format!("node/{}", plan.object.name);
            publish(apis, NAME, &plan.object, &plan.obstacle);
            let outcome = apply::apply(apis, plan, &facts, self.settings.deletion_guard);
            self.schedule.asked(&plan.object.uid, Instant::now());
            match &outcome {
                Err(failed) if !failed.refused => {
                    self.backoff.failed(&plan.object.uid, Instant::now());
                }
                _ => self.backoff.succeeded(&plan.object.uid),
            }
            match outcome {
                Ok(None) => match &plan.obstacle {
                    None => {
                        recovered(apis, NAME, &plan.object);
                        report.unchanged += 1;
                    }
                    Some(obstacle) => report.failures.push(Failure {
                        object,
                        why: obstacle.message.clone(),
                        finding: Some(obstacle.reason),
                    }),
                },
                Ok(Some(line)) => {
                    if !matches!(plan.change, Some(Change::DeleteNode { .. })) {
                        recovered(apis, NAME, &plan.object);
                    }
                    report.changed += 1;
                    report.changes.push((object, line));
                }
                Err(failed) => {
                    publish(apis, NAME, &plan.object, &failed.finding);
                    report.failures.push(Failure {
                        object,
                        why: failed.error.to_string(),
                        finding: failed.finding.map(|finding| finding.reason),
                    });
                    if failed.refused {
                        break;
                    }
                }
            }
        }
        (report, plans)
    }

    /// Nodes that are ready again, or gone, are asked for at once when they are not ready the next time.
    fn keep_schedule(&mut self, apis: &Apis) {
        let Some(nodes) = apis.nodes_seen() else {
            return;
        };
        let uids = |such: fn(&Node) -> bool| -> HashSet<&str> {
            let nodes = nodes.value.iter().filter(|node| such(node));
            nodes.map(|node| node.metadata.uid.as_str()).collect()
        };
        let not_ready = uids(|node| !node.is_ready());
        self.schedule.keep(|uid| not_ready.contains(uid));
        let to_untaint = uids(|node| node.is_ready() && concerns_us(node));
        self.backoff.keep(|uid| to_untaint.contains(uid));
    }
}

/// Is it not ready, or shall it lose the shutdown taint?
fn concerns_us(node: &Node) -> bool {
    !node.is_ready() || node.taint(SHUTDOWN).is_some()
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
        let (plans, _) = self.evaluate(apis, selection)?;
        Ok(plans.iter().map(LifecyclePlan::proposal).collect())
    }
}
