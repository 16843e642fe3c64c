//! `Namespace`.

use serde_json::{Value, json};

use super::{Rules, names, text};

pub struct Namespace;

/// The label that lets selectors name a namespace.
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
        // Its own finalizers change through the subresource `finalize` alone.
        new["spec"] = old["spec"].clone();
        new["status"] = old["status"].clone();
    }

    fn validate_name(&self, name: &str) -> Vec<String> {
        names::label(name)
    }
}
