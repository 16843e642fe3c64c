//! One change, one write, on a node that was read just before.

use super::plan::{Change, Facts, LifecyclePlan, View, plan};
use crate::cache::{Apis, Error};
use crate::controllers::report::{count_write, log_change, publish};
use crate::kube::{self, Node, Taint};
use crate::provider::{Finding, Provider, Reason};
use serde_json::{Value, json};
use std::time::Instant;

/// A change that was not made.
pub(super) struct Failed {
    pub(super) error: Error,
    /// Reported of the node, where that helps.
    pub(super) finding: Option<Finding>,
    /// The gate is closed: no other write may follow.
    pub(super) refused: bool,
}

/// The line of the change that was made; none when there is nothing to change (any more).
pub(super) fn apply(
    apis: &Apis,
    proposed: &LifecyclePlan,
    facts: &Facts,
    guard: bool,
) -> Result<Option<String>, Failed> {
    if proposed.change.is_none() {
        return Ok(None);
    }
    let Some(node) = apis.node(&proposed.object.name).map_err(Failed::from)? else {
        return Ok(None);
    };
    if node.metadata.uid != proposed.object.uid {
        // Another node came to carry this name: it is looked at in the next tick.
        return Ok(None);
    }
    let Some(change) = decide_again(&node, facts, &*apis.provider, guard) else {
        return Ok(None);
    };
    let made = make(apis, &node, &change);
    let outcome = match &made {
        Err(Failed {
            error: Error::Kube(error),
            ..
        }) => Err(error),
        _ => Ok(()),
    };
    count_write(super::NAME, change.kind(), outcome);
    made?;
    let line = change.line();
    log_change(super::NAME, &format!("node/{}", node.name()), &line);
    Ok(Some(line))
}

/// The same decision on the node as it is now. The facts are this tick's: a server that was
/// deleted does not come back, its number is never used again.
fn decide_again(
    node: &Node,
    facts: &Facts,
    provider: &dyn Provider,
    guard: bool,
) -> Option<Change> {
    let view = View {
        nodes: &[node],
        facts,
    };
    let plans = plan(&view, provider, guard);
    plans.into_iter().next().and_then(|plan| plan.change)
}

fn make(apis: &Apis, node: &Node, change: &Change) -> Result<(), Failed> {
    let (name, version) = (node.name(), &node.metadata.resource_version);
    match change {
        Change::AddShutdownTaint { taints } | Change::RemoveShutdownTaint { taints } => {
            let body = taints_patch(version, taints);
            let begun = Instant::now();
            apis.kube
                .patch_node(name, &body)
                .map(|node| apis.node_written(node, begun))
                .map_err(|error| {
                    let message =
                        format!("not done, tried again later: {}: {error}", change.line());
                    // Another write came first, as happens to a node: no event is worth that.
                    match error.is_conflict() {
                        true => Failed::from(Error::Kube(error)),
                        false => not_written(error, Reason::TaintingNodeFailed, message),
                    }
                })
        }
        Change::DeleteNode { server } => {
            let message = format!("server {server} does not exist any more: the node is deleted");
            let deleting = Finding::info(Reason::DeletingNode, message);
            publish(apis, super::NAME, &node.object(), &[deleting]);
            apis.kube
                .delete_node(name, &node.metadata.uid, version)
                .map_err(|error| {
                    let message = format!("not deleted, tried again later: {error}");
                    not_written(error, Reason::DeletingNodeFailed, message)
                })
        }
    }
}

fn not_written(error: kube::Error, reason: Reason, message: String) -> Failed {
    Failed {
        refused: error.is_refused(),
        finding: (!error.is_refused()).then(|| Finding::warning(reason, message)),
        error: Error::Kube(error),
    }
}

fn taints_patch(version: &str, taints: &[Taint]) -> Value {
    // A merge patch replaces the list; null removes it.
    let taints = if taints.is_empty() {
        Value::Null
    } else {
        json!(taints)
    };
    json!({ "metadata": { "resourceVersion": version }, "spec": { "taints": taints } })
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        let refused = matches!(&error, Error::Kube(error) if error.is_refused());
        Failed {
            error,
            finding: None,
            refused,
        }
    }
}
