//! Groups of Services that use one load balancer together. This file decides which Services belong to a group, which
//! Service owns each port, and what the labels say about this.
//!
//! | annotation of the Service | load balancer that the Service uses |
//! |---|---|
//! | neither `share` nor `external` | its own load balancer |
//! | `share` | the load balancer of its group, which is created for the first Service of the group and deleted with the last |
//! | `external` | an external load balancer (one that somebody else made), on which this program changes only its own ports and targets |
//!
//! Each Service has a plan of its own, with only its own ports. But the settings that do not belong to a port are equal
//! in the plans of all Services of a group. They come from the annotations of the deciders, which are some of these
//! Services, and the oldest decider takes precedence. On a shared load balancer, the deciders are the Services in
//! `NAMESPACE`, when the name of the group is `NAMESPACE/NAME`. On an external load balancer, there are no deciders.
//!
//! A label of the load balancer names the owner of each port. The label is written before the port is added. Terraform
//! can remove the label later. If the load balancer is shared, a port without a label belongs to the Service with the
//! same port and node port. If the load balancer is external, such a port belongs to a Service only when
//! [`is_recognised`] finds other signs of this. A port for which no Service is found in this way belongs to the owner
//! of the load balancer.

use super::facts::{
    cluster_on_external, destination, is_allowed, is_of, is_port_of, is_recognised,
    is_released_by_another, is_used_by_others, tcp,
};
use super::index::Balancers;
use super::labels::{
    EXTERNAL, GROUP, Labelled, Ownership, TARGETS_BEFORE, WantedLabels, YES, namespace_of,
};
use super::names::{LONGEST, service_value};
use super::share::{GroupName, asked, external_keys, external_named};
use crate::hetzner::load_balancers::annotations as a;
use crate::hetzner::load_balancers::annotations::parser::{
    AnnotationParser, first_to_decide, value_of, values_of,
};
use crate::hetzner::load_balancers::model::balancer::TargetId;
use crate::hetzner::load_balancers::model::listener::Listener;
use crate::provider::order;
use crate::provider::{BalancerUse, Cluster, PortOwner, Reason, Service};
use crate::text::{self, slashed};
use std::collections::{BTreeMap, BTreeSet};

/// The port on which the load balancer itself answers when it redirects HTTP to HTTPS.
pub(crate) const HTTP_PORT: u16 = 80;

/// A value of the label `targets-before`. The label lists the targets that an external load balancer (one that somebody
/// else made) had before this cluster used it. This value means that the list is not known, or is too long for a label.
/// Every target is then treated as one that was there before.
const ALL: &str = "all";
const NONE: &str = "none";

/// The Service for which a plan is made, and the Services that use the load balancer together with it.
pub(crate) struct Group<'a> {
    pub(crate) of: GroupUse<'a>,
    /// The Services that are allowed to share the load balancer, the oldest first. The Service for which the plan is
    /// made is always among them. Some Services with ports on the load balancer are not in this list: an operator ended
    /// their management with `ccm lb release`, another controller manages them, they could not be read, or their
    /// namespace is not allowed to share it any more.
    pub(crate) members: Vec<&'a Service>,
    /// The Services whose annotations decide about the settings that do not belong to a port, the oldest first. When
    /// the Service uses a load balancer alone, this is the Service itself. When Services share the load balancer under
    /// the group name `NAMESPACE/NAME`, these are the Services in this namespace. The list is empty when the load
    /// balancer is external (made by somebody else), or when a Service that would decide could not be read (see
    /// `undecided`).
    pub(crate) deciders: Vec<&'a Service>,
    /// Whether Services of several namespaces have ports on the shared load balancer, or will get ports there.
    pub(crate) is_of_several_namespaces: bool,
    /// The namespace in the group name `NAMESPACE/NAME`, if this Service is in another namespace and has lost the
    /// permission to share the load balancer. Only a Service in the namespace of the group name can give this
    /// permission. Without it, the Service keeps its ports on the load balancer, but gets no new ones. `None` when the
    /// Service is allowed to get new ports.
    pub(crate) closed_by: Option<&'a str>,
    /// The reason why the Service can't have the load balancer that it asks for. `None` when it can have this load
    /// balancer.
    pub(crate) refused: Option<String>,
    /// The load balancer that Services share under the group name `NAMESPACE/NAME`, if a Service in this namespace has
    /// a port on it and could not be read. The annotations of that Service are then not known. So no Service decides
    /// about the settings of the load balancer, and its present targets stay. The value is `None` when there is no such
    /// Service.
    pub(crate) undecided: Option<Labelled<'a>>,
    service: &'a Service,
    cluster: &'a Cluster,
    /// All load balancers of the project. `None` when annotations are checked without the load balancers, for example
    /// by `ccm lint`.
    balancers: Option<Balancers<'a>>,
}

