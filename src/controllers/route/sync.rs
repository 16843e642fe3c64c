//! Works off what a proposal wants: both APIs are read again, the plan is made anew, and only
//! that one is applied; the same once more when the look became too old, or when something was
//! refused that another program may have done meanwhile.

use super::Settings;
use super::apply::{Execution, Stopped};
use super::condition::Conditions;
use super::memory::Memory;
use super::observe::{Ages, Observed, observe};
use super::plan::{Change, NodePlan, Plan};
use crate::cache::{Apis, Error, ReadFrom};
use crate::controllers::report::{Failure, Outage, Report};
use crate::provider::{Instance, Reason, Route, RouteChange, Routes, Urgency};
use serde_json::Value;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

/// A hundred deletions, a few on each look: what is left then is left to the next pass.
const LOOKS_AT_MOST: u32 = 40;

/// So often everything is tried that a look shows, while others change the network too.
const ROUNDS_AT_MOST: u32 = 3;

pub(super) struct Pass<'a> {
    pub(super) apis: &'a Apis,
    pub(super) routes: &'a dyn Routes,
    pub(super) settings: &'a Settings,
    pub(super) memory: &'a mut Memory,
    /// Nodes, by UID, whose routes have waited for long.
    pub(super) lacking: &'a HashSet<String>,
}

/// What came of it.
#[derive(Default)]
pub(super) struct Passed {
    pub(super) report: Report,
    /// As it was made last.
    pub(super) plan: Plan,
    /// Changes that were refused, and that a later look still lacked; each with why.
    pub(super) refused: Vec<(Change, crate::provider::Error)>,
    /// Changes of this plan that were made.
    pub(super) done: Vec<Change>,
    /// A route was deleted to be replaced, and its replacement is not there.
    pub(super) is_torn: bool,
    pub(super) made: Vec<(String, Value)>,
    pub(super) wrote: bool,
    /// The list of servers that the plan rests on; none: there is no plan.
    pub(super) instances: Option<Arc<Vec<Instance>>>,
}

impl Pass<'_> {
    pub(super) fn run(mut self) -> Passed {
        let mut execution = Execution::new(self.routes, self.settings);
        let mut conditions = Conditions::new(self.apis);
        let mut plan = Plan::default();
        let mut instances = None;
        let mut outage = None;
        let mut rounds = 0;
        // Of what was refused, so much was missing still at a later look.
        let mut confirmed = 0;
        for _ in 1..=LOOKS_AT_MOST {
            let observed = match self.look() {
                Ok((observed, new)) => {
                    plan = new;
                    observed
                }
                Err(error) => {
                    outage = Some(error);
                    break;
                }
            };
            instances = Some(Arc::clone(&observed.instances.value));
            execution.looked_again(&plan);
            confirmed = execution.refused.len();
            let there: HashSet<Route> = observed.network.value.routes.iter().copied().collect();
            say_what_is_known(&mut conditions, &plan, &there);
            if rounds == ROUNDS_AT_MOST || execution.left(&plan).next().is_none() {
                break;
            }
            let added = execution.added.len();
            let is_over = execution.run(&plan, observed.complete, |added| {
                let plans = plan.nodes.iter();
                for node in plans.filter(|node| is_served(node, &there, added)) {
                    conditions.set(node, false);
                }
            });
            self.memory.made(&execution.done);
            if execution.stopped.is_some() {
                match execution.may_go_on() {
                    true => continue,
                    false => break,
                }
            }
            let is_clearer = plan.is_doubtful && execution.added.len() > added;
            // Another program may have done what was refused.
            if is_over && execution.refused.len() == confirmed && !is_clearer {
                break;
            }
            rounds += u32::from(is_over);
        }
        if execution.stopped.is_none() {
            for node in plan.nodes.iter().filter(|node| node.unavailable.is_some()) {
                let lacks = |(change, _): &(Change, _)| {
                    change.change == RouteChange::Add && node.routes.contains(&change.route)
                };
                let must_wait = node.is_held_back && outage.is_none();
                if must_wait || execution.refused.iter().take(confirmed).any(lacks) {
                    conditions.set(node, true);
                }
            }
        }
        Passed {
            instances,
            ..passed(execution, confirmed, conditions, plan, outage)
        }
    }

    /// Both APIs, as they are now, and what is to be done.
    fn look(&mut self) -> Result<(Observed, Plan), Error> {
        let now = Instant::now();
        // Routes are deleted by this list: one from a cache may lack a node that is there.
        let nodes = self.apis.nodes(now.elapsed(), ReadFrom::Latest)?.value;
        let ages = Ages {
            network: now.elapsed(),
            instances: self.settings.young(),
            urgency: Urgency::Needed,
        };
        let mut observed = observe(self.apis, nodes, ages)?;
        let cidrs = &self.settings.cluster_cidrs;
        let remembered = self.memory.routes();
        let mut plan = observed.plan(self.apis, cidrs, remembered, self.lacking);
        if plan.needs_all_servers() {
            observed = observed.with_all_servers(self.apis)?;
            plan = observed.plan(self.apis, cidrs, remembered, self.lacking);
        }
        self.memory.note(&plan, &observed.network.value);
        Ok((observed, plan))
    }
}

