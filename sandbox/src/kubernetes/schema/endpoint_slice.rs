//! The fields of `EndpointSlice`.

use super::kinds::OBJECT_REFERENCE;
use super::meta::OBJECT_META;
use super::{Merge, Object, STRINGS_LIST, Type, always, optional, pointer};

const DISCOVERY: &str = "io.k8s.api.discovery.v1";

pub static ENDPOINT_SLICE: Object = Object {
    name: "EndpointSlice",
    package: DISCOVERY,
    fields: &[
        optional("kind", Type::String),
        optional("apiVersion", Type::String),
        always("metadata", OBJECT_META),
        always("addressType", Type::String),
        always("endpoints", Type::List(&Type::Object(&ENDPOINT), Merge::Atomic)),
        always("ports", Type::List(&Type::Object(&PORT), Merge::Atomic)),
    ],
};

static ENDPOINT: Object = Object {
    name: "Endpoint",
    package: DISCOVERY,
    fields: &[
        always("addresses", STRINGS_LIST),
        always("conditions", Type::Object(&CONDITIONS)),
        pointer("hostname", Type::String),
        pointer("targetRef", Type::Object(&OBJECT_REFERENCE)),
        optional("deprecatedTopology", Type::Strings),
        pointer("nodeName", Type::String),
        pointer("zone", Type::String),
        pointer("hints", Type::Object(&HINTS)),
    ],
};

static CONDITIONS: Object = Object {
    name: "EndpointConditions",
    package: DISCOVERY,
    fields: &[
        pointer("ready", Type::Bool),
        pointer("serving", Type::Bool),
        pointer("terminating", Type::Bool),
    ],
};

static HINTS: Object = Object {
    name: "EndpointHints",
    package: DISCOVERY,
    fields: &[
        optional("forZones", Type::List(&Type::Object(&FOR_ZONE), Merge::Atomic)),
        optional("forNodes", Type::List(&Type::Object(&FOR_NODE), Merge::Atomic)),
    ],
};

static FOR_ZONE: Object =
    Object { name: "ForZone", package: DISCOVERY, fields: &[always("name", Type::String)] };

static FOR_NODE: Object =
    Object { name: "ForNode", package: DISCOVERY, fields: &[always("name", Type::String)] };

static PORT: Object = Object {
    name: "EndpointPort",
    package: DISCOVERY,
    fields: &[
        pointer("name", Type::String),
        pointer("protocol", Type::String),
        pointer("port", Type::Int32),
        pointer("appProtocol", Type::String),
    ],
};
