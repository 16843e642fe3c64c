//! Chooses the Primary IPs of a new load balancer, and reports the Primary IPs that a load balancer can't get.
//!
//! A load balancer keeps the addresses with which it was created. When a Service asks for a Primary IP that a new load
//! balancer can't get, the load balancer is not created. For an existing load balancer this is only reported. Users of
//! the cluster read the messages, and must not learn the names of other Primary IPs of the project. So a message names
//! only the Primary IP that the Service asks for, or one with a very similar name that Services are allowed to use.

use super::status;
use crate::hetzner::load_balancers::annotations::parser::{AnnotationParser, has};
use crate::hetzner::load_balancers::annotations::{self as a, values::AUTO};
use crate::hetzner::load_balancers::desired::{ASKED_BY_FIELD, AskedIp, Whole};
use crate::hetzner::load_balancers::model::balancer::{LoadBalancer, PrimaryIp, covers};
use crate::hetzner::load_balancers::ownership::context::PlanContext;
use crate::hetzner::load_balancers::ownership::labels::Labelled;
use crate::provider::{Field, Reason, Service, Sourced};
use crate::text::{did_you_mean, quoted, shell_command};
use serde_json::{Map, Value, json};
use std::net::IpAddr;

/// The Primary IPs with which a new load balancer is created.
#[derive(Default)]
pub(crate) struct Chosen {
    /// The ID of each Primary IP, by its type (`ipv4` or `ipv6`).
    pub(crate) ids: Map<String, Value>,
    /// The location in which the chosen Primary IPs are. The load balancer must be created there. `None` when no
    /// Primary IP was chosen.
    pub(crate) location: Option<Sourced<String>>,
    pub(crate) fields: Vec<Field>,
}

/// Whether the Service asks for a Primary IP by an annotation, or for an address by `spec.loadBalancerIP`.
pub(crate) fn asks(service: &Service) -> bool {
    let is_named = has(service, &a::PUBLIC_NET_IPV4) || has(service, &a::PUBLIC_NET_IPV6);
    is_named || !service.load_balancer_ip.is_empty()
}

/// Returns the Primary IPs of the project that the settings allow Services to use.
fn claimable<'a>(context: &'a PlanContext) -> impl Iterator<Item = &'a PrimaryIp> + Clone {
    let selector = context.project.defaults.permitted.primary_ip_selector.as_ref();
    let may_be = move |primary_ip: &&PrimaryIp| {
        let value_of = |key: &str| primary_ip.labels.get(key).map(String::as_str);
        selector.is_none_or(|set| set.value.matches(value_of))
    };
    context.observed.primary_ips.iter().flatten().filter(may_be)
}

/// Chooses the Primary IPs of a new load balancer. Reports a problem when the Service asks for a Primary IP that does
/// not exist, that the API would refuse, or that Services are not allowed to use.
pub(crate) fn chosen(
    parser: &mut AnnotationParser,
    context: &PlanContext,
    whole: &Whole,
) -> Chosen {
    let mut chosen = Chosen::default();
    for family in &whole.primary_ips.families {
        let Some(asked) = &family.asked else {
            continue;
        };
        let Some(one) = family.find(context) else {
            // A Primary IP that does not exist is reported as a problem only when an annotation names it. When only
            // `spec.loadBalancerIP` asks for it, the function [`report`] adds a warning.
            if !family.is_asked_by_field() {
                let of_type =
                    claimable(context).filter(|primary_ip| primary_ip.kind == family.kind);
                let names = of_type.map(|primary_ip| primary_ip.name.as_str());
                let mut hint = did_you_mean(&asked.value, names);
                if hint.is_empty() {
                    hint = "; hcloud primary-ip list shows those that exist".to_owned();
                }
                parser.problem(format!(
                    "{}: the project has no Primary IP with the ID, name or address {}{}{}",
                    asked.source,
                    quoted(&asked.value),
                    limited(context),
                    hint
                ));
            }
            continue;
        };
        family.check(parser, whole, context, asked, one);
        place(parser, whole, asked, one, &mut chosen);
        chosen.ids.insert(family.kind.to_owned(), json!(one.id));
        let (field, want) = (format!("public {}", family.kind), Some(one.shown()));
        chosen.fields.push(Field { field, have: None, want, source: asked.source.clone() });
    }
    chosen
}

/// Returns the location of the Primary IPs that a new load balancer gets. `None` when it gets none.
pub(crate) fn location(context: &PlanContext, whole: &Whole) -> Option<Sourced<String>> {
    let mut found = whole.primary_ips.families.iter().filter_map(|family| {
        let source = family.asked.as_ref()?.source.clone();
        Some(Sourced::new(family.find(context)?.location.name.to_string(), source))
    });
    found.next()
}

