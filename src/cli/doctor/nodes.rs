//! Nodes and their servers. What Kubernetes alone says is shown without the Cloud API, and the other way round.

use super::observe::View;
use super::outcome::{Gap, Outcome, Verdict, Verdicts, counted, need, or_ok};
use crate::controllers::lifecycle::SHUTDOWN;
use crate::controllers::node::{NodePlan, Server, is_uninitialised};
use crate::provider::{Instance, InstanceState, Reason};
use std::collections::HashSet;

/// Nodes that we have to do with, and how many of them have their server in this project.
fn own(nodes: &[NodePlan]) -> (usize, usize) {
    let is_own = |plan: &&NodePlan| !matches!(plan.server, Server::Foreign | Server::Unknown);
    let is_matched = |plan: &&NodePlan| matches!(plan.server, Server::Matched(..));
    let own = nodes.iter().filter(is_own).count();
    (own, nodes.iter().filter(is_matched).count())
}

/// An outcome for each of which that is true.
fn such(
    nodes: &[NodePlan],
    is_such: impl Fn(&NodePlan) -> bool,
    outcome: impl Fn(&NodePlan) -> Outcome,
) -> impl Iterator<Item = Outcome> {
    let such = nodes.iter().filter(move |plan| is_such(plan));
    such.map(move |plan| on(plan, outcome(plan)))
}

fn on(plan: &NodePlan, outcome: Outcome) -> Outcome {
    outcome.on("node", &plan.object.name)
}

fn has(plan: &NodePlan, reason: Reason) -> bool {
    plan.all_findings().any(|finding| finding.reason == reason)
}

/// The nodes, where the servers were read as well.
fn with_servers<'a>(view: &'a View, check: &'static str) -> Result<&'a [NodePlan], Gap> {
    need(&view.servers, "api")?;
    need(&view.nodes, check).map(Vec::as_slice)
}

pub(super) fn project(view: &View) -> Verdict {
    let nodes = with_servers(view, "nodes")?;
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

pub(super) fn provider_ids(view: &View) -> Verdicts {
    let nodes = need(&view.nodes, "nodes")?;
    let prefix = view.settings.cloud_provider.value.name();
    let is_foreign = |plan: &NodePlan| plan.server == Server::Foreign;
    let is_hcloud = |plan: &NodePlan| plan.node.spec.provider_id.starts_with("hcloud://");
    let is_profile = prefix != "hcloud" && nodes.iter().any(is_hcloud);
    let is_all = nodes.iter().all(is_foreign) || is_profile;
    let remedy = match is_profile {
        true => {
            "hcloud:// is hcloud-cloud-controller-manager's: run ccm with --cloud-provider=hcloud; a provider ID \
             can't be changed"
        }
        false => {
            "check --cloud-provider; a provider ID can't be changed: where the node runs on a server of this project, \
             drain it, delete it and let it join anew; else it is as it should be"
        }
    };
    let outcomes = such(nodes, is_foreign, |plan| {
        let id = &plan.node.spec.provider_id;
        let found = format!(
            "provider ID {id} is another provider's, and left alone (ours begin with {prefix}://)"
        );
        Outcome::bad(is_all, found, remedy)
    });
    or_ok(outcomes.collect(), || "none is another provider's".into())
}

pub(super) fn kubelets(view: &View) -> Verdicts {
    let nodes = need(&view.nodes, "nodes")?;
    let is_wrong = |plan: &NodePlan| has(plan, Reason::NotExternal);
    let wrong = such(nodes, is_wrong, |_| {
        Outcome::fail(
            "without provider ID and without uninitialized taint; a kubelet without --cloud-provider=external makes \
             such a node, and it never becomes a target",
            "give the kubelet --cloud-provider=external; drain the node, delete it and let it join anew",
        )
    });
    or_ok(wrong.collect(), || {
        "each runs with --cloud-provider=external".into()
    })
}

/// The worst of each node: a server that was replaced, what blocks it, no server, new.
pub(super) fn servers(view: &View) -> Verdicts {
    let nodes = view.nodes.as_ref()?;
    need(&view.servers, "api")?;
    if matches!(own(nodes), (1.., 0)) {
        return Err(Gap::Needs("project"));
    }
    let outcomes = nodes.iter().filter_map(|plan| {
        let mut reasons = plan.findings.iter().map(|finding| finding.reason);
        let is_new = matches!(plan.server, Server::Matched(..)) && is_uninitialised(&plan.node);
        let outcome = if has(plan, Reason::ServerReplaced) {
            Outcome::fail(
                "its provider ID is that of a server that does not exist, while another server has the node's name",
                "kubectl delete node NAME: its kubelet registers again (restart the kubelet if it does not), and the \
                 node gets the provider ID of the server that is there; ccm node inspect NAME shows both",
            )
        } else if let Some(why) = &plan.obstacle {
            Outcome::fail(
                why.message.as_str(),
                "ccm node inspect NAME shows what was tried; a server must have the name of its node, or an address \
                 that the node reports",
            )
        } else if matches!(plan.server, Server::Gone(_) | Server::Unknown)
            || reasons.any(|reason| [Reason::ServerNotFound, Reason::ServerClaimedTwice].contains(&reason))
        {
            Outcome::warn(
                "without a server in this project, or without one that is known",
                "ccm node inspect NAME says what it is; the daemon deletes a node when its server surely does not \
                 exist and the node is not ready",
            )
        } else if is_new {
            Outcome::warn(
                "waiting to be initialised",
                "the daemon does that within seconds: see lease whether one runs; ccm node sync does it now",
            )
        } else {
            return None;
        };
        Some(on(plan, outcome))
    });
    or_ok(outcomes.collect(), || {
        format!("{}, none without its server", counted(own(nodes).0, "node"))
    })
}

/// Nodes that are not ready, for another reason than their server: the checks `powered` and `nodes` report those.
pub(super) fn ready(view: &View) -> Verdicts {
    let nodes = need(&view.nodes, "nodes")?;
    let is_down = |plan: &&NodePlan| !plan.node.is_ready() && !is_uninitialised(&plan.node);
    let down: Vec<&NodePlan> = nodes.iter().filter(is_down).collect();
    let is_all = down.len() == nodes.len();
    let mut elsewhere = 0;
    let mut outcomes = Vec::new();
    for plan in &down {
        let (cause, remedy) = match (&plan.server, &view.servers) {
            (server, Ok(_)) if server.is_off() || matches!(server, Server::Gone(_)) => {
                elsewhere += 1;
                continue;
            }
            (_, Err(_)) if plan.node.taint(SHUTDOWN).is_some() => (
                "its server was off when that was last read: it has the taint shutdown",
                ON,
            ),
            (Server::Matched(..), Ok(_)) => ("its server runs", KUBELET),
            _ => ("whether its server runs is not known", KUBELET),
        };
        let found = format!("not ready; {cause}");
        outcomes.push(on(plan, Outcome::bad(is_all, found, remedy)));
    }
    if outcomes.is_empty() && elsewhere > 0 {
        let count = counted(elsewhere, "node");
        let why = format!("{count} not ready because of their servers: see powered and nodes");
        return Ok(vec![Outcome::skipped(why)]);
    }
    or_ok(outcomes, || match nodes.len() {
        0 => "the cluster has no nodes".into(),
        _ => "each node is ready, or still to be initialised".into(),
    })
}

const ON: &str = "switch the server on (hcloud server poweron NAME); when it is not needed, delete it, and the daemon \
                  deletes its node";
const KUBELET: &str = "kubectl describe node NAME shows the kubelet's last words; on the server: systemctl status kubelet, \
                       journalctl -u kubelet";

/// Names of the nodes whose server is off.
pub(in crate::cli) fn off<'a>(view: &'a View) -> HashSet<&'a str> {
    let nodes = view.nodes.iter().flatten();
    let off = nodes.filter(|plan| plan.server.is_off());
    off.map(|plan| plan.object.name.as_str()).collect()
}

