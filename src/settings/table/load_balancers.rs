//! Defaults of load balancers, for Services that do not set the annotation, and what Services may claim. Each has an
//! annotation that wins over it, but for the first and the last two.

use crate::settings::setting::{Group, Kind, Setting, Variable};

pub(in crate::settings) static LB_ENABLED: Setting = Setting {
    name: "load-balancers-enabled",
    variables: &[Variable::Value("HCLOUD_LOAD_BALANCERS_ENABLED")],
    kind: Kind::Boolean,
    default: Some("true"),
    help: "Whether Services get load balancers. false leaves all of them unchanged.",
    commands: super::WITH_LOAD_BALANCERS,
    group: Group::Hetzner,
    ..Setting::BLANK
};

pub(in crate::settings) static LB_TYPE: Setting = Setting {
    name: "load-balancers-type",
    variables: &[Variable::Value("HCLOUD_LOAD_BALANCERS_TYPE")],
    kind: Kind::Text("TYPE"),
    help: "Type of load balancers whose Service sets none, e.g. lb21. Unset: a new one is an lb11, an existing one keeps its type.",
    commands: super::WITH_LOAD_BALANCERS,
    group: Group::Hetzner,
    ..Setting::BLANK
};

pub(in crate::settings) static LB_LOCATION: Setting = Setting {
    name: "load-balancers-location",
    variables: &[Variable::Value("HCLOUD_LOAD_BALANCERS_LOCATION")],
    kind: Kind::Text("NAME"),
    help: "Location in which load balancers are created, e.g. fsn1. Not together with HCLOUD_LOAD_BALANCERS_NETWORK_ZONE. Unset: the location of most nodes; in profile hcloud the Service must then set it.",
    commands: super::WITH_LOAD_BALANCERS,
    group: Group::Hetzner,
    ..Setting::BLANK
};

pub(in crate::settings) static LB_NETWORK_ZONE: Setting = Setting {
    name: "load-balancers-network-zone",
    variables: &[Variable::Value("HCLOUD_LOAD_BALANCERS_NETWORK_ZONE")],
    kind: Kind::Text("NAME"),
    help: "Network zone in which they are created, e.g. eu-central, when the location does not matter.",
    commands: super::WITH_LOAD_BALANCERS,
    group: Group::Hetzner,
    ..Setting::BLANK
};

pub(in crate::settings) static LB_ALGORITHM_TYPE: Setting = Setting {
    name: "load-balancers-algorithm-type",
    variables: &[Variable::Value("HCLOUD_LOAD_BALANCERS_ALGORITHM_TYPE")],
    kind: Kind::Choice(&["round_robin", "least_connections"]),
    help: "Which target gets the next connection. Unset: round_robin; profile hcloud leaves it unchanged.",
    commands: super::WITH_LOAD_BALANCERS,
    group: Group::Hetzner,
    ..Setting::BLANK
};

pub(in crate::settings) static LB_DISABLE_PUBLIC_NETWORK: Setting = Setting {
    name: "load-balancers-disable-public-network",
    variables: &[Variable::Value(
        "HCLOUD_LOAD_BALANCERS_DISABLE_PUBLIC_NETWORK",
    )],
    kind: Kind::Text("true|false"),
    help: "Turn their public interface off. Unset: left unchanged.",
    commands: super::WITH_LOAD_BALANCERS,
    group: Group::Hetzner,
    ..Setting::BLANK
};

pub(in crate::settings) static LB_DISABLE_PRIVATE_INGRESS: Setting = Setting {
    name: "load-balancers-disable-private-ingress",
    variables: &[Variable::Value(
        "HCLOUD_LOAD_BALANCERS_DISABLE_PRIVATE_INGRESS",
    )],
    kind: Kind::Text("true|false"),
    help: "Leave their private IPs out of the status of Services.",
    commands: super::WITH_LOAD_BALANCERS,
    group: Group::Hetzner,
    ..Setting::BLANK
};

pub(in crate::settings) static LB_USE_PRIVATE_IP: Setting = Setting {
    name: "load-balancers-use-private-ip",
    variables: &[Variable::Value("HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP")],
    kind: Kind::Text("true|false"),
    help: "Reach the nodes by their private IPs. Needs HCLOUD_NETWORK.",
    commands: super::WITH_LOAD_BALANCERS,
    group: Group::Hetzner,
    ..Setting::BLANK
};

