//! The replacement of a load balancer by a new one. The old and the new load balancer both serve for a while, and then
//! the old one is deleted. Labels say how far the replacement is. This file decides the next step as a pure function.
//!
//! In the table, a status is the status of a Service, and T is a time in UNIX seconds. [`takes_over`] says whether a
//! load balancer can take over the traffic of the other one. `overlap` is a label of the new load balancer. The step
//! `overlap: serves` gives this label the value `serves`.
//!
//! | label `replace` of the old one | label `overlap` | the status names | the next step, and the condition for it |
//! |---|---|---|---|
//! | present | no new one exists | the old one | the new one is created, with the label `replaces` |
//! | present | absent | the old one | `overlap: serves`, when the new one can take over |
//! | present | `serves` | the new one | `overlap: serves.T`, when no status shows an address of the old one |
//! | present | `serves.T` | the new one | the old one is deleted or released, after T, when the new one can take over |
//! | present | `leaves`, `leaves.T` | the old one | `overlap: serves`, when the new one can take over |
//! | absent | absent | the old one | the new one is deleted or released, when no status shows an address of it |
//! | absent | `serves`, `serves.T` | the new one | `overlap: leaves`, when the old one can take over |
//! | absent | `leaves` | the old one | `overlap: leaves.T`, when no status shows an address of the new one |
//! | absent | `leaves.T` | the old one | the new one is deleted or released, after T, when the old one can take over |
//!
//! A load balancer is deleted or released only when no status shows an address of it. When the old one does not exist
//! any more, the labels `replaces` and `overlap` of the new one are removed.

use super::facts::is_in_status;
use super::index::Balancers;
use super::labels::{Labelled, Ownership, REPLACE, REPLACES};
use crate::hetzner::load_balancers::model::balancer::LoadBalancer;
use crate::provider::Service;
use crate::text::duration::overlap;
use std::fmt;

#[cfg(test)]
mod tests;

/// For how long a new load balancer stays after the replacement was aborted, because clients may still know its
/// addresses. The time is in seconds.
const ABORTED_FOR_S: i64 = 3600;

/// One of the two load balancers of a replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Old,
    New,
}

/// How far a replacement is, according to the label `overlap` of the new load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overlap {
    /// The load balancer whose addresses the status of the Service should have. The label `overlap` says this: it
    /// begins with `serves` for the new one, and with `leaves` for the old one after the replacement was aborted.
    /// `None` when the label is absent, because the new load balancer was not used yet.
    pub(crate) serving: Option<Side>,
    /// The time in UNIX seconds until which both load balancers serve. From then on, the load balancer that no status
    /// names any more can be removed. `None` while this time is not decided yet.
    pub(crate) ends: Option<i64>,
}

/// Two load balancers of one Service or group, of which the new one replaces the old one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair<'a> {
    pub(crate) old: Labelled<'a>,
    pub(crate) new: Labelled<'a>,
    pub(crate) overlap: Overlap,
}

/// The facts that decide the next step of a replacement. When a field has two values, the first is about the old load
/// balancer, and the second about the new one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplacementFacts {
    pub(crate) overlap: Overlap,
    /// Whether the old load balancer has the label `replace`. Without the label, the replacement is aborted.
    pub(crate) is_asked: bool,
    /// How long the old and the new load balancer shall both serve, in seconds. `None` when the label `replace` has no
    /// valid duration.
    pub(crate) seconds: Option<i64>,
    pub(crate) takes_over: (bool, bool),
    /// Whether the status of any Service shows an address of the old load balancer, and the same for the new one.
    /// `None` when the statuses of the Services were not read just now.
    pub(crate) is_shown: Option<(bool, bool)>,
    /// The time of the API in UNIX seconds. `None` when the API did not tell it.
    pub(crate) now: Option<i64>,
}

