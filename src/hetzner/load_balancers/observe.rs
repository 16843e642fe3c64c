//! What there is: all load balancers by one list, and their types and certificates only for
//! Services that need them.

use super::annotations::{self, Annotation, PREFIX};
use super::balancer::{BalancerType, LoadBalancer};
use super::context::{Observed, Planner};
use super::find::by_label;
use super::parser::value_of;
use super::primary_ips;
use super::subnets::Subnets;
use crate::hetzner::api::{Api, Resource};
use crate::hetzner::networks::Network;
use crate::provider::{Error, Service, Urgency};
use serde::Deserialize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Hetzner announces a new type, or the end of one, months before.
const TYPES_KEPT: Duration = Duration::from_secs(24 * 3600);

/// A type that is not in a list as old as this may be a new one.
const TYPES_CERTAIN: Duration = Duration::from_secs(600);

/// What is kept from one poll to the next.
pub(in crate::hetzner) struct Known<'a> {
    pub(in crate::hetzner) types: &'a Types,
    pub(in crate::hetzner) subnets: &'a Subnets,
    pub(in crate::hetzner) network: Option<&'a Network>,
}

/// The types of load balancers, as last read.
pub(in crate::hetzner) struct Types {
    /// Multiplies how long they are kept; 1 outside of tests.
    scale: f64,
    read: Mutex<Option<(Instant, Arc<Vec<BalancerType>>)>>,
}

/// Reads what plans for these Services rest on.
pub(in crate::hetzner) fn observe(
    api: &Api,
    known: &Known,
    planner: &Planner,
    services: &[&Service],
    urgency: Urgency,
) -> Result<Observed, Error> {
    let mut observed = Observed {
        balancers: api.list("", urgency)?,
        ..Observed::default()
    };
    let wanted: Vec<String> = services
        .iter()
        .filter(|service| needs_types(&observed.balancers, planner, service))
        .map(|service| wanted_type(planner, service).unwrap_or_default())
        .collect();
    if !wanted.is_empty() {
        observed.types = Some(known.types.get(api, &wanted, urgency)?);
    }
    if let Some(network) = known.network {
        let wants = (observed.balancers.as_slice(), services);
        let subnets = known.subnets.get(api, network, planner, wants, urgency);
        observed.subnets = Some(subnets);
    }
    if services.iter().any(|service| needs_certificates(service)) {
        observed.certificates = Some(api.list("", urgency)?);
    }
    let needs_primary_ips = |service: &&Service| match urgency {
        // A person is shown what an existing one lacks.
        Urgency::Asked => primary_ips::asks(service),
        _ => needs_primary_ips(&observed.balancers, service),
    };
    if services.iter().any(needs_primary_ips) {
        observed.primary_ips = Some(api.list("", urgency)?);
    }
    Ok(observed)
}

/// Does it hold what plans for this Service rest on?
pub(in crate::hetzner) fn covers(
    observed: &Observed,
    planner: &Planner,
    service: &Service,
) -> bool {
    (observed.types.is_some() || !needs_types(&observed.balancers, planner, service))
        && (observed.certificates.is_some() || !needs_certificates(service))
        && (observed.primary_ips.is_some() || !needs_primary_ips(&observed.balancers, service))
}

/// A load balancer says itself what its own type can hold.
fn needs_types(balancers: &[LoadBalancer], planner: &Planner, service: &Service) -> bool {
    let Ok(Some(balancer)) = by_label(balancers, service) else {
        return true;
    };
    let wanted = wanted_type(planner, service);
    wanted.is_some_and(|wanted| wanted != balancer.load_balancer_type.name)
}

fn wanted_type(planner: &Planner, service: &Service) -> Option<String> {
    let set = value_of(service, &annotations::TYPE).map(str::to_owned);
    set.or_else(|| {
        planner
            .defaults
            .kind
            .as_ref()
            .map(|kind| kind.value.clone())
    })
}

/// A load balancer keeps the addresses that it was made with.
fn needs_primary_ips(balancers: &[LoadBalancer], service: &Service) -> bool {
    primary_ips::asks(service) && matches!(by_label(balancers, service), Ok(None))
}

fn needs_certificates(service: &Service) -> bool {
    let is_about = |key: &String, annotation: &Annotation| {
        let name = key.strip_prefix(PREFIX);
        let name = name.map(|name| name.split('.').next().unwrap_or(name));
        name.is_some_and(|name| name.eq_ignore_ascii_case(annotation.name))
    };
    service.annotations.keys().any(|key| {
        is_about(key, &annotations::HTTP_CERTIFICATES)
            || is_about(key, &annotations::CERTIFICATE_TYPE)
    })
}

impl Types {
    pub(in crate::hetzner) fn new(scale: f64) -> Types {
        Types {
            scale,
            read: Mutex::default(),
        }
    }

    /// `wanted`: names of types; an empty name stands for any.
    fn get(
        &self,
        api: &Api,
        wanted: &[String],
        urgency: Urgency,
    ) -> Result<Arc<Vec<BalancerType>>, Error> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let has = |types: &[BalancerType], name: &String| {
            name.is_empty() || types.iter().any(|kind| kind.name == *name)
        };
        let is_new_enough = |(at, types): &&(Instant, Arc<Vec<BalancerType>>)| {
            let kept = match wanted.iter().all(|name| has(types, name)) {
                true => TYPES_KEPT,
                false => TYPES_CERTAIN,
            };
            at.elapsed() < kept.mul_f64(self.scale)
        };
        if let Some((at, types)) = read.as_ref().filter(is_new_enough) {
            log::trace!(
                "types of load balancers: read {} s ago",
                at.elapsed().as_secs()
            );
            return Ok(Arc::clone(types));
        }
        let types = api.list::<NumberedType>("", urgency)?;
        let types = Arc::new(
            types
                .into_iter()
                .map(NumberedType::kind)
                .collect::<Vec<_>>(),
        );
        *read = Some((Instant::now(), Arc::clone(&types)));
        Ok(types)
    }
}

#[derive(Deserialize)]
struct NumberedType {
    id: u64,
    #[serde(flatten)]
    kind: BalancerType,
    #[serde(default)]
    prices: Vec<Price>,
}

/// It has one wherever it can be had.
#[derive(Deserialize)]
struct Price {
    location: String,
}

impl NumberedType {
    fn kind(self) -> BalancerType {
        let prices = self.prices.into_iter();
        BalancerType {
            locations: prices.map(|price| price.location).collect(),
            ..self.kind
        }
    }
}

impl Resource for LoadBalancer {
    const LIST: &'static str = "load_balancers";
    const ONE: &'static str = "load_balancer";
    fn id(&self) -> u64 {
        self.id
    }
}

impl Resource for NumberedType {
    const LIST: &'static str = "load_balancer_types";
    const ONE: &'static str = "load_balancer_type";
    const TAKES_SORT: bool = false;

    fn id(&self) -> u64 {
        self.id
    }
}
