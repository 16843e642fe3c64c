//! The schema of `Node`: its fields and their types.

use super::meta::OBJECT_META;
use super::{Merge, Object, STRINGS_LIST, Type, always, optional, pointer};

const CORE: &str = "io.k8s.api.core.v1";

pub static NODE: Object = Object {
    name: "Node",
    package: CORE,
    fields: &[
        optional("kind", Type::String),
        optional("apiVersion", Type::String),
        always("metadata", OBJECT_META),
        always("spec", Type::Object(&SPEC)),
        always("status", Type::Object(&STATUS)),
    ],
};

static SPEC: Object = Object {
    name: "NodeSpec",
    package: CORE,
    fields: &[
        optional("podCIDR", Type::String),
        optional("podCIDRs", Type::List(&Type::String, Merge::Set)),
        optional("providerID", Type::String),
        optional("unschedulable", Type::Bool),
        optional("taints", Type::List(&Type::Object(&TAINT), Merge::Atomic)),
        optional("externalID", Type::String),
    ],
};

static TAINT: Object = Object {
    name: "Taint",
    package: CORE,
    fields: &[
        always("key", Type::String),
        optional("value", Type::String),
        always("effect", Type::String),
        pointer("timeAdded", Type::Time),
    ],
};

static STATUS: Object = Object {
    name: "NodeStatus",
    package: CORE,
    fields: &[
        optional("capacity", Type::Quantities),
        optional("allocatable", Type::Quantities),
        optional("phase", Type::String),
        optional("conditions", Type::List(&Type::Object(&CONDITION), Merge::ByKey("type"))),
        // Several addresses of a node can have the same type, so `type` is a bad merge key for them. This is a known
        // flaw of the Kubernetes API, which the sandbox copies.
        optional("addresses", Type::List(&Type::Object(&ADDRESS), Merge::ByKey("type"))),
        always("daemonEndpoints", Type::Object(&DAEMON_ENDPOINTS)),
        always("nodeInfo", Type::Object(&SYSTEM_INFO)),
        optional("images", Type::List(&Type::Object(&IMAGE), Merge::Atomic)),
        optional("volumesInUse", STRINGS_LIST),
        optional("volumesAttached", Type::List(&Type::Object(&ATTACHED_VOLUME), Merge::Atomic)),
        optional("runtimeHandlers", Type::List(&Type::Object(&RUNTIME_HANDLER), Merge::Atomic)),
        pointer("features", Type::Object(&FEATURES)),
        optional("declaredFeatures", STRINGS_LIST),
    ],
};

static CONDITION: Object = Object {
    name: "NodeCondition",
    package: CORE,
    fields: &[
        always("type", Type::String),
        always("status", Type::String),
        always("lastHeartbeatTime", Type::Time),
        always("lastTransitionTime", Type::Time),
        optional("reason", Type::String),
        optional("message", Type::String),
    ],
};

static ADDRESS: Object = Object {
    name: "NodeAddress",
    package: CORE,
    fields: &[always("type", Type::String), always("address", Type::String)],
};

static DAEMON_ENDPOINTS: Object = Object {
    name: "NodeDaemonEndpoints",
    package: CORE,
    fields: &[always("kubeletEndpoint", Type::Object(&DAEMON_ENDPOINT))],
};

static DAEMON_ENDPOINT: Object =
    Object { name: "DaemonEndpoint", package: CORE, fields: &[always("Port", Type::Int32)] };

static SYSTEM_INFO: Object = Object {
    name: "NodeSystemInfo",
    package: CORE,
    fields: &[
        always("machineID", Type::String),
        always("systemUUID", Type::String),
        always("bootID", Type::String),
        always("kernelVersion", Type::String),
        always("osImage", Type::String),
        always("containerRuntimeVersion", Type::String),
        always("kubeletVersion", Type::String),
        always("kubeProxyVersion", Type::String),
        always("operatingSystem", Type::String),
        always("architecture", Type::String),
        pointer("swap", Type::Object(&SWAP)),
    ],
};

static SWAP: Object =
    Object { name: "NodeSwapStatus", package: CORE, fields: &[pointer("capacity", Type::Int64)] };

static IMAGE: Object = Object {
    name: "ContainerImage",
    package: CORE,
    fields: &[optional("names", STRINGS_LIST), optional("sizeBytes", Type::Int64)],
};

static ATTACHED_VOLUME: Object = Object {
    name: "AttachedVolume",
    package: CORE,
    fields: &[always("name", Type::String), always("devicePath", Type::String)],
};

static RUNTIME_HANDLER: Object = Object {
    name: "NodeRuntimeHandler",
    package: CORE,
    fields: &[
        always("name", Type::String),
        pointer("features", Type::Object(&RUNTIME_HANDLER_FEATURES)),
    ],
};

static RUNTIME_HANDLER_FEATURES: Object = Object {
    name: "NodeRuntimeHandlerFeatures",
    package: CORE,
    fields: &[
        pointer("recursiveReadOnlyMounts", Type::Bool),
        pointer("userNamespaces", Type::Bool),
    ],
};

static FEATURES: Object = Object {
    name: "NodeFeatures",
    package: CORE,
    fields: &[pointer("supplementalGroupsPolicy", Type::Bool)],
};
