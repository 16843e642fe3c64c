//! Whose a load balancer is, by its targets and labels: what may be adopted, and what happens to it when its Service is
//! deleted. In doubt it stays.

use super::group::{is_released_by_another, is_used_by_others};
use super::labels::{ADOPT, Labelled, Ownership, RELEASED, foreign_label};
use crate::hetzner::load_balancers::annotations as a;
use crate::hetzner::load_balancers::annotations::parser::value_of;
use crate::hetzner::load_balancers::model::balancer::Target;
use crate::provider::{Cluster, InstanceId, Service};
use crate::text;
use jiff::{SignedDuration, Timestamp};

/// By how much the clocks of both APIs may differ.
const CLOCKS_DIFFER_BY: SignedDuration = SignedDuration::from_secs(60);

/// Why a load balancer is released when its Service is deleted, and stays; none: it is deleted. Deleted is only what was
/// certainly made for the Service and is used by it alone. In this order:
///
/// | it has | then |
/// |---|---|
/// | other living Services, or the label `ccm-from-scratch/external` of its owner | released |
/// | the label `ccm-from-scratch/released` with another UID | released |
/// | the annotation `keep`, see [`is_kept`] | released, with the label `ccm-from-scratch/keep` |
/// | a target that is no node of this cluster, see [`foreign_target`] | released |
/// | the label `ccm-from-scratch/created`, which only the request that creates one sets | deleted |
/// | the label `ccm-from-scratch/adopted` or `ccm-from-scratch/adopt` | released |
/// | no label `hcloud-ccm/service-uid`: it lost its labels | released |
/// | a label that is neither ours nor `hcloud-ccm/…` | released: an operator's or a program's |
/// | a label-selector target, which neither Hetzner's controller nor ours ever adds | released |
/// | been created more than a minute before its Service, so no controller made it for that | released |
/// | none of these | deleted: Hetzner's controller made it, or an older version of ours |
///
/// The last rows recognise an adopted one whose label `adopted` was removed, as Terraform does with every label that it
/// does not know.
pub(crate) fn why_it_stays(
    balancer: Labelled,
    service: &Service,
    cluster: &Cluster,
) -> Option<String> {
    if is_used_by_others(balancer, &service.uid, cluster) {
        return Some("other Services use it".to_owned());
    }
    let ownership = balancer.ownership;
    if ownership.external.is_some() {
        return Some("it is not this controller's".to_owned());
    }
    if is_released_by_another(balancer, &service.uid) {
        return Some("the management of another Service on it ended".to_owned());
    }
    if is_kept(balancer, service) {
        return Some(format!("annotation {} asks for it", a::KEEP.key()));
    }
    if let Some(target) = foreign_target(balancer, cluster) {
        return Some(target);
    }
    if ownership.created.is_some() {
        return None;
    }
    if ownership.adopted.is_some() || ownership.adopt.is_some() {
        return Some("it was adopted".to_owned());
    }
    if ownership.service_uid.is_none() {
        return Some("no label says that it was made for this Service alone".to_owned());
    }
    if let Some(label) = foreign_label(&balancer) {
        return Some(format!("it has label {label}, which is not a controller's"));
    }
    let is_selector = |target: &Target| matches!(target, Target::LabelSelector { .. });
    if balancer.targets.iter().any(is_selector) {
        return Some("it has a label-selector target".to_owned());
    }
    let is_older = |(balancer, service): (Timestamp, Timestamp)| {
        service.duration_since(balancer) > CLOCKS_DIFFER_BY
    };
    if balancer.created.zip(service.created).is_some_and(is_older) {
        return Some("it is older than the Service".to_owned());
    }
    None
}

/// Whether the load balancer outlasts its Services. The annotation says so, else the label, which may be of another
/// Service of the group. The annotation of a guest in another namespace does not count. In doubt the load balancer stays.
pub(crate) fn is_kept(balancer: Labelled, service: &Service) -> bool {
    let is_guest = balancer.ownership.is_of_guest(service);
    match value_of(service, &a::KEEP).filter(|_| !is_guest) {
        Some(value) => text::boolean(value) != Ok(false),
        None => balancer.ownership.keep.is_some(),
    }
}

/// The first target that is not proven to be a node of this cluster, for people. A server counts by its node, an
/// address by the nodes' addresses, a label selector by the servers that it selects: one that selects none yet, or
/// whose servers the API did not list, proves nothing.
pub(crate) fn foreign_target(balancer: Labelled, cluster: &Cluster) -> Option<String> {
    balancer
        .targets
        .iter()
        .find_map(|target| foreign_part(target, cluster))
}

