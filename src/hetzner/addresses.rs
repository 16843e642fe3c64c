//! The addresses that a node gets from its server, chosen by address family and private Network.

use crate::provider::variables::{
    HCLOUD_INSTANCES_ADDRESS_FAMILY, HCLOUD_INSTANCES_INTERNAL_IP_RANGES, HCLOUD_NETWORK,
    ROBOT_FORWARD_INTERNAL_IPS,
};
use crate::provider::{
    AddressFamily, AddressKind, Finding, INTERNAL_IP, Instance, InstanceId, Node, NodeAddress,
    PROVIDED_NODE_IP, Reason, Source, Sourced, one_ip_or_two,
};
use ipnet::IpNet;
use std::net::{IpAddr, Ipv6Addr};

/// The key of the annotation of a node that contains the node's external IPv6 address. The annotation is needed when
/// the server does not use the first address of its IPv6 network.
pub const EXTERNAL_IPV6: &str = "instance.hetzner.cloud/external-ipv6";

/// The settings that decide which addresses a node gets from its server.
pub(super) struct AddressRules<'a> {
    pub(super) family: &'a Sourced<AddressFamily>,
    /// The ID of the private Network in `HCLOUD_NETWORK`, from which the node gets its private address. `None` when the
    /// variable is not set.
    pub(super) network: Option<u64>,
    /// Whether the node gets private addresses that come from its kubelet and not from the Cloud API. On a cloud
    /// server, these are the addresses in the flag `--node-ip` of the kubelet. On a dedicated server, they are the
    /// InternalIPs that the kubelet reported.
    pub(super) keeps_reported: bool,
}

/// Returns the hostname, the public addresses and the private addresses of the node, in this order. Problems with
/// single addresses are added to `findings`, which are reported to the user. The error says why the node can't get any
/// address.
pub(super) fn addresses(
    instance: &Instance,
    node: &Node,
    rules: &AddressRules,
    findings: &mut Vec<Finding>,
) -> Result<Vec<Sourced<NodeAddress>>, Box<Finding>> {
    let family = rules.family;
    let by_family = by_family(family);
    let takes_ipv4 = matches!(family.value, AddressFamily::Ipv4 | AddressFamily::Dualstack);
    let takes_ipv6 = matches!(family.value, AddressFamily::Ipv6 | AddressFamily::Dualstack);
    // The address of type `Hostname` of a node on a cloud server is the name of the server. On a dedicated server, it
    // is the name of the node. The server's name in Robot is not used: if it differs from the name of the node,
    // somebody may have given the server another purpose.
    let (name, name_field, ipv4_field, ipv6_field) = match instance.id {
        InstanceId::Cloud(_) => (&instance.name, "name", "public_net.ipv4", "public_net.ipv6"),
        InstanceId::Dedicated(_) => (&node.name, "server_name", "server_ip", "server_ipv6_net"),
    };
    let name = NodeAddress::new(AddressKind::Hostname, name);
    let mut addresses = vec![Sourced::new(name, Source::server(name_field))];
    let mut external = |ip: IpAddr, source| {
        let address = NodeAddress::new(AddressKind::ExternalIP, ip);
        addresses.push(Sourced::new(address, source));
    };
    let by_server = |field| Source::server_because(field, &by_family);
    if let Some(ip) = instance.public_ipv4.filter(|_| takes_ipv4) {
        external(ip.into(), by_server(ipv4_field));
    }
    let annotation = node.annotations.get(EXTERNAL_IPV6);
    match (annotation, instance.public_ipv6) {
        (Some(text), _) if takes_ipv6 => {
            let ip = parse_external_ipv6(text)?;
            external(ip.into(), Source::Annotation(EXTERNAL_IPV6.into()));
        }
        (Some(text), _) => findings.push(warning(
            Reason::IgnoredExternalIPv6,
            format!(
                "annotation {EXTERNAL_IPV6}: {text:?} has no effect, because with {by_family} the node gets no IPv6 \
                 address"
            ),
        )),
        (None, Some(net)) if takes_ipv6 => {
            // Hetzner routes an IPv6 network of the size /64 to each server. A server with an image of Hetzner uses the
            // first address of this network, so this address is assumed.
            let first = Ipv6Addr::from_bits(net.network().to_bits() | 1);
            external(first.into(), by_server(ipv6_field));
        }
        (None, _) => {}
    }
    let internal = internal_addresses(instance, node, rules, &addresses, findings)?;
    addresses.extend(internal);
    if addresses.len() == 1 {
        findings.push(no_address(instance, &by_family, rules.network));
    }
    Ok(addresses)
}

