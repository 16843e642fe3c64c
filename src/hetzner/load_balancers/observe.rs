//! What there is: all load balancers by one list, and their types and certificates only for
//! Services that need them.

use super::Rules;
use super::annotations::{self, Annotation, PREFIX};
use super::balancer::{BalancerType, LoadBalancer};
use super::find::by_label;
use super::reading::Reading;
use super::{public_net, values};
use crate::cloud::{Error, Service, Urgency};
use crate::hetzner::api::{Api, Meta, Page};
use crate::hetzner::certificates::{self, Certificate};
use crate::hetzner::primary_ips::{self, PrimaryIp};
use serde::Deserialize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Hetzner announces a new type, or the end of one, months before.
const TYPES_KEPT: Duration = Duration::from_secs(24 * 3600);

/// What plans rest on.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// All of the project.
    pub balancers: Vec<LoadBalancer>,
    /// None: no Service needed them.
    pub types: Option<Arc<Vec<BalancerType>>>,
    /// None: no Service named one.
    pub certificates: Option<Vec<Certificate>>,
    /// None: no Service that is to get a load balancer asks for one.
    pub primary_ips: Option<Vec<PrimaryIp>>,
}

/// The types of load balancers, as last read.
#[derive(Default)]
pub(in crate::hetzner) struct Types {
    read: Mutex<Option<(Instant, Arc<Vec<BalancerType>>)>>,
}

/// Reads what plans for these Services rest on.
pub(in crate::hetzner) fn observe(
    api: &Api,
    types: &Types,
    rules: &Rules,
    services: &[&Service],
    urgency: Urgency,
) -> Result<State, Error> {
    let mut state = State {
        balancers: api.list::<BalancersPage>("/load_balancers", urgency)?,
        ..State::default()
    };
    let needs_types = |service: &&Service| needs_types(&state.balancers, rules, service);
    if services.iter().any(needs_types) {
        state.types = Some(types.get(api, urgency)?);
    }
    if services.iter().any(|service| needs_certificates(service)) {
        state.certificates = Some(certificates::list(api, urgency)?);
    }
    let needs_primary_ips = |service: &&Service| match urgency {
        // Who asks to see is told what the one that is there lacks.
        Urgency::Asked => public_net::asks(service),
        _ => needs_primary_ips(&state.balancers, service),
    };
    if services.iter().any(needs_primary_ips) {
        state.primary_ips = Some(primary_ips::list(api, urgency)?);
    }
    Ok(state)
}

/// Does it hold what plans for this Service rest on?
pub(in crate::hetzner) fn covers(state: &State, rules: &Rules, service: &Service) -> bool {
    (state.types.is_some() || !needs_types(&state.balancers, rules, service))
        && (state.certificates.is_some() || !needs_certificates(service))
        && (state.primary_ips.is_some() || !needs_primary_ips(&state.balancers, service))
}

/// A load balancer says itself what its own type can hold.
fn needs_types(balancers: &[LoadBalancer], rules: &Rules, service: &Service) -> bool {
    let Ok(Some(balancer)) = by_label(balancers, service) else {
        return true;
    };
    let set = Reading::new(service).read(&annotations::TYPE, None, values::any);
    let wanted = set.or_else(|| rules.defaults.kind.clone());
    wanted.is_some_and(|wanted| wanted.value != balancer.load_balancer_type.name)
}

/// A load balancer keeps the addresses that it was made with.
fn needs_primary_ips(balancers: &[LoadBalancer], service: &Service) -> bool {
    public_net::asks(service) && matches!(by_label(balancers, service), Ok(None))
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
    fn get(&self, api: &Api, urgency: Urgency) -> Result<Arc<Vec<BalancerType>>, Error> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, types)) = read.as_ref().filter(|(at, _)| at.elapsed() < TYPES_KEPT) {
            log::trace!(
                "types of load balancers: read {} s ago",
                at.elapsed().as_secs()
            );
            return Ok(Arc::clone(types));
        }
        let types = api.list::<TypesPage>("/load_balancer_types", urgency)?;
        let types = Arc::new(types.into_iter().map(|one| one.kind).collect::<Vec<_>>());
        *read = Some((Instant::now(), Arc::clone(&types)));
        Ok(types)
    }
}

#[derive(Deserialize)]
struct BalancersPage {
    load_balancers: Vec<LoadBalancer>,
    meta: Meta,
}

#[derive(Deserialize)]
struct TypesPage {
    load_balancer_types: Vec<NumberedType>,
    meta: Meta,
}

#[derive(Deserialize)]
struct NumberedType {
    id: u64,
    #[serde(flatten)]
    kind: BalancerType,
}

impl Page for BalancersPage {
    type Item = LoadBalancer;

    fn into_parts(self) -> (Meta, Vec<LoadBalancer>) {
        (self.meta, self.load_balancers)
    }

    fn id(item: &LoadBalancer) -> u64 {
        item.id
    }
}

impl Page for TypesPage {
    type Item = NumberedType;
    const TAKES_SORT: bool = false;

    fn into_parts(self) -> (Meta, Vec<NumberedType>) {
        (self.meta, self.load_balancer_types)
    }

    fn id(item: &NumberedType) -> u64 {
        item.id
    }
}
