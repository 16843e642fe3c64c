//! The fields of `Event`, `Lease`, `Namespace`, `Secret` and `SelfSubjectAccessReview`. `Pod`, `PersistentVolume`,
//! `Deployment` and `DaemonSet` are here too, but the fields of their `spec` and `status` are not checked.

use super::meta::{OBJECT_META, REQUIREMENTS};
use super::{Field, Merge, Object, STRINGS_LIST, Type, always, optional, pointer};

const CORE: &str = "io.k8s.api.core.v1";
const COORDINATION: &str = "io.k8s.api.coordination.v1";
const AUTHORIZATION: &str = "io.k8s.api.authorization.v1";

pub static EVENT: Object = Object {
    name: "Event",
    package: CORE,
    fields: &[
        optional("kind", Type::String),
        optional("apiVersion", Type::String),
        always("metadata", OBJECT_META),
        always("involvedObject", Type::Object(&OBJECT_REFERENCE)),
        optional("reason", Type::String),
        optional("message", Type::String),
        always("source", Type::Object(&EVENT_SOURCE)),
        always("firstTimestamp", Type::Time),
        always("lastTimestamp", Type::Time),
        optional("count", Type::Int32),
        optional("type", Type::String),
        always("eventTime", Type::MicroTime),
        pointer("series", Type::Object(&EVENT_SERIES)),
        optional("action", Type::String),
        pointer("related", Type::Object(&OBJECT_REFERENCE)),
        always("reportingComponent", Type::String),
        always("reportingInstance", Type::String),
    ],
};

pub(super) static OBJECT_REFERENCE: Object = Object {
    name: "ObjectReference",
    package: CORE,
    fields: &[
        optional("kind", Type::String),
        optional("namespace", Type::String),
        optional("name", Type::String),
        optional("uid", Type::String),
        optional("apiVersion", Type::String),
        optional("resourceVersion", Type::String),
        optional("fieldPath", Type::String),
    ],
};

static EVENT_SOURCE: Object = Object {
    name: "EventSource",
    package: CORE,
    fields: &[optional("component", Type::String), optional("host", Type::String)],
};

static EVENT_SERIES: Object = Object {
    name: "EventSeries",
    package: CORE,
    fields: &[optional("count", Type::Int32), always("lastObservedTime", Type::MicroTime)],
};

pub static LEASE: Object = Object {
    name: "Lease",
    package: COORDINATION,
    fields: &[
        optional("kind", Type::String),
        optional("apiVersion", Type::String),
        always("metadata", OBJECT_META),
        always("spec", Type::Object(&LEASE_SPEC)),
    ],
};

static LEASE_SPEC: Object = Object {
    name: "LeaseSpec",
    package: COORDINATION,
    fields: &[
        pointer("holderIdentity", Type::String),
        pointer("leaseDurationSeconds", Type::Int32),
        pointer("acquireTime", Type::MicroTime),
        pointer("renewTime", Type::MicroTime),
        pointer("leaseTransitions", Type::Int32),
        pointer("strategy", Type::String),
        pointer("preferredHolder", Type::String),
    ],
};

pub static SECRET: Object = Object {
    name: "Secret",
    package: CORE,
    fields: &[
        optional("kind", Type::String),
        optional("apiVersion", Type::String),
        always("metadata", OBJECT_META),
        pointer("immutable", Type::Bool),
        // The values of `data` are base64. The simulation does not check this.
        optional("data", Type::Strings),
        optional("type", Type::String),
    ],
};

pub static NAMESPACE: Object = Object {
    name: "Namespace",
    package: CORE,
    fields: &[
        optional("kind", Type::String),
        optional("apiVersion", Type::String),
        always("metadata", OBJECT_META),
        always("spec", Type::Object(&NAMESPACE_SPEC)),
        always("status", Type::Object(&NAMESPACE_STATUS)),
    ],
};

