//! Which load balancer is a Service's: by the Service's UID, else by the label with which an operator asks for its
//! adoption, else by its name.

use super::balancer::LoadBalancer;
use super::context::Context;
use super::names::{self, ADOPT, CLUSTER_UID, SERVICE_UID};
use super::ownership::{foreign_target, has_only_own_targets};
use crate::provider::{Cluster, Profile, Reason, Service, Source, Sourced};

/// What was found.
#[derive(Debug)]
pub(super) enum Found<'a> {
    /// It carries the Service's UID.
    Labelled(&'a LoadBalancer),
    /// It is to become the Service's: no other Service or cluster owns it, or an operator says so.
    Adopted(&'a LoadBalancer),
    /// There is none; the name that a new one gets.
    Nothing(Sourced<String>),
}

impl<'a> Found<'a> {
    pub(super) fn balancer(&self) -> Option<&'a LoadBalancer> {
        match self {
            Found::Labelled(balancer) | Found::Adopted(balancer) => Some(balancer),
            Found::Nothing(_) => None,
        }
    }
}

/// Why none is adopted and none is created.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) reason: Reason,
    why: String,
    /// What asked for it by its name.
    named: Option<Source>,
    /// What an operator can do, with a command at its end.
    remedy: Option<String>,
}

impl Refused {
    fn new(why: String) -> Refused {
        Refused {
            reason: Reason::SyncLoadBalancerFailed,
            why,
            named: None,
            remedy: None,
        }
    }

    fn owned_by_service(balancer: &LoadBalancer, uid: &str) -> Refused {
        Refused::new(format!(
            "load balancer {} is owned by another Service of this cluster, says its label {SERVICE_UID}={uid}",
            balancer.shown()
        ))
    }

    /// An operator may allow it.
    fn not_adopted(balancer: &LoadBalancer, service: &Service, why: &str) -> Refused {
        Refused {
            reason: Reason::LoadBalancerNotAdopted,
            remedy: Some(format!(
                "to have Service {} adopt it, with its ports and targets: {}",
                service.full_name(),
                names::adopt_command(balancer, service)
            )),
            ..Refused::new(format!(
                "load balancer {} is not adopted: {why}",
                balancer.shown()
            ))
        }
    }

    /// For the event.
    pub(super) fn message(&self) -> String {
        let why = &self.why;
        match (&self.named, &self.remedy) {
            (None, None) => why.clone(),
            (None, Some(remedy)) => format!("{why}; {remedy}"),
            (Some(named), None) => format!("{named}: {why}; choose another name"),
            (Some(named), Some(remedy)) => {
                format!("{named}: {why}; choose another name, or, {remedy}")
            }
        }
    }
}

/// The error says which load balancer is in the way, and what an operator can do.
pub(super) fn find<'a>(
    context: &Context<'a>,
    named: Option<&Sourced<String>>,
) -> Result<Found<'a>, Refused> {
    let (service, cluster) = (context.service, context.cluster);
    let balancers = &context.observed.balancers;
    if let Some(balancer) = by_label(balancers, service).map_err(Refused::new)? {
        return labelled(balancer, service, cluster);
    }
    if let Some(balancer) = by_adopt_label(balancers, service)? {
        return match other_service(balancer, service, cluster) {
            Some(uid) => Err(Refused::owned_by_service(balancer, uid)),
            None => Ok(Found::Adopted(balancer)),
        };
    }
    match named {
        Some(named) => by_name(balancers, service, cluster, named),
        None => by_default_name(balancers, service, cluster, context.planner.profile),
    }
}

/// Does what was found rest on which Services exist? See `Needs::services`.
pub(super) fn rests_on_services(
    found: &Result<Found, Refused>,
    balancers: &[LoadBalancer],
    service: &Service,
    cluster: &Cluster,
) -> bool {
    match found {
        Ok(Found::Labelled(balancer)) => {
            let of = balancer.labels.get(CLUSTER_UID);
            of.is_some_and(|uid| *uid != cluster.uid)
        }
        Ok(Found::Adopted(_)) | Err(_) => true,
        // A Service of the same name, whose load balancer would be used again, may not exist any more.
        Ok(Found::Nothing(_)) => {
            let value = names::service_value(service);
            let mut labels = balancers.iter().map(|one| &one.labels);
            labels
                .any(|all| all.get(names::SERVICE) == Some(&value) && all.contains_key(SERVICE_UID))
        }
    }
}

