//! Which load balancer is a Service's: by the Service's UID, else by the label with which an operator asks for its
//! adoption, else by its name.

use super::annotations as a;
use super::balancer::LoadBalancer;
use super::context::Context;
use super::group::{Share, Use, cluster_on_external, is_in_status, is_used_by_others, owned};
use super::index::Balancers;
use super::names::{self, ADOPT, CLUSTER_UID, CREATED, EXTERNAL, GROUP, KEEP, SERVICE_UID, uids};
use super::ownership::{foreign_target, has_only_own_targets};
use crate::provider::{Cluster, Finding, Reason, Service, Source, Sourced};

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

/// One that is asked for: why it is not adopted, and what an operator can do.
struct Asked<'a> {
    context: &'a Context<'a>,
    balancer: &'a LoadBalancer,
    /// What asks for it by its name.
    named: Option<&'a Source>,
}

impl Asked<'_> {
    fn refused(&self, reason: Reason, why: String, remedy: Option<String>) -> Finding {
        let named = self.named.map(|named| format!("{named}: "));
        let choose = self.named.map(|_| "choose another name".to_owned());
        let steps: Vec<String> = choose.into_iter().chain(remedy).collect();
        let mut message = named.unwrap_or_default() + &why;
        if !steps.is_empty() {
            message = format!("{message}; {}", steps.join(", or, "));
        }
        Finding::warning(reason, message)
    }

    fn owned_by_service(&self, uid: &String) -> Finding {
        let shown = self.balancer.shown();
        let why = match self.balancer.labels.get(SERVICE_UID) == Some(uid) {
            true => format!(
                "load balancer {shown} is owned by another Service of this cluster, says its label {SERVICE_UID}={uid}"
            ),
            false => format!(
                "load balancer {shown} has a port of another Service of this cluster, {uid}"
            ),
        };
        self.refused(Reason::SyncLoadBalancerFailed, why, None)
    }

    fn external(&self) -> Finding {
        let shown = self.balancer.shown();
        let why = format!(
            "load balancer {shown} is not adopted: by its label {EXTERNAL} its owner allows ports on it, and no more"
        );
        let remedy = format!(
            "use it by annotation {}, or remove that label",
            a::EXTERNAL.key()
        );
        self.refused(Reason::LoadBalancerNotAdopted, why, Some(remedy))
    }

    /// An operator may allow it.
    fn not_adopted(&self, why: &str) -> Finding {
        let service = self.context.service;
        let remedy = format!(
            "to have Service {} adopt it, with its ports and targets: {}",
            service.full_name(),
            names::adopt_command(self.balancer, service)
        );
        let why = format!(
            "load balancer {} is not adopted: {why}",
            self.balancer.shown()
        );
        self.refused(Reason::LoadBalancerNotAdopted, why, Some(remedy))
    }

    /// May it be adopted by its name?
    fn check(&self) -> Result<(), Finding> {
        let (service, cluster) = (self.context.service, self.context.cluster);
        let balancer = self.balancer;
        let refused = |why: &str| Err(self.not_adopted(why));
        if balancer.labels.contains_key(EXTERNAL) {
            return Err(self.external());
        }
        if is_used_by_others(balancer, &service.uid, cluster) {
            return refused("other Services of this cluster use it");
        }
        if let Some(uid) = other_service(balancer, service, cluster) {
            return Err(self.owned_by_service(uid));
        }
        if let Some(other) = balancer.labels.get(ADOPT) {
            return refused(&format!("its label {ADOPT} names another Service, {other}"));
        }
        let of_cluster = balancer.labels.get(CLUSTER_UID);
        if let Some(uid) = of_cluster.filter(|uid| !cluster.is_known_by(uid)) {
            return refused(&format!(
                "its label {CLUSTER_UID} names another cluster, {uid}"
            ));
        }
        // This cluster's, of Services that do not exist any more. Its address may be another tenant's in DNS.
        if let (Some(other), true) = (
            names::of_another_namespace(balancer, service),
            of_cluster.is_some() || balancer.labels.contains_key(KEEP),
        ) {
            return refused(&format!("it was left by {other}, of another namespace"));
        }
        // On one that ccm made, a Service had set the label.
        let owner = names::owned_by_program(&balancer.labels);
        if let Some(label) = owner.filter(|_| !balancer.labels.contains_key(CREATED)) {
            return refused(&format!(
                "its label {label} says that another program owns it"
            ));
        }
        match (balancer.labels.get(SERVICE_UID), of_cluster) {
            (Some(_), Some(_)) => Ok(()),
            (Some(_), None) if has_only_own_targets(balancer, cluster) => Ok(()),
            (Some(uid), None) => refused(&format!(
                "its label {SERVICE_UID} names a Service that this cluster does not have, {uid}, and its targets do \
                 not show that it is this cluster's"
            )),
            (None, _) => match (balancer.services.first(), foreign_target(balancer, cluster)) {
                (Some(port), _) => {
                    refused(&format!("it has ports, {} among them", port.listen_port))
                }
                (None, Some(why)) => refused(&why),
                (None, None) => Ok(()),
            },
        }
    }
}