/// The kind of load balancer that the Service uses: its own, one that it shares with other Services, or an external one
/// (made by somebody else).
#[derive(Clone, Copy)]
pub(crate) enum GroupUse<'a> {
    Own,
    Shared(GroupName<'a>),
    /// An external load balancer, which somebody else made. `None` when the load balancers were not read, for example
    /// by `ccm lint`. Also `None` when the Service is not allowed to use the load balancer, which is reported as a
    /// problem.
    External(Option<Labelled<'a>>),
}

/// The owner of a port of a load balancer, as seen from the Service for which a plan is made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The Service for which the plan is made owns the port.
    This,
    /// Another Service that is allowed to share the load balancer owns the port.
    Member,
    /// A Service of this cluster owned the port, and was deleted. A label of the load balancer still has the UID of
    /// this Service as the owner of the port.
    Gone,
    /// Somebody else owns the port, for example another cluster or a person, or it is not known who owns it.
    Other,
}

/// Finds out from the annotations which load balancer the Service asks for, and which Services share it. When the
/// Service can't have this load balancer, [`Group::refused`] says why. `parser` collects other mistakes. `balancers` is
/// `None` when annotations are checked without the load balancers, for example by `ccm lint`.
///
/// `stays_on` is usually `None`. When the Service can't have the load balancer that it asks for, the plan is made for
/// the load balancer that the Service uses now. `stays_on` is then this present load balancer. Its labels, and not the
/// annotations, say which Services use it.
pub(crate) fn group<'a>(
    parser: &mut AnnotationParser<'a>,
    service: &'a Service,
    balancers: Option<Balancers<'a>>,
    cluster: &'a Cluster,
    stays_on: Option<Labelled<'a>>,
) -> Group<'a> {
    let text = |annotation| value_of(service, annotation);
    let share =
        parser.read(&a::SHARE, None, |value| GroupName::parse(value, &service.namespace).map(drop));
    let share = share.and_then(|_| GroupName::parse(text(&a::SHARE)?, &service.namespace).ok());
    let mut group = Group {
        of: GroupUse::Own,
        members: Vec::new(),
        deciders: Vec::new(),
        is_of_several_namespaces: false,
        closed_by: None,
        refused: None,
        undecided: None,
        service,
        cluster,
        balancers,
    };
    match (stays_on, share, text(&a::EXTERNAL)) {
        (Some(balancer), ..) => {
            (group.of, group.members) = as_labelled(balancer, service, cluster);
            if let GroupUse::Shared(share) = group.of {
                let all = cluster.groups.of_key(&share.label());
                let is_open = share.allows(&service.namespace, all);
                group.closed_by = (!is_open).then_some(share.namespace);
            }
        }
        (None, None, None) => {}
        (None, Some(_), Some(_)) => {
            group.refused = Some(format!(
                "annotations {} and {} contradict each other, because ccm manages a shared load balancer, but does not \
                 own an external one. Remove one of the two annotations",
                a::SHARE.key(),
                a::EXTERNAL.key()
            ));
        }
        (None, Some(share), None) => group.join_shared(parser, share),
        (None, None, Some(text)) => group.join_external(text),
    }
    group.order(stays_on);
    parser.is_shared = group.members.iter().any(|member| member.uid != service.uid);
    parser.join(&group.deciders, group.is_external(), &group.why_it_does_not_decide());
    group
}

/// Whether a label of the load balancer says that one of its ports belongs to the Service.
fn has_labelled_port(balancer: Labelled, service: &Service) -> bool {
    balancer.ownership.ports.values().any(|uid| *uid == service.uid)
}

/// Whether a label says that a port of the load balancer belongs to a Service that is not in the namespace `namespace`.
fn has_guest(balancer: Labelled, namespace: &str, cluster: &Cluster) -> bool {
    let is_guest = |uid: &String| {
        let owner = cluster.groups.of_uid(uid).map(|service| &service.namespace);
        let left = cluster.untouched.get(uid).map(|service| &service.namespace);
        owner.into_iter().chain(left).any(|own| own != namespace)
    };
    balancer.ownership.ports.values().any(is_guest)
}

/// Whether the labels of the load balancer say that its ports can belong to several owners. This is so when it is
/// external (made by somebody else). It is also so when Services share it under the group name `NAMESPACE/NAME`, and a
/// Service that is not in this namespace has a port there.
pub(crate) fn is_of_several_owners(balancer: Labelled, cluster: &Cluster) -> bool {
    let ownership = balancer.ownership;
    let namespace = ownership.group.as_deref().and_then(namespace_of);
    ownership.external.is_some()
        || namespace.is_some_and(|namespace| has_guest(balancer, namespace, cluster))
}

/// Returns how a Service uses this load balancer according to the load balancer's labels: alone, shared with other
/// Services, or as an external load balancer (made by somebody else). When the load balancer is shared or external, the
/// list has all Services that ask for it and are allowed to use it. Otherwise the list is empty.
fn as_labelled<'a>(
    balancer: Labelled<'a>,
    service: &Service,
    cluster: &'a Cluster,
) -> (GroupUse<'a>, Vec<&'a Service>) {
    if balancer.ownership.external.is_some() {
        let members = external_members(balancer, cluster).collect();
        let allowed = Some(balancer).filter(|balancer| is_allowed(*balancer, service));
        return (GroupUse::External(allowed), members);
    }
    let Some(label) = &balancer.ownership.group else {
        return (GroupUse::Own, Vec::new());
    };
    if let Some((share, all)) = asked(label, cluster) {
        return (GroupUse::Shared(share), share.members(all).collect());
    }
    let (namespace, name) = label.split_once('.').unwrap_or(("", label));
    (GroupUse::Shared(GroupName { namespace, name }), Vec::new())
}