/// Servers that are off: those of nodes; without a cluster all of the project.
pub(super) fn powered(view: &View) -> Verdicts {
    let servers = need(&view.servers, "api")?;
    let outcomes: Vec<Outcome> = match &view.nodes {
        Ok(nodes) => {
            let is_all = nodes.iter().all(|plan| plan.server.is_off());
            let outcome = |plan: &NodePlan| {
                let Server::Matched(server, _) = &plan.server else {
                    return None;
                };
                let effect = match (plan.node.is_ready(), plan.node.taint(SHUTDOWN)) {
                    (true, _) => "the node still says that it is ready",
                    (false, Some(_)) => "the node is not ready, and has the taint shutdown",
                    (false, None) => "the node is not ready",
                };
                let found = format!("its server {} is off; {effect}", server.id);
                let outcome = Outcome::bad(is_all, found, ON);
                plan.server.is_off().then(|| on(plan, outcome))
            };
            nodes.iter().filter_map(outcome).collect()
        }
        Err(_) => {
            let is_off = |one: &&Instance| one.state == InstanceState::Off;
            let is_all = servers.iter().all(|one| is_off(&one));
            let outcome = |one: &Instance| {
                let found = format!(
                    "server {} is off; its node, if it has one, was not read",
                    one.id
                );
                Outcome::bad(is_all, found, ON).on("server", &one.name)
            };
            servers.iter().filter(is_off).map(outcome).collect()
        }
    };
    or_ok(outcomes, || "no server of a node is off".into())
}

/// Nodes that are ready and still have the taint of a server that is off.
pub(super) fn taints(view: &View) -> Verdicts {
    let nodes = need(&view.nodes, "nodes")?;
    let is_left = |plan: &NodePlan| {
        plan.node.is_ready() && plan.node.taint(SHUTDOWN).is_some() && !plan.server.is_off()
    };
    let outcomes = such(nodes, is_left, |_| {
        Outcome::warn(
            "ready, and still has the taint shutdown: nothing is scheduled there",
            "the daemon removes it within seconds: see lease whether one runs; ccm node sync does it now",
        )
    });
    or_ok(outcomes.collect(), || {
        "no ready node has the taint shutdown".into()
    })
}
