//! The status that a Service gets from its load balancer, and the data of a load balancer that users see.

use crate::hetzner::load_balancers::desired::Desired;
use crate::hetzner::load_balancers::model::balancer::{
    ApiTarget, HealthStatus, LoadBalancer, TargetId,
};
use crate::hetzner::load_balancers::model::listener::PortField;
use crate::hetzner::load_balancers::ownership::context::PlanContext;
use crate::hetzner::load_balancers::ownership::facts::is_served_by;
use crate::hetzner::load_balancers::ownership::group;
use crate::hetzner::load_balancers::ownership::index::Balancers;
use crate::hetzner::load_balancers::ownership::judge::owned;
use crate::hetzner::load_balancers::ownership::labels::Labelled;
use crate::provider::{
    self, Balancer, Cluster, Consumption, HealthyTargets, Ingress, Service, TargetHealth,
};
use std::net::{IpAddr, Ipv4Addr};

/// The IP mode `Proxy`. With this mode kube-proxy sends the cluster's own traffic for the address to the load balancer,
/// and not directly to the pods of the Service.
const PROXY: &str = "Proxy";

/// Returns the entries that the status of the Service should have. The list is empty when the Service can have none of
/// its ports on the load balancer. This happens only on a load balancer that it shares, or on an external load balancer
/// (one that somebody else made).
pub(crate) fn wanted(
    balancer: &LoadBalancer,
    desired: &Desired,
    context: &PlanContext,
) -> Vec<Ingress> {
    let has_no_port = desired.ports.is_empty() && !context.group.is_own();
    if has_no_port { Vec::new() } else { ingress(balancer, desired) }
}

/// Returns the entries that the Service's status has now, but with the IP mode `Proxy` for each IP address. They are
/// used when the Service can't be planned and other owners have ports on its load balancer. The result is `None` when
/// the status has no address of a load balancer of the Service.
pub(crate) fn by_proxy(
    service: &Service,
    balancers: Balancers,
    cluster: &Cluster,
) -> Option<Vec<Ingress>> {
    let mut owned = owned(balancers, service, cluster);
    let entry = |text: &String| {
        let is_ip = text.parse::<IpAddr>().is_ok();
        let [ip, hostname] = [is_ip, !is_ip].map(|is_it| is_it.then(|| text.clone()));
        Ingress { ip_mode: ip.as_ref().map(|_| PROXY.to_owned()), ip, hostname }
    };
    let is_served = owned.any(|balancer| is_served_by(service, balancer));
    is_served.then(|| service.addresses.iter().map(entry).collect())
}

/// Returns the entries for `status.loadBalancer.ingress`. If the Service sets a host name, this is the only entry.
/// Otherwise the entries are the public and then the private addresses of the load balancer.
pub(crate) fn ingress(balancer: &LoadBalancer, desired: &Desired) -> Vec<Ingress> {
    let in_status = &desired.in_status;
    if let Some(hostname) = &in_status.hostname {
        let entry = Ingress { ip: None, hostname: Some(hostname.clone()), ip_mode: None };
        return vec![entry];
    }
    let by_proxy = desired.ports.iter().any(|port| {
        let merged = port.merged(balancer.listener(port.listener.listen_port));
        merged.is_on(PortField::ProxyProtocol)
    });
    let is_by_proxy = by_proxy || in_status.is_by_proxy;
    let mode = if is_by_proxy { PROXY } else { "VIP" };
    let public = desired.public().map(|public| public.value).unwrap_or(balancer.public_net.enabled);
    let public = public_addresses(balancer).filter(|_| public);
    let public = public.filter(|ip| !(ip.is_ipv6() && in_status.without_ipv6.value));
    let private = private_then(balancer, desired).into_iter().map(IpAddr::from);
    let private = private.filter(|_| !in_status.without_private.value);
    let entry = |ip: IpAddr| Ingress {
        ip: Some(ip.to_string()),
        hostname: None,
        ip_mode: Some(mode.to_owned()),
    };
    public.chain(private).map(entry).collect()
}