/// Conditions that no change of this plan can make wrong. Whoever has to wait may not have to when
/// the plan is made.
fn say_what_is_known(conditions: &mut Conditions, plan: &Plan, there: &HashSet<Route>) {
    for node in &plan.nodes {
        match node.unavailable {
            Some(true) if !node.is_held_back => conditions.set(node, true),
            Some(false) if is_served(node, there, &HashSet::new()) => conditions.set(node, false),
            Some(_) | None => {}
        }
    }
}

/// All of its routes are there.
fn is_served(node: &NodePlan, there: &HashSet<Route>, added: &HashSet<Route>) -> bool {
    let is_there = |route: &Route| there.contains(route) || added.contains(route);
    node.unavailable == Some(false) && node.routes.iter().all(is_there)
}

fn passed(
    mut execution: Execution,
    confirmed: usize,
    conditions: Conditions,
    plan: Plan,
    outage: Option<Error>,
) -> Passed {
    let left: Vec<&Change> = execution.left(&plan).collect();
    let unreached: HashSet<String> = left.iter().map(|change| change.object()).collect();
    let is_cut_off = execution.stopped.is_some() || outage.is_some();
    let mut passed = Passed {
        wrote: execution.wrote,
        ..Passed::default()
    };
    passed.is_torn = is_cut_off && execution.is_torn();
    for (object, line, json) in execution.made.into_iter().chain(conditions.made) {
        passed.report.changes.push((object.clone(), line));
        passed.made.push((object, json));
    }
    let failure = |(place, (change, error)): (usize, &(Change, crate::provider::Error))| Failure {
        object: change.object(),
        why: format!("{}: {error}", change.tried()),
        // Reported of the node.
        finding: (change.change == RouteChange::Add && place < confirmed)
            .then_some(Reason::FailedToCreateRoute),
    };
    let failures = &mut passed.report.failures;
    failures.extend(execution.refused.iter().enumerate().map(failure));
    if !is_cut_off {
        failures.extend(left.iter().map(|change| Failure {
            object: change.object(),
            why: format!("{}: others change the network too", change.tried()),
            finding: None,
        }));
    }
    failures.extend(conditions.failures);
    let obstacles = plan.nodes.iter().filter_map(|node| {
        let finding = node.obstacle.as_ref()?;
        Some(Failure {
            object: node.name(),
            why: finding.message.clone(),
            finding: Some(finding.reason),
        })
    });
    failures.extend(obstacles);
    let stopped = match (execution.stopped, conditions.stopped) {
        (Some(Stopped::Outage(error)), _) => Some(Error::Cloud(error)),
        (_, Some(Some(error))) => Some(error),
        (_, _) => None,
    };
    passed.report.outage = outage.or(stopped).map(|error| Outage {
        error,
        waiting: String::new(),
    });
    count(&mut passed.report, &plan, &unreached);
    passed.report.unreached = unreached.len();
    passed.done = execution.done;
    execution.refused.truncate(confirmed);
    passed.refused = execution.refused;
    passed.plan = plan;
    passed
}

/// A node or a destination is counted once, whatever was done about it.
pub(super) fn count(report: &mut Report, plan: &Plan, unreached: &HashSet<String>) {
    let failures = report.failures.iter();
    let failed: HashSet<String> = failures.map(|failure| failure.object.clone()).collect();
    let changes = report.changes.iter();
    let changed: HashSet<&String> = changes.map(|(object, _)| object).collect();
    report.changed = changed
        .iter()
        .filter(|object| !failed.contains(**object) && !unreached.contains(**object))
        .count();
    let objects = plan.nodes.iter().map(NodePlan::name);
    let rest = objects.filter(|object| {
        !failed.contains(object) && !changed.contains(object) && !unreached.contains(object)
    });
    report.unchanged = rest.count();
}
