//! Primary IPs: which ones a new load balancer gets, and what is said where that is not to be.
//!
//! A load balancer keeps the addresses that it was made with. So one that can't be had blocks its creation, and is only
//! reported afterwards. Tenants read these messages: they name no Primary IP but the one that was asked for, or one of
//! nearly the same name.

use super::annotations::{self as a, PREFIX};
use super::balancer::LoadBalancer;
use super::context::Observed;
use super::context::Planner;
use super::desired::{AskedIp, AskedIps, Desired};
use super::parser::AnnotationParser;
use super::status;
use crate::hetzner::api::Location;
use crate::hetzner::primary_ips::{PrimaryIp, covers};
use crate::provider::{Error, Field, Finding, Reason, Service, Source, Sourced};
use crate::text::{nearest::did_you_mean, quoted};
use std::net::IpAddr;

const ASKED_BY_FIELD: Source = Source::Rule("spec.loadBalancerIP");

/// The setting that says which Primary IPs Services may claim.
pub(super) const SELECTOR: &str = "HCLOUD_LOAD_BALANCERS_PRIMARY_IP_SELECTOR";

/// What a new load balancer is made with.
#[derive(Default)]
pub(super) struct Chosen {
    pub(super) ipv4: Option<u64>,
    pub(super) ipv6: Option<u64>,
    /// Where they are.
    pub(super) location: Option<Sourced<String>>,
    pub(super) fields: Vec<Field>,
}

/// Does it name a Primary IP, or an address that may be one's?
pub(super) fn asks(service: &Service) -> bool {
    let names = |key: &String| {
        let name = key.strip_prefix(PREFIX).unwrap_or_default();
        [&a::PUBLIC_NET_IPV4, &a::PUBLIC_NET_IPV6]
            .iter()
            .any(|annotation| name.eq_ignore_ascii_case(annotation.name))
    };
    !service.load_balancer_ip.is_empty() || service.annotations.keys().any(names)
}

/// Those that Services may claim, of those that were read.
fn claimable<'a>(
    planner: &'a Planner,
    observed: &'a Observed,
) -> impl Iterator<Item = &'a PrimaryIp> + Clone {
    let selector = planner.defaults.primary_ip_selector.as_ref();
    let may_be = move |one: &&PrimaryIp| selector.is_none_or(|set| set.value.matches(&one.labels));
    observed.primary_ips.iter().flatten().filter(may_be)
}

/// Those of a new load balancer. What the API would refuse is a problem, and what Services may not claim.
pub(super) fn chosen(
    parser: &mut AnnotationParser,
    planner: &Planner,
    desired: &Desired,
    observed: &Observed,
) -> Chosen {
    let mut chosen = Chosen::default();
    for family in &desired.primary_ips.families {
        let Some((asked, one)) = family.find(parser, planner, desired, observed) else {
            continue;
        };
        family.check(parser, desired, observed, &asked, one);
        place(parser, desired, &asked, one, &mut chosen);
        let id = match family.kind {
            "ipv4" => &mut chosen.ipv4,
            _ => &mut chosen.ipv6,
        };
        *id = Some(one.id);
        chosen.fields.push(Field {
            field: format!("public {}", family.kind),
            have: None,
            want: Some(one.shown()),
            source: asked.source,
        });
    }
    chosen
}

/// Reports what was asked for and is not so.
pub(super) fn report(
    parser: &mut AnnotationParser,
    planner: &Planner,
    desired: &Desired,
    observed: &Observed,
    there: Option<&LoadBalancer>,
) {
    let asked = &desired.primary_ips;
    if let Some(balancer) = there {
        for family in &asked.families {
            family.report(parser, observed, balancer);
        }
    }
    let wanted = &asked.address;
    let addresses = there.map(status::addresses).unwrap_or_default();
    let has = addresses.iter().any(|ip| ip.to_string() == *wanted);
    let gets = there.is_none() && asked.by_field(planner, observed).is_some();
    if !wanted.is_empty() && !has && !gets {
        parser.finding(Finding::warning(
            Reason::FieldIgnored,
            // The same before and after it is made: one warning for one wish.
            format!(
                "spec.loadBalancerIP: {} is not honoured: a load balancer has only addresses of Primary IPs of the project \
                 that were free when it was made{}, and keeps them; to have it, get such a Primary IP, delete the Service \
                 and make it again, with no traffic meanwhile, and give the old address up unless its Primary IP outlives \
                 the load balancer",
                shown_address(wanted),
                limited(planner, " and")
            ),
        ));
    }
}

