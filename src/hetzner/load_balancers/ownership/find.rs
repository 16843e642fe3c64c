//! Finds the load balancer of a Service: by the Service's UID in a label, by a label that asks for its adoption, or by
//! its name.

use super::context::PlanContext;
use super::facts::{
    has_only_own_targets, is_in_status, is_used_by_others, other_cluster, other_service,
};
use super::group::GroupUse;
use super::index::Balancers;
use super::judge::{AskedBy, Replacing, Stake, WhyNot, adoption, owned, replacement, stake};
use super::labels::{
    ADOPT, CLUSTER_UID, EXTERNAL, GROUP, Labelled, Ownership, RELEASED, SERVICE, SERVICE_UID,
};
use super::names;
use super::share::GroupName;
use crate::hetzner::load_balancers::annotations as a;
use crate::provider::{Cluster, Description, Finding, Reason, Service, Source, Sourced, WriteVerb};
use crate::text::shell_command;

/// The load balancer that was found for a Service, if there is one.
#[derive(Debug)]
pub(crate) enum FoundBalancer<'a> {
    /// The load balancer belongs to the Service already. There are three cases: a label has the Service's UID, the
    /// Service shares the load balancer with other Services, or the Service uses it as an external load balancer (one
    /// that somebody else made).
    Own(Labelled<'a>),
    /// The Service adopts this existing load balancer. Either nobody owns it, or an operator asked for the adoption by
    /// a label.
    Adopted(Labelled<'a>),
    /// No load balancer was found for the Service. The value is the name for a new load balancer.
    Nothing(Sourced<String>),
}

impl<'a> FoundBalancer<'a> {
    pub(crate) fn balancer(&self) -> Option<Labelled<'a>> {
        match self {
            FoundBalancer::Own(balancer) | FoundBalancer::Adopted(balancer) => Some(*balancer),
            FoundBalancer::Nothing(_) => None,
        }
    }
}

/// The reason why no load balancer can be used for the Service, and no new one is created.
pub(crate) enum Unfound {
    /// The labels of several load balancers name the same owner, so it is not known which of them belongs to the
    /// Service. None of them is changed. The text names them.
    Several(String),
    /// The Service is not allowed to adopt the load balancer that was found.
    NotAdopted(Finding),
}

/// Returns the error for a load balancer that the Service asks for, but is not allowed to adopt. Its message says why,
/// and what an operator can do. `named` is the annotation `name` of the Service, if the load balancer was found by this
/// annotation.
fn not_adopted(
    service: &Service,
    balancer: Labelled,
    named: Option<&Source>,
    why: WhyNot,
) -> Unfound {
    let shown = balancer.shown();
    let (why, remedy) = match why {
        WhyNot::External => (
            format!(
                "its label {EXTERNAL} says that ccm does not own it, and that Services may only add ports to it"
            ),
            Some(format!(
                "To use this load balancer without adopting it, name it in annotation {} instead. To have it adopted, \
                 remove the label",
                a::EXTERNAL.key()
            )),
        ),
        WhyNot::OfService(uid) if balancer.ownership.service_uid.as_ref() == Some(uid) => (
            format!("it belongs to another Service of this cluster (label {SERVICE_UID}={uid})"),
            None,
        ),
        WhyNot::OfService(uid) => {
            (format!("it has a port of another Service of this cluster (UID {uid})"), None)
        }
        WhyNot::Other(why) => {
            let remedy = format!(
                "To let Service {} adopt this load balancer anyway (ccm then replaces its ports and targets), run: {}",
                service.full_name(),
                adopt_command(balancer, service)
            );
            (why, Some(remedy))
        }
    };
    let reason = match remedy {
        Some(_) => Reason::LoadBalancerNotAdopted,
        None => Reason::SyncLoadBalancerFailed,
    };
    let choose = named
        .map(|_| "To get another load balancer, choose another name in the annotation".to_owned());
    let steps: Vec<String> = choose.into_iter().chain(remedy).collect();
    let named = named.map(|named| format!("{named}: ")).unwrap_or_default();
    let mut message = format!("{named}load balancer {shown} is not adopted, because {why}");
    if !steps.is_empty() {
        message = format!("{message}. {}", steps.join(". "));
    }
    Unfound::NotAdopted(Finding::warning(reason, message))
}

