//! The types of the kinds that are served: fields, their types, and how patches merge them.
//!
//! One table a type, from which four things are made: reading (unknown fields, wrong types, what Go shows of an
//! empty field), strategic merge patches, and the OpenAPI documents.

mod decode;
mod kinds;
mod meta;
mod node;
mod service;

pub use decode::{Decoded, decode};
pub use kinds::{
    DAEMON_SET, DEPLOYMENT, EVENT, LEASE, NAMESPACE, SECRET, SELF_SUBJECT_ACCESS_REVIEW,
};
pub use node::NODE;
pub use service::SERVICE;

/// A struct of the API.
#[derive(Debug)]
pub struct Object {
    /// Name without its package, e.g. `NodeSpec`.
    pub name: &'static str,
    /// Package in OpenAPI's spelling, e.g. `io.k8s.api.core.v1`.
    pub package: &'static str,
    pub fields: &'static [Field],
}

#[derive(Debug)]
pub struct Field {
    pub name: &'static str,
    pub kind: Type,
    pub presence: Presence,
}

/// When a field is shown in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Unless it is zero: `omitempty` on a value.
    NonZero,
    /// When it was given, zero or not: a pointer.
    Given,
    /// Always, zero if need be: no `omitempty`, or a struct (which has no zero for Go's JSON).
    Always,
}

#[derive(Clone, Copy, Debug)]
pub enum Type {
    String,
    Bool,
    Int32,
    Int64,
    IntOrString,
    /// RFC 3339, seconds.
    Time,
    /// RFC 3339, exactly six decimals.
    MicroTime,
    /// Map of strings.
    Strings,
    /// Map of quantities: strings or numbers.
    Quantities,
    List(&'static Type, Merge),
    Object(&'static Object),
    /// Kept as it is.
    Opaque,
}

/// What a strategic merge patch does with a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// Replaces it.
    Atomic,
    /// Merges its objects by this field.
    ByKey(&'static str),
    /// Adds what is missing: a set of primitives.
    Set,
}

impl Object {
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// `io.k8s.api.core.v1.NodeSpec`
    pub fn definition(&self) -> String {
        format!("{}.{}", self.package, self.name)
    }

    /// `v1.NodeSpec`, as Go prints the type.
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
