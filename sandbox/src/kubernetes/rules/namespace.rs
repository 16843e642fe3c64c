//! Defaults and validation of `Namespace`.

use serde_json::{Value, json};

use super::{Rules, names, text};

pub struct Namespace;

/// The label by which selectors can select a namespace by its name.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

impl Rules for Namespace {
    fn defaults(&self, object: &mut Value) {
        let name = text(&object["metadata"]["name"]).to_string();
        if !name.is_empty() {
            object["metadata"]["labels"][NAME_LABEL] = name.into();
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        object["spec"] = json!({"finalizers": ["kubernetes"]});
        object["status"] = json!({"phase": "Active"});
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        // An update of a Namespace does not change its `spec`, which contains finalizers. Only the subresource
        // `finalize` can do so.
        new["spec"] = old["spec"].clone();
        new["status"] = old["status"].clone();
    }

    fn validate_name(&self, name: &str) -> Vec<String> {
        names::label(name)
    }
}
