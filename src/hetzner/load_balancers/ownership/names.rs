//! Names of load balancers and certificates, and values of labels, within Hetzner's rules.

use crate::provider::{Cluster, Profile, Service};
use crate::text::fnv1a;

/// As long as a host name's part and a label's value may be.
pub(super) const LONGEST: usize = 63;

/// As upstream cuts it.
const LONGEST_UPSTREAM: usize = 32;

/// Of a chain's SHA-256 in the name of its certificate: 80 bits, so that no tenant can make another chain with them.
const UPLOAD_DIGITS: usize = 20;

/// The name of a load balancer whose Service names none.
pub(crate) fn default_name(profile: Profile, service: &Service, cluster: &Cluster) -> String {
    match profile {
        Profile::Hcloud => {
            let uid = service.uid.replace('-', "");
            format!("a{uid}").chars().take(LONGEST_UPSTREAM).collect()
        }
        Profile::CcmFromScratch => usual_name(cluster, &service.namespace, &service.name),
    }
}

/// For what has this name in its namespace.
pub(crate) fn usual_name(cluster: &Cluster, namespace: &str, name: &str) -> String {
    fitted(&format!("{}-{namespace}-{name}", cluster.name), |letter| {
        letter.is_ascii_alphanumeric() || letter == '-'
    })
}

/// The name of a certificate that is uploaded from this Secret: another one for each chain, Secret and cluster. A chain
/// holds the public half of its key: where the key changes, so does the chain. `digest`: see `TlsPair`. `taken_by`: the ID
/// of another certificate that has the name which this one would get.
pub(crate) fn upload_name(
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
pub(crate) fn is_upload_name(
    name: &str,
    uid: &str,
    namespace: &str,
    secret: &str,
    digest: Option<&str>,
) -> bool {
    let end = name.len().checked_sub(UPLOAD_DIGITS);
    end.and_then(|end| name.split_at_checked(end)).is_some_and(|(start, digits)| {
        start.ends_with(&upload_whose(uid, namespace, secret))
            && digest.is_none_or(|digest| digest.starts_with(digits))
    })
}

/// What the name of a certificate of this Secret has before the digits of its chain.
fn upload_whose(uid: &str, namespace: &str, secret: &str) -> String {
    format!("-{:08x}", fnv1a([uid, namespace, secret]) as u32)
}

/// `namespace.name` of a Service, as labels have it.
pub(crate) fn service_value(service: &Service) -> String {
    label_value(&format!("{}.{}", service.namespace, service.name))
}

pub(crate) fn label_value(text: &str) -> String {
    fitted(text, |letter| letter.is_ascii_alphanumeric() || "-_.".contains(letter))
}

/// The text with other letters replaced by dashes, letters or digits at both ends, and where
/// that takes too much away, a hash of the whole at its end.
fn fitted(text: &str, fits: impl Fn(char) -> bool) -> String {
    let replaced: String =
        text.chars().map(|letter| if fits(letter) { letter } else { '-' }).collect();
    let trimmed = replaced.trim_matches(|letter: char| !letter.is_ascii_alphanumeric());
    if trimmed.len() <= LONGEST && trimmed == text {
        text.to_owned()
    } else {
        with_hash(trimmed, text)
    }
}

/// Shortened so that a hash of `of` has room behind it: also the name of what only `of` has, where another load
/// balancer has the default name.
pub(crate) fn with_hash(text: &str, of: &str) -> String {
    let hash = format!("{:08x}", fnv1a([of]) as u32);
    let room = LONGEST - hash.len() - 1;
    let stem: String = text.chars().take(room).collect();
    let stem = stem.trim_end_matches(|letter: char| !letter.is_ascii_alphanumeric());
    match stem {
        "" => hash,
        stem => format!("{stem}-{hash}"),
    }
}
