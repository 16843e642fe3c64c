//! The flags and variables of hcloud-cloud-controller-manager: its Deployment must work with our image in it.
//!
//! A flag of this list that the table of settings has as well is honoured; the others are accepted
//! and logged once as ignored. The same holds for the variables.

use super::table;

/// A long flag of hcloud-cloud-controller-manager.
#[derive(Clone, Copy)]
pub struct DropInFlag {
    /// Without the dashes.
    pub name: &'static str,
    /// `--flag value` as well as `--flag=value`; false for a boolean, or a flag with a value of its own when bare.
    pub takes_value: bool,
}

impl DropInFlag {
    /// Has an effect here.
    pub fn is_honoured(self) -> bool {
        matches!(self.name, "help" | "version") || table::by_flag(self.name).is_some()
    }
}

/// All of them, as of version 1.35, with those it accepts but does not show.
#[rustfmt::skip]
pub const FLAGS: &[DropInFlag] = &[
    bare("allocate-node-cidrs"),
    bare("allow-untagged-cloud"),
    with_value("authentication-kubeconfig"),
    bare("authentication-skip-lookup"),
    with_value("authentication-token-webhook-cache-ttl"),
    bare("authentication-tolerate-lookup-failure"),
    with_value("authorization-always-allow-paths"),
    with_value("authorization-kubeconfig"),
    with_value("authorization-webhook-cache-authorized-ttl"),
    with_value("authorization-webhook-cache-unauthorized-ttl"),
    with_value("bind-address"),
    with_value("cert-dir"),
    with_value("cidr-allocator-type"),
    with_value("client-ca-file"),
    with_value("cloud-config"),
    with_value("cloud-provider"),
    with_value("cluster-cidr"),
    with_value("cluster-name"),
    with_value("concurrent-node-status-updates"),
    with_value("concurrent-node-syncs"),
    with_value("concurrent-service-syncs"),
    bare("configure-cloud-routes"),
    bare("contention-profiling"),
    with_value("controller-start-interval"),
    with_value("controllers"),
    bare("disable-http2-serving"),
    bare("enable-leader-migration"),
    with_value("external-cloud-volume-plugin"),
    with_value("feature-gates"),
    bare("help"),
    with_value("http2-max-streams-per-connection"),
    with_value("kube-api-burst"),
    with_value("kube-api-content-type"),
    with_value("kube-api-qps"),
    with_value("kubeconfig"),
    bare("leader-elect"),
    with_value("leader-elect-lease-duration"),
    with_value("leader-elect-renew-deadline"),
    with_value("leader-elect-resource-lock"),
    with_value("leader-elect-resource-name"),
    with_value("leader-elect-resource-namespace"),
    with_value("leader-elect-retry-period"),
    with_value("leader-migration-config"),
    with_value("log-flush-frequency"),
    with_value("log-text-info-buffer-size"),
    bare("log-text-split-stream"),
    with_value("logging-format"),
    with_value("master"),
    with_value("min-resync-period"),
    with_value("node-monitor-period"),
    with_value("node-status-update-frequency"),
    with_value("node-sync-period"),
    bare("permit-address-sharing"),
    bare("permit-port-sharing"),
    bare("profiling"),
    with_value("requestheader-allowed-names"),
    with_value("requestheader-client-ca-file"),
    with_value("requestheader-extra-headers-prefix"),
    with_value("requestheader-group-headers"),
    with_value("requestheader-uid-headers"),
    with_value("requestheader-username-headers"),
    with_value("route-reconciliation-period"),
    with_value("secure-port"),
    with_value("tls-cert-file"),
    with_value("tls-cipher-suites"),
    with_value("tls-curve-preferences"),
    with_value("tls-min-version"),
    with_value("tls-private-key-file"),
    with_value("tls-sni-cert-key"),
    bare("use-service-account-credentials"),
    with_value("v"),
    bare("version"),
    with_value("vmodule"),
    with_value("webhook-bind-address"),
    with_value("webhook-cert-dir"),
    bare("webhook-disable-http2-serving"),
    with_value("webhook-secure-port"),
    with_value("webhook-tls-cert-file"),
    with_value("webhook-tls-cipher-suites"),
    with_value("webhook-tls-curve-preferences"),
    with_value("webhook-tls-min-version"),
    with_value("webhook-tls-private-key-file"),
    with_value("webhook-tls-sni-cert-key"),
    with_value("webhooks"),
];

/// Variables it reads, or that later versions of ours read, and that have no effect here yet.
pub(super) const IGNORED_VARIABLES: &[&str] = &[
    "HCLOUD_SERVER_CACHE_MODE",
    "ROBOT_CACHE_TIMEOUT",
    "ROBOT_FORWARD_INTERNAL_IPS",
    "ROBOT_PASSWORD",
    "ROBOT_PASSWORD_FILE",
    "ROBOT_RATE_LIMIT_WAIT_TIME",
    "ROBOT_USER",
    "ROBOT_USER_FILE",
];

pub(super) fn by_name(name: &str) -> Option<DropInFlag> {
    FLAGS.iter().find(|flag| flag.name == name).copied()
}

const fn bare(name: &'static str) -> DropInFlag {
    let takes_value = false;
    DropInFlag { name, takes_value }
}

const fn with_value(name: &'static str) -> DropInFlag {
    let takes_value = true;
    DropInFlag { name, takes_value }
}