/// Reports each address that the Service asks for, but that the existing load balancer does not have. When there is no
/// load balancer yet, reports if the new one will not get the address in `spec.loadBalancerIP`.
pub(crate) fn report(
    parser: &mut AnnotationParser,
    context: &PlanContext,
    whole: &Whole,
    there: Option<Labelled>,
) {
    let asked = &whole.primary_ips;
    if let Some(balancer) = there {
        for family in &asked.families {
            family.report(parser, context, &balancer);
        }
    }
    let wanted = &asked.address;
    let addresses = there.map(|balancer| status::addresses(&balancer)).unwrap_or_default();
    let has = addresses.iter().any(|ip| ip.to_string() == *wanted);
    let by_field = |family: &&AskedIp| family.is_asked_by_field();
    let mut by_field = asked.families.iter().filter(by_field);
    let gets = there.is_none() && by_field.any(|family| family.find(context).is_some());
    if !wanted.is_empty() && !has && !gets {
        // This message says that the Service does not get the address in `spec.loadBalancerIP`. The text is the same in
        // the plan that creates the load balancer and in all later plans, so that the user gets one event and not two.
        let why = match wanted.parse::<IpAddr>() {
            Ok(ip) => format!(
                "{ip} has no effect, because ccm can choose an address only when it creates the load balancer, and only \
                 from the free Primary IPs of the project{}. If a free Primary IP has this address (hcloud primary-ip \
                 list shows all), delete the Service and create it again to get the address. This interrupts the \
                 traffic, and the present address is lost, unless it is a Primary IP without auto-delete",
                limited(context)
            ),
            Err(_) => format!("{} has no effect, because it is no IP address", quoted(wanted)),
        };
        let why = format!("spec.loadBalancerIP: {why}");
        parser.warning(Reason::FieldIgnored, why);
    }
}

const KEEPS: &str = "with which it was created. To get another address, delete the Service and create it again. This \
                     interrupts the traffic, and the old address is lost, unless it is a Primary IP without \
                     auto-delete";

/// Returns a part of a message. It says that Services are allowed to use only the Primary IPs that match a selector,
/// and names the environment variable with the selector. The text is empty when there is no selector.
fn limited(context: &PlanContext) -> String {
    match &context.project.defaults.permitted.primary_ip_selector {
        Some(selector) => format!(" that Services may claim ({})", selector.source),
        None => String::new(),
    }
}

