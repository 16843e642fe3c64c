//! Names and labels of load balancers, within Hetzner's rules.

use super::balancer::LoadBalancer;
use crate::provider::{Cluster, Profile, Service};
use crate::text::{fnv1a, shell_command};
use std::collections::BTreeMap;

/// Identity, as upstream: the UID of the Service it is for.
pub const SERVICE_UID: &str = "hcloud-ccm/service-uid";
/// UID of the cluster: distinguishes two clusters in one project.
pub const CLUSTER_UID: &str = "ccm-from-scratch/cluster-uid";
/// `--cluster-name`, for people.
pub const CLUSTER: &str = "ccm-from-scratch/cluster";
/// `namespace.name`, for people.
pub const SERVICE: &str = "ccm-from-scratch/service";

/// On what we created, from the request that created it on; never added later, because a missing label must be the
/// safe case.
pub const CREATED: &str = "ccm-from-scratch/created";
/// On what we adopted, from the adoption on.
pub const ADOPTED: &str = "ccm-from-scratch/adopted";
/// On a certificate that was uploaded from a Secret: `namespace.name` of it.
pub const SECRET: &str = "ccm-from-scratch/secret";
/// Set by an operator: `namespace.name` of the Service that may adopt it.
pub const ADOPT: &str = "ccm-from-scratch/adopt";

/// On one that several Services share: `namespace.name` of the group.
pub const GROUP: &str = "ccm-from-scratch/group";
/// With a port's number behind it: UID of the Service that the port is of.
pub const PORT: &str = "ccm-from-scratch/port-";
/// Set by the owner of one that Services may put ports on: their namespace, or nothing for all.
pub const EXTERNAL: &str = "ccm-from-scratch/external";
/// With the cluster's UID behind it, on one that is not ours: the targets that were there before, see `group`.
pub const TARGETS_BEFORE: &str = "ccm-from-scratch/targets-before-";
/// UID of the Service that it was of when its management ended.
pub const RELEASED: &str = "ccm-from-scratch/released";

/// The load balancer outlasts its Services: `namespace.name` of the Service, or of the group, that asks for it. While it
/// has Services, too, so that none deletes it whose Service was deleted without us.
pub const KEEP: &str = "ccm-from-scratch/keep";

/// The value of labels that say yes.
pub(super) const YES: &str = "true";

/// Labels of Hetzner's controller and ours begin with one of these.
pub(super) const UPSTREAM_PREFIX: &str = "hcloud-ccm/";
pub(super) const OUR_PREFIX: &str = "ccm-from-scratch/";

/// How the keys begin of the labels by which the infrastructure provider of Cluster API owns a load balancer.
const CLUSTER_API_PREFIX: &str = "caph-cluster-";
/// How the keys begin of the labels by which tools own what they made for one cluster.
const CLUSTER_PREFIX: &str = "kubernetes.io/cluster/";
/// The value of a label that says that a program manages an object, and deletes it when it is not needed.
const OWNED: &str = "owned";
/// The domains of keys by which programs know their load balancers. `kubernetes.io` stands for its subdomains, too.
const PROGRAM_DOMAINS: [&str; 3] = ["kubernetes.io", "hcloud", "hcloud-ccm"];

/// What the labels are for.
pub(super) const WHOSE: &str = "labels say whose it is";

/// As long as a host name's part and a label's value may be.
const LONGEST: usize = 63;

/// As upstream cuts it.
const LONGEST_UPSTREAM: usize = 32;

/// Of a chain's SHA-256 in the name of its certificate: 80 bits, so that no tenant can make another chain with them.
const UPLOAD_DIGITS: usize = 20;

/// The name of a load balancer whose Service names none.
pub(super) fn default_name(profile: Profile, service: &Service, cluster: &Cluster) -> String {
    match profile {
        Profile::Hcloud => {
            let uid = service.uid.replace('-', "");
            format!("a{uid}").chars().take(LONGEST_UPSTREAM).collect()
        }
        Profile::CcmFromScratch => usual_name(cluster, &service.namespace, &service.name),
    }
}

/// For what has this name in its namespace.
pub(super) fn usual_name(cluster: &Cluster, namespace: &str, name: &str) -> String {
    fitted(&format!("{}-{namespace}-{name}", cluster.name), |letter| {
        letter.is_ascii_alphanumeric() || letter == '-'
    })
}

