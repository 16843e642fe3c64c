//! Chooses the type of a load balancer from what it must have room for, and from the list of types.
//!
//! | present type | the type that is chosen |
//! |---|---|
//! | none | the cheapest type that fits, or the largest type when none fits |
//! | fits | the present type, even when another type is cheaper |
//! | does not fit | of the types whose limits are all at least as high as those of the present type: the cheapest that fits, or the largest when none of them fits |
//!
//! A load balancer gets no new type that is larger than the annotation `type-max` and its defaults allow, and none
//! without a price in the load balancer's location or network zone. It gets a deprecated type only when no other type
//! fits. The API's list does not contain a type that can't be ordered any more.

use super::model::balancer::BalancerType;
use crate::provider::{Sizing, Source};
use std::cmp::{Ordering, Reverse};

#[cfg(test)]
mod tests;

/// The type that a load balancer should have.
pub(crate) struct TypeChoice<'a> {
    pub(crate) kind: &'a BalancerType,
    /// What sets the type, for display. `None` means that the load balancer keeps its type.
    pub(crate) source: Option<Source>,
    /// The sentence that tells users why `type: auto` creates the load balancer with this type, or lets it grow to this
    /// type. `None` without `type: auto`, or when the type does not change.
    pub(crate) reason: Option<String>,
    /// The numbers of targets, ports and certificates for which the load balancer needs room, and a cheaper type if
    /// there is one, for display. `None` unless the type is `auto`.
    pub(crate) sizing: Option<Sizing>,
    /// Whether the list of types is too old for a request that sets this type. The list must then be read again before
    /// the plan is applied.
    pub(crate) needs_list: bool,
    /// Whether the Service must be planned again soon, because the list of types could not be read.
    pub(crate) is_unfinished: bool,
}

impl<'a> TypeChoice<'a> {
    pub(crate) fn of(kind: &'a BalancerType, source: Option<Source>) -> TypeChoice<'a> {
        TypeChoice {
            kind,
            source,
            reason: None,
            sizing: None,
            needs_list: false,
            is_unfinished: false,
        }
    }
}

/// The numbers of targets, ports and certificates for which a load balancer must have room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Demand {
    pub(crate) targets: usize,
    pub(crate) ports: usize,
    pub(crate) certificates: usize,
}

impl Demand {
    /// Returns the numbers of targets, ports and certificates, each with its name and the highest number that this type
    /// allows.
    fn limits(&self, kind: &BalancerType) -> [(usize, &'static str, usize); 3] {
        [
            (self.targets, "targets", kind.max_targets),
            (self.ports, "ports", kind.max_services),
            (self.certificates, "certificates", kind.max_assigned_certificates),
        ]
    }

    pub(crate) fn fits(&self, kind: &BalancerType) -> bool {
        self.limits(kind).iter().all(|(count, _, most)| count <= most)
    }

    /// Returns the counts (of targets, ports or certificates) that are too high for this type, as text, e.g. `26
    /// targets`. When the type is large enough, the text has all counts that are not zero.
    pub(crate) fn text(&self, kind: Option<&BalancerType>) -> String {
        let too_small = kind.filter(|kind| !self.fits(kind));
        let none = BalancerType::default();
        let limits = self.limits(too_small.unwrap_or(&none));
        let over = limits.iter().filter(|(count, _, most)| count > most);
        let over: Vec<String> = over.map(|(count, what, _)| counted(*count, what)).collect();
        if over.is_empty() { "nothing yet".to_owned() } else { over.join(", ") }
    }
}

/// Returns the count with its noun, e.g. `1 target`. `what` is the noun in the plural, e.g. `targets`.
fn counted(count: usize, what: &str) -> String {
    let noun = if count == 1 { what.trim_end_matches('s') } else { what };
    format!("{count} {noun}")
}

/// The types that a load balancer can get.
pub(crate) struct Offers<'a, 'b> {
    pub(crate) types: &'a [BalancerType],
    /// Whether the load balancer is, or could be created, at this location. When only its network zone is known, the
    /// result is `true` for each location in this zone, and for each location whose zone is not known.
    pub(crate) is_place: &'b dyn Fn(&str) -> bool,
    /// The largest type that the annotation `type-max` and its defaults allow. `None` means that they set no limit.
    pub(crate) largest: Option<&'a BalancerType>,
}

impl<'a> Offers<'a, '_> {
    /// Whether the load balancer can get at least one type: a type that is not larger than `largest`, and that has a
    /// price at a location of the load balancer.
    pub(crate) fn has_any(&self) -> bool {
        self.offered().next().is_some()
    }

