//! Checks of routes: what the route controller would change in the private Network, and which nodes report that the
//! network of their pods does not work.

use super::outcome::{CheckOutcome, CheckResult, Gap, need, or_ok, reported};
use super::view::DoctorView;
use super::{cluster, nodes};
use crate::controllers::NETWORK_UNAVAILABLE;
use crate::controllers::node::{self, ServerMatch};
use crate::controllers::route::{RoutePlan, RouteStep, State};
use crate::provider::Severity;
use crate::provider::variables::HCLOUD_NETWORK_ROUTES_ENABLED;
use std::collections::HashSet;
use std::iter;

pub(super) fn routes(view: &DoctorView) -> CheckResult {
    let plan = view.routes.as_ref()?;
    nodes::need_project(view)?;
    if cluster::is_another_at_work(view) {
        let why = "not checked, because another cloud-controller-manager may manage the routes: see the check \"other-ccm\"";
        return Err(Gap::NotHere(why.into()));
    }
    let mut outcomes: Vec<CheckOutcome> = blocked(view, plan).collect();
    let network = iter::once(("network", &plan.object, &plan.findings));
    // A finding is a fact or a problem that the plan reports. All findings about nodes report the same problem: a range
    // of the node's pods is not within `--cluster-cidr`.
    let nodes = plan.nodes.iter().map(|node| ("node", &node.object, &node.findings));
    for (kind, object, findings) in network.chain(nodes) {
        let warnings = findings.iter().filter(|finding| finding.severity == Severity::Warning);
        outcomes.extend(warnings.map(|finding| {
            reported(CheckOutcome::warn, finding, "ccm route list").on(kind, &object.name)
        }));
    }
    outcomes.extend(without_pod_cidr(view));
    outcomes.extend(to_change(plan));
    or_ok(outcomes, in_order(plan))
}

fn in_order(plan: &RoutePlan) -> String {
    let count = |state| plan.rows.iter().filter(|row| row.state == state).count();
    let mut parts = vec![match count(State::Ok) {
        0 => "no node needs a route".to_owned(),
        1 => "1 route, as it should be".to_owned(),
        ok => format!("{ok} routes, each as it should be"),
    }];
    let unchanged = [
        (State::LeftAlone, "a node whose server or pod CIDR is not known may need them"),
        (State::NotOurs, "they are outside of --cluster-cidr"),
    ];
    for (state, why) in unchanged {
        match count(state) {
            0 => {}
            count => parts.push(format!("other routes left unchanged: {count}, because {why}")),
        }
    }
    parts.join("; ")
}

/// Reports the nodes for which the route controller can't make a route. The plan of such a node contains the reason.
/// Nodes whose server does not exist are left out, because the check `nodes` reports them.
fn blocked<'a>(
    view: &'a DoctorView,
    plan: &'a RoutePlan,
) -> impl Iterator<Item = CheckOutcome> + 'a {
    let gone =
        view.nodes.iter().flatten().filter(|plan| matches!(plan.server, ServerMatch::Gone(_)));
    let gone: HashSet<&str> = gone.map(|plan| plan.object.name.as_str()).collect();
    plan.nodes.iter().filter_map(move |node| {
        let name = node.object.name.as_str();
        let why = node.obstacle.as_ref().filter(|_| !gone.contains(name))?;
        Some(reported(CheckOutcome::fail, why, "ccm route list").on("node", name))
    })
}

/// Reports initialised nodes on cloud servers that have no `spec.podCIDR`, so that no route can lead to their pods.
/// Nodes on dedicated servers never get routes, so they are left out.
fn without_pod_cidr<'a>(view: &'a DoctorView) -> impl Iterator<Item = CheckOutcome> + 'a {
    let without = |plan: &&node::NodePlan| {
        matches!(&plan.server, ServerMatch::Matched(server, _) if server.id.cloud().is_some())
            && !node::is_uninitialized(&plan.node)
            && plan.node.spec.pod_cidrs.is_empty()
    };
    view.nodes.iter().flatten().filter(without).map(|plan| {
        let outcome = CheckOutcome::warn(
            "the node has no spec.podCIDR, so no route leads to its pods",
            format!(
                "start kube-controller-manager with --allocate-node-cidrs=true and --cluster-cidr; if the CNI itself \
                 assigns the addresses of pods, set {HCLOUD_NETWORK_ROUTES_ENABLED}=false"
            ),
        );
        outcome.on("node", &plan.object.name)
    })
}

/// Reports the routes that the next run of the route controller will add, change or delete. Also reports unneeded
/// routes that the controller does not delete, because it is not certain that the Network belongs to this cluster.
fn to_change(plan: &RoutePlan) -> impl Iterator<Item = CheckOutcome> + '_ {
    plan.rows.iter().filter_map(|row| {
        let state = row.state.name();
        let state = match (&row.have, &row.node) {
            (Some(route), _) => format!("{state}: the route leads to {}", route.gateway),
            (None, Some(node)) => format!("{state}: the route for node {node}"),
            (None, None) => state.to_owned(),
        };
        let outcome = match (row.step, row.state) {
            (RouteStep::Add | RouteStep::Delete | RouteStep::Replace, _) => CheckOutcome::warn(
                state,
                "the daemon corrects this within five minutes, if it runs (see the check \"lease\"); ccm route list \
                 shows each route, and ccm route sync corrects the routes now",
            ),
            (RouteStep::Nothing, State::Blackhole | State::Unwanted) => CheckOutcome::warn(
                format!(
                    "{state}. ccm does not delete the route, because the Network may belong to another cluster"
                ),
                "the daemon deletes the route as soon as ccm can make a route to a node of this cluster, because such a \
                 route proves that the Network belongs to this cluster",
            ),
            _ => return None,
        };
        Some(outcome.on("route", &row.destination.to_string()))
    })
}

/// Reports nodes with the condition `NetworkUnavailable`, which means that their pods can't be reached. The scheduler
/// starts no new pods on such nodes.
pub(super) fn pod_network(view: &DoctorView) -> CheckResult {
    let nodes = need(&view.nodes, "nodes")?;
    let cut_off =
        nodes.iter().filter(|plan| plan.node.condition(NETWORK_UNAVAILABLE) == Some("True"));
    let is_checked = routes(view).is_ok();
    let remedy = |name: &str| match &view.routes {
        Ok(plan) if is_checked && is_fixed_by_daemon(plan, name) => {
            "the daemon sets the condition to False within five minutes, if it runs (see the check \"lease\"), because \
             nothing is wrong with the node's routes; ccm route sync sets it now"
        }
        Ok(_) if is_checked => {
            "fix what the check \"routes\" reports about this node. If the check reports nothing about it, another \
             program sets the condition: check the CNI"
        }
        _ => {
            "with these settings ccm does not set this condition: check the CNI, or the program that \
             manages the pods' network"
        }
    };
    let found = format!("{NETWORK_UNAVAILABLE}=True, so Kubernetes starts no new pods on the node");
    let outcome = |plan: &node::NodePlan| {
        let name = &plan.object.name;
        CheckOutcome::warn(found.as_str(), remedy(name)).on("node", name)
    };
    or_ok(cut_off.map(outcome), format!("no node has {NETWORK_UNAVAILABLE}=True"))
}

/// Whether the next run of the route controller sets the condition `NetworkUnavailable` of this node to false.
fn is_fixed_by_daemon(plan: &RoutePlan, name: &str) -> bool {
    plan.nodes.iter().any(|node| node.object.name == name && node.unavailable == Some(false))
}
