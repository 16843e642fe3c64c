//! The events of a Service: findings of its plan, and what was begun, made or failed in the cloud; and what past events
//! say of the last try.

use super::observe::NAME;
use super::plan::{ServicePlan, Want};
use crate::cache::Apis;
use crate::controllers::report::{component, publish, recovered};
use crate::kube::{ObjectReference, PastEvent};
use crate::provider::{Change, ChangeKind, Finding, Reason};
use jiff::Timestamp;
use std::borrow::Borrow;
use std::collections::HashMap;
use std::sync::Arc;

/// As upstream's events are signed.
const EVENT_COMPONENT: &str = "service-controller";

const ENSURED: &str = "Ensured load balancer";

pub(super) fn findings(apis: &Apis, plan: &ServicePlan) {
    report(apis, &plan.object, plan.all_findings());
    let is_right = plan.cloud.obstacle.is_none()
        && plan.cloud.changes.is_empty()
        && !plan.cloud.is_unfinished
        && !plan.all_findings().any(|one| one.reason.is_failure())
        && plan.want == Want::Ensure;
    // Without a change nothing else says that the failure is over.
    if is_right && recovered(apis, source(apis), &plan.object) {
        let ensured = Finding::info(Reason::EnsuredLoadBalancer, ENSURED);
        report(apis, &plan.object, [ensured]);
    }
}

/// The events of changes of one kind: when they begin, when all were made (reason and message), and when one failed.
type EventsOf = (
    Option<(Reason, &'static str)>,
    Option<(Reason, &'static str)>,
    Reason,
);

fn events_of(kind: ChangeKind) -> EventsOf {
    match kind {
        ChangeKind::Settings => (
            Some((Reason::EnsuringLoadBalancer, "Ensuring load balancer")),
            Some((Reason::EnsuredLoadBalancer, ENSURED)),
            Reason::SyncLoadBalancerFailed,
        ),
        ChangeKind::Targets => (
            None,
            Some((
                Reason::UpdatedLoadBalancer,
                "Updated load balancer with new hosts",
            )),
            Reason::UpdateLoadBalancerFailed,
        ),
        ChangeKind::Removal => (
            Some((Reason::DeletingLoadBalancer, "Deleting load balancer")),
            Some((Reason::DeletedLoadBalancer, "Deleted load balancer")),
            Reason::DeleteLoadBalancerFailed,
        ),
        // Its last change reports its end: see `changed`.
        ChangeKind::Release => (None, None, Reason::DeleteLoadBalancerFailed),
    }
}

/// Before the first change in the cloud.
pub(super) fn begin(apis: &Apis, plan: &ServicePlan, kind: ChangeKind) {
    let finding = events_of(kind)
        .0
        .map(|(reason, text)| Finding::info(reason, text));
    report(apis, &plan.object, finding);
}

/// After one change that is an event by itself.
pub(super) fn changed(apis: &Apis, plan: &ServicePlan, change: &dyn Change) {
    if let Some(finding) = change.event() {
        report(apis, &plan.object, [&finding]);
    }
}

/// After the last one.
pub(super) fn done(apis: &Apis, plan: &ServicePlan, kind: ChangeKind) {
    let finding = events_of(kind)
        .1
        .map(|(reason, text)| Finding::info(reason, text));
    report(apis, &plan.object, finding);
}

pub(super) fn failed(apis: &Apis, object: &ObjectReference, reason: Reason, why: &str) {
    let finding = Finding::warning(reason, why);
    report(apis, object, [finding]);
}

/// The reason of a failure.
pub(super) fn reason_of_failure(kind: ChangeKind) -> Reason {
    events_of(kind).2
}

fn report(
    apis: &Apis,
    object: &ObjectReference,
    findings: impl IntoIterator<Item = impl Borrow<Finding>>,
) {
    publish(apis, source(apis), object, findings);
}

fn source(apis: &Apis) -> &'static str {
    component(apis, EVENT_COMPONENT, NAME)
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
    /// `12 s ago`, `5 min ago`.
    pub fn ago(&self) -> String {
        let seconds = |at: Timestamp| Timestamp::now().as_second() - at.as_second();
        match self.at.map(seconds) {
            None => "some time ago".to_owned(),
            Some(seconds) if seconds < 120 => format!("{} s ago", seconds.max(0)),
            Some(seconds) => format!("{} min ago", seconds / 60),
        }
    }
}