/// It has targets, and all of them are nodes of this cluster. Without any nothing is proven: another cluster whose
/// nodes are not up yet may own it.
pub(crate) fn has_only_own_targets(balancer: Labelled, cluster: &Cluster) -> bool {
    !balancer.targets.is_empty() && foreign_target(balancer, cluster).is_none()
}

fn foreign_part(target: &Target, cluster: &Cluster) -> Option<String> {
    let foreign_server = |id: u64| {
        let is_node = cluster.servers.contains_key(&InstanceId::Cloud(id));
        (!is_node).then(|| format!("server {id} is no node of this cluster"))
    };
    match target {
        Target::Server { server, .. } => {
            foreign_server(server.id).map(|why| format!("its target {why}"))
        }
        Target::Ip { ip, .. } => {
            let ip = ip.ip;
            let why = || format!("its target {ip} is no address of a node of this cluster");
            (!cluster.addresses.contains(&ip)).then(why)
        }
        Target::LabelSelector {
            label_selector,
            targets,
        } => {
            let selector = &label_selector.selector;
            match targets.as_deref() {
                None => Some(format!(
                    "which servers its target {selector:?} selects is not known"
                )),
                Some([]) => Some(format!("its target {selector:?} selects no server")),
                Some(servers) => servers
                    .iter()
                    .find_map(|selected| foreign_server(selected.server.id))
                    .map(|why| format!("its target {selector:?} selects servers, of which {why}")),
            }
        }
        Target::Unknown => Some("it has a target of a kind that is not known".to_owned()),
    }
}

/// What keeps an orphan from being deleted: the rule for that of an existing Service, and more. A cluster that was
/// restored from another one's backup has that one's UID: what sends traffic to servers that are no nodes here may well
/// be wanted there.
pub(crate) fn why_orphan_stays(balancer: Labelled, cluster: &Cluster) -> Option<String> {
    if balancer.protection.delete {
        return Some("it is protected from being deleted".to_owned());
    }
    if let Some(service) = &balancer.ownership.adopt {
        return Some(format!("its label {ADOPT} keeps it for Service {service}"));
    }
    why_it_stays(balancer, &Service::default(), cluster)
}

/// It is this cluster's, and none of its Services exists.
pub(crate) fn is_left(balancer: Labelled, cluster: &Cluster) -> bool {
    let lives = |uid: &String| cluster.service_uids.contains(uid);
    balancer.ownership.is_of(cluster)
        && !balancer.ownership.service_uid.as_ref().is_some_and(lives)
        && !is_used_by_others(balancer, "", cluster)
}

/// What the labels say without the Service; without the last one nothing of ours, but for what its owner has set.
pub(crate) fn without_service(
    balancer: Labelled,
    service: &Service,
    cluster: &Cluster,
    is_last: bool,
) -> Ownership {
    let mut to = balancer.ownership.clone();
    let is_external = to.external.is_some();
    if is_last && !is_external {
        return Ownership::default();
    }
    to.ports.retain(|_, uid| *uid != service.uid);
    to.adopt = to.adopt.filter(|_| !balancer.ownership.asks_for(service));
    if is_last {
        // Another cluster may use it too.
        let before = &mut to.targets_before;
        before.retain(|uid, _| !cluster.is_known_by(uid));
    } else if to.service_uid.as_ref() == Some(&service.uid) {
        (to.service_uid, to.service) = (None, None);
    }
    to
}

/// What the labels say once the management of the Service on it has ended. The labels of ports of an external one say later
/// which ones the Service takes back.
pub(crate) fn after_management(
    balancer: Labelled,
    service: &Service,
    cluster: &Cluster,
) -> Ownership {
    let is_last = !is_used_by_others(balancer, &service.uid, cluster);
    let mut to = match balancer.ownership.external.is_some() {
        true => balancer.ownership.clone(),
        false => without_service(balancer, service, cluster, is_last),
    };
    to.released = Some(service.uid.clone());
    to
}

/// Why the management of the Service on it can't end.
pub(crate) fn why_not_released(balancer: Labelled, service: &Service) -> Option<String> {
    let of = balancer.ownership.released.as_ref();
    let uid = of.filter(|uid| **uid != service.uid)?;
    Some(format!(
        "load balancer {} has label {RELEASED}={uid}, for another Service, and there can be one: adopt it for that one, or \
         remove the label",
        balancer.shown()
    ))
}
