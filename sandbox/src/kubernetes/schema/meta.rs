//! `ObjectMeta` and other types that several kinds share.

use super::{Merge, Object, STRINGS_LIST, Type, always, optional, pointer};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

pub const OBJECT_META: Type = Type::Object(&OBJECT_META_FIELDS);

static OBJECT_META_FIELDS: Object = Object {
    name: "ObjectMeta",
    package: META,
    fields: &[
        optional("name", Type::String),
        optional("generateName", Type::String),
        optional("namespace", Type::String),
        optional("selfLink", Type::String),
        optional("uid", Type::String),
        optional("resourceVersion", Type::String),
        optional("generation", Type::Int64),
        optional("creationTimestamp", Type::Time),
        pointer("deletionTimestamp", Type::Time),
        pointer("deletionGracePeriodSeconds", Type::Int64),
        optional("labels", Type::Strings),
        optional("annotations", Type::Strings),
        optional(
            "ownerReferences",
            Type::List(&Type::Object(&OWNER_REFERENCE), Merge::ByKey("uid")),
        ),
        optional("finalizers", Type::List(&Type::String, Merge::Set)),
        // The field is accepted, so that a client can send back an object that came from a real API server. Its value
        // is dropped.
        optional("managedFields", Type::List(&Type::Opaque, Merge::Atomic)),
    ],
};

static OWNER_REFERENCE: Object = Object {
    name: "OwnerReference",
    package: META,
    fields: &[
        always("apiVersion", Type::String),
        always("kind", Type::String),
        always("name", Type::String),
        always("uid", Type::String),
        pointer("controller", Type::Bool),
        pointer("blockOwnerDeletion", Type::Bool),
    ],
};

/// The type `metav1.Condition`.
pub static CONDITION: Object = Object {
    name: "Condition",
    package: META,
    fields: &[
        always("type", Type::String),
        always("status", Type::String),
        optional("observedGeneration", Type::Int64),
        always("lastTransitionTime", Type::Time),
        always("reason", Type::String),
        always("message", Type::String),
    ],
};

static FIELD_REQUIREMENT: Object = Object {
    name: "FieldSelectorRequirement",
    package: META,
    fields: &[
        always("key", Type::String),
        always("operator", Type::String),
        optional("values", STRINGS_LIST),
    ],
};

pub const REQUIREMENTS: Type = Type::List(&Type::Object(&FIELD_REQUIREMENT), Merge::Atomic);
