//! Finds the load balancer of a Service: by the Service's UID, by the label that asks for its adoption, or by its name.

use super::context::Context;
use super::facts::{
    has_only_own_targets, is_in_status, is_used_by_others, other_cluster, other_service,
};
use super::group::Use;
use super::index::Balancers;
use super::judge::{AskedBy, Stake, WhyNot, adoption, owned, stake};
use super::labels::{
    ADOPT, CLUSTER_UID, EXTERNAL, GROUP, Labelled, Ownership, RELEASED, SERVICE_UID,
};
use super::names;
use super::share::Share;
use crate::hetzner::load_balancers::annotations as a;
use crate::provider::{Cluster, Description, Finding, Reason, Service, Source, Sourced, Verb};
use crate::text::shell_command;

/// Which load balancer was found for a Service.
#[derive(Debug)]
pub(crate) enum Found<'a> {
    /// The load balancer belongs to the Service already, because it has the Service's UID in a label, is the load
    /// balancer of the Service's group, or is the external load balancer that the Service uses.
    Own(Labelled<'a>),
    /// The Service adopts the load balancer. No other Service or cluster owns the load balancer, or an operator asked
    /// for the adoption.
    Adopted(Labelled<'a>),
    /// The Service has no load balancer. The value is the name that a new load balancer gets.
    Nothing(Sourced<String>),
}

impl<'a> Found<'a> {
    pub(crate) fn balancer(&self) -> Option<Labelled<'a>> {
        match self {
            Found::Own(balancer) | Found::Adopted(balancer) => Some(*balancer),
            Found::Nothing(_) => None,
        }
    }
}

/// Why no load balancer was found, and none is created.
pub(crate) enum Unfound {
    /// Several load balancers could be the Service's. None of them is changed.
    Several(Finding),
    /// The load balancer that was found may not be adopted for the Service.
    NotAdopted(Finding),
}

impl From<Finding> for Unfound {
    fn from(why: Finding) -> Unfound {
        Unfound::NotAdopted(why)
    }
}

/// A load balancer that is asked for. Its methods say why it is not adopted, and what an operator can do.
struct Asked<'a> {
    service: &'a Service,
    balancer: Labelled<'a>,
    /// The source of the name, when the name asks for the load balancer.
    named: Option<&'a Source>,
}

impl<'a> Asked<'a> {
    fn new(service: &'a Service, balancer: Labelled<'a>) -> Asked<'a> {
        Asked { service, balancer, named: None }
    }

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
        let why = if self.balancer.ownership.service_uid.as_ref() == Some(uid) {
            format!(
                "load balancer {shown} is owned by another Service of this cluster, says its label {SERVICE_UID}={uid}"
            )
        } else {
            format!("load balancer {shown} has a port of another Service of this cluster, {uid}")
        };
        self.refused(Reason::SyncLoadBalancerFailed, why, None)
    }

    fn external(&self) -> Finding {
        let shown = self.balancer.shown();
        let why = format!(
            "load balancer {shown} is not adopted: by its label {EXTERNAL} its owner allows ports on it, and no more"
        );
        let remedy = format!("use it by annotation {}, or remove that label", a::EXTERNAL.key());
        self.refused(Reason::LoadBalancerNotAdopted, why, Some(remedy))
    }

    /// The load balancer is not adopted, but an operator may allow the adoption.
    fn not_adopted(&self, why: &str) -> Finding {
        let service = self.service;
        let remedy = format!(
            "to have Service {} adopt it, with its ports and targets: {}",
            service.full_name(),
            adopt_command(self.balancer, service)
        );
        let why = format!("load balancer {} is not adopted: {why}", self.balancer.shown());
        self.refused(Reason::LoadBalancerNotAdopted, why, Some(remedy))
    }

    fn not_given(&self, why: WhyNot) -> Finding {
        match why {
            WhyNot::External => self.external(),
            WhyNot::OfService(uid) => self.owned_by_service(uid),
            WhyNot::Other(why) => self.not_adopted(&why),
        }
    }
}

