//! The addresses and labels a node should have.
//!
//! Addresses are the server's, ordered by the IP that the kubelet was given. The rules are those of
//! k8s.io/cloud-provider's node helpers: a provided IP must be one
//! of the server's, comes first, and is the only one of its type; the rest follow.

use crate::kube::Node;
pub use crate::kube::PROVIDED_NODE_IP;
use crate::provider::{
    AddressKind, Finding, Instance, Instances, Metadata, NodeAddress, Reason, Source, Sourced,
    TopologyLabel,
};
use crate::text;
use std::collections::HashSet;
use std::net::IpAddr;

/// In the order in which they should stand. The error: why the addresses stay as they are.
pub(super) fn addresses(
    node: &Node,
    instance: &Instance,
    instances: &dyn Instances,
    metadata: &Metadata,
) -> Result<Vec<Sourced<NodeAddress>>, Finding> {
    let mut addresses = metadata.addresses.clone();
    keep_hostname(node, &mut addresses);
    let Some(text) = node.metadata.annotations.get(PROVIDED_NODE_IP) else {
        return Ok(addresses);
    };
    let provided = parse_provided(text)?;
    let explain = |ip| {
        instances
            .explain_missing(instance, ip)
            .unwrap_or_else(|| not_among(ip, instance, &addresses))
    };
    let mut preferred: Vec<Sourced<NodeAddress>> = Vec::new();
    for ip in provided {
        let matching = addresses
            .iter()
            .filter(|address| address.value.ip() == Some(ip));
        let before = preferred.len();
        preferred.extend(matching.map(|address| Sourced {
            value: address.value.clone(),
            source: Source::Annotation(PROVIDED_NODE_IP.into()),
        }));
        if preferred.len() == before {
            return Err(with_annotation(explain(ip)));
        }
    }
    let is_preferred = |kind: &AddressKind| preferred.iter().any(|it| it.value.kind == *kind);
    addresses.retain(|address| !is_preferred(&address.value.kind));
    preferred.extend(addresses);
    Ok(preferred)
}

/// Same types and addresses, in whatever order?
pub(super) fn same_addresses(have: &[NodeAddress], want: &[Sourced<NodeAddress>]) -> bool {
    let have: HashSet<&NodeAddress> = have.iter().collect();
    let want: HashSet<&NodeAddress> = want.iter().map(|address| &address.value).collect();
    have == want
}

/// A cloud that names no host leaves the one the kubelet reported.
fn keep_hostname(node: &Node, addresses: &mut Vec<Sourced<NodeAddress>>) {
    if addresses
        .iter()
        .any(|address| address.value.kind == AddressKind::Hostname)
    {
        return;
    }
    let own = node.status.addresses.iter();
    let own = own.filter(|address| address.kind == AddressKind::Hostname);
    addresses.extend(own.map(|address| Sourced::new(address.clone(), Source::Kept)));
}

fn parse_provided(text: &str) -> Result<Vec<IpAddr>, Finding> {
    let is_right = |ips: &Vec<IpAddr>| match ips.as_slice() {
        [ip] => !ip.is_unspecified(),
        [a, b] => a.is_ipv4() != b.is_ipv4() && !a.is_unspecified() && !b.is_unspecified(),
        _ => false,
    };
    let ips = text.split(',').map(|part| part.trim().parse().ok());
    let ips: Option<Vec<IpAddr>> = ips.collect();
    ips.filter(is_right).ok_or_else(|| {
        let why = format!(
            "{text:?} is not an IP address, or an IPv4 and an IPv6 address joined by a comma; 0.0.0.0 and :: are none"
        );
        with_annotation(Finding::warning(Reason::InvalidProvidedNodeIP, why))
    })
}

fn not_among(ip: IpAddr, instance: &Instance, addresses: &[Sourced<NodeAddress>]) -> Finding {
    let (name, id) = (&instance.name, instance.id);
    let list = addresses.iter().map(|address| address.value.to_string());
    let list = text::some_of(&list.collect::<Vec<_>>());
    let message = format!("{ip} is not an address of server {name} ({id}), which has {list}");
    Finding::warning(Reason::InvalidProvidedNodeIP, message)
}

fn with_annotation(mut finding: Finding) -> Finding {
    let why = &finding.message;
    finding.message = format!(
        "annotation {PROVIDED_NODE_IP} (the kubelet's --node-ip): {why}; the addresses stay as they are"
    );
    finding
}

/// A label and what it should be.
pub(super) type WantedLabel = (String, Sourced<String>);

/// At initialisation: every pair under both keys, and the profile's own where there is none of that name.
pub(super) fn labels_at_initialisation(node: &Node, metadata: &Metadata) -> Vec<WantedLabel> {
    let topology = metadata.topology.iter().flat_map(|(label, wanted)| {
        [label.beta_key(), label.stable_key()].map(|key| (key.to_owned(), wanted.clone()))
    });
    let extra = metadata.extra_labels.iter().map(|(key, wanted)| {
        let kept = node
            .metadata
            .labels
            .get(key)
            .map(|have| Sourced::new(have.to_owned(), Source::Kept));
        (key.clone(), kept.unwrap_or_else(|| wanted.clone()))
    });
    topology
        .chain(extra)
        .filter(|(_, wanted)| !wanted.value.is_empty())
        .collect()
}

/// Afterwards, as k8s.io/cloud-provider: the stable label follows its beta twin. Who wants
/// another value changes the beta one; without a beta one it is left unchanged.
pub(super) fn labels_afterwards(node: &Node) -> Vec<WantedLabel> {
    let twin = |label: TopologyLabel| {
        let beta = node.metadata.labels.get(label.beta_key())?;
        let source = Source::Label(label.beta_key().to_owned());
        Some((
            label.stable_key().to_owned(),
            Sourced::new(beta.to_owned(), source),
        ))
    };
    TopologyLabel::ALL.into_iter().filter_map(twin).collect()
}
