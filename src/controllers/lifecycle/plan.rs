//! Plans what should be done to nodes that are not ready. The plan depends only on the node and on what the cloud has
//! said about its server.

use super::out_of_service::{self, OffServers, SHUTDOWN, TaintRule, is_own, plan_taint};
use crate::controllers::matching::server_of;
use crate::controllers::{NodeChange, Plan};
use crate::kube::{KubeNode, Taint};
use crate::provider::variables::ROBOT_USER;
use crate::provider::{Finding, Instance, InstanceId, Provider, Reason};
use std::collections::BTreeMap;

/// What the cloud's APIs say about each server, by server ID.
pub type Facts = BTreeMap<InstanceId, Fact>;

/// What the cloud's APIs say about a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    Exists {
        is_off: bool,
        is_locked: bool,
    },
    /// The server does not exist: a read by its ID did not find it, and a list of servers from this sync pass does not
    /// contain it.
    Gone {
        /// Whether the list of servers in which this server is missing contains the server of another node. Such a
        /// server proves that the token belongs to the right project.
        others_are_visible: bool,
    },
    /// It is not known whether the server exists. The text says why.
    Unclear(String),
}

impl Fact {
    pub(super) fn of(server: &Instance) -> Fact {
        Fact::Exists { is_off: server.is_off, is_locked: server.is_locked }
    }

    /// Whether a server that is off is locked, i.e. no action can be started on it. `None` when it is not known that
    /// the server is off.
    pub(super) fn is_locked(&self) -> Option<bool> {
        match self {
            Fact::Exists { is_off: true, is_locked } => Some(*is_locked),
            _ => None,
        }
    }
}

/// The plan for a node that is not ready, or that has the taint `shutdown` or our taint `out-of-service`. Its `facts`
/// are the rules for setting the taint `out-of-service`. There are no `facts` when the taint is not considered, e.g.
/// because the server is on.
pub type LifecyclePlan = Plan<NodeChange, Vec<TaintRule>>;

/// Makes the plan for a node that is not ready, or that has the taint `shutdown` or our taint `out-of-service`. `off`
/// has the data that decides whether a node gets the taint `out-of-service`, e.g. since when its server is off. With
/// `guard` (the setting `--node-deletion-guard`), a node is deleted only if the list of servers contains the server of
/// another node. Such a server proves that the API token belongs to the right project.
pub fn plan(
    node: &KubeNode,
    facts: &Facts,
    off: &OffServers,
    provider: &dyn Provider,
    guard: bool,
) -> LifecyclePlan {
    let mut plan = Plan::new(node.object(), &node.metadata.resource_version, Vec::new());
    if node.metadata.deletion_timestamp.is_some() {
        return plan;
    }
    // A node is never tainted or deleted when its provider ID is missing, belongs to another cloud or can't be parsed.
    let Some(id) = server_of(node, provider) else {
        return plan;
    };
    if node.is_ready() {
        let to_remove = node
            .taint(SHUTDOWN)
            .map(|_| NodeChange::RemoveShutdownTaint { taints: taints(node, false) });
        plan.changes.extend(out_of_service::removal(node).into_iter().chain(to_remove));
        return plan;
    }
    match facts.get(&id) {
        Some(Fact::Exists { is_off: true, .. }) => {
            if node.taint(SHUTDOWN).is_none() {
                let taints = taints(node, true);
                plan.changes.push(NodeChange::AddShutdownTaint { taints });
            }
            plan_taint(&mut plan, node, id, off);
        }
        // The value `is_off: false` can also mean that Robot does not know whether a dedicated server is off. The taint
        // is therefore removed only for a cloud server.
        Some(Fact::Exists { is_off: false, .. }) if id.cloud().is_some() => {
            plan.changes.extend(out_of_service::removal(node));
        }
        Some(Fact::Exists { .. }) | None => {}
        Some(Fact::Gone { others_are_visible }) if *others_are_visible || !guard => {
            plan.changes.push(NodeChange::DeleteNode { server: id });
        }
        Some(Fact::Gone { .. }) => {
            let message = match id {
                InstanceId::Cloud(_) => format!(
                    "server {id} is not in this token's project, and neither is the server of any other node, so the \
                     token probably belongs to another project. Therefore ccm does not delete the node. If the token \
                     is right, delete the node yourself, or set --node-deletion-guard=false"
                ),
                InstanceId::Dedicated(_) => format!(
                    "the account of {ROBOT_USER} does not list server {id}, nor the server of any other node, so the \
                     credentials probably belong to another account, or are limited to one server. Therefore ccm does \
                     not delete the node. If the credentials are right, delete the node yourself, or set \
                     --node-deletion-guard=false"
                ),
            };
            plan.obstacle = Some(Finding::warning(Reason::PossibleNodeDeletion, message));
        }
        Some(Fact::Unclear(why)) => {
            let message = format!(
                "the node is not ready. ccm does not delete the node, because it is not clear whether server {id} \
                 exists: {why}"
            );
            plan.obstacle = Some(Finding::warning(Reason::InstanceLookupFailed, message));
        }
    }
    plan
}

/// Returns the taints that the node should have. When `is_off` is true, these are its present taints and the taint
/// `shutdown`. When it is false, these are its present taints without the taint `shutdown` and without a taint
/// `out-of-service` that this program has set.
fn taints(node: &KubeNode, is_off: bool) -> Vec<Taint> {
    let is_kept = |taint: &&Taint| taint.key != SHUTDOWN && (is_off || !is_own(taint));
    let others = node.spec.taints.iter().filter(is_kept);
    let shutdown = is_off.then(|| Taint {
        key: SHUTDOWN.into(),
        effect: "NoSchedule".into(),
        ..Taint::default()
    });
    others.cloned().chain(shutdown).collect()
}
