//! One change, one write; and a conflict means: read the node again, plan again.

use super::change::Change;
use super::plan::NodePlan;
use crate::cache::Apis;
use crate::controllers::report::{count_write, log_change};
use crate::kube::{self, Node};
use serde_json::{Map, Value, json};
use std::time::Instant;

/// Plans for one node, made one after another because it kept changing under us.
const PLANS_AT_MOST: u32 = 4;

/// What came of one node.
pub(super) struct Applied {
    /// A line for each change made.
    pub lines: Vec<String>,
    /// The plan that was made last; none when the node went away meanwhile.
    pub plan: Option<NodePlan>,
    /// The taint was removed here and now.
    pub initialised: bool,
    pub error: Option<kube::Error>,
}

/// Makes the changes of a plan in their order. `replan` plans for the node as it is now, where
/// it may.
pub(super) fn apply(
    apis: &Apis,
    plan: NodePlan,
    replan: impl Fn(&Node) -> Option<NodePlan>,
) -> Applied {
    let mut applied = Applied {
        lines: Vec::new(),
        plan: None,
        initialised: false,
        error: None,
    };
    let mut plan = plan;
    for round in 1.. {
        let error = match make_changes(apis, &plan, &mut applied) {
            Ok(()) => break,
            Err(error) => error,
        };
        if error.is_not_found() {
            // The node was deleted meanwhile: nothing is left to be done.
            return applied;
        }
        if !error.is_conflict() || round == PLANS_AT_MOST {
            applied.error = Some(error);
            break;
        }
        log::debug!(
            "node/{}: changed meanwhile, planning again",
            plan.object.name
        );
        plan = match apis.kube.node(&plan.object.name) {
            Ok(None) => return applied,
            // Another node came to carry this name: the list of servers may be from before it.
            // The next tick begins with it.
            Ok(Some(node)) if node.metadata.uid != plan.object.uid => return applied,
            Ok(Some(node)) => match replan(&node) {
                Some(plan) => plan,
                None => {
                    applied.error = Some(error);
                    break;
                }
            },
            Err(error) => {
                applied.error = Some(error);
                break;
            }
        };
    }
    applied.plan = Some(plan);
    applied
}

fn make_changes(apis: &Apis, plan: &NodePlan, applied: &mut Applied) -> Result<(), kube::Error> {
    let name = &plan.object.name;
    let mut version = plan.node.metadata.resource_version.clone();
    for change in &plan.changes {
        let body = patch(change, &version);
        let begun = Instant::now();
        let written = match change {
            Change::SetAddresses { .. } => apis.kube.patch_node_status(name, &body),
            Change::Update { .. } => apis.kube.patch_node(name, &body),
        };
        count_write(super::NAME, change.kind(), written.as_ref().map(drop));
        let node = written?;
        version.clone_from(&node.metadata.resource_version);
        apis.node_written(node, begun);
        applied.lines.extend(plan.lines_of(change));
        log_change(super::NAME, &format!("node/{name}"), &change.summary());
        applied.initialised |= matches!(
            change,
            Change::Update {
                taints: Some(_),
                ..
            }
        );
    }
    Ok(())
}

/// The merge patch of a change, with the version it was planned on as its precondition.
fn patch(change: &Change, version: &str) -> Value {
    let mut metadata = Map::from_iter([("resourceVersion".to_owned(), json!(version))]);
    match change {
        Change::SetAddresses { addresses } => {
            json!({ "metadata": metadata, "status": { "addresses": addresses } })
        }
        Change::Update {
            labels,
            provider_id,
            taints,
        } => {
            if !labels.is_empty() {
                metadata.insert("labels".into(), json!(labels));
            }
            let mut spec = Map::new();
            if let Some(id) = provider_id {
                spec.insert("providerID".into(), json!(id));
            }
            if let Some(taints) = taints {
                // A merge patch replaces the list; null removes it.
                spec.insert(
                    "taints".into(),
                    if taints.is_empty() {
                        Value::Null
                    } else {
                        json!(taints)
                    },
                );
            }
            let mut body = Map::from_iter([("metadata".to_owned(), Value::Object(metadata))]);
            if !spec.is_empty() {
                body.insert("spec".into(), Value::Object(spec));
            }
            Value::Object(body)
        }
    }
}
