//! The route controller makes a route in the private Network for the pods of each node, so that packets reach them.
//!
//! | file | its one job |
//! |---|---|
//! | `observe` | reads both APIs, remembers earlier comparisons, and decides when to compare |
//! | `plan` | decides which node wants which routes and what should be done, as a pure function |
//! | `types` | holds the types of a plan and its words, and decides nothing |
//! | `sync` | reads and plans again, makes that plan by the executor, and sets the nodes' conditions |
//!
//! The network may have routes of others, and the kubeconfig may be another cluster's: see `plan` for what keeps
//! a route.

mod observe;
mod plan;
mod sync;
mod types;

pub use observe::{RouteController, RouteSettings};
pub use plan::{Inputs, plan};
pub use sync::Synced;
pub use types::{NAME, NodeRoutePlan, RoutePlan, RouteRow, RouteStep, State};

use crate::cache::{Apis, CacheError, ReadFrom};
use crate::controllers::report::{Report, component, publish, recovered};
use crate::controllers::{Controller, Proposal, Selection};
use crate::metrics::ROUTES;
use crate::provider::{Network, Urgency, clock};
use observe::{Ages, NETWORK, POLL_INTERVAL};
use std::time::Duration;
use sync::RouteSync;

/// The source of the events, which is the one that upstream's events have.
const EVENT_COMPONENT: &str = "route_controller";

impl Controller for RouteController {
    fn name(&self) -> &'static str {
        NAME
    }

    fn interval(&self) -> Duration {
        POLL_INTERVAL.min(self.settings.reconciliation_period)
    }

    fn tick(&mut self, apis: &Apis, selection: &Selection) -> Report {
        if selection.is_explicit() {
            return self.sync(apis).report;
        }
        self.compare(apis).unwrap_or_else(|error| Report::outage(error, String::new()))
    }

    fn propose(&self, apis: &Apis, _: &Selection) -> Result<Vec<Proposal>, CacheError> {
        Ok(self.evaluate(apis, POLL_INTERVAL / 2)?.proposals())
    }
}

impl RouteController {
    /// Returns the plan from reads that are at most `max_age` old. All servers are listed again when a
    /// server seems to be deleted.
    pub fn evaluate(&self, apis: &Apis, max_age: Duration) -> Result<RoutePlan, CacheError> {
        Ok(self.observe_all(apis, max_age)?.plan)
    }

    /// When the cloud does not answer, returns the routes that nodes need. Nothing is planned.
    pub fn by_kubernetes(&self, apis: &Apis) -> Result<RoutePlan, CacheError> {
        let nodes = apis.nodes.whole(Duration::ZERO, ReadFrom::Latest)?.value;
        let network = Network { routes_at_most: usize::MAX, ..Network::default() };
        let mut plan = self.plan(apis, &nodes, &[], &network);
        plan.forget_changes();
        Ok(plan)
    }

    /// When Kubernetes does not answer, returns the routes of the Network. Nothing is planned.
    pub fn by_cloud(&self, apis: &Apis) -> Result<RoutePlan, CacheError> {
        let ages =
            Ages { network: Duration::ZERO, instances: Duration::ZERO, urgency: Urgency::Asked };
        let mut plan = self.observe(apis, &[], &ages)?.plan;
        plan.forget_changes();
        plan.rows.iter_mut().for_each(|row| row.node = None);
        Ok(plan)
    }

    /// Brings all routes in order, whatever is due.
    pub fn sync(&mut self, apis: &Apis) -> Synced {
        let Some(cloud) = apis.provider.routes() else {
            return Synced::default();
        };
        let synced = RouteSync::new(apis, self).run(cloud);
        self.schedule.last_write = Some(clock::now());
        report_findings(apis, &synced);
        synced
    }

    /// Compares the nodes that are due, using the data that were read last when these are young enough. When there is
    /// something to write, the routes are synced with a new read of both APIs.
    fn compare(&mut self, apis: &Apis) -> Result<Report, CacheError> {
        let Some((nodes, ages)) = self.due(apis)? else {
            return Ok(Report::default());
        };
        let observed = self.observe(apis, &nodes, &ages)?;
        let plan = &observed.plan;
        let planned = plan.changes.len();
        // The server of a new node may be missing in an older list.
        let is_changed = ages.urgency == Urgency::Changed;
        let has_writes = plan.has_writes() || plan.nodes.iter().any(NodeRoutePlan::has_writes);
        let needs_sync = has_writes || (is_changed && plan.is_blocked());
        self.memory.note_routes(plan, &observed.network.value);
        let mut synced = Synced::nothing(observed);
        if needs_sync {
            measure(&synced);
            synced = self.sync(apis);
        } else {
            report_findings(apis, &synced);
        }
        let report = synced.report;
        let is_done = report.outage.is_none() && report.is_complete();
        // A failure with a finding can be fixed only by an operator, so the next try is made in the
        // next regular comparison.
        let has_failed = report.failures.iter().any(|failure| failure.finding.is_none());
        if is_done {
            self.compared(apis, &nodes, &synced.instances);
            self.memory.note_doubt(&synced.plan);
        }
        self.is_interrupted = synced.is_interrupted;
        self.schedule.backoff.ended(NETWORK, has_failed || !is_done);
        Ok(Report { planned, ..report })
    }
}

fn report_findings(apis: &Apis, synced: &Synced) {
    let plan = &synced.plan;
    let component = component(apis, EVENT_COMPONENT, NAME);
    for node in &plan.nodes {
        publish(apis, component, &node.object, node.all_findings());
        if !node.all_findings().any(|finding| finding.reason.is_failure()) {
            recovered(apis, component, &node.object);
        }
    }
    publish(apis, component, &plan.object, &plan.findings);
    // There is no plan, so nothing is known about the Network, and the metrics keep their values.
    if !plan.object.uid.is_empty() {
        measure(synced);
    }
}

fn measure(synced: &Synced) {
    for state in State::ALL.iter().copied() {
        let states = synced.plan.rows.iter().filter_map(|row| row.state_with(&synced.routes));
        let count = states.filter(|other| *other == state).count();
        ROUTES.set(&[&state.label()], count as f64);
    }
}
