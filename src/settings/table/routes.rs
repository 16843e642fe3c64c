//! The route controller.

use super::{DAEMON, WITH_ROUTES};
use crate::settings::setting::{Group, Kind, Setting, Variable};

pub(in crate::settings) static NETWORK_ROUTES_ENABLED: Setting = Setting {
    name: "network-routes-enabled",
    variables: &[Variable::Value("HCLOUD_NETWORK_ROUTES_ENABLED")],
    default: Some("true"),
    help: "Whether the Network gets a route to the pods of each node. Needs HCLOUD_NETWORK and \
           --cluster-cidr. false leaves all routes unchanged.",
    commands: WITH_ROUTES,
    group: Group::Hetzner,
    ..Setting::BLANK
};

pub(in crate::settings) static CLUSTER_CIDR: Setting = Setting {
    name: "cluster-cidr",
    flags: &["cluster-cidr"],
    kind: Kind::List("CIDR"),
    help: "Address ranges of the cluster's pods, the same as for kube-controller-manager. Routes of the \
           Network within them are managed, all others are never changed. Unset: the route \
           controller does not run.",
    commands: WITH_ROUTES,
    group: Group::Controllers,
    ..Setting::BLANK
};

pub(in crate::settings) static CONFIGURE_CLOUD_ROUTES: Setting = Setting {
    name: "configure-cloud-routes",
    flags: &["configure-cloud-routes"],
    default: Some("true"),
    help: "false turns the route controller off, as HCLOUD_NETWORK_ROUTES_ENABLED=false does.",
    commands: WITH_ROUTES,
    group: Group::Controllers,
    ..Setting::BLANK
};

pub(in crate::settings) static ROUTE_RECONCILIATION_PERIOD: Setting = Setting {
    name: "route-reconciliation-period",
    flags: &["route-reconciliation-period"],
    kind: Kind::Duration,
    default: Some("30s"),
    help: "Shortest time between two comparisons of the Network's routes. They are compared when \
           nodes change, and every five minutes.",
    commands: DAEMON,
    group: Group::Controllers,
    ..Setting::BLANK
};
