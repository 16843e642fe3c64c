//! The table of settings. Each setting is one row, and the rows are in the order in which help prints them.
//!
//! A row has the texts for the user, the field of [`Settings`] with its type, and the function that reads the value.
//! Defaults of load balancers are fields of `provider::LoadBalancerDefaults`.

use super::effective::{Resolver, choice, kubeconfig, output, parsed, password, token, user};
use super::setting::Command::{
    Doctor, LbAdopt, LbInspect, LbList, LbRelease, LbSync, Lint, NodeInspect, NodeList, NodeSync,
    RouteList, RouteSync, Run, Status,
};
use super::setting::Variable::{File, Older, OptionalFile, Value};
use super::setting::{Command, Group, Setting, ValueKind};
use super::values::{self, Color, Controller, LogFormat, Output, WorkloadName, unless_empty};
use crate::http::SecretSource;
use crate::provider::{
    AddressFamily, CertificateDomains, InternalIpFrom, LabelPrefixes, Labels, LoadBalancerDefaults,
    NetworkSelector, Profile, Sourced, variables,
};
use crate::text::duration::{duration, interval, whole_seconds};
use crate::text::selector::Selector;
use crate::text::{boolean, count, ip_range};
use ipnet::IpNet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

const DAEMON: &[Command] = &[Run];

/// The daemon, and the commands that check what the daemon does at its start.
const DAEMON_AND_DOCTOR: &[Command] = &[Run, Doctor, Status];

/// All commands except the daemon.
const CLIENTS: &[Command] = Command::ALL.split_at(1).1;

/// The commands that may take over the daemon's settings from the cluster. `config` is not among them because it
/// calls no API.
const TAKE_SETTINGS: &[Command] = CLIENTS.split_at(1).1;

const SYNCS: &[Command] = &[NodeSync, LbSync, RouteSync];

/// The commands that plan changes and can also make them.
const PLANNING: &[Command] = &[Run, NodeSync, LbSync, LbAdopt, LbRelease, RouteSync];

/// The commands that plan load balancers.
const WITH_LOAD_BALANCERS: &[Command] =
    &[Run, LbList, LbInspect, LbSync, LbAdopt, LbRelease, Doctor, Status, Lint];

/// The commands that plan routes.
const WITH_ROUTES: &[Command] = &[Run, RouteList, RouteSync];

const LOAD_BALANCERS: &[Command] = &[LbList, LbInspect, LbSync, LbAdopt, LbRelease];

const LISTS: &[Command] = &[NodeList, LbList, RouteList];

/// Returns the setting of a long flag, which is written without dashes.
pub(super) fn by_flag(name: &str) -> Option<&'static Setting> {
    TABLE.iter().copied().find(|setting| setting.flags.contains(&name))
}

pub(super) fn by_letter(letter: char) -> Option<&'static Setting> {
    TABLE.iter().copied().find(|setting| setting.short == Some(letter))
}

/// Builds a `Setting` with defaults for the fields that a row leaves out. With `variable`, the setting also has the
/// variable of the row's name.
macro_rules! base {
    (variable $name:ident $group:expr, $commands:expr) => {
        Setting { variables: &[Value(variables::$name)], ..Setting::of($group, $commands) }
    };
    (flag $name:ident $group:expr, $commands:expr) => {
        Setting::of($group, $commands)
    };
}

/// Turns rows of the form `NAME field: Type = function => { row }` into statics. A row that names a field also becomes
/// a field of [`Settings`]. A row with `[field = function]` becomes a field of [`LoadBalancerDefaults`]. [`TABLE`]
/// lists the rows in this order. The line above the rows of a group has three parts: the group, the commands that take
/// a setting whose row lists no commands, and whether the constant of a row is named after the variable or the flag.
macro_rules! settings {
    ($(($group:expr, $commands:expr, by $named_by:ident)
        $($name:ident $([$($default:ident).+ = $read:expr])? $($field:ident: $type:ty = $parse:expr)? => { $($row:tt)* })*
    )*) => {
        $($(pub static $name: Setting = Setting { $($row)* ..base!($named_by $name $group, $commands) };)*)*

        /// Every setting, in the order in which help prints the settings.
        pub static TABLE: &[&Setting] = &[$($(&$name),*),*];

        /// All settings with their types. A setting that the command does not take has its default.
        #[derive(Debug, Clone)]
        pub struct Settings {
            /// The settings `HCLOUD_LOAD_BALANCERS_*`. Most of them are defaults for Services that do not have
            /// the corresponding annotation.
            pub load_balancers: LoadBalancerDefaults,
            $($($(pub $field: Sourced<$type>,)?)*)*
        }

        impl Settings {
            pub(super) fn read(resolver: &mut Resolver) -> Settings {
                let mut load_balancers = LoadBalancerDefaults::default();
                $($($(load_balancers.$($default).+ = resolver.optional(&$name, $read);)?)*)*
                Settings {
                    load_balancers,
                    $($($($field: resolver.setting(&$name, $parse),)?)*)*
                }
            }
        }
    };
}

