//! Decides which addresses and labels a node should have.
//!
//! The addresses are those of the node's server. When the kubelet was started with `--node-ip`, an annotation of the
//! node contains this IP, which must be an IP of the server. This IP is then the first address of the node and the only
//! one of its type. The addresses of the other types follow. These are the rules of k8s.io/cloud-provider's node
//! helpers.

use crate::kube::{KubeNode, Taint};
use crate::provider::order;
use crate::provider::variables::{
    HCLOUD_INSTANCES_INTERNAL_IP_FROM, HCLOUD_INSTANCES_LABEL_PREFIXES,
};
use crate::provider::{
    AddressKind, Finding, Instance, Instances, Metadata, NodeAddress, PROVIDED_NODE_IP, Reason,
    SERVER_LABELS, Source, Sourced, TopologyLabel, is_kubernetes_label, one_ip_or_two,
};
use crate::text::{self, is_label_key, is_label_value};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The greatest number of labels that a node can get from the labels of its server.
const SERVER_LABELS_AT_MOST: usize = 16;

/// The greatest total size, in bytes, of the labels that a node gets from its server. An annotation of the node also
/// contains these labels, so the Node object grows by about twice this size.
const SERVER_LABELS_BYTES_AT_MOST: usize = 2_000;

/// The prefix of a server label that asks for a taint. The label `DOMAIN/taint.KEY` asks for the taint `DOMAIN/KEY`.
const TAINT: &str = "taint.";
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Returns the addresses that the node should have, in their order. An error says why the addresses of the node are not
/// changed.
pub(super) fn addresses(
    node: &KubeNode,
    instance: &Instance,
    instances: &dyn Instances,
    metadata: &Metadata,
) -> Result<Vec<Sourced<NodeAddress>>, Finding> {
    let mut addresses = metadata.addresses.clone();
    // Among the addresses of one type, those of the cluster's primary IP family come first. The first pod CIDR of the
    // node shows which family that is.
    if let Some(pods) = node.spec.pod_cidrs.iter().flatten().next() {
        let is_other = |ip: IpAddr| ip.is_ipv4() != pods.addr().is_ipv4();
        let kinds: Vec<AddressKind> =
            addresses.iter().map(|address| address.value.kind.clone()).collect();
        order::sort_by_key(&mut addresses, |address| {
            let place = kinds.iter().position(|kind| *kind == address.value.kind);
            (place, address.value.ip().is_some_and(is_other))
        });
    }
    keep_hostname(node, &mut addresses);
    let Some(text) = node.metadata.annotations.get(PROVIDED_NODE_IP) else {
        return Ok(addresses);
    };
    let provided = one_ip_or_two(text).ok_or_else(|| {
        let why = format!(
            "The value {text:?} is neither an IP address nor an IPv4 and an IPv6 address joined by a comma; 0.0.0.0 \
             and :: are not allowed"
        );
        with_annotation(Finding::warning(Reason::InvalidProvidedNodeIP, why))
    })?;
    let explain = |ip| {
        instances
            .explain_missing(instance, ip)
            .unwrap_or_else(|| not_among(ip, instance, &addresses))
    };
    let mut preferred: Vec<Sourced<NodeAddress>> = Vec::new();
    for ip in provided {
        let matching = addresses.iter().filter(|address| address.value.ip() == Some(ip));
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

/// Keeps the host name that the kubelet has reported, if the cloud names no host name.
fn keep_hostname(node: &KubeNode, addresses: &mut Vec<Sourced<NodeAddress>>) {
    if addresses.iter().any(|address| address.value.kind == AddressKind::Hostname) {
        return;
    }
    let own = node.status.addresses.iter().filter(|address| address.kind == AddressKind::Hostname);
    addresses.extend(own.map(|address| Sourced::new(address.clone(), Source::Kept)));
}

fn not_among(ip: IpAddr, instance: &Instance, addresses: &[Sourced<NodeAddress>]) -> Finding {
    let (name, id) = (&instance.name, instance.id);
    let list = addresses.iter().map(|address| address.value.to_string());
    let list = text::some_of(&list.collect::<Vec<_>>());
    let message = format!(
        "{ip} is not an address of server {name:?} ({id}), whose addresses are {list}. Correct the flag. If {ip} is an \
         address in a VPN, set {HCLOUD_INSTANCES_INTERNAL_IP_FROM}=kubelet for the daemon instead"
    );
    Finding::warning(Reason::InvalidProvidedNodeIP, message)
}

fn with_annotation(mut finding: Finding) -> Finding {
    let why = &finding.message;
    finding.message = format!(
        "the node can't get the address that its kubelet asks for with the flag --node-ip (annotation \
         {PROVIDED_NODE_IP}). {why}. Until this is corrected, the node's addresses stay unchanged"
    );
    finding
}

/// The key and the desired value of a label, or of the annotation that lists the labels from the server. The value
/// `None` means that the key must be removed.
pub(super) type WantedLabel = (String, Sourced<Option<String>>);

/// Returns the labels that a node gets at its initialisation. Each topology value, e.g. the zone, gets two labels, one
/// with the stable key and one with the beta key. Further labels, which the provider (the code for one cloud) asks for,
/// never replace a label that the node already has.
pub(super) fn labels_at_initialisation(node: &KubeNode, metadata: &Metadata) -> Vec<WantedLabel> {
    let topology = metadata.topology.iter().flat_map(|(label, wanted)| {
        [label.beta_key(), label.stable_key()].map(|key| (key.to_owned(), wanted.clone()))
    });
    let extra = metadata.extra_labels.iter().map(|(key, wanted)| {
        let kept =
            node.metadata.labels.get(key).map(|have| Sourced::new(have.to_owned(), Source::Kept));
        (key.clone(), kept.unwrap_or_else(|| wanted.clone()))
    });
    topology
        .chain(extra)
        .filter(|(_, wanted)| !wanted.value.is_empty())
        .map(|(key, wanted)| (key, Sourced::new(Some(wanted.value), wanted.source)))
        .collect()
}

/// Returns the topology labels that an initialised node should have. Like k8s.io/cloud-provider, this gives the stable
/// label the value of the beta label of the same meaning. An operator who wants another value therefore changes the
/// beta label. A stable label without a beta label is left unchanged.
pub(super) fn labels_afterwards(node: &KubeNode) -> Vec<WantedLabel> {
    let twin = |label: TopologyLabel| {
        let beta = node.metadata.labels.get(label.beta_key())?;
        let source = Source::Label(label.beta_key().to_owned());
        Some((label.stable_key().to_owned(), Sourced::new(Some(beta.to_owned()), source)))
    };
    TopologyLabel::ALL.into_iter().filter_map(twin).collect()
}

/// The labels and taints that the labels of a server request for its node.
#[derive(Default)]
pub(super) struct FromServer {
    /// The labels that the node should have, and the annotation that lists which of them come from its server.
    pub values: Vec<WantedLabel>,
    pub taints: Vec<Taint>,
    pub findings: Vec<Finding>,
}

/// Returns the labels and taints that the node gets because its server has certain labels.
///
/// An annotation of the node remembers which labels this program has copied from the server, each with its value. When
/// the label of the server is changed or removed, the label of the node is changed or removed, too, if it still has the
/// remembered value. All other labels of the node belong to people and stay.
///
/// `allows` says whether a label of a server may become a label of its node. Kubernetes protects some labels from
/// kubelets. This program removes such a label only if `allows` accepts it. Otherwise anybody who can write the
/// annotation could make this program remove the label.
pub(super) fn from_server(
    node: &KubeNode,
    instance: &Instance,
    allows: impl Fn(&str) -> bool,
) -> FromServer {
    let mut found = FromServer::default();
    let (count, pairs) = (instance.labels.len(), instance.labels.iter());
    let bytes: usize = pairs.map(|(key, value)| key.len() + value.len() + 2).sum();
    if count > SERVER_LABELS_AT_MOST || bytes > SERVER_LABELS_BYTES_AT_MOST {
        let message = format!(
            "the node's server has {count} labels with the prefixes of {HCLOUD_INSTANCES_LABEL_PREFIXES} ({bytes} bytes \
             in all), but ccm copies at most {SERVER_LABELS_AT_MOST} labels and {SERVER_LABELS_BYTES_AT_MOST} bytes in all. \
             Remove such labels from the server; until then ccm copies none of them"
        );
        found.findings = vec![Finding::warning(Reason::InvalidServerLabel, message)];
        return found;
    }
    // `None` means that the value in the server's label is not valid. The label of the node then stays as it is.
    let mut wanted: BTreeMap<&str, Option<&str>> = BTreeMap::new();
    for (key, value) in &instance.labels {
        let (domain, name) = key.split_once('/').unwrap_or(("", key));
        let taint = name.strip_prefix(TAINT);
        let taint = taint.map(|name| taint_of(format!("{domain}/{name}"), value));
        let is_label = taint.is_none() && is_label_key(key) && is_label_value(value);
        match taint {
            Some(Some(taint)) => found.taints.push(taint),
            _ => drop(wanted.insert(key, is_label.then_some(value))),
        }
    }
    let invalid = wanted.iter().filter(|(_, value)| value.is_none());
    found.findings.extend(invalid.map(|(key, _)| invalid_label(key)));
    let remembered = node.metadata.annotations.get(SERVER_LABELS);
    let owned = order::map(remembered.into_iter().flat_map(parse_owned));
    let mut owned_then = Vec::new();
    for key in owned.keys().chain(wanted.keys()).collect::<BTreeSet<_>>() {
        let (have, own) = (node.metadata.labels.get(key), owned.get(key).copied());
        let is_free = have.is_none() || have == own;
        let (then, want, source) = match wanted.get(key) {
            Some(None) => (own, have, Source::Kept),
            Some(want) if is_free => (*want, *want, by_prefix()),
            None if is_free && (!is_kubernetes_label(key) || allows(key)) => {
                (None, None, by_prefix())
            }
            _ => (None, have, Source::Kept),
        };
        owned_then.extend(then.map(|value| format!("{key}={value}")));
        if have.or(want).is_some() {
            let want = Sourced::new(want.map(str::to_owned), source);
            found.values.push(((*key).to_owned(), want));
        }
    }
    let annotation = Some(owned_then.join(",")).filter(|text| !text.is_empty());
    if annotation.is_some() || remembered.is_some() {
        let source = Source::Rule("lists the labels that come from the server");
        let annotation = Sourced::new(annotation, source);
        found.values.push((SERVER_LABELS.to_owned(), annotation));
    }
    found
}

fn by_prefix() -> Source {
    Source::server_because("labels", HCLOUD_INSTANCES_LABEL_PREFIXES)
}

/// Parses the annotation of a node that lists the labels which this program has copied from the server to the node, and
/// returns their keys and values. A pair that is not a valid label, or whose key has no prefix, is left out, because
/// this controller never writes such a pair.
fn parse_owned(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs.filter(|(key, value)| key.contains('/') && is_label_key(key) && is_label_value(value))
}

/// Returns the taint with this key. `text` is the value of the server's label, with the form `EFFECT` or
/// `VALUE_EFFECT`. Returns `None` when the key or the text is not valid.
fn taint_of(key: String, text: &str) -> Option<Taint> {
    let (value, effect) = match text.rsplit_once('_') {
        Some((value, effect)) => (Some(value), effect),
        None => (None, text),
    };
    let fits = is_label_key(&key) && EFFECTS.contains(&effect) && value.is_none_or(is_label_value);
    fits.then(|| Taint {
        key: key.into(),
        effect: effect.into(),
        value: value.map(Into::into),
        ..Taint::default()
    })
}

fn invalid_label(key: &str) -> Finding {
    let name = key.split_once('/').map_or(key, |(_, name)| name);
    let why = if name.starts_with(TAINT) {
        "it is not a valid taint. Its value must be EFFECT or VALUE_EFFECT, where EFFECT is NoSchedule, \
         PreferNoSchedule or NoExecute"
    } else {
        "Kubernetes does not allow this key or this value in a label"
    };
    let key = text::quoted(key);
    let message = format!("label {key} of the server has no effect on the node, because {why}");
    Finding::warning(Reason::InvalidServerLabel, message)
}
