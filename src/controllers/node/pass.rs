//! Works off the plans of one tick, node by node, and takes note of what came of each.
//!
//! A pass over thousands of nodes, or with a slow API server, takes longer than a list of
//! servers may be old: then the list is read again and the rest is planned anew.

use super::apply::{self, Applied};
use super::observe::{self, Need, Observed};
use super::plan::{NodePlan, is_uninitialised, plan_node};
use crate::cache::Apis;
use crate::controllers::backoff::Backoff;
use crate::controllers::report::{Failure, Report};
use crate::kube::{self, Node};
use crate::provider::{Finding, Reason, Urgency};
use jiff::Timestamp;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(super) struct Pass<'a, Done> {
    apis: &'a Apis,
    /// How old a list of servers a write may rest on.
    young: Duration,
    /// As in the [`View`](super::View).
    overdue: Timestamp,
    backoff: &'a mut Backoff,
    /// Given each plan as it was applied last, one for each node that is still there.
    done: Done,
    report: Report,
}

/// Why a stretch of the pass ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stretch {
    Done,
    /// The list of servers is too old for the next write.
    ListTooOld,
    /// The gate is closed: no write may follow.
    Closed,
}

impl<'a, Done: FnMut(NodePlan)> Pass<'a, Done> {
    pub(super) fn new(
        apis: &'a Apis,
        young: Duration,
        overdue: Timestamp,
        backoff: &'a mut Backoff,
        done: Done,
    ) -> Pass<'a, Done> {
        Pass {
            apis,
            young,
            overdue,
            backoff,
            done,
            report: Report::default(),
        }
    }

    pub(super) fn run(mut self, mut observed: Observed, nodes: Vec<Arc<Node>>) -> Report {
        let mut queue = VecDeque::from(nodes);
        let young = Need::in_use(self.young);
        while self.work_off(&mut queue, &observed) == Stretch::ListTooOld {
            observed = match observe::observe(self.apis, observed.nodes, young, Urgency::Needed) {
                Ok(observed) => observed,
                Err(error) => {
                    let outage = Report::outage(error, format!("{} nodes wait", queue.len()));
                    self.report.outage = outage.outage;
                    break;
                }
            };
        }
        self.report.unreached = queue.len();
        self.report
    }

    /// A plan is made when it is its node's turn: thousands at once would need the memory of
    /// thousands.
    fn work_off(&mut self, queue: &mut VecDeque<Arc<Node>>, observed: &Observed) -> Stretch {
        let provider = &*self.apis.provider;
        let index = observed.index(provider);
        let young = Need::in_use(self.young);
        let overdue = self.overdue;
        let plan_for = |node: &Node| plan_node(node, &index, provider, overdue);
        let is_young = || observed.is_good_for(young);
        while let Some(node) = queue.pop_front() {
            let plan = plan_for(&node);
            let planned = plan.changes.len();
            if !plan.changes.is_empty() && !is_young() {
                queue.push_front(node);
                return Stretch::ListTooOld;
            }
            // A node that changed meanwhile, on a list that is too old by now, is left to the next tick.
            let replan = |node: &Node| is_young().then(|| plan_for(node));
            let (object, uid) = (
                format!("node/{}", plan.object.name),
                plan.object.uid.clone(),
            );
            self.report.planned += planned;
            let applied = apply::apply(self.apis, plan, replan);
            let is_closed = applied.error.as_ref().is_some_and(kube::Error::is_refused);
            if is_closed && applied.lines.is_empty() {
                queue.push_front(node);
                return Stretch::Closed;
            }
            note(&mut self.report, self.backoff, object, &uid, &applied);
            with_event(applied).map(&mut self.done);
            if is_closed {
                return Stretch::Closed;
            }
        }
        Stretch::Done
    }
}

fn note(report: &mut Report, backoff: &mut Backoff, object: String, uid: &str, applied: &Applied) {
    let lines = applied.lines.iter();
    report
        .changes
        .extend(lines.map(|line| (object.clone(), line.clone())));
    let obstacle = applied
        .plan
        .as_ref()
        .and_then(|plan| plan.obstacle.as_ref());
    let (why, finding) = match (&applied.error, obstacle) {
        (Some(error), _) => (error.to_string(), None),
        (None, Some(finding)) => (finding.message.clone(), Some(finding.reason)),
        (None, None) => {
            backoff.succeeded(uid);
            report.changed += usize::from(!applied.lines.is_empty());
            report.unchanged += usize::from(applied.lines.is_empty());
            return;
        }
    };
    // An initialised node that can't be brought in order is looked at again with the others.
    let is_new = applied
        .plan
        .as_ref()
        .is_some_and(|plan| is_uninitialised(&plan.node));
    if applied.error.is_some() || is_new {
        backoff.failed(uid, Instant::now());
    }
    report.failures.push(Failure {
        object,
        why,
        finding,
    });
}

fn with_event(applied: Applied) -> Option<NodePlan> {
    let mut plan = applied.plan?;
    if applied.initialised {
        plan.findings
            .push(Finding::info(Reason::Synced, "Node synced successfully"));
    }
    Some(plan)
}
