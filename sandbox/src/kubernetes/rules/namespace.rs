//! The rules of `Namespace`.

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
        // The namespace's finalizers change only through the subresource `finalize`.
        new["spec"] = old["spec"].clone();
        new["status"] = old["status"].clone();
    }

    fn validate_name(&self, name: &str) -> Vec<String> {
        names::label(name)
    }
}