/// The one that carries the Service's UID; the error names several.
pub(super) fn by_label<'a>(
    balancers: &'a [LoadBalancer],
    service: &Service,
) -> Result<Option<&'a LoadBalancer>, String> {
    match service.uid.is_empty() {
        true => Ok(None),
        false => only_one(balancers, SERVICE_UID, &service.uid),
    }
}

/// Is it another cluster's, although it carries the UID of one of our Services, as in a copy of a cluster? Not where all
/// its targets are nodes of this cluster: then the cluster was restored, and its UID is new.
pub(super) fn other_cluster<'a>(
    balancer: &'a LoadBalancer,
    cluster: &Cluster,
) -> Option<&'a String> {
    let uid = balancer.labels.get(CLUSTER_UID)?;
    (*uid != cluster.uid && !has_only_own_targets(balancer, cluster)).then_some(uid)
}

/// An operator's label names this Service.
pub(super) fn asks_for(balancer: &LoadBalancer, service: &Service) -> bool {
    balancer.labels.get(ADOPT) == Some(&names::service_value(service))
}

/// An operator's label asks for this one, but the Service has another.
pub(super) fn asked_too_late<'a>(
    balancers: &'a [LoadBalancer],
    service: &Service,
    own: &LoadBalancer,
) -> Option<&'a LoadBalancer> {
    let mut others = balancers.iter().filter(|one| one.id != own.id);
    others.find(|one| asks_for(one, service))
}

fn labelled<'a>(
    balancer: &'a LoadBalancer,
    service: &Service,
    cluster: &Cluster,
) -> Result<Found<'a>, Refused> {
    match other_cluster(balancer, cluster) {
        None => Ok(Found::Labelled(balancer)),
        Some(_) if asks_for(balancer, service) => Ok(Found::Adopted(balancer)),
        Some(uid) => {
            let why = format!(
                "it carries this Service's UID, but its label {CLUSTER_UID} names another cluster, {uid}, and its \
                 targets do not show that it is this one's"
            );
            Err(Refused::not_adopted(balancer, service, &why))
        }
    }
}

fn by_adopt_label<'a>(
    balancers: &'a [LoadBalancer],
    service: &Service,
) -> Result<Option<&'a LoadBalancer>, Refused> {
    let found = only_one(balancers, ADOPT, &names::service_value(service));
    found.map_err(Refused::new)
}

/// An annotation asks for it by its name.
fn by_name<'a>(
    balancers: &'a [LoadBalancer],
    service: &Service,
    cluster: &Cluster,
    named: &Sourced<String>,
) -> Result<Found<'a>, Refused> {
    let Some(balancer) = of_name(balancers, &named.value) else {
        return Ok(Found::Nothing(named.clone()));
    };
    check_adoptable(balancer, service, cluster).map_err(|refused| Refused {
        named: Some(named.source.clone()),
        ..refused
    })?;
    Ok(Found::Adopted(balancer))
}

/// Nothing asks for an existing one, so only what this cluster had made for a deleted Service of the same name is used
/// again.
fn by_default_name<'a>(
    balancers: &'a [LoadBalancer],
    service: &Service,
    cluster: &Cluster,
    profile: Profile,
) -> Result<Found<'a>, Refused> {
    let first = names::default_name(profile, service, cluster);
    let second = names::second_name(&first, service);
    let of_names = (of_name(balancers, &first), of_name(balancers, &second));
    let is_left = |balancer: &&LoadBalancer| is_left_behind(balancer, service, cluster);
    if let Some(balancer) = of_names.0.filter(is_left).or(of_names.1.filter(is_left)) {
        return Ok(Found::Adopted(balancer));
    }
    match of_names {
        (None, _) => {
            let name = Sourced::new(first, Source::Rule("the default name"));
            Ok(Found::Nothing(name))
        }
        (Some(_), None) => {
            let why = Source::Rule("another one has the default name");
            Ok(Found::Nothing(Sourced::new(second, why)))
        }
        (Some(_), Some(other)) => Err(match other_service(other, service, cluster) {
            Some(uid) => Refused::owned_by_service(other, uid),
            None => Refused::not_adopted(other, service, "no annotation asks for it by its name"),
        }),
    }
}

