//! The schema of `Service`: its fields and their types.

use super::meta::{CONDITION, OBJECT_META};
use super::{Merge, Object, STRINGS_LIST, Type, always, optional, pointer};

const CORE: &str = "io.k8s.api.core.v1";

pub static SERVICE: Object = Object {
    name: "Service",
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
    name: "ServiceSpec",
    package: CORE,
    fields: &[
        optional("ports", Type::List(&Type::Object(&PORT), Merge::ByKey("port"))),
        optional("selector", Type::Strings),
        optional("clusterIP", Type::String),
        optional("clusterIPs", STRINGS_LIST),
        optional("type", Type::String),
        optional("externalIPs", STRINGS_LIST),
        optional("sessionAffinity", Type::String),
        optional("loadBalancerIP", Type::String),
        optional("loadBalancerSourceRanges", STRINGS_LIST),
        optional("externalName", Type::String),
        optional("externalTrafficPolicy", Type::String),
        optional("healthCheckNodePort", Type::Int32),
        optional("publishNotReadyAddresses", Type::Bool),
        pointer("sessionAffinityConfig", Type::Object(&SESSION_AFFINITY_CONFIG)),
        optional("ipFamilies", STRINGS_LIST),
        pointer("ipFamilyPolicy", Type::String),
        pointer("allocateLoadBalancerNodePorts", Type::Bool),
        pointer("loadBalancerClass", Type::String),
        pointer("internalTrafficPolicy", Type::String),
        pointer("trafficDistribution", Type::String),
    ],
};

static PORT: Object = Object {
    name: "ServicePort",
    package: CORE,
    fields: &[
        optional("name", Type::String),
        optional("protocol", Type::String),
        pointer("appProtocol", Type::String),
        always("port", Type::Int32),
        always("targetPort", Type::IntOrString),
        optional("nodePort", Type::Int32),
    ],
};

static SESSION_AFFINITY_CONFIG: Object = Object {
    name: "SessionAffinityConfig",
    package: CORE,
    fields: &[pointer("clientIP", Type::Object(&CLIENT_IP_CONFIG))],
};

static CLIENT_IP_CONFIG: Object = Object {
    name: "ClientIPConfig",
    package: CORE,
    fields: &[pointer("timeoutSeconds", Type::Int32)],
};

static STATUS: Object = Object {
    name: "ServiceStatus",
    package: CORE,
    fields: &[
        always("loadBalancer", Type::Object(&LOAD_BALANCER)),
        optional("conditions", Type::List(&Type::Object(&CONDITION), Merge::ByKey("type"))),
    ],
};

static LOAD_BALANCER: Object = Object {
    name: "LoadBalancerStatus",
    package: CORE,
    fields: &[optional("ingress", Type::List(&Type::Object(&INGRESS), Merge::Atomic))],
};

static INGRESS: Object = Object {
    name: "LoadBalancerIngress",
    package: CORE,
    fields: &[
        optional("ip", Type::String),
        optional("hostname", Type::String),
        pointer("ipMode", Type::String),
        optional("ports", Type::List(&Type::Object(&PORT_STATUS), Merge::Atomic)),
    ],
};

static PORT_STATUS: Object = Object {
    name: "PortStatus",
    package: CORE,
    fields: &[
        always("port", Type::Int32),
        always("protocol", Type::String),
        pointer("error", Type::String),
    ],
};
