//! The rows of the table of settings. `resolve` says how each value is read.

use super::setting::{Command, Group, Kind, Setting, Variable};

/// Every setting, in the order in which people read about them.
pub static TABLE: &[&Setting] = &[
    &TOKEN,
    &ENDPOINT,
    &NETWORK,
    &NETWORK_DISABLE_ATTACHED_CHECK,
    &METADATA_ENDPOINT,
    &ADDRESS_FAMILY,
    &ZONE_LABEL_ENABLED,
    &SERVER_CACHE_MAX_AGE,
    &ROBOT_ENABLED,
    &KUBECONFIG,
    &CONTEXT,
    &MASTER,
    &CLOUD_PROVIDER,
    &CONTROLLERS,
    &NODE_SYNC_INTERVAL,
    &NODE_STATUS_UPDATE_FREQUENCY,
    &NODE_MONITOR_PERIOD,
    &NODE_DELETION_GUARD,
    &LEADER_ELECT,
    &LEASE_DURATION,
    &RENEW_DEADLINE,
    &RETRY_PERIOD,
    &LEASE_NAME,
    &LEASE_NAMESPACE,
    &ONCE,
    &DRY_RUN,
    &DETAILED_EXITCODE,
    &OUTPUT,
    &LOG_FORMAT,
    &VERBOSITY,
    &DEBUG,
    &METRICS_ADDRESS,
    &TEST_TIME_SCALE,
];

const DAEMON: &[Command] = &[Command::Run];

