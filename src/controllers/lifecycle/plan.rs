//! Plans what should be done to nodes that are not ready. The plan depends only on the node and on what the cloud has
//! said about its server.

use crate::controllers::matching::server_of;
use crate::controllers::{NodeChange, Plan};
use crate::kube::{KubeNode, Taint};
use crate::provider::variables::ROBOT_USER;
use crate::provider::{Finding, InstanceId, Provider, Reason};
use std::collections::BTreeMap;

/// The key of the taint that marks a node whose server is off.
pub const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

/// What is known about servers, by the ID of the server.
pub type Facts = BTreeMap<InstanceId, Fact>;

/// What the cloud's APIs say about a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    Exists {
        is_off: bool,
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

/// The plan for a node that is not ready, or that has the shutdown taint.
pub type LifecyclePlan = Plan<NodeChange>;

/// Makes the plan for a node that is not ready, or that has the shutdown taint. When `guard` is set, the node is
/// deleted only if the list of servers contains the server of another node.
pub fn plan(node: &KubeNode, facts: &Facts, provider: &dyn Provider, guard: bool) -> LifecyclePlan {
    let mut plan = Plan::new(node.object(), &node.metadata.resource_version, ());
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
        plan.changes.extend(to_remove);
        return plan;
    }
    match facts.get(&id) {
        Some(Fact::Exists { is_off: true }) if node.taint(SHUTDOWN).is_none() => {
            let taints = taints(node, true);
            plan.changes.push(NodeChange::AddShutdownTaint { taints });
        }
        Some(Fact::Exists { .. }) | None => {}
        Some(Fact::Gone { others_are_visible }) if *others_are_visible || !guard => {
            plan.changes.push(NodeChange::DeleteNode { server: id });
        }
        Some(Fact::Gone { .. }) => {
            let message = match id {
                InstanceId::Cloud(_) => format!(
                    "server {id} is not in this token's project, and no other node's server is: the token probably \
                     belongs to another project, so ccm does not delete the node (with --node-deletion-guard=false it \
                     does)"
                ),
                InstanceId::Dedicated(_) => format!(
                    "the account of {ROBOT_USER} does not list server {id}, nor the server of any other node: the \
                     credentials probably belong to another account, or are limited to one server, so ccm does not \
                     delete the node (with --node-deletion-guard=false it does)"
                ),
            };
            plan.obstacle = Some(Finding::warning(Reason::PossibleNodeDeletion, message));
        }
        Some(Fact::Unclear(why)) => {
            let message = format!(
                "the node is not ready, and it is not clear whether server {id} exists: {why}"
            );
            plan.obstacle = Some(Finding::warning(Reason::InstanceLookupFailed, message));
        }
    }
    plan
}

/// Returns the node's taints with the shutdown taint when `is_off` is true, and otherwise without it.
fn taints(node: &KubeNode, is_off: bool) -> Vec<Taint> {
    let others = node.spec.taints.iter().filter(|taint| taint.key != SHUTDOWN);
    let shutdown = is_off.then(|| Taint {
        key: SHUTDOWN.into(),
        effect: "NoSchedule".into(),
        ..Taint::default()
    });
    others.cloned().chain(shutdown).collect()
}
