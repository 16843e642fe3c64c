//! One change, one write, on a node that was read just before. A conflict means: read it again, plan again; but a node
//! is
//! never deleted at once after one.

use super::plan::{Change, Facts, LifecyclePlan, plan};
use crate::cache::Apis;
use crate::controllers::report::{count_write, log_change, publish};
use crate::kube::{self, Node, retry_on_conflict};
use crate::provider::{Finding, Reason};
use serde_json::json;
use std::time::Instant;

pub const NAME: &str = "cloud-node-lifecycle-controller";

/// The change, and whether it was made; none when there is nothing to change (any more).
pub(super) type Applied = (Option<Change>, Result<(), kube::Error>);

pub(super) fn apply(apis: &Apis, proposed: &LifecyclePlan, facts: &Facts, guard: bool) -> Applied {
    if proposed.change.is_none() {
        return (None, Ok(()));
    }
    let object = &proposed.object;
    let mut change = None;
    let written = retry_on_conflict(|_| {
        change = None;
        let node = apis.kube.node(&object.name)?;
        // Another node that came to carry this name is planned in the next tick.
        let Some(node) = node.filter(|node| node.metadata.uid == object.uid) else {
            return Ok(Ok(()));
        };
        // The facts are this tick's: a server that was deleted does not come back, its number is never used again.
        change = plan(&node, facts, &*apis.provider, guard).change;
        match &change {
            // Its kubelet wrote to it in this moment: a refused deletion is not tried again before its back-off is
            // over.
            Some(change @ Change::DeleteNode { .. }) => Ok(write(apis, &node, change)),
            Some(change) => write(apis, &node, change).map(Ok),
            None => Ok(Ok(())),
        }
    });
    (change, written.and_then(|written| written))
}

fn write(apis: &Apis, node: &Node, change: &Change) -> Result<(), kube::Error> {
    let (name, version) = (node.name(), &node.metadata.resource_version);
    let written = match change {
        Change::AddShutdownTaint { taints } | Change::RemoveShutdownTaint { taints } => {
            // A merge patch replaces the list.
            let body = json!({
                "metadata": { "resourceVersion": version },
                "spec": { "taints": taints },
            });
            let begun = Instant::now();
            let patched = apis.kube.patch_node(name, &body);
            patched.map(|node| apis.nodes.written(node, begun))
        }
        Change::DeleteNode { server } => {
            let message = format!("server {server} does not exist any more: the node is deleted");
            let deleting = Finding::info(Reason::DeletingNode, message);
            publish(apis, NAME, &node.object(), &[deleting]);
            apis.kube.delete_node(name, &node.metadata.uid, version)
        }
    };
    count_write(NAME, change.kind(), written.as_ref().map(drop));
    written?;
    log_change(NAME, &node.object().for_people(), &change.description());
    Ok(())
}

/// What is reported of a change that was not made. Other writers were first, as happens to a node that is to be
/// tainted: no event is worth that.
pub(super) fn not_written(change: &Change, error: &kube::Error) -> Option<Finding> {
    let (reason, message) = match change {
        _ if error.is_refused() => return None,
        Change::DeleteNode { .. } => (
            Reason::DeletingNodeFailed,
            format!("not deleted, tried again later: {error}"),
        ),
        _ if error.is_conflict() => return None,
        _ => (
            Reason::TaintingNodeFailed,
            format!(
                "not done, tried again later: {}: {error}",
                change.description()
            ),
        ),
    };
    Some(Finding::warning(reason, message))
}