settings! {
    (Group::Hetzner, Command::ALL, by variable)

    // All commands except `lint` require the token. If it is `None` for such a command, a `Problem` reports this.
    HCLOUD_TOKEN token: Option<SecretSource> = token => {
        variables: &[Value(variables::HCLOUD_TOKEN), File(variables::HCLOUD_TOKEN_FILE)],
        kind: ValueKind::Text("TOKEN"),
        help: "Token of the Hetzner Cloud project's API, read & write. Required. The file form is read \
               again whenever the file changes, so a rotated token needs no restart.",
        secret: true,
    }

    HCLOUD_ENDPOINT endpoint: String = parsed(values::url) => {
        kind: ValueKind::Url,
        default: Some("https://api.hetzner.cloud/v1"),
        help: "Base URL of the Hetzner Cloud API.",
    }

    HCLOUD_ALLOW_INSECURE_ENDPOINT allow_insecure_endpoint: bool = parsed(boolean) => {
        own: true,
        default: Some("false"),
        help: "Whether an API on another machine may be reached without TLS (http://): HCLOUD_ENDPOINT, \
               ROBOT_ENDPOINT and the cluster's server. Anybody on the network path can then read the token or \
               password. Profile hcloud only warns.",
    }

    HCLOUD_NETWORK network: Option<NetworkSelector> = parsed(unless_empty(values::network)) => {
        kind: ValueKind::Text("ID|NAME"),
        help: "Private Network of the cluster: a number is its ID, any other text is its name. Nodes get \
               their IP in this Network as InternalIP. Unset: nodes get no InternalIP.",
    }

    HCLOUD_NETWORK_ROUTES_ENABLED network_routes_enabled: bool = parsed(boolean) => {
        default: Some("true"),
        help: "Whether the Network gets a route to the pods of each node. Needs HCLOUD_NETWORK and \
               --cluster-cidr. false leaves all routes unchanged.",
        commands: WITH_ROUTES,
    }

    HCLOUD_NETWORK_DISABLE_ATTACHED_CHECK network_disable_attached_check: bool = parsed(boolean) => {
        default: Some("false"),
        help: "Skip the check at the start (with the metadata service) that this machine is attached to the Network.",
        commands: DAEMON_AND_DOCTOR,
    }

    HCLOUD_METADATA_ENDPOINT metadata_endpoint: Option<String> = parsed(unless_empty(values::url)) => {
        kind: ValueKind::Url,
        help: "For tests: base URL of the metadata service.",
        commands: DAEMON_AND_DOCTOR,
        hidden: true,
    }

    HCLOUD_INSTANCES_ADDRESS_FAMILY address_family: AddressFamily = choice => {
        kind: ValueKind::Choice(&["ipv4", "ipv6", "dualstack", "none"]),
        default: Some("ipv4"),
        help: "Which public addresses of a server become its node's ExternalIP. none: no address.",
    }

    HCLOUD_INSTANCES_INTERNAL_IP_FROM internal_ip_from: InternalIpFrom = choice => {
        kind: ValueKind::Choice(&["network", "kubelet"]),
        default: Some("network"),
        help: "Where the InternalIP of a cloud server's node comes from. network: only from HCLOUD_NETWORK. kubelet: \
               from the kubelet's --node-ip, even when the API does not know the address, e.g. in a VPN; without \
               --node-ip from HCLOUD_NETWORK.",
    }

    // An empty list means that the setting is unset.
    HCLOUD_INSTANCES_INTERNAL_IP_RANGES internal_ip_ranges: Vec<IpNet> = parsed(values::ip_ranges) => {
        kind: ValueKind::List("CIDR"),
        help: "The ranges that must contain the addresses in a node's annotation instance.hetzner.cloud/internal-ip, \
               because the kubelet can write the annotation. Unset: no limit.",
    }

    HCLOUD_INSTANCES_LABEL_PREFIXES label_prefixes: LabelPrefixes = parsed(values::label_prefixes) => {
        kind: ValueKind::List("PREFIX"),
        help: "Which labels of cloud servers become labels of their nodes: DOMAIN/ for all labels of a domain, \
               DOMAIN/NAME for one label. Labels of kubernetes.io, k8s.io and hetzner.cloud are refused, except \
               labels of topology.kubernetes.io and node-role.kubernetes.io that are listed by their whole key. \
               Unset: no label.",
    }

    HCLOUD_INSTANCES_ZONE_LABEL_ENABLED zone_label_enabled: bool = parsed(boolean) => {
        default: Some("true"),
        help: "Whether nodes get the zone labels (topology.kubernetes.io/zone and its older beta form).",
    }

    // A maximum age of zero means that the list of servers is read anew for every decision.
    HCLOUD_SERVER_CACHE_MAX_AGE server_cache_max_age: Duration = parsed(duration) => {
        variables: &[Value(variables::HCLOUD_SERVER_CACHE_MAX_AGE), Older(variables::HCLOUD_SERVER_CACHE_TTL)],
        kind: ValueKind::Duration,
        default: Some("10s"),
        help: "How old a list of servers may be when a decision uses it. A longer time saves API calls \
               (a project has 3600 an hour). 0 requests a new list each time.",
    }

    ROBOT_ENABLED robot_enabled: bool = parsed(boolean) => {
        default: Some("false"),
        help: "Whether nodes may be dedicated servers of the Robot web service. Without ROBOT_USER and ROBOT_PASSWORD \
               their nodes stay unchanged: nothing is looked up, set or deleted.",
    }

    // User and password are set together or not at all when `robot_enabled` is true.
    ROBOT_USER robot_user: Option<SecretSource> = user => {
        variables: &[Value(variables::ROBOT_USER), OptionalFile(variables::ROBOT_USER_FILE)],
        kind: ValueKind::Text("USER"),
        help: "User of the Robot web service (Robot → Settings → Web service and app settings). The file form is read \
               again whenever the file changes; a file that is missing or empty at the start leaves the setting \
               unset. Refused credentials are not tried again for ten minutes, because three failed logins block the \
               IP of this machine.",
        secret: true,
    }

    ROBOT_PASSWORD robot_password: Option<SecretSource> = password => {
        variables: &[Value(variables::ROBOT_PASSWORD), OptionalFile(variables::ROBOT_PASSWORD_FILE)],
        kind: ValueKind::Text("PASSWORD"),
        help: "Password of that user. The file form is read again whenever the file changes; other credentials are \
               tried at once.",
        secret: true,
    }

    ROBOT_ENDPOINT robot_endpoint: String = parsed(values::url) => {
        kind: ValueKind::Url,
        default: Some("https://robot-ws.your-server.de"),
        help: "Base URL of the Robot web service.",
    }

    // The value is never 0, because the parser replaces 0 with the default.
    ROBOT_CACHE_TIMEOUT robot_cache_timeout: Duration = parsed(values::robot_cache_timeout) => {
        kind: ValueKind::Duration,
        default: Some("5m"),
        help: "How old a list of dedicated servers may be. The list is read again at once for a node with an unknown \
               name. The web service allows 200 calls an hour, of which ccm makes at most 180. 0 means 5m.",
    }

    ROBOT_RATE_LIMIT_WAIT_TIME robot_rate_limit_wait_time: Option<Duration> = parsed(values::robot_wait_time) => {
        kind: ValueKind::Duration,
        help: "How long ccm does not call the web service after it reported its rate limit, at most 1h. Unset or 0: \
               as long as the web service says, at most 5m.",
    }

    ROBOT_FORWARD_INTERNAL_IPS robot_forward_internal_ips: bool = parsed(boolean) => {
        default: Some("true"),
        help: "Whether the node of a dedicated server keeps the InternalIPs that its kubelet was given (--node-ip).",
    }

    (Group::Hetzner, WITH_LOAD_BALANCERS, by variable)

    HCLOUD_LOAD_BALANCERS_ENABLED load_balancers_enabled: bool = parsed(boolean) => {
        default: Some("true"),
        help: "Whether Services get load balancers. false leaves all of them unchanged.",
    }

    HCLOUD_LOAD_BALANCERS_TYPE [kind = parsed(values::text)] => {
        kind: ValueKind::Text("TYPE"),
        help: "Type of load balancers whose Service sets no type, e.g. lb21. Unset: a new load balancer is an lb11, an existing one keeps its type.",
    }

    HCLOUD_LOAD_BALANCERS_LOCATION [location = parsed(values::text)] => {
        kind: ValueKind::Text("LOCATION"),
        help: "Location in which load balancers are created, e.g. fsn1. Not together with HCLOUD_LOAD_BALANCERS_NETWORK_ZONE. Unset: the location of most nodes; in profile hcloud the Service must then set it.",
    }

    HCLOUD_LOAD_BALANCERS_NETWORK_ZONE [network_zone = parsed(values::text)] => {
        kind: ValueKind::Text("ZONE"),
        help: "Network zone in which load balancers are created, e.g. eu-central, when the location does not matter.",
    }

    HCLOUD_LOAD_BALANCERS_ALGORITHM_TYPE [algorithm = choice] => {
        kind: ValueKind::Choice(&["round_robin", "least_connections"]),
        help: "Which target gets the next connection. Unset: round_robin; profile hcloud leaves it unchanged.",
    }

    HCLOUD_LOAD_BALANCERS_DISABLE_PUBLIC_NETWORK [network.disable_public_network = parsed(boolean)] => {
        help: "Turn the public interface of load balancers off. Unset: left unchanged.",
    }

    HCLOUD_LOAD_BALANCERS_DISABLE_PRIVATE_INGRESS [network.disable_private_ingress = parsed(boolean)] => {
        help: "Leave the load balancers' private IPs out of the status of Services.",
    }

    HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP [network.use_private_ip = parsed(boolean)] => {
        help: "Reach the nodes by their private IPs. Needs HCLOUD_NETWORK.",
    }

    HCLOUD_LOAD_BALANCERS_PRIVATE_SUBNET_IP_RANGE [network.private_subnet = parsed(ip_range)] => {
        kind: ValueKind::Text("CIDR"),
        help: "Subnet of the private Network to which load balancers are attached, e.g. 10.0.1.0/24.",
    }

    HCLOUD_LOAD_BALANCERS_PRIVATE_IPV4_RANGES [permitted.private_ipv4_ranges = parsed(values::ipv4_ranges)] => {
        kind: ValueKind::List("CIDR"),
        help: "Addresses of the private Network that Services may ask for by the annotation private-ipv4, e.g. 10.0.1.0/24,10.0.2.8/29. A load balancer that has another address keeps it. Unset: every address of a subnet.",
    }

    HCLOUD_LOAD_BALANCERS_DISABLE_IPV6 [network.disable_ipv6 = parsed(boolean)] => {
        help: "Leave the load balancers' IPv6 addresses out of the status of Services.",
    }

    HCLOUD_LOAD_BALANCERS_USES_PROXYPROTOCOL [uses_proxyprotocol = parsed(boolean)] => {
        help: "Send the PROXY protocol to the targets. Unset: no; profile hcloud leaves it unchanged.",
    }

    HCLOUD_LOAD_BALANCERS_HEALTH_CHECK [health_check.kind = choice] => {
        kind: ValueKind::Choice(&["kube-proxy"]),
        help: "kube-proxy: nodes are checked by GET /healthz on port 10256, where kube-proxy answers 503 when its node is about to be deleted. This is for ports of Services with externalTrafficPolicy: Cluster that set no other check. The load balancers must reach that port: ccm help services. Unset: the node port is checked.",
    }

    HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_INTERVAL [health_check.interval_s = parsed(whole_seconds)] => {
        kind: ValueKind::Duration,
        help: "Interval of health checks, in whole seconds. Unset: 15s; profile hcloud leaves it unchanged.",
    }

    HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_TIMEOUT [health_check.timeout_s = parsed(whole_seconds)] => {
        kind: ValueKind::Duration,
        help: "Timeout of a health check, in whole seconds. Unset: 10s; profile hcloud leaves it unchanged.",
    }

    HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_RETRIES [health_check.retries = parsed(count)] => {
        kind: ValueKind::Integer,
        help: "How many checks in a row change the health of a target. Unset: 3; profile hcloud leaves it unchanged.",
    }

    HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_NODE_PORT [health_check.node_port = parsed(boolean)] => {
        help: "Whether targets of a Service with externalTrafficPolicy: Local are checked on its health check node port. Unset: yes; profile hcloud: no.",
    }

    HCLOUD_LOAD_BALANCERS_LABELS [labels = parsed(Labels::parse)] => {
        kind: ValueKind::List("KEY=VALUE"),
        help: "Labels of all load balancers of Services, e.g. team=web,cost=42. A label stays on the load balancer \
               when its key is removed.",
    }

    HCLOUD_LOAD_BALANCERS_PRIMARY_IP_SELECTOR [permitted.primary_ip_selector = parsed(Selector::parse)] => {
        kind: ValueKind::Text("SELECTOR"),
        help: "Labels of the Primary IPs that Services may claim, e.g. use=services; written like a selector of kubectl -l. Unset: they may claim any free Primary IP of the project.",
    }

    HCLOUD_LOAD_BALANCERS_CERTIFICATE_SELECTOR [permitted.certificate_selector = parsed(Selector::parse)] => {
        kind: ValueKind::Text("SELECTOR"),
        help: "Labels of the certificates of the project that Services may use besides those of their own namespace, e.g. use=services; written like a selector of kubectl -l. Unset: they may use all that do not belong to another namespace or cluster.",
    }

    HCLOUD_LOAD_BALANCERS_CERTIFICATE_DOMAINS [permitted.certificate_domains = parsed(CertificateDomains::parse)] => {
        kind: ValueKind::List("DOMAIN"),
        help: "Domains for which Services may have managed certificates, e.g. example.com, each with its subdomains. none: managed certificates are turned off. Unset: all domains.",
    }

    (Group::Cluster, Command::ALL, by flag)

    // The files are merged, and the first one wins. An empty list means the in-cluster
    // configuration, or else `~/.kube/config`.
    KUBECONFIG kubeconfig: Vec<PathBuf> = kubeconfig => {
        flags: &["kubeconfig"],
        variables: &[Value(variables::KUBECONFIG)],
        kind: ValueKind::Path,
        help: "How to reach the cluster; the variable may list several files, separated by colons. \
               If neither flag nor variable is set: the service account of the pod, else ~/.kube/config.",
    }

    CONTEXT context: Option<String> = parsed(unless_empty(values::text)) => {
        flags: &["context"],
        kind: ValueKind::Text("CONTEXT"),
        help: "Context of the kubeconfig. Unset: its current-context.",
    }

    MASTER master: Option<String> = parsed(unless_empty(values::url)) => {
        flags: &["master"],
        kind: ValueKind::Url,
        help: "URL of the Kubernetes API server, instead of the one in the kubeconfig or, in a pod, the \
               cluster's own. The credentials of the kubeconfig, in a pod the token of the service \
               account, are sent to this URL: use only an address of the same cluster.",
    }

    SETTINGS_FROM settings_from: Option<WorkloadName> = parsed(WorkloadName::parse) => {
        flags: &["settings-from"],
        kind: ValueKind::Text("NAMESPACE/deployment/NAME"),
        help: "Use the settings of the daemon that runs there (or NAMESPACE/daemonset/NAME): its \
               arguments and variables. Your own settings win. Values in Secrets and ConfigMaps are not read, \
               but reported. Tokens, API addresses and output settings are always your own. Unset, and outside a pod: \
               the settings of the only ccm or hcloud-cloud-controller-manager in kube-system. none: same as \
               --own-settings.",
        commands: TAKE_SETTINGS,
    }

    OWN_SETTINGS own_settings: bool = parsed(boolean) => {
        flags: &["own-settings"],
        default: Some("false"),
        help: "Do not look for the daemon's settings: a setting that neither you nor the daemon of --settings-from \
               sets has its default. Without this flag nothing is written while a setting of the daemon is not known.",
        commands: TAKE_SETTINGS,
    }

    (Group::Controllers, DAEMON, by flag)

    CLOUD_PROVIDER cloud_provider: Profile = choice => {
        flags: &["cloud-provider"],
        kind: ValueKind::Choice(&["ccm-from-scratch", "hcloud"]),
        default: Some("ccm-from-scratch"),
        help: "Profile: which provider IDs and labels are written. hcloud replaces \
               hcloud-cloud-controller-manager. A node keeps its provider ID, and a node of the other \
               profile is ignored: do not change the profile of a running cluster.",
        commands: Command::ALL,
    }

    CONTROLLERS controllers: Vec<Controller> = parsed(values::controllers) => {
        flags: &["controllers"],
        kind: ValueKind::List("NAME"),
        default: Some("*"),
        help: "Which controllers run: NAME runs it, -NAME does not, * runs all that are not named. \
               Names: cloud-node, cloud-node-lifecycle, service, route, or their canonical names.",
    }

    // The value is never 0, because the parser refuses 0.
    NODE_SYNC_INTERVAL node_sync_interval: Duration = parsed(interval) => {
        flags: &["node-sync-interval"],
        kind: ValueKind::Duration,
        default: Some("5s"),
        help: "How often ccm polls for new nodes: the longest time that a new node waits.",
    }

    NODE_STATUS_UPDATE_FREQUENCY node_status_update_frequency: Duration = parsed(interval) => {
        flags: &["node-status-update-frequency"],
        kind: ValueKind::Duration,
        default: Some("5m"),
        help: "How often addresses and labels of all nodes are compared with their servers. With more than 500 \
               servers in the project, this is less often: these lists use at most 120 calls an hour, one for each \
               50 servers.",
    }

    NODE_MONITOR_PERIOD node_monitor_period: Duration = parsed(interval) => {
        flags: &["node-monitor-period"],
        kind: ValueKind::Duration,
        default: Some("5s"),
        help: "How often ccm polls for nodes that are not ready.",
    }

    NODE_DELETION_GUARD node_deletion_guard: bool = parsed(boolean) => {
        flags: &["node-deletion-guard"],
        default: Some("true"),
        help: "Delete a node only while the token sees the server of another node, because the token of another \
               project sees none of these servers. Turn it off only for clusters that may have a single node.",
        commands: &[Run, NodeList, NodeInspect, NodeSync],
    }

    SERVICE_SYNC_INTERVAL service_sync_interval: Duration = parsed(interval) => {
        flags: &["service-sync-interval"],
        kind: ValueKind::Duration,
        default: Some("5s"),
        help: "How often ccm polls for changed Services: the longest time that a new Service waits.",
    }

    LOAD_BALANCER_CLASS load_balancer_class: Option<String> = parsed(unless_empty(values::class)) => {
        flags: &["load-balancer-class"],
        kind: ValueKind::Text("CLASS"),
        help: "Only Services with this spec.loadBalancerClass get a load balancer. Unset: only Services without a \
               class. The load balancers of all other Services stay unchanged.",
        commands: WITH_LOAD_BALANCERS,
    }

    SERVICE_SELECTOR service_selector: Option<Selector> = parsed(unless_empty(Selector::parse)) => {
        flags: &["service-selector"],
        kind: ValueKind::Text("SELECTOR"),
        help: "Only Services whose labels match get a load balancer, e.g. lb!=metallb; written like a selector of kubectl \
               -l. The load balancers of all other Services stay unchanged, with ports, targets and addresses, until \
               these Services match again.",
        commands: WITH_LOAD_BALANCERS,
    }

    LOAD_BALANCER_RESYNC_PERIOD load_balancer_resync_period: Duration = parsed(interval) => {
        flags: &["load-balancer-resync-period"],
        kind: ValueKind::Duration,
        default: Some("5m"),
        help: "How often load balancers are compared when their Service did not change. Changes made \
               by hand are then undone. With more than 200 load balancers, this is less often: these lists use at \
               most 60 calls an hour (ccm status shows how often).",
    }

    CONCURRENT_NODE_SYNCS concurrent_node_syncs: u32 = parsed(count) => {
        flags: &["concurrent-node-syncs"],
        kind: ValueKind::Integer,
        default: Some("5"),
        help: "How many nodes are written at the same time, 100 at most: new nodes, taints of nodes \
               whose server is off, conditions of routes.",
        commands: &[Run, NodeSync, RouteSync],
    }

    CONCURRENT_SERVICE_SYNCS concurrent_service_syncs: u32 = parsed(count) => {
        flags: &["concurrent-service-syncs"],
        kind: ValueKind::Integer,
        default: Some("5"),
        help: "How many requests for load balancers run at the same time.",
        commands: &[Run, LbSync],
    }

    CLUSTER_NAME cluster_name: String = parsed(values::cluster_name) => {
        flags: &["cluster-name"],
        kind: ValueKind::Text("NAME"),
        default: Some("kubernetes"),
        help: "Name of the cluster, for people: the first part of the names of load balancers. Two \
               clusters in one project may have the same name: the UID of their Service \
               default/kubernetes identifies them.",
        commands: WITH_LOAD_BALANCERS,
    }

    // An empty list means that the setting is unset.
    CLUSTER_CIDR cluster_cidrs: Vec<IpNet> = parsed(values::cidrs) => {
        flags: &["cluster-cidr"],
        kind: ValueKind::List("CIDR"),
        help: "Address ranges of the cluster's pods, the same as for kube-controller-manager. Routes of the \
               Network within these ranges are managed, all other routes are never changed. Unset: the route \
               controller does not run.",
        commands: WITH_ROUTES,
    }

    CONFIGURE_CLOUD_ROUTES configure_cloud_routes: bool = parsed(boolean) => {
        flags: &["configure-cloud-routes"],
        default: Some("true"),
        help: "false turns the route controller off, as HCLOUD_NETWORK_ROUTES_ENABLED=false does.",
        commands: WITH_ROUTES,
    }

    ROUTE_RECONCILIATION_PERIOD route_reconciliation_period: Duration = parsed(interval) => {
        flags: &["route-reconciliation-period"],
        kind: ValueKind::Duration,
        default: Some("30s"),
        help: "Shortest time between two comparisons of the Network's routes. They are compared when \
               nodes change, and every five minutes.",
    }

    DELETE_ORPHANED_LOAD_BALANCERS delete_orphaned_load_balancers: bool = parsed(boolean) => {
        flags: &["delete-orphaned-load-balancers"],
        default: Some("false"),
        help: "Delete load balancers of this cluster whose Service does not exist, at each resync. Load \
               balancers with delete protection stay. false: they are only reported; ccm lb list shows them.",
    }

    DELETE_ORPHANS delete_orphans: bool = parsed(boolean) => {
        flags: &["delete-orphans"],
        default: Some("false"),
        help: "Delete load balancers of this cluster whose Service does not exist, and do nothing else. \
               They are listed, and you confirm.",
        commands: &[LbSync],
    }

    YES yes: bool = parsed(boolean) => {
        flags: &["yes"],
        default: Some("false"),
        help: "With --delete-orphans, lb adopt and lb release: do not ask.",
        commands: &[LbSync, LbAdopt, LbRelease],
    }

    (Group::LeaderElection, DAEMON, by flag)

    LEADER_ELECT leader_elect: bool = parsed(boolean) => {
        flags: &["leader-elect"],
        default: Some("true"),
        help: "When several daemons run, only the holder of the Lease works, and the others wait. \
               hcloud-cloud-controller-manager uses the same Lease. false: no Lease is read or written.",
        commands: DAEMON_AND_DOCTOR,
    }

    // When `leader_elect` is true, a check in `resolve` has made sure that the lease duration, the renew deadline and
    // the retry period fit together.
    LEASE_DURATION lease_duration: Duration = parsed(interval) => {
        flags: &["leader-elect-lease-duration"],
        kind: ValueKind::Duration,
        default: Some("15s"),
        help: "How long the others wait for a leader that does not renew its Lease. Must be longer than the \
               renew deadline, and not shorter than the retry period plus 8s (the longest write).",
    }

    RENEW_DEADLINE renew_deadline: Duration = parsed(interval) => {
        flags: &["leader-elect-renew-deadline"],
        kind: ValueKind::Duration,
        default: Some("10s"),
        help: "A leader that could not renew its Lease for this time exits with code 1. Must be longer \
               than 1.2 retry periods.",
    }

    RETRY_PERIOD retry_period: Duration = parsed(interval) => {
        flags: &["leader-elect-retry-period"],
        kind: ValueKind::Duration,
        default: Some("2s"),
        help: "How often the leader renews its Lease, and the others read it.",
    }

    LEASE_NAME lease_name: String = parsed(values::object_name) => {
        flags: &["leader-elect-resource-name"],
        kind: ValueKind::Text("NAME"),
        default: Some("cloud-controller-manager"),
        help: "Name of the Lease.",
        commands: DAEMON_AND_DOCTOR,
    }

    LEASE_NAMESPACE lease_namespace: String = parsed(values::namespace) => {
        flags: &["leader-elect-resource-namespace"],
        kind: ValueKind::Text("NAME"),
        default: Some("kube-system"),
        help: "Namespace of the Lease.",
        commands: DAEMON_AND_DOCTOR,
    }

    (Group::Controllers, DAEMON, by flag)

    ONCE once: bool = parsed(boolean) => {
        flags: &["once"],
        default: Some("false"),
        help: "Run every enabled controller once, then exit: for cron and CronJobs.",
    }

    DRY_RUN dry_run: bool = parsed(boolean) => {
        own: true,
        flags: &["dry-run"],
        default: Some("false"),
        help: "Print the planned changes. Write nothing to either API.",
        commands: PLANNING,
    }

    (Group::Output, Command::ALL, by flag)

    DETAILED_EXITCODE detailed_exitcode: bool = parsed(boolean) => {
        flags: &["detailed-exitcode"],
        default: Some("false"),
        help: "With --dry-run: exit code 3 instead of 0 when changes are pending.",
        commands: SYNCS,
    }

    NAMESPACE namespace: Option<String> = parsed(unless_empty(values::text)) => {
        flags: &["namespace"],
        short: Some('n'),
        kind: ValueKind::Text("NAMESPACE"),
        help: "Namespace of Services that are named without a namespace. Unset: the namespace of the kubeconfig's \
               context. lb list shows only this namespace.",
        commands: LOAD_BALANCERS,
    }

    // The flag `--all-namespaces` can't be combined with `--namespace`.
    ALL_NAMESPACES all_namespaces: bool = parsed(boolean) => {
        flags: &["all-namespaces"],
        short: Some('A'),
        default: Some("false"),
        help: "List Services of all namespaces. lb list without -n does the same.",
        commands: &[LbList],
    }

    SELECTOR selector: Option<Selector> = parsed(unless_empty(Selector::parse)) => {
        flags: &["selector"],
        short: Some('l'),
        kind: ValueKind::Text("SELECTOR"),
        help: "List only objects with these labels, e.g. app=web,tier in (a,b),!old.",
        commands: &[NodeList, LbList],
    }

    SORT_BY sort_by: Option<String> = parsed(unless_empty(values::text)) => {
        flags: &["sort-by"],
        kind: ValueKind::Text("COLUMN"),
        help: "Sort by any heading of -o wide, numbers by their value.",
        commands: LISTS,
    }

    NO_HEADERS no_headers: bool = parsed(boolean) => {
        flags: &["no-headers"],
        default: Some("false"),
        help: "Leave the line of headings out.",
        commands: LISTS,
    }

    // The flag `--watch` can't be combined with the formats JSON and YAML.
    WATCH watch: bool = parsed(boolean) => {
        flags: &["watch"],
        short: Some('w'),
        default: Some("false"),
        help: "Repeat the output until Ctrl-C (exit code 130): the cluster is read every 5 seconds, the Cloud API \
               once a minute. A terminal is redrawn; elsewhere a list prints the rows that changed, and status prints \
               each screen with its time.",
        commands: &[NodeList, LbList, RouteList, Status],
    }

    FILES files: Vec<String> = parsed(|text| Ok(text.split(',').map(str::to_owned).collect())) => {
        flags: &["filename"],
        short: Some('f'),
        kind: ValueKind::List("FILE"),
        help: "Manifests to check, YAML or JSON, each at most 8 MiB; - is stdin. Folders are not read.",
        commands: &[Lint],
    }

    // The format `name` is refused for commands that are not lists.
    OUTPUT output: Output = output => {
        flags: &["output"],
        short: Some('o'),
        kind: ValueKind::Choice(&["table", "wide", "name", "json", "yaml"]),
        default: Some("table"),
        help: "Output format on stdout. json and yaml are stable, for scripts. name: only the names in a list, e.g. \
               service/default/web.",
        commands: CLIENTS,
    }

    COLOR color: Color = choice => {
        own: true,
        flags: &["color"],
        kind: ValueKind::Choice(&["auto", "always", "never"]),
        default: Some("auto"),
        help: "Whether text is coloured; json, yaml and the log never are. auto: at a terminal, unless NO_COLOR is set or \
               TERM is dumb.",
    }

    LOG_FORMAT log_format: LogFormat = choice => {
        flags: &["log-format", "logging-format"],
        kind: ValueKind::Choice(&["text", "json"]),
        default: Some("text"),
        help: "Format of the log on stderr: lines for people, or one JSON object for each line.",
    }

    VERBOSITY verbosity: u32 = parsed(values::verbosity) => {
        called: "verbosity",
        flags: &["v"],
        short: Some('v'),
        kind: ValueKind::Integer,
        default: Some("0"),
        help: "Log level: 0 logs changes and failures, 4 adds every call to both APIs. Secrets are never \
               logged.",
    }

    DEBUG debug: bool = parsed(boolean) => {
        variables: &[Value(variables::HCLOUD_DEBUG)],
        default: Some("false"),
        help: "Log every request to the Hetzner Cloud API and its answer, with secrets redacted.",
    }

    METRICS_ENABLED metrics_enabled: bool = parsed(boolean) => {
        variables: &[Value(variables::HCLOUD_METRICS_ENABLED)],
        default: Some("true"),
        help: "Serve /metrics for Prometheus. false removes only /metrics: the probes stay.",
        commands: DAEMON,
    }

    // The address of the health server. `[::]` means every address of the machine, IPv4 too. Port 0 means any free
    // port. `None` means no server.
    METRICS_ADDRESS metrics_address: Option<SocketAddr> = parsed(unless_empty(values::listen_address)) => {
        flags: &["metrics-address"],
        variables: &[Value(variables::HCLOUD_METRICS_ADDRESS)],
        kind: ValueKind::Text("[IP]:PORT"),
        default: Some(":8233"),
        help: "Address on which the daemon serves /healthz, /livez, /readyz and /metrics. :PORT listens on every \
               address of the machine. An empty flag (--metrics-address=) turns the server off; an empty variable \
               does not.",
        commands: DAEMON,
    }

    (Group::Controllers, Command::ALL, by flag)

    TEST_TIME_SCALE test_time_scale: f64 = parsed(values::scale) => {
        variables: &[Value(variables::CCM_TEST_TIME_SCALE)],
        kind: ValueKind::Number,
        default: Some("1"),
        help: "For tests: a factor on every wait, so that an hour can pass in a second.",
        hidden: true,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_variable_is_in_a_row() {
        let rows = TABLE.iter().flat_map(|setting| setting.variables);
        let names: BTreeSet<&str> = rows.map(|variable| variable.name()).collect();
        let all = variables::ALL.iter().map(|variable| variable.text());
        assert_eq!(names, all.collect());
    }

    /// Every flag, variable and name by which a row can be found occurs once, and every help text ends like a sentence.
    #[test]
    fn rows_are_distinct_and_whole() {
        let mut seen: BTreeSet<String> = BTreeSet::new();
        for setting in TABLE {
            let variables = setting.variables.iter().map(|variable| variable.name());
            for key in setting.flags.iter().copied().chain(variables) {
                assert!(seen.insert(key.to_owned()), "{key} is there twice");
            }
            assert!(
                seen.insert(setting.name()) || setting.flags.contains(&setting.name().as_str())
            );
            assert!(setting.help.ends_with('.'), "{}", setting.name());
            assert!(!setting.commands.is_empty(), "{}", setting.name());
            assert!(!setting.flags.is_empty() || !setting.variables.is_empty());
            let boolean = setting.kind == ValueKind::Boolean;
            let is_flag = !setting.flags.is_empty();
            assert!(!boolean || !is_flag || setting.default.is_some(), "{}", setting.name());
        }
    }
}
