//! Certificates of the project, as the API says them: only the fields we read, and the list.

use super::api::{Reference, Resource};
use jiff::Timestamp;
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};

/// A certificate, uploaded or managed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Certificate {
    pub id: u64,
    pub name: String,
    /// Like `used_by`, an answer without it is none: what has no labels would seem to be free.
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub domain_names: Vec<String>,
    /// RFC 3339; none while it is not issued.
    #[serde(default)]
    pub not_valid_after: Option<String>,
    /// None: it was uploaded, and is complete.
    pub status: Option<CertificateStatus>,
    /// Load balancers, by their IDs.
    pub used_by: Vec<Reference>,
}

/// How far Hetzner has come with a managed certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct CertificateStatus {
    /// `pending`, `completed` or `failed`.
    pub issuance: String,
    /// `scheduled`, `pending`, `failed` or `unavailable`.
    #[serde(default)]
    pub renewal: String,
    pub error: Option<CertificateError>,
}

/// Why issuance or renewal failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct CertificateError {
    #[serde(default)]
    pub code: String,
    #[serde(default)]
    pub message: String,
}

impl Certificate {
    /// `name (id)`, as messages write it.
    pub fn shown(&self) -> String {
        format!("{} ({})", self.name, self.id)
    }

    /// Hetzner orders and renews it.
    pub fn is_managed(&self) -> bool {
        self.status.is_some()
    }

    /// None: not issued yet, or no time.
    pub fn expires(&self) -> Option<Timestamp> {
        self.not_valid_after.as_ref()?.parse().ok()
    }

    /// A load balancer can show it.
    pub fn is_issued(&self) -> bool {
        let status = self.status.as_ref();
        status.is_none_or(|status| status.issuance == "completed")
    }
}

/// All that were read, by what may name them.
pub(super) struct Certificates<'a> {
    pub(super) all: &'a [Certificate],
    index: &'a Index,
}

/// The places in a list of certificates, by what may name them.
#[derive(Debug, Default)]
pub(super) struct Index {
    by_id: HashMap<String, usize>,
    by_name: HashMap<String, usize>,
}

impl Index {
    pub(super) fn new(all: &[Certificate]) -> Index {
        let ids = all.iter().map(|one| one.id.to_string());
        let names = all.iter().map(|one| one.name.clone());
        Index { by_id: ids.zip(0..).collect(), by_name: names.zip(0..).collect() }
    }
}

impl<'a> Certificates<'a> {
    /// `index`: it was made for this list.
    pub(super) fn new(all: &'a [Certificate], index: &'a Index) -> Certificates<'a> {
        Certificates { all, index }
    }

    /// By its ID, else by its name.
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
