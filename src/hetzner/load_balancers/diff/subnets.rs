//! The subnets of the private Network to which a load balancer can be attached. When the API would refuse an
//! attachment, this is reported before a new load balancer is created, or before an existing one is detached from its
//! present subnet.

use crate::hetzner::api::CachedList;
use crate::hetzner::load_balancers::annotations::parser::AnnotationParser;
use crate::hetzner::load_balancers::annotations::{self as a, values as v};
use crate::hetzner::load_balancers::desired::Attach;
use crate::hetzner::load_balancers::ownership::context::{BalancerSnapshot, PlanContext};
use crate::hetzner::load_balancers::ownership::defaults::ServiceDefaults;
use crate::hetzner::load_balancers::ownership::labels::Labelled;
use crate::hetzner::networks::{ApiNetwork, Subnet};
use crate::provider::variables::HCLOUD_NETWORK;
use crate::provider::{
    AddressKind, OfferedNode, ProviderError, Reason, Service, Sourced, TopologyLabel, Urgency,
};
use crate::text::{self, shell_command};
use ipnet::Ipv4Net;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

/// The age up to which a cached list of subnets is used even when a subnet is missing from it. When a subnet is missing
/// from an older list, the list is read again, because the subnet may be new.
const CERTAIN: Duration = Duration::from_secs(60);

/// Returns the subnets of the Network from the cached list. The list is read again only when two conditions are
/// fulfilled: it is older than one minute ([`CERTAIN`]), and a subnet that one of the Services needs is missing from
/// it.
pub(crate) fn read(
    known: &CachedList<Subnet>,
    network: &ApiNetwork,
    snapshot: &BalancerSnapshot,
    services: &[&Service],
    urgency: Urgency,
) -> Result<Arc<Vec<Subnet>>, ProviderError> {
    known.get(
        || Some((network.read, network.subnets.clone())),
        |age, known| {
            let fits = |service: &&Service| fits(known, network.id, snapshot, service);
            age < CERTAIN || services.iter().all(fits)
        },
        || Ok(snapshot.project.api.one::<ApiNetwork>(network.id, urgency)?.subnets),
    )
}

/// Whether the cached list of subnets is enough for this Service, so that it need not be read again. It is enough when
/// it has a subnet for the private IP and the IP range that the Service asks for, or when the load balancer is already
/// attached as the Service asks.
fn fits(known: &[Subnet], network: u64, snapshot: &BalancerSnapshot, service: &Service) -> bool {
    let defaults = &snapshot.project.defaults;
    let mut parser = AnnotationParser::new(service);
    let ip = parser.read(&a::PRIVATE_IPV4, None, v::ipv4);
    let ip = ip.map(|ip| ip.value);
    let ip = ip.filter(|ip| defaults.permitted.allows_private_ipv4(*ip));
    let range = parser.read(&a::PRIVATE_SUBNET_IP_RANGE, None, v::ip_range);
    let own = ServiceDefaults::of(defaults, service).values;
    let range = range.or_else(|| own.network.private_subnet.clone());
    let range = range.map(|range| range.value);
    let own = snapshot.balancers().with_uid(&service.uid);
    own.iter()
        .filter_map(|labelled| labelled.balancer.attached(network))
        .any(|net| ip.is_none() || net.ip == ip)
        || known.iter().any(|subnet| takes(subnet, None, ip, range))
}

/// Removes the private IP from `attach` when `HCLOUD_LOAD_BALANCERS_PRIVATE_IPV4_RANGES` does not allow Services to ask
/// for it, and adds a warning. The load balancer then keeps its present private IP, or gets one that Hetzner chooses.
pub(crate) fn leave_out_refused(
    parser: &mut AnnotationParser,
    context: &PlanContext,
    attach: &mut Attach,
    there: Option<Labelled>,
) {
    let (project, network) = (context.project, attach.network);
    let has = there.and_then(|labelled| labelled.balancer.attached(network)?.ip);
    let permitted = &project.defaults.permitted;
    let is_left_out = |ip: &mut Sourced<Ipv4Addr>| {
        Some(ip.value) != has && !permitted.allows_private_ipv4(ip.value)
    };
    let left_out = attach.ip.take_if(is_left_out);
    let (Some(ranges), Some(ip)) = (&permitted.private_ipv4_ranges, left_out) else {
        return;
    };
    let allowed: Vec<String> = ranges.value.iter().map(ToString::to_string).collect();
    let why = format!(
        "{}: {} has no effect, because Services may ask only for addresses in {} ({}). The load balancer keeps the \
         private address that it has, or gets one that Hetzner chooses, and everything else is synced. Choose another \
         address, or remove the annotation",
        ip.source,
        ip.value,
        text::some_of(&allowed),
        ranges.source
    );
    parser.warning(Reason::AnnotationWithoutEffect, why);
}