/// The error says which load balancer is in the way, and what an operator can do.
pub(super) fn find<'a>(
    context: &'a Context<'a>,
    named: Option<&'a Sourced<String>>,
) -> Result<Found<'a>, Finding> {
    let (service, cluster) = (context.service, context.cluster);
    let balancers = context.balancers;
    let asked = |balancer, named| Asked {
        context,
        balancer,
        named,
    };
    let several = |why| Finding::warning(Reason::SyncLoadBalancerFailed, why);
    let own = match context.group.of {
        Use::Own => by_label(balancers, service, cluster).map_err(several)?,
        Use::Shared(share) => {
            let found = find_shared(context, share).map_err(several)?;
            if let Some(balancer) = found {
                return Ok(Found::Labelled(balancer));
            }
            None
        }
        Use::External(Some(balancer)) => return Ok(Found::Labelled(balancer)),
        // Nothing is made in its place: a problem says why.
        Use::External(None) => {
            let name = Sourced::new(String::new(), Source::Rule("external"));
            return Ok(Found::Nothing(name));
        }
    };
    if let Some(balancer) = own {
        return match other_cluster(balancer, cluster) {
            None => Ok(Found::Labelled(balancer)),
            Some(_) if asks_for(balancer, service) => Ok(Found::Adopted(balancer)),
            Some(uid) => Err(asked(balancer, None).not_adopted(&format!(
                "it carries this Service's UID, but its label {CLUSTER_UID} names another cluster, {uid}, and its \
                 targets do not show that it is this one's"
            ))),
        };
    }
    let adopt = only_one(balancers, ADOPT, &names::service_value(service), |_| true);
    // The Service leaves a group that stays.
    let is_left = |one: &&LoadBalancer| {
        one.labels.contains_key(GROUP) && is_used_by_others(one, &service.uid, cluster)
    };
    if let Some(balancer) = adopt.map_err(several)?.filter(|one| !is_left(one)) {
        if balancer.labels.contains_key(EXTERNAL) {
            return Err(asked(balancer, None).external());
        }
        return match other_service(balancer, service, cluster) {
            Some(uid) => Err(asked(balancer, None).owned_by_service(uid)),
            None => Ok(Found::Adopted(balancer)),
        };
    }
    let of_name = |name: &str| balancers.named(name).next();
    if let Some(named) = named {
        let Some(balancer) = of_name(&named.value) else {
            return Ok(Found::Nothing(named.clone()));
        };
        asked(balancer, Some(&named.source)).check()?;
        return Ok(Found::Adopted(balancer));
    }
    // Nothing asks for an existing one, so only what this cluster had made for a deleted Service of the same name is
    // used again.
    let (first, second) = match context.group.of {
        Use::Shared(share) => {
            let first = names::usual_name(cluster, share.namespace, share.name);
            let of = format!("{} {}", cluster.uid, share.label());
            (first.clone(), names::with_hash(&first, &of))
        }
        _ => {
            let first = names::default_name(context.project.profile, service, cluster);
            (first.clone(), names::with_hash(&first, &service.uid))
        }
    };
    let (of_first, of_second) = (of_name(&first), of_name(&second));
    let is_left = |balancer: &&LoadBalancer| is_left_behind(balancer, service, cluster);
    if let Some(balancer) = of_first.filter(is_left).or(of_second.filter(is_left)) {
        return Ok(Found::Adopted(balancer));
    }
    let new = |name, why| Ok(Found::Nothing(Sourced::new(name, Source::Rule(why))));
    match (of_first, of_second) {
        (None, _) => new(first, "the default name"),
        (Some(_), None) => new(second, "another one has the default name"),
        (Some(_), Some(other)) => Err(match other_service(other, service, cluster) {
            Some(uid) => asked(other, None).owned_by_service(uid),
            None => asked(other, None).not_adopted("no annotation asks for it by its name"),
        }),
    }
}