/// Returns the external load balancer (one that somebody else made) that the Service's annotation `external` names. The
/// error says why the Service can't use it.
fn external<'a>(
    service: &Service,
    all: Balancers<'a>,
    text: &str,
    cluster: &Cluster,
) -> Result<Labelled<'a>, String> {
    let key = a::EXTERNAL.key();
    let Some(found) = external_named(text, all) else {
        let quoted = text::quoted(text);
        return Err(format!(
            "annotation {key}: the project has no load balancer with the ID or name {quoted}. Correct the value: \
             hcloud load-balancer list shows all IDs and names"
        ));
    };
    let shown = found.shown();
    if let Some(label) = found.ownership.managed_by() {
        return Err(format!(
            "annotation {key}: load balancer {shown} is not external, because its label {label} says that ccm manages \
             it for Services. Set annotation {} instead, or first end the management with ccm lb release",
            a::SHARE.key()
        ));
    }
    if !is_allowed(found, service) {
        return Err(format!(
            "annotation {key}: the owner of load balancer {} does not allow namespace {} to use it. To allow it, run: \
             {}",
            shown,
            service.namespace,
            text::shell_command(
                "hcloud load-balancer add-label --overwrite",
                &[&found.id, &format!("{EXTERNAL}={}", service.namespace)]
            )
        ));
    }
    let has_ours = found.ownership.uids().any(|uid| cluster.service_uids.contains(uid));
    if let Some(uid) = cluster_on_external(found, cluster).filter(|_| has_ours) {
        return Err(format!(
            "annotation {key}: load balancer {shown} has ports of Services of cluster {uid}, and these Services have \
             the same UIDs as Services of this cluster, so one cluster may be a copy of the other. If this \
             cluster was restored from a backup of cluster {uid}, and cluster {uid} does not exist any more, run: {}",
            text::shell_command(
                "hcloud load-balancer remove-label",
                &[&found.id, &format!("{TARGETS_BEFORE}{uid}")]
            )
        ));
    }
    Ok(found)
}

/// Returns the Services whose annotation `external` names this load balancer, if the owner of the load balancer allows
/// their namespace.
fn external_members<'a>(
    balancer: Labelled<'a>,
    cluster: &'a Cluster,
) -> impl Iterator<Item = &'a Service> {
    let all = external_keys(balancer).into_iter().flat_map(|key| cluster.groups.of_key(&key));
    all.filter(move |service| is_allowed(balancer, service))
}

impl<'a> Group<'a> {
    /// Lets the Service share the load balancer that its annotation `share` names. If this is not allowed, sets
    /// `refused` to the reason.
    fn join_shared(&mut self, parser: &mut AnnotationParser, share: GroupName<'a>) {
        let service = self.service;
        self.of = GroupUse::Shared(share);
        self.members.extend(share.members(self.cluster.groups.of_key(&share.label())));
        let is_own = service.namespace == share.namespace;
        if is_own || self.balancers.is_none() || self.has_member(&service.uid) {
            return;
        }
        let why = format!(
            "annotation {share_key}: the value \"{space}/{name}\" names a load balancer of namespace {space} (the form \
             is NAMESPACE/NAME), but no Service of namespace {space} allows namespace {own} to use it. To allow it, \
             choose a Service of namespace {space} that has annotation {share_key} with the value \"{name}\", and add \
             \"{own}\" to the value of its annotation {}",
            a::SHARE_NAMESPACES.key(),
            share_key = a::SHARE.key(),
            name = share.name,
            space = share.namespace,
            own = service.namespace
        );
        // A Service that already has ports on the load balancer keeps them although its namespace is not allowed to
        // share the load balancer any more. So its traffic continues.
        match self.made(share).find(|balancer| has_labelled_port(*balancer, service)) {
            None => self.refused = Some(why),
            Some(balancer) => {
                self.closed_by = Some(share.namespace);
                let shown = balancer.shown();
                let stays = format!(
                    "{why}. Until then the Service keeps its ports on load balancer {shown}, and gets no more ports"
                );
                parser.warning(Reason::SyncLoadBalancerFailed, stays);
            }
        }
    }

    /// Makes the Service a user of the external load balancer (one that somebody else made) with the ID or name `text`.
    /// If this is not allowed, sets `refused` to the reason.
    fn join_external(&mut self, text: &str) {
        let (service, cluster) = (self.service, self.cluster);
        let found = self.balancers.map(|all| external(service, all, text, cluster));
        let found = found.transpose().unwrap_or_else(|why| {
            self.refused = Some(why);
            None
        });
        self.of = GroupUse::External(found);
        let members = found.map(|found| external_members(found, cluster));
        self.members.extend(members.into_iter().flatten());
    }

