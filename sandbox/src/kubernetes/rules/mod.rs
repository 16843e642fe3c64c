//! What is special about each kind: its defaults, what the cluster allocates for it, and what is valid.
//!
//! The order of the calls is `write`'s; it is the real server's, so that the same of several errors wins.

mod event;
mod lease;
mod meta;
pub mod names;
mod namespace;
mod node;
mod service;
mod service_addresses;
mod service_fields;
mod service_status;

use serde_json::Value;

pub use event::Event;
pub use lease::Lease;
pub use meta::{validate_common_update, validate_meta, validate_meta_update};
pub use namespace::Namespace;
pub use node::Node;
pub use service::Service;

use super::status::FieldError;
use super::store::Store;

/// The rules of a kind. `new` and `old` are whole objects, already decoded.
pub trait Rules: Sync {
    /// Fills in what the API documents as defaults, after every decoding.
    fn defaults(&self, _object: &mut Value) {}

    /// Fills in what comes from the server and its admission plugins at creation.
    fn prepare_create(&self, _object: &mut Value) {}

    /// Takes back from `old` what an update of the main resource may not touch.
    fn prepare_update(&self, _new: &mut Value, _old: &Value) {}

    /// Takes back from `old` what an update of the status may not touch.
    fn prepare_status_update(&self, new: &mut Value, old: &Value) {
        new["spec"] = old["spec"].clone();
    }

    /// Gives addresses and ports that the object needs and no other has.
    fn allocate(&self, _new: &mut Value, _old: Option<&Value>, _store: &Store) -> Vec<FieldError> {
        Vec::new()
    }

    /// What is wrong with a name.
    fn validate_name(&self, name: &str) -> Vec<String> {
        names::subdomain(name)
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        validate_meta(object, &|name| self.validate_name(name))
    }

    /// Everything that is checked at an update, doubles included: the real server shows them.
    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        validate_meta_update(new, old)
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        validate_meta_update(new, old)
    }
}

/// A kind without rules of its own.
pub struct Plain;

impl Rules for Plain {}

/// The items of a list, none when it is absent.
fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The same to be changed. A field that is absent stays absent, which `object[field]` would not leave so.
fn items_mut<'a>(object: &'a mut Value, field: &str) -> &'a mut [Value] {
    object.get_mut(field).and_then(Value::as_array_mut).map_or(&mut [], Vec::as_mut_slice)
}

/// The text of a field, empty when it is absent.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Removes a field of an object.
fn remove(value: &mut Value, name: &str) {
    if let Some(map) = value.as_object_mut() {
        map.remove(name);
    }
}
