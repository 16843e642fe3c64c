//! The resources that the Kubernetes API serves. Each resource is one row of a table.

use serde_json::Value;

use super::rules::{self, Rules};
use super::schema::{self, Object};
use super::status;

/// A resource of the API: its names, its verbs, its schema, and how its requests differ from those of other resources.
pub struct Resource {
    /// The API group, which is empty for the core group.
    pub group: &'static str,
    pub plural: &'static str,
    pub singular: &'static str,
    pub kind: &'static str,
    pub short_names: &'static [&'static str],
    pub categories: &'static [&'static str],
    pub namespaced: bool,
    pub verbs: &'static [&'static str],
    /// Whether the resource has a `status` subresource.
    pub status: bool,
    /// Whether the resource has an `approval` subresource.
    pub approval: bool,
    /// The schema of the objects. `None` means that objects of this resource cannot be created, so lists of them are
    /// always empty. A resource can have a schema although its `verbs` allow only reading. Clients can then not create
    /// objects of it, but a test can add them to the store without a request.
    pub schema: Option<&'static Object>,
    pub rules: &'static dyn Rules,
    /// The prefix of the resource's keys in the etcd of kube-apiserver. The error for a PUT with a wrong UID shows this
    /// prefix.
    pub storage_prefix: &'static str,
    /// Whether a PUT without a `resourceVersion` is allowed.
    pub unconditional_update: bool,
    /// Whether a PUT creates an object that does not exist.
    pub create_on_update: bool,
    /// Whether DELETE answers with the object instead of a `Status`.
    pub returns_deleted: bool,
    /// The fields that a field selector can contain for this resource, in addition to `metadata.name` and, for a
    /// namespaced resource, `metadata.namespace`.
    pub selectable_fields: &'static [&'static str],
}

/// The API version of all groups.
pub const VERSION: &str = "v1";

const ALL_VERBS: &[&str] = &["create", "delete", "get", "list", "patch", "update"];
const READ_VERBS: &[&str] = &["get", "list"];

/// The default values of the fields of a [`Resource`]. A row of [`RESOURCES`] sets only the fields that differ.
const DEFAULT: Resource = Resource {
    group: "",
    plural: "",
    singular: "",
    kind: "",
    short_names: &[],
    categories: &[],
    namespaced: true,
    verbs: ALL_VERBS,
    status: false,
    approval: false,
    schema: None,
    rules: &rules::Plain,
    storage_prefix: "",
    unconditional_update: true,
    create_on_update: false,
    returns_deleted: false,
    selectable_fields: &[],
};

