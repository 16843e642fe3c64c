//! The route controller: packets to a node's pods reach that node by a route of the private Network.
//!
//! | file | its one job |
//! |---|---|
//! | `desired` | which node asks for which routes |
//! | `plan`, `planner`, `ownership` | what there is, what should be done: pure |
//! | `show` | a plan in words |
//! | `memory` | which routes were our nodes' |
//! | `due` | which nodes there are, and whether a pass is due |
//! | `observe` | what both APIs say |
//! | `sync` | looks again, plans again, makes it |
//! | `apply`, `condition` | one change of the network; one node's condition |
//!
//! The network may have routes of others, and the kubeconfig may be another cluster's: see `planner`
//! and `ownership` for what keeps a route.

mod apply;
mod condition;
mod desired;
mod due;
mod memory;
mod observe;
mod ownership;
mod plan;
mod planner;
mod show;
mod sync;

pub use observe::Observed;
pub use plan::{Change, NETWORK_UNAVAILABLE, NodePlan, Plan, Row, State, Step, View, plan};
pub use show::condition_json;

use super::backoff::Backoff;
use super::report::{Report, publish, recovered};
use super::{Controller, Proposal, Selection};
use crate::cache::{Apis, Error, ReadFrom};
use crate::kube::Node;
use crate::metrics::ROUTES;
use crate::provider::{Finding, Instance, Reason, Route, RouteChange, Routes, Urgency};
use due::{Due, Tried};
use ipnet::IpNet;
use memory::Memory;
use observe::Ages;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use sync::{Pass, Passed};

pub const NAME: &str = "node-route-controller";

/// As upstream's events are signed.
const EVENT_COMPONENT: &str = "route_controller";

/// How often nodes are looked at, by a table that the other controllers look at as well.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// How often routes are compared although no node changed.
const COMPARE_PERIOD: Duration = Duration::from_secs(300);

/// However young `HCLOUD_SERVER_CACHE_MAX_AGE` wants a list to be, the look that read it may use it.
const YOUNGEST: Duration = Duration::from_secs(1);

/// What the failures of a pass are remembered by.
const THE_NETWORK: &str = "network";

type Nodes = Vec<Arc<Node>>;

/// Settings of the route controller.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `--cluster-cidr`: it is responsible for routes within these.
    pub cluster_cidrs: Vec<IpNet>,
    /// `--route-reconciliation-period`: the shortest time between two passes.
    pub reconciliation_period: Duration,
    /// `HCLOUD_SERVER_CACHE_MAX_AGE`: how old a list of servers a write may rest on.
    pub server_cache_max_age: Duration,
    /// Multiplies waits; 1 outside of tests.
    pub time_scale: f64,
}

pub struct RouteController {
    settings: Settings,
    memory: Memory,
    /// What was planned for last.
    tried: Option<Tried>,
    compared: Option<Instant>,
    passed: Option<Instant>,
    /// Before that, what was read of the network is older than what was written to it.
    last_write: Option<Instant>,
    /// Since when nodes wait for their routes, by UID.
    waiting: HashMap<String, Instant>,
    /// A node did not get its route; it may be the server's fault, which no node shows.
    is_blocked: bool,
    /// A route was deleted and its replacement could not be added: this waits for no period.
    is_torn: bool,
    backoff: Backoff,
    /// Nodes whose pods have no addresses yet.
    unassigned: Backoff,
}

/// What a pass came to, for those who print it.
#[derive(Debug, Default)]
pub struct Synced {
    pub report: Report,
    /// As it was made last.
    pub plan: Plan,
    /// Every write that was made, for programs, by object.
    pub made: Vec<(String, Value)>,
}

impl Settings {
    fn young(&self) -> Duration {
        let youngest = YOUNGEST.mul_f64(self.time_scale);
        self.server_cache_max_age.max(youngest)
    }

    fn scaled(&self, time: Duration) -> Duration {
        time.mul_f64(self.time_scale)
    }
}

impl RouteController {
    pub fn new(settings: Settings) -> RouteController {
        RouteController {
            memory: Memory::default(),
            tried: None,
            compared: None,
            passed: None,
            last_write: None,
            waiting: HashMap::new(),
            is_blocked: false,
            is_torn: false,
            backoff: Backoff::new(settings.time_scale),
            unassigned: Backoff::new(settings.time_scale),
            settings,
        }
    }

    /// What both APIs say now, and what would be done.
    pub fn evaluate(&self, apis: &Apis) -> Result<(Observed, Plan), Error> {
        let nodes = apis.nodes(LOOK_INTERVAL / 2, ReadFrom::Latest)?.value;
        let ages = Ages {
            instances: self.settings.young(),
            network: Duration::ZERO,
            urgency: Urgency::Needed,
        };
        let observed = observe::observe(apis, nodes, ages)?;
        let plan = self.plan(apis, &observed);
        Ok((observed, plan))
    }