/// Returns the private addresses of the first source that has any. The sources, in this order, are the annotation
/// `internal-ip`, the `--node-ip` of the kubelet, the private Network, and the addresses that the kubelet of a
/// dedicated server reported. `external` holds the hostname and the public addresses of the node.
fn internal_addresses(
    instance: &Instance,
    node: &Node,
    rules: &AddressRules,
    external: &[Sourced<NodeAddress>],
    findings: &mut Vec<Finding>,
) -> Result<Vec<Sourced<NodeAddress>>, Box<Finding>> {
    let keeps_reported = rules.keeps_reported;
    let is_dedicated = instance.id.dedicated().is_some();
    let given = node.annotations.get(PROVIDED_NODE_IP).filter(|_| keeps_reported && !is_dedicated);
    let mut given = given.and_then(|text| one_ip_or_two(text)).unwrap_or_default();
    given.retain(|ip| is_unicast(ip) && !is_public(instance, *ip));
    let mut private = instance.private.iter();
    Ok(if let Some(text) = node.annotations.get(INTERNAL_IP) {
        internal(annotated_internal_ips(text, external)?, INTERNAL_IP).collect()
    } else if !given.is_empty() {
        internal(given, PROVIDED_NODE_IP).collect()
    } else if let Some(private) = private.find(|address| Some(address.network) == rules.network) {
        vec![Sourced::new(
            NodeAddress::new(AddressKind::InternalIP, private.ip),
            Source::server_because("private_net.ip", HCLOUD_NETWORK),
        )]
    } else if is_dedicated && keeps_reported {
        internal_ips(node, external, rules.family, findings)
    } else {
        Vec::new()
    })
}

/// Returns an error when the annotation `internal-ip` names an address outside of these ranges.
/// Without ranges, every address is allowed.
pub(super) fn check_ranges(node: &Node, ranges: &[IpNet]) -> Result<(), Box<Finding>> {
    let text = node.annotations.get(INTERNAL_IP).map(String::as_str);
    let mut ips = text.and_then(one_ip_or_two).into_iter().flatten();
    let is_outside = |ip: &IpAddr| !ranges.iter().any(|range| range.contains(ip));
    match ips.find(is_outside).filter(|_| !ranges.is_empty()) {
        None => Ok(()),
        Some(ip) => {
            let message = format!(
                "annotation {INTERNAL_IP}: {ip} is not in the ranges of {HCLOUD_INSTANCES_INTERNAL_IP_RANGES}. Correct \
                 or remove the annotation, or add a range with this address to the setting"
            );
            Err(Box::new(warning(Reason::InvalidInternalIP, message)))
        }
    }
}

/// Returns the addresses in the annotation `internal-ip`. It is an error when the text is not one or two unicast
/// addresses, or when one of the addresses is also an ExternalIP of the node.
fn annotated_internal_ips(
    text: &str,
    external: &[Sourced<NodeAddress>],
) -> Result<Vec<IpAddr>, Box<Finding>> {
    let wrong = |why: &str| {
        let message =
            format!("annotation {INTERNAL_IP}: {text:?} {why}. Correct or remove the annotation");
        Box::new(warning(Reason::InvalidInternalIP, message))
    };
    let ips = one_ip_or_two(text).filter(|ips| ips.iter().all(is_unicast)).ok_or_else(|| {
        wrong("is neither the unicast IP address of a machine nor an IPv4 and an IPv6 address joined by a comma")
    })?;
    let is_external = |ip: &IpAddr| external.iter().any(|address| address.value.ip() == Some(*ip));
    if ips.iter().any(is_external) {
        Err(wrong("contains an address that is already an ExternalIP of the node"))
    } else {
        Ok(ips)
    }
}

fn internal(ips: Vec<IpAddr>, annotation: &str) -> impl Iterator<Item = Sourced<NodeAddress>> {
    ips.into_iter().map(move |ip| {
        let address = NodeAddress::new(AddressKind::InternalIP, ip);
        Sourced::new(address, Source::Annotation(annotation.into()))
    })
}

/// Returns the InternalIPs that the kubelet of a dedicated server reported, without those that are invalid, public, or
/// of the wrong address family. For each address that is left out, a warning is added to `findings`.
fn internal_ips(
    node: &Node,
    external: &[Sourced<NodeAddress>],
    family: &Sourced<AddressFamily>,
    findings: &mut Vec<Finding>,
) -> Vec<Sourced<NodeAddress>> {
    let mut kept = Vec::new();
    let reported = node.addresses.iter();
    for address in reported.filter(|address| address.kind == AddressKind::InternalIP) {
        let is_external = |other: &Sourced<NodeAddress>| other.value.ip() == address.ip();
        let why = match address.ip() {
            None => "it is no IP address".to_owned(),
            Some(IpAddr::V4(_)) if family.value == AddressFamily::Ipv6 => excluded(family),
            Some(IpAddr::V6(_)) if family.value == AddressFamily::Ipv4 => excluded(family),
            Some(_) if external.iter().any(is_external) => {
                "it is the server's public address, and becomes an ExternalIP".to_owned()
            }
            Some(_) => {
                kept.push(Sourced::new(address.clone(), Source::Kept));
                continue;
            }
        };
        let message = format!(
            "ccm does not keep InternalIP {} of the dedicated server, because {why}. Correct the flag --node-ip of the \
             kubelet, or set {ROBOT_FORWARD_INTERNAL_IPS}=false",
            address.address
        );
        findings.push(warning(Reason::MisconfiguredInternalIP, message));
    }
    kept
}