/// The load balancer of a group: by its label, else the one that the oldest Service that decides brings in, else one that lost its
/// labels.
fn find_shared<'a>(
    context: &'a Context<'a>,
    share: Share,
) -> Result<Option<&'a LoadBalancer>, String> {
    let (balancers, cluster) = (context.balancers, context.cluster);
    let is_ours = |one: &LoadBalancer| {
        one.labels.contains_key(CLUSTER_UID) && other_cluster(one, cluster).is_none()
    };
    if let Some(found) = only_one(balancers, GROUP, &share.label(), is_ours)? {
        return Ok(Some(found));
    }
    let mut deciders = context.group.deciders.iter();
    let brought = deciders.find_map(|member| {
        let own = by_label(balancers, member, cluster).ok().flatten()?;
        other_cluster(own, cluster).is_none().then_some(own)
    });
    let in_status = context.group.members.iter().flat_map(|one| &one.addresses);
    let in_status = in_status.filter_map(|text| text.parse().ok());
    let mut lost = balancers.at(in_status);
    Ok(brought.or_else(|| lost.find(|one| lost_labels(one, context))))
}

/// It has no label that says whose it is, one of its addresses is in the status of a Service of the group, all its ports
/// are theirs, and all its targets are nodes of this cluster: in a copy of a cluster the rest is the same.
fn lost_labels(balancer: &LoadBalancer, context: &Context) -> bool {
    let group = &context.group;
    let mut whose = [GROUP, SERVICE_UID, CLUSTER_UID, EXTERNAL].iter();
    let mut ports = balancer.services.iter();
    let mut members = group.members.iter();
    !whose.any(|label| balancer.labels.contains_key(*label))
        && !balancer.services.is_empty()
        && ports.all(|port| group.recognised(balancer, port).is_some())
        && members.any(|member| is_in_status(member, balancer))
        && has_only_own_targets(balancer, context.cluster)
}

/// Does it rest on which Services exist whose load balancer this is?
fn rests_on_owner(balancer: &LoadBalancer, context: &Context) -> bool {
    let of = balancer.labels.get(CLUSTER_UID);
    of.is_some_and(|uid| !context.cluster.is_known_by(uid))
        || context.group.has_unknown_owner(balancer)
}

/// The same of the load balancers that the Service has.
pub(super) fn rests_on_owners(context: &Context) -> bool {
    let mut owned = owned(context.balancers, context.service, context.cluster);
    owned.any(|one| rests_on_owner(one, context))
}

/// Does what was found rest on which Services exist? See `Needs::services`.
pub(super) fn rests_on_services(found: &Result<Found, Finding>, context: &Context) -> bool {
    match found {
        Ok(Found::Labelled(balancer)) => rests_on_owner(balancer, context),
        Ok(Found::Adopted(_)) | Err(_) => true,
        // A Service of the same name, whose load balancer would be used again, may not exist any more.
        Ok(Found::Nothing(_)) => {
            let value = names::service_value(context.service);
            let mut left = context.balancers.labelled(names::SERVICE, &value);
            left.any(|one| one.labels.contains_key(SERVICE_UID))
        }
    }
}

