//! Whose a load balancer is, by its targets and labels: what may be adopted, and what happens to it when its Service is
//! deleted. In doubt it stays.

use super::annotations as a;
use super::balancer::{LoadBalancer, Target};
use super::group::{is_released_by_another, is_used_by_others};
use super::names::{
    ADOPT, ADOPTED, CREATED, EXTERNAL, GROUP, KEEP, OUR_PREFIX, SERVICE_UID, UPSTREAM_PREFIX,
};
use super::parser::value_of;
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
pub(super) fn why_it_stays(
    balancer: &LoadBalancer,
    service: &Service,
    cluster: &Cluster,
) -> Option<String> {
    if is_used_by_others(balancer, &service.uid, cluster) {
        return Some("other Services use it".to_owned());
    }
    if balancer.labels.contains_key(EXTERNAL) {
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
    let has = |label: &str| balancer.labels.contains_key(label);
    if has(CREATED) {
        return None;
    }
    if has(ADOPTED) || has(ADOPT) {
        return Some("it was adopted".to_owned());
    }
    if !has(SERVICE_UID) {
        return Some("no label says that it was made for this Service alone".to_owned());
    }
    let is_known =
        |label: &&String| label.starts_with(UPSTREAM_PREFIX) || label.starts_with(OUR_PREFIX);
    if let Some(label) = balancer.labels.keys().find(|label| !is_known(label)) {
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
pub(super) fn is_kept(balancer: &LoadBalancer, service: &Service) -> bool {
    let is_guest = is_of_another_namespace(balancer.labels.get(GROUP), service);
    match value_of(service, &a::KEEP).filter(|_| !is_guest) {
        Some(value) => text::boolean(value) != Ok(false),
        None => balancer.labels.contains_key(KEEP),
    }
}

/// Whether the group that the label names is another namespace's. A label that was cut within the namespace counts so.
fn is_of_another_namespace(group: Option<&String>, service: &Service) -> bool {
    group.is_some_and(|label| {
        let namespace = label.split_once('.').map(|(namespace, _)| namespace);
        namespace != Some(service.namespace.as_str())
    })
}

/// The first target that is not proven to be a node of this cluster, for people. A server counts by its node, an
/// address by the nodes' addresses, a label selector by the servers that it selects: one that selects none yet, or
/// whose servers the API did not list, proves nothing.
pub(super) fn foreign_target(balancer: &LoadBalancer, cluster: &Cluster) -> Option<String> {
    balancer
        .targets
        .iter()
        .find_map(|target| foreign_part(target, cluster))
}

/// It has targets, and all of them are nodes of this cluster. Without any nothing is proven: another cluster whose
/// nodes are not up yet may own it.
pub(super) fn has_only_own_targets(balancer: &LoadBalancer, cluster: &Cluster) -> bool {
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