/// May it be adopted by its name?
fn check_adoptable(
    balancer: &LoadBalancer,
    service: &Service,
    cluster: &Cluster,
) -> Result<(), Refused> {
    if let Some(uid) = other_service(balancer, service, cluster) {
        return Err(Refused::owned_by_service(balancer, uid));
    }
    let refused = |why: &str| Err(Refused::not_adopted(balancer, service, why));
    if let Some(other) = balancer.labels.get(ADOPT) {
        return refused(&format!("its label {ADOPT} names another Service, {other}"));
    }
    let of_cluster = balancer.labels.get(CLUSTER_UID);
    if let Some(uid) = of_cluster.filter(|uid| **uid != cluster.uid) {
        return refused(&format!(
            "its label {CLUSTER_UID} names another cluster, {uid}"
        ));
    }
    match (balancer.labels.get(SERVICE_UID), of_cluster) {
        // This cluster's, of a Service that does not exist any more. Its address may be another tenant's in DNS.
        (Some(_), Some(_)) => {
            return match names::of_another_namespace(balancer, service) {
                None => Ok(()),
                Some(other) => refused(&format!(
                    "it was left by Service {other}, of another namespace"
                )),
            };
        }
        (Some(_), None) if has_only_own_targets(balancer, cluster) => return Ok(()),
        (Some(uid), None) => {
            return refused(&format!(
                "its label {SERVICE_UID} names a Service that this cluster does not have, {uid}, and its targets do \
                 not show that it is this cluster's"
            ));
        }
        (None, _) => {}
    }
    if let [first, ..] = balancer.services.as_slice() {
        return refused(&format!("it has ports, {} among them", first.listen_port));
    }
    match foreign_target(balancer, cluster) {
        Some(why) => refused(&why),
        None => Ok(()),
    }
}

/// This cluster had made it, or adopted it, for a Service of this name, which does not exist any more.
fn is_left_behind(balancer: &LoadBalancer, service: &Service, cluster: &Cluster) -> bool {
    let has = |label: &str| balancer.labels.get(label);
    !cluster.uid.is_empty()
        && has(CLUSTER_UID) == Some(&cluster.uid)
        && has(names::SERVICE) == Some(&names::service_value(service))
        && has(SERVICE_UID).is_some()
        && other_service(balancer, service, cluster).is_none()
        && has(ADOPT).is_none()
}

/// UID of another Service of this cluster that exists and owns it.
fn other_service<'a>(
    balancer: &'a LoadBalancer,
    service: &Service,
    cluster: &Cluster,
) -> Option<&'a String> {
    let uid = balancer.labels.get(SERVICE_UID)?;
    (*uid != service.uid && cluster.service_uids.contains(uid)).then_some(uid)
}

fn of_name<'a>(balancers: &'a [LoadBalancer], name: &str) -> Option<&'a LoadBalancer> {
    balancers.iter().find(|one| one.name == name)
}

fn only_one<'a>(
    balancers: &'a [LoadBalancer],
    label: &str,
    value: &str,
) -> Result<Option<&'a LoadBalancer>, String> {
    let carries = |one: &&LoadBalancer| one.labels.get(label).map(String::as_str) == Some(value);
    let all: Vec<&LoadBalancer> = balancers.iter().filter(carries).collect();
    match all.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(one)),
        several => {
            let names: Vec<String> = several.iter().map(|one| one.shown()).collect();
            Err(format!(
                "load balancers {} carry the same label, {label}={value}: none of them is changed; remove it from the \
                 wrong one",
                crate::text::some_of(&names)
            ))
        }
    }
}