fn takes(
    subnet: &Subnet,
    zone: Option<&str>,
    ip: Option<Ipv4Addr>,
    range: Option<Ipv4Net>,
) -> bool {
    !subnet.is_of_vswitch()
        && zone.is_none_or(|zone| subnet.network_zone == zone)
        && ip.is_none_or(|ip| subnet.ip_range.contains(&ip))
        && range.is_none_or(|range| subnet.ip_range == range)
}

/// Reports a problem when the API would refuse to attach the load balancer to the Network, with the desired IP and
/// subnet. `zone` is the network zone of the load balancer, or `None` when it is not known.
pub(crate) fn check(
    parser: &mut AnnotationParser,
    attach: &Attach,
    context: &PlanContext,
    zone: Option<&str>,
) {
    let ip = attach.ip.as_ref();
    let range = attach.range.as_ref();
    if let (Some(ip), Some(range)) = (ip, range)
        && !range.value.contains(&ip.value)
    {
        return parser.problem(format!(
            "{}: {} is not in the range {} ({}). Change one of the two",
            ip.source, ip.value, range.value, range.source
        ));
    }
    if let Some(ip) = ip
        && let Some(holder) = holder(ip.value, attach.network, context)
    {
        return parser.problem(format!(
            "{}: {} is already the private IP of {holder}. Choose another address",
            ip.source, ip.value
        ));
    }
    let Some(subnets) = &context.observed.subnets else {
        return;
    };
    let network = attach.network;
    let place = zone.map(|zone| format!(" in network zone {zone}"));
    let place = place.unwrap_or_default();
    let fits = |ip, range| subnets.iter().any(|subnet| takes(subnet, zone, ip, range));
    if !fits(None, None) {
        let zone = zone.unwrap_or("eu-central");
        let add = shell_command(
            "hcloud network add-subnet",
            &[&network, &"--type", &"cloud", &"--network-zone", &zone],
        );
        return parser.problem(format!(
            "{HCLOUD_NETWORK}: Network {network} has no subnet{place} for load balancers. Add one, e.g. with {add} \
             --ip-range …"
        ));
    }
    let (value, exact) = (ip.map(|ip| ip.value), range.map(|range| range.value));
    let (source, asked) = match (range, ip) {
        (Some(range), _) if !fits(None, exact) => {
            (&range.source, format!("Network {network} has no subnet {}", range.value))
        }
        (_, Some(ip)) if !fits(value, None) => {
            (&ip.source, format!("{} is in no subnet of Network {network}", ip.value))
        }
        _ => return,
    };
    // Users of the cluster read the message, and must not learn about other parts of the Hetzner Cloud project. So the
    // message does not list the subnets that exist.
    parser.problem(format!(
        "{source}: {asked} that load balancers{place} can use. Choose another value; {} shows the subnets of the \
         Network",
        shell_command("hcloud network describe", &[&network])
    ));
}

/// Returns the load balancer or node that already has this private IP, as a text for messages. Servers that are not
/// nodes of the cluster are not searched.
fn holder(ip: Ipv4Addr, network: u64, context: &PlanContext) -> Option<String> {
    let has =
        |balancer: &Labelled| balancer.attached(network).is_some_and(|net| net.ip == Some(ip));
    if let Some(balancer) = context.balancers.at([IpAddr::V4(ip)]).find(has) {
        return Some(format!("load balancer {}", balancer.shown()));
    }
    let is_of = |node: &&OfferedNode| {
        node.addresses.iter().any(|address| {
            address.kind == AddressKind::InternalIP && address.ip() == Some(IpAddr::V4(ip))
        })
    };
    let node = context.nodes.iter().find(is_of)?;
    Some(format!("node {}", node.name))
}

/// Returns the network zone of this location, as a label of a node in the location says it. `None` when no node is in
/// the location.
pub(crate) fn zone_of<'a>(location: &str, nodes: &'a [OfferedNode]) -> Option<&'a str> {
    let is_there = |node: &&OfferedNode| {
        let zone = node.labels.get(TopologyLabel::Zone.stable_key());
        zone.is_some_and(|zone| zone == location)
    };
    let node = nodes.iter().find(is_there)?;
    node.labels.get(TopologyLabel::Region.stable_key())
}
