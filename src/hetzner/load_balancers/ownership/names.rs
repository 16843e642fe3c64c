//! Makes names of load balancers and certificates, and values of labels, in the form that Hetzner allows.

use crate::provider::{Cluster, Profile, SecretName, Service};
use crate::text::fnv1a;

/// The highest number of characters in a label's value, and in a name that this program makes. Hetzner allows 63
/// characters in a label's value and in each part of a host name.
pub(super) const LONGEST: usize = 63;

/// The number of characters to which hcloud-cloud-controller-manager cuts the name of a load balancer.
const LONGEST_UPSTREAM: usize = 32;

/// The number of hexadecimal digits of the hash in the name of an uploaded certificate. The hash is the SHA-256 hash of
/// the certificate chain. Twenty digits are 80 bits, so nobody can make another chain with the same digits.
const UPLOAD_DIGITS: usize = 20;

/// Returns the name of the load balancer for a Service without the annotation `name`.
pub(crate) fn default_name(profile: Profile, service: &Service, cluster: &Cluster) -> String {
    match profile {
        Profile::Hcloud => {
            let uid = service.uid.replace('-', "");
            format!("a{uid}").chars().take(LONGEST_UPSTREAM).collect()
        }
        Profile::CcmFromScratch => usual_name(cluster, &service.namespace, &service.name),
    }
}

/// Returns `CLUSTER-NAMESPACE-NAME` for a Service, or for a group of Services that share a load balancer, in the form
/// that is allowed for the name of a load balancer.
pub(crate) fn usual_name(cluster: &Cluster, namespace: &str, name: &str) -> String {
    fitted(&format!("{}-{namespace}-{name}", cluster.name), |letter| {
        letter.is_ascii_alphanumeric() || letter == '-'
    })
}

/// Returns the name for a certificate that is uploaded from this Secret. The name depends on the cluster, the Secret
/// and `digest`, the hash of the certificate chain. A new key also leads to a new name, because the chain contains the
/// public key. When a certificate already has the name, its ID is given in `taken_by`, and the name then also contains
/// a hash of this ID.
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

/// Whether `name` is the name of a certificate that the cluster with this UID uploads from this Secret. When `digest`
/// is given, the name must be for the certificate chain with this hash.
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

/// Returns the part of an uploaded certificate's name that stands for the cluster and the Secret. After this part, the
/// name has the digits of the hash of the certificate chain.
fn upload_whose(uid: &str, (namespace, secret): &SecretName) -> String {
    format!("-{:08x}", fnv1a([uid, namespace, secret]) as u32)
}

/// Returns `namespace.name` of a Service, in the form that is allowed for a label's value.
pub(crate) fn service_value(service: &Service) -> String {
    label_value(&format!("{}.{}", service.namespace, service.name))
}

pub(crate) fn label_value(text: &str) -> String {
    fitted(text, |letter| letter.is_ascii_alphanumeric() || "-_.".contains(letter))
}

/// Changes a text to the form that is allowed for a name or for a label's value. `fits` says which characters are
/// allowed, and every other character becomes a dash. Both ends are cut so that they are ASCII letters or digits. When
/// the text changes by this, or is too long, a hash of the original text is appended.
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

/// Shortens the text if necessary, and appends a hash of `of`. So two long texts with the same beginning get different
/// results.
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
