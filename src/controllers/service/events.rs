//! The events of a Service: findings of its plan, and what was begun, made or failed in the cloud; and what past events
//! say of the last try.

use super::observe::NAME;
use super::plan::{ServicePlan, Want};
use crate::cache::Apis;
use crate::controllers::report::{publish, recovered};
use crate::kube::{ObjectReference, PastEvent};
use crate::provider::{Change, ChangeKind, Finding, Reason};
use jiff::Timestamp;
use std::collections::HashMap;
use std::sync::Arc;

/// As upstream's events are signed.
const EVENT_COMPONENT: &str = "service-controller";

/// How the changes ended.
pub(super) enum Ended<'a> {
    Done,
    Failed(&'a str),
}

pub(super) fn findings(apis: &Apis, plan: &ServicePlan) {
    publish(apis, component(apis), &plan.object, plan.all_findings());
    let is_right = plan.cloud.obstacle.is_none()
        && plan.cloud.changes.is_empty()
        && !plan.cloud.is_unfinished
        && !plan.all_findings().any(|one| one.reason.is_failure())
        && plan.want == Want::Ensure;
    // Without a change nothing else says that the failure is over.
    if is_right && recovered(apis, component(apis), &plan.object) {
        publish(apis, component(apis), &plan.object, [ensured()]);
    }
}

fn ensured() -> Finding {
    Finding::info(Reason::EnsuredLoadBalancer, "Ensured load balancer")
}

/// Before the first change in the cloud.
pub(super) fn begin(apis: &Apis, plan: &ServicePlan, kind: ChangeKind) {
    let finding = match kind {
        ChangeKind::Settings => {
            Finding::info(Reason::EnsuringLoadBalancer, "Ensuring load balancer")
        }
        ChangeKind::Removal => {
            Finding::info(Reason::DeletingLoadBalancer, "Deleting load balancer")
        }
        ChangeKind::Targets | ChangeKind::Release => return,
    };
    publish(apis, component(apis), &plan.object, [finding]);
}

/// After one change that is an event by itself.
pub(super) fn changed(apis: &Apis, plan: &ServicePlan, change: &dyn Change) {
    if let Some(finding) = change.event() {
        publish(apis, component(apis), &plan.object, [&finding]);
    }
}

/// After the last one.
pub(super) fn end(apis: &Apis, plan: &ServicePlan, kind: ChangeKind, ended: Ended) {
    let finding = match (ended, kind) {
        (Ended::Done, ChangeKind::Settings) => ensured(),
        (Ended::Done, ChangeKind::Targets) => Finding::info(
            Reason::UpdatedLoadBalancer,
            "Updated load balancer with new hosts",
        ),
        (Ended::Done, ChangeKind::Removal) => {
            Finding::info(Reason::DeletedLoadBalancer, "Deleted load balancer")
        }
        // Its last change reports it: see `changed`.
        (Ended::Done, ChangeKind::Release) => return,
        (Ended::Failed(why), kind) => Finding::warning(failed(kind), why),
    };
    publish(apis, component(apis), &plan.object, [finding]);
}

/// No plan was made to its end.
pub(super) fn overtaken(apis: &Apis, object: &ObjectReference, reason: Reason, why: &str) {
    let finding = Finding::warning(reason, why);
    publish(apis, component(apis), object, [finding]);
}

/// The reason of a failure.
pub(super) fn failed(kind: ChangeKind) -> Reason {
    match kind {
        ChangeKind::Settings => Reason::SyncLoadBalancerFailed,
        ChangeKind::Targets => Reason::UpdateLoadBalancerFailed,
        ChangeKind::Removal | ChangeKind::Release => Reason::DeleteLoadBalancerFailed,
    }
}

/// The source of the events: a provider that replaces another controller signs as that one does.
fn component(apis: &Apis) -> &'static str {
    match apis.provider.event_component() {
        Some(_) => EVENT_COMPONENT,
        None => NAME,
    }
}

/// The last try, where it failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedTry {
    pub reason: String,
    pub message: String,
    pub at: Option<Timestamp>,
}

/// By UID of the Service.
pub fn failed_tries(events: &[Arc<PastEvent>]) -> HashMap<String, FailedTry> {
    let reason = |event: &PastEvent| {
        let mut all = Reason::ALL.iter();
        all.find(|reason| reason.name() == event.reason)
    };
    let has_failed = |event: &PastEvent| reason(event).is_some_and(|one| one.is_failure());
    let has_ended =
        |event: &PastEvent| has_failed(event) || reason(event).is_some_and(|one| one.is_success());
    let mut ended: Vec<&Arc<PastEvent>> = events.iter().filter(|one| has_ended(one)).collect();
    // Times are whole seconds; versions grow with each write.
    ended.sort_by_key(|event| {
        let version = event.metadata.resource_version.parse::<u64>();
        (event.at(), version.unwrap_or_default())
    });
    let last = ended.into_iter();
    let last: HashMap<&str, &Arc<PastEvent>> = last
        .map(|event| (event.involved_object.uid.as_str(), event))
        .collect();
    let failed = last.into_iter().filter(|(_, event)| has_failed(event));
    let failed = failed.map(|(uid, event)| {
        let failed = FailedTry {
            reason: event.reason.clone(),
            message: event.message.clone(),
            at: event.at(),
        };
        (uid.to_owned(), failed)
    });
    failed.collect()
}

impl FailedTry {
    pub fn ago(&self) -> String {
        ago(self.at)
    }
}

/// `12 s ago`, `5 min ago`.
pub fn ago(at: Option<Timestamp>) -> String {
    let seconds = |at: Timestamp| Timestamp::now().as_second() - at.as_second();
    match at.map(seconds) {
        None => "some time ago".to_owned(),
        Some(seconds) if seconds < 120 => format!("{} s ago", seconds.max(0)),
        Some(seconds) => format!("{} min ago", seconds / 60),
    }
}