/// Finds the load balancer of the Service: first by the role that the Service has on it, then by the label `adopt`,
/// then by the annotation `name` (the parameter `named`), or by the default name when there is no annotation. The error
/// says which load balancer is in the way, and what an operator can do.
pub(crate) fn find<'a>(
    context: &Context<'a>,
    named: Option<&Sourced<String>>,
) -> Result<Found<'a>, Unfound> {
    if let Some(found) = by_role(context)? {
        return Ok(found);
    }
    if let Some(found) = by_adopt_label(context)? {
        return Ok(found);
    }
    match named {
        Some(named) => Ok(by_name(context, named)?),
        None => Ok(by_default_name(context)?),
    }
}

/// The error when it is not known which of several load balancers is the Service's.
fn several(why: String) -> Unfound {
    Unfound::Several(Finding::warning(Reason::SyncLoadBalancerFailed, why))
}

/// The Service's own load balancer, the load balancer of its group, or the external load balancer that the Service
/// uses. `None` when the Service has no load balancer yet.
fn by_role<'a>(context: &Context<'a>) -> Result<Option<Found<'a>>, Unfound> {
    let (service, cluster) = (context.service, context.cluster);
    let own = match context.group.of {
        Use::Own => by_label(context.balancers, service, cluster).map_err(several)?,
        Use::Shared(share) => {
            let found = find_shared(context, share).map_err(several)?;
            return Ok(found.map(Found::Own));
        }
        Use::External(Some(balancer)) => return Ok(Some(Found::Own(balancer))),
        // The Service gets no other load balancer instead. `Group::refused` says why the Service can't have the
        // external load balancer.
        Use::External(None) => {
            let name = Sourced::new(String::new(), Source::Rule("external"));
            return Ok(Some(Found::Nothing(name)));
        }
    };
    let Some(balancer) = own else {
        return Ok(None);
    };
    match stake(balancer, service, cluster) {
        Stake::Copy(_) if balancer.ownership.asks_for(service) => {
            Ok(Some(Found::Adopted(balancer)))
        }
        Stake::Copy(uid) => Err(Asked::new(context.service, balancer).not_adopted(&format!(
            "it carries this Service's UID, but its label {CLUSTER_UID} names another cluster, {uid}, and its targets do \
             not show that it is this one's"
        )).into()),
        Stake::Whole | Stake::Part | Stake::Nothing => Ok(Some(Found::Own(balancer))),
    }
}

fn by_adopt_label<'a>(context: &Context<'a>) -> Result<Option<Found<'a>>, Unfound> {
    let (service, cluster) = (context.service, context.cluster);
    let label = (ADOPT, names::service_value(service));
    let found = only_one(context.balancers.asking(service), label, |_| true).map_err(several)?;
    // When a member leaves its group, the load balancer stays with the other members.
    let is_left = |balancer: &Labelled| {
        balancer.ownership.group.is_some() && is_used_by_others(*balancer, &service.uid, cluster)
    };
    let Some(balancer) = found.filter(|balancer| !is_left(balancer)) else {
        return Ok(None);
    };
    match adoption(balancer, service, cluster, AskedBy::Label) {
        Ok(()) => Ok(Some(Found::Adopted(balancer))),
        Err(why) => Err(Asked::new(context.service, balancer).not_given(why).into()),
    }
}

fn by_name<'a>(context: &Context<'a>, named: &Sourced<String>) -> Result<Found<'a>, Finding> {
    let Some(balancer) = context.balancers.named(&named.value).next() else {
        return Ok(Found::Nothing(named.clone()));
    };
    match adoption(balancer, context.service, context.cluster, AskedBy::Name) {
        Ok(()) => Ok(Found::Adopted(balancer)),
        Err(why) => {
            let named = Some(&named.source);
            let asked = Asked::new(context.service, balancer);
            Err(Asked { named, ..asked }.not_given(why))
        }
    }
}