static NAMESPACE_SPEC: Object = Object {
    name: "NamespaceSpec",
    package: CORE,
    fields: &[optional("finalizers", STRINGS_LIST)],
};

static NAMESPACE_STATUS: Object = Object {
    name: "NamespaceStatus",
    package: CORE,
    fields: &[
        optional("phase", Type::String),
        optional(
            "conditions",
            Type::List(&Type::Object(&NAMESPACE_CONDITION), Merge::ByKey("type")),
        ),
    ],
};

static NAMESPACE_CONDITION: Object = Object {
    name: "NamespaceCondition",
    package: CORE,
    fields: &[
        always("type", Type::String),
        always("status", Type::String),
        always("lastTransitionTime", Type::Time),
        optional("reason", Type::String),
        optional("message", Type::String),
    ],
};

const APPS: &str = "io.k8s.api.apps.v1";

/// The fields of a pod, PersistentVolume, Deployment or DaemonSet. `spec` and `status` are stored as they are, because
/// no controller in the sandbox acts on these objects.
const WORKLOAD: &[Field] = &[
    optional("kind", Type::String),
    optional("apiVersion", Type::String),
    always("metadata", OBJECT_META),
    optional("spec", Type::Opaque),
    optional("status", Type::Opaque),
];

pub static POD: Object = Object { name: "Pod", package: CORE, fields: WORKLOAD };

pub static PERSISTENT_VOLUME: Object =
    Object { name: "PersistentVolume", package: CORE, fields: WORKLOAD };

pub static DEPLOYMENT: Object = Object { name: "Deployment", package: APPS, fields: WORKLOAD };

pub static DAEMON_SET: Object = Object { name: "DaemonSet", package: APPS, fields: WORKLOAD };

pub static SELF_SUBJECT_ACCESS_REVIEW: Object = Object {
    name: "SelfSubjectAccessReview",
    package: AUTHORIZATION,
    fields: &[
        optional("kind", Type::String),
        optional("apiVersion", Type::String),
        always("metadata", OBJECT_META),
        always("spec", Type::Object(&REVIEW_SPEC)),
        always("status", Type::Object(&REVIEW_STATUS)),
    ],
};

static REVIEW_SPEC: Object = Object {
    name: "SelfSubjectAccessReviewSpec",
    package: AUTHORIZATION,
    fields: &[
        pointer("resourceAttributes", Type::Object(&RESOURCE_ATTRIBUTES)),
        pointer("nonResourceAttributes", Type::Object(&NON_RESOURCE_ATTRIBUTES)),
    ],
};

static RESOURCE_ATTRIBUTES: Object = Object {
    name: "ResourceAttributes",
    package: AUTHORIZATION,
    fields: &[
        optional("namespace", Type::String),
        optional("verb", Type::String),
        optional("group", Type::String),
        optional("version", Type::String),
        optional("resource", Type::String),
        optional("subresource", Type::String),
        optional("name", Type::String),
        pointer("fieldSelector", Type::Object(&SELECTOR_ATTRIBUTES)),
        pointer("labelSelector", Type::Object(&SELECTOR_ATTRIBUTES)),
    ],
};

static SELECTOR_ATTRIBUTES: Object = Object {
    name: "FieldSelectorAttributes",
    package: AUTHORIZATION,
    fields: &[optional("rawSelector", Type::String), optional("requirements", REQUIREMENTS)],
};

static NON_RESOURCE_ATTRIBUTES: Object = Object {
    name: "NonResourceAttributes",
    package: AUTHORIZATION,
    fields: &[optional("path", Type::String), optional("verb", Type::String)],
};

static REVIEW_STATUS: Object = Object {
    name: "SubjectAccessReviewStatus",
    package: AUTHORIZATION,
    fields: &[
        always("allowed", Type::Bool),
        optional("denied", Type::Bool),
        optional("reason", Type::String),
        optional("evaluationError", Type::String),
    ],
};