/// Returns the addresses at which the load balancer can be reached. The public addresses come first, and are left out
/// when the public interface is off.
pub(crate) fn addresses(balancer: &LoadBalancer) -> Vec<IpAddr> {
    let public = public_addresses(balancer).filter(|_| balancer.public_net.enabled);
    let private = balancer.private_net.iter().filter_map(|net| net.ip);
    public.chain(private.map(IpAddr::from)).collect()
}

/// Returns the load balancer in the form that commands show to users, with the name of the node of each target.
pub(crate) fn for_people(balancer: Labelled, cluster: &Cluster) -> Balancer {
    let of_kube_proxy = balancer.services.iter().filter(|port| port.asks_kube_proxy());
    let of_kube_proxy: Vec<u16> = of_kube_proxy.map(|port| port.listen_port).collect();
    let targets = balancer.targets.iter().flat_map(|target| machines(target, cluster));
    let targets = targets.map(|(name, health)| target(name, health, &of_kube_proxy));
    let targets: Vec<provider::Target> = targets.collect();
    Balancer {
        id: balancer.id,
        name: balancer.name.clone(),
        kind: balancer.load_balancer_type.name.clone(),
        location: balancer.location.name.to_string(),
        use_of: group::use_of(balancer),
        group: group::name(balancer),
        ports: group::port_owners(balancer, cluster),
        addresses: addresses(&balancer),
        health: HealthyTargets {
            healthy: targets.iter().filter(|target| target.is_healthy()).count(),
            total: targets.len(),
        },
        targets,
        consumption: Consumption {
            monthly_price: balancer.monthly_price(),
            outgoing_traffic: balancer.outgoing_traffic,
            ingoing_traffic: balancer.ingoing_traffic,
            included_traffic: balancer.included_traffic,
            usage: None,
        },
        certificates: Vec::new(),
    }
}

fn public_addresses(balancer: &LoadBalancer) -> impl Iterator<Item = IpAddr> {
    let public = &balancer.public_net;
    public.ipv4.ip.into_iter().chain(public.ipv6.ip)
}

/// Returns the private IPs that the load balancer will have after this plan has attached it to the desired Network. The
/// result is empty when the Service asks for no particular private IP and Hetzner has not assigned one yet.
fn private_then(balancer: &LoadBalancer, desired: &Desired) -> Vec<Ipv4Addr> {
    let Some(attach) = desired.attach() else {
        return balancer.private_net.iter().filter_map(|net| net.ip).collect();
    };
    let asked = attach.ip.as_ref().map(|ip| ip.value);
    asked.or_else(|| balancer.attached(attach.network)?.ip).into_iter().collect()
}

/// Returns the names of the servers or IP addresses that a target stands for, each with the results of its health
/// checks. A target that is a label selector stands for all servers that the selector matches.
fn machines<'a>(target: &'a ApiTarget, cluster: &Cluster) -> Vec<(String, &'a [HealthStatus])> {
    let unknown = || match target {
        ApiTarget::LabelSelector { label_selector, .. } => {
            format!("servers with {}", label_selector.selector)
        }
        _ => "unknown".to_owned(),
    };
    let named = |id: Option<TargetId>| id.map_or_else(unknown, |id| id.shown(cluster));
    target.machines().into_iter().map(|(id, health)| (named(id), health)).collect()
}

fn target(name: String, health: &[HealthStatus], of_kube_proxy: &[u16]) -> provider::Target {
    let health = health.iter().map(|status| TargetHealth {
        port: status.listen_port,
        status: status.status.clone(),
        detail: status.detail.clone(),
        http_status: status.http_status_code,
        is_of_kube_proxy: of_kube_proxy.contains(&status.listen_port),
        cause: None,
    });
    provider::Target { name, health: health.collect() }
}