    /// Completes the list of Services that are allowed to share the load balancer, and sorts it by age. The Service for
    /// which the plan is made is always in the list, in its newest version.
    ///
    /// Also determines whose annotations decide about the settings that do not belong to a port. `stays_on` is the
    /// present load balancer of a Service that asks for another load balancer, but can't have it yet. The annotations
    /// of this Service then decide about the present load balancer only if no other Service uses it. In all other
    /// cases, `stays_on` is `None`.
    fn order(&mut self, stays_on: Option<Labelled>) {
        let (uid, cluster) = (&self.service.uid, self.cluster);
        let is_released = |service: &Service| {
            self.balancers.is_some_and(|all| !all.released(&service.uid).is_empty())
        };
        let members = &mut self.members;
        members.retain(|service| service.uid != *uid && !is_released(service));
        members.push(self.service);
        order::sort_by_key(members, |service| {
            (service.created.is_none(), service.created, &service.uid)
        });
        let is_alone = members.len() == 1
            && !stays_on.is_some_and(|balancer| is_used_by_others(balancer, uid, cluster));
        if let GroupUse::Shared(share) = self.of {
            let namespace = share.namespace;
            let may_decide = |uid: &String| {
                let left = cluster.untouched.get(uid);
                left.is_some_and(|service| service.is_unread && service.namespace == namespace)
            };
            self.undecided =
                self.made(share).find(|balancer| balancer.ownership.uids().any(may_decide));
            // A Service of another namespace can have ports on the shared load balancer although its namespace is not
            // allowed to share it any more. The load balancer has a label for each port, which names the Service of the
            // port. So these labels are also searched for Services of other namespaces.
            self.is_of_several_namespaces =
                self.members.iter().any(|member| member.namespace != namespace)
                    || self.made(share).any(|made| has_guest(made, namespace, cluster));
        }
        let is_undecided = self.undecided.is_some();
        let decides = |service: &&Service| {
            let is_of_group = match self.of {
                GroupUse::Own => true,
                GroupUse::Shared(share) => service.namespace == share.namespace,
                GroupUse::External(_) => false,
            };
            let may = stays_on.is_none() || is_alone || service.uid != *uid;
            is_of_group && may && !is_undecided
        };
        self.deciders = self.members.iter().copied().filter(decides).collect();
    }

    /// Returns the load balancers whose labels name this cluster and the group of Services with the name `share`.
    fn made(&self, share: GroupName) -> impl Iterator<Item = Labelled<'a>> + use<'a> {
        let cluster = self.cluster;
        let all = self.balancers.map(|all| all.labelled(GROUP, &share.label()));
        all.into_iter().flatten().filter(|balancer| balancer.ownership.is_of(cluster))
    }

    pub(crate) fn is_own(&self) -> bool {
        matches!(self.of, GroupUse::Own)
    }

    /// Whether the Service's annotations ask for this load balancer, or might ask for it. When the annotations are
    /// invalid, this is not known, and the result is `true`.
    pub(crate) fn may_be_asked_for(&self, balancer: Labelled) -> bool {
        let ownership = balancer.ownership;
        let set = |annotation| value_of(self.service, annotation);
        match (self.of, set(&a::SHARE), set(&a::EXTERNAL)) {
            (GroupUse::Own, None, None) => {
                ownership.service_uid.as_ref() == Some(&self.service.uid)
            }
            (GroupUse::Shared(share), Some(_), None) => {
                ownership.group.as_ref() == Some(&share.label())
            }
            (GroupUse::External(_), None, Some(text)) => {
                let named = self.balancers.and_then(|all| external_named(text, all));
                named.is_some_and(|other| other.id == balancer.id)
            }
            _ => true,
        }
    }

    /// Returns the name of the owner for whom the load balancer is made, as `namespace.name`. When several Services
    /// share the load balancer, this is the name by which they share it. Otherwise it is the name of the Service.
    pub(crate) fn made_for(&self) -> String {
        match self.of {
            GroupUse::Shared(share) => share.label(),
            GroupUse::Own | GroupUse::External(_) => service_value(self.service),
        }
    }

    pub(crate) fn is_external(&self) -> bool {
        matches!(self.of, GroupUse::External(_))
    }

