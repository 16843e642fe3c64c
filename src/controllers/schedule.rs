//! Decides when objects are compared and tried again, how old the data for their plans may be, and how urgent the calls
//! for these data are. The controllers of nodes, routes and Services use it.

use super::backoff::Backoff;
use crate::provider::{Urgency, clock};
use std::time::{Duration, Instant};

/// The moments at which a controller did its last work.
#[derive(Default)]
pub(super) struct Schedule {
    /// The objects whose last plan failed, each with its next try.
    pub(super) backoff: Backoff,
    /// The moment when all objects were compared last.
    pub(super) compared: Option<Instant>,
    /// The moment of the last write to the cloud. Data that were requested before it are too old.
    pub(super) last_write: Option<Instant>,
}

/// The reason why an object is planned. When there are several reasons, the first one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Why {
    /// A person asked for the pass, or the pass covers all objects.
    Asked,
    /// The object was not planned before, or has changed since.
    Changed,
    /// The last plan is out of date because other objects on which it rests have changed, or the last plan was
    /// not carried out.
    Overtaken,
    /// The last try failed, and the wait after it is over.
    Retried,
    /// All objects are compared with the cloud.
    Compared,
}

/// How data are read from the cloud for plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reads {
    /// Data that are older than this are read again.
    pub(super) max_age: Duration,
    pub(super) urgency: Urgency,
}

impl Schedule {
    /// Whether it is time to compare all objects.
    pub(super) fn is_comparison_due(&self, period: Duration, now: Instant) -> bool {
        self.compared.is_none_or(|last| now.duration_since(last) >= period)
    }

    /// Returns how the cloud is read for plans that are made for these reasons. `period` is the time between two
    /// comparisons of all objects.
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
    /// Returns how old the data for a plan may be, and how urgent their calls are. A plan for a changed object may rest
    /// on the data that were read last, because everything is read again before a write. Calls for unchanged objects
    /// can be put off, and calls for a changed object can't.
    fn reads(self, period: Duration) -> Reads {
        let (max_age, urgency) = match self {
            Why::Asked => (Duration::ZERO, Urgency::Asked),
            Why::Changed | Why::Overtaken | Why::Retried => (Duration::MAX, Urgency::Changed),
            Why::Compared => (period / 2, Urgency::CanWait),
        };
        Reads { max_age, urgency }
    }
}