/// The resources that the server has, in the order of discovery: the core group first, and the other groups sorted by
/// name.
pub static RESOURCES: &[Resource] = &[
    Resource {
        plural: "events",
        singular: "event",
        kind: "Event",
        short_names: &["ev"],
        schema: Some(&schema::EVENT),
        rules: &rules::Event,
        storage_prefix: "/registry/events",
        create_on_update: true,
        selectable_fields: &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ..DEFAULT
    },
    Resource {
        plural: "namespaces",
        singular: "namespace",
        kind: "Namespace",
        short_names: &["ns"],
        namespaced: false,
        status: true,
        schema: Some(&schema::NAMESPACE),
        rules: &rules::Namespace,
        storage_prefix: "/registry/namespaces",
        returns_deleted: true,
        selectable_fields: &["status.phase"],
        ..DEFAULT
    },
    Resource {
        plural: "nodes",
        singular: "node",
        kind: "Node",
        short_names: &["no"],
        namespaced: false,
        status: true,
        schema: Some(&schema::NODE),
        rules: &rules::Node,
        storage_prefix: "/registry/minions",
        selectable_fields: &["spec.unschedulable"],
        ..DEFAULT
    },
    Resource {
        plural: "persistentvolumes",
        singular: "persistentvolume",
        kind: "PersistentVolume",
        short_names: &["pv"],
        namespaced: false,
        verbs: READ_VERBS,
        schema: Some(&schema::PERSISTENT_VOLUME),
        storage_prefix: "/registry/persistentvolumes",
        ..DEFAULT
    },
    Resource {
        plural: "pods",
        singular: "pod",
        kind: "Pod",
        short_names: &["po"],
        categories: &["all"],
        verbs: READ_VERBS,
        schema: Some(&schema::POD),
        storage_prefix: "/registry/pods",
        selectable_fields: &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        ..DEFAULT
    },
    Resource {
        plural: "secrets",
        singular: "secret",
        kind: "Secret",
        schema: Some(&schema::SECRET),
        storage_prefix: "/registry/secrets",
        selectable_fields: &["type"],
        ..DEFAULT
    },
    Resource {
        plural: "services",
        singular: "service",
        kind: "Service",
        short_names: &["svc"],
        categories: &["all"],
        status: true,
        schema: Some(&schema::SERVICE),
        rules: &rules::Service,
        storage_prefix: "/registry/services/specs",
        returns_deleted: true,
        selectable_fields: &["spec.clusterIP", "spec.type"],
        ..DEFAULT
    },
    Resource {
        group: "apps",
        plural: "daemonsets",
        singular: "daemonset",
        kind: "DaemonSet",
        short_names: &["ds"],
        categories: &["all"],
        verbs: READ_VERBS,
        schema: Some(&schema::DAEMON_SET),
        storage_prefix: "/registry/daemonsets",
        ..DEFAULT
    },
    Resource {
        group: "apps",
        plural: "deployments",
        singular: "deployment",
        kind: "Deployment",
        short_names: &["deploy"],
        categories: &["all"],
        verbs: READ_VERBS,
        schema: Some(&schema::DEPLOYMENT),
        storage_prefix: "/registry/deployments",
        ..DEFAULT
    },
    Resource {
        group: "authorization.k8s.io",
        plural: "selfsubjectaccessreviews",
        singular: "selfsubjectaccessreview",
        kind: "SelfSubjectAccessReview",
        namespaced: false,
        verbs: &["create"],
        schema: Some(&schema::SELF_SUBJECT_ACCESS_REVIEW),
        ..DEFAULT
    },
    Resource {
        group: "certificates.k8s.io",
        plural: "certificatesigningrequests",
        singular: "certificatesigningrequest",
        kind: "CertificateSigningRequest",
        short_names: &["csr"],
        namespaced: false,
        status: true,
        approval: true,
        schema: Some(&schema::SIGNING_REQUEST),
        rules: &rules::SigningRequest,
        storage_prefix: "/registry/certificatesigningrequests",
        selectable_fields: &["spec.signerName"],
        ..DEFAULT
    },
    Resource {
        group: "coordination.k8s.io",
        plural: "leases",
        singular: "lease",
        kind: "Lease",
        schema: Some(&schema::LEASE),
        rules: &rules::Lease,
        storage_prefix: "/registry/leases",
        unconditional_update: false,
        create_on_update: true,
        ..DEFAULT
    },
    Resource {
        group: "discovery.k8s.io",
        plural: "endpointslices",
        singular: "endpointslice",
        kind: "EndpointSlice",
        schema: Some(&schema::ENDPOINT_SLICE),
        rules: &rules::EndpointSlice,
        storage_prefix: "/registry/endpointslices",
        ..DEFAULT
    },
];

/// Finds a resource by group and plural name.
pub fn find(group: &str, plural: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|resource| resource.group == group && resource.plural == plural)
}

/// Finds a resource by its plural name alone. No two resources here have the same plural name.
pub fn named(plural: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|resource| resource.plural == plural)
}

impl Resource {
    /// Returns the group and version, such as `v1` or `coordination.k8s.io/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { VERSION.into() } else { format!("{}/{VERSION}", self.group) }
    }

    /// Returns the resource's plural name with its group, e.g. `leases.coordination.k8s.io`, or `nodes` in the core
    /// group.
    pub fn qualified(&self) -> String {
        status::qualified(self.plural, self.group)
    }

    pub fn details(&self, name: &str) -> Value {
        status::details(self.group, self.plural, name)
    }
}
