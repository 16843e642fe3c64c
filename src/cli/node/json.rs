//! Nodes in the stable form.

use super::Plans;
use crate::cli::json::Document;
use crate::controllers::lifecycle;
use crate::controllers::node::{Change, Field, Server, is_uninitialised};
use crate::controllers::{Failure, Report};
use crate::provider::{Finding, NodeAddress};
use serde::Serialize;

/// One Kubernetes object, its cloud counterpart, and what lies between them.
#[derive(Serialize)]
pub(super) struct Item<'a> {
    object: Object<'a>,
    cloud: Option<Cloud<'a>>,
    differences: Vec<&'a Field>,
    changes: Vec<AnyChange<'a>>,
    findings: Vec<&'a Finding>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

/// A change of one of the controllers that nodes have.
#[derive(Serialize)]
#[serde(untagged)]
enum AnyChange<'a> {
    Node(&'a Change),
    Lifecycle(&'a lifecycle::Change),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Object<'a> {
    kind: &'static str,
    name: &'a str,
    uid: &'a str,
    #[serde(rename = "providerID")]
    provider_id: &'a str,
    ready: bool,
    uninitialized: bool,
    addresses: Vec<NodeAddress>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Cloud<'a> {
    kind: &'static str,
    id: u64,
    name: &'a str,
    state: String,
    #[serde(rename = "type")]
    instance_type: &'a str,
    location: &'a str,
    network_zone: &'a str,
    public_ipv4: Option<String>,
    public_ipv6: Option<String>,
    private_ips: Vec<String>,
    matched_by: String,
}

/// What is there and what would be done.
pub(super) fn plans<'a>(kind: &'static str, plans: &'a [Plans]) -> Document<Item<'a>> {
    let items = plans.iter().map(|plan| item(plan, &[])).collect();
    Document::new(kind, items)
}

/// What was done.
pub(super) fn synced<'a>(
    kind: &'static str,
    plans: &'a [Plans],
    report: &'a Report,
) -> Document<Item<'a>> {
    let item = |plan| item(plan, &report.failures);
    Document::new(kind, plans.iter().map(item).collect()).with_summary(report)
}

fn item<'a>(plans: &'a Plans, failures: &'a [Failure]) -> Item<'a> {
    let plan = &plans.node;
    let name = format!("node/{}", plan.object.name);
    Item {
        object: Object {
            kind: "Node",
            name: &plan.object.name,
            uid: &plan.object.uid,
            provider_id: &plan.node.spec.provider_id,
            ready: plan.node.is_ready(),
            uninitialized: is_uninitialised(&plan.node),
            addresses: plan.reported_addresses(),
        },
        cloud: cloud(&plan.server),
        differences: plan.differences().collect(),
        changes: plans.changes(),
        findings: plans.findings().collect(),
        error: failures
            .iter()
            .find(|failure| failure.object == name)
            .map(|failure| failure.why.as_str()),
    }
}

impl Plans {
    fn changes(&self) -> Vec<AnyChange<'_>> {
        let node = self.node.changes.iter().map(AnyChange::Node);
        let lifecycle = self
            .lifecycle
            .iter()
            .filter_map(|plan| plan.change.as_ref());
        node.chain(lifecycle.map(AnyChange::Lifecycle)).collect()
    }
}

fn cloud(server: &Server) -> Option<Cloud<'_>> {
    let Server::Matched(instance, by) = server else {
        return None;
    };
    Some(Cloud {
        kind: "Server",
        id: instance.id.0,
        name: &instance.name,
        state: instance.state.to_string(),
        instance_type: &instance.instance_type,
        location: &instance.location,
        network_zone: &instance.network_zone,
        public_ipv4: instance.public_ipv4.map(|ip| ip.to_string()),
        public_ipv6: instance.public_ipv6.map(|net| net.to_string()),
        private_ips: instance
            .private
            .iter()
            .map(|private| private.ip.to_string())
            .collect(),
        matched_by: by.to_string(),
    })
}