    /// Returns the monthly price of the type at the place of the load balancer, without taxes. `None` means that the
    /// type is not offered there.
    pub(crate) fn price(&self, kind: &BalancerType) -> Option<f64> {
        let there = kind.prices.iter().filter(|price| (self.is_place)(&price.location));
        let prices = there.filter_map(|price| price.price_monthly.net.parse::<f64>().ok());
        prices.filter(|price| price.is_finite()).min_by(f64::total_cmp)
    }

    /// Returns the price as text for messages.
    pub(crate) fn price_text(&self, kind: &BalancerType) -> String {
        let known = |price| format!("{price:.2} a month without VAT");
        self.price(kind).map_or_else(|| "price not known".to_owned(), known)
    }

    /// Returns the type that the load balancer should have. `None` when there is no type that it can get.
    pub(crate) fn choose(
        &self,
        demand: &Demand,
        present: Option<&'a BalancerType>,
    ) -> Option<&'a BalancerType> {
        if present.is_some_and(|present| demand.fits(present)) {
            return present;
        }
        let may_be = |kind: &&BalancerType| present.is_none_or(|present| !is_below(kind, present));
        let all: Vec<&BalancerType> = self.offered().filter(may_be).collect();
        let is_larger =
            |kind: &&BalancerType| present.is_none_or(|present| kind.size() > present.size());
        let fits = || all.iter().copied().filter(|kind| demand.fits(kind));
        self.cheapest(fits().filter(|kind| kind.deprecation.is_none()))
            .or_else(|| self.cheapest(fits()))
            .or_else(|| self.largest_of(all.iter().copied().filter(is_larger)))
            .or(present)
    }

    /// Returns the cheapest type that has room for `demand` and costs less than the present type. `None` when there is
    /// no such type.
    pub(crate) fn cheaper(
        &self,
        demand: &Demand,
        present: &BalancerType,
    ) -> Option<&'a BalancerType> {
        let now = self.price(present)?;
        let is_cheaper = |kind: &&BalancerType| {
            let price = self.price(kind);
            demand.fits(kind) && kind.deprecation.is_none() && price.is_some_and(|it| it < now)
        };
        self.cheapest(self.offered().filter(is_cheaper))
    }

    fn offered(&self) -> impl Iterator<Item = &'a BalancerType> {
        let is_within =
            |kind: &BalancerType| self.largest.is_none_or(|largest| kind.size() <= largest.size());
        self.types.iter().filter(move |kind| is_within(kind) && self.price(kind).is_some())
    }

    /// Orders types by price, then by size, then by name.
    fn by_price(&self, one: &BalancerType, other: &BalancerType) -> Ordering {
        let prices = self.price(one).zip(self.price(other));
        let order = prices.map_or(Ordering::Equal, |(one, other)| one.total_cmp(&other));
        order.then_with(|| (one.size(), &one.name).cmp(&(other.size(), &other.name)))
    }

    fn cheapest(&self, types: impl Iterator<Item = &'a BalancerType>) -> Option<&'a BalancerType> {
        types.min_by(|one, other| self.by_price(one, other))
    }

    /// Returns the largest type. Among equally large types, those that are not deprecated come first, then the cheapest.
    fn largest_of(
        &self,
        types: impl Iterator<Item = &'a BalancerType>,
    ) -> Option<&'a BalancerType> {
        let rank = |kind: &BalancerType| (Reverse(kind.size()), kind.deprecation.is_some());
        types.min_by(|one, other| {
            rank(one).cmp(&rank(other)).then_with(|| self.by_price(one, other))
        })
    }
}

/// Whether a limit of `kind` is lower than the same limit of `present`.
fn is_below(kind: &BalancerType, present: &BalancerType) -> bool {
    kind.max_targets < present.max_targets
        || kind.max_services < present.max_services
        || kind.max_assigned_certificates < present.max_assigned_certificates
}
