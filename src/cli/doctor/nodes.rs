//! Nodes and their servers. What Kubernetes alone says is shown without the Cloud API, and the other way round.

use super::observe::View;
use super::outcome::{Gap, Outcome, Verdict, Verdicts, counted, need, or_ok, reported};
use crate::controllers::lifecycle::SHUTDOWN;
use crate::controllers::node::{NodePlan, Server, is_uninitialised};
use crate::provider::{Instance, Reason};
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

/// The worst of each node.
pub(super) fn servers(view: &View) -> Verdicts {
    let nodes = view.nodes.as_ref()?;
    need(&view.servers, "api")?;
    if matches!(own(nodes), (1.., 0)) {
        return Err(Gap::Needs("project"));
    }
    let without_server = [
        Reason::ServerNotFound,
        Reason::ServerClaimedTwice,
        Reason::UnknownProviderID,
    ];
    let outcomes = nodes.iter().filter_map(|plan| {
        let find = |reasons: &[Reason]| {
            let mut findings = plan.all_findings();
            findings.find(|finding| reasons.contains(&finding.reason))
        };
        // What can't be initialised, or not be kept right.
        let blocked = find(&[Reason::ServerReplaced]).or(plan.obstacle.as_ref());
        let outcome = if let Some(finding) = blocked {
            reported(Outcome::fail, finding, SEE_NODE)
        } else if let Some(finding) = find(&without_server) {
            reported(Outcome::warn, finding, SEE_NODE)
        } else if matches!(plan.server, Server::Matched(..)) && is_uninitialised(&plan.node) {
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

const SEE_NODE: &str = "ccm node inspect NAME shows what was tried";

/// Nodes that are not ready for another reason than their server, which `powered` and `nodes` report; and those that are
/// ready and still have the taint of a server that is off.
pub(super) fn ready(view: &View) -> Verdicts {
    let nodes = need(&view.nodes, "nodes")?;
    let is_down = |plan: &&NodePlan| !plan.node.is_ready() && !is_uninitialised(&plan.node);
    let is_all = nodes.iter().filter(is_down).count() == nodes.len();
    let is_read = view.servers.is_ok();
    let outcomes = nodes.iter().filter_map(|plan| {
        let is_tainted = plan.node.taint(SHUTDOWN).is_some();
        let outcome = match &plan.server {
            server if is_read && (server.is_off() || matches!(server, Server::Gone(_))) => None,
            _ if !is_down(&plan) => is_tainted.then(|| {
                Outcome::warn(
                    "ready, and still has the taint shutdown: nothing is scheduled there",
                    "the daemon removes it within seconds: see lease whether one runs; ccm node sync does it now",
                )
            }),
            _ if !is_read && is_tainted => {
                let found = "not ready; its server was off when that was last read: it has the taint shutdown";
                Some(Outcome::bad(is_all, found, ON))
            }
            Server::Matched(..) => {
                Some(Outcome::bad(is_all, "not ready; its server runs", KUBELET))
            }
            _ => Some(Outcome::bad(is_all, "not ready; its server is not known", KUBELET)),
        };
        outcome.map(|outcome| on(plan, outcome))
    });
    let outcomes: Vec<Outcome> = outcomes.collect();
    match outcomes.is_empty() && nodes.iter().any(|plan| is_down(&plan)) {
        true => Err(Gap::NotHere(
            "not ready because of servers: see powered and nodes".into(),
        )),
        false => or_ok(outcomes, || {
            "each node is ready, or still to be initialised".into()
        }),
    }
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
            let is_all = servers.iter().all(|one| one.is_off);
            let outcome = |one: &Instance| {
                let found = format!(
                    "server {} is off; its node, if it has one, was not read",
                    one.id
                );
                Outcome::bad(is_all, found, ON).on("server", &one.name)
            };
            servers
                .iter()
                .filter(|one| one.is_off)
                .map(outcome)
                .collect()
        }
    };
    or_ok(outcomes, || "no server of a node is off".into())
}
