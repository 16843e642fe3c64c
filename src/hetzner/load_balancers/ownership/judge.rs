//! The rules of ownership: whether a load balancer belongs to a Service, and whether this program is allowed to adopt,
//! release or delete the load balancer.
//!
//! All code that finds, adopts, releases or deletes load balancers, or lists orphans, calls the functions of this file.
//! Each function follows one of the tables below, and the first row that is true for the load balancer decides. When
//! the owner is not certain, the load balancer is not changed. The tests in `judge/tests.rs` have the numbers of the
//! rows. In the tables, a living Service is a Service that exists in this cluster.
//!
//! # The extent to which the Service owns the load balancer: [`stake`]
//!
//! | row | the load balancer | the result |
//! |--:|---|---|
//! | 1 | no label has the Service's UID, and no port is recognised as the Service's | [`Stake::Nothing`] |
//! | 2 | a label names another cluster, and the targets do not prove that the load balancer belongs to this one | [`Stake::Copy`]: the other cluster owns the load balancer |
//! | 3 | the label `service-uid` has the Service's UID, and no other living Service uses the load balancer | [`Stake::Whole`] |
//! | 4 | anything else | [`Stake::Part`]: the Service owns some ports |
//!
//! [`other_cluster`] describes what proves that a load balancer belongs to this cluster.
//!
//! # Whether the Service is allowed to adopt the load balancer: [`adoption`]
//!
//! The last three columns have the answers for three cases. In the first case, an operator asks for the adoption by the
//! load balancer's label `adopt`, which names the Service. In the second case, the Service's annotation `name` names
//! the load balancer. In the third case, nobody asks for the adoption, but the load balancer has the default name for
//! the Service. The answer `next row` means that this row does not decide, and the rows below it do.
//!
//! | row | the load balancer | label `adopt` | annotation `name` | default name |
//! |--:|---|---|---|---|
//! | 1 | it has the label `external`: somebody else made it, and allows Services to use it | no | no | no |
//! | 2 | other living Services use it | `next row` | no | no |
//! | 3 | one of its labels has the UID of another living Service | no | no | no |
//! | 4 | its label `adopt` names another Service | impossible | no | no |
//! | 5 | a label names another cluster | yes | no | no |
//! | 6 | it was made for a Service of another namespace, and it has the label `cluster-uid` or `keep` | yes | no | no |
//! | 7 | a label says that another program owns it, and this program did not create it | yes | no | `next row` |
//! | 8 | labels say that this cluster used it for this Service, or for an earlier Service of the same name | yes | yes | yes |
//! | 9 | labels say that this cluster used it for another Service, which does not exist any more | yes | yes | no |
//! | 10 | its label has the UID of a Service that does not exist, and all its targets are nodes of this cluster | yes | yes | no |
//! | 11 | its label has the UID of a Service that does not exist | yes | no | no |
//! | 12 | it has ports | yes | no | no |
//! | 13 | it has a target that is not proven to be a node of this cluster | yes | no | no |
//! | 14 | none of these | yes | yes | no |
//!
//! # What happens to the load balancer when the Service leaves it: [`why_it_stays`]
//!
//! A load balancer is deleted only when it was certainly made for the Service, and no other Service uses it.
//!
//! | row | the load balancer | it is then |
//! |--:|---|---|
//! | 1 | other living Services use it | released |
//! | 2 | it has the label `external` | released |
//! | 3 | it has the label `released` with the UID of another Service | released |
//! | 4 | the annotation or the label `keep` asks for this, see [`is_kept`] | released, with the label `keep` |
//! | 5 | it has a target that is not proven to be a node of this cluster, see [`target_of_others`] | released |
//! | 6 | it has the label `created`, which only the request that creates a load balancer sets | deleted |
//! | 7 | it has the label `adopted` or `adopt` | released |
//! | 8 | it has no label `service-uid`, because its labels were removed | released |
//! | 9 | it has a label whose key begins neither with `ccm-from-scratch/` nor with `hcloud-ccm/` | released, because an operator or a program may own it |
//! | 10 | it has a label-selector target, which neither this program nor Hetzner's controller ever adds | released |
//! | 11 | it was created more than a minute before its Service, so that no controller made it for that Service | released |
//! | 12 | none of these | deleted, because Hetzner's controller made it, or an older version of this program |
//!
//! Rows 8 to 11 are for an adopted load balancer that lost its label `adopted`, for example because Terraform removes
//! every label that it does not know. A load balancer with delete protection is never deleted.
//!
//! # The state of a load balancer that no Service uses: [`leftover`]
//!
//! | row | the load balancer | its state |
//! |--:|---|---|
//! | 1 | no label says that it belongs to this cluster | not of this cluster |
//! | 2 | the Service of its label `service-uid` exists, or Services use it | in use |
//! | 3 | it has the label `keep` | kept |
//! | 4 | it has delete protection | an orphan that stays |
//! | 5 | it has the label `adopt` | an orphan that stays |
//! | 6 | it would be released, and not deleted, when a Service leaves it | an orphan that stays |
//! | 7 | none of these | an orphan that is deleted on request |
//!
//! Row 6 refers to the table of [`why_it_stays`]. Row 5 of that table is important when a cluster was copied, and the
//! copy has the UID of the original. A load balancer of the original then has targets that are no nodes of the copy, so
//! the copy does not delete it.
//!
//! # Two load balancers of one Service or group: [`replacement`]
//!
//! | row | the load balancer | the answer |
//! |--:|---|---|
//! | 1 | it and another one of this cluster have the same owner, this program created the new one, and the label `replaces` of the new one names the old one | [`Replacing::Both`] |
//! | 2 | it has the label `replaces`, and row 1 is not true, e.g. because the named load balancer does not exist or belongs to somebody else now | [`Replacing::Last`]: the replacement has ended |
//! | 3 | it has the label `replace` | [`Replacing::Asked`]: a new one shall be created |
//! | 4 | none of these | [`Replacing::No`] |
//!
//! An old load balancer that has lost all labels about its owner still has the same owner when all its targets are
//! nodes of this cluster. When row 1 is true, but the label `overlap` has an unknown value, the answer is
//! [`Replacing::No`], so that nothing is done.

