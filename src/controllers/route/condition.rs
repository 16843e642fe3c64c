//! The condition that says whether a node's pods can be reached: by a patch of it alone, so that the
//! kubelet's conditions stay as they are.

use super::plan::{
    NAME, NETWORK_UNAVAILABLE, NodePlan, ROUTE_CREATED, condition_json, condition_line, status,
};
use crate::cache::{Apis, Error};
use crate::controllers::report::{Failure, count_write, log_change};
use crate::kube::{self, Node, retry_on_conflict};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

/// The conditions of one sync.
pub(super) struct Conditions<'a> {
    apis: &'a Apis,
    /// Nodes that are done, by UID.
    done: HashSet<String>,
    /// Object, line and the same for programs, of each that was set.
    pub(super) made: Vec<(String, String, Value)>,
    pub(super) failures: Vec<Failure>,
    /// No other write may follow; the API server does not answer, or none may start any more.
    pub(super) stopped: Option<Option<Error>>,
}

impl<'a> Conditions<'a> {
    pub(super) fn new(apis: &'a Apis) -> Conditions<'a> {
        Conditions {
            apis,
            done: HashSet::new(),
            made: Vec::new(),
            failures: Vec::new(),
            stopped: None,
        }
    }

    /// Says it, unless the node says so already. Once in a sync.
    pub(super) fn set(&mut self, plan: &NodePlan, unavailable: bool) {
        if self.stopped.is_some() || !self.done.insert(plan.object.uid.clone()) {
            return;
        }
        let object = plan.name();
        match self.patch(plan, unavailable) {
            Ok(false) => {}
            Ok(true) => {
                let line = condition_line(unavailable);
                log_change(NAME, &object, &line);
                self.made.push((object, line, condition_json(unavailable)));
            }
            Err(error) if error.is_refused() => self.stopped = Some(None),
            Err(error) => {
                let why = error.to_string();
                let finding = None;
                self.failures.push(Failure {
                    object,
                    why,
                    finding,
                });
                if error.is_unavailable() || error.is_permanent() {
                    self.stopped = Some(Some(Error::Kube(error)));
                }
            }
        }
    }

    /// Was there anything to write?
    fn patch(&self, plan: &NodePlan, unavailable: bool) -> Result<bool, kube::Error> {
        retry_on_conflict(|is_first| {
            let node = match is_first {
                true => Arc::clone(&plan.node),
                false => match self.apis.kube.node(plan.node.name())? {
                    Some(now) if is_as_planned(&now, &plan.node) => Arc::new(now),
                    // What was planned does not hold for it any more.
                    Some(_) | None => return Ok(false),
                },
            };
            if node.condition(NETWORK_UNAVAILABLE) == Some(status(unavailable)) {
                return Ok(false);
            }
            let body = body(&node, unavailable);
            let begun = Instant::now();
            let patched = self.apis.kube.patch_node_condition(node.name(), &body);
            count_write(NAME, "condition", patched.as_ref().map(drop));
            match patched {
                Err(error) if error.is_not_found() => Ok(false),
                patched => {
                    self.apis.node_written(patched?, begun);
                    Ok(true)
                }
            }
        })
    }
}

/// Of what the plan rests on, nothing changed.
fn is_as_planned(now: &Node, then: &Node) -> bool {
    now.metadata.uid == then.metadata.uid
        && now.spec.provider_id == then.spec.provider_id
        && now.spec.pod_cidrs == then.spec.pod_cidrs
}

/// In the words of k8s.io/cloud-provider's route controller, which others look for.
fn body(node: &Node, unavailable: bool) -> Value {
    let now = Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default();
    let (reason, message) = match unavailable {
        false => (ROUTE_CREATED, "RouteController created a route"),
        true => ("NoRouteCreated", "RouteController failed to create a route"),
    };
    let now = now.to_string();
    json!({
        "metadata": { "resourceVersion": node.metadata.resource_version },
        "status": { "conditions": [{
            "type": NETWORK_UNAVAILABLE,
            "status": status(unavailable),
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }] },
    })
}
