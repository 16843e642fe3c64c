//! Functions that find facts about a load balancer, a Service and the cluster, e.g. whether a port belongs to the
//! Service. The rules of ownership in `judge.rs` are based only on these facts.

use super::labels::Labelled;
use super::share::{asked, external_keys};
use crate::hetzner::load_balancers::annotations as a;
use crate::hetzner::load_balancers::annotations::parser::value_of;
use crate::hetzner::load_balancers::model::balancer::ApiTarget;
use crate::hetzner::load_balancers::model::listener::{Listener, PortField as F};
use crate::provider::{Cluster, InstanceId, Protocol, Service};
use crate::text;

pub(crate) fn is_allowed(balancer: Labelled, service: &Service) -> bool {
    let namespace = balancer.ownership.external.as_ref();
    balancer.ownership.managed_by().is_none()
        && namespace.is_some_and(|name| name.is_empty() || *name == service.namespace)
}

/// Returns the UID of another cluster whose Services have used this external load balancer (one that somebody else
/// made). The result is `None` when this cluster has used it as well, or when a node of this cluster is a target.
pub(crate) fn cluster_on_external<'a>(
    balancer: Labelled<'a>,
    cluster: &Cluster,
) -> Option<&'a str> {
    let is_known =
        balancer.ownership.targets_before(cluster).is_some() || has_node(balancer, cluster);
    balancer.ownership.targets_before.keys().next_back().filter(|_| !is_known).map(String::as_str)
}

/// Whether one of the load balancer's addresses is in the status of the Service.
pub(crate) fn is_in_status(service: &Service, balancer: Labelled) -> bool {
    let mut own = balancer.all_addresses();
    own.any(|ip| service.addresses.iter().any(|text| text.parse() == Ok(ip)))
}

/// Whether the Service's status shows that this load balancer serves the Service. This is so when the status has an
/// address of the load balancer. It is also so when the status has the host name from the annotation `hostname`, and
/// the annotation `external` names this load balancer.
pub(crate) fn is_served_by(service: &Service, balancer: Labelled) -> bool {
    let is_asked_for = |name: &str| name == balancer.name || name == balancer.id.to_string();
    let is_shown = |hostname: &str| {
        service.addresses.iter().any(|address| address.eq_ignore_ascii_case(hostname))
    };
    is_in_status(service, balancer)
        || (value_of(service, &a::HOSTNAME).is_some_and(is_shown)
            && value_of(service, &a::EXTERNAL).is_some_and(is_asked_for))
}

/// Whether a port of the load balancer belongs to this Service. Usually a label of the load balancer names the owner of
/// the port. When there is no such label, [`is_recognised`] compares the port with the Service.
pub(crate) fn is_of(
    service: &Service,
    balancer: Labelled,
    port: &Listener,
    cluster: &Cluster,
) -> bool {
    match balancer.ownership.ports.get(&port.listen_port) {
        Some(uid) => *uid == service.uid,
        None => is_recognised(service, balancer, port, cluster),
    }
}

/// Whether a port of an external load balancer (one that somebody else made) belongs to this Service although no label
/// says so. This is for the case that Terraform has removed all labels of this program. The load balancer must have no
/// label of this cluster, and its owner must allow the Service to use it. The port must have the port number and the
/// node port of the Service. The Service's status must show that this load balancer serves the Service.
pub(crate) fn is_recognised(
    service: &Service,
    balancer: Labelled,
    port: &Listener,
    cluster: &Cluster,
) -> bool {
    is_allowed(balancer, service)
        && has_lost_labels(balancer, cluster)
        && is_port_of(service, port)
        && is_served_by(service, balancer)
}

/// Whether an external load balancer (one that somebody else made) has none of the labels that this cluster writes when
/// it uses such a load balancer.
fn has_lost_labels(balancer: Labelled, cluster: &Cluster) -> bool {
    let is_ours = |uid: &String| cluster.service_uids.contains(uid);
    let ownership = balancer.ownership;
    ownership.targets_before(cluster).is_none() && !ownership.ports.values().any(is_ours)
}