use super::facts::{
    foreign_target, has_only_own_targets, is_kept, is_recognised, is_released_by_another,
    is_used_by_others, other_cluster, other_service, target_of_others,
};
use super::index::Balancers;
use super::labels::{
    ADOPT, CLUSTER_UID, Labelled, Ownership, REPLACES, SERVICE_UID, foreign_label, owned_by_program,
};
use super::names::service_value;
use super::replacement::{Overlap, Pair};
use crate::hetzner::load_balancers::annotations as a;
use crate::hetzner::load_balancers::model::balancer::ApiTarget;
use crate::provider::{Cluster, Service};
use crate::text::slashed;
use jiff::{SignedDuration, Timestamp};

#[cfg(test)]
mod tests;

/// The clocks of the Kubernetes API and of Hetzner's API are expected to differ by at most this time.
const CLOCKS_DIFFER_BY: SignedDuration = SignedDuration::from_secs(60);

/// The extent to which a Service owns a load balancer: as a whole, only some ports, or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stake<'a> {
    Nothing,
    /// The Service seems to have ports on the load balancer, but another cluster, with the UID in this variant, owns
    /// the load balancer. One of the two clusters is a copy of the other, so their Services have the same UIDs.
    Copy(&'a str),
    /// The Service owns the load balancer, and no other Service has ports on it.
    Whole,
    /// The Service has ports on the load balancer, but is not its only owner.
    Part,
}

/// How a person asks for the adoption of a load balancer by a Service, i.e. that the Service becomes the owner of the
/// existing load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AskedBy {
    /// An operator asks for the adoption, by the label `adopt` of the load balancer.
    Label,
    /// The annotation `name` of the Service asks for the adoption, because it names the load balancer.
    Name,
    /// Neither a label nor an annotation asks for the adoption. The Service would adopt the load balancer because it
    /// has the name that a new load balancer of the Service would get.
    Default,
}

