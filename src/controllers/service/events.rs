//! Reports the events of a Service: the findings (messages for the operator) of its plan, and which changes in the
//! cloud were begun, made or failed. Also finds out from events that were written before whether the last sync of a
//! Service failed.

use super::health::{Look, ServiceOutages};
use super::observe::NAME;
use super::plan::{self, ServicePlan, Want};
use crate::cache::Apis;
use crate::controllers::report::{
    component, publish, publish_beside_failures, publish_now, recovered,
};
use crate::kube::{Involved, KubeError, KubeService, ObjectReference, PastEvent};
use crate::provider::order;
use crate::provider::{Change, ChangeKind, Finding, Reason, clock};
use jiff::Timestamp;
use std::collections::HashMap;
use std::sync::Arc;

/// The component that the events name as their source. Kubernetes' own service controller uses the same name.
const EVENT_COMPONENT: &str = "service-controller";

const ENSURED: &str = "Ensured load balancer";
const UPDATED: &str = "Updated load balancer with new hosts";

/// Reports the findings (messages for the operator) of a plan. The finding that the replacement of the load balancer
/// waits for something is reported only when `has_waited_long` is `true`.
pub(super) fn findings(apis: &Apis, plan: &ServicePlan, has_waited_long: bool) {
    let is_due = |finding: &&Finding| {
        has_waited_long || finding.reason != Reason::LoadBalancerReplacementWaits
    };
    report(apis, &plan.object, plan.all_findings().filter(is_due));
    let is_right = plan.want == Want::Ensure
        && plan.cloud.outcome.is_in_order()
        && plan.changes_now().next().is_none()
        && !fails(plan);
    // An earlier sync of the Service has failed, but the Service is as it should be now. Usually an event about a
    // change shows that the failure is over, but no change is needed now. So the event `EnsuredLoadBalancer` is written
    // here instead.
    if is_right && recovered(apis, plan.object.seen_by(source(apis))) {
        let ensured = Finding::info(Reason::EnsuredLoadBalancer, ENSURED);
        report(apis, &plan.object, [&ensured]);
    }
}

/// Writes the event which says that the first change of a Service's load balancer is about to be made, e.g.
/// `EnsuringLoadBalancer`. For some kinds of changes there is no such event.
pub(super) fn begin(apis: &Apis, plan: &ServicePlan, kind: ChangeKind) {
    let (reason, mut text) = match kind {
        ChangeKind::Settings => (Reason::EnsuringLoadBalancer, "Ensuring load balancer".to_owned()),
        ChangeKind::Removal => (Reason::DeletingLoadBalancer, "Deleting load balancer".to_owned()),
        ChangeKind::Targets | ChangeKind::Release => return,
    };
    if let Some(announcement) = plan.changes_now().find_map(Change::announcement) {
        text = format!("{text}: {announcement}");
    }
    report(apis, &plan.object, [&Finding::info(reason, text)]);
}

/// Writes the Kubernetes event that belongs to a change which was just made. Most kinds of changes have no such event.
/// Then nothing is written.
pub(super) fn changed(apis: &Apis, plan: &ServicePlan, change: &dyn Change) {
    if let Some(finding) = change.event() {
        succeeded(apis, plan, &finding);
    }
}

/// Reports that all changes in the cloud were made. The kind of the changes decides which event it is.
pub(super) fn done(apis: &Apis, plan: &ServicePlan, kind: ChangeKind) {
    let (reason, text) = match kind {
        ChangeKind::Settings => (Reason::EnsuredLoadBalancer, ENSURED),
        ChangeKind::Targets => (Reason::UpdatedLoadBalancer, UPDATED),
        ChangeKind::Removal => (Reason::DeletedLoadBalancer, "Deleted load balancer"),
        // The function `changed` has already written an event about the end of a load balancer's management.
        ChangeKind::Release => return,
    };
    succeeded(apis, plan, &Finding::info(reason, text));
}