/// Finds the load balancer of the Service. The first choice is a load balancer that the Service already uses. The
/// second choice is one whose label `adopt` names the Service. The last choice is one with the name `named` from the
/// annotation `name`, or with the default name when the Service lacks this annotation. The error says why the load
/// balancer that was found can't be used, and what an operator can do.
pub(crate) fn find<'a>(
    context: &PlanContext<'a>,
    named: Option<&Sourced<String>>,
) -> Result<FoundBalancer<'a>, Unfound> {
    if let Some(found) = by_role(context)? {
        return Ok(found);
    }
    if let Some(found) = by_adopt_label(context)? {
        return Ok(found);
    }
    match named {
        Some(named) => by_name(context, named),
        None => by_default_name(context),
    }
}

/// Returns the load balancer if the Service is allowed to adopt it, i.e. to become the owner of this existing load
/// balancer, and otherwise an error. `named` is the source of the annotation `name`, if the load balancer was found by
/// this annotation.
fn adopt<'a>(
    context: &PlanContext<'a>,
    balancer: Labelled<'a>,
    by: AskedBy,
    named: Option<&Source>,
) -> Result<FoundBalancer<'a>, Unfound> {
    match adoption(balancer, context.service, context.cluster, by) {
        Ok(()) => Ok(FoundBalancer::Adopted(balancer)),
        Err(why) => Err(not_adopted(context.service, balancer, named, why)),
    }
}

/// Returns the load balancer that the Service uses already. This is a load balancer of its own, the one that it shares
/// with other Services, or the external one (made by somebody else) that its annotation `external` names. `None` means
/// that the Service has no load balancer yet.
fn by_role<'a>(context: &PlanContext<'a>) -> Result<Option<FoundBalancer<'a>>, Unfound> {
    let (service, cluster) = (context.service, context.cluster);
    let own = match context.group.of {
        GroupUse::Own => by_label(context.balancers, service, cluster).map_err(Unfound::Several)?,
        GroupUse::Shared(share) => {
            return Ok(find_shared(context, share)
                .map_err(Unfound::Several)?
                .map(FoundBalancer::Own));
        }
        GroupUse::External(Some(balancer)) => return Ok(Some(FoundBalancer::Own(balancer))),
        // The Service is not allowed to use the external load balancer (one that somebody else made) that its
        // annotation `external` names. No other load balancer is used or created instead. `Group::refused` has the
        // reason.
        GroupUse::External(None) => {
            let name = Sourced::new(String::new(), Source::Rule("external"));
            return Ok(Some(FoundBalancer::Nothing(name)));
        }
    };
    let Some(balancer) = own else {
        return Ok(None);
    };
    match stake(balancer, service, cluster) {
        Stake::Copy(_) if balancer.ownership.asks_for(service) => {
            Ok(Some(FoundBalancer::Adopted(balancer)))
        }
        Stake::Copy(uid) => {
            let why = WhyNot::Other(format!(
                "its label {CLUSTER_UID} names another cluster ({uid}), although another label has this Service's UID, \
                 and its targets do not show that it belongs to this cluster"
            ));
            Err(not_adopted(service, balancer, None, why))
        }
        Stake::Whole | Stake::Part | Stake::Nothing => Ok(Some(FoundBalancer::Own(balancer))),
    }
}

