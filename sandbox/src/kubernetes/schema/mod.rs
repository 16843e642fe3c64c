//! The types of the kinds that are served: fields, their types, and how patches merge them.
//!
//! Each type has one table, which is used for three things: reading (unknown fields, wrong types, empty fields as Go
//! shows them), strategic merge patches, and the OpenAPI documents.

mod decode;
mod endpoint_slice;
mod kinds;
mod meta;
mod node;
mod service;

pub use decode::{Decoded, decode};
pub use endpoint_slice::ENDPOINT_SLICE;
pub use kinds::{
    DAEMON_SET, DEPLOYMENT, EVENT, LEASE, NAMESPACE, SECRET, SELF_SUBJECT_ACCESS_REVIEW,
};
pub use node::NODE;
pub use service::SERVICE;

/// A struct of the API.
#[derive(Debug)]
pub struct Object {
    /// The name without its package, e.g. `NodeSpec`.
    pub name: &'static str,
    /// The package in OpenAPI's spelling, e.g. `io.k8s.api.core.v1`.
    pub package: &'static str,
    pub fields: &'static [Field],
}

#[derive(Debug)]
pub struct Field {
    pub name: &'static str,
    pub kind: Type,
    pub presence: Presence,
}

/// The condition under which an answer shows a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The field is shown when its value is not zero. In Go such a field is a value with `omitempty`.
    NonZero,
    /// The field is shown when the client wrote it, even if its value is zero. In Go such a field is a pointer.
    Given,
    /// The field is always shown, even when its value is zero. In Go such a field has no `omitempty`, or is a struct,
    /// which `encoding/json` never leaves out.
    Always,
}

#[derive(Clone, Copy, Debug)]
pub enum Type {
    String,
    Bool,
    Int32,
    Int64,
    IntOrString,
    /// RFC 3339 with seconds.
    Time,
    /// RFC 3339 with exactly six decimals.
    MicroTime,
    /// A map of strings.
    Strings,
    /// A map of quantities, which are strings or numbers.
    Quantities,
    List(&'static Type, Merge),
    Object(&'static Object),
    /// A value of any type, which is stored unchanged.
    Opaque,
}

/// How a strategic merge patch changes a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// The patch replaces the list.
    Atomic,
    /// The patch merges the objects of the list by this field.
    ByKey(&'static str),
    /// The patch adds missing items to a set of primitives.
    Set,
}

impl Object {
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// Returns the name of the type in OpenAPI documents, e.g. `io.k8s.api.core.v1.NodeSpec`.
    pub fn definition(&self) -> String {
        format!("{}.{}", self.package, self.name)
    }

    /// Returns the name as Go prints the type, e.g. `v1.NodeSpec`.
    fn go(&self) -> String {
        format!("{}.{}", self.package.rsplit('.').next().unwrap_or_default(), self.name)
    }
}

const fn optional(name: &'static str, kind: Type) -> Field {
    Field { name, kind, presence: Presence::NonZero }
}

const fn pointer(name: &'static str, kind: Type) -> Field {
    Field { name, kind, presence: Presence::Given }
}

const fn always(name: &'static str, kind: Type) -> Field {
    Field { name, kind, presence: Presence::Always }
}

const STRINGS_LIST: Type = Type::List(&Type::String, Merge::Atomic);
