//! The node and the node lifecycle controller.

use super::DAEMON;
use crate::settings::setting::{Command, Group, Kind, Setting};

pub(in crate::settings) static NODE_SYNC_INTERVAL: Setting = Setting {
    name: "node-sync-interval",
    flags: &["node-sync-interval"],
    kind: Kind::Duration,
    default: Some("5s"),
    help: "How often ccm polls for new nodes: the longest time that a new node waits.",
    commands: DAEMON,
    group: Group::Controllers,
    ..Setting::BLANK
};

pub(in crate::settings) static NODE_STATUS_UPDATE_FREQUENCY: Setting = Setting {
    name: "node-status-update-frequency",
    flags: &["node-status-update-frequency"],
    kind: Kind::Duration,
    default: Some("5m"),
    help: "How often addresses and labels of all nodes are compared with their servers.",
    commands: DAEMON,
    group: Group::Controllers,
    ..Setting::BLANK
};

pub(in crate::settings) static NODE_MONITOR_PERIOD: Setting = Setting {
    name: "node-monitor-period",
    flags: &["node-monitor-period"],
    kind: Kind::Duration,
    default: Some("5s"),
    help: "How often ccm polls for nodes that are not ready.",
    commands: DAEMON,
    group: Group::Controllers,
    ..Setting::BLANK
};

pub(in crate::settings) static NODE_DELETION_GUARD: Setting = Setting {
    name: "node-deletion-guard",
    flags: &["node-deletion-guard"],
    default: Some("true"),
    help: "Delete a node only while the token sees the server of another node: the token of another \
           project sees none. Turn it off only for clusters that may have a single node.",
    commands: &[
        Command::Run,
        Command::NodeList,
        Command::NodeInspect,
        Command::NodeSync,
    ],
    group: Group::Controllers,
    ..Setting::BLANK
};
