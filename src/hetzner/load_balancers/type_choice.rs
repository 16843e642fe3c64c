//! Decides which type a load balancer should have. The annotation `type` or its default names the type, or leaves the
//! choice to this program by the word `auto`. The annotation `type-max`, the Namespace and the settings can each name a
//! largest type, and the load balancer gets no larger type than these.

use super::annotations::parser::AnnotationParser;
use super::annotations::{self as a, values::AUTO};
use super::checks::certificates;
use super::desired::{CreationPlace, Desired};
use super::diff::primary_ips;
use super::diff::subnets::zone_of;
use super::diff::targets::target_demand;
use super::diff::wanted_place;
use super::model::balancer::BalancerType;
use super::ownership::context::{PlanContext, default_source};
use super::ownership::labels::Labelled;
use super::sizes::{Demand, Offers, TypeChoice};
use crate::provider::{CheaperType, Finding, Reason, Sizing, Source, Sourced};
use crate::text;
use std::sync::LazyLock;

/// The type of a new load balancer when neither an annotation nor a default names a type, and the list of types could
/// not be read.
static USUAL_TYPE: LazyLock<BalancerType> = LazyLock::new(|| BalancerType {
    name: "lb11".to_owned(),
    max_targets: 25,
    max_services: 5,
    max_assigned_certificates: 10,
    ..BalancerType::default()
});

const NONE_OFFERED: &str = "the location or network zone that is set offers no load balancer type, or only types \
                            larger than the limit (type-max). Set another location, network zone or limit";

/// The largest type that a load balancer may get. It is the smallest of the types in the annotation `type-max`, the
/// default of the Namespace and the environment variable.
enum Limit<'a> {
    None,
    Type(&'a BalancerType, Source),
    /// The largest allowed type can't be found out, because no type has the name that is set as the limit, or because
    /// the list of types or the annotation of the Namespace could not be read. So no load balancer gets another type.
    Unknown,
}

/// Returns the type that the load balancer should have. `there` is the existing load balancer, or `None` when a new one
/// will be created. A type that does not exist is reported. The result is `None` when no load balancer will be created,
/// or when no type can be chosen.
pub(super) fn type_choice<'a>(
    parser: &mut AnnotationParser,
    context: &PlanContext<'a>,
    desired: &Desired,
    there: Option<Labelled<'a>>,
) -> Option<TypeChoice<'a>> {
    let present = there.map(|labelled| &labelled.balancer.load_balancer_type);
    let choice = match (desired.kind(), present) {
        (Some(auto), _) if auto.value == AUTO => chosen(parser, context, desired, auto, there),
        (Some(named), _) => named_type(parser, context, desired, named, present),
        (None, Some(present)) => Some(TypeChoice::of(present, None)),
        // No load balancer was found, and none will be created, so no type is needed. There are two cases. The Service
        // asks for an external load balancer (one that somebody else made). Or the Service shares a load balancer, but
        // no Service is allowed to decide about its settings.
        (None, None) if context.group.is_external() || context.group.has_no_decider() => None,
        (None, None) => usual(parser, context, desired),
    }?;
    if let Some(deprecation) = &choice.kind.deprecation {
        let why = format!(
            "load balancer type {} is deprecated, and is not available after {}. Choose another type in annotation {}",
            choice.kind.name,
            deprecation.unavailable_after,
            a::TYPE.key()
        );
        parser.warning(Reason::LoadBalancerTypeDeprecated, why);
    }
    Some(choice)
}

/// Returns the type `named`, which an annotation or a setting names. When this type is larger than the largest allowed
/// type, the largest allowed type is returned. An existing load balancer that is already larger than allowed keeps its
/// present type instead.
fn named_type<'a>(
    parser: &mut AnnotationParser,
    context: &PlanContext<'a>,
    desired: &Desired,
    named: &Sourced<String>,
    present: Option<&'a BalancerType>,
) -> Option<TypeChoice<'a>> {
    let Some(kind) = find(context, &named.value, present) else {
        context.observed.types.as_ref()?;
        let kept = present.filter(|_| matches!(named.source, Source::Namespace(_)));
        keep_or_refuse(parser, unknown_type(context, named), kept);
        return present.map(|present| TypeChoice::of(present, Some(named.source.clone())));
    };
    let limited = match limit(parser, context, desired, present) {
        Limit::Type(most, source) if kind.size() > most.size() => {
            let kept = present.filter(|present| present.size() > most.size());
            let then = match kept {
                Some(_) => "the load balancer keeps its present type, which is also too large:",
                None => "ccm chooses type",
            };
            let limited = kept.unwrap_or(most);
            let why = format!(
                "{}: type {} is larger than the largest allowed type {} ({source}), so {then} {}. Choose a type \
                 within the limit, or change the limit",
                named.source, kind.name, most.name, limited.name
            );
            parser.warning(Reason::AnnotationWithoutEffect, why);
            limited
        }
        Limit::Unknown => present?,
        _ => kind,
    };
    Some(TypeChoice::of(limited, Some(named.source.clone())))
}