    /// Returns the external load balancer (one that somebody else made) that the Service uses. `None` when the Service
    /// uses another kind of load balancer, or is not allowed to use this one.
    pub(crate) fn balancer(&self) -> Option<Labelled<'a>> {
        match self.of {
            GroupUse::External(balancer) => balancer,
            GroupUse::Own | GroupUse::Shared(_) => None,
        }
    }

    /// Whether Services share the load balancer, but no Service is allowed to decide about its settings. Only Services
    /// in the namespace of the group name `NAMESPACE/NAME` decide. The result is `true` when none of the Services that
    /// share the load balancer is in this namespace, or when one of those in this namespace could not be read.
    pub(crate) fn has_no_decider(&self) -> bool {
        matches!(self.of, GroupUse::Shared(_)) && self.deciders.is_empty()
    }

    /// Returns the reason why annotations of the Service have no effect on settings of the whole load balancer, i.e. on
    /// settings that do not belong to a single port. It is a text for messages.
    pub(crate) fn why_it_does_not_decide(&self) -> String {
        match self.of {
            _ if self.undecided.is_some() => {
                "another Service of the load balancer has too many annotations, so ccm does not read them. Until this is \
                 corrected, no Service decides about the settings of the load balancer"
                    .to_owned()
            }
            GroupUse::External(_) => {
                "the load balancer is external, so ccm does not change its settings. Remove the annotation"
                    .to_owned()
            }
            GroupUse::Shared(share) if share.namespace != self.service.namespace => format!(
                "the load balancer is shared under the name {ns}/{}, so only Services of namespace {ns} decide about its \
                 settings. Remove this annotation, or set it on a Service of namespace {ns} that shares the \
                 load balancer",
                share.name,
                ns = share.namespace
            ),
            GroupUse::Shared(_) | GroupUse::Own => {
                "the Service has not yet moved to the load balancer that it asks for, and only other Services decide \
                 about the settings of its present load balancer"
                    .to_owned()
            }
        }
    }

    /// Whether each existing target keeps the kind of address (private or public) by which the load balancer reaches it
    /// now. This is so for an external load balancer (one that somebody else made). It is also so for a shared load
    /// balancer when none of its Services is allowed to decide about its settings.
    pub(crate) fn keeps_ways(&self) -> bool {
        self.is_external() || self.has_no_decider()
    }

    fn has_member(&self, uid: &str) -> bool {
        self.members.iter().any(|member| member.uid == uid)
    }

    /// Returns the Services that have a port on this load balancer, the oldest first. A Service that asks for another load balancer by now is among them as long as it has a port here.
    pub(crate) fn served_on(&self, balancer: Labelled) -> Vec<&'a Service> {
        let is_served = |service: &&Service| {
            let mut ports = balancer.services.iter();
            has_labelled_port(balancer, service)
                || ports.any(|port| is_of(service, balancer, port, self.cluster))
        };
        let members = self.members.iter().copied().filter(is_served);
        let leaving = balancer.ownership.ports.values().filter(|uid| !self.has_member(uid));
        let leaving = leaving.filter_map(|uid| self.cluster.groups.of_uid(uid));
        let mut all: Vec<&Service> = members.chain(leaving).collect();
        order::sort_by_key(&mut all, |service| {
            (service.created.is_none(), service.created, &service.uid)
        });
        all.dedup_by_key(|service| &service.uid);
        all
    }

    /// Whether annotations of other Services than `service` also decide about settings of the load balancer. On a
    /// shared load balancer, this is so when it has another Service. On an external load balancer (one that somebody
    /// else made), annotations decide only about the targets. There, this is so when another Service has a port.
    pub(crate) fn others_decide(&self, balancer: Labelled, service: &Service) -> bool {
        let served = self.served_on(balancer);
        let mut others = self.members.iter().filter(|member| member.uid != service.uid);
        others.any(|other| served.iter().any(|served| served.uid == other.uid))
    }

    /// Returns the Service to which a port of the load balancer belongs when the port has no label. It is the Service
    /// with the same port number and node port, among the Services that are allowed to share the load balancer. On an
    /// external load balancer (one that somebody else made), the status of the Service must also show that this load
    /// balancer serves the Service. The function [`is_recognised`] checks this.
    pub(crate) fn recognised(&self, balancer: Labelled, port: &Listener) -> Option<&'a Service> {
        self.members.iter().copied().find(|member| {
            if self.is_external() {
                is_recognised(member, balancer, port, self.cluster)
            } else {
                is_port_of(member, port)
            }
        })
    }

    pub(crate) fn owner(&self, balancer: Labelled, port: &Listener) -> Owner {
        let has_label = balancer.ownership.ports.contains_key(&port.listen_port);
        let is_ours = balancer.ownership.is_of(self.cluster) && !self.is_external();
        match self.owner_uid(balancer, port) {
            _ if self.is_own() && !has_label => Owner::This,
            Some(uid) if *uid == self.service.uid => Owner::This,
            Some(uid) if self.has_member(uid) => Owner::Member,
            Some(uid) if is_ours && !self.cluster.service_uids.contains(uid) => Owner::Gone,
            _ => Owner::Other,
        }
    }

    /// Returns the UID of the Service that owns a port of the load balancer. The label of the port names it. When the
    /// port has no label, the owner is the Service with the same port number and node port, among the Services that
    /// share the load balancer. If there is none, the owner is the Service in the load balancer's label `service-uid`.
    fn owner_uid<'b>(&'b self, balancer: Labelled<'b>, port: &Listener) -> Option<&'b String> {
        let ownership = balancer.ownership;
        let by_label = ownership.ports.get(&port.listen_port);
        let by_numbers = || Some(&self.recognised(balancer, port)?.uid);
        by_label.or_else(by_numbers).or(ownership.service_uid.as_ref())
    }

    /// Whether a label of the load balancer names an owner that is not known, i.e. has the UID of a Service that is not
    /// in the list of existing Services. On an external load balancer (one that somebody else made), the result is
    /// always `false`, because there the UID can be that of a Service of another cluster.
    pub(crate) fn has_unknown_owner(&self, balancer: Labelled) -> bool {
        let is_known =
            |uid: &String| self.cluster.service_uids.contains(uid) || self.has_member(uid);
        !self.is_external() && !balancer.ownership.uids().all(is_known)
    }

    /// Whether another Service still has a port on the load balancer, but will leave it, because it asks for
    /// another load balancer or is not allowed to share this one any more. The plan for that other Service will
    /// remove the port.
    pub(crate) fn is_being_left(&self, balancer: Labelled) -> bool {
        let stays = |uid: &String| self.has_member(uid) || self.cluster.untouched.contains_key(uid);
        let leaves = |uid: &String| self.cluster.service_uids.contains(uid) && !stays(uid);
        !self.is_own() && balancer.ownership.ports.values().any(leaves)
    }

    /// Whether this plan removes the port. There are two cases. The owner of the port was deleted, or the owner is the
    /// Service for which the plan is made, and it does not ask for the port any more.
    pub(crate) fn is_unwanted(&self, balancer: Labelled, port: &Listener) -> bool {
        match self.owner(balancer, port) {
            Owner::This => !tcp(self.service).any(|(number, _)| number == port.listen_port),
            Owner::Gone => true,
            Owner::Member | Owner::Other => false,
        }
    }

    fn older(&self) -> impl Iterator<Item = &'a Service> {
        self.members.iter().copied().take_while(|service| service.uid != self.service.uid)
    }

    /// Returns the port numbers that this Service can't have on the load balancer. There are two kinds: the ports for
    /// which an older Service on the same load balancer asks, and the existing ports that belong to somebody else.
    pub(crate) fn other_ports(&self, there: Option<Labelled>) -> BTreeSet<u16> {
        let older = self.older().flat_map(tcp).map(|(number, _)| number);
        let stays = |(balancer, port): &(Labelled, &Listener)| {
            matches!(self.owner(*balancer, port), Owner::Member | Owner::Other)
        };
        let found = ports_of(there).filter(stays);
        older.chain(found.map(|(_, port)| port.listen_port)).collect()
    }

    /// Returns the port numbers for which the load balancer must have room: the ports for which its Services ask, and the
    /// existing ports of others that stay. The result is the same for each Service of the group. A Service that gets no
    /// new ports counts with its existing ports only.
    pub(crate) fn wanted_ports(&self, there: Option<Labelled>) -> BTreeSet<u16> {
        let may_add =
            |member: &&&Service| self.closed_by.is_none() || member.uid != self.service.uid;
        let asked = self.members.iter().filter(may_add).flat_map(|member| tcp(member));
        let stays = |(balancer, port): &(Labelled, &Listener)| match self.owner(*balancer, port) {
            Owner::This => !self.is_unwanted(*balancer, port),
            Owner::Other => true,
            Owner::Member | Owner::Gone => false,
        };
        let found = ports_of(there).filter(stays);
        asked.map(|(number, _)| number).chain(found.map(|(_, port)| port.listen_port)).collect()
    }

    /// Returns why this Service can't have the port with this number on the load balancer `there`, or `None` when it
    /// can. While the Service that owns an existing port still asks for this port, no other Service gets it. When
    /// several Services ask for a port that does not exist yet, the oldest of them gets it.
    pub(crate) fn taken(&self, number: u16, there: Option<Labelled>) -> Option<String> {
        let answers = |port: &Listener| {
            port.listen_port == number || (number == HTTP_PORT && port.redirects_http())
        };
        for (balancer, port) in ports_of(there).filter(|(_, port)| answers(port)) {
            let (uid, shown) = (self.owner_uid(balancer, port), balancer.shown());
            let member = self.members.iter().find(|member| Some(&member.uid) == uid);
            match (self.owner(balancer, port), member) {
                (Owner::This, _) => return None,
                // Another Service of the group (the Services that share the load balancer) owns the port with this
                // number. While that Service still asks for the port, this Service can't have the number. Otherwise the
                // port is about to be removed.
                (Owner::Member, Some(member)) if claims(member, number) => {
                    let name = member.full_name();
                    return Some(format!(
                        "Service {name} already uses this port of load balancer {shown}, which both Services share"
                    ));
                }
                (Owner::Member | Owner::Gone, _) => {}
                (Owner::Other, _) => {
                    return Some(format!(
                        "load balancer {shown} already has this port, and the port belongs to no Service that shares \
                         the load balancer"
                    ));
                }
            }
        }
        if let Some(namespace) = self.closed_by {
            return Some(format!(
                "the load balancer belongs to namespace {namespace}, and no Service of that namespace allows namespace \
                 {} to use the load balancer",
                self.service.namespace
            ));
        }
        let older = self.older().find(|service| claims(service, number))?;
        Some(format!(
            "{} asks for the same port of the load balancer that both Services share",
            first_to_decide(older)
        ))
    }

    /// Returns the labels that say who owns the load balancer and its ports, with the values that they should have
    /// after the plan. Also returns the labels that the plan sets or removes, for display. `balancer` is `None` when
    /// the plan creates the load balancer. `adopts` means that the Service becomes the owner of a load balancer that
    /// exists already. `ports` are the ports that the Service gets. `is_kept` means that the load balancer stays when
    /// its Services are deleted.
    pub(crate) fn wanted(
        &self,
        balancer: Option<Labelled>,
        adopts: bool,
        ports: &[u16],
        is_kept: bool,
    ) -> (Ownership, WantedLabels) {
        let from = balancer.map(|balancer| balancer.ownership.clone()).unwrap_or_default();
        let (mut to, mut said) = (from.clone(), Ownership::default());
        if !self.is_external() {
            said = Ownership::of_service(self.service, self.cluster);
            let yes = Some(YES.to_owned());
            match balancer {
                None => said.created = yes,
                // The label `adopted` is set only on a load balancer that this program did not create.
                Some(_) if adopts && from.created.is_none() => said.adopted = yes,
                Some(_) => {}
            }
            if !self.has_no_decider() {
                to.keep = None;
                said.keep = is_kept.then(|| self.made_for());
            }
        }
        let unwanted = self.unwanted_labels(&to);
        to.ports.retain(|number, _| !unwanted.contains(number));
        match self.of {
            GroupUse::Own => to.group = None,
            GroupUse::Shared(share) => said.group = Some(share.label()),
            GroupUse::External(_) => {
                let own = Some(&self.cluster.uid).filter(|uid| !uid.is_empty());
                let mut uids = from.targets_before.keys();
                let known_by = uids.find(|uid| self.cluster.is_known_by(uid)).or(own).cloned();
                let before = balancer.map(|balancer| self.targets_before(balancer));
                said.targets_before.extend(known_by.zip(before));
            }
        }
        if !self.is_own() {
            said.ports = self.labels_of_ports(balancer, ports, &unwanted);
        }
        // Whether another load balancer already has the Service's UID in its label `service-uid`. If so, this load
        // balancer does not get the label, because the label must show which one load balancer belongs to the Service.
        let has_another = self.balancers.is_some_and(|all| {
            let with_uid = all.with_uid(&self.service.uid);
            with_uid
                .iter()
                .any(|other| !balancer.is_some_and(|own| is_same_or_partner(own, *other)))
        });
        if (!self.is_own() && has_another) || self.is_of_several(balancer) {
            (said.service_uid, said.service) = (None, None);
            (to.service_uid, to.service) = (None, None);
        }
        to.say(&said);
        let mut shown = from.change_to(&to);
        shown.retain(|_, value| value.is_none());
        shown.extend(said.wanted());
        (to, shown)
    }

    /// Whether the Service is not the only owner of the shared load balancer. This is so in three cases: other Services
    /// use the load balancer, or it still has ports of a Service for which this program has stopped managing it, or the
    /// Service is not in the namespace of the group name `NAMESPACE/NAME`. Such a load balancer must not have the label
    /// `service-uid`. With the label, hcloud-cloud-controller-manager and this program would regard the Service as the
    /// only owner, and would remove the ports of the other Services.
    fn is_of_several(&self, balancer: Option<Labelled>) -> bool {
        let GroupUse::Shared(share) = self.of else {
            return false;
        };
        let uid = &self.service.uid;
        let is_used = |balancer| {
            is_used_by_others(balancer, uid, self.cluster) || is_released_by_another(balancer, uid)
        };
        self.service.namespace != share.namespace
            || self.members.len() > 1
            || balancer.is_some_and(is_used)
    }

    /// Returns, for each port that must have a label, the UID of its owner. These are the ports that this Service gets,
    /// and the existing ports of the other Services that share the load balancer. So a label that somebody removed is
    /// written again.
    fn labels_of_ports(
        &self,
        balancer: Option<Labelled>,
        ports: &[u16],
        unwanted: &BTreeSet<u16>,
    ) -> BTreeMap<u16, String> {
        let own = ports.iter().map(|number| (*number, self.service.uid.clone()));
        let mut labels = order::map(own);
        for (balancer, port) in ports_of(balancer) {
            let is_ours = matches!(self.owner(balancer, port), Owner::This | Owner::Member);
            let number = port.listen_port;
            let stays = is_ours && !self.is_unwanted(balancer, port) && !unwanted.contains(&number);
            if let Some(uid) = self.owner_uid(balancer, port).filter(|_| stays) {
                labels.entry(number).or_insert(uid.clone());
            }
        }
        labels
    }

    /// Returns the port numbers whose labels the plan removes. There are three kinds of such labels:
    ///
    /// - The label names this Service as the owner of a port that it does not ask for any more.
    /// - The label names this Service, which does not share its load balancer. No port needs such a label then.
    /// - The label names a Service that was deleted, and the load balancer is not external (made by somebody else).
    fn unwanted_labels(&self, ownership: &Ownership) -> BTreeSet<u16> {
        let (own, is_external) = (&self.service.uid, self.is_external());
        let has = |number: u16| tcp(self.service).any(|(own, _)| own == number);
        let is_unwanted = |(number, uid): &(&u16, &String)| {
            if *uid == own {
                self.is_own() || !has(**number)
            } else {
                !is_external && !self.cluster.service_uids.contains(*uid)
            }
        };
        ownership.ports.iter().filter(is_unwanted).map(|(number, _)| *number).collect()
    }

    /// Returns the value of the label `targets-before`. It lists the targets that an external load balancer (one that
    /// somebody else made) had before this cluster used it. If the label does not exist, this cluster has not added a
    /// target yet, so the list is made from the present targets.
    fn targets_before(&self, balancer: Labelled) -> String {
        if let Some(value) = balancer.ownership.targets_before(self.cluster) {
            return value.clone();
        }
        let is_ours = |port| matches!(self.owner(balancer, port), Owner::This | Owner::Member);
        let targets = balancer.single_targets().map(|(target, _)| in_label(target));
        let all = targets.collect::<Vec<_>>().join("_");
        // The label `targets-before` lists the targets that the load balancer had before this cluster used it. The
        // value `ALL` means that these targets are not known. This is so when the label is missing although this
        // cluster already has a port on the load balancer: the label was written before the port was added, so somebody
        // has removed the label. `ALL` is also used when the list is too long for a label or has a character that no
        // label can have.
        if balancer.services.iter().any(is_ours) || all.len() > LONGEST || all.contains(':') {
            ALL.to_owned()
        } else if all.is_empty() {
            NONE.to_owned()
        } else {
            all
        }
    }

    /// Whether an external load balancer (one that somebody else made) had this target before this cluster used the
    /// load balancer. When this is not known, the result is `true`.
    pub(crate) fn is_before(&self, balancer: Labelled, target: TargetId) -> bool {
        self.is_external() && is_in(&self.targets_before(balancer), target)
    }
}