pub(in crate::settings) static LB_PRIVATE_SUBNET_IP_RANGE: Setting = Setting {
    name: "load-balancers-private-subnet-ip-range",
    variables: &[Variable::Value(
        "HCLOUD_LOAD_BALANCERS_PRIVATE_SUBNET_IP_RANGE",
    )],
    kind: Kind::Text("CIDR"),
    help: "Subnet of the private Network in which they are attached, e.g. 10.0.1.0/24.",
    commands: super::WITH_LOAD_BALANCERS,
    group: Group::Hetzner,
    ..Setting::BLANK
};

pub(in crate::settings) static LB_DISABLE_IPV6: Setting = Setting {
    name: "load-balancers-disable-ipv6",
    variables: &[Variable::Value("HCLOUD_LOAD_BALANCERS_DISABLE_IPV6")],
    kind: Kind::Text("true|false"),
    help: "Leave their IPv6 address out of the status of Services.",
    commands: super::WITH_LOAD_BALANCERS,
    group: Group::Hetzner,
    ..Setting::BLANK
};

pub(in crate::settings) static LB_USES_PROXYPROTOCOL: Setting = Setting {
    name: "load-balancers-uses-proxyprotocol",
    variables: &[Variable::Value("HCLOUD_LOAD_BALANCERS_USES_PROXYPROTOCOL")],
    kind: Kind::Text("true|false"),
    help: "Send the PROXY protocol to the targets. Unset: no; profile hcloud leaves it unchanged.",
    commands: super::WITH_LOAD_BALANCERS,
    group: Group::Hetzner,
    ..Setting::BLANK
};

pub(in crate::settings) static LB_HEALTH_CHECK_INTERVAL: Setting = Setting {
    name: "load-balancers-health-check-interval",
    variables: &[Variable::Value(
        "HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_INTERVAL",
    )],
    kind: Kind::Duration,
    help: "Interval of health checks, in whole seconds. Unset: 15s; profile hcloud leaves it unchanged.",
    commands: super::WITH_LOAD_BALANCERS,
    group: Group::Hetzner,
    ..Setting::BLANK
};

pub(in crate::settings) static LB_HEALTH_CHECK_TIMEOUT: Setting = Setting {
    name: "load-balancers-health-check-timeout",
    variables: &[Variable::Value(
        "HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_TIMEOUT",
    )],
    kind: Kind::Duration,
    help: "Timeout of a health check, in whole seconds. Unset: 10s; profile hcloud leaves it unchanged.",
    commands: super::WITH_LOAD_BALANCERS,
    group: Group::Hetzner,
    ..Setting::BLANK
};

pub(in crate::settings) static LB_HEALTH_CHECK_RETRIES: Setting = Setting {
    name: "load-balancers-health-check-retries",
    variables: &[Variable::Value(
        "HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_RETRIES",
    )],
    kind: Kind::Integer,
    help: "How many checks in a row change the health of a target. Unset: 3; profile hcloud leaves it unchanged.",
    commands: super::WITH_LOAD_BALANCERS,
    group: Group::Hetzner,
    ..Setting::BLANK
};

pub(in crate::settings) static LB_HEALTH_CHECK_NODE_PORT: Setting = Setting {
    name: "load-balancers-health-check-node-port",
    variables: &[Variable::Value(
        "HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_NODE_PORT",
    )],
    kind: Kind::Text("true|false"),
    help: "Whether targets of a Service with externalTrafficPolicy: Local are checked on its health check node port. Unset: yes; profile hcloud: no.",
    commands: super::WITH_LOAD_BALANCERS,
    group: Group::Hetzner,
    ..Setting::BLANK
};

pub(in crate::settings) static LB_PRIMARY_IP_SELECTOR: Setting = Setting {
    name: "load-balancers-primary-ip-selector",
    variables: &[Variable::Value("HCLOUD_LOAD_BALANCERS_PRIMARY_IP_SELECTOR")],
    kind: Kind::Text("SELECTOR"),
    help: "Labels of the Primary IPs that Services may claim, e.g. use=services; written like a selector of kubectl -l. Unset: they may claim any free one of the project.",
    commands: super::WITH_LOAD_BALANCERS,
    group: Group::Hetzner,
    ..Setting::BLANK
};
