//! Decides when a controller compares its objects with the cloud and when it tries failed objects again. Also decides
//! how old the data for a plan may be, and how urgent the API calls for new data are. The controllers of nodes, routes
//! and Services use this module.

use super::backoff::Backoff;
use crate::provider::{Urgency, clock};
use std::time::{Duration, Instant};

/// The last plan for a load balancer kept a target that should be removed, e.g. because too few other targets were
/// healthy. This is the greatest age of the data for a new plan, which may find that the target can be removed now.
const KEPT_MAX_AGE: Duration = Duration::from_secs(30);

/// A load balancer is being replaced, and the replacement waits, e.g. for healthy targets. This is the greatest age of
/// the data for a new plan, which may find that the replacement can go on now.
const AWAITED_MAX_AGE: Duration = Duration::from_secs(10);

/// When a controller last compared its objects with the cloud and last wrote to the cloud, and when it must try failed
/// objects again.
#[derive(Default)]
pub(super) struct Schedule {
    /// The objects whose last plan failed, each with the time of its next try.
    pub(super) backoff: Backoff,
    /// The time at which all objects were last compared with the cloud. `None` means that they were never compared.
    pub(super) compared: Option<Instant>,
    /// The time of the last write to the cloud, or `None` before the first write. Data that were requested before the
    /// last write may not show its effect, so they are read again for the next plan.
    pub(super) last_write: Option<Instant>,
}

/// The reason why a plan for an object is made. When there are several reasons, the first of them in the order of this
/// enum is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Why {
    /// A person has asked for this object or for all objects, e.g. by a command.
    Asked,
    /// The object is new, or has changed since its last plan.
    Changed,
    /// The last plan is out of date. Either its changes were not all made, or an object on which it depends has
    /// changed, e.g. a node.
    Overtaken,
    /// The last try failed, and the wait after that failure is over.
    Retried,
    /// The last plan kept a target that should be removed, e.g. because its node will stop soon. A new plan is made,
    /// because the health of the other targets may have changed, so that the target can be removed now.
    Kept,
    /// The replacement of the load balancer waits, e.g. for healthy targets. A new plan is made, because the
    /// replacement may be able to go on now.
    Awaited,
    /// The regular comparison of all objects with the cloud is due.
    Compared,
}

/// How old the data from the cloud may be for a plan, and how urgent the API calls for new data are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reads {
    /// The greatest age of the data from the cloud, counted from the API call that requested them. Older data are read
    /// again.
    pub(super) max_age: Duration,
    pub(super) urgency: Urgency,
}

impl Schedule {
    /// Whether at least `period` has passed since all objects were last compared with the cloud, or whether they were
    /// never compared.
    pub(super) fn is_comparison_due(&self, period: Duration, now: Instant) -> bool {
        self.compared.is_none_or(|last| now.duration_since(last) >= period)
    }

    /// Returns how old the data from the cloud may be for plans with these reasons, and how urgent the API calls for
    /// new data are. `period` is the time between two regular comparisons of all objects with the cloud.
    pub(super) fn reads(&self, whys: impl Iterator<Item = Why> + Clone, period: Duration) -> Reads {
        let ages = whys.clone().map(|why| why.reads(period).max_age);
        let since_write = self.last_write.map(clock::since);
        Reads {
            max_age: ages.chain(since_write).min().unwrap_or(Duration::MAX),
            urgency: whys.min().map_or(Urgency::CanWait, |why| why.reads(period).urgency),
        }
    }
}

impl Why {
    /// Returns how old the data may be for a plan with this reason, and how urgent the API calls for new data are. For
    /// a changed object, cached data of any age are enough, because everything is read again before a write. With
    /// `Kept`, `Awaited` and `Compared`, the calls can be delayed when few calls are left under the rate limit.
    fn reads(self, period: Duration) -> Reads {
        let (max_age, urgency) = match self {
            Why::Asked => (Duration::ZERO, Urgency::Asked),
            Why::Changed | Why::Overtaken | Why::Retried => (Duration::MAX, Urgency::Changed),
            Why::Kept => (KEPT_MAX_AGE, Urgency::CanWait),
            Why::Awaited => (AWAITED_MAX_AGE, Urgency::CanWait),
            Why::Compared => (period / 2, Urgency::CanWait),
        };
        Reads { max_age, urgency }
    }
}
