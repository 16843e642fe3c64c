//! What events say of the last try to bring a Service's load balancer in order: what `events` wrote, read back for
//! people.

use crate::kube::PastEvent;
use crate::provider::Reason;
use jiff::Timestamp;
use std::collections::HashMap;
use std::sync::Arc;

/// The last try, where it failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedTry {
    pub reason: String,
    pub message: String,
    pub at: Option<Timestamp>,
}

const FAILED: [Reason; 4] = [
    Reason::LoadBalancerNotAdopted,
    Reason::SyncLoadBalancerFailed,
    Reason::UpdateLoadBalancerFailed,
    Reason::DeleteLoadBalancerFailed,
];

const DONE: [Reason; 3] = [
    Reason::EnsuredLoadBalancer,
    Reason::UpdatedLoadBalancer,
    Reason::DeletedLoadBalancer,
];

/// By UID of the Service.
pub fn failed_tries(events: &[Arc<PastEvent>]) -> HashMap<String, FailedTry> {
    let is_one_of = |reasons: &[Reason], event: &PastEvent| {
        reasons.iter().any(|reason| reason.name() == event.reason)
    };
    let ends = |event: &&Arc<PastEvent>| is_one_of(&FAILED, event) || is_one_of(&DONE, event);
    let mut ended: Vec<&Arc<PastEvent>> = events.iter().filter(ends).collect();
    // Times are whole seconds; versions grow with each write.
    ended.sort_by_key(|event| {
        let version = event.metadata.resource_version.parse::<u64>();
        (event.at(), version.unwrap_or_default())
    });
    let mut last = HashMap::new();
    for event in ended {
        last.insert(event.involved_object.uid.as_str(), event);
    }
    let failed = last
        .into_iter()
        .filter(|(_, event)| is_one_of(&FAILED, event));
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
