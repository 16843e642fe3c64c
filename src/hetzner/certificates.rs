//! The project's certificates. Only the fields that this program uses are read.

use super::api::{Reference, Resource};
use jiff::Timestamp;
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};

/// A certificate, uploaded or managed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Certificate {
    pub id: u64,
    pub name: String,
    /// The labels, which every answer must have, like `used_by`: a certificate without labels would seem
    /// to have no owner.
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub domain_names: Vec<String>,
    /// The expiry in RFC 3339, or `None` while the certificate is not issued.
    #[serde(default)]
    pub not_valid_after: Option<String>,
    /// The status of a managed certificate. `None` means that the certificate was uploaded and needs no issuance.
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

/// The reason why issuance or renewal failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct CertificateError {
    #[serde(default)]
    pub code: String,
    #[serde(default)]
    pub message: String,
}

impl Certificate {
    /// Returns `name (id)`, the form that messages use.
    pub fn shown(&self) -> String {
        format!("{} ({})", self.name, self.id)
    }

    /// Whether Hetzner orders and renews the certificate.
    pub fn is_managed(&self) -> bool {
        self.status.is_some()
    }

    /// Returns when the certificate expires, or `None` when it is not issued yet or the API's text is not a time.
    pub fn expires(&self) -> Option<Timestamp> {
        self.not_valid_after.as_ref()?.parse().ok()
    }

    /// Whether the certificate is issued, so that a load balancer can use it.
    pub fn is_issued(&self) -> bool {
        let status = self.status.as_ref();
        status.is_none_or(|status| status.issuance == "completed")
    }
}

/// All certificates that were read, with an index of their IDs and names.
pub(super) struct Certificates<'a> {
    pub(super) all: &'a [Certificate],
    index: &'a Index,
}

/// The positions of certificates in a list, by ID and by name.
#[derive(Debug, Default)]
pub(super) struct Index {
    by_id: HashMap<String, usize>,
    by_name: HashMap<String, usize>,
}

impl Index {
    pub(super) fn new(all: &[Certificate]) -> Index {
        let ids = all.iter().map(|certificate| certificate.id.to_string());
        let names = all.iter().map(|certificate| certificate.name.clone());
        Index { by_id: ids.zip(0..).collect(), by_name: names.zip(0..).collect() }
    }
}

impl<'a> Certificates<'a> {
    /// Joins a list and the index that was made for this list.
    pub(super) fn new(all: &'a [Certificate], index: &'a Index) -> Certificates<'a> {
        Certificates { all, index }
    }

    /// Returns the certificate with this ID, or else the certificate with this name.
    pub(super) fn named(&self, text: &str) -> Option<&'a Certificate> {
        let by_id = self.index.by_id.get(text).and_then(|place| self.all.get(*place));
        by_id.or_else(|| self.with_name(text))
    }

    pub(super) fn with_name(&self, name: &str) -> Option<&'a Certificate> {
        let place = self.index.by_name.get(name)?;
        self.all.get(*place)
    }
}

impl Resource for Certificate {
    const LIST: &'static str = "certificates";
    const ONE: &'static str = "certificate";
    fn id(&self) -> u64 {
        self.id
    }
}
