//! Which controllers run, under whose names, and in what manner.

use super::DAEMON;
use crate::settings::setting::{Command, Group, Kind, Setting, Variable};

pub(in crate::settings) static CLOUD_PROVIDER: Setting = Setting {
    name: "cloud-provider",
    flags: &["cloud-provider"],
    kind: Kind::Choice(&["ccm-from-scratch", "hcloud"]),
    default: Some("ccm-from-scratch"),
    help: "Profile: which provider IDs and labels are written. hcloud replaces \
           hcloud-cloud-controller-manager. A node keeps its provider ID, and a node of the other \
           profile is ignored: do not change the profile of a running cluster.",
    group: Group::Controllers,
    ..Setting::BLANK
};

pub(in crate::settings) static CONTROLLERS: Setting = Setting {
    name: "controllers",
    flags: &["controllers"],
    kind: Kind::List("NAME"),
    default: Some("*"),
    help: "Which controllers run: NAME runs it, -NAME does not, * runs all that are not named. \
           Names: cloud-node, cloud-node-lifecycle, service, route, or their canonical names.",
    commands: DAEMON,
    group: Group::Controllers,
    ..Setting::BLANK
};

pub(in crate::settings) static ONCE: Setting = Setting {
    name: "once",
    flags: &["once"],
    default: Some("false"),
    help: "One pass of every enabled controller, then exit: for cron and CronJobs.",
    commands: DAEMON,
    group: Group::Controllers,
    ..Setting::BLANK
};

pub(in crate::settings) static DRY_RUN: Setting = Setting {
    name: "dry-run",
    flags: &["dry-run"],
    default: Some("false"),
    help: "Print the planned changes. Write nothing to either API.",
    commands: &[
        Command::Run,
        Command::NodeSync,
        Command::LbSync,
        Command::RouteSync,
    ],
    group: Group::Controllers,
    ..Setting::BLANK
};

pub(in crate::settings) static TEST_TIME_SCALE: Setting = Setting {
    name: "test-time-scale",
    variables: &[Variable::Value("CCM_TEST_TIME_SCALE")],
    kind: Kind::Number,
    default: Some("1"),
    help: "For tests: a factor on every wait, so that an hour can pass in a second.",
    group: Group::Controllers,
    hidden: true,
    ..Setting::BLANK
};
