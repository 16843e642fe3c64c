//! The settings: one row each, in the order in which people read about them. `resolve` says how each value is read.

use super::setting::Kind::{Boolean, Choice, Duration, Integer, List, Number, Path, Text, Url};
use super::setting::Variable::{File, Older, Value};
use super::setting::{Command, Group, Setting};

const DAEMON: &[Command] = &[Command::Run];

/// What the daemon does at its start, and `doctor` checks.
const DAEMON_AND_DOCTOR: &[Command] = &[Command::Run, Command::Doctor];

/// All but the daemon.
const CLIENTS: &[Command] = &[
    Command::Config,
    Command::NodeList,
    Command::NodeInspect,
    Command::NodeSync,
    Command::LbList,
    Command::LbInspect,
    Command::LbSync,
    Command::RouteList,
    Command::RouteSync,
    Command::Doctor,
];

/// Those that may take the daemon's settings from the cluster: `config` calls no API.
const TAKE_SETTINGS: &[Command] = CLIENTS.split_at(1).1;

const SYNCS: &[Command] = &[Command::NodeSync, Command::LbSync, Command::RouteSync];

/// Those that plan load balancers.
const WITH_LOAD_BALANCERS: &[Command] = &[
    Command::Run,
    Command::LbList,
    Command::LbInspect,
    Command::LbSync,
    Command::Doctor,
];

/// Those that plan routes.
const WITH_ROUTES: &[Command] = &[Command::Run, Command::RouteList, Command::RouteSync];

const LOAD_BALANCERS: &[Command] = &[Command::LbList, Command::LbInspect, Command::LbSync];

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

/// Each row becomes a static of its name, and [`TABLE`] lists them in this order.
macro_rules! settings {
    ($($name:ident = { $($row:tt)* })*) => {
        $(pub(super) static $name: Setting = Setting { $($row)* };)*

        /// Every setting, in the order in which people read about them.
        pub static TABLE: &[&Setting] = &[$(&$name),*];
    };
}

