//! The certificates of the Hetzner Cloud project, with the fields that this program uses.

use super::api::{Reference, Resource};
use jiff::Timestamp;
use serde::Deserialize;
use std::collections::BTreeMap;

/// A certificate, uploaded or managed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Certificate {
    pub id: u64,
    pub name: String,
    /// The labels of the certificate. The API must send `labels` and `used_by`: a certificate without them would look
    /// as if nobody owned or used it. So a missing field is an error.
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub domain_names: Vec<String>,
    /// The expiry in RFC 3339, or `None` while the certificate is not issued.
    #[serde(default)]
    pub not_valid_after: Option<String>,
    /// The status of a managed certificate. `None` for a certificate that was uploaded.
    pub status: Option<CertificateStatus>,
    /// The load balancers that use the certificate, by their IDs.
    pub used_by: Vec<Reference>,
}

/// The status of a managed certificate at Hetzner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct CertificateStatus {
    /// The state of the issuance: `pending`, `completed` or `failed`.
    pub issuance: String,
    /// The state of the renewal: `scheduled`, `pending`, `failed` or `unavailable`.
    #[serde(default)]
    pub renewal: String,
    pub error: Option<CertificateError>,
}

/// The reason why the issuance or the renewal of a managed certificate failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct CertificateError {
    #[serde(default)]
    pub code: String,
    #[serde(default)]
    pub message: String,
}

impl Certificate {
    /// Returns the certificate for messages, as `"name" (id)`. The name is quoted, because a name such as `old` would
    /// look like a word of the message.
    pub fn shown(&self) -> String {
        format!("{:?} ({})", self.name, self.id)
    }

    /// Whether Hetzner orders and renews the certificate.
    pub fn is_managed(&self) -> bool {
        self.status.is_some()
    }

    /// Returns when the certificate expires. `None` when it is not issued yet, or when the API's text can't be
    /// parsed as a time.
    pub fn expires(&self) -> Option<Timestamp> {
        self.not_valid_after.as_ref()?.parse().ok()
    }

    /// Whether the certificate is issued, so that a load balancer can use it.
    pub fn is_issued(&self) -> bool {
        let status = self.status.as_ref();
        status.is_none_or(|status| status.issuance == "completed")
    }

    /// Returns the certificate whose ID is `text`, or else the certificate whose name is `text`.
    pub(super) fn named<'a>(all: &'a [Certificate], text: &str) -> Option<&'a Certificate> {
        let id = text.parse().ok().filter(|id: &u64| id.to_string() == text);
        let by_id = all.iter().find(|certificate| Some(certificate.id) == id);
        by_id.or_else(|| Certificate::with_name(all, text))
    }

    pub(super) fn with_name<'a>(all: &'a [Certificate], name: &str) -> Option<&'a Certificate> {
        all.iter().find(|certificate| certificate.name == name)
    }
}

impl Resource for Certificate {
    const LIST: &'static str = "certificates";
    fn id(&self) -> u64 {
        self.id
    }
}
