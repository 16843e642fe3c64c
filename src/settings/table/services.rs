//! The service controller.

use super::{DAEMON, LOAD_BALANCERS, SYNCS, WITH_LOAD_BALANCERS};
use crate::settings::setting::{Command, Group, Kind, Setting};

pub(in crate::settings) static SERVICE_SYNC_INTERVAL: Setting = Setting {
    name: "service-sync-interval",
    flags: &["service-sync-interval"],
    kind: Kind::Duration,
    default: Some("5s"),
    help: "How often Services are looked at; how long a new Service waits at most.",
    commands: DAEMON,
    group: Group::Controllers,
    ..Setting::BLANK
};

pub(in crate::settings) static LOAD_BALANCER_RESYNC_PERIOD: Setting = Setting {
    name: "load-balancer-resync-period",
    flags: &["load-balancer-resync-period"],
    kind: Kind::Duration,
    default: Some("5m"),
    help: "How often load balancers whose Service did not change are compared with the cloud; \
           what somebody changed by hand is set back then.",
    commands: DAEMON,
    group: Group::Controllers,
    ..Setting::BLANK
};

pub(in crate::settings) static CONCURRENT_SERVICE_SYNCS: Setting = Setting {
    name: "concurrent-service-syncs",
    flags: &["concurrent-service-syncs"],
    kind: Kind::Integer,
    default: Some("5"),
    help: "How many requests for load balancers are under way at the same time.",
    commands: &[Command::Run, Command::LbSync],
    group: Group::Controllers,
    ..Setting::BLANK
};

pub(in crate::settings) static CLUSTER_NAME: Setting = Setting {
    name: "cluster-name",
    flags: &["cluster-name"],
    kind: Kind::Text("NAME"),
    default: Some("kubernetes"),
    help: "Name of the cluster, for people: it begins the names of load balancers. Two clusters in \
           one project may have the same; they are told apart by the UID of their Service \
           default/kubernetes.",
    commands: WITH_LOAD_BALANCERS,
    group: Group::Controllers,
    ..Setting::BLANK
};

pub(in crate::settings) static DELETE_ORPHANED_LOAD_BALANCERS: Setting = Setting {
    name: "delete-orphaned-load-balancers",
    flags: &["delete-orphaned-load-balancers"],
    default: Some("false"),
    help: "Delete load balancers of this cluster whose Service does not exist, when all are compared; \
           never one that is protected. Without it they are only told: ccm lb list shows them.",
    commands: DAEMON,
    group: Group::Controllers,
    ..Setting::BLANK
};

pub(in crate::settings) static DELETE_ORPHANS: Setting = Setting {
    name: "delete-orphans",
    flags: &["delete-orphans"],
    default: Some("false"),
    help: "Delete load balancers of this cluster whose Service does not exist, and nothing else: \
           they are shown, and you are asked.",
    commands: &[Command::LbSync],
    group: Group::Controllers,
    ..Setting::BLANK
};

pub(in crate::settings) static YES: Setting = Setting {
    name: "yes",
    flags: &["yes"],
    default: Some("false"),
    help: "Make also the changes that only defaults ask for, of settings that nobody set here: outside \
           a pod they are held back. And delete orphans without asking.",
    commands: SYNCS,
    group: Group::Controllers,
    ..Setting::BLANK
};

pub(in crate::settings) static NAMESPACE: Setting = Setting {
    name: "namespace",
    flags: &["namespace"],
    short: Some('n'),
    kind: Kind::Text("NAMESPACE"),
    help: "Namespace of Services named without one; lb list shows only this one.",
    commands: LOAD_BALANCERS,
    group: Group::Output,
    ..Setting::BLANK
};