settings! {
    TOKEN = {
        name: "token",
        variables: &[Value("HCLOUD_TOKEN"), File("HCLOUD_TOKEN_FILE")],
        kind: Text("TOKEN"),
        help: "Token of the Hetzner Cloud project's API, read & write. Required. The file form is read \
               again whenever the file changes, so a rotated token needs no restart.",
        secret: true,
        ..Setting::of(Group::Hetzner)
    }

    ENDPOINT = {
        name: "endpoint",
        variables: &[Value("HCLOUD_ENDPOINT")],
        kind: Url,
        default: Some("https://api.hetzner.cloud/v1"),
        help: "Base URL of the Hetzner Cloud API.",
        ..Setting::of(Group::Hetzner)
    }

    ALLOW_INSECURE_ENDPOINT = {
        name: "allow-insecure-endpoint",
        variables: &[Value("HCLOUD_ALLOW_INSECURE_ENDPOINT")],
        kind: Boolean,
        default: Some("false"),
        help: "Whether an API may be reached without TLS (http://) on another machine than this one, HCLOUD_ENDPOINT as well \
               as the cluster's server: whoever is on the way then reads the token. Profile hcloud only warns.",
        ..Setting::of(Group::Hetzner)
    }

    NETWORK = {
        name: "network",
        variables: &[Value("HCLOUD_NETWORK")],
        kind: Text("ID|NAME"),
        help: "Private Network of the cluster: digits are its ID, anything else is its name. Nodes get \
               their IP in it as InternalIP. Unset: nodes get no InternalIP.",
        ..Setting::of(Group::Hetzner)
    }

    NETWORK_ROUTES_ENABLED = {
        name: "network-routes-enabled",
        variables: &[Value("HCLOUD_NETWORK_ROUTES_ENABLED")],
        default: Some("true"),
        help: "Whether the Network gets a route to the pods of each node. Needs HCLOUD_NETWORK and \
               --cluster-cidr. false leaves all routes unchanged.",
        commands: WITH_ROUTES,
        ..Setting::of(Group::Hetzner)
    }

    NETWORK_DISABLE_ATTACHED_CHECK = {
        name: "network-disable-attached-check",
        variables: &[Value("HCLOUD_NETWORK_DISABLE_ATTACHED_CHECK")],
        default: Some("false"),
        help: "Skip the check at start, by the metadata service, that this machine is attached to the Network.",
        commands: DAEMON_AND_DOCTOR,
        ..Setting::of(Group::Hetzner)
    }

    METADATA_ENDPOINT = {
        name: "metadata-endpoint",
        variables: &[Value("HCLOUD_METADATA_ENDPOINT")],
        kind: Url,
        help: "For tests: base URL of the metadata service.",
        commands: DAEMON_AND_DOCTOR,
        hidden: true,
        ..Setting::of(Group::Hetzner)
    }

    ADDRESS_FAMILY = {
        name: "address-family",
        variables: &[Value("HCLOUD_INSTANCES_ADDRESS_FAMILY")],
        kind: Choice(&["ipv4", "ipv6", "dualstack"]),
        default: Some("ipv4"),
        help: "Which public addresses of a server become its node's ExternalIP.",
        ..Setting::of(Group::Hetzner)
    }

    ZONE_LABEL_ENABLED = {
        name: "zone-label-enabled",
        variables: &[Value("HCLOUD_INSTANCES_ZONE_LABEL_ENABLED")],
        kind: Boolean,
        default: Some("true"),
        help: "Whether nodes get the zone labels (topology.kubernetes.io/zone and its older beta form).",
        ..Setting::of(Group::Hetzner)
    }

    SERVER_CACHE_MAX_AGE = {
        name: "server-cache-max-age",
        variables: &[Value("HCLOUD_SERVER_CACHE_MAX_AGE"), Older("HCLOUD_SERVER_CACHE_TTL")],
        kind: Duration,
        default: Some("10s"),
        help: "How old a list of servers may be when a decision uses it. A longer time saves API calls \
               (a project has 3600 an hour). 0 requests a new list each time.",
        ..Setting::of(Group::Hetzner)
    }

    ROBOT_ENABLED = {
        name: "robot-enabled",
        variables: &[Value("ROBOT_ENABLED")],
        kind: Boolean,
        default: Some("false"),
        help: "Dedicated (Robot) servers as nodes. Not supported yet: true is an error.",
        ..Setting::of(Group::Hetzner)
    }

    LB_ENABLED = {
        name: "load-balancers-enabled",
        variables: &[Value("HCLOUD_LOAD_BALANCERS_ENABLED")],
        kind: Boolean,
        default: Some("true"),
        help: "Whether Services get load balancers. false leaves all of them unchanged.",
        commands: WITH_LOAD_BALANCERS,
        ..Setting::of(Group::Hetzner)
    }

    LB_TYPE = {
        name: "load-balancers-type",
        variables: &[Value("HCLOUD_LOAD_BALANCERS_TYPE")],
        kind: Text("TYPE"),
        help: "Type of load balancers whose Service sets none, e.g. lb21. Unset: a new one is an lb11, an existing one keeps its type.",
        commands: WITH_LOAD_BALANCERS,
        ..Setting::of(Group::Hetzner)
    }

    LB_LOCATION = {
        name: "load-balancers-location",
        variables: &[Value("HCLOUD_LOAD_BALANCERS_LOCATION")],
        kind: Text("NAME"),
        help: "Location in which load balancers are created, e.g. fsn1. Not together with HCLOUD_LOAD_BALANCERS_NETWORK_ZONE. Unset: the location of most nodes; in profile hcloud the Service must then set it.",
        commands: WITH_LOAD_BALANCERS,
        ..Setting::of(Group::Hetzner)
    }

    LB_NETWORK_ZONE = {
        name: "load-balancers-network-zone",
        variables: &[Value("HCLOUD_LOAD_BALANCERS_NETWORK_ZONE")],
        kind: Text("NAME"),
        help: "Network zone in which they are created, e.g. eu-central, when the location does not matter.",
        commands: WITH_LOAD_BALANCERS,
        ..Setting::of(Group::Hetzner)
    }

    LB_ALGORITHM_TYPE = {
        name: "load-balancers-algorithm-type",
        variables: &[Value("HCLOUD_LOAD_BALANCERS_ALGORITHM_TYPE")],
        kind: Choice(&["round_robin", "least_connections"]),
        help: "Which target gets the next connection. Unset: round_robin; profile hcloud leaves it unchanged.",
        commands: WITH_LOAD_BALANCERS,
        ..Setting::of(Group::Hetzner)
    }

    LB_DISABLE_PUBLIC_NETWORK = {
        name: "load-balancers-disable-public-network",
        variables: &[Value("HCLOUD_LOAD_BALANCERS_DISABLE_PUBLIC_NETWORK")],
        kind: Text("true|false"),
        help: "Turn their public interface off. Unset: left unchanged.",
        commands: WITH_LOAD_BALANCERS,
        ..Setting::of(Group::Hetzner)
    }

    LB_DISABLE_PRIVATE_INGRESS = {
        name: "load-balancers-disable-private-ingress",
        variables: &[Value("HCLOUD_LOAD_BALANCERS_DISABLE_PRIVATE_INGRESS")],
        kind: Text("true|false"),
        help: "Leave their private IPs out of the status of Services.",
        commands: WITH_LOAD_BALANCERS,
        ..Setting::of(Group::Hetzner)
    }

    LB_USE_PRIVATE_IP = {
        name: "load-balancers-use-private-ip",
        variables: &[Value("HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP")],
        kind: Text("true|false"),
        help: "Reach the nodes by their private IPs. Needs HCLOUD_NETWORK.",
        commands: WITH_LOAD_BALANCERS,
        ..Setting::of(Group::Hetzner)
    }

    LB_PRIVATE_SUBNET_IP_RANGE = {
        name: "load-balancers-private-subnet-ip-range",
        variables: &[Value("HCLOUD_LOAD_BALANCERS_PRIVATE_SUBNET_IP_RANGE")],
        kind: Text("CIDR"),
        help: "Subnet of the private Network in which they are attached, e.g. 10.0.1.0/24.",
        commands: WITH_LOAD_BALANCERS,
        ..Setting::of(Group::Hetzner)
    }

    LB_DISABLE_IPV6 = {
        name: "load-balancers-disable-ipv6",
        variables: &[Value("HCLOUD_LOAD_BALANCERS_DISABLE_IPV6")],
        kind: Text("true|false"),
        help: "Leave their IPv6 address out of the status of Services.",
        commands: WITH_LOAD_BALANCERS,
        ..Setting::of(Group::Hetzner)
    }

    LB_USES_PROXYPROTOCOL = {
        name: "load-balancers-uses-proxyprotocol",
        variables: &[Value("HCLOUD_LOAD_BALANCERS_USES_PROXYPROTOCOL")],
        kind: Text("true|false"),
        help: "Send the PROXY protocol to the targets. Unset: no; profile hcloud leaves it unchanged.",
        commands: WITH_LOAD_BALANCERS,
        ..Setting::of(Group::Hetzner)
    }

    LB_HEALTH_CHECK_INTERVAL = {
        name: "load-balancers-health-check-interval",
        variables: &[Value("HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_INTERVAL")],
        kind: Duration,
        help: "Interval of health checks, in whole seconds. Unset: 15s; profile hcloud leaves it unchanged.",
        commands: WITH_LOAD_BALANCERS,
        ..Setting::of(Group::Hetzner)
    }

    LB_HEALTH_CHECK_TIMEOUT = {
        name: "load-balancers-health-check-timeout",
        variables: &[Value("HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_TIMEOUT")],
        kind: Duration,
        help: "Timeout of a health check, in whole seconds. Unset: 10s; profile hcloud leaves it unchanged.",
        commands: WITH_LOAD_BALANCERS,
        ..Setting::of(Group::Hetzner)
    }

    LB_HEALTH_CHECK_RETRIES = {
        name: "load-balancers-health-check-retries",
        variables: &[Value("HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_RETRIES")],
        kind: Integer,
        help: "How many checks in a row change the health of a target. Unset: 3; profile hcloud leaves it unchanged.",
        commands: WITH_LOAD_BALANCERS,
        ..Setting::of(Group::Hetzner)
    }

    LB_HEALTH_CHECK_NODE_PORT = {
        name: "load-balancers-health-check-node-port",
        variables: &[Value("HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_NODE_PORT")],
        kind: Text("true|false"),
        help: "Whether targets of a Service with externalTrafficPolicy: Local are checked on its health check node port. Unset: yes; profile hcloud: no.",
        commands: WITH_LOAD_BALANCERS,
        ..Setting::of(Group::Hetzner)
    }

    LB_PRIMARY_IP_SELECTOR = {
        name: "load-balancers-primary-ip-selector",
        variables: &[Value("HCLOUD_LOAD_BALANCERS_PRIMARY_IP_SELECTOR")],
        kind: Text("SELECTOR"),
        help: "Labels of the Primary IPs that Services may claim, e.g. use=services; written like a selector of kubectl -l. Unset: they may claim any free one of the project.",
        commands: WITH_LOAD_BALANCERS,
        ..Setting::of(Group::Hetzner)
    }

    KUBECONFIG = {
        name: "kubeconfig",
        flags: &["kubeconfig"],
        variables: &[Value("KUBECONFIG")],
        kind: Path,
        help: "How to reach the cluster; the variable may list several files, separated by colons. \
               If neither is set: the service account of the pod, else ~/.kube/config.",
        ..Setting::of(Group::Cluster)
    }

    CONTEXT = {
        name: "context",
        flags: &["context"],
        kind: Text("NAME"),
        help: "Context of the kubeconfig. Unset: its current-context.",
        ..Setting::of(Group::Cluster)
    }

    MASTER = {
        name: "master",
        flags: &["master"],
        kind: Url,
        help: "URL of the Kubernetes API server, instead of the one in the kubeconfig or, in a pod, the \
               cluster's own. The credentials of the kubeconfig, in a pod the token of the service \
               account, are sent to it: use only an address of the same cluster.",
        ..Setting::of(Group::Cluster)
    }

    SETTINGS_FROM = {
        name: "settings-from",
        flags: &["settings-from"],
        kind: Text("NAMESPACE/deployment/NAME"),
        help: "Use the settings of the daemon that runs there (or NAMESPACE/daemonset/NAME): its \
               arguments and variables. Your own win. Values in Secrets and ConfigMaps are not read, \
               but reported. Tokens, API addresses and output settings are always your own.",
        commands: TAKE_SETTINGS,
        ..Setting::of(Group::Cluster)
    }

    CLOUD_PROVIDER = {
        name: "cloud-provider",
        flags: &["cloud-provider"],
        kind: Choice(&["ccm-from-scratch", "hcloud"]),
        default: Some("ccm-from-scratch"),
        help: "Profile: which provider IDs and labels are written. hcloud replaces \
               hcloud-cloud-controller-manager. A node keeps its provider ID, and a node of the other \
               profile is ignored: do not change the profile of a running cluster.",
        ..Setting::of(Group::Controllers)
    }

    CONTROLLERS = {
        name: "controllers",
        flags: &["controllers"],
        kind: List("NAME"),
        default: Some("*"),
        help: "Which controllers run: NAME runs it, -NAME does not, * runs all that are not named. \
               Names: cloud-node, cloud-node-lifecycle, service, route, or their canonical names.",
        commands: DAEMON,
        ..Setting::of(Group::Controllers)
    }

    NODE_SYNC_INTERVAL = {
        name: "node-sync-interval",
        flags: &["node-sync-interval"],
        kind: Duration,
        default: Some("5s"),
        help: "How often ccm polls for new nodes: the longest time that a new node waits.",
        commands: DAEMON,
        ..Setting::of(Group::Controllers)
    }

    NODE_STATUS_UPDATE_FREQUENCY = {
        name: "node-status-update-frequency",
        flags: &["node-status-update-frequency"],
        kind: Duration,
        default: Some("5m"),
        help: "How often addresses and labels of all nodes are compared with their servers.",
        commands: DAEMON,
        ..Setting::of(Group::Controllers)
    }

    NODE_MONITOR_PERIOD = {
        name: "node-monitor-period",
        flags: &["node-monitor-period"],
        kind: Duration,
        default: Some("5s"),
        help: "How often ccm polls for nodes that are not ready.",
        commands: DAEMON,
        ..Setting::of(Group::Controllers)
    }

    NODE_DELETION_GUARD = {
        name: "node-deletion-guard",
        flags: &["node-deletion-guard"],
        default: Some("true"),
        help: "Delete a node only while the token sees the server of another node: the token of another \
               project sees none. Turn it off only for clusters that may have a single node.",
        commands: &[Command::Run, Command::NodeList, Command::NodeInspect, Command::NodeSync],
        ..Setting::of(Group::Controllers)
    }

    SERVICE_SYNC_INTERVAL = {
        name: "service-sync-interval",
        flags: &["service-sync-interval"],
        kind: Duration,
        default: Some("5s"),
        help: "How often ccm polls for changed Services: the longest time that a new Service waits.",
        commands: DAEMON,
        ..Setting::of(Group::Controllers)
    }

    LOAD_BALANCER_RESYNC_PERIOD = {
        name: "load-balancer-resync-period",
        flags: &["load-balancer-resync-period"],
        kind: Duration,
        default: Some("5m"),
        help: "How often load balancers are compared when their Service did not change. Changes made \
               by hand are undone then.",
        commands: DAEMON,
        ..Setting::of(Group::Controllers)
    }

    CONCURRENT_SERVICE_SYNCS = {
        name: "concurrent-service-syncs",
        flags: &["concurrent-service-syncs"],
        kind: Integer,
        default: Some("5"),
        help: "How many requests for load balancers run at the same time.",
        commands: &[Command::Run, Command::LbSync],
        ..Setting::of(Group::Controllers)
    }

    CLUSTER_NAME = {
        name: "cluster-name",
        flags: &["cluster-name"],
        kind: Text("NAME"),
        default: Some("kubernetes"),
        help: "Name of the cluster, for people: the first part of the names of load balancers. Two \
               clusters in one project may have the same name: the UID of their Service \
               default/kubernetes identifies them.",
        commands: WITH_LOAD_BALANCERS,
        ..Setting::of(Group::Controllers)
    }

    CLUSTER_CIDR = {
        name: "cluster-cidr",
        flags: &["cluster-cidr"],
        kind: List("CIDR"),
        help: "Address ranges of the cluster's pods, the same as for kube-controller-manager. Routes of the \
               Network within them are managed, all others are never changed. Unset: the route \
               controller does not run.",
        commands: WITH_ROUTES,
        ..Setting::of(Group::Controllers)
    }

    CONFIGURE_CLOUD_ROUTES = {
        name: "configure-cloud-routes",
        flags: &["configure-cloud-routes"],
        default: Some("true"),
        help: "false turns the route controller off, as HCLOUD_NETWORK_ROUTES_ENABLED=false does.",
        commands: WITH_ROUTES,
        ..Setting::of(Group::Controllers)
    }

    ROUTE_RECONCILIATION_PERIOD = {
        name: "route-reconciliation-period",
        flags: &["route-reconciliation-period"],
        kind: Duration,
        default: Some("30s"),
        help: "Shortest time between two comparisons of the Network's routes. They are compared when \
               nodes change, and every five minutes.",
        commands: DAEMON,
        ..Setting::of(Group::Controllers)
    }

    DELETE_ORPHANED_LOAD_BALANCERS = {
        name: "delete-orphaned-load-balancers",
        flags: &["delete-orphaned-load-balancers"],
        default: Some("false"),
        help: "Delete load balancers of this cluster whose Service does not exist, at each resync. Never \
               one that is protected. false: they are only reported; ccm lb list shows them.",
        commands: DAEMON,
        ..Setting::of(Group::Controllers)
    }

    DELETE_ORPHANS = {
        name: "delete-orphans",
        flags: &["delete-orphans"],
        default: Some("false"),
        help: "Delete load balancers of this cluster whose Service does not exist, and do nothing else. \
               They are listed, and you confirm.",
        commands: &[Command::LbSync],
        ..Setting::of(Group::Controllers)
    }

    YES = {
        name: "yes",
        flags: &["yes"],
        default: Some("false"),
        help: "Also make the changes that follow only from the default of an unset setting: outside a pod \
               they are held back. With --delete-orphans: delete without asking.",
        commands: SYNCS,
        ..Setting::of(Group::Controllers)
    }

    LEADER_ELECT = {
        name: "leader-elect",
        flags: &["leader-elect"],
        default: Some("true"),
        help: "Of several daemons only the holder of the Lease works, the others wait. \
               hcloud-cloud-controller-manager uses the same Lease. false: no Lease is read or written.",
        commands: DAEMON_AND_DOCTOR,
        ..Setting::of(Group::LeaderElection)
    }

    LEASE_DURATION = {
        name: "leader-elect-lease-duration",
        flags: &["leader-elect-lease-duration"],
        kind: Duration,
        default: Some("15s"),
        help: "How long the others wait for a leader that does not renew its Lease. Must be longer than the \
               renew deadline, and longer than the retry period plus 8s (the longest write).",
        commands: DAEMON,
        ..Setting::of(Group::LeaderElection)
    }

    RENEW_DEADLINE = {
        name: "leader-elect-renew-deadline",
        flags: &["leader-elect-renew-deadline"],
        kind: Duration,
        default: Some("10s"),
        help: "A leader that could not renew its Lease for this time exits with code 1. Must be longer \
               than 1.2 retry periods.",
        commands: DAEMON,
        ..Setting::of(Group::LeaderElection)
    }

    RETRY_PERIOD = {
        name: "leader-elect-retry-period",
        flags: &["leader-elect-retry-period"],
        kind: Duration,
        default: Some("2s"),
        help: "How often the leader renews its Lease, and the others read it.",
        commands: DAEMON,
        ..Setting::of(Group::LeaderElection)
    }

    LEASE_NAME = {
        name: "leader-elect-resource-name",
        flags: &["leader-elect-resource-name"],
        kind: Text("NAME"),
        default: Some("cloud-controller-manager"),
        help: "Name of the Lease.",
        commands: DAEMON_AND_DOCTOR,
        ..Setting::of(Group::LeaderElection)
    }

    LEASE_NAMESPACE = {
        name: "leader-elect-resource-namespace",
        flags: &["leader-elect-resource-namespace"],
        kind: Text("NAME"),
        default: Some("kube-system"),
        help: "Namespace of the Lease.",
        commands: DAEMON_AND_DOCTOR,
        ..Setting::of(Group::LeaderElection)
    }

    ONCE = {
        name: "once",
        flags: &["once"],
        default: Some("false"),
        help: "One pass of every enabled controller, then exit: for cron and CronJobs.",
        commands: DAEMON,
        ..Setting::of(Group::Controllers)
    }

    DRY_RUN = {
        name: "dry-run",
        flags: &["dry-run"],
        default: Some("false"),
        help: "Print the planned changes. Write nothing to either API.",
        commands: &[Command::Run, Command::NodeSync, Command::LbSync, Command::RouteSync],
        ..Setting::of(Group::Controllers)
    }

    DETAILED_EXITCODE = {
        name: "detailed-exitcode",
        flags: &["detailed-exitcode"],
        default: Some("false"),
        help: "With --dry-run: exit code 3 instead of 0 when changes are pending.",
        commands: SYNCS,
        ..Setting::of(Group::Output)
    }

    NAMESPACE = {
        name: "namespace",
        flags: &["namespace"],
        short: Some('n'),
        kind: Text("NAMESPACE"),
        help: "Namespace of Services that are named without one. lb list shows only this namespace.",
        commands: LOAD_BALANCERS,
        ..Setting::of(Group::Output)
    }

    OUTPUT = {
        name: "output",
        flags: &["output"],
        short: Some('o'),
        kind: Choice(&["table", "wide", "json", "yaml"]),
        default: Some("table"),
        help: "Output format on stdout. json and yaml are stable, for scripts.",
        commands: CLIENTS,
        ..Setting::of(Group::Output)
    }

    LOG_FORMAT = {
        name: "log-format",
        flags: &["log-format", "logging-format"],
        kind: Choice(&["text", "json"]),
        default: Some("text"),
        help: "Format of the log on stderr: lines for people, or one JSON object for each line.",
        ..Setting::of(Group::Output)
    }

    VERBOSITY = {
        name: "verbosity",
        flags: &["v"],
        short: Some('v'),
        kind: Integer,
        default: Some("0"),
        help: "Log level: 0 logs changes and failures, 4 adds every call to both APIs. Secrets are never \
               logged.",
        ..Setting::of(Group::Output)
    }

    DEBUG = {
        name: "debug",
        variables: &[Value("HCLOUD_DEBUG")],
        kind: Boolean,
        default: Some("false"),
        help: "Log every request to the Hetzner Cloud API and its answer, with secrets redacted.",
        ..Setting::of(Group::Output)
    }

    METRICS_ENABLED = {
        name: "metrics-enabled",
        variables: &[Value("HCLOUD_METRICS_ENABLED")],
        kind: Boolean,
        default: Some("true"),
        help: "Serve /metrics for Prometheus. false removes only /metrics: the probes stay.",
        commands: DAEMON,
        ..Setting::of(Group::Output)
    }

    METRICS_ADDRESS = {
        name: "metrics-address",
        flags: &["metrics-address"],
        variables: &[Value("HCLOUD_METRICS_ADDRESS")],
        kind: Text("[IP]:PORT"),
        default: Some(":8233"),
        help: "Address on which the daemon serves /healthz, /livez, /readyz and /metrics. :PORT listens on every \
               address of the machine. An empty flag (--metrics-address=) turns it off; an empty variable does not.",
        commands: DAEMON,
        ..Setting::of(Group::Output)
    }

    TEST_TIME_SCALE = {
        name: "test-time-scale",
        variables: &[Value("CCM_TEST_TIME_SCALE")],
        kind: Number,
        default: Some("1"),
        help: "For tests: a factor on every wait, so that an hour can pass in a second.",
        hidden: true,
        ..Setting::of(Group::Controllers)
    }
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
            let boolean = setting.kind == Boolean;
            assert!(!boolean || setting.default.is_some(), "{}", setting.name);
        }
    }
}