fn by_adopt_label<'a>(context: &PlanContext<'a>) -> Result<Option<FoundBalancer<'a>>, Unfound> {
    let (service, cluster) = (context.service, context.cluster);
    let label = (ADOPT, names::service_value(service));
    let found = only_one(context.balancers, label, |_| true).map_err(Unfound::Several)?;
    // The label `adopt` of a shared load balancer can name a Service that has just left the group of Services which
    // share it. This Service is not allowed to adopt the load balancer while other Services of the group use it.
    let is_left = |balancer: &Labelled| {
        balancer.ownership.group.is_some() && is_used_by_others(*balancer, &service.uid, cluster)
    };
    let found = found.filter(|balancer| !is_left(balancer));
    found.map(|balancer| adopt(context, balancer, AskedBy::Label, None)).transpose()
}

fn by_name<'a>(
    context: &PlanContext<'a>,
    named: &Sourced<String>,
) -> Result<FoundBalancer<'a>, Unfound> {
    match context.balancers.named(&named.value).next() {
        Some(balancer) => adopt(context, balancer, AskedBy::Name, Some(&named.source)),
        None => Ok(FoundBalancer::Nothing(named.clone())),
    }
}

/// Finds a load balancer for a Service without the annotation `name`. The load balancer must have the default name, or
/// the default name with a hash at its end. When the Service is not allowed to adopt a load balancer with one of these
/// two names, the result is the name for a new load balancer: the first of the two that is free. When both names are
/// taken, an error is returned.
fn by_default_name<'a>(context: &PlanContext<'a>) -> Result<FoundBalancer<'a>, Unfound> {
    let (service, cluster) = (context.service, context.cluster);
    let first = default_name(context);
    let hashed = match context.group.of {
        GroupUse::Shared(share) => format!("{} {}", cluster.uid, share.label()),
        _ => service.uid.clone(),
    };
    let second = names::with_hash(&first, &hashed);
    let of_name = |name: &str| context.balancers.named(name).next();
    let (of_first, of_second) = (of_name(&first), of_name(&second));
    let is_left =
        |balancer: &Labelled| adoption(*balancer, service, cluster, AskedBy::Default).is_ok();
    if let Some(balancer) = of_first.filter(is_left).or(of_second.filter(is_left)) {
        return Ok(FoundBalancer::Adopted(balancer));
    }
    let new = |name, why| Ok(FoundBalancer::Nothing(Sourced::new(name, Source::Rule(why))));
    match (of_first, of_second) {
        (None, _) => new(first, "the default name"),
        (Some(_), None) => new(second, "another load balancer has the default name"),
        (Some(_), Some(other)) => {
            let why = match other_service(other, service, cluster) {
                Some(uid) => WhyNot::OfService(uid),
                None => WhyNot::Other("no annotation of the Service names it".to_owned()),
            };
            Err(not_adopted(service, other, None, why))
        }
    }
}

/// Returns the name that the load balancer gets when no annotation `name` gives it another name.
pub(crate) fn default_name(context: &PlanContext) -> String {
    let (service, cluster) = (context.service, context.cluster);
    match context.group.of {
        GroupUse::Shared(share) => names::usual_name(cluster, share.namespace, share.name),
        _ => names::default_name(context.project.profile, service, cluster),
    }
}

/// Returns the load balancer that the Services of a group share. The first choice is a load balancer whose label names
/// the group. The second choice is a load balancer that has been used until now by one Service alone. This Service must
/// be one whose annotations decide about the settings of the group, and the oldest such Service that has a load
/// balancer comes first. The last choice is a load balancer whose labels were removed, but whose address is in the
/// status of a Service of the group.
fn find_shared<'a>(
    context: &PlanContext<'a>,
    share: GroupName,
) -> Result<Option<Labelled<'a>>, String> {
    let (balancers, cluster) = (context.balancers, context.cluster);
    let is_ours = |balancer: Labelled| {
        balancer.ownership.cluster_uid.is_some() && other_cluster(balancer, cluster).is_none()
    };
    let label = (GROUP, share.label());
    if let Some(found) = serving_one(balancers, label, is_ours, (context.service, cluster))? {
        return Ok(Some(found));
    }
    let brought = context.group.deciders.iter().find_map(|member| {
        let own = by_label(balancers, member, cluster).ok().flatten()?;
        // A load balancer that takes part in a replacement does not become the load balancer of the group. When its
        // Service joins the group, the Service leaves both the old and the new load balancer of the replacement.
        let is_alone = matches!(replacement(own, balancers, cluster), Replacing::No);
        (other_cluster(own, cluster).is_none() && is_alone).then_some(own)
    });
    let in_status = context.group.members.iter().flat_map(|service| &service.addresses);
    let mut lost = balancers.at(in_status.filter_map(|text| text.parse().ok()));
    Ok(brought.or_else(|| lost.find(|balancer| lost_labels(*balancer, context))))
}

