//! The three patch formats of the API: JSON patch, merge patch and strategic merge patch. Each format has a function
//! `apply`. It takes the JSON of an object, as a GET would return it, and returns the JSON of the patched object.

mod merge;
mod strategic;

use serde_json::Value;

use super::others::json_patch;
use super::schema::Object;
use super::status::Refusal;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Merge,
    Json,
    Strategic,
}

impl Format {
    /// Returns the patch format that a `Content-Type` names. Returns `None` for an unsupported format, such as
    /// server-side apply.
    pub fn of(content_type: &str) -> Option<Format> {
        match content_type.split(';').next().unwrap_or_default().trim() {
            "application/merge-patch+json" => Some(Format::Merge),
            "application/json-patch+json" => Some(Format::Json),
            "application/strategic-merge-patch+json" => Some(Format::Strategic),
            _ => None,
        }
    }
}

pub fn apply(
    format: Format,
    schema: &Object,
    current: Value,
    patch: &[u8],
) -> Result<Value, Refusal> {
    let patch: Value = serde_json::from_slice(patch)
        .map_err(|why| Refusal::bad_request(format!("error decoding patch: {why}")))?;
    match format {
        Format::Json => json_patch::apply(&current, &patch),
        Format::Merge | Format::Strategic if !patch.is_object() => {
            Err(Refusal::bad_request("error decoding patch: the patch is not a JSON object"))
        }
        Format::Merge => Ok(merge::apply(current, &patch)),
        Format::Strategic => strategic::apply(schema, current, &patch),
    }
}