fn warning(reason: Reason, message: String) -> Finding {
    Finding::warning(reason, message).by_provider()
}

/// Returns a warning that names the setting because of which the node does not get the address `ip`. The result is
/// `None` when no setting is the reason.
pub(super) fn explain_missing(
    instance: &Instance,
    ip: IpAddr,
    family: &Sourced<AddressFamily>,
    network: Option<u64>,
) -> Option<Finding> {
    let attached = instance.private.iter().find(|private| private.ip == ip);
    let private_range = matches!(ip, IpAddr::V4(ip) if ip.is_private());
    let message = match (attached, network) {
        _ if instance.id.dedicated().is_some() && !is_public(instance, ip) => format!(
            "{ip} is no public address of dedicated server {} ({}). ccm accepts another address only if the kubelet \
             reports it as InternalIP and {ROBOT_FORWARD_INTERNAL_IPS} is true",
            instance.name, instance.id
        ),
        (Some(private), Some(network)) if private.network != network => format!(
            "{ip} is the address of server {} ({}) in Network {}, but {HCLOUD_NETWORK} is Network {network}. Correct \
             --node-ip or {HCLOUD_NETWORK}",
            instance.name, instance.id, private.network
        ),
        (Some(private), None) => format!(
            "{ip} is the server's address in Network {}, but {HCLOUD_NETWORK} is not set. Set the variable to this \
             Network",
            private.network
        ),
        (None, None) if private_range => {
            format!(
                "{ip} is a private address, but {HCLOUD_NETWORK} is not set. Set the variable to the Network that \
                 contains the address"
            )
        }
        _ if is_public(instance, ip) => {
            let why = match (ip, family.value) {
                (IpAddr::V6(_), AddressFamily::Ipv6 | AddressFamily::Dualstack) => format!(
                    "the node gets only one IPv6 address. To choose {ip}, set annotation {EXTERNAL_IPV6} of the node"
                ),
                _ => excluded(family),
            };
            let message =
                format!("{ip} belongs to server {} ({}), but {why}", instance.name, instance.id);
            return Some(warning(Reason::InvalidProvidedNodeIP, message));
        }
        _ => return None,
    };
    Some(warning(Reason::InternalIPNotConfigured, message))
}

/// Whether this is a public address of the server. Every address in the server's IPv6 network counts as public.
fn is_public(instance: &Instance, ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => instance.public_ipv4 == Some(ip),
        IpAddr::V6(ip) => instance.public_ipv6.is_some_and(|net| net.contains(&ip)),
    }
}

/// Returns the setting that chose the address family, in the form `NAME=value`.
fn by_family(family: &Sourced<AddressFamily>) -> String {
    let origin = if matches!(family.source, Source::Default(_)) { " (default)" } else { "" };
    format!("{HCLOUD_INSTANCES_ADDRESS_FAMILY}={}{origin}", family.value.name())
}

/// Returns why an address is left out whose family the setting does not choose, as a text for messages.
fn excluded(family: &Sourced<AddressFamily>) -> String {
    format!("{} excludes addresses of this family", by_family(family))
}

fn parse_external_ipv6(text: &str) -> Result<Ipv6Addr, Box<Finding>> {
    match text.trim().parse::<Ipv6Addr>() {
        Ok(ip) if is_unicast(&ip.into()) => Ok(ip),
        _ => Err(Box::new(warning(
            Reason::InvalidExternalIPv6,
            format!(
                "annotation {EXTERNAL_IPV6}: {text:?} is not a global unicast IPv6 address such as 2001:db8::1. \
                 Correct or remove the annotation"
            ),
        ))),
    }
}

/// Whether this is a unicast address by the rule of Go's `IsGlobalUnicast`, which hcloud-cloud-controller-manager uses.
/// Private addresses are accepted. Loopback, multicast and link-local addresses are not accepted, and neither are IPv4
/// addresses in the form of an IPv6 address.
fn is_unicast(ip: &IpAddr) -> bool {
    let is_special = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local() || ip.to_ipv4_mapped().is_some(),
    };
    !(is_special || ip.is_unspecified() || ip.is_loopback() || ip.is_multicast())
}

fn no_address(instance: &Instance, by_family: &str, network: Option<u64>) -> Finding {
    let network = match network {
        _ if instance.id.dedicated().is_some() => "its kubelet reported no InternalIP".to_owned(),
        Some(network) => format!("is not attached to Network {network}"),
        None => format!("{HCLOUD_NETWORK} is not set"),
    };
    let message = format!(
        "server {} ({}) has no public address for {by_family}, and {network}, so the node gets no IP address, only its \
         host name",
        instance.name, instance.id
    );
    warning(Reason::NoAddress, message)
}
