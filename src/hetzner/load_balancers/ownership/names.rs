//! Names of load balancers and certificates, and values of labels, within Hetzner's rules.

use crate::provider::{Cluster, Profile, SecretName, Service};
use crate::text::fnv1a;

/// The length limit of a label's value and of each part of a host name.
pub(super) const LONGEST: usize = 63;

/// The length at which hcloud-cloud-controller-manager cuts the name of a load balancer, in characters.
const LONGEST_UPSTREAM: usize = 32;

/// How many digits of a chain's SHA-256 the name of its certificate has. They are 80 bits, so that no tenant can make
/// another chain with the same digits.
const UPLOAD_DIGITS: usize = 20;

/// The name of a load balancer whose Service asks for no name.
pub(crate) fn default_name(profile: Profile, service: &Service, cluster: &Cluster) -> String {
    match profile {
        Profile::Hcloud => {
            let uid = service.uid.replace('-', "");
            format!("a{uid}").chars().take(LONGEST_UPSTREAM).collect()
        }
        Profile::CcmFromScratch => usual_name(cluster, &service.namespace, &service.name),
    }
}

/// The name of a load balancer for the Service or group with this name in this namespace.
pub(crate) fn usual_name(cluster: &Cluster, namespace: &str, name: &str) -> String {
    fitted(&format!("{}-{namespace}-{name}", cluster.name), |letter| {
        letter.is_ascii_alphanumeric() || letter == '-'
    })
}

/// The name of a certificate that is uploaded from this Secret. The name differs for each chain, Secret and cluster. A
/// chain contains the public key, so the chain changes whenever the key changes. `digest` is explained at `TlsPair`.
/// When another certificate has the name already, `taken_by` is its ID, and a hash of this ID makes the name different.
pub(crate) fn upload_name(
    secret: &SecretName,
    digest: &str,
    cluster: &Cluster,
    taken_by: Option<u64>,
) -> String {
    let whose = upload_whose(&cluster.uid, secret);
    let (namespace, secret) = secret;
    let beside = taken_by.map(|id| format!("-{:08x}", fnv1a([id.to_string().as_str()]) as u32));
    let beside = beside.unwrap_or_default();
    let room = LONGEST - UPLOAD_DIGITS - whose.len() - beside.len();
    let stem = format!("ccm-{namespace}-{secret}");
    let stem: String = stem.chars().take(room).collect();
    let digest: String = digest.chars().take(UPLOAD_DIGITS).collect();
    stem + &beside + &whose + &digest
}

/// Whether `name` is the name of a certificate that the cluster with this UID uploaded from this Secret. `digest` is
/// the digest of the chain; `None` means any chain.
pub(crate) fn is_upload_name(
    name: &str,
    uid: &str,
    secret: &SecretName,
    digest: Option<&str>,
) -> bool {
    let end = name.len().checked_sub(UPLOAD_DIGITS);
    end.and_then(|end| name.split_at_checked(end)).is_some_and(|(start, digits)| {
        start.ends_with(&upload_whose(uid, secret))
            && digest.is_none_or(|digest| digest.starts_with(digits))
    })
}

/// The part of a certificate's name that identifies the cluster and the Secret. The digits of the chain follow.
fn upload_whose(uid: &str, (namespace, secret): &SecretName) -> String {
    format!("-{:08x}", fnv1a([uid, namespace, secret]) as u32)
}

/// `namespace.name` of a Service, in the form of a label's value.
pub(crate) fn service_value(service: &Service) -> String {
    label_value(&format!("{}.{}", service.namespace, service.name))
}

pub(crate) fn label_value(text: &str) -> String {
    fitted(text, |letter| letter.is_ascii_alphanumeric() || "-_.".contains(letter))
}

/// Replaces each character that is not allowed by a dash. Then removes all characters other than ASCII
/// letters and digits from both ends. When this changed the text, or when the text is too long, a hash of the
/// original text is appended.
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

/// Appends a hash of `of` to the text, and shortens the text when the result would be too long. When another
/// load balancer has the default name, the result is the name to use. No other owner gets the same name,
/// because `of` differs.
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