/// Returns the type of a new load balancer for which neither an annotation nor a default sets a type: the cheapest type
/// that is offered at its location or in its network zone.
fn usual<'a>(
    parser: &mut AnnotationParser,
    context: &PlanContext<'a>,
    desired: &Desired,
) -> Option<TypeChoice<'a>> {
    let types = context.observed.types.as_deref().map(Vec::as_slice);
    let largest = match limit(parser, context, desired, None) {
        Limit::None => None,
        Limit::Type(most, _) => Some(most),
        Limit::Unknown => {
            report_unread(parser, context, None);
            return None;
        }
    };
    let is_place = place(context, desired, None, types.unwrap_or_default(), largest);
    let of = |largest| Offers { types: types.unwrap_or_default(), is_place: &is_place, largest };
    let choose = |largest| of(largest).choose(&Demand::default(), None);
    // When no type at all is offered at the place (location or network zone), the place is probably wrong. The plan
    // then contains the first type of the list, so that the user gets an error about the place and not about the type.
    let any = || types?.first().filter(|_| choose(None).is_none());
    let kind = choose(largest).or_else(any);
    if kind.is_none() && types.is_some() {
        parser.whole_problem(NONE_OFFERED.to_owned());
        return None;
    }
    let price = kind.map(|kind| format!(" ({})", of(None).price_text(kind))).unwrap_or_default();
    let kind = kind.unwrap_or(&USUAL_TYPE);
    let message = format!(
        "no load balancer type is set, so ccm creates a load balancer of type {}{price}. To get another type, set \
         annotation {}",
        kind.name,
        a::TYPE.key()
    );
    parser.finding(Finding::info(Reason::LoadBalancerTypeUnconfigured, message));
    let needs_list = context.observed.are_types_old;
    let choice = TypeChoice { needs_list, ..TypeChoice::of(kind, Some(default_source(&a::TYPE))) };
    Some(choice).filter(|_| types.is_some() || !context.observed.is_for_manifests)
}

/// Returns the type that this program chooses with `type: auto`.
fn chosen<'a>(
    parser: &mut AnnotationParser,
    context: &PlanContext<'a>,
    desired: &Desired,
    auto: &Sourced<String>,
    there: Option<Labelled<'a>>,
) -> Option<TypeChoice<'a>> {
    let present = there.map(|labelled| &labelled.balancer.load_balancer_type);
    let demand = demand(context, desired, there);
    let limit = limit(parser, context, desired, present);
    let types = context.observed.types.as_deref().map(Vec::as_slice);
    let types = types.filter(|_| !matches!(limit, Limit::Unknown));
    let largest = match limit {
        Limit::Type(most, _) => Some(most),
        Limit::None | Limit::Unknown => None,
    };
    let all = types.unwrap_or_default();
    let is_place = place(context, desired, there, all, largest);
    let offers = Offers { types: all, is_place: &is_place, largest };
    let is_too_small = present.is_some_and(|present| !demand.fits(present));
    if types.is_none() && (present.is_none() || is_too_small) {
        report_unread(parser, context, present);
    }
    let Some(kind) = offers.choose(&demand, present) else {
        if types.is_some() {
            parser.whole_problem(format!("{}: {NONE_OFFERED}", auto.source));
        }
        return None;
    };
    let changes = present.is_none_or(|present| present.name != kind.name);
    let text = demand.text(present);
    let cheaper = offers.cheaper(&demand, kind).filter(|_| !changes);
    let cheaper = cheaper.zip(cheaper.and_then(|kind| offers.price(kind)));
    let source = auto.source.with_detail(&format!("auto: {}", demand.text(None)));
    Some(TypeChoice {
        reason: changes.then(|| match present {
            None => format!("type {} for {text}, {}", kind.name, offers.price_text(kind)),
            Some(present) => format!(
                "type {} becomes {}, because {} has no room for {text} (new price: {}, old price: {})",
                present.name,
                kind.name,
                present.name,
                offers.price_text(kind),
                offers.price_text(present)
            ),
        }),
        sizing: Some(Sizing {
            targets: demand.targets,
            ports: demand.ports,
            certificates: demand.certificates,
            cheaper: cheaper
                .map(|(kind, price)| CheaperType { kind: kind.name.clone(), monthly_price: price }),
        }),
        needs_list: changes && context.observed.are_types_old,
        is_unfinished: context.observed.types.is_none() && is_too_small,
        ..TypeChoice::of(kind, Some(source))
    })
}

/// Returns the numbers of targets, ports and certificates for which the load balancer must have room. Nodes that are
/// not ready count, too. The present type of the load balancer does not change the numbers.
fn demand(context: &PlanContext, desired: &Desired, there: Option<Labelled>) -> Demand {
    Demand {
        targets: target_demand(context, desired, there),
        ports: context.group.wanted_ports(there).len(),
        certificates: certificates(desired, there, Some(&context.group)),
    }
}