/// Finds the load balancer of a Service that asks for no existing one. When another load balancer has the default name,
/// a hash is appended to the name.
fn by_default_name<'a>(context: &Context<'a>) -> Result<Found<'a>, Finding> {
    let (service, cluster) = (context.service, context.cluster);
    let (first, hashed) = match context.group.of {
        Use::Shared(share) => {
            let first = names::usual_name(cluster, share.namespace, share.name);
            (first, format!("{} {}", cluster.uid, share.label()))
        }
        _ => {
            let first = names::default_name(context.project.profile, service, cluster);
            (first, service.uid.clone())
        }
    };
    let second = names::with_hash(&first, &hashed);
    let of_name = |name: &str| context.balancers.named(name).next();
    let (of_first, of_second) = (of_name(&first), of_name(&second));
    let may = |balancer: Labelled<'a>| adoption(balancer, service, cluster, AskedBy::Default);
    let is_left = |balancer: &Labelled<'a>| may(*balancer).is_ok();
    if let Some(balancer) = of_first.filter(is_left).or(of_second.filter(is_left)) {
        return Ok(Found::Adopted(balancer));
    }
    let new = |name, why| Ok(Found::Nothing(Sourced::new(name, Source::Rule(why))));
    match (of_first, of_second) {
        (None, _) => new(first, "the default name"),
        (Some(_), None) => new(second, "another one has the default name"),
        (Some(_), Some(other)) => {
            let asked = Asked::new(context.service, other);
            Err(match other_service(other, service, cluster) {
                Some(uid) => asked.owned_by_service(uid),
                None => asked.not_adopted("no annotation asks for it by its name"),
            })
        }
    }
}

/// The load balancer of a group. A load balancer with the label of the group comes first. The second choice is the own
/// load balancer of the oldest decider that has one. The third is a load balancer that lost its labels.
fn find_shared<'a>(context: &Context<'a>, share: Share) -> Result<Option<Labelled<'a>>, String> {
    let (balancers, cluster) = (context.balancers, context.cluster);
    let is_ours = |balancer: Labelled| {
        balancer.ownership.cluster_uid.is_some() && other_cluster(balancer, cluster).is_none()
    };
    let label = share.label();
    let of_group = balancers.of_group(&label);
    if let Some(found) = only_one(of_group, (GROUP, label), is_ours)? {
        return Ok(Some(found));
    }
    let brought = context.group.deciders.iter().find_map(|member| {
        let own = by_label(balancers, member, cluster).ok().flatten()?;
        other_cluster(own, cluster).is_none().then_some(own)
    });
    let in_status = context.group.members.iter().flat_map(|service| &service.addresses);
    let in_status = in_status.filter_map(|text| text.parse().ok());
    let mut lost = balancers.at(in_status);
    Ok(brought.or_else(|| lost.find(|balancer| lost_labels(*balancer, context))))
}

/// Whether the load balancer belongs to the group and has lost its labels. Its labels name no owner, one of its
/// addresses is in the status of a Service of the group, all its ports belong to Services of the group, and all its
/// targets are nodes of this cluster. The targets are compared because a copy of a cluster has everything else in
/// common with the original.
fn lost_labels(balancer: Labelled, context: &Context) -> bool {
    let group = &context.group;
    let ownership = balancer.ownership;
    let mut ports = balancer.services.iter();
    ownership.managed_by().is_none()
        && ownership.cluster_uid.is_none()
        && ownership.external.is_none()
        && !balancer.services.is_empty()
        && ports.all(|port| group.recognised(balancer, port).is_some())
        && group.members.iter().any(|member| is_in_status(member, balancer))
        && has_only_own_targets(balancer, context.cluster)
}

/// Whether a decision about this load balancer may change when the list of existing Services is read again.
fn rests_on_owner(balancer: Labelled, context: &Context) -> bool {
    balancer.ownership.other_cluster_named(context.cluster).is_some()
        || context.group.has_unknown_owner(balancer)
}

/// Whether a decision about one of the Service's load balancers may change when the list of existing Services
/// is read again.
pub(crate) fn rests_on_owners(context: &Context) -> bool {
    let mut owned = owned(context.balancers, context.service, context.cluster);
    owned.any(|balancer| rests_on_owner(balancer, context))
}

/// Whether the result of the search may change when the list of existing Services is read again. See `Needs::services`.
pub(crate) fn rests_on_services(found: &Result<Found, Unfound>, context: &Context) -> bool {
    match found {
        Ok(Found::Own(balancer)) => rests_on_owner(*balancer, context),
        Ok(Found::Adopted(_)) | Err(_) => true,
        // A load balancer was made for a Service of the same name. It is used again when that older Service does not
        // exist any more.
        Ok(Found::Nothing(_)) => {
            let mut left = context.balancers.made_for(context.service);
            left.any(|balancer| balancer.ownership.service_uid.is_some())
        }
    }
}

