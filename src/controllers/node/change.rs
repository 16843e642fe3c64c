//! What a plan is made of: values of a node, and the writes that change them.

use crate::kube::Taint;
use crate::provider::{AddressKind, NodeAddress, Source};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;

/// One value of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Field {
    pub field: FieldName,
    pub have: Option<String>,
    pub want: Option<String>,
    pub source: Source,
}

/// One write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "change", rename_all_fields = "camelCase")]
pub enum Change {
    /// Replaces `status.addresses`.
    SetAddresses { addresses: Vec<NodeAddress> },
    /// Sets labels, the provider ID, and the taints that remain: one patch.
    Update {
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        labels: BTreeMap<String, String>,
        #[serde(skip_serializing_if = "Option::is_none", rename = "providerID")]
        provider_id: Option<String>,
        /// The taint is removed by writing the others.
        #[serde(skip_serializing_if = "Option::is_none")]
        taints: Option<Vec<Taint>>,
    },
}

/// Which value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldName {
    Address(AddressKind),
    Label(String),
    ProviderId,
    UninitializedTaint,
}

impl FieldName {
    /// Its kind in one word, for a table.
    pub fn kind(&self) -> &'static str {
        match self {
            FieldName::Address(_) => "address",
            FieldName::Label(_) => "label",
            FieldName::ProviderId => "provider ID",
            FieldName::UninitializedTaint => "taint",
        }
    }
}

impl fmt::Display for FieldName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FieldName::Address(kind) => write!(f, "address {}", kind.name()),
            FieldName::Label(key) => write!(f, "label {key}"),
            FieldName::ProviderId => f.write_str("spec.providerID"),
            FieldName::UninitializedTaint => f.write_str("taint uninitialized"),
        }
    }
}

impl Serialize for FieldName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Change {
    /// In one word, for the metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Change::SetAddresses { .. } => "set_addresses",
            Change::Update { taints, .. } if taints.is_some() => "initialise",
            Change::Update { .. } => "set_labels",
        }
    }

    /// The write in one line, for the log.
    pub fn summary(&self) -> String {
        match self {
            Change::SetAddresses { addresses } => {
                let list: Vec<String> = addresses.iter().map(NodeAddress::to_string).collect();
                format!("addresses set: {}", list.join(", "))
            }
            Change::Update {
                labels,
                provider_id,
                taints,
            } => {
                let labels = match (labels.len(), taints) {
                    (0, _) => None,
                    (count, Some(_)) => Some(format!("{count} labels set")),
                    (_, None) => {
                        let list: Vec<String> =
                            labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
                        Some(format!("labels set: {}", list.join(", ")))
                    }
                };
                let provider_id = provider_id
                    .as_ref()
                    .map(|id| format!("provider ID set: {id}"));
                let taint = taints
                    .as_ref()
                    .map(|_| "taint uninitialized removed".to_owned());
                let parts: Vec<String> =
                    [provider_id, labels, taint].into_iter().flatten().collect();
                parts.join(", ")
            }
        }
    }

    /// Does this write change that value?
    pub fn is_about(&self, field: &Field) -> bool {
        matches!(field.field, FieldName::Address(_)) == matches!(self, Change::SetAddresses { .. })
    }
}

impl Field {
    /// `taint uninitialized: removed`.
    pub fn line(&self) -> String {
        let name = &self.field;
        match (&self.have, &self.want) {
            (None, Some(want)) => format!("{name}: set to {want}"),
            (Some(have), Some(want)) if have != want => format!("{name}: {have} → {want}"),
            (Some(have), None) if matches!(name, FieldName::Address(_)) => {
                format!("{name}: {have} removed")
            }
            (Some(_), None) => format!("{name}: removed"),
            (have, _) => format!("{name}: {}", have.as_deref().unwrap_or("-")),
        }
    }
}