/// Whether Services share this load balancer although its labels were removed. Its address must be in the status of one
/// of the Services that share it, and all its ports must belong to these Services. All its targets must be nodes of
/// this cluster. The last condition is important: a copy of this cluster has the same Services, but other nodes.
fn lost_labels(balancer: Labelled, context: &PlanContext) -> bool {
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

/// Whether the list of existing Services is needed to decide who owns this load balancer. If so, the list must be read
/// again before the plan is applied.
fn rests_on_owner(balancer: Labelled, context: &PlanContext) -> bool {
    balancer.ownership.other_cluster_named(context.cluster).is_some()
        || context.group.has_unknown_owner(balancer)
}

/// Whether the list of existing Services is needed to decide who owns one of this Service's load balancers. If so, the
/// list must be read again before the plan is applied.
pub(crate) fn rests_on_owners(context: &PlanContext) -> bool {
    owned(context.balancers, context.service, context.cluster)
        .any(|balancer| rests_on_owner(balancer, context))
}

/// Whether `found`, the result of [`find`], depends on which other Services exist. For example, a load balancer can be
/// adopted only when the Service that its label names does not exist any more. If the result depends on this, the list
/// of Services must be read again before the plan is applied; see `Needs::services`.
pub(crate) fn rests_on_services(
    found: &Result<FoundBalancer, Unfound>,
    context: &PlanContext,
) -> bool {
    match found {
        Ok(FoundBalancer::Own(balancer)) => rests_on_owner(*balancer, context),
        Ok(FoundBalancer::Adopted(_)) | Err(_) => true,
        // No load balancer was found for the Service. A load balancer of an earlier Service with the same name can be
        // adopted as soon as the earlier Service is deleted. So if there is such a load balancer, the list of Services
        // must be read again, because it may show the deletion.
        Ok(FoundBalancer::Nothing(_)) => {
            let name = names::service_value(context.service);
            let left = context.balancers.labelled(SERVICE, &name);
            left.iter().any(|balancer| balancer.ownership.service_uid.is_some())
        }
    }
}

/// Returns the load balancer that has the Service's UID in the label `service-uid`, and that no other Service uses. If
/// several load balancers have this label, the one without the label `group` is preferred. The error names the load
/// balancers when it can't be decided which one belongs to the Service.
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
    let label = || (SERVICE_UID, service.uid.clone());
    let of = (service, cluster);
    match serving_one(balancers, label(), is_alone, of)? {
        None => serving_one(balancers, label(), is_free, of),
        alone => Ok(alone),
    }
}

/// Returns a text for messages about a load balancer whose label `adopt` names the Service, but which is not adopted,
/// because the Service already has the load balancer `own`. `None` when there is no such load balancer. The text is not
/// about a load balancer that has the Service's UID in another label. Such a load balancer belongs to the Service
/// already, and the Service is about to leave it.
pub(crate) fn why_asked_too_late(
    balancers: Balancers,
    service: &Service,
    own: Labelled,
) -> Option<String> {
    let other = balancers
        .labelled(ADOPT, &names::service_value(service))
        .into_iter()
        .find(|balancer| balancer.id != own.id && !balancer.ownership.carries(service))?;
    Some(format!(
        "load balancer {} is not adopted, although its label {ADOPT} asks for it, because the Service already has load \
         balancer {}. To keep the load balancer that the Service has, run: {}. To change to load balancer {}, delete \
         load balancer {} first, which interrupts the traffic and loses its addresses",
        other.shown(),
        own.shown(),
        shell_command("hcloud load-balancer remove-label", &[&other.id, &ADOPT]),
        other.id,
        own.id
    ))
}