/// The next step of a replacement for which both load balancers exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplacementStep {
    /// The label `overlap` of the new load balancer gets this value.
    Mark(Overlap),
    /// This load balancer is deleted or released.
    Remove(Side),
    /// All Services must be read, because their statuses decide about the step.
    ReadServices,
    /// Nothing is done until this load balancer can take over.
    WaitForHealth(Side),
    /// Nothing is done while the status of a Service shows an address of this load balancer.
    WaitForStatus(Side),
    /// Both load balancers serve until this time in UNIX seconds.
    WaitForTime(i64),
    /// Nothing is done, because the step needs the present time and the API did not tell it.
    WaitForClock,
    /// Nothing is done, because the label `replace` has no valid duration.
    WaitForDuration,
}
use ReplacementStep::{
    Mark, ReadServices, Remove, WaitForClock, WaitForDuration, WaitForHealth, WaitForStatus,
    WaitForTime,
};

impl Overlap {
    /// Parses the value of the label `overlap`. `None` when the value is invalid.
    pub(crate) fn parse(label: Option<&str>) -> Option<Overlap> {
        let Some(text) = label else {
            return Some(Overlap { serving: None, ends: None });
        };
        let (word, ends) = match text.split_once('.') {
            Some((word, time)) => (word, Some(time.parse().ok().filter(|time| *time >= 0)?)),
            None => (text, None),
        };
        let serving = match word {
            "serves" => Side::New,
            "leaves" => Side::Old,
            _ => return None,
        };
        Some(Overlap { serving: Some(serving), ends })
    }
}

/// Writes the value of the label `overlap`.
impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.serving == Some(Side::New) { "serves" } else { "leaves" })?;
        self.ends.map_or(Ok(()), |time| write!(f, ".{time}"))
    }
}

impl Side {
    pub(crate) fn other(self) -> Side {
        if self == Side::Old { Side::New } else { Side::Old }
    }

    /// Returns the value for this side of a replacement. The first value is about the old load balancer, and the second
    /// about the new one.
    pub(crate) fn of<T>(self, (old, new): (T, T)) -> T {
        if self == Side::Old { old } else { new }
    }
}

impl<'a> Pair<'a> {
    pub(crate) fn get(&self, side: Side) -> Labelled<'a> {
        side.of((self.old, self.new))
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.old.ownership.replacement.replace.is_some()
    }

    /// Whether the old load balancer can take over all traffic from the new one, and whether the new one can take it
    /// over from the old one.
    pub(crate) fn takes_over(&self) -> (bool, bool) {
        (takes_over(self.old, self.new), takes_over(self.new, self.old))
    }

    /// Returns the load balancer whose addresses the status of the Service should have, as the label `overlap` says it.
    ///
    /// Somebody may have removed this label while the status already has an address of the new load balancer. The
    /// result is then the new one. It is the old one only when the replacement was aborted and the old one can take
    /// over the traffic.
    pub(crate) fn serving(&self, service: &Service) -> Side {
        let stays = || self.is_asked() || !takes_over(self.old, self.new);
        let is_lost = self.overlap.serving.is_none() && is_in_status(service, self.new);
        if is_lost && stays() { Side::New } else { self.overlap.serving.unwrap_or(Side::Old) }
    }
}

/// The load balancer of a replacement that stays when the other load balancer is deleted or released.
#[derive(Clone, Debug)]
pub(crate) struct Successor {
    pub(crate) id: u64,
    seen: Ownership,
    /// Whether this load balancer must be able to take over the traffic of the load balancer that is removed. This is
    /// not necessary when the removed one was never used.
    must_take_over: bool,
}

impl Successor {
    pub(crate) fn of(pair: &Pair, leaves: Side) -> Successor {
        let stays = pair.get(leaves.other());
        let must_take_over = pair.overlap.serving.is_some();
        Successor { id: stays.id, seen: stays.ownership.clone(), must_take_over }
    }

    /// Whether the load balancer `leaves` can be removed, because `stays` still has the same labels and can take over
    /// if it must. Both must have been read just now.
    pub(crate) fn allows(&self, stays: &LoadBalancer, leaves: &LoadBalancer) -> bool {
        let owners = [stays, leaves].map(|balancer| Ownership::read(&balancer.labels));
        let now = Labelled { balancer: stays, ownership: &owners[0] };
        let then = Labelled { balancer: leaves, ownership: &owners[1] };
        owners[0] == self.seen && (!self.must_take_over || takes_over(now, then))
    }
}