const KEEPS: &str = "a load balancer keeps the address that it was made with; another one means to delete the Service \
                     and make it again, with no traffic meanwhile, and to give the old address up unless its Primary IP \
                     outlives the load balancer";

/// As it is written; what is no address is quoted.
fn shown_address(text: &str) -> String {
    match text.parse::<IpAddr>() {
        Ok(_) => text.to_owned(),
        Err(_) => quoted(text),
    }
}

/// Where only some may be claimed: that, and which setting says so.
fn limited(planner: &Planner, conjunction: &str) -> String {
    match &planner.defaults.primary_ip_selector {
        Some(selector) => format!(
            "{conjunction} that Services may claim ({})",
            selector.source
        ),
        None => String::new(),
    }
}

impl AskedIps {
    /// A Primary IP with the address of `spec.loadBalancerIP`, and no annotation that says otherwise.
    fn by_field<'a>(&self, planner: &'a Planner, observed: &'a Observed) -> Option<&'a PrimaryIp> {
        self.address.parse::<IpAddr>().ok()?;
        let one = claimable(planner, observed).find(|one| covers(&one.ip, &self.address))?;
        let family = self.families.iter().find(|family| family.kind == one.kind);
        family
            .is_some_and(|family| family.asked.is_none())
            .then_some(one)
    }
}

impl AskedIp {
    fn find<'a>(
        &self,
        parser: &mut AnnotationParser,
        planner: &'a Planner,
        desired: &Desired,
        observed: &'a Observed,
    ) -> Option<(Sourced<String>, &'a PrimaryIp)> {
        let Some(asked) = &self.asked else {
            let one = desired.primary_ips.by_field(planner, observed)?;
            let address = desired.primary_ips.address.clone();
            let is_it = one.kind == self.kind;
            return is_it.then_some((Sourced::new(address, ASKED_BY_FIELD), one));
        };
        let all = claimable(planner, observed);
        let found = PrimaryIp::named(all.clone(), &asked.value);
        if found.is_none() {
            let of_type = all.filter(|one| one.kind == self.kind);
            let names = of_type.map(|one| one.name.as_str());
            parser.problem(format!(
                "{}: the project has no Primary IP {}{}{}",
                asked.source,
                quoted(&asked.value),
                limited(planner, ""),
                did_you_mean(&asked.value, names)
            ));
        }
        found.map(|one| (asked.clone(), one))
    }

    fn check(
        &self,
        parser: &mut AnnotationParser,
        desired: &Desired,
        observed: &Observed,
        asked: &Sourced<String>,
        one: &PrimaryIp,
    ) {
        let mut refuse = |why: &str| {
            parser.problem(format!(
                "{}: Primary IP {} {why}",
                asked.source,
                one.shown()
            ));
        };
        if one.kind != self.kind {
            let other = desired.primary_ips.families.iter();
            let other = other.filter(|family| family.kind == one.kind);
            let key = other.map(|family| family.annotation.key());
            refuse(&format!(
                "is of type {}: name it in annotation {}",
                one.kind,
                key.collect::<String>()
            ));
        }
        if let Some(id) = one.assignee_id {
            let kind = one.assignee_type.replace('_', " ");
            let mut balancers = observed.balancers.iter();
            let holder = balancers.find(|balancer| balancer.id == id);
            let holder = holder.filter(|_| one.assignee_type == "load_balancer");
            let holder = holder.map_or_else(|| id.to_string(), LoadBalancer::shown);
            refuse(&format!(
                "is assigned to {kind} {holder}: free it there, or choose another"
            ));
        }
        if one.auto_delete {
            refuse(&format!(
                "would be deleted together with the load balancer, and may have been made for something else: turn its \
                 auto-delete off with hcloud primary-ip update {} --auto-delete=false, or choose another",
                one.name
            ));
        }
        if one.blocked {
            refuse("is blocked by Hetzner: ask their support why, or choose another");
        }
        if let Some(public) = desired.public.as_ref().filter(|public| !public.value) {
            refuse(&format!(
                "would have nothing to do: {} turns the public addresses off; remove one of the two",
                public.source
            ));
        }
    }

    /// Of a load balancer that is there.
    fn report(&self, parser: &mut AnnotationParser, observed: &Observed, balancer: &LoadBalancer) {
        let Some(asked) = &self.asked else {
            return;
        };
        let net = &balancer.public_net;
        let (id, ip, range) = match self.kind {
            "ipv4" => (net.ipv4.id, net.ipv4.ip.map(IpAddr::from), 32),
            _ => (net.ipv6.id, net.ipv6.ip.map(IpAddr::from), 64),
        };
        let ip = ip.map(|ip| ip.to_string()).unwrap_or_default();
        let text = &asked.value;
        let all = observed.primary_ips.as_deref();
        let found = all.and_then(|all| PrimaryIp::named(all.iter(), text));
        let by_text = id.map(|id| id.to_string()).as_ref() == Some(text)
            || covers(&format!("{ip}/{range}"), text);
        let is_it = match found {
            Some(one) => id == Some(one.id),
            None => by_text,
        };
        // A name can be compared only with the list of Primary IPs.
        let is_name = text.parse::<u64>().is_err() && !covers(text, text);
        if is_it {
            found.iter().for_each(|one| not_kept(parser, one));
        } else if all.is_some() || !is_name {
            let text = quoted(text);
            let why = format!("{}: {text} has no effect on {ip}: {KEEPS}", asked.source);
            parser.finding(Finding::warning(Reason::AnnotationWithoutEffect, why));
        }
    }
}