    /// The same for who has read much already, no longer ago than that. Where a server seems to
    /// be gone, all are listed anew.
    pub fn evaluate_within(&self, apis: &Apis, max_age: Duration) -> Result<Plan, Error> {
        let nodes = apis.nodes(max_age, ReadFrom::Latest)?.value;
        let ages = Ages {
            instances: max_age,
            network: max_age,
            urgency: Urgency::Needed,
        };
        let observed = observe::observe(apis, nodes, ages)?;
        let plan = self.plan(apis, &observed);
        if !plan.needs_all_servers() {
            return Ok(plan);
        }
        let observed = observed.with_all_servers(apis)?;
        Ok(self.plan(apis, &observed))
    }

    /// One pass, whatever is due.
    pub fn sync(&mut self, apis: &Apis) -> Synced {
        let passed = match apis.provider.routes() {
            Some(routes) => self.pass(apis, routes),
            None => Passed::default(),
        };
        Synced {
            report: passed.report,
            plan: passed.plan,
            made: passed.made,
        }
    }

    /// Plans on what was read last, as far as that may do.
    fn propose_for(&self, apis: &Apis, due: &Due) -> Result<(Observed, Plan), Error> {
        let period = self.settings.scaled(COMPARE_PERIOD);
        let since_write = self.last_write.map_or(Duration::MAX, |at| at.elapsed());
        let ages = Ages {
            // The node controller refreshes the list as often: one read is enough for both.
            instances: match self.is_blocked {
                true => period / 2,
                false => period * 3 / 2,
            },
            network: match due.is_compared {
                true => (period / 2).min(since_write),
                false => since_write,
            },
            urgency: match due.is_changed {
                true => Urgency::Needed,
                false => Urgency::CanWait,
            },
        };
        let observed = observe::observe(apis, Arc::clone(&due.nodes), ages)?;
        let plan = self.plan(apis, &observed);
        Ok((observed, plan))
    }

    fn plan(&self, apis: &Apis, observed: &Observed) -> Plan {
        let lacking = self.lacking();
        let remembered = self.memory.routes();
        observed.plan(apis, &self.settings.cluster_cidrs, remembered, &lacking)
    }

    fn pass(&mut self, apis: &Apis, routes: &dyn Routes) -> Passed {
        let lacking = self.lacking();
        let pass = Pass {
            apis,
            routes,
            settings: &self.settings,
            memory: &mut self.memory,
            lacking: &lacking,
        };
        let passed = pass.run();
        self.is_torn = passed.is_torn;
        if passed.wrote {
            self.last_write = Some(Instant::now());
        }
        let nodes = &passed.plan.nodes;
        let refused = passed.refused.iter().filter_map(|(change, error)| {
            let mut nodes = nodes.iter();
            let node = nodes.find(|node| Some(&node.object.name) == change.node.as_ref())?;
            (change.change == RouteChange::Add).then_some((node, change, error))
        });
        let refused: Vec<_> = refused.collect();
        let uids = refused.iter().map(|(node, ..)| node.object.uid.as_str());
        publish_findings(apis, &passed.plan, &uids.collect());
        for (node, change, error) in refused {
            let why = format!("{}: {error}", change.tried());
            let finding = Finding::warning(Reason::FailedToCreateRoute, why);
            publish(apis, component(apis), &node.object, [finding]);
        }
        passed
    }

    /// These nodes were planned for, on this list of servers, and compared.
    fn settled(&mut self, apis: &Apis, due: &Due, servers: &[Instance], plan: &Plan, now: Instant) {
        self.tried = Some(Tried {
            nodes: due.print,
            addresses: due::addresses(&due.nodes, servers, &*apis.provider),
        });
        self.compared = Some(now);
        self.is_blocked = plan.nodes.iter().any(|node| node.obstacle.is_some());
        let held_back = plan.nodes.iter().filter(|node| node.is_held_back);
        let uids: HashSet<&String> = held_back.map(|node| &node.object.uid).collect();
        self.waiting.retain(|uid, _| uids.contains(uid));
        for uid in uids {
            self.waiting.entry(uid.clone()).or_insert(now);
        }
    }

    /// Nodes that waited at the last comparison as well.
    fn lacking(&self) -> HashSet<String> {
        let long = self.settings.scaled(COMPARE_PERIOD) / 2;
        let waiting = self.waiting.iter();
        let lacking = waiting.filter(|(_, since)| since.elapsed() >= long);
        lacking.map(|(uid, _)| uid.clone()).collect()
    }
}

/// With the changes of the plan that were made.
fn measure(plan: &Plan, done: &[Change]) {
    for state in State::ALL {
        let is_it = |row: &&Row| state_after(row, done) == Some(state);
        let count = plan.rows.iter().filter(is_it).count();
        ROUTES.set(&[state.word()], count as f64);
    }
}