/// Plans the labels that make the load balancer belong to the Service, because a person asked for this. Returns the
/// owners that the labels state after the change, and a description of the change. The description is `None` when no
/// label must change.
///
/// When other Services use the load balancer, or when it is external (made by somebody else), a label can't make it
/// belong to the Service. The Service must then ask for the load balancer by an annotation, and only the label
/// `released` is removed here.
pub(crate) fn assign(
    balancer: Labelled,
    service: &Service,
    cluster: &Cluster,
) -> (Ownership, Option<Description>) {
    let ownership = balancer.ownership;
    let is_released = ownership.released.as_ref() == Some(&service.uid);
    let is_said = ownership.asks_for(service) || ownership.carries(service);
    let is_joint =
        ownership.external.is_some() || is_used_by_others(balancer, &service.uid, cluster);
    let name = |label| format!("label {label} of load balancer {}", balancer.shown());
    let mut to = ownership.clone();
    to.released = to.released.filter(|_| !is_released);
    let description = if is_joint {
        Description::new(WriteVerb::REMOVE, name(RELEASED), "")
    } else {
        to.adopt = Some(names::service_value(service));
        Description::value(name(ADOPT), None, to.adopt.as_deref())
    };
    let is_needed = is_released || !(is_said || is_joint);
    (to, is_needed.then_some(description))
}

/// Returns the load balancer that has this label, and for which `counts` returns `true`. `None` when there is no such
/// load balancer. When there are several, the error names them. But when these are the old and the new load balancer of
/// a replacement, returns the one that serves this Service.
fn serving_one<'a>(
    balancers: Balancers<'a>,
    (label, value): (&'static str, String),
    counts: impl Fn(Labelled) -> bool,
    (service, cluster): (&Service, &Cluster),
) -> Result<Option<Labelled<'a>>, String> {
    let mut all = balancers.labelled(label, &value);
    all.retain(|balancer| counts(*balancer));
    match all.first().map(|first| replacement(*first, balancers, cluster)) {
        Some(Replacing::Both(pair))
            if all.iter().all(|it| [pair.old.id, pair.new.id].contains(&it.id)) =>
        {
            Ok(Some(pair.get(pair.serving(service))))
        }
        _ => only_one(balancers, (label, value), counts),
    }
}

/// Returns the load balancer that has this label, and for which `counts` returns `true`. Returns `None` when there is
/// no such load balancer. When there are several, the error names them.
fn only_one<'a>(
    balancers: Balancers<'a>,
    (label, value): (&'static str, String),
    counts: impl Fn(Labelled) -> bool,
) -> Result<Option<Labelled<'a>>, String> {
    let mut all = balancers.labelled(label, &value);
    all.retain(|balancer| counts(*balancer));
    match all.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(*one)),
        several => {
            let names: Vec<String> = several.iter().map(|balancer| balancer.shown()).collect();
            let remove = shell_command("hcloud load-balancer remove-label", &[&"ID", &label]);
            Err(format!(
                "load balancers {} have the same label, {label}={value}, so it is not clear which of them the Service \
                 uses, and ccm changes none of them. Keep the label on the one that the Service shall use, and remove \
                 it from every other: {remove}",
                crate::text::some_of(&names)
            ))
        }
    }
}

/// Returns the shell command by which an operator lets this Service adopt this load balancer.
fn adopt_command(balancer: Labelled, service: &Service) -> String {
    let wanted = names::service_value(service);
    let begin = if balancer.ownership.adopt.as_ref().is_some_and(|other| *other != wanted) {
        "hcloud load-balancer add-label --overwrite"
    } else {
        "hcloud load-balancer add-label"
    };
    shell_command(begin, &[&balancer.id, &format!("{ADOPT}={wanted}")])
}
