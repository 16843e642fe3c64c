//! The schemas of the kinds that are served. A schema lists the fields of a type, their types, and how patches merge
//! them.
//!
//! Each schema is used for three purposes: to decode objects, to apply strategic merge patches, and to write the
//! OpenAPI documents. Decoding treats unknown fields, wrong types and empty fields as Go does.

mod decode;
mod endpoint_slice;
mod kinds;
mod meta;
mod node;
mod service;
mod signing_request;

pub use decode::{Decoded, decode};
pub use endpoint_slice::ENDPOINT_SLICE;
pub use kinds::{
    DAEMON_SET, DEPLOYMENT, EVENT, LEASE, NAMESPACE, PERSISTENT_VOLUME, POD, SECRET,
    SELF_SUBJECT_ACCESS_REVIEW,
};
pub use node::NODE;
pub use service::SERVICE;
pub use signing_request::SIGNING_REQUEST;

/// The schema of a struct of the Kubernetes API, e.g. of `NodeSpec`.
#[derive(Debug)]
pub struct Object {
    /// The name of the Go type without its package, e.g. `NodeSpec`.
    pub name: &'static str,
    /// The Go package of the type, as OpenAPI documents write it, e.g. `io.k8s.api.core.v1`.
    pub package: &'static str,
    pub fields: &'static [Field],
}

#[derive(Debug)]
pub struct Field {
    pub name: &'static str,
    pub kind: Type,
    pub presence: Presence,
}

/// The condition under which an answer contains a field. In the Go code of Kubernetes, the field's type and its tag
/// `omitempty` have this effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The field is shown when its value is not zero. In Go such a field has `omitempty` and is not a pointer.
    NonZero,
    /// The field is shown when the client wrote it, even if its value is zero. In Go such a field is a pointer.
    Given,
    /// The field is always shown, even when its value is zero. In Go the field has no `omitempty`, or it is a struct,
    /// which `encoding/json` does not leave out.
    Always,
}

#[derive(Clone, Copy, Debug)]
pub enum Type {
    String,
    Bool,
    Int32,
    Int64,
    IntOrString,
    /// A time as text in RFC 3339, with whole seconds.
    Time,
    /// A time as text in RFC 3339, with exactly six decimals of a second.
    MicroTime,
    /// A map from strings to strings.
    Strings,
    /// A map from strings to quantities. A client can write a quantity as a string or as a number.
    Quantities,
    List(&'static Type, Merge),
    Object(&'static Object),
    /// A value of any type, which is stored unchanged.
    Opaque,
}

/// How a strategic merge patch changes a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// The list in the patch replaces the whole list.
    Atomic,
    /// The list contains objects, and the field of this name is their key. Each item of the patch is merged into the
    /// item of the list that has the same key, or is added when there is none.
    ByKey(&'static str),
    /// The list is a set of texts or numbers. The patch adds its items to the list, except those that the list already
    /// contains.
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

    /// Returns the name of this type as Go prints it, e.g. `v1.NodeSpec`.
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
