//! Facts about a load balancer, a Service and the cluster. The rules in `judge.rs` use only these facts.

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

/// Returns the UID of another cluster whose Services have used this external load balancer. `None` when this cluster
/// has used the load balancer, too, or when a node of this cluster is a target.
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

/// Whether the Service's status says that this load balancer serves the Service. The status then has an address of the
/// load balancer. For an external load balancer, the host name from the annotation `hostname` is enough when the
/// annotation `external` names this load balancer.
pub(crate) fn is_served_by(service: &Service, balancer: Labelled) -> bool {
    let is_asked_for = |name: &str| name == balancer.name || name == balancer.id.to_string();
    let is_shown = |hostname: &str| {
        service.addresses.iter().any(|address| address.eq_ignore_ascii_case(hostname))
    };
    is_in_status(service, balancer)
        || (value_of(service, &a::HOSTNAME).is_some_and(is_shown)
            && value_of(service, &a::EXTERNAL).is_some_and(is_asked_for))
}

/// Whether a port belongs to this Service. The label of the port decides. When the port has no
/// label, [`is_recognised`] decides.
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

/// Whether a port of an external load balancer belongs to this Service although no label says so. Terraform removes all
/// labels that it does not know at the same time. Therefore no label of this cluster may be left, the port and node
/// port must be those of the Service, and the Service's status must say that this load balancer serves the Service.
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

/// Whether an external load balancer has none of the labels that this cluster writes.
fn has_lost_labels(balancer: Labelled, cluster: &Cluster) -> bool {
    let is_ours = |uid: &String| cluster.service_uids.contains(uid);
    let ownership = balancer.ownership;
    ownership.targets_before(cluster).is_none() && !ownership.ports.values().any(is_ours)
}

pub(crate) fn is_port_of(service: &Service, port: &Listener) -> bool {
    destination(port).is_some_and(|to| tcp(service).any(|own| own == (port.listen_port, Some(to))))
}

/// Returns the port number on the targets to which the load balancer's port sends traffic.
pub(crate) fn destination(port: &Listener) -> Option<u16> {
    port.get(F::DestinationPort)?.as_u64()?.try_into().ok()
}

/// Returns the number and the node port of each TCP port of the Service. A load balancer has TCP ports only.
pub(crate) fn tcp(service: &Service) -> impl Iterator<Item = (u16, Option<u16>)> + '_ {
    let ports = service.ports.iter().filter(|port| port.protocol == Protocol::Tcp);
    ports.map(|port| (port.port, port.node_port))
}

/// Whether existing Services of this cluster, other than the one with this UID, use the load balancer or will use it
/// after their next plan.
pub(crate) fn is_used_by_others(balancer: Labelled, uid: &str, cluster: &Cluster) -> bool {
    let lives = |of: &String| of != uid && cluster.service_uids.contains(of);
    let mut on_ports = balancer.ownership.ports.values();
    let keys = external_keys(balancer);
    let mut asking = keys.iter().flat_map(|key| cluster.groups.of_key(key));
    // When a Service asks for the external load balancer, but its status does not show that this load balancer serves
    // it, the Service has no ports and no targets there yet.
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

/// Whether the management of another Service on the load balancer has ended. The ports and targets of that Service
/// must then stay.
pub(crate) fn is_released_by_another(balancer: Labelled, uid: &str) -> bool {
    balancer.ownership.released.as_ref().is_some_and(|of| of != uid)
}

/// Returns the UID of another cluster that owns the load balancer, according to a label. The label may name another
/// cluster because this cluster was restored with a new UID. All targets are then nodes of this cluster, and the result
/// is `None`. While the UID of this cluster is not known, the result is also `None` when there is no target, or when at
/// least one target is a node of this cluster.
pub(crate) fn other_cluster<'a>(balancer: Labelled<'a>, cluster: &Cluster) -> Option<&'a str> {
    let Some(uid) = &balancer.ownership.cluster_uid else {
        return cluster_on_external(balancer, cluster);
    };
    let is_ours = cluster.is_known_by(uid)
        || has_only_own_targets(balancer, cluster)
        || (cluster.uid.is_empty() && (balancer.targets.is_empty() || has_node(balancer, cluster)));
    (!is_ours).then_some(uid.as_str())
}

/// Whether a target of the load balancer is a node of this cluster.
fn has_node(balancer: Labelled, cluster: &Cluster) -> bool {
    balancer.single_targets().any(|(target, _)| target.node(cluster).is_some())
}

/// Returns the UID of another existing Service of this cluster that, according to a label, owns the load balancer or
/// one of its ports.
pub(crate) fn other_service<'a>(
    balancer: Labelled<'a>,
    service: &Service,
    cluster: &Cluster,
) -> Option<&'a String> {
    let is_other = |uid: &&String| **uid != service.uid && cluster.service_uids.contains(*uid);
    balancer.ownership.uids().find(is_other)
}

/// Returns a text for messages about the first target that is not proven to be a node of this cluster. `None` means
/// that all targets are nodes of this cluster. A label selector is a proven target only when the API lists the servers
/// that it selects, at least one server is listed, and all listed servers are nodes.
pub(crate) fn foreign_target(balancer: Labelled, cluster: &Cluster) -> Option<String> {
    balancer.targets.iter().find_map(|target| foreign_part(target, cluster))
}

/// Whether the load balancer has targets, and all of them are nodes of this cluster. A load balancer without targets
/// may belong to another cluster whose nodes have not started yet.
pub(crate) fn has_only_own_targets(balancer: Labelled, cluster: &Cluster) -> bool {
    !balancer.targets.is_empty() && foreign_target(balancer, cluster).is_none()
}

fn foreign_part(target: &ApiTarget, cluster: &Cluster) -> Option<String> {
    let foreign_server = |id: u64| {
        let is_node = cluster.servers.contains_key(&InstanceId::Cloud(id));
        (!is_node).then(|| format!("server {id} is no node of this cluster"))
    };
    match target {
        ApiTarget::Server { server, .. } => {
            foreign_server(server.id).map(|why| format!("its target {why}"))
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
                    .find_map(|selected| foreign_server(selected.server.id))
                    .map(|why| {
                        format!("its label-selector target {selector:?} selects servers, but {why}")
                    }),
            }
        }
        ApiTarget::Unknown => Some("it has a target of an unknown type".to_owned()),
    }
}

/// Whether the load balancer outlasts its Services. The Service's annotation `keep` decides. When the Service has no
/// such annotation, the load balancer's label `keep` decides. The annotation of a Service outside the group's own
/// namespace is ignored. A value that is not valid means that the load balancer stays.
pub(crate) fn is_kept(balancer: Labelled, service: &Service) -> bool {
    let is_guest = balancer.ownership.has_as_guest(service);
    match value_of(service, &a::KEEP).filter(|_| !is_guest) {
        Some(value) => text::boolean(value) != Ok(false),
        None => balancer.ownership.keep.is_some(),
    }
}