/// None: there is no route any more, and none is wanted.
fn state_after(row: &Row, done: &[Change]) -> Option<State> {
    let is_done = |change: RouteChange, route: Option<Route>| {
        let mut done = done.iter();
        done.any(|one| one.change == change && Some(one.route) == route)
    };
    let is_deleted = is_done(RouteChange::Delete, row.have);
    match row.step {
        Step::Add | Step::Replace if is_done(RouteChange::Add, row.want) => Some(State::Ok),
        Step::Replace if is_deleted => Some(State::Missing),
        Step::Delete if is_deleted => None,
        _ => Some(row.state),
    }
}

/// `refused`: UIDs of nodes whose route could not be made.
fn publish_findings(apis: &Apis, plan: &Plan, refused: &HashSet<&str>) {
    let component = component(apis);
    for node in &plan.nodes {
        publish(apis, component, &node.object, node.all_findings());
        let has_failed = node
            .all_findings()
            .any(|finding| finding.reason.is_failure());
        if !has_failed && !refused.contains(node.object.uid.as_str()) {
            recovered(apis, component, &node.object);
        }
    }
    if let Some(network) = &plan.network {
        publish(apis, component, network, &plan.findings);
    }
}

/// Who stands in for another controller signs as that one does.
fn component(apis: &Apis) -> &'static str {
    match apis.provider.event_component() {
        Some(_) => EVENT_COMPONENT,
        None => NAME,
    }
}

impl Controller for RouteController {
    fn name(&self) -> &'static str {
        NAME
    }

    fn interval(&self) -> Duration {
        let look = self.settings.scaled(LOOK_INTERVAL);
        look.min(self.settings.reconciliation_period)
    }

    fn tick(&mut self, apis: &Apis, selection: &Selection) -> Report {
        let Some(routes) = apis.provider.routes() else {
            return Report::default();
        };
        if selection.is_explicit() {
            return self.sync(apis).report;
        }
        let now = Instant::now();
        let due = match self.look(apis, now) {
            Ok(Some(due)) => due,
            Ok(None) => return Report::default(),
            Err(error) => return Report::outage(error, String::new()),
        };
        self.passed = Some(now);
        let (observed, plan) = match self.propose_for(apis, &due) {
            Ok(proposed) => proposed,
            Err(error) => return Report::outage(error, String::new()),
        };
        self.memory.note(&plan, &observed.network.value);
        measure(&plan, &[]);
        let is_blocked = plan.nodes.iter().any(|node| node.obstacle.is_some());
        let is_doubtful = due.is_changed && is_blocked;
        if !plan.has_writes() && !is_doubtful {
            publish_findings(apis, &plan, &HashSet::new());
            self.settled(apis, &due, &observed.instances.value, &plan, now);
            self.backoff.succeeded(THE_NETWORK);
            let mut report = Report::default();
            sync::count(&mut report, &plan, &HashSet::new());
            return report;
        }
        let passed = self.pass(apis, routes);
        let is_done = passed.report.outage.is_none() && passed.report.unreached == 0;
        // What only an operator can fix is checked again when it is time to compare.
        let has_failed = passed
            .report
            .failures
            .iter()
            .any(|one| one.finding.is_none());
        match is_done && !has_failed {
            true => self.backoff.succeeded(THE_NETWORK),
            false => self.backoff.failed(THE_NETWORK, Instant::now()),
        }
        if let Some(servers) = passed.instances.as_ref().filter(|_| is_done) {
            self.settled(apis, &due, servers, &passed.plan, now);
        }
        if passed.plan.network.is_some() {
            measure(&passed.plan, &passed.done);
        }
        Report {
            planned: plan.changes.len(),
            ..passed.report
        }
    }

    fn propose(&self, apis: &Apis, _: &Selection) -> Result<Vec<Proposal>, Error> {
        Ok(self.evaluate(apis)?.1.proposals())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_made_is_not_counted_as_made() {
        let route = |gateway: &str| Route {
            destination: "10.244.1.0/24".parse().unwrap(),
            gateway: gateway.parse().unwrap(),
        };
        let change = |change, route| Change {
            change,
            route,
            node: None,
            why: "",
        };
        let (old, new) = (route("10.0.0.9"), route("10.0.0.2"));
        let deleted = change(RouteChange::Delete, old);
        let both = [deleted.clone(), change(RouteChange::Add, new)];
        // State and step of a row, with none, the first and both of the changes made.
        let cases = [
            (
                State::WrongGateway,
                Step::Replace,
                [
                    Some(State::WrongGateway),
                    Some(State::Missing),
                    Some(State::Ok),
                ],
            ),
            (
                State::Blackhole,
                Step::Delete,
                [Some(State::Blackhole), None, None],
            ),
            (
                State::Missing,
                Step::Add,
                [Some(State::Missing), Some(State::Missing), Some(State::Ok)],
            ),
            (State::Stale, Step::Nothing, [Some(State::Stale); 3]),
        ];
        for (state, step, expected) in cases {
            let row = Row {
                destination: new.destination,
                have: Some(old),
                want: Some(new),
                node: None,
                server: None,
                state,
                step,
            };
            let after = [&both[..0], &both[..1], &both[..]].map(|done| state_after(&row, done));
            assert_eq!(after, expected, "{state:?}");
        }
    }
}
