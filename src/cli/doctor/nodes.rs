//! Nodes and their servers.

use super::check::{Outcome, counted, some};
use super::view::View;
use crate::controllers::node::{NodePlan, Server, is_uninitialised};
use crate::provider::{Finding, Reason};

/// Nodes that we have to do with, and how many of them have their server in this project.
fn own(nodes: &[NodePlan]) -> (usize, usize) {
    let is_own = |plan: &&NodePlan| !matches!(plan.server, Server::Foreign | Server::Unknown);
    let is_matched = |plan: &&NodePlan| matches!(plan.server, Server::Matched(..));
    let own = nodes.iter().filter(is_own).count();
    (own, nodes.iter().filter(is_matched).count())
}

fn names<'a>(plans: impl Iterator<Item = &'a NodePlan>) -> Vec<String> {
    plans.map(|plan| plan.object.name.clone()).collect()
}

fn has(plan: &NodePlan, reason: Reason) -> bool {
    plan.all_findings().any(|finding| finding.reason == reason)
}

pub(super) fn project(view: &View) -> Outcome {
    let nodes = match &view.nodes {
        Ok(nodes) => nodes,
        Err(gap) => return Outcome::of_gap(&gap.or_needs("nodes"), ""),
    };
    match own(nodes) {
        (0, _) => Outcome::skipped("no node is ours: there is nothing to compare the project with"),
        (own, 0) => Outcome::fail(
            format!(
                "of {} none has its server in the token's project: it is another \
                 project's token, or another cluster",
                counted(own, "node")
            ),
            match nodes.iter().any(is_replaced) {
                true => {
                    "use a token of the project that the servers are in, or the right --context; if both are \
                     right and the servers were made anew under their names: kubectl delete node NAME, and \
                     each kubelet registers again"
                }
                false => {
                    "use a token of the project that the servers are in, or the right --context"
                }
            },
        ),
        (own, matched) => Outcome::ok(format!(
            "{matched} of {} with its server in the token's project",
            counted(own, "node")
        )),
    }
}

/// No node of ours has its server in the project of the token.
pub(super) fn are_of_another_project(view: &View) -> bool {
    let seen = view.nodes.as_ref().ok().map(|nodes| own(nodes));
    seen.is_some_and(|(own, matched)| own > 0 && matched == 0)
}

pub(super) fn provider_ids(view: &View) -> Outcome {
    let nodes = match &view.nodes {
        Ok(nodes) => nodes,
        Err(gap) => return Outcome::of_gap(&gap.or_needs("nodes"), ""),
    };
    let foreign = nodes.iter().filter(|plan| plan.server == Server::Foreign);
    let ids: Vec<String> = foreign
        .map(|plan| format!("{} ({})", plan.object.name, plan.node.spec.provider_id))
        .collect();
    let found = format!(
        "another provider's, and left alone (ours begin with {}://): {}",
        view.prefix,
        some(&ids)
    );
    let is_hcloud = |plan: &NodePlan| plan.node.spec.provider_id.starts_with("hcloud://");
    match ids.len() {
        0 => Outcome::ok("none is another provider's"),
        _ if view.prefix != "hcloud" && nodes.iter().any(is_hcloud) => Outcome::fail(
            found,
            "hcloud:// is hcloud-cloud-controller-manager's: run ccm with --cloud-provider=hcloud; \
             a provider ID can't be changed",
        ),
        all if all == nodes.len() => Outcome::fail(
            found,
            "check --cloud-provider; a provider ID can't be changed, so those nodes have to \
             join anew",
        ),
        _ => Outcome::warn(
            found,
            "if they run on this project's servers, drain them, delete the nodes and let them join \
             anew; else it is as it should be",
        ),
    }
}