/// Whether `one` and `other` are the same load balancer, or one of the two load balancers replaces the other.
pub(crate) fn is_same_or_partner(one: Labelled, other: Labelled) -> bool {
    let names = |new: Labelled, old: Labelled| {
        new.ownership.replacement.replaces == Some(old.id.to_string())
    };
    one.id == other.id || names(one, other) || names(other, one)
}

/// Whether an external load balancer (one that somebody else made) had this target before this cluster used the load
/// balancer. Such a target must not be removed. When the label `targets-before` is missing, this is not known, and the
/// result is `true`.
pub(crate) fn was_before(balancer: Labelled, target: TargetId, cluster: &Cluster) -> bool {
    is_in(balancer.ownership.targets_before(cluster).map_or(ALL, String::as_str), target)
}

fn is_in(value: &str, target: TargetId) -> bool {
    value == ALL || value.split('_').any(|part| part == in_label(target))
}

fn in_label(target: TargetId) -> String {
    match target {
        TargetId::Server(id) => id.to_string(),
        TargetId::Address(ip) => ip.to_string(),
    }
}

/// Returns the kind of load balancer that the labels describe: for one Service, shared by Services, external (made by
/// somebody else), or released (not managed any more).
pub(crate) fn use_of(balancer: Labelled) -> BalancerUse {
    let ownership = balancer.ownership;
    if ownership.external.is_some() {
        BalancerUse::External
    } else if ownership.group.is_some() {
        BalancerUse::Shared
    } else if ownership.released.is_some() {
        BalancerUse::Released
    } else {
        BalancerUse::Own
    }
}

