//! Names and labels of load balancers, within Hetzner's rules.

use super::super::Profile;
use crate::cloud::{Cluster, Service};
use crate::text::fnv1a;
use std::collections::BTreeMap;

/// Identity, as upstream: the UID of the Service it is for.
pub const SERVICE_UID: &str = "hcloud-ccm/service-uid";
/// UID of the cluster: tells two clusters in one project apart.
pub const CLUSTER_UID: &str = "ccm-from-scratch/cluster-uid";
/// `--cluster-name`, for people.
pub const CLUSTER: &str = "ccm-from-scratch/cluster";
/// `namespace.name`, for people.
pub const SERVICE: &str = "ccm-from-scratch/service";

/// What the labels are for.
pub(super) const WHOSE: &str = "labels say whose it is";

/// As long as a host name's part and a label's value may be.
const LONGEST: usize = 63;

/// As upstream cuts it.
const LONGEST_UPSTREAM: usize = 32;

/// The name of a load balancer whose Service names none.
pub(super) fn default_name(profile: Profile, service: &Service, cluster: &Cluster) -> String {
    match profile {
        Profile::Hcloud => {
            let uid = service.uid.replace('-', "");
            format!("a{uid}").chars().take(LONGEST_UPSTREAM).collect()
        }
        Profile::CcmFromScratch => fitted(
            &format!("{}-{}-{}", cluster.name, service.namespace, service.name),
            |letter| letter.is_ascii_alphanumeric() || letter == '-',
        ),
    }
}

/// The same for a Service whose name somebody else's load balancer has.
pub(super) fn second_name(name: &str, service: &Service) -> String {
    with_hash(name, &service.uid)
}

/// Ours, as they should be. Those of others are not among them.
pub(super) fn labels(service: &Service, cluster: &Cluster) -> BTreeMap<&'static str, String> {
    let label = |text: &str| {
        fitted(text, |letter| {
            letter.is_ascii_alphanumeric() || "-_.".contains(letter)
        })
    };
    let mut labels = BTreeMap::from([
        (SERVICE_UID, service.uid.clone()),
        (
            SERVICE,
            label(&format!("{}.{}", service.namespace, service.name)),
        ),
    ]);
    if !cluster.uid.is_empty() {
        labels.insert(CLUSTER_UID, cluster.uid.clone());
    }
    if !cluster.name.is_empty() {
        labels.insert(CLUSTER, label(&cluster.name));
    }
    labels
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

/// Shortened so that a hash of `of` has room behind it.
fn with_hash(text: &str, of: &str) -> String {
    let hash = format!("{:08x}", fnv1a([of]) as u32);
    let room = LONGEST - hash.len() - 1;
    let stem: String = text.chars().take(room).collect();
    let stem = stem.trim_end_matches(|letter: char| !letter.is_ascii_alphanumeric());
    match stem {
        "" => hash,
        stem => format!("{stem}-{hash}"),
    }
}