pub(super) fn kubelets(view: &View) -> Outcome {
    let nodes = match &view.nodes {
        Ok(nodes) => nodes,
        Err(gap) => return Outcome::of_gap(&gap.or_needs("nodes"), ""),
    };
    let wrong = names(nodes.iter().filter(|plan| has(plan, Reason::NotExternal)));
    match wrong.as_slice() {
        [] => Outcome::ok("each runs with --cloud-provider=external"),
        wrong => Outcome::fail(
            format!(
                "without provider ID and without uninitialized taint: {}; a kubelet without \
                 --cloud-provider=external makes such nodes, and they never become targets",
                some(wrong)
            ),
            "give the kubelet --cloud-provider=external; drain the node, delete it and let it join anew",
        ),
    }
}

pub(super) fn servers(view: &View) -> Outcome {
    let nodes = match &view.nodes {
        Ok(nodes) => nodes,
        Err(gap) => return Outcome::of_gap(gap, "check the API server's own health"),
    };
    if matches!(own(nodes), (1.., 0)) {
        return Outcome::skipped("not checked: see project");
    }
    let troubles = [replaced(nodes), stuck(nodes)];
    let troubles: Vec<Outcome> = troubles.into_iter().flatten().collect();
    if let Some(outcome) = Outcome::of_all(troubles) {
        return outcome;
    }
    let odd = |plan: &&NodePlan| {
        let is_of_server = |finding: &&Finding| {
            matches!(
                finding.reason,
                Reason::ServerNotFound | Reason::ServerClaimedTwice
            )
        };
        matches!(plan.server, Server::Gone(_) | Server::Unknown)
            || plan.findings.iter().any(|finding| is_of_server(&finding))
    };
    let odd = names(nodes.iter().filter(odd));
    if !odd.is_empty() {
        return Outcome::warn(
            format!(
                "without a server in this project, or without one that is known: {}",
                some(&odd)
            ),
            "ccm node inspect NAME says what it is; the daemon deletes a node when its server is \
             surely gone and it is not ready",
        );
    }
    let is_new = |plan: &&NodePlan| {
        matches!(plan.server, Server::Matched(..)) && is_uninitialised(&plan.node)
    };
    let new = names(nodes.iter().filter(is_new));
    match new.as_slice() {
        [] => Outcome::ok(format!(
            "{}, none without its server",
            counted(own(nodes).0, "node")
        )),
        new => Outcome::warn(
            format!("waiting to be initialised: {}", some(new)),
            "the daemon does that within seconds: see lease whether one runs; ccm node sync does \
             it now",
        ),
    }
}

fn is_replaced(plan: &NodePlan) -> bool {
    has(plan, Reason::ServerReplaced)
}

/// Nodes that are tied for good to a server that does not exist, while another one has their name.
fn replaced(nodes: &[NodePlan]) -> Option<Outcome> {
    let replaced = names(nodes.iter().filter(|plan| is_replaced(plan)));
    (!replaced.is_empty()).then(|| {
        Outcome::fail(
            format!(
                "with the provider ID of a server that does not exist, while another server has the node's \
                 name: {}",
                some(&replaced)
            ),
            "kubectl delete node NAME: its kubelet registers again (restart the kubelet if it does not), and \
             the node gets the provider ID of the server that is there; ccm node inspect NAME shows both",
        )
    })
}

/// Nodes that can't be initialised, or not be kept right.
fn stuck(nodes: &[NodePlan]) -> Option<Outcome> {
    let stuck = nodes.iter().filter(|plan| !is_replaced(plan));
    let stuck: Vec<String> = stuck
        .filter_map(|plan| plan.obstacle.as_ref().map(|why| named(plan, why)))
        .collect();
    (!stuck.is_empty()).then(|| {
        Outcome::fail(
            some(&stuck),
            "ccm node inspect NAME shows what was tried; a server must have the name of its node, \
             or an address that the node reports",
        )
    })
}

fn named(plan: &NodePlan, why: &Finding) -> String {
    format!("{}: {}", plan.object.name, why.message)
}