/// Where the load balancer is to be made, and the name of the same kind of place where something is.
fn places<'a>(
    desired: &'a Desired,
    at: &'a Location,
    chosen: &'a Chosen,
) -> (Option<&'a Sourced<String>>, &'a String) {
    match (&desired.place.location, &desired.place.zone) {
        (Some(location), _) => (Some(location), &at.name),
        (None, Some(zone)) => (Some(zone), &at.network_zone),
        (None, None) => (chosen.location.as_ref(), &at.name),
    }
}

/// It decides where the load balancer is created, unless a location is set.
fn place(
    parser: &mut AnnotationParser,
    desired: &Desired,
    asked: &Sourced<String>,
    one: &PrimaryIp,
    chosen: &mut Chosen,
) {
    let at = &one.location;
    let (wanted, is) = places(desired, at, chosen);
    match wanted.filter(|wanted| wanted.value != **is) {
        Some(wanted) => parser.problem(format!(
            "{}: Primary IP {} is in {is}, and the load balancer is to be made in {} ({}): choose one that is there, or \
             set annotation {} to {:?}",
            asked.source,
            one.shown(),
            wanted.value,
            wanted.source,
            a::LOCATION.key(),
            at.name
        )),
        None => {
            let source = match (&desired.place.location, &asked.source) {
                (Some(location), _) => location.source.clone(),
                (None, source) => source.clone(),
            };
            chosen.location = Some(Sourced::new(at.name.clone(), source));
        }
    }
}

/// Who chooses an address means to keep it.
fn not_kept(parser: &mut AnnotationParser, one: &PrimaryIp) {
    if one.auto_delete {
        parser.finding(Finding::warning(
            Reason::AddressNotKept,
            format!(
                "Primary IP {} is deleted together with the load balancer: to keep it, turn its auto-delete off, in the \
                 console or with hcloud primary-ip update {} --auto-delete=false",
                one.shown(),
                one.name
            ),
        ));
    }
}

/// The Primary IP was assigned to something else in the meantime.
pub(super) fn refused(error: Error) -> Error {
    let message = format!(
        "{error}; free the Primary IP, or choose another in annotation {} or {}",
        a::PUBLIC_NET_IPV4.key(),
        a::PUBLIC_NET_IPV6.key()
    );
    Error::new(error.kind, message)
}
