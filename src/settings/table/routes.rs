//! The route controller.

use super::{DAEMON, WITH_ROUTES};
use crate::settings::setting::{Group, Kind, Setting, Variable};

pub(in crate::settings) static NETWORK_ROUTES_ENABLED: Setting = Setting {
    name: "network-routes-enabled",
    variables: &[Variable::Value("HCLOUD_NETWORK_ROUTES_ENABLED")],
    default: Some("true"),
    help: "Whether the Network gets a route to each node's pods; takes HCLOUD_NETWORK and \
           --cluster-cidr. false leaves all routes alone.",
    commands: WITH_ROUTES,
    group: Group::Hetzner,
    ..Setting::BLANK
};

pub(in crate::settings) static CLUSTER_CIDR: Setting = Setting {
    name: "cluster-cidr",
    flags: &["cluster-cidr"],
    kind: Kind::List("CIDR"),
    help: "Where the cluster's pods have their addresses, as kube-controller-manager has it. Routes \
           of the Network within are kept right, all others are left alone. Without it there are no \
           routes.",
    commands: WITH_ROUTES,
    group: Group::Controllers,
    ..Setting::BLANK
};

pub(in crate::settings) static CONFIGURE_CLOUD_ROUTES: Setting = Setting {
    name: "configure-cloud-routes",
    flags: &["configure-cloud-routes"],
    default: Some("true"),
    help: "false turns routes off, as HCLOUD_NETWORK_ROUTES_ENABLED=false does.",
    commands: WITH_ROUTES,
    group: Group::Controllers,
    ..Setting::BLANK
};

pub(in crate::settings) static ROUTE_RECONCILIATION_PERIOD: Setting = Setting {
    name: "route-reconciliation-period",
    flags: &["route-reconciliation-period"],
    kind: Kind::Duration,
    default: Some("30s"),
    help: "The shortest time between two looks at the Network's routes. They are compared when \
           nodes change, and every five minutes.",
    commands: DAEMON,
    group: Group::Controllers,
    ..Setting::BLANK
};
