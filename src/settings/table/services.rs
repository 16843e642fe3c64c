//! The service controller.

use super::{DAEMON, LOAD_BALANCERS, SYNCS, WITH_LOAD_BALANCERS};
use crate::settings::setting::{Command, Group, Kind, Setting};

pub(in crate::settings) static SERVICE_SYNC_INTERVAL: Setting = Setting {
    name: "service-sync-interval",
    flags: &["service-sync-interval"],
    kind: Kind::Duration,
    default: Some("5s"),
    help: "How often ccm polls for changed Services: the longest time that a new Service waits.",
    commands: DAEMON,
    group: Group::Controllers,
    ..Setting::BLANK
};

pub(in crate::settings) static LOAD_BALANCER_RESYNC_PERIOD: Setting = Setting {
    name: "load-balancer-resync-period",
    flags: &["load-balancer-resync-period"],
    kind: Kind::Duration,
    default: Some("5m"),
    help: "How often load balancers are compared when their Service did not change. Changes made \
           by hand are undone then.",
    commands: DAEMON,
    group: Group::Controllers,
    ..Setting::BLANK
};

pub(in crate::settings) static CONCURRENT_SERVICE_SYNCS: Setting = Setting {
    name: "concurrent-service-syncs",
    flags: &["concurrent-service-syncs"],
    kind: Kind::Integer,
    default: Some("5"),
    help: "How many requests for load balancers run at the same time.",
    commands: &[Command::Run, Command::LbSync],
    group: Group::Controllers,
    ..Setting::BLANK
};

pub(in crate::settings) static CLUSTER_NAME: Setting = Setting {
    name: "cluster-name",
    flags: &["cluster-name"],
    kind: Kind::Text("NAME"),
    default: Some("kubernetes"),
    help: "Name of the cluster, for people: the first part of the names of load balancers. Two \
           clusters in one project may have the same name: the UID of their Service \
           default/kubernetes identifies them.",
    commands: WITH_LOAD_BALANCERS,
    group: Group::Controllers,
    ..Setting::BLANK
};

pub(in crate::settings) static DELETE_ORPHANED_LOAD_BALANCERS: Setting = Setting {
    name: "delete-orphaned-load-balancers",
    flags: &["delete-orphaned-load-balancers"],
    default: Some("false"),
    help: "Delete load balancers of this cluster whose Service does not exist, at each resync. Never \
           one that is protected. false: they are only reported; ccm lb list shows them.",
    commands: DAEMON,
    group: Group::Controllers,
    ..Setting::BLANK
};

pub(in crate::settings) static DELETE_ORPHANS: Setting = Setting {
    name: "delete-orphans",
    flags: &["delete-orphans"],
    default: Some("false"),
    help: "Delete load balancers of this cluster whose Service does not exist, and do nothing else. \
           They are listed, and you confirm.",
    commands: &[Command::LbSync],
    group: Group::Controllers,
    ..Setting::BLANK
};

pub(in crate::settings) static YES: Setting = Setting {
    name: "yes",
    flags: &["yes"],
    default: Some("false"),
    help: "Also make the changes that follow only from the default of an unset setting: outside a pod \
           they are held back. With --delete-orphans: delete without asking.",
    commands: SYNCS,
    group: Group::Controllers,
    ..Setting::BLANK
};

pub(in crate::settings) static NAMESPACE: Setting = Setting {
    name: "namespace",
    flags: &["namespace"],
    short: Some('n'),
    kind: Kind::Text("NAMESPACE"),
    help: "Namespace of Services that are named without one. lb list shows only this namespace.",
    commands: LOAD_BALANCERS,
    group: Group::Output,
    ..Setting::BLANK
};
