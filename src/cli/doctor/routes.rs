//! The private Network's routes, as the route controller sees them, and what nodes say of their
//! pods' network.

use super::observe::View;
use super::outcome::{Outcome, Status, Verdict, about, need, reported, some};
use super::{cluster, nodes};
use crate::controllers::node::{self, Server};
use crate::controllers::route::{NETWORK_UNAVAILABLE, Plan, Row, State, Step};
use crate::provider::{Finding, Severity};

pub(super) fn routes(view: &View) -> Verdict {
    let plan = view.routes.as_ref()?;
    nodes::need_project(view)?;
    if cluster::is_another_at_work(view) {
        let why = "another controller may keep them as it wants: see other-ccm";
        return Ok(Outcome::skipped(why));
    }
    let more = "ccm route list shows each route, and when it is fixed, ccm route sync makes it now";
    let mut troubles = reported(Outcome::fail, blocked(view, plan), more);
    let network = plan.network.as_ref();
    let network = network.map_or_else(String::new, |network| network.for_people());
    let of_network = plan.findings.iter().map(|one| (network.clone(), one));
    // Those whose pods have addresses outside --cluster-cidr.
    let of_nodes = plan.nodes.iter().flat_map(|node| {
        let findings = node.findings.iter();
        findings.map(|one| (node.object.name.clone(), one))
    });
    let findings = of_network.chain(of_nodes);
    let warnings = findings.filter(|(_, one)| one.severity == Severity::Warning);
    troubles.extend(reported(
        Outcome::warn,
        warnings,
        "ccm route list shows each route",
    ));
    troubles.extend(without_pod_cidr(view));
    troubles.extend(pending(plan));
    troubles.extend(left(plan));
    Ok(Outcome::of_all(troubles).unwrap_or_else(|| in_order(plan)))
}

fn in_order(plan: &Plan) -> Outcome {
    let count = |state| plan.rows.iter().filter(|row| row.state == state).count();
    let mut parts = vec![match count(State::Ok) {
        0 => "no node needs a route".to_owned(),
        1 => "1 route, as it should be".to_owned(),
        ok => format!("{ok} routes, each as it should be"),
    }];
    for state in [State::LeftAlone, State::NotOurs] {
        match count(state) {
            0 => {}
            count => parts.push(format!("{count} {}", state.word())),
        }
    }
    Outcome::ok(parts.join(", "))
}

/// Nodes that get no route, whatever the daemon does. The check `nodes` reports those whose server does not exist.
fn blocked<'a>(view: &'a View, plan: &'a Plan) -> impl Iterator<Item = (String, &'a Finding)> {
    let is_gone = |name: &str| {
        let mut nodes = view.nodes.iter().flatten();
        nodes.any(|one| one.object.name == name && matches!(one.server, Server::Gone(_)))
    };
    let nodes = plan.nodes.iter();
    let nodes = nodes.filter(move |node| !is_gone(&node.object.name));
    nodes.filter_map(|node| Some((node.object.name.clone(), node.obstacle.as_ref()?)))
}

/// Matched nodes without spec.podCIDR.
fn without_pod_cidr(view: &View) -> Option<Outcome> {
    let without = |plan: &&node::NodePlan| {
        matches!(plan.server, Server::Matched(..))
            && !node::is_uninitialized(&plan.node)
            && plan.node.spec.pod_cidrs.is_empty()
    };
    let nodes = view.nodes.iter().flatten().filter(without);
    about(nodes.map(|plan| plan.object.name.clone()), |names| {
        Outcome::warn(
            format!("without spec.podCIDR, so that no route leads to their pods: {names}"),
            "start kube-controller-manager with --allocate-node-cidrs=true and --cluster-cidr; \
             where the CNI hands out addresses itself, HCLOUD_NETWORK_ROUTES_ENABLED=false",
        )
    })
}

/// What the next tick changes.
fn pending(plan: &Plan) -> Option<Outcome> {
    let is_pending = |row: &&Row| matches!(row.step, Step::Add | Step::Delete | Step::Replace);
    let pending = by_state(plan.rows.iter().filter(is_pending))?;
    Some(Outcome::warn(
        pending,
        "the daemon does that within five minutes: see lease whether one runs; ccm route list \
         shows each, and ccm route sync does it now",
    ))
}

/// What would be deleted, if it were sure that the Network is this cluster's.
fn left(plan: &Plan) -> Option<Outcome> {
    let is_left = |row: &&Row| {
        let is_wrong = matches!(row.state, State::Blackhole | State::Unwanted);
        is_wrong && row.step == Step::Nothing
    };
    let left = by_state(plan.rows.iter().filter(is_left))?;
    Some(Outcome::warn(
        format!(
            "left unchanged, because no route of a node shows that the Network is this cluster's: {left}"
        ),
        "once a node can have its route, the daemon deletes what is not needed",
    ))
}

/// `1 missing (10.244.1.0/24 of worker-1), 1 blackhole (10.244.9.0/24 via 10.0.0.9)`.
fn by_state<'a>(rows: impl Iterator<Item = &'a Row>) -> Option<String> {
    let rows: Vec<&Row> = rows.collect();
    let states = State::ALL.iter().filter_map(|state| {
        let of_it = rows.iter().filter(|row| row.state == *state);
        let names: Vec<String> = of_it.map(|row| shown(row)).collect();
        let is_any = !names.is_empty();
        is_any.then(|| format!("{} {} ({})", names.len(), state.word(), some(&names)))
    });
    let states: Vec<String> = states.collect();
    (!states.is_empty()).then(|| states.join(", "))
}

fn shown(row: &Row) -> String {
    match (&row.have, &row.node) {
        (Some(route), _) => route.to_string(),
        (None, Some(node)) => format!("{} of {node}", row.destination),
        (None, None) => row.destination.to_string(),
    }
}

/// Where nothing new is scheduled, since the node says that its pods can't be reached.
pub(super) fn pod_network(view: &View) -> Verdict {
    let nodes = need(&view.nodes, "nodes")?;
    let cut_off = nodes
        .iter()
        .filter(|plan| plan.node.condition(NETWORK_UNAVAILABLE) == Some("True"));
    let cut_off: Vec<String> = cut_off.map(|plan| plan.object.name.clone()).collect();
    let is_checked = matches!(routes(view), Ok(checked) if checked.status != Status::Skipped);
    let remedy = match &view.routes {
        Ok(plan) if is_checked && is_fixed_by_daemon(plan, &cut_off) => {
            "its routes are there or can be made: the daemon sets it right within five \
             minutes (see lease whether one runs), and ccm route sync does it now"
        }
        Ok(_) if is_checked => {
            "fix what the check routes reports of them; the condition of other nodes is set by \
             another program: check the CNI"
        }
        _ => {
            "ccm does not set it with these settings: check the CNI, or whatever else manages the \
             pods' network"
        }
    };
    let outcome = about(cut_off, |names| {
        Outcome::warn(
            format!("{NETWORK_UNAVAILABLE}=True, so that nothing new is scheduled there: {names}"),
            remedy,
        )
    });
    Ok(outcome.unwrap_or_else(|| Outcome::ok(format!("no node says {NETWORK_UNAVAILABLE}=True"))))
}

/// The next pass says otherwise of all of them.
fn is_fixed_by_daemon(plan: &Plan, names: &[String]) -> bool {
    names.iter().all(|name| {
        let mut nodes = plan.nodes.iter();
        let node = nodes.find(|node| node.object.name == *name);
        node.is_some_and(|node| node.condition() == Some(false))
    })
}
