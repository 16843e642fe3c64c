//! Decides when a controller compares its objects and tries failed objects again, how old the data for a plan may be,
//! and how urgent the API calls for these data are. The controllers of nodes, routes and Services use it.

use super::backoff::Backoff;
use crate::provider::{Urgency, clock};
use std::time::{Duration, Instant};

/// How old the data may be for a plan that looks whether a departing node can be removed from the targets now.
const KEPT_MAX_AGE: Duration = Duration::from_secs(30);

/// When a controller last compared its objects with the cloud and last wrote, and which objects it must try again.
#[derive(Default)]
pub(super) struct Schedule {
    /// The objects whose last plan failed, each with the time of its next try.
    pub(super) backoff: Backoff,
    /// The time at which all objects were last compared with the cloud.
    pub(super) compared: Option<Instant>,
    /// The time of the last write to the cloud. Data that were requested before this write may not show it, so they are
    /// read again for the next plan.
    pub(super) last_write: Option<Instant>,
}

/// The reason why a plan for an object is made. When several reasons apply, the first of these variants counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Why {
    /// A person asked for this object, e.g. by a command, or for all objects.
    Asked,
    /// The object is new, or has changed since its last plan.
    Changed,
    /// The last plan can't be used any more: it was not carried out, or other objects that the plan depends on have
    /// changed.
    Overtaken,
    /// The last try failed, and the wait after that failure is over.
    Retried,
    /// A departing node stays a target, and the health of the other targets may have changed.
    Kept,
    /// It is time for the regular comparison of all objects with the cloud.
    Compared,
}

/// How old the cloud's data for a plan may be, and how urgent the API calls for newer data are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reads {
    /// The greatest age of the data. Older data are read again.
    pub(super) max_age: Duration,
    pub(super) urgency: Urgency,
}

impl Schedule {
    /// Whether the last comparison of all objects is at least `period` ago.
    pub(super) fn is_comparison_due(&self, period: Duration, now: Instant) -> bool {
        self.compared.is_none_or(|last| now.duration_since(last) >= period)
    }

    /// Returns how old the cloud's data may be for plans that are made for these reasons, and how urgent calls for
    /// newer data are. `period` is the time between two comparisons of all objects.
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
    /// Returns how old the data for a plan that is made for this reason may be, and how urgent calls for newer data
    /// are. For a changed object, cached data of any age are enough, because everything is read again before a write.
    /// Only calls for the regular comparison can be put off.
    fn reads(self, period: Duration) -> Reads {
        let (max_age, urgency) = match self {
            Why::Asked => (Duration::ZERO, Urgency::Asked),
            Why::Changed | Why::Overtaken | Why::Retried => (Duration::MAX, Urgency::Changed),
            Why::Kept => (KEPT_MAX_AGE, Urgency::CanWait),
            Why::Compared => (period / 2, Urgency::CanWait),
        };
        Reads { max_age, urgency }
    }
}
