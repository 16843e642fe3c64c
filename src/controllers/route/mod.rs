//! The route controller adds a route for each node to the private Network of Hetzner Cloud. Packets to the node's pods
//! then arrive at the node's server.
//!
//! | file | its one job |
//! |---|---|
//! | `observe` | reads Kubernetes and the cloud, remembers routes, and decides when they are compared with the nodes |
//! | `plan` | decides which routes each node needs and which changes must be made, as a pure function |
//! | `types` | holds the types of a plan and its texts, and decides nothing |
//! | `sync` | makes a new plan from newer data, makes the changes of this plan, and sets the conditions of nodes |
//!
//! Other clusters or programs may need routes in the same Network, or the kubeconfig may belong to another cluster by
//! mistake. Therefore `plan` has rules by which it keeps routes that may be needed.

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
use crate::kube::KubeNode;
use crate::metrics::{ROUTE_SYNCS, ROUTES};
use crate::provider::{Network, Urgency, clock};
use observe::{Ages, NETWORK, POLL_INTERVAL};
use std::sync::Arc;
use std::time::Duration;
use sync::RouteSync;

/// The component that the events name as their source. The route controller of Kubernetes uses the same name.
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
    /// Returns the plan for the routes, made from API answers that are at most `max_age` old. When the plan deletes a
    /// route, or when a needed route can't be made, the servers are listed again and a new plan is made.
    pub fn evaluate(&self, apis: &Apis, max_age: Duration) -> Result<RoutePlan, CacheError> {
        Ok(self.observe_all(apis, max_age)?.plan)
    }

    /// Returns the routes that the nodes need. This is used when the cloud does not answer, so the cloud is not asked.
    /// The result contains no changes.
    pub fn by_kubernetes(&self, apis: &Apis) -> Result<RoutePlan, CacheError> {
        let nodes = apis.nodes.whole(Duration::ZERO, ReadFrom::Latest)?.value;
        let network = Network { routes_at_most: usize::MAX, ..Network::default() };
        let mut plan = self.plan(apis, &nodes, &[], &network);
        plan.forget_changes();
        Ok(plan)
    }

    /// Returns the routes of the Network, as a plan without changes. This is used when the Kubernetes API does not
    /// answer, so that it is not known which routes the nodes need.
    pub fn by_cloud(&self, apis: &Apis) -> Result<RoutePlan, CacheError> {
        let ages =
            Ages { network: Duration::ZERO, instances: Duration::ZERO, urgency: Urgency::Asked };
        let mut plan = self.observe(apis, &[], &ages)?.plan;
        plan.forget_changes();
        plan.rows.iter_mut().for_each(|row| row.node = None);
        Ok(plan)
    }

    /// Compares the routes of the Network with the routes that the nodes need, and makes all necessary changes, even if
    /// no comparison is due.
    pub fn sync(&mut self, apis: &Apis) -> Synced {
        let Some(cloud) = apis.provider.routes() else {
            return Synced::default();
        };
        let synced = RouteSync::new(apis, self).run(cloud);
        self.schedule.last_write = Some(clock::now());
        report_findings(apis, &synced);
        synced
    }

    /// If a comparison is due, compares the routes of the Network with the routes that the nodes need. The data come
    /// from the cache if they are young enough. When something must be written, the APIs of Kubernetes and the cloud
    /// are read again and `sync` makes the changes.
    fn compare(&mut self, apis: &Apis) -> Result<Report, CacheError> {
        let Some((nodes, ages)) = self.due(apis)? else {
            return Ok(Report::default());
        };
        let synced = self.compare_now(apis, &nodes, &ages);
        let is_error = |report: &Report| report.outage.is_some() || !report.failures.is_empty();
        let outcome = match &synced {
            Ok(synced) if synced.has_changed_routes && !is_error(&synced.report) => "changed",
            Ok(synced) if !is_error(&synced.report) => "noop",
            _ => "error",
        };
        let is_changed = ages.urgency == Urgency::Changed;
        ROUTE_SYNCS.count(&[outcome, if is_changed { "node_change" } else { "periodic" }]);
        Ok(synced?.report)
    }

    /// Compares the routes of the Network with the routes that these nodes need, and makes the necessary changes.
    fn compare_now(
        &mut self,
        apis: &Apis,
        nodes: &[Arc<KubeNode>],
        ages: &Ages,
    ) -> Result<Synced, CacheError> {
        let observed = self.observe(apis, nodes, ages)?;
        let plan = &observed.plan;
        let planned = plan.changes.len();
        // When a node has changed and a route that it needs can't be made, a sync is needed even if there is nothing to
        // write yet. The sync reads a newer list of servers, which may contain the node's server.
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
        let report = &mut synced.report;
        let is_done = report.outage.is_none() && report.is_complete();
        // A failure with a finding (a message for the operator) can be fixed only by the operator. The controller tries
        // again only when the routes are next compared with the nodes at the regular interval.
        let has_failed = report.failures.iter().any(|failure| failure.finding.is_none());
        if is_done {
            self.compared(apis, nodes, &synced.instances);
            self.memory.note_doubt(&synced.plan);
        }
        self.is_interrupted = synced.is_interrupted;
        self.schedule.backoff.ended(NETWORK, has_failed || !is_done);
        report.planned = planned;
        Ok(synced)
    }
}

fn report_findings(apis: &Apis, synced: &Synced) {
    let plan = &synced.plan;
    let component = component(apis, EVENT_COMPONENT, NAME);
    for node in &plan.nodes {
        publish(apis, node.object.seen_by(component), node.all_findings());
        if !node.all_findings().any(|finding| finding.reason.is_failure()) {
            recovered(apis, node.object.seen_by(component));
        }
    }
    publish(apis, plan.object.seen_by(component), &plan.findings);
    // The UID of the Network is empty in the plan when nothing could be read. The state of the routes is then not
    // known, so the metrics keep their previous values.
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
