//! Nodes and their servers.

use super::observe::View;
use super::outcome::{Gap, Outcome, Verdict, about, counted, need, reported};
use crate::controllers::node::{NodePlan, Server, is_uninitialized};
use crate::provider::Reason;

/// Nodes that we have to do with, and how many of them have their server in this project.
fn own(nodes: &[NodePlan]) -> (usize, usize) {
    let is_own = |plan: &&NodePlan| !matches!(plan.server, Server::Foreign | Server::Unknown);
    let is_matched = |plan: &&NodePlan| matches!(plan.server, Server::Matched(..));
    let own = nodes.iter().filter(is_own).count();
    (own, nodes.iter().filter(is_matched).count())
}

/// The names of those of which that is true.
fn such(nodes: &[NodePlan], is_such: impl Fn(&NodePlan) -> bool) -> impl Iterator<Item = String> {
    let such = nodes.iter().filter(move |plan| is_such(plan));
    such.map(|plan| plan.object.name.clone())
}

fn has(plan: &NodePlan, reason: Reason) -> bool {
    plan.all_findings().any(|finding| finding.reason == reason)
}

pub(super) fn project(view: &View) -> Verdict {
    let nodes = need(&view.nodes, "nodes")?;
    let (own, matched) = own(nodes);
    let count = counted(own, "node");
    Ok(match (own, matched) {
        (0, _) => Outcome::skipped("no node is ours: there is nothing to compare the project with"),
        (_, 0) => Outcome::fail(
            format!(
                "of {count} none has its server in the token's project: it is another project's token, or another \
                 cluster"
            ),
            "use a token of the project that the servers are in, or the right --context; if both are right and \
             the servers were made anew under their names: kubectl delete node NAME, and each kubelet \
             registers again",
        ),
        _ => Outcome::ok(format!(
            "{matched} of {count} with its server in the token's project"
        )),
    })
}

/// Where no node of ours has its server in the project of the token, the check `project` says all there is to say.
pub(super) fn need_project(view: &View) -> Result<(), Gap> {
    match view.nodes.as_ref().map(|nodes| own(nodes)) {
        Ok((1.., 0)) => Err(Gap::NotHere(
            "of another project there is nothing to say: see project".into(),
        )),
        _ => Ok(()),
    }
}

pub(super) fn provider_ids(view: &View) -> Verdict {
    let nodes = need(&view.nodes, "nodes")?;
    let prefix = view.settings.cloud_provider.value.name();
    let foreign = nodes.iter().filter(|plan| plan.server == Server::Foreign);
    let count = foreign.clone().count();
    let ids = foreign.map(|plan| format!("{} ({})", plan.object.name, plan.node.spec.provider_id));
    let is_hcloud = |plan: &NodePlan| plan.node.spec.provider_id.starts_with("hcloud://");
    let outcome = about(ids, |ids| {
        let found =
            format!("another provider's, and left alone (ours begin with {prefix}://): {ids}");
        if prefix != "hcloud" && nodes.iter().any(is_hcloud) {
            let remedy = "hcloud:// is hcloud-cloud-controller-manager's: run ccm with --cloud-provider=hcloud; \
                          a provider ID can't be changed";
            return Outcome::fail(found, remedy);
        }
        let remedy = "check --cloud-provider; a provider ID can't be changed: if they run on this project's \
                      servers, drain them, delete the nodes and let them join anew; else it is as it should be";
        match count == nodes.len() {
            true => Outcome::fail(found, remedy),
            false => Outcome::warn(found, remedy),
        }
    });
    Ok(outcome.unwrap_or_else(|| Outcome::ok("none is another provider's")))
}

pub(super) fn kubelets(view: &View) -> Verdict {
    let nodes = need(&view.nodes, "nodes")?;
    let wrong = such(nodes, |plan| has(plan, Reason::NotExternal));
    let wrong = about(wrong, |names| {
        Outcome::fail(
            format!(
                "without provider ID and without uninitialized taint: {names}; a kubelet without \
                 --cloud-provider=external makes such nodes, and they never become targets"
            ),
            "give the kubelet --cloud-provider=external; drain the node, delete it and let it join anew",
        )
    });
    Ok(wrong.unwrap_or_else(|| Outcome::ok("each runs with --cloud-provider=external")))
}

pub(super) fn servers(view: &View) -> Verdict {
    let nodes = view.nodes.as_ref()?;
    if matches!(own(nodes), (1.., 0)) {
        return Err(Gap::Needs("project"));
    }
    // Those that can't be initialised, or not be kept right.
    let blocked = nodes.iter().filter_map(|plan| {
        let mut findings = plan.all_findings();
        let replaced = findings.find(|finding| finding.reason == Reason::ServerReplaced);
        let finding = replaced.or(plan.obstacle.as_ref())?;
        Some((plan.object.name.clone(), finding))
    });
    let more = "ccm node inspect NAME shows what was tried";
    let outcome = Outcome::of_all(reported(Outcome::fail, blocked, more))
        .or_else(|| without_server(nodes))
        .or_else(|| new(nodes));
    Ok(outcome.unwrap_or_else(|| {
        let count = counted(own(nodes).0, "node");
        Outcome::ok(format!("{count}, none without its server"))
    }))
}

fn without_server(nodes: &[NodePlan]) -> Option<Outcome> {
    let is_without = |plan: &NodePlan| {
        let mut reasons = plan.findings.iter().map(|finding| finding.reason);
        matches!(plan.server, Server::Gone(_) | Server::Unknown)
            || reasons.any(|reason| {
                [Reason::ServerNotFound, Reason::ServerClaimedTwice].contains(&reason)
            })
    };
    about(such(nodes, is_without), |names| {
        Outcome::warn(
            format!("without a server in this project, or without one that is known: {names}"),
            "ccm node inspect NAME says what it is; the daemon deletes a node when its server is \
             surely gone and it is not ready",
        )
    })
}

fn new(nodes: &[NodePlan]) -> Option<Outcome> {
    let is_new = |plan: &NodePlan| {
        matches!(plan.server, Server::Matched(..)) && is_uninitialized(&plan.node)
    };
    about(such(nodes, is_new), |names| {
        Outcome::warn(
            format!("waiting to be initialised: {names}"),
            "the daemon does that within seconds: see lease whether one runs; ccm node sync does \
             it now",
        )
    })
}
