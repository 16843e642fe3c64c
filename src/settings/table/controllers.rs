//! Which controllers run, under whose names, and in what manner.

use super::DAEMON;
use crate::settings::setting::{Command, Group, Kind, Setting, Variable};

pub(in crate::settings) static CLOUD_PROVIDER: Setting = Setting {
    name: "cloud-provider",
    flags: &["cloud-provider"],
    kind: Kind::Choice(&["ccm-from-scratch", "hcloud"]),
    default: Some("ccm-from-scratch"),
    help: "Whose provider IDs and labels are written. hcloud takes the place of \
           hcloud-cloud-controller-manager. A node keeps the provider ID it has, and one of the \
           other profile is left alone: do not change it in a running cluster.",
    group: Group::Controllers,
    ..Setting::BLANK
};

pub(in crate::settings) static CONTROLLERS: Setting = Setting {
    name: "controllers",
    flags: &["controllers"],
    kind: Kind::List("NAME"),
    default: Some("*"),
    help: "Which controllers run: NAME runs it, -NAME does not, * runs all that are not named. \
           cloud-node, cloud-node-lifecycle, service and route, or their canonical names.",
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
    help: "Show what would be changed and write nothing, to neither API.",
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