/// The label of a port.
pub(super) fn port_label(number: u16) -> String {
    format!("{PORT}{number}")
}

/// Numbers of ports that have a label, with the UID in it.
pub(super) fn labelled_ports(balancer: &LoadBalancer) -> impl Iterator<Item = (u16, &String)> {
    let all = balancer.labels.range(PORT.to_owned()..);
    let all = all.map_while(|(label, uid)| Some((label.strip_prefix(PORT)?, uid)));
    all.filter_map(|(number, uid)| Some((number.parse().ok()?, uid)))
}

/// UIDs of all Services that it says it is of.
pub(super) fn uids(balancer: &LoadBalancer) -> impl Iterator<Item = &String> {
    let own = balancer.labels.get(SERVICE_UID).into_iter();
    own.chain(labelled_ports(balancer).map(|(_, uid)| uid))
}

/// Ours, as they should be. Those of others are not among them.
pub(super) fn labels(service: &Service, cluster: &Cluster) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::from([
        (SERVICE_UID.to_owned(), service.uid.clone()),
        (SERVICE.to_owned(), service_value(service)),
    ]);
    labels.extend(cluster_labels(cluster));
    labels
}

/// Does a label say that it is this cluster's? A cluster whose identity is not known has nothing.
pub(super) fn is_of(labels: &BTreeMap<String, String>, cluster: &Cluster) -> bool {
    let uid = labels.get(CLUSTER_UID);
    uid.is_some_and(|uid| cluster.is_known_by(uid))
}

/// The label that says that another program owns the load balancer, as `KEY=VALUE`. Labels of an operator, for example those
/// of Terraform, say no such thing.
pub(super) fn owned_by_program(labels: &BTreeMap<String, String>) -> Option<String> {
    let mut labels = labels.iter();
    let found = labels.find(|(key, value)| says_owner(key, value));
    found.map(|(key, value)| format!("{key}={value}"))
}

/// Whether a label says that another program owns the load balancer.
pub(super) fn says_owner(key: &str, value: &str) -> bool {
    let starts = |prefix: &&str| key.starts_with(*prefix);
    let is_ours = [UPSTREAM_PREFIX, OUR_PREFIX].iter().any(starts);
    let is_owner = [CLUSTER_API_PREFIX, CLUSTER_PREFIX].iter().any(starts);
    is_owner || (value == OWNED && !is_ours)
}

/// Whether other programs know their load balancers by labels of this key, so that no Service may set one.
pub(super) fn is_of_program(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    key.starts_with(CLUSTER_API_PREFIX)
        || PROGRAM_DOMAINS.contains(&domain)
        || domain.ends_with(".kubernetes.io")
}

/// Whether a label says that another cluster made it.
pub(super) fn is_of_another(labels: &BTreeMap<String, String>, cluster: &Cluster) -> bool {
    labels.contains_key(CLUSTER_UID) && !is_of(labels, cluster)
}

/// The namespace of what a label names by `namespace.name`. A namespace has no dot; `None` means that the label was cut
/// inside the namespace, so that several namespaces may be meant.
pub(super) fn namespace_of(value: &str) -> Option<&str> {
    value.split_once('.').map(|(namespace, _)| namespace)
}

fn cluster_labels(cluster: &Cluster) -> BTreeMap<String, String> {
    let name = (!cluster.name.is_empty()).then(|| label_value(&cluster.name));
    let uid = (!cluster.uid.is_empty()).then(|| cluster.uid.clone());
    let both = [(CLUSTER_UID, uid), (CLUSTER, name)].into_iter();
    both.filter_map(|(label, value)| Some((label.to_owned(), value?)))
        .collect()
}

/// The name of a certificate that is uploaded from this Secret: another one for each chain, Secret and cluster. A chain
/// holds the public half of its key: where the key changes, so does the chain. `digest`: see `TlsPair`. `taken_by`: the ID
/// of another certificate that has the name which this one would get.
pub(super) fn upload_name(
    namespace: &str,
    secret: &str,
    digest: &str,
    cluster: &Cluster,
    taken_by: Option<u64>,
) -> String {
    let whose = upload_whose(&cluster.uid, namespace, secret);
    let beside = taken_by.map(|id| format!("-{:08x}", fnv1a([id.to_string().as_str()]) as u32));
    let beside = beside.unwrap_or_default();
    let room = LONGEST - UPLOAD_DIGITS - whose.len() - beside.len();
    let stem = format!("ccm-{namespace}-{secret}");
    let stem: String = stem.chars().take(room).collect();
    let digest: String = digest.chars().take(UPLOAD_DIGITS).collect();
    stem + &beside + &whose + &digest
}