/// Returns the time in seconds for which both load balancers of a replacement shall serve. It is read from the label
/// `replace` of the old one.
pub(crate) fn asked_seconds(old: Labelled) -> Option<Result<i64, String>> {
    let label = old.ownership.replacement.replace.as_deref()?;
    let seconds = overlap(label).map(i64::from);
    let why = |why| {
        format!("label {REPLACE}={label} of load balancer {} is not valid ({why})", old.shown())
    };
    Some(seconds.map_err(why))
}

/// Whether the load balancer `stays` can take over all traffic of `leaves`. For each port of `leaves`, `stays` must
/// have the same port with the same owner and at least as many healthy targets. At least one port of `stays` must have
/// a healthy target. Both load balancers must come from one answer of the API.
pub(crate) fn takes_over(stays: Labelled, leaves: Labelled) -> bool {
    lacking(stays, leaves).next().is_none()
        && stays.services.iter().any(|port| healthy(&stays, port.listen_port) > 0)
}

/// Returns the ports of the load balancer `leaves` that `stays` does not have, or has with another owner or with fewer
/// healthy targets.
pub(crate) fn lacking<'a>(
    stays: Labelled<'a>,
    leaves: Labelled<'a>,
) -> impl Iterator<Item = u16> + 'a {
    let is_served = move |number: u16| {
        stays.listener(number).is_some()
            && stays.ownership.ports.get(&number) == leaves.ownership.ports.get(&number)
            && healthy(&stays, number) >= healthy(&leaves, number)
    };
    let ports = leaves.balancer.services.iter().map(|port| port.listen_port);
    ports.filter(move |port| !is_served(*port))
}

/// Counts the targets that are healthy on this port.
fn healthy(balancer: &LoadBalancer, port: u16) -> usize {
    let checks = balancer.targets.iter().flat_map(|target| target.machines());
    let checks = checks.flat_map(|(_, checks)| checks);
    checks.filter(|check| check.listen_port == port && check.status == "healthy").count()
}

/// Whether the load balancer takes part in a replacement, and the statuses of the Services should name the other load
/// balancer of the replacement. Only labels decide this.
pub(crate) fn is_beside(balancer: Labelled, balancers: Balancers) -> bool {
    let serves = |new: Labelled| {
        let overlap = Overlap::parse(new.ownership.replacement.overlap.as_deref());
        overlap.is_some_and(|overlap| overlap.serving == Some(Side::New))
    };
    match balancer.ownership.replacement.replaces.as_ref().map(|id| id.parse()) {
        Some(id) => !serves(balancer) && id.is_ok_and(|id| balancers.with_id(id).is_some()),
        None => balancers.labelled(REPLACES, &balancer.id.to_string()).into_iter().any(serves),
    }
}

/// Returns the next step of a replacement for which both load balancers exist.
pub(crate) fn next_step(facts: &ReplacementFacts) -> ReplacementStep {
    let stays = if facts.is_asked { Side::New } else { Side::Old };
    let leaves = stays.other();
    let is_healthy = stays.of(facts.takes_over);
    let unless_shown = |then| match facts.is_shown.map(|shown| leaves.of(shown)) {
        None => ReadServices,
        Some(true) => WaitForStatus(leaves),
        Some(_) => then,
    };
    let Overlap { serving, ends } = facts.overlap;
    let seconds = if facts.is_asked { facts.seconds } else { Some(ABORTED_FOR_S) };
    match (ends, seconds, facts.now) {
        // The replacement was aborted before the new load balancer was used. So the new load balancer is removed.
        _ if serving.is_none() && !facts.is_asked => unless_shown(Remove(leaves)),
        _ if serving != Some(stays) && !is_healthy => WaitForHealth(stays),
        _ if serving != Some(stays) => Mark(Overlap { serving: Some(stays), ends: None }),
        (None, None, _) => unless_shown(WaitForDuration),
        (None, _, None) => unless_shown(WaitForClock),
        (None, Some(seconds), Some(now)) => {
            unless_shown(Mark(Overlap { serving, ends: Some(now.saturating_add(seconds)) }))
        }
        (Some(_), _, None) => WaitForClock,
        (Some(ends), _, Some(now)) if now < ends => WaitForTime(ends),
        (Some(_), _, Some(_)) if !is_healthy => WaitForHealth(stays),
        (Some(_), _, Some(_)) => unless_shown(Remove(leaves)),
    }
}