/// The reason why a Service is not allowed to adopt a load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WhyNot<'a> {
    External,
    /// Another existing Service, with this UID, owns the load balancer or one of its ports.
    OfService(&'a String),
    /// The adoption is not allowed for another reason, which this text gives for messages. In this case an operator can
    /// still allow the adoption by the label `adopt`.
    Other(String),
}

/// The state of a load balancer that belongs to this cluster, but that no Service uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Leftover {
    Kept,
    Orphan {
        /// The reason why this load balancer must not be deleted although no Service uses it, as a text for messages.
        /// `None` means that it is deleted when an operator asks for this.
        stays: Option<String>,
    },
}

/// Whether a load balancer is being replaced by a new one, or is itself the new one that replaces another.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Replacing<'a> {
    #[default]
    No,
    /// A label asks for the replacement of this load balancer, and the new one does not exist yet.
    Asked(Labelled<'a>),
    /// The old and the new load balancer of a replacement both exist.
    Both(Pair<'a>),
    /// This load balancer was created to replace another one, which does not exist any more or belongs to somebody else
    /// now. So the replacement has ended.
    Last,
}

pub(crate) fn stake<'a>(balancer: Labelled<'a>, service: &Service, cluster: &Cluster) -> Stake<'a> {
    let mut ports = balancer.services.iter();
    let ownership = balancer.ownership;
    let is_on_it = ownership.carries(service)
        || !service.uid.is_empty()
            && ports.any(|port| is_recognised(service, balancer, port, cluster));
    let is_own = || {
        ownership.service_uid.as_ref() == Some(&service.uid)
            && !is_used_by_others(balancer, &service.uid, cluster)
    };
    match (is_on_it, other_cluster(balancer, cluster)) {
        (false, _) => Stake::Nothing,
        (true, Some(uid)) => Stake::Copy(uid),
        (true, None) if is_own() => Stake::Whole,
        (true, None) => Stake::Part,
    }
}

/// Returns the load balancers that belong to the Service as a whole or with some ports. The labels name the owner. A
/// port without a label can be recognised by its port number, its node port and the Service's status.
pub(crate) fn owned<'a>(
    balancers: Balancers<'a>,
    service: &'a Service,
    cluster: &'a Cluster,
) -> impl Iterator<Item = Labelled<'a>> {
    let all = balancers.may_be_of(service);
    all.filter(move |balancer| stake(*balancer, service, cluster) != Stake::Nothing)
}

impl Replacing<'_> {
    /// Sets the labels about a replacement in `to`, which contains the labels that a load balancer will get. A load
    /// balancer that is created to replace an old one gets the label `replaces` with the ID of the old one. When the
    /// replacement has ended, the labels `replaces` and `overlap` are removed.
    pub(crate) fn set_labels(&self, to: &mut Ownership, is_created: bool) {
        let labels = &mut to.replacement;
        match self {
            Replacing::Asked(old) if is_created => labels.replaces = Some(old.id.to_string()),
            Replacing::Last => (labels.replaces, labels.overlap) = (None, None),
            _ => {}
        }
    }
}

pub(crate) fn replacement<'a>(
    balancer: Labelled<'a>,
    balancers: Balancers<'a>,
    cluster: &Cluster,
) -> Replacing<'a> {
    let labels = &balancer.ownership.replacement;
    let by_id = |id: &String| id.parse().ok().and_then(|id| balancers.with_id(id));
    let both = match &labels.replaces {
        Some(id) => by_id(id).map(|old| (old, balancer)),
        None => {
            let new = balancers.labelled(REPLACES, &balancer.id.to_string()).into_iter();
            new.map(|new| (balancer, new)).find(|(old, new)| belong_together(*old, *new, cluster))
        }
    };
    match both.filter(|(old, new)| belong_together(*old, *new, cluster)) {
        Some((old, new)) => Overlap::parse(new.ownership.replacement.overlap.as_deref())
            .map_or(Replacing::No, |overlap| Replacing::Both(Pair { old, new, overlap })),
        None if labels.replaces.is_some() => Replacing::Last,
        None if labels.replace.is_some() => Replacing::Asked(balancer),
        None => Replacing::No,
    }
}