/// Returns a function that says whether a location is the place of the load balancer, i.e. the location where it exists
/// or where it will be created. When only the network zone of a new load balancer is known, each location in this zone
/// counts, and so does a location whose zone is not known. When neither is known, every location counts. `types` and
/// `largest` (the largest allowed type) are used for `location: auto`, which chooses a location that offers an allowed
/// type.
fn place<'a>(
    context: &PlanContext<'a>,
    desired: &Desired,
    there: Option<Labelled>,
    types: &[BalancerType],
    largest: Option<&BalancerType>,
) -> impl Fn(&str) -> bool + use<'a> {
    let nodes = context.nodes;
    let is_offered =
        |location: &str| Offers { types, is_place: &|it| it == location, largest }.has_any();
    let place = match (there, &desired.whole) {
        (Some(balancer), _) => (Some(balancer.location.name.to_string()), None),
        (None, Some(whole)) => {
            let of_addresses = primary_ips::location(context, whole);
            let CreationPlace { location, zone } =
                wanted_place(context, desired, of_addresses, &is_offered);
            let location = location.filter(|set| set.value != AUTO);
            (location.map(|set| set.value), zone.map(|set| set.value))
        }
        (None, None) => (None, None),
    };
    move |location: &str| match &place {
        (Some(wanted), _) => wanted == location,
        (None, Some(zone)) => zone_of(location, nodes).is_none_or(|it| it == zone),
        (None, None) => true,
    }
}

/// Returns the largest type that the load balancer is allowed to have: the smallest of the types that annotations and
/// settings name as limits. A limit that is not the name of a type is reported.
fn limit<'a>(
    parser: &mut AnnotationParser,
    context: &PlanContext<'a>,
    desired: &Desired,
    present: Option<&'a BalancerType>,
) -> Limit<'a> {
    if context.is_unknown(&a::TYPE_MAX) {
        return Limit::Unknown;
    }
    let mut smallest = Limit::None;
    for set in desired.whole.iter().flat_map(|whole| &whole.kind.limits) {
        let Some(kind) = find(context, &set.value, present) else {
            if context.observed.types.is_some() {
                let why = unknown_type(context, set);
                keep_or_refuse(parser, why, present);
            }
            return Limit::Unknown;
        };
        let is_smaller = match &smallest {
            Limit::Type(least, _) => kind.size() < least.size(),
            Limit::None | Limit::Unknown => true,
        };
        if is_smaller {
            smallest = Limit::Type(kind, set.source.clone());
        }
    }
    smallest
}

/// Returns the type with this name: the present type of the load balancer, or one of the list.
fn find<'a>(
    context: &PlanContext<'a>,
    name: &str,
    present: Option<&'a BalancerType>,
) -> Option<&'a BalancerType> {
    let is_it = |kind: &&BalancerType| kind.name == name;
    let types = || context.observed.types.as_deref()?.iter().find(is_it);
    present.filter(is_it).or_else(types)
}

/// Reports `why`, which says that an annotation or a default names a type that does not exist. `kept` is the present
/// type of the load balancer. With it, there is only a warning: the load balancer keeps this type, and its other
/// settings are still changed. With `None`, a problem is reported, and no settings of the whole load balancer are
/// changed.
fn keep_or_refuse(parser: &mut AnnotationParser, why: String, kept: Option<&BalancerType>) {
    if kept.is_none() {
        return parser.whole_problem(why);
    }
    let why = format!("{why}. Until this is corrected, the load balancer keeps its type");
    parser.warning(Reason::AnnotationWithoutEffect, why);
}

fn unknown_type(context: &PlanContext, set: &Sourced<String>) -> String {
    let types = context.observed.types.as_deref().map(Vec::as_slice).unwrap_or_default();
    let names: Vec<&str> = types.iter().map(|kind| kind.name.as_str()).collect();
    format!(
        "{}: there is no load balancer type {}; use {}",
        set.source,
        text::quoted(&set.value),
        text::one_of(&names)
    )
}

/// Reports that no type can be chosen, because the list of types could not be read. An existing load balancer keeps its
/// type until the list is read.
fn report_unread(
    parser: &mut AnnotationParser,
    context: &PlanContext,
    present: Option<&BalancerType>,
) {
    let Some(error) = &context.observed.types_error else {
        return;
    };
    let why = format!(
        "ccm can't choose a load balancer type, because the list of types could not be read: {error}"
    );
    match present {
        None => parser.whole_problem(why),
        Some(_) => {
            parser.warning(
                Reason::SyncLoadBalancerFailed,
                format!("{why}. ccm tries again. Until then, the load balancer keeps its type"),
            );
        }
    }
}