pub(crate) fn is_port_of(service: &Service, port: &Listener) -> bool {
    destination(port).is_some_and(|to| tcp(service).any(|own| own == (port.listen_port, Some(to))))
}

/// Returns the port of the targets (usually the node port of a Service) to which this port of the load balancer sends
/// its traffic. `None` when the API reports no valid port.
pub(crate) fn destination(port: &Listener) -> Option<u16> {
    port.get(F::DestinationPort)?.as_u64()?.try_into().ok()
}

/// Returns the port number and the node port of each TCP port of the Service. Other ports are left out, because load
/// balancers support only TCP.
pub(crate) fn tcp(service: &Service) -> impl Iterator<Item = (u16, Option<u16>)> + '_ {
    let ports = service.ports.iter().filter(|port| port.protocol == Protocol::Tcp);
    ports.map(|port| (port.port, port.node_port))
}

/// Whether existing Services of this cluster, other than the Service with the UID `uid`, have a port on the load
/// balancer, or are allowed to share it.
pub(crate) fn is_used_by_others(balancer: Labelled, uid: &str, cluster: &Cluster) -> bool {
    let lives = |of: &String| of != uid && cluster.service_uids.contains(of);
    let mut on_ports = balancer.ownership.ports.values();
    let keys = external_keys(balancer);
    let mut asking = keys.iter().flat_map(|key| cluster.groups.of_key(key));
    // A Service that asks for an external load balancer (one that somebody else made) is a user of it only when the
    // Service's status shows that this load balancer serves it. Otherwise the Service has no ports and targets there
    // yet.
    let is_served = |service: &Service| {
        service.uid != uid && is_allowed(balancer, service) && is_served_by(service, balancer)
    };
    let is_shared = |group: &String| {
        asked(group, cluster)
            .is_some_and(|(share, all)| share.members(all).any(|service| service.uid != uid))
    };
    on_ports.any(lives)
        || asking.any(is_served)
        || balancer.ownership.group.as_ref().is_some_and(is_shared)
}

/// Whether a label says that this program has stopped managing the load balancer for a Service with another UID than
/// `uid`. The ports and targets of that Service must stay.
pub(crate) fn is_released_by_another(balancer: Labelled, uid: &str) -> bool {
    balancer.ownership.released.as_ref().is_some_and(|of| of != uid)
}

/// Returns the UID of another cluster that owns the load balancer, according to a label. Although a label has another
/// UID, the result is `None` in two cases:
///
/// - All targets are nodes of this cluster. The label then has an earlier UID of this cluster, which has got a new UID
///   by a restore.
/// - The UID of this cluster is not known yet, and the load balancer has no targets, or has a node of this cluster as a
///   target.
pub(crate) fn other_cluster<'a>(balancer: Labelled<'a>, cluster: &Cluster) -> Option<&'a str> {
    let Some(uid) = &balancer.ownership.cluster_uid else {
        return cluster_on_external(balancer, cluster);
    };
    let is_ours = cluster.is_known_by(uid)
        || has_only_own_targets(balancer, cluster)
        || (cluster.uid.is_empty() && (balancer.targets.is_empty() || has_node(balancer, cluster)));
    (!is_ours).then_some(uid.as_str())
}

/// Whether at least one target of the load balancer is a node of this cluster.
fn has_node(balancer: Labelled, cluster: &Cluster) -> bool {
    balancer.single_targets().any(|(target, _)| target.is_claimed(cluster))
}

/// Returns the UID of another Service of this cluster that exists, and that owns the load balancer or one of its ports,
/// according to a label.
pub(crate) fn other_service<'a>(
    balancer: Labelled<'a>,
    service: &Service,
    cluster: &Cluster,
) -> Option<&'a String> {
    let is_other = |uid: &&String| **uid != service.uid && cluster.service_uids.contains(*uid);
    balancer.ownership.uids().find(is_other)
}

