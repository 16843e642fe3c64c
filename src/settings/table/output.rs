//! What is printed, logged and answered to probes.

use super::{CLIENTS, DAEMON, SYNCS};
use crate::settings::setting::{Group, Kind, Setting, Variable};

pub(in crate::settings) static DETAILED_EXITCODE: Setting = Setting {
    name: "detailed-exitcode",
    flags: &["detailed-exitcode"],
    default: Some("false"),
    help: "With --dry-run: exit code 3 instead of 0 when changes are pending.",
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
    help: "Output format on stdout. json and yaml are stable, for scripts.",
    commands: CLIENTS,
    group: Group::Output,
    ..Setting::BLANK
};

pub(in crate::settings) static LOG_FORMAT: Setting = Setting {
    name: "log-format",
    flags: &["log-format", "logging-format"],
    kind: Kind::Choice(&["text", "json"]),
    default: Some("text"),
    help: "Format of the log on stderr: lines for people, or one JSON object for each line.",
    group: Group::Output,
    ..Setting::BLANK
};

pub(in crate::settings) static VERBOSITY: Setting = Setting {
    name: "verbosity",
    flags: &["v"],
    short: Some('v'),
    kind: Kind::Integer,
    default: Some("0"),
    help: "Log level: 0 logs changes and failures, 4 adds every call to both APIs. Secrets are never \
           logged.",
    group: Group::Output,
    ..Setting::BLANK
};

pub(in crate::settings) static DEBUG: Setting = Setting {
    name: "debug",
    variables: &[Variable::Value("HCLOUD_DEBUG")],
    kind: Kind::Boolean,
    default: Some("false"),
    help: "Log every request to the Hetzner Cloud API and its answer, with secrets redacted.",
    group: Group::Output,
    ..Setting::BLANK
};

pub(in crate::settings) static METRICS_ENABLED: Setting = Setting {
    name: "metrics-enabled",
    variables: &[Variable::Value("HCLOUD_METRICS_ENABLED")],
    kind: Kind::Boolean,
    default: Some("true"),
    help: "Serve /metrics for Prometheus. false removes only /metrics: the probes stay.",
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
    help: "Address on which the daemon serves /healthz, /livez, /readyz and /metrics. :PORT listens on every \
           address of the machine. An empty flag (--metrics-address=) turns it off; an empty variable does not.",
    commands: DAEMON,
    group: Group::Output,
    ..Setting::BLANK
};
