//! Makes the writes to Node objects for the node controller, the lifecycle controller and the route controller. Each
//! write contains the resource version for which it was planned. After a conflict, the node is read and planned again.

use super::controller::Progress;
use super::plan::Plan;
use super::report::{Report, count_write, log_change, publish};
use crate::cache::Apis;
use crate::kube::{self, KubeNode, ObjectReference, Taint, retry_on_conflict};
use crate::metrics::{NODE_SYNC_DELAY, TAINT_REMOVAL_DELAY};
use crate::provider::{
    Description, Finding, InstanceId, NodeAddress, Reason, Write, WriteVerb, clock,
};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// The node condition that says whether the pods of the node can't be reached over the network.
pub const NETWORK_UNAVAILABLE: &str = "NetworkUnavailable";

/// The reason in the node condition `NetworkUnavailable` which means that a route controller has created the routes of
/// the node.
pub(super) const ROUTE_CREATED: &str = "RouteCreated";

/// The keys and new values of labels or annotations. The value `None` removes the key from the node.
pub type Values = BTreeMap<String, Option<String>>;

/// One write to a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "change", rename_all_fields = "camelCase")]
pub enum NodeChange {
    /// Replaces `status.addresses`.
    SetAddresses {
        addresses: Vec<NodeAddress>,
        #[serde(skip)]
        description: Description,
    },
    /// Sets labels, annotations and the provider ID, and replaces the list of taints, all in one patch.
    Update {
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        labels: Values,
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        annotations: Values,
        #[serde(skip_serializing_if = "Option::is_none", rename = "providerID")]
        provider_id: Option<String>,
        /// The taints that the node has after the write. They do not contain the taint `uninitialized`, so the write
        /// removes that taint. `None` means that the taints stay as they are.
        #[serde(skip_serializing_if = "Option::is_none")]
        taints: Option<Vec<Taint>>,
        #[serde(skip)]
        description: Description,
    },
    /// Adds the taint `node.cloudprovider.kubernetes.io/shutdown`, because the server of the node is off. `taints` is
    /// the new list of all taints.
    AddShutdownTaint { taints: Vec<Taint> },
    /// Removes the taint `node.cloudprovider.kubernetes.io/shutdown`, because the node is ready again. `taints` is the
    /// new list of all taints.
    RemoveShutdownTaint { taints: Vec<Taint> },
    /// Adds the taint `out-of-service`, because the server of the node stays off. `taints` is the new list of all
    /// taints.
    AddOutOfServiceTaint { server: InstanceId, taints: Vec<Taint> },
    /// Removes this program's own taint `out-of-service`, because the server runs or the node is ready. `taints` is the
    /// new list of all taints.
    RemoveOutOfServiceTaint { taints: Vec<Taint> },
    /// Deletes the node, because its server does not exist any more.
    DeleteNode { server: InstanceId },
    /// Sets a condition of the node, e.g. `NetworkUnavailable`. The other conditions stay unchanged.
    SetCondition { r#type: &'static str, status: &'static str },
}

impl NodeChange {
    /// Whether this write removes the taint `uninitialized`, after which the node counts as initialised.
    pub(super) fn removes_taint(&self) -> bool {
        matches!(self, NodeChange::Update { taints, .. } if taints.is_some())
    }