/// Writes the event `finding`, which reports a success, e.g. that a load balancer was changed. The plan can report a
/// failure at the same time, e.g. of one port. The success then does not count as the end of this failure, so that the
/// failure is not reported once more.
fn succeeded(apis: &Apis, plan: &ServicePlan, finding: &Finding) {
    if fails(plan) {
        publish_beside_failures(apis, plan.object.seen_by(source(apis)), finding);
    } else {
        report(apis, &plan.object, [finding]);
    }
}

fn fails(plan: &ServicePlan) -> bool {
    plan.all_findings().any(|finding| finding.reason.is_failure())
}

pub(super) fn failed(apis: &Apis, object: &ObjectReference, reason: Reason, why: &str) {
    let finding = Finding::warning(reason, why);
    report(apis, object, [&finding]);
}

/// Reports that a change of the Service waits, because its namespace has used up its share of API calls (the calls that
/// ccm allows each namespace).
pub(super) fn waits(apis: &Apis, service: &KubeService) {
    report(apis, &service.object(), [&plan::waiting(service)]);
}

/// Reports the Services that have lost their last healthy target and get no traffic any more, and those that get
/// traffic again.
pub(super) fn outages(apis: &Apis, outages: &mut ServiceOutages, look: &Look) {
    let (changed, is_first) = outages.changed(look);
    for (service, finding) in changed {
        publish_now(apis, service.object().seen_by(source(apis)), &finding, is_first);
    }
}

/// Returns the event reason for a failed change of this kind.
pub(super) fn reason_of_failure(kind: ChangeKind) -> Reason {
    match kind {
        ChangeKind::Settings => Reason::SyncLoadBalancerFailed,
        ChangeKind::Targets => Reason::UpdateLoadBalancerFailed,
        ChangeKind::Removal | ChangeKind::Release => Reason::DeleteLoadBalancerFailed,
    }
}

fn report<'a>(
    apis: &Apis,
    object: &ObjectReference,
    findings: impl IntoIterator<Item = &'a Finding>,
) {
    publish(apis, object.seen_by(source(apis)), findings);
}

fn source(apis: &Apis) -> &'static str {
    component(apis, EVENT_COMPONENT, NAME)
}

/// Returns the events that this controller has written about one Service or about all Services, the oldest first.
/// Depending on `--cloud-provider`, the controller writes its own name or another name into its events as their source,
/// so events with each of these names are returned. The events are only displayed as history, because everybody who may
/// write events in a namespace can forge them.
pub fn past_events(
    apis: &Apis,
    one: Option<&ObjectReference>,
) -> Result<Vec<Arc<PastEvent>>, KubeError> {
    let mut components = vec![NAME, EVENT_COMPONENT];
    components.extend(apis.provider.event_component());
    let mut events = apis.kube.service_events(one, &components)?;
    events.retain(|event| reason(event).is_some());
    order::sort_by_key(&mut events, |event| event.age_order());
    Ok(events)
}

fn reason(event: &PastEvent) -> Option<&'static Reason> {
    Reason::ALL.iter().find(|reason| reason.name() == event.reason)
}

/// Returns, for each object whose last sync has failed, the event that reported this. `events` must be sorted by time,
/// the oldest first.
pub fn failed_tries(events: &[Arc<PastEvent>]) -> HashMap<Involved, Arc<PastEvent>> {
    let mut last = HashMap::new();
    for event in events {
        let about = &event.involved_object;
        match reason(event) {
            Some(reason) if reason.is_failure() => {
                last.insert(about.clone(), Arc::clone(event));
            }
            Some(reason) if reason.is_success() => drop(last.remove(about)),
            _ => {}
        }
    }
    last
}

/// Returns a text such as `12 s ago` or `5 min ago`. When the time is not known, the text is `some time ago`.
pub fn ago(at: Option<Timestamp>) -> String {
    let seconds = |at: Timestamp| clock::timestamp().as_second() - at.as_second();
    match at.map(seconds) {
        None => "some time ago".to_owned(),
        Some(seconds) if seconds < 120 => format!("{} s ago", seconds.max(0)),
        Some(seconds) => format!("{} min ago", seconds / 60),
    }
}
