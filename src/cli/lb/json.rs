//! Services and load balancers in the stable form.

use crate::cli::json::Document;
use crate::controllers::service::{ServicePlan, Want};
use crate::controllers::{Failure, Report};
use crate::provider::{Balancer, Field, Finding, Ingress};
use serde::Serialize;
use serde_json::Value;

/// One Service, its load balancer, and what lies between them.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Item<'a> {
    /// None: a load balancer that no Service wants.
    object: Option<Object<'a>>,
    cloud: Option<&'a Balancer>,
    differences: Vec<&'a Field>,
    changes: Vec<Value>,
    /// What differs and is left: only a default asks for it, and the daemon may not have it.
    held_back: &'a [Field],
    findings: Vec<&'a Finding>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

#[derive(Serialize)]
struct Object<'a> {
    kind: &'static str,
    namespace: &'a str,
    name: &'a str,
    uid: &'a str,
    wants: &'static str,
    finalizer: bool,
    ingress: &'a [Ingress],
}

/// What is there and what would be done.
pub(super) fn plans<'a>(kind: &'static str, plans: &'a [ServicePlan]) -> Document<Item<'a>> {
    let items = plans
        .iter()
        .map(|plan| item(plan, plan.json(), &[]))
        .collect();
    Document::new(kind, items)
}

/// What was done.
pub(super) fn synced<'a>(
    kind: &'static str,
    plans: &'a [ServicePlan],
    report: &'a Report,
) -> Document<Item<'a>> {
    let item = |plan: &'a ServicePlan| item(plan, plan.made.clone(), &report.failures);
    Document::new(kind, plans.iter().map(item).collect()).with_summary(report)
}

fn item<'a>(plan: &'a ServicePlan, changes: Vec<Value>, failures: &'a [Failure]) -> Item<'a> {
    let metadata = &plan.service.metadata;
    let name = plan.name();
    Item {
        object: (!plan.is_orphan()).then(|| Object {
            kind: "Service",
            namespace: &metadata.namespace,
            name: &metadata.name,
            uid: &metadata.uid,
            wants: match plan.want {
                Want::Ensure => "loadBalancer",
                Want::Remove => "removal",
                Want::Nothing => "nothing",
            },
            finalizer: plan.service.has_our_finalizer(),
            ingress: &plan.service.status.load_balancer.ingress,
        }),
        cloud: plan.cloud.found.as_ref(),
        differences: plan
            .cloud
            .fields
            .iter()
            .filter(|field| field.differs())
            .collect(),
        changes,
        held_back: &plan.cloud.held_back,
        findings: plan.all_findings().collect(),
        error: failures
            .iter()
            .find(|failure| failure.object == name)
            .map(|failure| failure.why.as_str()),
    }
}