/// Whether the load balancer `new` can be the replacement of `old`: both are of this cluster and have the same owner,
/// and this program created `new`. The caller has checked that the label `replaces` of `new` names `old`.
fn belong_together(old: Labelled, new: Labelled, cluster: &Cluster) -> bool {
    let (from, to) = (old.ownership, new.ownership);
    let is_same = |from: &Option<String>, to: &Option<String>| from.is_some() && from == to;
    let has_lost_labels = from.uids().next().is_none()
        && from.managed_by().is_none()
        && from.cluster_uid.is_none()
        && has_only_own_targets(old, cluster);
    let is_managed =
        |ownership: &Ownership| ownership.external.is_none() && ownership.released.is_none();
    (is_same(&from.service_uid, &to.service_uid)
        || is_same(&from.group, &to.group)
        || has_lost_labels)
        && is_managed(from)
        && is_managed(to)
        && to.created.is_some()
        && to.cluster_uid.is_some()
        && [old, new].iter().all(|balancer| other_cluster(*balancer, cluster).is_none())
}

pub(crate) fn adoption<'a>(
    balancer: Labelled<'a>,
    service: &Service,
    cluster: &Cluster,
    by: AskedBy,
) -> Result<(), WhyNot<'a>> {
    let ownership = balancer.ownership;
    let refused = |why: String| Err(WhyNot::Other(why));
    // When the annotation `name` asks for the adoption, a label by which another program marks its load balancers
    // prevents the adoption. On a load balancer that this program created, such a label is ignored, because it comes
    // from the annotation `labels` of a Service, e.g. `team=owned`.
    let owner = owned_by_program(&balancer).filter(|_| by == AskedBy::Name);
    let owner = owner.filter(|_| ownership.created.is_none());
    if ownership.external.is_some() {
        Err(WhyNot::External)
    } else if by != AskedBy::Label && is_used_by_others(balancer, &service.uid, cluster) {
        refused("other Services of this cluster use it".to_owned())
    } else if let Some(uid) = other_service(balancer, service, cluster) {
        Err(WhyNot::OfService(uid))
    } else if by == AskedBy::Label {
        Ok(())
    } else if let Some(other) = &ownership.adopt {
        refused(format!("its label {ADOPT} names another Service ({other})"))
    } else if let Some(uid) = ownership.other_cluster_named(cluster) {
        refused(format!("its label {CLUSTER_UID} names another cluster ({uid})"))
    } else if let (Some(other), true) = (
        ownership.of_another_namespace(service),
        ownership.cluster_uid.is_some() || ownership.keep.is_some(),
    ) {
        // DNS names of users in the other namespace may still point to the address of the load balancer. So only a
        // Service of that other namespace is allowed to get the load balancer.
        let other = slashed(other);
        refused(format!("it belonged to Service {other}, which is in another namespace"))
    } else if let Some(label) = owner {
        refused(format!("its label {label} says that another program owns it"))
    } else {
        is_nobodys(balancer, service, cluster, by)
    }
}