/// The one that carries the Service's UID, and that no other Service uses; the error names several. A group's is left for
/// one that was made for this Service alone.
pub(super) fn by_label<'a>(
    balancers: Balancers<'a>,
    service: &Service,
    cluster: &Cluster,
) -> Result<Option<&'a LoadBalancer>, String> {
    match service.uid.is_empty() {
        true => Ok(None),
        false => {
            let is_free = |one: &LoadBalancer| !is_used_by_others(one, &service.uid, cluster);
            let is_alone = |one: &LoadBalancer| !one.labels.contains_key(GROUP) && is_free(one);
            match only_one(balancers, SERVICE_UID, &service.uid, is_alone)? {
                None => only_one(balancers, SERVICE_UID, &service.uid, is_free),
                alone => Ok(alone),
            }
        }
    }
}

/// Is it another cluster's, although it carries the UID of one of our Services, as in a copy of a cluster? Not where
/// all its targets are nodes of this cluster: then the cluster was restored, and its UID is new. While the identity of this
/// cluster is not known, one of its nodes among the targets is enough.
pub(super) fn other_cluster<'a>(balancer: &'a LoadBalancer, cluster: &Cluster) -> Option<&'a str> {
    let Some(uid) = balancer.labels.get(CLUSTER_UID) else {
        return cluster_on_external(balancer, cluster);
    };
    let is_ours = cluster.is_known_by(uid)
        || has_only_own_targets(balancer, cluster)
        || (cluster.uid.is_empty() && may_be_ours(balancer, cluster));
    (!is_ours).then_some(uid.as_str())
}

/// It has no target yet, or a node of this cluster is one: in a copy of a cluster no target is a node.
fn may_be_ours(balancer: &LoadBalancer, cluster: &Cluster) -> bool {
    let mut targets = balancer.single_targets();
    balancer.targets.is_empty() || targets.any(|(target, _)| target.node(cluster).is_some())
}

/// An operator's label names this Service.
pub(super) fn asks_for(balancer: &LoadBalancer, service: &Service) -> bool {
    balancer.labels.get(ADOPT) == Some(&names::service_value(service))
}

/// An operator's label asks for this one, but the Service has another. Not for one that it leaves.
pub(super) fn asked_too_late<'a>(
    balancers: Balancers<'a>,
    service: &Service,
    own: &LoadBalancer,
) -> Option<&'a LoadBalancer> {
    let mut asking = balancers.labelled(ADOPT, &names::service_value(service));
    asking.find(|one| one.id != own.id && uids(one).all(|uid| *uid != service.uid))
}

/// This cluster had made it, or adopted it, for a Service of this name, which does not exist any more.
fn is_left_behind(balancer: &LoadBalancer, service: &Service, cluster: &Cluster) -> bool {
    let has = |label: &str| balancer.labels.get(label);
    names::is_of(&balancer.labels, cluster)
        && has(names::SERVICE) == Some(&names::service_value(service))
        && has(SERVICE_UID).is_some()
        && other_service(balancer, service, cluster).is_none()
        && has(ADOPT).is_none()
        && !is_used_by_others(balancer, &service.uid, cluster)
}

/// UID of another Service of this cluster that exists and owns it.
fn other_service<'a>(
    balancer: &'a LoadBalancer,
    service: &Service,
    cluster: &Cluster,
) -> Option<&'a String> {
    let is_other = |uid: &&String| **uid != service.uid && cluster.service_uids.contains(*uid);
    uids(balancer).find(is_other)
}

/// The one with this label for which `counts` is true; the error names several.
fn only_one<'a>(
    balancers: Balancers<'a>,
    label: &'static str,
    value: &str,
    counts: impl Fn(&LoadBalancer) -> bool,
) -> Result<Option<&'a LoadBalancer>, String> {
    let carrying = balancers.labelled(label, value);
    let all: Vec<&LoadBalancer> = carrying.filter(|one| counts(one)).collect();
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