/// Returns the name of the group of Services that share the load balancer, as `NAMESPACE/NAME`, according to its label.
pub(crate) fn name(balancer: Labelled) -> Option<String> {
    balancer.ownership.group.as_deref().map(slashed)
}

/// Returns the owner of each port, when the load balancer is shared or external (made by somebody else). For the load
/// balancer of one Service, the list is empty.
pub(crate) fn port_owners(balancer: Labelled, cluster: &Cluster) -> Vec<PortOwner> {
    let ports = balancer.services.iter().map(|port| {
        let uid = balancer.ownership.ports.get(&port.listen_port);
        let member = uid.and_then(|uid| cluster.groups.of_uid(uid));
        PortOwner {
            port: port.listen_port,
            uid: uid.cloned(),
            service: member.map(Service::full_name),
            destination: destination(port),
        }
    });
    match use_of(balancer) {
        BalancerUse::Own | BalancerUse::Released => Vec::new(),
        BalancerUse::Shared | BalancerUse::External => ports.collect(),
    }
}

fn ports_of<'a>(
    balancer: Option<Labelled<'a>>,
) -> impl Iterator<Item = (Labelled<'a>, &'a Listener)> {
    let all = balancer.into_iter();
    all.flat_map(|labelled| labelled.balancer.services.iter().map(move |port| (labelled, port)))
}

/// Whether the Service needs this port number. A Service that redirects HTTP to HTTPS needs port 80, too.
fn claims(service: &Service, number: u16) -> bool {
    let is_on = |text: &str| text::boolean(text) == Ok(true);
    let redirects = || {
        values_of(service, &a::HTTP_REDIRECT_HTTP).any(is_on)
            && values_of(service, &a::PROTOCOL).any(|text| text.eq_ignore_ascii_case("https"))
    };
    tcp(service).any(|(own, _)| own == number) || (number == HTTP_PORT && redirects())
}
