//! The rules of each kind: its defaults, the values that the cluster allocates, and validation.
//!
//! The module `write` calls these rules in the order of kube-apiserver. A client that sends an object with several
//! errors therefore gets the same error as from kube-apiserver.

mod endpoint_slice;
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
mod signing_request;

use serde_json::Value;

pub use endpoint_slice::EndpointSlice;
pub use event::Event;
pub use lease::Lease;
pub use meta::{validate_common_update, validate_meta, validate_meta_update};
pub use namespace::Namespace;
pub use node::Node;
pub use service::Service;
pub use signing_request::SigningRequest;

use super::status::FieldError;
use super::store::Store;

/// The rules for one kind of object: its default values, the addresses and ports that the server allocates to it, and
/// its validation. In all functions, `new` is the decoded object that a client writes, and `old` is the stored object
/// before this write.
pub trait Rules: Sync {
    /// Sets the default values that the API documentation gives for missing fields. This function runs whenever an
    /// object of this kind is decoded.
    fn defaults(&self, _object: &mut Value) {}

    /// Sets the fields of a new object that kube-apiserver and its admission plugins set themselves.
    fn prepare_create(&self, _object: &mut Value) {}

    /// Copies from `old` the fields that an update of the object is not allowed to change, e.g. the status.
    fn prepare_update(&self, _new: &mut Value, _old: &Value) {}

    /// Copies from `old` the fields that an update of the `status` subresource is not allowed to change, i.e. the
    /// `spec`.
    fn prepare_status_update(&self, new: &mut Value, old: &Value) {
        new["spec"] = old["spec"].clone();
    }

    /// Copies from `old` the fields that an update of the `approval` subresource is not allowed to change. Only
    /// `CertificateSigningRequest` has this subresource, so nothing is copied for other kinds.
    fn prepare_approval_update(&self, _new: &mut Value, _old: &Value) {}

    fn validate_approval_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        validate_meta_update(new, old)
    }

    /// Gives the object the addresses and ports that it needs and that no other object has. Returns an error for each
    /// requested address or port that is not available. Only a Service needs any, so nothing is done for other kinds.
    fn allocate(&self, _new: &mut Value, _old: Option<&Value>, _store: &Store) -> Vec<FieldError> {
        Vec::new()
    }

    /// Returns what is wrong with the name of a new object of this kind.
    fn validate_name(&self, name: &str) -> Vec<String> {
        names::subdomain(name)
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        validate_meta(object, &|name| self.validate_name(name))
    }

    /// Returns all errors of an update. An error can be in the list twice, because kube-apiserver reports it twice.
    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        validate_meta_update(new, old)
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        validate_meta_update(new, old)
    }
}

/// The rules of a kind that has no default values, no allocated addresses and no checks of its own. Such a kind only
/// has the rules that are the same for all kinds.
pub struct Plain;

impl Rules for Plain {}

/// Returns the items of a list, or no items when the list is absent.
fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns the mutable items of the list in this field. When the field is absent, returns no items and leaves the field
/// absent. The index operator of `Value` would insert null for it.
fn items_mut<'a>(object: &'a mut Value, field: &str) -> &'a mut [Value] {
    object.get_mut(field).and_then(Value::as_array_mut).map_or(&mut [], Vec::as_mut_slice)
}

/// Returns the text of a field, or an empty text when the field is absent.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn remove(value: &mut Value, name: &str) {
    if let Some(map) = value.as_object_mut() {
        map.remove(name);
    }
}