/// Checks the last conditions for an adoption, which are rows 8 to 14 of the table of [`adoption`]: the annotations
/// must allow the adoption, and nothing may show that somebody else owns the load balancer. The error says why the
/// adoption is not allowed. The caller has already checked rows 1 to 7.
fn is_nobodys<'a>(
    balancer: Labelled,
    service: &Service,
    cluster: &Cluster,
    by: AskedBy,
) -> Result<(), WhyNot<'a>> {
    let ownership = balancer.ownership;
    let refused = |why: String| Err(WhyNot::Other(why));
    let is_of_this_name = ownership.service.as_ref() == Some(&service_value(service));
    match (&ownership.service_uid, &ownership.cluster_uid) {
        (Some(_), Some(_)) if is_of_this_name => return Ok(()),
        _ if by == AskedBy::Default => {
            return refused("no annotation of the Service names it".to_owned());
        }
        (Some(_), Some(_)) => return Ok(()),
        (Some(_), None) if has_only_own_targets(balancer, cluster) => return Ok(()),
        (Some(uid), None) => {
            return refused(format!(
                "its label {SERVICE_UID} names a Service that this cluster does not have ({uid}), and its targets do \
                 not show that it belongs to this cluster"
            ));
        }
        (None, _) => {}
    }
    match (balancer.services.first(), foreign_target(balancer, cluster)) {
        (Some(port), _) => refused(format!("it already has ports, e.g. port {}", port.listen_port)),
        (None, Some(why)) => refused(why),
        (None, None) => Ok(()),
    }
}

/// Returns the reason why a load balancer stays when its Service leaves it. Only the labels of the Service are then
/// removed from the load balancer. `None` means that the load balancer is deleted.
pub(crate) fn why_it_stays(
    balancer: Labelled,
    service: &Service,
    cluster: &Cluster,
) -> Option<String> {
    if is_used_by_others(balancer, &service.uid, cluster) {
        return Some("other Services use it".to_owned());
    }
    why_whole_stays(balancer, service, cluster)
}

/// Returns the reason why a load balancer stays when all its Services leave it. The reasons are in rows 2 to 12 of the
/// table of [`why_it_stays`].
pub(crate) fn why_whole_stays(
    balancer: Labelled,
    service: &Service,
    cluster: &Cluster,
) -> Option<String> {
    let ownership = balancer.ownership;
    let is_selector = |target: &ApiTarget| matches!(target, ApiTarget::LabelSelector { .. });
    let is_older = |(balancer, service): (Timestamp, Timestamp)| {
        service.duration_since(balancer) > CLOCKS_DIFFER_BY
    };
    let why = if ownership.external.is_some() {
        "ccm does not own it (it is external)".to_owned()
    } else if is_released_by_another(balancer, &service.uid) {
        "it still has ports of another Service, for which ccm lb release ended the management"
            .to_owned()
    } else if is_kept(balancer, service) {
        format!("annotation {} asks ccm to keep it", a::KEEP.key())
    } else if let Some(target) = target_of_others(balancer, cluster) {
        target
    } else if ownership.created.is_some() {
        return None;
    } else if ownership.adopted.is_some() || ownership.adopt.is_some() {
        "it was adopted, and not created by ccm".to_owned()
    } else if ownership.service_uid.is_none() {
        "no label says that it was made for this Service alone".to_owned()
    } else if let Some(label) = foreign_label(&balancer) {
        format!("it has label {label}, which ccm did not set")
    } else if balancer.targets.iter().any(is_selector) {
        "it has a label-selector target, which ccm never adds".to_owned()
    } else if balancer.created.zip(service.created).is_some_and(is_older) {
        "it is older than the Service, so it was not created for the Service".to_owned()
    } else {
        return None;
    };
    Some(why)
}

/// Returns the state of a load balancer of this cluster that no Service uses. `None` when it belongs to another
/// cluster, or when a Service uses it.
pub(crate) fn leftover(balancer: Labelled, cluster: &Cluster) -> Option<Leftover> {
    let ownership = balancer.ownership;
    let lives = |uid: &String| cluster.service_uids.contains(uid);
    let is_used = || is_used_by_others(balancer, "", cluster);
    if !ownership.is_of(cluster) || ownership.service_uid.as_ref().is_some_and(lives) || is_used() {
        return None;
    }
    if ownership.keep.is_some() {
        return Some(Leftover::Kept);
    }
    let stays = match &ownership.adopt {
        _ if balancer.protection.delete => Some("it has delete protection".to_owned()),
        Some(other) => {
            Some(format!("its label {ADOPT} reserves it for Service {}", slashed(other)))
        }
        None => why_it_stays(balancer, &Service::default(), cluster),
    };
    Some(Leftover::Orphan { stays })
}
