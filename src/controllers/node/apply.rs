//! The writes of one node, one for each change; a conflict means: read the node again, plan again.

use super::plan::{Change, NodePlan};
use crate::cache::Apis;
use crate::controllers::report::{count_write, log_change};
use crate::kube::{self, Node, retry_on_conflict};
use serde_json::{Value, json};
use std::time::Instant;

pub const NAME: &str = "cloud-node-controller";

/// What came of one node.
pub(super) struct Applied {
    /// A line for each value that was changed.
    pub lines: Vec<String>,
    /// Changes of the first plan.
    pub planned: usize,
    /// The plan that was made last; none when the node does not exist any more.
    pub plan: Option<NodePlan>,
    /// Why the plan was not made to its end.
    pub error: Option<String>,
    /// That is because the gate is closed.
    pub is_closed: bool,
}

/// Of a node that came to carry this name meanwhile the list may know nothing.
const TOO_OLD: &str =
    "another program changed it, and the list of servers is too old to plan again";

/// Makes the changes of a plan in their order. `replan` plans for the node as it is now, where it may.
pub(super) fn apply(
    apis: &Apis,
    plan: NodePlan,
    replan: impl Fn(&Node) -> Option<NodePlan>,
) -> Applied {
    let object = plan.object.clone();
    let mut applied = Applied {
        lines: Vec::new(),
        planned: plan.changes.len(),
        plan: Some(plan),
        error: None,
        is_closed: false,
    };
    let written = retry_on_conflict(|is_first| {
        if !is_first {
            let node = apis.kube.node(&object.name)?;
            applied.plan = match node.filter(|node| node.metadata.uid == object.uid) {
                None => None,
                Some(node) => match replan(&node) {
                    None => {
                        applied.error = Some(TOO_OLD.to_owned());
                        return Ok(());
                    }
                    plan => plan,
                },
            };
        }
        make_changes(apis, &mut applied)
    });
    match written {
        Ok(()) => {}
        Err(error) if error.is_not_found() => applied.plan = None,
        Err(error) => {
            applied.is_closed = error.is_refused();
            applied.error = Some(error.to_string());
        }
    }
    applied
}

fn make_changes(apis: &Apis, applied: &mut Applied) -> Result<(), kube::Error> {
    let Some(plan) = &applied.plan else {
        return Ok(());
    };
    let name = &plan.object.name;
    let mut version = plan.node.metadata.resource_version.clone();
    for change in &plan.changes {
        let body = patch(change, &version);
        let begun = Instant::now();
        let written = match change {
            Change::SetAddresses { .. } => apis.kube.patch_node_status(name, &body),
            Change::Update { .. } => apis.kube.patch_node(name, &body),
        };
        count_write(NAME, change.kind(), written.as_ref().map(drop));
        let node = written?;
        version.clone_from(&node.metadata.resource_version);
        apis.nodes.written(node, begun);
        let made = plan.description_of(change);
        log_change(NAME, &plan.object.for_people(), &made);
        applied.lines.extend(made.done());
    }
    Ok(())
}

/// The merge patch of a change, with the version it was planned on as its precondition.
fn patch(change: &Change, version: &str) -> Value {
    match change {
        Change::SetAddresses { addresses } => json!({
            "metadata": { "resourceVersion": version },
            "status": { "addresses": addresses },
        }),
        Change::Update {
            labels,
            annotations,
            provider_id,
            taints,
        } => {
            // What is null is removed.
            let mut patch = json!({
                "metadata": { "resourceVersion": version, "labels": labels },
                "spec": {},
            });
            if !annotations.is_empty() {
                patch["metadata"]["annotations"] = json!(annotations);
            }
            if let Some(id) = provider_id {
                patch["spec"]["providerID"] = json!(id);
            }
            // A merge patch replaces the list.
            if let Some(taints) = taints {
                patch["spec"]["taints"] = json!(taints);
            }
            patch
        }
    }
}