/// The load balancer that has the Service's UID in the label `service-uid`, and that no other Service uses. A load
/// balancer without a group comes before the load balancer of a group. The error names the load balancers when
/// there are several.
pub(crate) fn by_label<'a>(
    balancers: Balancers<'a>,
    service: &Service,
    cluster: &Cluster,
) -> Result<Option<Labelled<'a>>, String> {
    if service.uid.is_empty() {
        return Ok(None);
    }
    let is_free = |balancer: Labelled| !is_used_by_others(balancer, &service.uid, cluster);
    let is_alone = |balancer: Labelled| balancer.ownership.group.is_none() && is_free(balancer);
    let with_uid = || balancers.with_uid(&service.uid);
    let label = || (SERVICE_UID, service.uid.clone());
    match only_one(with_uid(), label(), is_alone)? {
        None => only_one(with_uid(), label(), is_free),
        alone => Ok(alone),
    }
}

/// Why a load balancer whose label `adopt` names the Service is not adopted. The reason is that the Service already has
/// the load balancer `own`. A load balancer that still has a label with the Service's UID is ignored, because the
/// Service is leaving it.
pub(crate) fn why_asked_too_late(
    balancers: Balancers,
    service: &Service,
    own: Labelled,
) -> Option<String> {
    let mut asking = balancers.asking(service);
    let other =
        asking.find(|balancer| balancer.id != own.id && !balancer.ownership.carries(service))?;
    Some(format!(
        "load balancer {} is not adopted, although its label {ADOPT} asks for it, because the Service has load balancer {}: \
         delete that one to have the other adopted (its address is lost, and there is no traffic meanwhile), or remove the \
         label",
        other.shown(),
        own.shown()
    ))
}

/// How a person assigns a load balancer to a Service.
pub(crate) struct Assignment {
    /// The ownership that the labels state after the assignment.
    pub(crate) to: Ownership,
    pub(crate) description: Description,
    /// Whether the labels must be changed so that they state `to`.
    pub(crate) is_needed: bool,
}

/// Assigns the load balancer to the Service. When other Services use the load balancer, too, a label can't assign it,
/// and only an annotation of the Service can.
pub(crate) fn assign(balancer: Labelled, service: &Service, cluster: &Cluster) -> Assignment {
    let ownership = balancer.ownership;
    let is_released = ownership.released.as_ref() == Some(&service.uid);
    let is_said = ownership.asks_for(service) || ownership.carries(service);
    let is_joint =
        ownership.external.is_some() || is_used_by_others(balancer, &service.uid, cluster);
    let name = |label| format!("label {label} of load balancer {}", balancer.shown());
    let value = names::service_value(service);
    let mut to = ownership.clone();
    to.released = to.released.filter(|_| !is_released);
    let description = if is_joint {
        Description::new(Verb::REMOVE, name(RELEASED), "")
    } else {
        Description::value(name(ADOPT), None, Some(&value))
    };
    if !is_joint {
        to.adopt = Some(value);
    }
    Assignment { to, description, is_needed: is_released || !(is_said || is_joint) }
}

/// The load balancer with this label for which `counts` is true. The error names the load balancers when
/// there are several.
fn only_one<'a>(
    carrying: impl Iterator<Item = Labelled<'a>>,
    (label, value): (&'static str, String),
    counts: impl Fn(Labelled) -> bool,
) -> Result<Option<Labelled<'a>>, String> {
    let all: Vec<Labelled> = carrying.filter(|balancer| counts(*balancer)).collect();
    match all.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(*one)),
        several => {
            let names: Vec<String> = several.iter().map(|balancer| balancer.shown()).collect();
            Err(format!(
                "load balancers {} carry the same label, {label}={value}: none of them is changed; remove it from the \
                 wrong one",
                crate::text::some_of(&names)
            ))
        }
    }
}

/// The command with which an operator has this Service adopt this load balancer.
fn adopt_command(balancer: Labelled, service: &Service) -> String {
    let wanted = names::service_value(service);
    let is_other = balancer.ownership.adopt.as_ref();
    let begin = if is_other.is_some_and(|has| *has != wanted) {
        "hcloud load-balancer add-label --overwrite"
    } else {
        "hcloud load-balancer add-label"
    };
    shell_command(begin, &[&balancer.id, &format!("{ADOPT}={wanted}")])
}