/// Returns a text for messages about the first target that is not certainly a node of this cluster. `None` means that
/// all targets are nodes of this cluster. A label selector counts as nodes of this cluster only when the API lists the
/// selected servers, there is at least one, and all of them are nodes.
///
/// A server counts as a node here only when its ID is in the provider ID of a node. A node with the provider ID of
/// another program can be matched with a server by its name. This match is not enough here, because it proves nothing
/// about the owner of a load balancer. It is enough for [`target_of_others`].
pub(crate) fn foreign_target(balancer: Labelled, cluster: &Cluster) -> Option<String> {
    let is_node = |id| cluster.has_claimed(id);
    balancer.targets.iter().find_map(|target| foreign_part(target, cluster, is_node))
}

/// Returns a text for messages about the first target that is not certainly a node of this cluster. `None` means that
/// all targets are nodes of this cluster. A server on which a node of another provider (e.g. with a provider ID
/// `k3s://`) certainly runs counts as a node of this cluster. [`foreign_target`] is stricter and does not count it.
pub(crate) fn target_of_others(balancer: Labelled, cluster: &Cluster) -> Option<String> {
    let is_node = |id| cluster.has_server(id);
    balancer.targets.iter().find_map(|target| foreign_part(target, cluster, is_node))
}

/// Whether the load balancer has targets, and all of them are nodes of this cluster. When there are no targets, the
/// result is `false`, because the load balancer may belong to another cluster whose nodes have not started yet.
pub(crate) fn has_only_own_targets(balancer: Labelled, cluster: &Cluster) -> bool {
    !balancer.targets.is_empty() && foreign_target(balancer, cluster).is_none()
}

/// Returns the targets for which it is not certain that a node of this cluster runs there. The function
/// [`target_of_others`] returns a text about the first of these targets.
pub(crate) fn foreign_targets<'a>(
    balancer: Labelled<'a>,
    cluster: &Cluster,
) -> impl Iterator<Item = &'a ApiTarget> {
    let all = balancer.balancer.targets.iter();
    all.filter(|target| foreign_part(target, cluster, |id| cluster.has_server(id)).is_some())
}

/// Returns a text for messages which says that the target is not certainly a node of this cluster. `None` means that
/// the target certainly is such a node. `is_node` says which servers are nodes of this cluster.
fn foreign_part(
    target: &ApiTarget,
    cluster: &Cluster,
    is_node: impl Fn(InstanceId) -> bool,
) -> Option<String> {
    let is_foreign = |id: &u64| !is_node(InstanceId::Cloud(*id));
    match target {
        ApiTarget::Server { server, .. } => {
            let why = |id| format!("its target server {id} is no node of this cluster");
            Some(server.id).filter(is_foreign).map(why)
        }
        ApiTarget::Ip { ip, .. } => {
            let ip = ip.ip;
            let why = || format!("its target {ip} is no address of a node of this cluster");
            (!cluster.addresses.contains(&ip)).then(why)
        }
        ApiTarget::LabelSelector { label_selector, targets } => {
            let selector = &label_selector.selector;
            match targets.as_deref() {
                None => Some(format!(
                    "it is not known which servers its label-selector target {selector:?} selects"
                )),
                Some([]) => {
                    Some(format!("its label-selector target {selector:?} selects no server"))
                }
                Some(servers) => servers
                    .iter()
                    .map(|selected| selected.server.id)
                    .find(is_foreign)
                    .map(|id| {
                        format!(
                            "its label-selector target {selector:?} selects server {id}, which is no node of this cluster"
                        )
                    }),
            }
        }
        ApiTarget::Unknown => Some("it has a target of an unknown type".to_owned()),
    }
}

/// Whether the load balancer stays when its Services are deleted. The Service's annotation `keep` decides, and an
/// invalid value counts as `true`. Without this annotation, the load balancer's label `keep` decides. When Services
/// share the load balancer under the group name `NAMESPACE/NAME`, only the annotations of Services in this namespace
/// count.
pub(crate) fn is_kept(balancer: Labelled, service: &Service) -> bool {
    let is_guest = balancer.ownership.has_as_guest(service);
    match value_of(service, &a::KEEP).filter(|_| !is_guest) {
        Some(value) => text::boolean(value) != Ok(false),
        None => balancer.ownership.keep.is_some(),
    }
}
