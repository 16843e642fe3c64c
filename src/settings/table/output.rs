//! What is printed, logged and answered to probes.

use super::{CLIENTS, DAEMON, SYNCS};
use crate::settings::setting::{Group, Kind, Setting, Variable};

pub(in crate::settings) static DETAILED_EXITCODE: Setting = Setting {
    name: "detailed-exitcode",
    flags: &["detailed-exitcode"],
    default: Some("false"),
    help: "With --dry-run: exit 3, not 0, when something would be changed.",
    commands: SYNCS,
    group: Group::Output,
    ..Setting::BLANK
};

pub(in crate::settings) static OUTPUT: Setting = Setting {
    name: "output",
    flags: &["output"],
    short: Some('o'),
    kind: Kind::Choice(&["table", "wide", "json", "yaml"]),
    default: Some("table"),
    help: "Form of what is written to stdout. json and yaml are stable, for scripts.",
    commands: CLIENTS,
    group: Group::Output,
    ..Setting::BLANK
};

pub(in crate::settings) static LOG_FORMAT: Setting = Setting {
    name: "log-format",
    flags: &["log-format", "logging-format"],
    kind: Kind::Choice(&["text", "json"]),
    default: Some("text"),
    help: "Form of the log on stderr: lines for people, or one JSON object a line.",
    group: Group::Output,
    ..Setting::BLANK
};

pub(in crate::settings) static VERBOSITY: Setting = Setting {
    name: "verbosity",
    flags: &["v"],
    short: Some('v'),
    kind: Kind::Integer,
    default: Some("0"),
    help: "How much is logged: 0 is what changed and what failed, 4 adds every call to both APIs. \
           Secrets are never logged.",
    group: Group::Output,
    ..Setting::BLANK
};

pub(in crate::settings) static DEBUG: Setting = Setting {
    name: "debug",
    variables: &[Variable::Value("HCLOUD_DEBUG")],
    kind: Kind::Boolean,
    default: Some("false"),
    help: "Log every request to the Hetzner Cloud API and its answer, secrets redacted.",
    group: Group::Output,
    ..Setting::BLANK
};

pub(in crate::settings) static METRICS_ENABLED: Setting = Setting {
    name: "metrics-enabled",
    variables: &[Variable::Value("HCLOUD_METRICS_ENABLED")],
    kind: Kind::Boolean,
    default: Some("true"),
    help: "Answer /metrics, for Prometheus, beside the probes. false removes it alone.",
    commands: DAEMON,
    group: Group::Output,
    ..Setting::BLANK
};

pub(in crate::settings) static METRICS_ADDRESS: Setting = Setting {
    name: "metrics-address",
    flags: &["metrics-address"],
    variables: &[Variable::Value("HCLOUD_METRICS_ADDRESS")],
    kind: Kind::Text("[IP]:PORT"),
    default: Some(":8233"),
    help: "Where the daemon answers /healthz, /livez, /readyz and /metrics; :PORT is every address of the \
           machine. An empty flag (--metrics-address=) turns it off; an empty variable does not.",
    commands: DAEMON,
    group: Group::Output,
    ..Setting::BLANK
};