pub(super) static TOKEN: Setting = Setting {
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

pub(super) static ENDPOINT: Setting = Setting {
    name: "endpoint",
    variables: &[Variable::Value("HCLOUD_ENDPOINT")],
    kind: Kind::Url,
    default: Some("https://api.hetzner.cloud/v1"),
    help: "Base URL of the Hetzner Cloud API.",
    group: Group::Hetzner,
    ..Setting::BLANK
};

pub(super) static NETWORK: Setting = Setting {
    name: "network",
    variables: &[Variable::Value("HCLOUD_NETWORK")],
    kind: Kind::Text("ID|NAME"),
    help: "Private Network of the cluster: digits are its ID, anything else its name. Nodes then \
           get their IP in it as InternalIP; without it they get none.",
    group: Group::Hetzner,
    ..Setting::BLANK
};

pub(super) static NETWORK_DISABLE_ATTACHED_CHECK: Setting = Setting {
    name: "network-disable-attached-check",
    variables: &[Variable::Value("HCLOUD_NETWORK_DISABLE_ATTACHED_CHECK")],
    default: Some("false"),
    help: "Do not ask the metadata service at start whether this machine is attached to the Network.",
    commands: DAEMON,
    ..Setting::BLANK
};

pub(super) static METADATA_ENDPOINT: Setting = Setting {
    name: "metadata-endpoint",
    variables: &[Variable::Value("HCLOUD_METADATA_ENDPOINT")],
    kind: Kind::Url,
    help: "For tests: base URL of the metadata service.",
    commands: DAEMON,
    hidden: true,
    ..Setting::BLANK
};

pub(super) static ADDRESS_FAMILY: Setting = Setting {
    name: "address-family",
    variables: &[Variable::Value("HCLOUD_INSTANCES_ADDRESS_FAMILY")],
    kind: Kind::Choice(&["ipv4", "ipv6", "dualstack"]),
    default: Some("ipv4"),
    help: "Which public addresses of a server become its node's ExternalIP.",
    group: Group::Hetzner,
    ..Setting::BLANK
};

pub(super) static ZONE_LABEL_ENABLED: Setting = Setting {
    name: "zone-label-enabled",
    variables: &[Variable::Value("HCLOUD_INSTANCES_ZONE_LABEL_ENABLED")],
    kind: Kind::Boolean,
    default: Some("true"),
    help: "Whether nodes get the zone labels (topology.kubernetes.io/zone and its beta twin).",
    group: Group::Hetzner,
    ..Setting::BLANK
};

pub(super) static SERVER_CACHE_MAX_AGE: Setting = Setting {
    name: "server-cache-max-age",
    variables: &[
        Variable::Value("HCLOUD_SERVER_CACHE_MAX_AGE"),
        Variable::Older("HCLOUD_SERVER_CACHE_TTL"),
    ],
    kind: Kind::Duration,
    default: Some("10s"),
    help: "How old a list of servers may be when something is decided on it. Longer saves API \
           calls (a project has 3600 an hour), 0 asks anew each time.",
    group: Group::Hetzner,
    ..Setting::BLANK
};

pub(super) static ROBOT_ENABLED: Setting = Setting {
    name: "robot-enabled",
    variables: &[Variable::Value("ROBOT_ENABLED")],
    kind: Kind::Boolean,
    default: Some("false"),
    help: "Dedicated (Robot) servers as nodes. Not built yet: true is an error.",
    group: Group::Hetzner,
    ..Setting::BLANK
};

pub(super) static KUBECONFIG: Setting = Setting {
    name: "kubeconfig",
    flags: &["kubeconfig"],
    variables: &[Variable::Value("KUBECONFIG")],
    kind: Kind::Path,
    help: "How to reach the cluster; the variable may list several files, separated by colons. \
           Without either: the pod's service account, else ~/.kube/config.",
    group: Group::Cluster,
    ..Setting::BLANK
};

pub(super) static CONTEXT: Setting = Setting {
    name: "context",
    flags: &["context"],
    kind: Kind::Text("NAME"),
    help: "Context of the kubeconfig. Without it: its current-context.",
    group: Group::Cluster,
    ..Setting::BLANK
};

pub(super) static MASTER: Setting = Setting {
    name: "master",
    flags: &["master"],
    kind: Kind::Url,
    help: "URL of the Kubernetes API server, instead of the kubeconfig's or, in a pod, the \
           cluster's own. It is sent the credentials that go with those, in a pod the service \
           account's token: name only an address of the same cluster.",
    group: Group::Cluster,
    ..Setting::BLANK
};

pub(super) static CLOUD_PROVIDER: Setting = Setting {
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

pub(super) static CONTROLLERS: Setting = Setting {
    name: "controllers",
    flags: &["controllers"],
    kind: Kind::List("NAME"),
    default: Some("*"),
    help: "Which controllers run: NAME runs it, -NAME does not, * runs all that are not named. \
           cloud-node, cloud-node-lifecycle, service and route, or their canonical names; \
           service and route are not built yet.",
    commands: DAEMON,
    group: Group::Controllers,
    ..Setting::BLANK
};

pub(super) static NODE_SYNC_INTERVAL: Setting = Setting {
    name: "node-sync-interval",
    flags: &["node-sync-interval"],
    kind: Kind::Duration,
    default: Some("5s"),
    help: "How often new nodes are looked for; how long a new node waits at most.",
    commands: DAEMON,
    group: Group::Controllers,
    ..Setting::BLANK
};

pub(super) static NODE_STATUS_UPDATE_FREQUENCY: Setting = Setting {
    name: "node-status-update-frequency",
    flags: &["node-status-update-frequency"],
    kind: Kind::Duration,
    default: Some("5m"),
    help: "How often addresses and labels of all nodes are compared with the cloud.",
    commands: DAEMON,
    group: Group::Controllers,
    ..Setting::BLANK
};

pub(super) static NODE_MONITOR_PERIOD: Setting = Setting {
    name: "node-monitor-period",
    flags: &["node-monitor-period"],
    kind: Kind::Duration,
    default: Some("5s"),
    help: "How often nodes that are not ready are looked for.",
    commands: DAEMON,
    group: Group::Controllers,
    ..Setting::BLANK
};

pub(super) static NODE_DELETION_GUARD: Setting = Setting {
    name: "node-deletion-guard",
    flags: &["node-deletion-guard"],
    default: Some("true"),
    help: "Delete a node only while another node's server is visible: another project's token sees \
           none of them. Turn it off only where the cluster may have a single node.",
    commands: &[Command::Run, Command::List, Command::Inspect, Command::Sync],
    group: Group::Controllers,
    ..Setting::BLANK
};

pub(super) static LEADER_ELECT: Setting = Setting {
    name: "leader-elect",
    flags: &["leader-elect"],
    default: Some("true"),
    help: "Of several daemons, only the one that holds the Lease works; the others wait. It is the \
           Lease of hcloud-cloud-controller-manager: the two hand over to each other. false: no \
           Lease is read or written.",
    commands: DAEMON,
    group: Group::LeaderElection,
    ..Setting::BLANK
};

pub(super) static LEASE_DURATION: Setting = Setting {
    name: "leader-elect-lease-duration",
    flags: &["leader-elect-lease-duration"],
    kind: Kind::Duration,
    default: Some("15s"),
    help: "How long the others wait for a leader that does not renew its Lease. Longer than the \
           renew deadline, and than 8s (what a write may take) and the retry period together.",
    commands: DAEMON,
    group: Group::LeaderElection,
    ..Setting::BLANK
};

pub(super) static RENEW_DEADLINE: Setting = Setting {
    name: "leader-elect-renew-deadline",
    flags: &["leader-elect-renew-deadline"],
    kind: Kind::Duration,
    default: Some("10s"),
    help: "A leader that could not renew its Lease for that long ends, with exit code 1. Longer \
           than 1.2 retry periods.",
    commands: DAEMON,
    group: Group::LeaderElection,
    ..Setting::BLANK
};

pub(super) static RETRY_PERIOD: Setting = Setting {
    name: "leader-elect-retry-period",
    flags: &["leader-elect-retry-period"],
    kind: Kind::Duration,
    default: Some("2s"),
    help: "How often the leader renews its Lease, and the others look at it.",
    commands: DAEMON,
    group: Group::LeaderElection,
    ..Setting::BLANK
};

pub(super) static LEASE_NAME: Setting = Setting {
    name: "leader-elect-resource-name",
    flags: &["leader-elect-resource-name"],
    kind: Kind::Text("NAME"),
    default: Some("cloud-controller-manager"),
    help: "Name of the Lease.",
    commands: DAEMON,
    group: Group::LeaderElection,
    ..Setting::BLANK
};

pub(super) static LEASE_NAMESPACE: Setting = Setting {
    name: "leader-elect-resource-namespace",
    flags: &["leader-elect-resource-namespace"],
    kind: Kind::Text("NAME"),
    default: Some("kube-system"),
    help: "Namespace of the Lease.",
    commands: DAEMON,
    group: Group::LeaderElection,
    ..Setting::BLANK
};

pub(super) static ONCE: Setting = Setting {
    name: "once",
    flags: &["once"],
    default: Some("false"),
    help: "One pass of every enabled controller, then exit: for cron and CronJobs.",
    commands: DAEMON,
    group: Group::Controllers,
    ..Setting::BLANK
};

pub(super) static DRY_RUN: Setting = Setting {
    name: "dry-run",
    flags: &["dry-run"],
    default: Some("false"),
    help: "Show what would be changed and write nothing, to neither API.",
    commands: &[Command::Run, Command::Sync],
    group: Group::Controllers,
    ..Setting::BLANK
};

pub(super) static DETAILED_EXITCODE: Setting = Setting {
    name: "detailed-exitcode",
    flags: &["detailed-exitcode"],
    default: Some("false"),
    help: "With --dry-run: exit 3, not 0, when something would be changed.",
    commands: &[Command::Sync],
    group: Group::Output,
    ..Setting::BLANK
};

pub(super) static OUTPUT: Setting = Setting {
    name: "output",
    flags: &["output"],
    short: Some('o'),
    kind: Kind::Choice(&["table", "wide", "json", "yaml"]),
    default: Some("table"),
    help: "Form of what is written to stdout. json and yaml are stable, for scripts.",
    commands: &[Command::List, Command::Inspect, Command::Sync],
    group: Group::Output,
    ..Setting::BLANK
};

pub(super) static LOG_FORMAT: Setting = Setting {
    name: "log-format",
    flags: &["log-format", "logging-format"],
    kind: Kind::Choice(&["text", "json"]),
    default: Some("text"),
    help: "Form of the log on stderr: lines for people, or one JSON object a line.",
    group: Group::Output,
    ..Setting::BLANK
};

pub(super) static VERBOSITY: Setting = Setting {
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

pub(super) static DEBUG: Setting = Setting {
    name: "debug",
    variables: &[Variable::Value("HCLOUD_DEBUG")],
    kind: Kind::Boolean,
    default: Some("false"),
    help: "Log every request to the Hetzner Cloud API and its answer, secrets redacted.",
    group: Group::Output,
    ..Setting::BLANK
};

pub(super) static METRICS_ADDRESS: Setting = Setting {
    name: "metrics-address",
    flags: &["metrics-address"],
    variables: &[Variable::Value("HCLOUD_METRICS_ADDRESS")],
    kind: Kind::Text("[IP]:PORT"),
    default: Some(":8233"),
    help: "Where the daemon answers /healthz, /livez and /readyz; :PORT is every address of the \
           machine. An empty flag (--metrics-address=) turns it off; an empty variable does not.",
    commands: DAEMON,
    group: Group::Output,
    ..Setting::BLANK
};

pub(super) static TEST_TIME_SCALE: Setting = Setting {
    name: "test-time-scale",
    variables: &[Variable::Value("CCM_TEST_TIME_SCALE")],
    kind: Kind::Number,
    default: Some("1"),
    help: "For tests: a factor on every wait, so that an hour can pass in a second.",
    group: Group::Controllers,
    hidden: true,
    ..Setting::BLANK
};

/// The setting of a long flag, written without dashes.
pub(super) fn by_flag(name: &str) -> Option<&'static Setting> {
    TABLE
        .iter()
        .find(|setting| setting.flags.contains(&name))
        .copied()
}

pub(super) fn by_short(letter: char) -> Option<&'static Setting> {
    TABLE
        .iter()
        .find(|setting| setting.short == Some(letter))
        .copied()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeSet;

    use super::*;

    /// Everything a row may be found by is there once, and help reads as sentences.
    #[test]
    fn rows_are_distinct_and_whole() {
        let mut seen = BTreeSet::new();
        for setting in TABLE {
            let variables = setting.variables.iter().map(|variable| variable.name());
            for key in setting.flags.iter().copied().chain(variables) {
                assert!(seen.insert(key), "{key} is there twice");
            }
            assert!(seen.insert(setting.name) || setting.flags.contains(&setting.name));
            assert!(setting.help.ends_with('.'), "{}", setting.name);
            assert!(!setting.commands.is_empty(), "{}", setting.name);
            assert!(!setting.flags.is_empty() || !setting.variables.is_empty());
            let boolean = setting.kind == Kind::Boolean;
            assert!(!boolean || setting.default.is_some(), "{}", setting.name);
        }
    }
}
