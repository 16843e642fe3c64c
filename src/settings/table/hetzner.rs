//! How the project is reached, and what nodes take over from its servers.

use super::DAEMON_AND_DOCTOR;
use crate::settings::setting::{Group, Kind, Setting, Variable};

pub(in crate::settings) static TOKEN: Setting = Setting {
    name: "token",
    variables: &[
        Variable::Value("HCLOUD_TOKEN"),
        Variable::File("HCLOUD_TOKEN_FILE"),
    ],
    kind: Kind::Text("TOKEN"),
    help: "Token of the Hetzner Cloud project's API, read & write. Required. The file form is read \
           again whenever the file changes, so a rotated token needs no restart.",
    group: Group::Hetzner,
    secret: true,
    ..Setting::BLANK
};

pub(in crate::settings) static ENDPOINT: Setting = Setting {
    name: "endpoint",
    variables: &[Variable::Value("HCLOUD_ENDPOINT")],
    kind: Kind::Url,
    default: Some("https://api.hetzner.cloud/v1"),
    help: "Base URL of the Hetzner Cloud API.",
    group: Group::Hetzner,
    ..Setting::BLANK
};

pub(in crate::settings) static ALLOW_INSECURE_ENDPOINT: Setting = Setting {
    name: "allow-insecure-endpoint",
    variables: &[Variable::Value("HCLOUD_ALLOW_INSECURE_ENDPOINT")],
    kind: Kind::Boolean,
    default: Some("false"),
    help: "Whether an API may be reached without TLS (http://) on another machine than this one, HCLOUD_ENDPOINT as well \
           as the cluster's server: whoever is on the way then reads the token. Profile hcloud only warns.",
    group: Group::Hetzner,
    ..Setting::BLANK
};

pub(in crate::settings) static NETWORK: Setting = Setting {
    name: "network",
    variables: &[Variable::Value("HCLOUD_NETWORK")],
    kind: Kind::Text("ID|NAME"),
    help: "Private Network of the cluster: digits are its ID, anything else is its name. Nodes get \
           their IP in it as InternalIP. Unset: nodes get no InternalIP.",
    group: Group::Hetzner,
    ..Setting::BLANK
};

pub(in crate::settings) static NETWORK_DISABLE_ATTACHED_CHECK: Setting = Setting {
    name: "network-disable-attached-check",
    variables: &[Variable::Value("HCLOUD_NETWORK_DISABLE_ATTACHED_CHECK")],
    default: Some("false"),
    help: "Skip the check at start, by the metadata service, that this machine is attached to the Network.",
    commands: DAEMON_AND_DOCTOR,
    group: Group::Hetzner,
    ..Setting::BLANK
};

pub(in crate::settings) static METADATA_ENDPOINT: Setting = Setting {
    name: "metadata-endpoint",
    variables: &[Variable::Value("HCLOUD_METADATA_ENDPOINT")],
    kind: Kind::Url,
    help: "For tests: base URL of the metadata service.",
    commands: DAEMON_AND_DOCTOR,
    group: Group::Hetzner,
    hidden: true,
    ..Setting::BLANK
};

pub(in crate::settings) static ADDRESS_FAMILY: Setting = Setting {
    name: "address-family",
    variables: &[Variable::Value("HCLOUD_INSTANCES_ADDRESS_FAMILY")],
    kind: Kind::Choice(&["ipv4", "ipv6", "dualstack"]),
    default: Some("ipv4"),
    help: "Which public addresses of a server become its node's ExternalIP.",
    group: Group::Hetzner,
    ..Setting::BLANK
};

pub(in crate::settings) static ZONE_LABEL_ENABLED: Setting = Setting {
    name: "zone-label-enabled",
    variables: &[Variable::Value("HCLOUD_INSTANCES_ZONE_LABEL_ENABLED")],
    kind: Kind::Boolean,
    default: Some("true"),
    help: "Whether nodes get the zone labels (topology.kubernetes.io/zone and its older beta form).",
    group: Group::Hetzner,
    ..Setting::BLANK
};

pub(in crate::settings) static SERVER_CACHE_MAX_AGE: Setting = Setting {
    name: "server-cache-max-age",
    variables: &[
        Variable::Value("HCLOUD_SERVER_CACHE_MAX_AGE"),
        Variable::Older("HCLOUD_SERVER_CACHE_TTL"),
    ],
    kind: Kind::Duration,
    default: Some("10s"),
    help: "How old a list of servers may be when a decision uses it. A longer time saves API calls \
           (a project has 3600 an hour). 0 requests a new list each time.",
    group: Group::Hetzner,
    ..Setting::BLANK
};

pub(in crate::settings) static ROBOT_ENABLED: Setting = Setting {
    name: "robot-enabled",
    variables: &[Variable::Value("ROBOT_ENABLED")],
    kind: Kind::Boolean,
    default: Some("false"),
    help: "Dedicated (Robot) servers as nodes. Not supported yet: true is an error.",
    group: Group::Hetzner,
    ..Setting::BLANK
};