    /// Returns the write that sets the condition `NetworkUnavailable` to `unavailable`.
    pub(super) fn condition(unavailable: bool) -> NodeChange {
        NodeChange::SetCondition { r#type: NETWORK_UNAVAILABLE, status: status(unavailable) }
    }

    /// Sends the write. The API server refuses the write when the node has another resource version than `version`.
    /// Returns the node after the write, or `None` when the node was deleted.
    fn send(
        &self,
        kube: &kube::KubeClient,
        object: &ObjectReference,
        version: &str,
    ) -> Result<Option<KubeNode>, kube::KubeError> {
        let name = &object.name;
        let metadata = json!({ "resourceVersion": version });
        // The bodies of the requests are merge patches. A list in the patch replaces the whole list of the node, and a
        // null value removes its key.
        match self {
            NodeChange::SetAddresses { addresses, .. } => {
                let body = json!({ "metadata": metadata, "status": { "addresses": addresses } });
                kube.patch_node_status(name, &body).map(Some)
            }
            NodeChange::Update { labels, annotations, provider_id, taints, .. } => {
                let mut body = json!({ "metadata": metadata, "spec": {} });
                body["metadata"]["labels"] = json!(labels);
                if !annotations.is_empty() {
                    body["metadata"]["annotations"] = json!(annotations);
                }
                if let Some(id) = provider_id {
                    body["spec"]["providerID"] = json!(id);
                }
                if let Some(taints) = taints {
                    body["spec"]["taints"] = json!(taints);
                }
                kube.patch_node(name, &body).map(Some)
            }
            NodeChange::AddShutdownTaint { taints }
            | NodeChange::RemoveShutdownTaint { taints }
            | NodeChange::AddOutOfServiceTaint { taints, .. }
            | NodeChange::RemoveOutOfServiceTaint { taints } => {
                let mut body = json!({ "metadata": metadata, "spec": { "taints": taints } });
                body["metadata"]["uid"] = json!(object.uid);
                kube.patch_node(name, &body).map(Some)
            }
            NodeChange::DeleteNode { .. } => {
                kube.delete_node(name, &object.uid, version).map(|()| None)
            }
            NodeChange::SetCondition { r#type, status } => {
                let body = json!({
                    "metadata": metadata,
                    "status": { "conditions": [condition(r#type, status)] },
                });
                kube.patch_node_condition(name, &body).map(Some)
            }
        }
    }
}

/// Returns the status of a condition, which is the text `True` or `False`.
pub(super) fn status(is_so: bool) -> &'static str {
    if is_so { "True" } else { "False" }
}

/// Returns a condition with the reason and the message that k8s.io/cloud-provider's route controller writes, because
/// other programs look for these texts.
fn condition(kind: &str, status: &str) -> Value {
    let now = Timestamp::from_second(clock::timestamp().as_second()).unwrap_or_default();
    let (reason, message) = if status == "False" {
        (ROUTE_CREATED, "RouteController created a route")
    } else {
        ("NoRouteCreated", "RouteController failed to create a route")
    };
    let now = now.to_string();
    json!({
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    })
}

impl Write for NodeChange {
    fn word(&self) -> &'static str {
        match self {
            NodeChange::SetAddresses { .. } => "set_addresses",
            NodeChange::Update { .. } if self.removes_taint() => "initialise",
            NodeChange::Update { .. } => "set_labels",
            NodeChange::AddShutdownTaint { .. } => "add_shutdown_taint",
            NodeChange::RemoveShutdownTaint { .. } => "remove_shutdown_taint",
            NodeChange::AddOutOfServiceTaint { .. } => "add_out_of_service_taint",
            NodeChange::RemoveOutOfServiceTaint { .. } => "remove_out_of_service_taint",
            NodeChange::DeleteNode { .. } => "delete_node",
            NodeChange::SetCondition { .. } => "condition",
        }
    }

    /// Returns a text such as `add taint shutdown (the server is off)`.
    fn description(&self) -> Description {
        match self {
            NodeChange::SetAddresses { description, .. }
            | NodeChange::Update { description, .. } => description.clone(),
            NodeChange::AddShutdownTaint { .. } => {
                Description::new(WriteVerb::ADD, "taint shutdown", " (the server is off)")
            }
            NodeChange::RemoveShutdownTaint { .. } => {
                Description::new(WriteVerb::REMOVE, "taint shutdown", " (the node is ready)")
            }
            NodeChange::AddOutOfServiceTaint { server, .. } => {
                let why = format!(" (server {server} stays off)");
                Description::new(WriteVerb::ADD, "taint out-of-service", why)
            }
            NodeChange::RemoveOutOfServiceTaint { .. } => Description::new(
                WriteVerb::REMOVE,
                "taint out-of-service",
                " (the server is not off any more)",
            ),
            NodeChange::DeleteNode { server } => {
                let why = format!(" (server {server} does not exist any more)");
                Description::new(WriteVerb::DELETE, "node", why)
            }
            NodeChange::SetCondition { r#type, status } => {
                Description::value(format!("condition {type}"), None, Some(status))
            }
        }
    }

    fn json(&self) -> Value {
        json!(self)
    }
}

/// What has become of one node's plan: the writes that were made, and why other writes were not made.
pub(super) struct AppliedPlan<Facts> {
    /// The number of writes in the first plan for the node. After a conflict the node is planned again, and a later
    /// plan can have another number of writes.
    planned: usize,
    /// The writes that were made, as descriptions for people.
    pub(super) made: Vec<Description>,
    /// The last plan for the node. It can differ from the first plan, because the node is planned again after a
    /// conflict. `None` means that the node does not exist any more.
    pub(super) plan: Option<Plan<NodeChange, Facts>>,
    /// The error that stopped the writes. `None` means that no write failed.
    pub(super) error: Option<kube::KubeError>,
    /// The reason why the remaining writes were dropped, if the node was read again and no new plan could be made for
    /// it. Otherwise `None`.
    outdated: Option<&'static str>,
}

impl<Facts> AppliedPlan<Facts> {
    /// Whether a write was refused by this program itself, because the process is not allowed to write now, e.g.
    /// because it does not hold the Lease. The caller then tries no other write.
    pub(super) fn is_closed(&self) -> bool {
        self.error.as_ref().is_some_and(kube::KubeError::is_refused)
    }

    /// Whether all writes that were planned for the node were made. `false` when a write failed, or when the writes
    /// were dropped because the node had changed.
    pub(super) fn is_made(&self) -> bool {
        self.error.is_none() && self.outdated.is_none()
    }

    /// Adds the outcome for the node to the report. When the caller has already reported the error of a write as a
    /// finding (a message for the operator), `reason` is the reason of that finding, and is stored with the failure in
    /// the report.
    pub(super) fn note_in(&self, report: &mut Report, object: String, reason: Option<Reason>) {
        report.planned += self.planned;
        for made in &self.made {
            report.add_changes(&object, made);
        }
        let obstacle = self.plan.as_ref().and_then(|plan| plan.obstacle.as_ref());
        match (&self.error, self.outdated, obstacle) {
            (Some(error), ..) => report.fail(object, error.to_string(), reason),
            (None, Some(why), _) => report.fail(object, why.to_owned(), None),
            (None, None, Some(why)) => {
                report.fail(object, why.text().into_owned(), Some(why.reason));
            }
            (None, None, None) => report.note(object, Progress::in_order(!self.made.is_empty())),
        }
    }
}

/// Makes the writes of a plan in their order. When a write is refused because the node has changed (a conflict), the
/// node is read again, and `replan` makes a new plan for it. With `reads_first`, the node is also read and planned
/// again before the first write. When `replan` returns a reason instead of a plan, nothing more is written.
pub(super) fn apply<Facts>(
    apis: &Apis,
    controller: &'static str,
    plan: Plan<NodeChange, Facts>,
    reads_first: bool,
    replan: impl Fn(&KubeNode) -> Result<Plan<NodeChange, Facts>, &'static str>,
) -> AppliedPlan<Facts> {
    let object = plan.object.clone();
    let planned = plan.changes.len();
    let mut applied =
        AppliedPlan { planned, made: Vec::new(), plan: Some(plan), error: None, outdated: None };
    if planned == 0 {
        return applied;
    }
    let written = retry_on_conflict(|is_first| {
        if reads_first || !is_first {
            let node = apis.kube.node(&object.name)?;
            // A node with the same name but another UID is a new node. Nothing is written to it now. The next sync pass
            // plans for it.
            let node = node.filter(|node| node.metadata.uid == object.uid);
            match node.map(|node| replan(&node)).transpose() {
                Ok(plan) => applied.plan = plan,
                Err(why) => {
                    applied.outdated = Some(why);
                    return Ok(());
                }
            }
        }
        make(apis, controller, &mut applied)
    });
    match written.err().or(applied.error.take()) {
        Some(error) if error.is_not_found() => applied.plan = None,
        error => applied.error = error,
    }
    applied
}

/// Makes the writes of the plan in `applied`, which is the last plan for the node. Returns a conflict as an error, and
/// the caller then reads the node and plans it again. The error of a failed deletion is not returned, but stored in
/// `applied`, so that the deletion is not repeated in this sync pass.
fn make<Facts>(
    apis: &Apis,
    controller: &'static str,
    applied: &mut AppliedPlan<Facts>,
) -> Result<(), kube::KubeError> {
    let Some(plan) = &applied.plan else {
        return Ok(());
    };
    let mut version = plan.version.clone();
    for change in &plan.changes {
        if let NodeChange::DeleteNode { server } = change {
            let message =
                format!("ccm deletes the node, because server {server} does not exist any more");
            let deleting = Finding::info(Reason::DeletingNode, message);
            publish(apis, plan.object.seen_by(controller), &[deleting]);
        }
        let begun = clock::now();
        let written = change.send(&apis.kube, &plan.object, &version);
        count_write(controller, change.word(), written.as_ref().map(drop));
        match written {
            Ok(Some(node)) => {
                if change.removes_taint() {
                    count_delay(&node);
                }
                version.clone_from(&node.metadata.resource_version);
                apis.nodes.written(node, begun);
            }
            Ok(None) => {}
            // The deletion can fail because the kubelet has written to the node at the same moment. The deletion is
            // tried again only in a later sync pass.
            Err(error) if matches!(change, NodeChange::DeleteNode { .. }) => {
                applied.error = Some(error);
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        let made = change.description();
        log_change(controller, &plan.object.for_people(), &made);
        applied.made.push(made);
    }
    Ok(())
}

/// Adds the time from the creation of a node until now to the metrics. When the clocks of this machine and of the API
/// server differ, this time can be negative, and then counts as zero.
fn count_delay(node: &KubeNode) {
    if let Some(created) = node.metadata.creation_timestamp {
        let delay =
            Duration::try_from(clock::timestamp().duration_since(created)).unwrap_or_default();
        for metric in [&NODE_SYNC_DELAY, &TAINT_REMOVAL_DELAY] {
            metric.observe(&[], delay);
        }
    }
}
