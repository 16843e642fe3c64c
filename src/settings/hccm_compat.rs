//! The flags and variables of hcloud-cloud-controller-manager: its Deployment must work with our image in it.
//!
//! What has no effect here is accepted, and logged once as ignored.

use Use::{Honoured, Switch, WithValue};

/// What becomes of a flag here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// It is in the table of settings, or `help` or `version`.
    Honoured,
    /// Ignored: true or false, or a flag with a value of its own when bare.
    Switch,
    /// Ignored: `--flag value` as well as `--flag=value`.
    WithValue,
}

/// All its flags, as of version 1.35, with those it accepts but does not show.
pub const DROP_IN_FLAGS: &[(&str, Use)] = &[
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
    ("cloud-provider", Honoured),
    ("cluster-cidr", Honoured),
    ("cluster-name", Honoured),
    ("concurrent-node-status-updates", WithValue),
    ("concurrent-node-syncs", Honoured),
    ("concurrent-service-syncs", Honoured),
    ("configure-cloud-routes", Honoured),
    ("contention-profiling", Switch),
    ("controller-start-interval", WithValue),
    ("controllers", Honoured),
    ("disable-http2-serving", Switch),
    ("enable-leader-migration", Switch),
    ("external-cloud-volume-plugin", WithValue),
    ("feature-gates", WithValue),
    ("help", Honoured),
    ("http2-max-streams-per-connection", WithValue),
    ("kube-api-burst", WithValue),
    ("kube-api-content-type", WithValue),
    ("kube-api-qps", WithValue),
    ("kubeconfig", Honoured),
    ("leader-elect", Honoured),
    ("leader-elect-lease-duration", Honoured),
    ("leader-elect-renew-deadline", Honoured),
    ("leader-elect-resource-lock", WithValue),
    ("leader-elect-resource-name", Honoured),
    ("leader-elect-resource-namespace", Honoured),
    ("leader-elect-retry-period", Honoured),
    ("leader-migration-config", WithValue),
    ("log-flush-frequency", WithValue),
    ("log-text-info-buffer-size", WithValue),
    ("log-text-split-stream", Switch),
    ("logging-format", Honoured),
    ("master", Honoured),
    ("min-resync-period", WithValue),
    ("node-monitor-period", Honoured),
    ("node-status-update-frequency", Honoured),
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
    ("route-reconciliation-period", Honoured),
    ("secure-port", WithValue),
    ("tls-cert-file", WithValue),
    ("tls-cipher-suites", WithValue),
    ("tls-curve-preferences", WithValue),
    ("tls-min-version", WithValue),
    ("tls-private-key-file", WithValue),
    ("tls-sni-cert-key", WithValue),
    ("use-service-account-credentials", Switch),
    ("v", Honoured),
    ("version", Honoured),
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

/// Variables it reads, or that later versions of ours read, and that have no effect here yet.
pub(super) const IGNORED_VARIABLES: &[&str] = &["HCLOUD_SERVER_CACHE_MODE"];

pub(super) fn by_name(name: &str) -> Option<Use> {
    let mut flags = DROP_IN_FLAGS.iter();
    flags.find(|(flag, _)| *flag == name).map(|(_, kind)| *kind)
}