/// Whether `name` is the name of a certificate that the cluster with this UID uploaded from this Secret. `digest`: with
/// this chain; `None` means with any chain.
pub(super) fn is_upload_name(
    name: &str,
    uid: &str,
    namespace: &str,
    secret: &str,
    digest: Option<&str>,
) -> bool {
    let end = name.len().checked_sub(UPLOAD_DIGITS);
    let parts = end.and_then(|end| name.split_at_checked(end));
    parts.is_some_and(|(start, digits)| {
        start.ends_with(&upload_whose(uid, namespace, secret))
            && digest.is_none_or(|digest| digest.starts_with(digits))
    })
}

/// What the name of a certificate of this Secret has before the digits of its chain.
fn upload_whose(uid: &str, namespace: &str, secret: &str) -> String {
    format!("-{:08x}", fnv1a([uid, namespace, secret]) as u32)
}

/// Ours on a certificate that is uploaded from this Secret; never `hcloud-ccm/service-uid`, by which one is a Service's.
pub(super) fn upload_labels(
    namespace: &str,
    secret: &str,
    cluster: &Cluster,
) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::from([(SECRET.to_owned(), secret_value(namespace, secret))]);
    labels.extend(cluster_labels(cluster));
    labels
}

/// `namespace.name`, as the label [`SECRET`] has it.
pub(super) fn secret_value(namespace: &str, secret: &str) -> String {
    label_value(&format!("{namespace}.{secret}"))
}

/// `namespace.name`, as the labels [`SERVICE`] and [`ADOPT`] have it.
pub(super) fn service_value(service: &Service) -> String {
    label_value(&format!("{}.{}", service.namespace, service.name))
}

/// The Service that it was made for, or the group, says its label, where that is of another namespace.
pub(super) fn of_another_namespace<'a>(
    balancer: &'a LoadBalancer,
    service: &Service,
) -> Option<&'a String> {
    let labels = &balancer.labels;
    let made_for = labels.get(SERVICE).or(labels.get(KEEP))?;
    // A namespace has no dot. One that is too long for the label is known by the whole label alone.
    let is_same = made_for.split_once('.').map(|(namespace, _)| namespace)
        == Some(service.namespace.as_str())
        || *made_for == service_value(service);
    (!is_same).then_some(made_for)
}

/// What an operator runs to have this Service adopt this load balancer.
pub(super) fn adopt_command(balancer: &LoadBalancer, service: &Service) -> String {
    let wanted = service_value(service);
    let has = balancer.labels.get(ADOPT);
    let begin = match has.is_some_and(|has| *has != wanted) {
        true => "hcloud load-balancer add-label --overwrite",
        false => "hcloud load-balancer add-label",
    };
    shell_command(begin, &[&balancer.id, &format!("{ADOPT}={wanted}")])
}

pub(super) fn label_value(text: &str) -> String {
    fitted(text, |letter| {
        letter.is_ascii_alphanumeric() || "-_.".contains(letter)
    })
}

/// The text with other letters replaced by dashes, letters or digits at both ends, and where
/// that takes too much away, a hash of the whole at its end.
fn fitted(text: &str, fits: impl Fn(char) -> bool) -> String {
    let replaced: String = text
        .chars()
        .map(|letter| if fits(letter) { letter } else { '-' })
        .collect();
    let trimmed = replaced.trim_matches(|letter: char| !letter.is_ascii_alphanumeric());
    match trimmed.len() <= LONGEST && trimmed == text {
        true => text.to_owned(),
        false => with_hash(trimmed, text),
    }
}

/// Shortened so that a hash of `of` has room behind it: also the name of what only `of` has, where another load
/// balancer has the default name.
pub(super) fn with_hash(text: &str, of: &str) -> String {
    let hash = format!("{:08x}", fnv1a([of]) as u32);
    let room = LONGEST - hash.len() - 1;
    let stem: String = text.chars().take(room).collect();
    let stem = stem.trim_end_matches(|letter: char| !letter.is_ascii_alphanumeric());
    match stem {
        "" => hash,
        stem => format!("{stem}-{hash}"),
    }
}