impl AskedIp {
    /// Returns the Primary IP that the Service asks for. `None` when it does not exist, or when Services are not
    /// allowed to use it.
    fn find<'a>(&self, context: &'a PlanContext) -> Option<&'a PrimaryIp> {
        let asked = &self.asked.as_ref()?.value;
        if self.is_asked_by_field() {
            claimable(context).find(|primary_ip| covers(&primary_ip.ip, asked))
        } else {
            PrimaryIp::named(claimable(context), asked)
        }
    }

    fn is_asked_by_field(&self) -> bool {
        let asked = self.asked.as_ref();
        asked.is_some_and(|asked| asked.source == ASKED_BY_FIELD)
    }

    fn check(
        &self,
        parser: &mut AnnotationParser,
        whole: &Whole,
        context: &PlanContext,
        asked: &Sourced<String>,
        one: &PrimaryIp,
    ) {
        let mut refuse = |why: &str| {
            parser.problem(format!("{}: Primary IP {} {why}", asked.source, one.shown()));
        };
        if one.kind != self.kind {
            let other = whole.primary_ips.families.iter().find(|family| family.kind == one.kind);
            let key = other.map(|family| family.annotation.key());
            let (kind, key) = (&one.kind, key.unwrap_or_default());
            refuse(&format!("is of type {kind}, so name it in annotation {key} instead"));
        }
        // A Primary IP that something uses already is reported as a problem, but not by `ccm lint`
        // (`is_for_manifests`). The Service of a checked manifest can exist already, and then its own load balancer may
        // be the user of the Primary IP.
        let holder = one.assignee_id;
        if let Some(id) = holder.filter(|_| !context.observed.is_for_manifests) {
            let kind = one.assignee_type.replace('_', " ");
            let holder = context.balancers.with_id(id);
            let holder = holder.filter(|_| one.assignee_type == "load_balancer");
            let holder = holder.map_or_else(|| id.to_string(), |balancer| balancer.shown());
            refuse(&format!(
                "is already assigned to {kind} {holder}. Unassign it there, or name another Primary IP"
            ));
        }
        if one.auto_delete {
            refuse(&format!(
                "has auto-delete, so it would be deleted together with the load balancer. Turn auto-delete off with \
                 {}, or name another Primary IP",
                keep(one)
            ));
        }
        if one.blocked {
            refuse(
                "is blocked by Hetzner. Ask Hetzner's support for the reason, or name another Primary IP",
            );
        }
        if let Some(public) = whole.public.as_ref().filter(|public| !public.value) {
            refuse(&format!(
                "would have no effect, because {} turns the load balancer's public addresses off. Remove one of the \
                 two settings",
                public.source
            ));
        }
    }

    /// Adds a warning when an existing load balancer does not have the Primary IP that the Service's annotation asks
    /// for. When the load balancer has it, but Hetzner would delete the Primary IP together with the load balancer, a
    /// different warning is added.
    fn report(
        &self,
        parser: &mut AnnotationParser,
        context: &PlanContext,
        balancer: &LoadBalancer,
    ) {
        let asked = self.asked.as_ref().filter(|_| !self.is_asked_by_field());
        let Some(asked) = asked else {
            return;
        };
        let net = &balancer.public_net;
        let (id, ip, range) = match self.kind {
            "ipv4" => (net.ipv4.id, net.ipv4.ip, 32),
            _ => (net.ipv6.id, net.ipv6.ip, 64),
        };
        let ip = ip.map(|ip| ip.to_string()).unwrap_or_default();
        let text = &asked.value;
        let all = context.observed.primary_ips.as_deref();
        let found = all.and_then(|all| PrimaryIp::named(all.iter(), text));
        let by_text = id.map(|id| id.to_string()).as_ref() == Some(text)
            || covers(&format!("{ip}/{range}"), text);
        let is_it = found.map_or(by_text, |primary_ip| id == Some(primary_ip.id));
        // Whether the annotation contains the name of a Primary IP, and not its ID or address. When the list of Primary
        // IPs was not read, it is not known which address belongs to a name. There is then no warning that the load
        // balancer has another address than the one that the annotation asks for.
        let is_name = text.parse::<u64>().is_err() && !covers(text, text);
        if is_it {
            // A user who asks for this Primary IP probably wants to keep its address. So there is a warning when
            // Hetzner would delete the Primary IP together with the load balancer.
            if let Some(one) = found.filter(|primary_ip| primary_ip.auto_delete) {
                let why = format!(
                    "Primary IP {} will be deleted together with the load balancer. To keep it, turn its auto-delete \
                     off, in the console or with {}",
                    one.shown(),
                    keep(one)
                );
                parser.warning(Reason::AddressNotKept, why);
            }
        } else if all.is_some() || !is_name {
            let text = quoted(text);
            let why = format!(
                "{}: {text} has no effect, because the load balancer keeps the address {ip}, {KEEPS}",
                asked.source
            );
            parser.warning(Reason::AnnotationWithoutEffect, why);
        }
    }
}

/// Returns the command that prevents Hetzner from deleting the Primary IP together with the load balancer.
fn keep(address: &PrimaryIp) -> String {
    shell_command("hcloud primary-ip update --auto-delete=false", &[&address.id])
}

/// Makes the Primary IP's location the location of the new load balancer. Reports a problem when an annotation or a
/// default asks for another location or network zone.
fn place(
    parser: &mut AnnotationParser,
    whole: &Whole,
    asked: &Sourced<String>,
    one: &PrimaryIp,
    chosen: &mut Chosen,
) {
    let at = &one.location;
    // An annotation or a default can name the location where the load balancer is to be created, or only its network
    // zone. The Primary IP must then be in this location or zone. If neither is named, and a Primary IP of the other IP
    // version was chosen before, the two Primary IPs must be in the same location.
    let location = whole.place.location.as_ref().filter(|location| location.value != AUTO);
    let (wanted, is) = match (location, &whole.place.zone) {
        (None, Some(zone)) => (Some(zone), &at.network_zone),
        (location, _) => (location.or(chosen.location.as_ref()), &at.name),
    };
    match wanted.filter(|wanted| wanted.value != **is) {
        Some(wanted) => parser.problem(format!(
            "{}: Primary IP {} is in {is}, but the load balancer is to be created in {} ({}). Choose a Primary IP in \
             {}, or set annotation {} to {:?}",
            asked.source,
            one.shown(),
            wanted.value,
            wanted.source,
            wanted.value,
            a::LOCATION.key(),
            at.name
        )),
        None => {
            let source = &location.unwrap_or(asked).source;
            chosen.location = Some(Sourced::new(at.name.to_string(), source.clone()));
        }
    }
}
