//! The fields of `CertificateSigningRequest`.

use super::meta::OBJECT_META;
use super::{Merge, Object, STRINGS_LIST, Type, always, optional, pointer};

const CERTIFICATES: &str = "io.k8s.api.certificates.v1";

pub static SIGNING_REQUEST: Object = Object {
    name: "CertificateSigningRequest",
    package: CERTIFICATES,
    fields: &[
        optional("kind", Type::String),
        optional("apiVersion", Type::String),
        always("metadata", OBJECT_META),
        always("spec", Type::Object(&SPEC)),
        always("status", Type::Object(&STATUS)),
    ],
};

static SPEC: Object = Object {
    name: "CertificateSigningRequestSpec",
    package: CERTIFICATES,
    fields: &[
        // The certificate request as base64. This schema only says that the field is a string. The module
        // `rules::signing_request` checks the base64.
        always("request", Type::String),
        always("signerName", Type::String),
        pointer("expirationSeconds", Type::Int32),
        optional("usages", STRINGS_LIST),
        optional("username", Type::String),
        optional("uid", Type::String),
        optional("groups", STRINGS_LIST),
        optional("extra", Type::Opaque),
    ],
};

static STATUS: Object = Object {
    name: "CertificateSigningRequestStatus",
    package: CERTIFICATES,
    fields: &[
        optional("conditions", Type::List(&Type::Object(&CONDITION), Merge::ByKey("type"))),
        optional("certificate", Type::String),
    ],
};

static CONDITION: Object = Object {
    name: "CertificateSigningRequestCondition",
    package: CERTIFICATES,
    fields: &[
        always("type", Type::String),
        always("status", Type::String),
        optional("reason", Type::String),
        optional("message", Type::String),
        always("lastUpdateTime", Type::Time),
        always("lastTransitionTime", Type::Time),
    ],
};
