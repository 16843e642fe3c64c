//! The flags and environment variables of hcloud-cloud-controller-manager that this program ignores. They are accepted,
//! so that the Deployment of hcloud-cloud-controller-manager also works with the image of this program.
//!
//! A log line names each ignored flag or variable once.

use FlagUse::{Switch, WithValue};

/// How a flag of hcloud-cloud-controller-manager that this program ignores is written on a command line: with or
/// without a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlagUse {
    /// A flag that does not take the next word as its value. It is either a boolean flag, or a flag that can be written
    /// without a value.
    Switch,
    /// A flag whose value follows as the next word or after `=`, as in `--flag value` or `--flag=value`.
    WithValue,
}

/// The flags of hcloud-cloud-controller-manager 1.35, and the flags that k8s.io/cloud-provider 0.37 adds, that have no
/// effect in this program. Flags that are hidden in `--help` are included, too. The second value of an entry says
/// whether the flag takes a value.
pub const IGNORED_FLAGS: &[(&str, FlagUse)] = &[
    ("allocate-node-cidrs", Switch),
    ("allow-untagged-cloud", Switch),
    ("authentication-kubeconfig", WithValue),
    ("authentication-skip-lookup", Switch),
    ("authentication-token-webhook-cache-ttl", WithValue),
    ("authentication-tolerate-lookup-failure", Switch),
    ("authorization-always-allow-paths", WithValue),
    ("authorization-kubeconfig", WithValue),
    ("authorization-webhook-cache-authorized-ttl", WithValue),
    ("authorization-webhook-cache-unauthorized-ttl", WithValue),
    ("bind-address", WithValue),
    ("cert-dir", WithValue),
    ("cidr-allocator-type", WithValue),
    ("client-ca-file", WithValue),
    ("cloud-config", WithValue),
    ("concurrent-node-lifecycle-syncs", WithValue),
    ("concurrent-node-status-updates", WithValue),
    ("contention-profiling", Switch),
    ("controller-start-interval", WithValue),
    ("disable-http2-serving", Switch),
    ("enable-leader-migration", Switch),
    ("external-cloud-volume-plugin", WithValue),
    ("feature-gates", WithValue),
    ("http2-max-streams-per-connection", WithValue),
    ("kube-api-burst", WithValue),
    ("kube-api-content-type", WithValue),
    ("kube-api-qps", WithValue),
    ("leader-elect-resource-lock", WithValue),
    ("leader-migration-config", WithValue),
    ("log-flush-frequency", WithValue),
    ("log-text-info-buffer-size", WithValue),
    ("log-text-split-stream", Switch),
    ("min-resync-period", WithValue),
    ("node-sync-period", WithValue),
    ("permit-address-sharing", Switch),
    ("permit-port-sharing", Switch),
    ("profiling", Switch),
    ("requestheader-allowed-names", WithValue),
    ("requestheader-client-ca-file", WithValue),
    ("requestheader-extra-headers-prefix", WithValue),
    ("requestheader-group-headers", WithValue),
    ("requestheader-uid-headers", WithValue),
    ("requestheader-username-headers", WithValue),
    ("secure-port", WithValue),
    ("tls-cert-file", WithValue),
    ("tls-cipher-suites", WithValue),
    ("tls-curve-preferences", WithValue),
    ("tls-min-version", WithValue),
    ("tls-private-key-file", WithValue),
    ("tls-sni-cert-key", WithValue),
    ("use-service-account-credentials", Switch),
    ("vmodule", WithValue),
    ("webhook-bind-address", WithValue),
    ("webhook-cert-dir", WithValue),
    ("webhook-disable-http2-serving", Switch),
    ("webhook-secure-port", WithValue),
    ("webhook-tls-cert-file", WithValue),
    ("webhook-tls-cipher-suites", WithValue),
    ("webhook-tls-curve-preferences", WithValue),
    ("webhook-tls-min-version", WithValue),
    ("webhook-tls-private-key-file", WithValue),
    ("webhook-tls-sni-cert-key", WithValue),
    ("webhooks", WithValue),
];

/// The environment variables of hcloud-cloud-controller-manager that are accepted and ignored, because they have no
/// effect in this version of the program.
pub(super) const IGNORED_VARIABLES: &[&str] = &["HCLOUD_SERVER_CACHE_MODE"];

/// Flags and variables of other programs that have no effect here, each with the setting of this program that has the
/// same meaning. The text is empty when there is no such setting. The variables are those of the forks of
/// hcloud-cloud-controller-manager by syself and by identw. These names are not accepted as aliases: if there were two
/// names for e.g. a password, and both were set, it would not be clear which value is used.
const OUR_NAMES: &[(&str, &str)] = &[
    ("--concurrent-node-lifecycle-syncs", "--concurrent-node-syncs"),
    ("CACHE_TIMEOUT", "ROBOT_CACHE_TIMEOUT"),
    ("ENABLE_SYNC_LABELS", "HCLOUD_INSTANCES_LABEL_PREFIXES"),
    ("HROBOT_PASS", "ROBOT_PASSWORD or ROBOT_PASSWORD_FILE"),
    ("HROBOT_PERIOD", "ROBOT_CACHE_TIMEOUT"),
    ("HROBOT_USER", "ROBOT_USER or ROBOT_USER_FILE"),
    ("NAME_CLOUD_NODE", ""),
    ("NAME_DEDICATED_NODE", ""),
    ("NAME_LABEL_TYPE", ""),
    ("PROVIDER_NAME", "--cloud-provider"),
    ("RATE_LIMIT_WAIT_TIME_ROBOT", "ROBOT_RATE_LIMIT_WAIT_TIME"),
    ("ROBOT_DEBUG", "-v 4"),
    ("ROBOT_USER_NAME", "ROBOT_USER or ROBOT_USER_FILE"),
];

/// Returns the setting of this program that has the same meaning as `name`, when `name` is a flag or variable of
/// another program, e.g. of a fork of hcloud-cloud-controller-manager. The text is empty when there is no such setting.
/// Returns `None` for any other name.
pub(super) fn our_name(name: &str) -> Option<&'static str> {
    OUR_NAMES.iter().find(|(other, _)| *other == name).map(|(_, ours)| *ours)
}

pub(super) fn by_name(name: &str) -> Option<FlagUse> {
    IGNORED_FLAGS.iter().find(|(flag, _)| *flag == name).map(|(_, kind)| *kind)
}
