//! The table of settings. Each setting is one row. The help prints the settings in the order of the rows.
//!
//! A row contains the texts for users, a field of [`Settings`] with its type, and the function that parses the value.
//! The values of settings for load balancers are fields of `provider::LoadBalancerDefaults` instead.

use super::effective::{Resolver, choice, kubeconfig, output, parsed, password, token, user};
use super::setting::Command::{
    Doctor, LbAdopt, LbInspect, LbList, LbRelease, LbReplace, LbSync, Lint, NodeInspect, NodeList,
    NodeRelabel, NodeSync, RouteList, RouteSync, Run, Status,
};
use super::setting::Variable::{File, Older, OptionalFile, Value};
use super::setting::{Command, Group, Setting, ValueKind};
use super::values::{self, Color, Controller, LogFormat, Output, WorkloadName, unless_empty};
use crate::http::SecretSource;
use crate::provider::{
    AddressFamily, CertificateDomains, ForeignNodes, InternalIpFrom, LabelPrefixes, Labels,
    LoadBalancerDefaults, NetworkSelector, Profile, Sourced, ZoneLabel, variables,
};
use crate::text::duration::{departing_delay, duration, interval, overlap, whole_seconds};
use crate::text::selector::Selector;
use crate::text::{boolean, count, ip_range};
use ipnet::IpNet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

const DAEMON: &[Command] = &[Run];

/// The daemon (`run`), and `doctor` and `status`, which check the things that the daemon needs at its start: the Lease,
/// and whether this machine is attached to the private Network.
const DAEMON_AND_DOCTOR: &[Command] = &[Run, Doctor, Status];

/// All commands except the daemon.
const CLIENTS: &[Command] = Command::ALL.split_at(1).1;

/// The commands that can use the settings of the cluster's daemon (`--settings-from`). `config` is not among them: it
/// makes no API call, so it can't read these settings from the cluster.
const TAKE_SETTINGS: &[Command] = CLIENTS.split_at(1).1;

const SYNCS: &[Command] = &[NodeSync, NodeRelabel, LbSync, RouteSync];

/// The commands that plan changes and can also make these changes.
const PLANNING: &[Command] =
    &[Run, NodeSync, NodeRelabel, LbSync, LbAdopt, LbRelease, LbReplace, RouteSync];

/// The commands that plan load balancers.
const WITH_LOAD_BALANCERS: &[Command] =
    &[Run, LbList, LbInspect, LbSync, LbAdopt, LbRelease, LbReplace, Doctor, Status, Lint];

/// The commands that plan load balancers or show which nodes can be their targets.
const WITH_TARGETS: &[Command] = &[
    Run,
    NodeList,
    NodeInspect,
    NodeSync,
    LbList,
    LbInspect,
    LbSync,
    LbAdopt,
    LbRelease,
    LbReplace,
    Doctor,
    Status,
    Lint,
];

/// The commands for which `--controllers` matters: the daemon, and the commands that show or do the work of
/// `node-csr-approval`. This controller runs only when `--controllers` names it.
const WITH_CONTROLLERS: &[Command] = &[Run, NodeInspect, NodeSync];

/// The commands that plan routes.
const WITH_ROUTES: &[Command] = &[Run, RouteList, RouteSync];

const LOAD_BALANCERS: &[Command] = &[LbList, LbInspect, LbSync, LbAdopt, LbRelease, LbReplace];

const LISTS: &[Command] = &[NodeList, LbList, RouteList];

/// Returns the setting with this long flag, or `None` when no setting has it. `name` has no dashes.
pub(super) fn by_flag(name: &str) -> Option<&'static Setting> {
    TABLE.iter().copied().find(|setting| setting.flags.contains(&name))
}

pub(super) fn by_letter(letter: char) -> Option<&'static Setting> {
    TABLE.iter().copied().find(|setting| setting.short == Some(letter))
}

/// Creates a row of the table of settings that has only its group (the heading in `--help`) and its commands. When the
/// first word is `variable`, the row also has an environment variable with the name of the row. When the first word is
/// `flag`, the row has no environment variable.
macro_rules! base {
    (variable $name:ident $group:expr, $commands:expr) => {
        Setting { variables: &[Value(variables::$name)], ..Setting::of($group, $commands) }
    };
    (flag $name:ident $group:expr, $commands:expr) => {
        Setting::of($group, $commands)
    };
}

/// Creates a [`Setting`] constant for each row of the table, and lists these constants in [`TABLE`].
///
/// - A row has the form `NAME field: Type = function => { … }`. The function parses the value, and `field` becomes a
///   field of [`Settings`]. The other data of the setting are in the braces.
/// - A row of the form `NAME [field = function] => { … }` sets a field of [`LoadBalancerDefaults`] instead.
/// - The comment above a row is the help text of the setting.
/// - A line in parentheses applies to all rows below it, up to the next such line. It has the group (the heading in
///   `--help`), the commands for rows that list no commands themselves, and the word `variable` when each row is named
///   after its environment variable, or else `flag`.
macro_rules! settings {
    ($(($group:expr, $commands:expr, by $named_by:ident)
        $(
            $(#[doc = $help:literal])+
            $name:ident $([$($default:ident).+ = $read:expr])? $($field:ident: $type:ty = $parse:expr)? => { $($row:tt)* }
        )*
    )*) => {
        $($(
            $(#[doc = $help])+
            pub static $name: Setting = Setting {
                $($row)*
                ..base!($named_by $name $group, $commands)
            };
        )*)*

        /// All settings, in the order in which help prints them.
        pub static TABLE: &[&Setting] = &[$($(&$name),*),*];

        /// What each setting of [`TABLE`] does, its unit and its limits, in whole sentences. The table of `ccm help settings`
        /// is written from these texts. The program reads them from that table, so that they are in it only once.
        pub const MEANINGS: &[&str] = &[$($(concat!($($help),+).trim_ascii_start()),*),*];

        /// The values of all settings. A setting that the present command does not read has its default.
        #[derive(Debug, Clone)]
        pub struct Settings {
            /// The settings `HCLOUD_LOAD_BALANCERS_*`. Most of them are defaults for Services without the corresponding
            /// annotation.
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

    // When a command other than `lint` has no token, this field is `None`, and the list of problems says so.
    /// API token of the Hetzner Cloud project, with the permission to read and write. It is required. The file in
    /// HCLOUD_TOKEN_FILE is read again whenever it changes, so a rotated token needs no restart.
    HCLOUD_TOKEN token: Option<SecretSource> = token => {
        variables: &[Value(variables::HCLOUD_TOKEN), File(variables::HCLOUD_TOKEN_FILE)],
        kind: ValueKind::Text("TOKEN"),
        secret: true,
    }

    /// Base URL of the Hetzner Cloud API.
    HCLOUD_ENDPOINT endpoint: String = parsed(values::url) => {
        kind: ValueKind::Url,
        default: Some("https://api.hetzner.cloud/v1"),
    }

    /// Whether APIs on other machines may be reached without TLS (http://). This applies to HCLOUD_ENDPOINT,
    /// ROBOT_ENDPOINT and the cluster's API server. Anybody on the network path can then read the token or password.
    /// With --cloud-provider=hcloud, the value false only causes a warning.
    HCLOUD_ALLOW_INSECURE_ENDPOINT allow_insecure_endpoint: bool = parsed(boolean) => {
        own: true,
        default: Some("false"),
    }

    /// Private Network of the cluster. A number is its ID, and any other text is its name. The IP of a server in this
    /// Network becomes the InternalIP of its node. Without this setting, no node gets an InternalIP from a Network.
    HCLOUD_NETWORK network: Option<NetworkSelector> = parsed(unless_empty(values::network)) => {
        kind: ValueKind::Text("ID|NAME"),
    }

    /// Whether the Network gets a route to the pods of each node. This needs HCLOUD_NETWORK and --cluster-cidr. With
    /// false, all routes stay unchanged.
    HCLOUD_NETWORK_ROUTES_ENABLED network_routes_enabled: bool = parsed(boolean) => {
        default: Some("true"),
        commands: WITH_ROUTES,
    }

    /// Whether to skip the check at the start that this machine is attached to HCLOUD_NETWORK. The check asks the
    /// metadata service of the server.
    HCLOUD_NETWORK_DISABLE_ATTACHED_CHECK network_disable_attached_check: bool = parsed(boolean) => {
        default: Some("false"),
        commands: DAEMON_AND_DOCTOR,
    }

    /// For tests: base URL of the metadata service.
    HCLOUD_METADATA_ENDPOINT metadata_endpoint: Option<String> = parsed(unless_empty(values::url)) => {
        kind: ValueKind::Url,
        commands: DAEMON_AND_DOCTOR,
        hidden: true,
    }

    /// Which public addresses of a server become the ExternalIPs of its node. The value dualstack means IPv4 and IPv6.
    /// With none, the node gets no ExternalIP.
    HCLOUD_INSTANCES_ADDRESS_FAMILY address_family: AddressFamily = choice => {
        kind: ValueKind::Choice(&["ipv4", "ipv6", "dualstack", "none"]),
        default: Some("ipv4"),
    }

    /// Where the InternalIP of a cloud server's node comes from. With network, it is only the server's IP in
    /// HCLOUD_NETWORK. With kubelet, it is the private IP of the kubelet's --node-ip, even when the API does not know
    /// this IP, e.g. in a VPN. Without --node-ip, it is the IP in HCLOUD_NETWORK.
    HCLOUD_INSTANCES_INTERNAL_IP_FROM internal_ip_from: InternalIpFrom = choice => {
        kind: ValueKind::Choice(&["network", "kubelet"]),
        default: Some("network"),
    }

    // When the setting is unset, the list is empty, and the annotation `instance.hetzner.cloud/internal-ip` can contain
    // any address.
    /// The ranges that must contain the addresses in a node's annotation instance.hetzner.cloud/internal-ip. The limit
    /// is useful because a kubelet can write this annotation. Without this setting, there is no limit.
    HCLOUD_INSTANCES_INTERNAL_IP_RANGES internal_ip_ranges: Vec<IpNet> = parsed(values::ip_ranges) => {
        kind: ValueKind::List("CIDR"),
    }

    /// Which labels of cloud servers become labels of their nodes. DOMAIN/ stands for all labels of a domain, and
    /// DOMAIN/NAME for one label. Labels of kubernetes.io, k8s.io and hetzner.cloud are refused, except labels of
    /// topology.kubernetes.io and node-role.kubernetes.io that are listed by their whole key. By default, nodes get no
    /// labels of their servers.
    HCLOUD_INSTANCES_LABEL_PREFIXES label_prefixes: LabelPrefixes = parsed(values::label_prefixes) => {
        kind: ValueKind::List("PREFIX"),
    }

    /// Whether nodes get the zone labels (topology.kubernetes.io/zone and its older beta form).
    HCLOUD_INSTANCES_ZONE_LABEL_ENABLED zone_label_enabled: bool = parsed(boolean) => { default: Some("true"), }

    // `None` means that the setting is unset. The default then depends on `--cloud-provider`.
    /// Which zone label a new node gets: datacenter, e.g. nbg1-dc3, or location, e.g. nbg1. The default is location,
    /// and with --cloud-provider=hcloud datacenter. Nodes that are initialised already keep their label, but ccm node
    /// relabel can change it.
    HCLOUD_INSTANCES_ZONE_LABEL zone_label: Option<ZoneLabel> = |candidate| choice(candidate).map(Some) => {
        kind: ValueKind::Choice(&["datacenter", "location"]),
    }

    // Zero means that a new list of servers is requested each time that one is needed.
    /// How old a list of servers may be when a decision uses it. A longer time saves API calls, of which a project has
    /// 3600 an hour. With 0, a new list is requested each time.
    HCLOUD_SERVER_CACHE_MAX_AGE server_cache_max_age: Duration = parsed(duration) => {
        variables: &[Value(variables::HCLOUD_SERVER_CACHE_MAX_AGE), Older(variables::HCLOUD_SERVER_CACHE_TTL)],
        kind: ValueKind::Duration,
        default: Some("10s"),
    }

    /// Whether nodes may be dedicated servers, which the Robot web service lists. Without ROBOT_USER and
    /// ROBOT_PASSWORD, the nodes of dedicated servers stay unchanged: nothing is looked up, set or deleted.
    ROBOT_ENABLED robot_enabled: bool = parsed(boolean) => { default: Some("false"), }

    // When `robot_enabled` is true, user and password are either both set or both unset. Otherwise the module `resolve`
    // reports a problem.
    /// User of the Robot web service (in Robot: Settings → Web service and app settings). The file in ROBOT_USER_FILE
    /// is read again whenever it changes; a file that is missing or empty at the start counts as not set. Refused
    /// credentials are not tried again for ten minutes, because three failed logins block the IP of this machine.
    ROBOT_USER robot_user: Option<SecretSource> = user => {
        variables: &[Value(variables::ROBOT_USER), OptionalFile(variables::ROBOT_USER_FILE)],
        kind: ValueKind::Text("USER"),
        secret: true,
    }

    /// Password of the user in ROBOT_USER. The file in ROBOT_PASSWORD_FILE is read again whenever it changes.
    /// Credentials that differ from refused ones are tried at once.
    ROBOT_PASSWORD robot_password: Option<SecretSource> = password => {
        variables: &[Value(variables::ROBOT_PASSWORD), OptionalFile(variables::ROBOT_PASSWORD_FILE)],
        kind: ValueKind::Text("PASSWORD"),
        secret: true,
    }

    /// Base URL of the Robot web service.
    ROBOT_ENDPOINT robot_endpoint: String = parsed(values::url) => {
        kind: ValueKind::Url,
        default: Some("https://robot-ws.your-server.de"),
    }

    // The value is never 0, because the parser replaces 0 by the default.
    /// How old a list of dedicated servers may be when a decision uses it. For a node with an unknown name, a new list
    /// is read at once. The web service allows 200 calls an hour, of which ccm makes at most 180. The value 0 means 5m.
    ROBOT_CACHE_TIMEOUT robot_cache_timeout: Duration = parsed(values::robot_cache_timeout) => {
        kind: ValueKind::Duration,
        default: Some("5m"),
    }

    /// How long ccm makes no calls to the Robot web service after it reported that its rate limit is used up, at most
    /// 1h. By default, and with 0, ccm waits as long as the web service says, at most 5m.
    ROBOT_RATE_LIMIT_WAIT_TIME robot_rate_limit_wait_time: Option<Duration> = parsed(values::robot_wait_time) => {
        kind: ValueKind::Duration,
    }

    /// Whether the node of a dedicated server keeps the InternalIPs that its kubelet was given (--node-ip).
    ROBOT_FORWARD_INTERNAL_IPS robot_forward_internal_ips: bool = parsed(boolean) => { default: Some("true"), }

    (Group::Hetzner, WITH_LOAD_BALANCERS, by variable)

    /// Whether Services get load balancers. With false, all load balancers stay unchanged.
    HCLOUD_LOAD_BALANCERS_ENABLED load_balancers_enabled: bool = parsed(boolean) => { default: Some("true"), }

    /// Type of load balancers whose Service names no type, e.g. lb21. With auto, ccm chooses the cheapest type that fits,
    /// and a larger one before a limit is hit (see ccm help services). Without this setting, a new load balancer gets the
    /// cheapest type, and an existing one keeps its type.
    HCLOUD_LOAD_BALANCERS_TYPE [kind = parsed(values::text)] => { kind: ValueKind::Text("TYPE"), }

    /// Largest type that load balancers can get, e.g. lb21, whatever their Services ask for. An existing load balancer
    /// that is larger is not changed.
    HCLOUD_LOAD_BALANCERS_TYPE_MAX [permitted.largest_type = parsed(values::text)] => { kind: ValueKind::Text("TYPE"), }

    /// Location in which load balancers are created, e.g. fsn1. With auto, it is the location of most servers
    /// that become targets, also with --cloud-provider=hcloud. It can't be combined with
    /// HCLOUD_LOAD_BALANCERS_NETWORK_ZONE. Without both, a load balancer is created in the location where most nodes
    /// are; with --cloud-provider=hcloud, each Service must then name a location or a network zone itself.
    HCLOUD_LOAD_BALANCERS_LOCATION [location = parsed(values::text)] => { kind: ValueKind::Text("LOCATION"), }

    /// Network zone in which load balancers are created, e.g. eu-central. Set it instead of
    /// HCLOUD_LOAD_BALANCERS_LOCATION when the location within the zone does not matter.
    HCLOUD_LOAD_BALANCERS_NETWORK_ZONE [network_zone = parsed(values::text)] => { kind: ValueKind::Text("ZONE"), }

    /// How a load balancer chooses the target of the next connection. The default is round_robin; with
    /// --cloud-provider=hcloud, an existing load balancer keeps its algorithm.
    HCLOUD_LOAD_BALANCERS_ALGORITHM_TYPE [algorithm = choice] => {
        kind: ValueKind::Choice(&["round_robin", "least_connections"]),
    }

    /// Whether the public interface of load balancers is turned off. Without this setting, it is left unchanged.
    HCLOUD_LOAD_BALANCERS_DISABLE_PUBLIC_NETWORK [network.disable_public_network = parsed(boolean)] => {}

    /// Whether the private IPs of load balancers are left out of the status of Services. The default is false.
    HCLOUD_LOAD_BALANCERS_DISABLE_PRIVATE_INGRESS [network.disable_private_ingress = parsed(boolean)] => {}

    /// Whether load balancers reach the nodes by their private IPs. This needs HCLOUD_NETWORK. The default is false.
    HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP [network.use_private_ip = parsed(boolean)] => {}

    /// Subnet of the private Network to which load balancers are attached, e.g. 10.0.1.0/24.
    HCLOUD_LOAD_BALANCERS_PRIVATE_SUBNET_IP_RANGE [network.private_subnet = parsed(ip_range)] => {
        kind: ValueKind::Text("CIDR"),
    }

    /// Ranges in the private Network whose addresses Services may ask for by the annotation private-ipv4, e.g.
    /// 10.0.1.0/24,10.0.2.8/29. A load balancer that already has another address keeps it. Without this setting,
    /// Services may ask for every address of a subnet.
    HCLOUD_LOAD_BALANCERS_PRIVATE_IPV4_RANGES [permitted.private_ipv4_ranges = parsed(values::ipv4_ranges)] => {
        kind: ValueKind::List("CIDR"),
    }

    /// Whether the IPv6 addresses of load balancers are left out of the status of Services. The default is false.
    HCLOUD_LOAD_BALANCERS_DISABLE_IPV6 [network.disable_ipv6 = parsed(boolean)] => {}

    /// Whether load balancers send the PROXY protocol to the targets. The default is false; with
    /// --cloud-provider=hcloud, an existing port keeps its value.
    HCLOUD_LOAD_BALANCERS_USES_PROXYPROTOCOL [uses_proxyprotocol = parsed(boolean)] => {}

    /// With kube-proxy, load balancers check nodes by GET /healthz on port 10256, where kube-proxy answers 503 when its
    /// node is about to be deleted. This applies to ports of Services with externalTrafficPolicy: Cluster that set no
    /// other check. The load balancers must reach port 10256: see ccm help services. Without this setting, they check
    /// the node port.
    HCLOUD_LOAD_BALANCERS_HEALTH_CHECK [health_check.kind = choice] => { kind: ValueKind::Choice(&["kube-proxy"]), }

    /// Interval of health checks, in whole seconds. The default is 15s; with --cloud-provider=hcloud, an existing port
    /// keeps its interval.
    HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_INTERVAL [health_check.interval_s = parsed(whole_seconds)] => {
        kind: ValueKind::Duration,
    }

    /// Timeout of a health check, in whole seconds. The default is 10s; with --cloud-provider=hcloud, an existing port
    /// keeps its timeout.
    HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_TIMEOUT [health_check.timeout_s = parsed(whole_seconds)] => {
        kind: ValueKind::Duration,
    }

    /// How many checks in a row change the health of a target. The default is 3; with --cloud-provider=hcloud, an
    /// existing port keeps its number.
    HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_RETRIES [health_check.retries = parsed(count)] => { kind: ValueKind::Integer, }

    /// Whether targets of a Service with externalTrafficPolicy: Local are checked on the Service's health check node
    /// port. The default is true, and with --cloud-provider=hcloud false.
    HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_NODE_PORT [health_check.node_port = parsed(boolean)] => {}

    /// How long a node that will stop soon stays a target, from 0s to 600s. This is the default for Services without
    /// the annotation departing-delay: see ccm help services. Without both, the node stays a target until another rule
    /// removes it.
    HCLOUD_LOAD_BALANCERS_DEPARTING_DELAY [departing_delay = parsed(departing_delay)] => { kind: ValueKind::Duration, }

    /// Whether a cordon alone, as after kubectl drain, means that a node will stop soon. With false, a cordoned node
    /// counts as such only when a drain, a shutdown or the cluster autoscaler has marked it: see ccm help services.
    HCLOUD_LOAD_BALANCERS_DEPARTING_CORDONED load_balancers_departing_cordoned: bool = parsed(boolean) => { default: Some("false"), }

    /// Whether nodes that run pods become targets before other nodes, when the type of a load balancer takes fewer
    /// targets than there are nodes. This is the default for Services without the annotation prefer-nodes-with-pods:
    /// see ccm help services. Without both, it is false.
    HCLOUD_LOAD_BALANCERS_PREFER_NODES_WITH_PODS [prefer_nodes_with_pods = parsed(boolean)] => {}

    /// Whether annotations of a Namespace are defaults for the Services in it. They take precedence over the environment
    /// defaults of annotations (see ccm help services). This needs the right to list namespaces.
    HCLOUD_LOAD_BALANCERS_NAMESPACE_DEFAULTS load_balancers_namespace_defaults: bool = parsed(boolean) => { default: Some("false"), }

    /// Whether nodes with a provider ID of another provider, or without one, can be targets. With match, such a node is
    /// a target when exactly one server has its name, and the node reports an address of this server. ccm writes
    /// nothing to such nodes: see ccm help nodes.
    HCLOUD_LOAD_BALANCERS_FOREIGN_NODES foreign_nodes: ForeignNodes = choice => {
        kind: ValueKind::Choice(&["ignore", "match"]),
        default: Some("ignore"),
        commands: WITH_TARGETS,
    }

    /// Labels that all load balancers of Services get, e.g. team=web,cost=42. When a key is removed here, load
    /// balancers keep its label.
    HCLOUD_LOAD_BALANCERS_LABELS [labels = parsed(Labels::parse)] => { kind: ValueKind::List("KEY=VALUE"), }

    /// Label selector for the Primary IPs that Services may use, e.g. use=services, written as for kubectl -l. Without
    /// this setting, Services may use any free Primary IP of the project.
    HCLOUD_LOAD_BALANCERS_PRIMARY_IP_SELECTOR [permitted.primary_ip_selector = parsed(Selector::parse)] => {
        kind: ValueKind::Text("SELECTOR"),
    }

    /// Label selector for the certificates of the project that Services may use besides those of their own namespace,
    /// e.g. use=services, written as for kubectl -l. Without this setting, Services may use all certificates that do
    /// not belong to another namespace or cluster.
    HCLOUD_LOAD_BALANCERS_CERTIFICATE_SELECTOR [permitted.certificate_selector = parsed(Selector::parse)] => {
        kind: ValueKind::Text("SELECTOR"),
    }

    /// Domains for which Services may have managed certificates, e.g. example.com. The subdomains of each domain are
    /// included. The value none turns managed certificates off. Without this setting, all domains are allowed.
    HCLOUD_LOAD_BALANCERS_CERTIFICATE_DOMAINS [permitted.certificate_domains = parsed(CertificateDomains::parse)] => {
        kind: ValueKind::List("DOMAIN"),
    }

    (Group::Cluster, Command::ALL, by flag)

    // Several files are merged. When two files have different values, the first file wins. Without any file, the
    // service account of the pod is used, or else `~/.kube/config`.
    /// Path of the kubeconfig with which ccm reaches the cluster. The variable may list several files, separated by
    /// colons. When neither flag nor variable is set, ccm uses the service account of its pod, or else ~/.kube/config.
    KUBECONFIG kubeconfig: Vec<PathBuf> = kubeconfig => {
        flags: &["kubeconfig"],
        variables: &[Value(variables::KUBECONFIG)],
        kind: ValueKind::Path,
    }

    /// Context of the kubeconfig. The default is the current-context of the kubeconfig.
    CONTEXT context: Option<String> = parsed(unless_empty(values::text)) => {
        flags: &["context"],
        kind: ValueKind::Text("CONTEXT"),
    }

    /// URL of the Kubernetes API server. It replaces the URL in the kubeconfig or, in a pod, the cluster's own URL. The
    /// credentials of the kubeconfig, or in a pod the token of the service account, are sent to this URL, so use only
    /// an address of the same cluster.
    MASTER master: Option<String> = parsed(unless_empty(values::url)) => { flags: &["master"], kind: ValueKind::Url, }

    /// Deployment (or NAMESPACE/daemonset/NAME) of the daemon whose arguments and variables this command uses as its
    /// settings. Your own settings win. Values in Secrets and ConfigMaps are not read, but reported. Tokens, API
    /// addresses and output settings are always your own. Without this flag, a command outside a pod uses the settings
    /// of the only ccm or hcloud-cloud-controller-manager in kube-system. The value none means the same as
    /// --own-settings.
    SETTINGS_FROM settings_from: Option<WorkloadName> = parsed(WorkloadName::parse) => {
        flags: &["settings-from"],
        kind: ValueKind::Text("NAMESPACE/deployment/NAME"),
        commands: TAKE_SETTINGS,
    }

    /// Do not look for the daemon's settings in the cluster. Each setting that neither you nor the daemon of
    /// --settings-from sets then has its default. Without this flag, nothing is written while a setting of the daemon
    /// is not known.
    OWN_SETTINGS own_settings: bool = parsed(boolean) => {
        flags: &["own-settings"],
        default: Some("false"),
        commands: TAKE_SETTINGS,
    }

    (Group::Controllers, DAEMON, by flag)

    /// Profile, which decides which provider IDs and labels nodes get. The profile hcloud replaces
    /// hcloud-cloud-controller-manager. Do not change the profile of a running cluster, because a node keeps its
    /// provider ID, and nodes of the other profile are ignored.
    CLOUD_PROVIDER cloud_provider: Profile = choice => {
        flags: &["cloud-provider"],
        kind: ValueKind::Choice(&["ccm-from-scratch", "hcloud"]),
        default: Some("ccm-from-scratch"),
        commands: Command::ALL,
    }

    /// Which controllers run. NAME runs a controller, -NAME turns it off, and * runs all that are not named, except
    /// node-csr-approval. The names are cloud-node, cloud-node-lifecycle, service, route and node-csr-approval, or the
    /// canonical names of Kubernetes.
    CONTROLLERS controllers: Vec<Controller> = parsed(values::controllers) => {
        flags: &["controllers"],
        kind: ValueKind::List("NAME"),
        default: Some("*"),
        commands: WITH_CONTROLLERS,
    }

    // The value is never 0, because the parser refuses 0.
    /// How often ccm looks for new nodes. A new node waits at most for this time.
    NODE_SYNC_INTERVAL node_sync_interval: Duration = parsed(interval) => {
        flags: &["node-sync-interval"],
        kind: ValueKind::Duration,
        default: Some("5s"),
    }

    /// How often addresses and labels of all nodes are compared with their servers. With more than 450 servers in the
    /// project, this happens less often, because the lists for it use at most 120 calls an hour. Each list needs one
    /// call for each 50 servers and one more.
    NODE_STATUS_UPDATE_FREQUENCY node_status_update_frequency: Duration = parsed(interval) => {
        flags: &["node-status-update-frequency"],
        kind: ValueKind::Duration,
        default: Some("5m"),
    }

    /// How often ccm looks for nodes that are not ready.
    NODE_MONITOR_PERIOD node_monitor_period: Duration = parsed(interval) => {
        flags: &["node-monitor-period"],
        kind: ValueKind::Duration,
        default: Some("5s"),
    }

    /// Delete a node only while the token can read the server of another node. This protects the nodes when the token
    /// belongs to another project, which has none of their servers. Turn it off only for clusters that may have a
    /// single node.
    NODE_DELETION_GUARD node_deletion_guard: bool = parsed(boolean) => {
        flags: &["node-deletion-guard"],
        default: Some("true"),
        commands: &[Run, NodeList, NodeInspect, NodeSync],
    }

    /// How long a Cloud server must be off before its node is taken out of service, at least 5m. The node then gets the
    /// taint node.kubernetes.io/out-of-service, so that its pods and their volumes move to other nodes. With 0, no node
    /// gets the taint. See ccm help nodes.
    NODE_OUT_OF_SERVICE_AFTER out_of_service_after: Option<Duration> = parsed(values::out_of_service_after) => {
        flags: &["node-out-of-service-after"],
        kind: ValueKind::Duration,
        default: Some("0"),
        commands: &[Run, NodeInspect],
    }

    /// How often ccm looks for changed Services. A new Service waits at most for this time.
    SERVICE_SYNC_INTERVAL service_sync_interval: Duration = parsed(interval) => {
        flags: &["service-sync-interval"],
        kind: ValueKind::Duration,
        default: Some("5s"),
    }

    /// Class of the Services that get a load balancer. Only Services with this spec.loadBalancerClass get one, or
    /// without this setting only Services without a class. The load balancers of all other Services stay unchanged.
    LOAD_BALANCER_CLASS load_balancer_class: Option<String> = parsed(unless_empty(values::class)) => {
        flags: &["load-balancer-class"],
        kind: ValueKind::Text("CLASS"),
        commands: WITH_LOAD_BALANCERS,
    }

    /// Label selector for the Services that get a load balancer. It is written as for kubectl -l, e.g. lb!=metallb. The
    /// load balancers of all other Services stay unchanged, with ports, targets and addresses, until these Services
    /// match again.
    SERVICE_SELECTOR service_selector: Option<Selector> = parsed(unless_empty(Selector::parse)) => {
        flags: &["service-selector"],
        kind: ValueKind::Text("SELECTOR"),
        commands: WITH_LOAD_BALANCERS,
    }

    /// How often all load balancers are compared with their Services, even when no Service changed. Changes made by
    /// hand are then undone. With more than 200 load balancers, this happens less often, because the lists for it use
    /// at most 60 calls an hour. ccm status shows how often.
    LOAD_BALANCER_RESYNC_PERIOD load_balancer_resync_period: Duration = parsed(interval) => {
        flags: &["load-balancer-resync-period"],
        kind: ValueKind::Duration,
        default: Some("5m"),
    }

    /// How many nodes are written at the same time, 100 at most. This applies to new nodes, to the taints of nodes
    /// whose server is off, and to the conditions of routes.
    CONCURRENT_NODE_SYNCS concurrent_node_syncs: u32 = parsed(count) => {
        flags: &["concurrent-node-syncs"],
        kind: ValueKind::Integer,
        default: Some("5"),
        commands: &[Run, NodeSync, NodeRelabel, RouteSync],
    }

    /// How many requests for load balancers run at the same time.
    CONCURRENT_SERVICE_SYNCS concurrent_service_syncs: u32 = parsed(count) => {
        flags: &["concurrent-service-syncs"],
        kind: ValueKind::Integer,
        default: Some("5"),
        commands: &[Run, LbSync],
    }

    /// Name of the cluster, with which the names of its load balancers begin. The name is only for people. Two clusters
    /// in one project may have the same name, because the UID of the Service default/kubernetes identifies each
    /// cluster.
    CLUSTER_NAME cluster_name: String = parsed(values::cluster_name) => {
        flags: &["cluster-name"],
        kind: ValueKind::Text("NAME"),
        default: Some("kubernetes"),
        commands: WITH_LOAD_BALANCERS,
    }

    // The list is empty when the setting is unset.
    /// Address ranges of the cluster's pods, the same as for kube-controller-manager. ccm manages the routes of the
    /// Network within these ranges, and never changes other routes. Without this setting, the route controller does not
    /// run.
    CLUSTER_CIDR cluster_cidrs: Vec<IpNet> = parsed(values::cidrs) => {
        flags: &["cluster-cidr"],
        kind: ValueKind::List("CIDR"),
        commands: WITH_ROUTES,
    }

    /// Whether the route controller runs. The value false has the same effect as HCLOUD_NETWORK_ROUTES_ENABLED=false.
    CONFIGURE_CLOUD_ROUTES configure_cloud_routes: bool = parsed(boolean) => {
        flags: &["configure-cloud-routes"],
        default: Some("true"),
        commands: WITH_ROUTES,
    }

    /// Shortest time between two comparisons of the Network's routes with the nodes. The routes are compared when nodes
    /// change, and every five minutes.
    ROUTE_RECONCILIATION_PERIOD route_reconciliation_period: Duration = parsed(interval) => {
        flags: &["route-reconciliation-period"],
        kind: ValueKind::Duration,
        default: Some("30s"),
    }

    /// Delete load balancers of this cluster whose Service does not exist. This happens each time all load balancers
    /// are compared (--load-balancer-resync-period). Load balancers with delete protection stay. With false, they are
    /// only reported, and ccm lb list shows them.
    DELETE_ORPHANED_LOAD_BALANCERS delete_orphaned_load_balancers: bool = parsed(boolean) => {
        flags: &["delete-orphaned-load-balancers"],
        default: Some("false"),
    }

    /// Delete load balancers of this cluster whose Service does not exist, and do nothing else. The command lists them,
    /// and asks before it deletes them.
    DELETE_ORPHANS delete_orphans: bool = parsed(boolean) => {
        flags: &["delete-orphans"],
        default: Some("false"),
        commands: &[LbSync],
    }

    /// How long the old and the new load balancer both serve, from 0s to 720h.
    OVERLAP overlap: Option<u32> = parsed(unless_empty(overlap)) => {
        flags: &["overlap"],
        kind: ValueKind::Duration,
        commands: &[LbReplace],
    }

    /// End the replacement: the present load balancer stays.
    ABORT abort: bool = parsed(boolean) => {
        flags: &["abort"],
        default: Some("false"),
        commands: &[LbReplace],
    }

    /// End the overlap now: the load balancer that the status does not name is not needed any longer.
    NOW now: bool = parsed(boolean) => {
        flags: &["now"],
        default: Some("false"),
        commands: &[LbReplace],
    }

    /// Do not ask for a confirmation. This applies to --delete-orphans, lb adopt, lb release, lb replace and node
    /// relabel.
    YES yes: bool = parsed(boolean) => {
        flags: &["yes"],
        default: Some("false"),
        commands: &[NodeRelabel, LbSync, LbAdopt, LbRelease, LbReplace],
    }

    (Group::LeaderElection, DAEMON, by flag)

    /// Whether a Lease decides which of several daemons works. Only its holder works, and the others wait.
    /// hcloud-cloud-controller-manager uses the same Lease. With false, no Lease is read or written.
    LEADER_ELECT leader_elect: bool = parsed(boolean) => {
        flags: &["leader-elect"],
        default: Some("true"),
        commands: DAEMON_AND_DOCTOR,
    }

    // When `leader_elect` is true, the module `resolve` has checked that the lease duration, the renew deadline and the
    // retry period fit together.
    /// How long the other daemons wait for a leader that does not renew its Lease. The time must be longer than the
    /// renew deadline, and not shorter than the retry period plus 8s (the longest time of a write).
    LEASE_DURATION lease_duration: Duration = parsed(interval) => {
        flags: &["leader-elect-lease-duration"],
        kind: ValueKind::Duration,
        default: Some("15s"),
    }

    /// How long a leader may fail to renew its Lease before it exits with code 1. The time must be longer than 1.2
    /// retry periods.
    RENEW_DEADLINE renew_deadline: Duration = parsed(interval) => {
        flags: &["leader-elect-renew-deadline"],
        kind: ValueKind::Duration,
        default: Some("10s"),
    }

    /// How often the leader renews its Lease, and the other daemons read it. Without this flag, the leader renews its
    /// Lease every 4s, and after a failed renewal every second, if the other times of the Lease leave room for this.
    RETRY_PERIOD retry_period: Duration = parsed(interval) => {
        flags: &["leader-elect-retry-period"],
        kind: ValueKind::Duration,
        default: Some("2s"),
    }

    /// Name of the Lease.
    LEASE_NAME lease_name: String = parsed(values::object_name) => {
        flags: &["leader-elect-resource-name"],
        kind: ValueKind::Text("NAME"),
        default: Some("cloud-controller-manager"),
        commands: DAEMON_AND_DOCTOR,
    }

    /// Namespace of the Lease.
    LEASE_NAMESPACE lease_namespace: String = parsed(values::namespace) => {
        flags: &["leader-elect-resource-namespace"],
        kind: ValueKind::Text("NAME"),
        default: Some("kube-system"),
        commands: DAEMON_AND_DOCTOR,
    }

    (Group::Controllers, DAEMON, by flag)

    /// Run every enabled controller once, then exit. This is for cron and CronJobs.
    ONCE once: bool = parsed(boolean) => { flags: &["once"], default: Some("false"), }

    /// Print the planned changes, and write nothing to the Kubernetes and Hetzner APIs.
    DRY_RUN dry_run: bool = parsed(boolean) => {
        own: true,
        flags: &["dry-run"],
        default: Some("false"),
        commands: PLANNING,
    }

    (Group::Output, Command::ALL, by flag)

    /// Exit with code 3 instead of 0 when --dry-run finds changes to make.
    DETAILED_EXITCODE detailed_exitcode: bool = parsed(boolean) => {
        flags: &["detailed-exitcode"],
        default: Some("false"),
        commands: SYNCS,
    }

    /// Namespace of Services that are named without a namespace. The default is the namespace of the kubeconfig's
    /// context. With this flag, lb list shows only this namespace.
    NAMESPACE namespace: Option<String> = parsed(unless_empty(values::text)) => {
        flags: &["namespace"],
        short: Some('n'),
        kind: ValueKind::Text("NAMESPACE"),
        commands: LOAD_BALANCERS,
    }

    // A command refuses `--all-namespaces` together with `--namespace`.
    /// List Services of all namespaces. lb list without -n does the same.
    ALL_NAMESPACES all_namespaces: bool = parsed(boolean) => {
        flags: &["all-namespaces"],
        short: Some('A'),
        default: Some("false"),
        commands: &[LbList],
    }

    /// List only objects whose labels match this selector. An example is app=web,tier in (a,b),!old.
    SELECTOR selector: Option<Selector> = parsed(unless_empty(Selector::parse)) => {
        flags: &["selector"],
        short: Some('l'),
        kind: ValueKind::Text("SELECTOR"),
        commands: &[NodeList, LbList],
    }

    /// Sort the list by this column, which can be any heading of -o wide. Numbers are sorted by their value.
    SORT_BY sort_by: Option<String> = parsed(unless_empty(values::text)) => {
        flags: &["sort-by"],
        kind: ValueKind::Text("COLUMN"),
        commands: LISTS,
    }

    /// Leave the line of headings out.
    NO_HEADERS no_headers: bool = parsed(boolean) => {
        flags: &["no-headers"],
        default: Some("false"),
        commands: LISTS,
    }

    // A command refuses `--watch` together with `-o json` or `-o yaml`.
    /// Repeat the output until Ctrl-C (exit code 130). The cluster is read every 5 seconds, and the Cloud API once a
    /// minute. At a terminal, the output is redrawn. Elsewhere, a list prints the rows that changed, and status prints
    /// each screen with its time.
    WATCH watch: bool = parsed(boolean) => {
        flags: &["watch"],
        short: Some('w'),
        default: Some("false"),
        commands: &[NodeList, LbList, RouteList, Status],
    }

    /// Manifests to check, in YAML or JSON, each at most 8 MiB. The name - means stdin. Folders are not read.
    FILES files: Vec<String> = parsed(|text| Ok(text.split(',').map(str::to_owned).collect())) => {
        flags: &["filename"],
        short: Some('f'),
        kind: ValueKind::List("FILE"),
        commands: &[Lint],
    }

    // Commands that do not print a list refuse the format `name`.
    /// Output format on stdout. The formats json and yaml are stable, for scripts. With name, a list prints only names,
    /// e.g. service/default/web.
    OUTPUT output: Output = output => {
        flags: &["output"],
        short: Some('o'),
        kind: ValueKind::Choice(&["table", "wide", "name", "json", "yaml"]),
        default: Some("table"),
        commands: CLIENTS,
    }

    /// Whether text is coloured. With auto, it is coloured at a terminal, unless NO_COLOR is set or TERM is dumb. The
    /// log, json and yaml are never coloured.
    COLOR color: Color = choice => {
        own: true,
        flags: &["color"],
        kind: ValueKind::Choice(&["auto", "always", "never"]),
        default: Some("auto"),
    }

    /// Format of the log on stderr: lines for people, or one JSON object for each line.
    LOG_FORMAT log_format: LogFormat = choice => {
        flags: &["log-format", "logging-format"],
        kind: ValueKind::Choice(&["text", "json"]),
        default: Some("text"),
    }

    /// Log level. Level 0 logs changes and failures, and level 4 also every call to both APIs. Secrets are never
    /// logged.
    VERBOSITY verbosity: u32 = parsed(values::verbosity) => {
        called: "verbosity",
        flags: &["v"],
        short: Some('v'),
        kind: ValueKind::Integer,
        default: Some("0"),
    }

    /// Log every request to the Hetzner Cloud API and its answer, with secrets redacted.
    DEBUG debug: bool = parsed(boolean) => { variables: &[Value(variables::HCLOUD_DEBUG)], default: Some("false"), }

    /// Whether the daemon serves /metrics for Prometheus. With false, only /metrics is missing, and the health probes
    /// stay.
    METRICS_ENABLED metrics_enabled: bool = parsed(boolean) => {
        variables: &[Value(variables::HCLOUD_METRICS_ENABLED)],
        default: Some("true"),
        commands: DAEMON,
    }

    // The address on which the daemon serves its metrics and health checks. `[::]` means every IPv4 and IPv6 address of
    // the machine, and port 0 means any free port. `None` means that nothing is served.
    /// Address on which the daemon serves /healthz, /livez, /readyz and /metrics. The form :PORT listens on every
    /// address of the machine. An empty flag (--metrics-address=) turns the server off, but an empty variable does not.
    METRICS_ADDRESS metrics_address: Option<SocketAddr> = parsed(unless_empty(values::listen_address)) => {
        flags: &["metrics-address"],
        variables: &[Value(variables::HCLOUD_METRICS_ADDRESS)],
        kind: ValueKind::Text("[IP]:PORT"),
        default: Some(":8233"),
        commands: DAEMON,
    }

    (Group::Controllers, Command::ALL, by flag)

    /// For tests: a factor on every wait, so that an hour can pass in a second.
    TEST_TIME_SCALE test_time_scale: f64 = parsed(values::scale) => {
        variables: &[Value(variables::CCM_TEST_TIME_SCALE)],
        kind: ValueKind::Number,
        default: Some("1"),
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

    /// Checks that every flag, variable and name of a setting occurs only once in the table, and that every help text
    /// ends like a sentence.
    #[test]
    fn rows_are_distinct_and_whole() {
        let mut seen: BTreeSet<String> = BTreeSet::new();
        for (setting, meaning) in TABLE.iter().zip(MEANINGS) {
            let variables = setting.variables.iter().map(|variable| variable.name());
            for key in setting.flags.iter().copied().chain(variables) {
                assert!(seen.insert(key.to_owned()), "{key} is there twice");
            }
            assert!(
                seen.insert(setting.name()) || setting.flags.contains(&setting.name().as_str())
            );
            assert!(meaning.ends_with('.'), "{}", setting.name());
            assert!(!setting.commands.is_empty(), "{}", setting.name());
            assert!(!setting.flags.is_empty() || !setting.variables.is_empty());
            let boolean = setting.kind == ValueKind::Boolean;
            let is_flag = !setting.flags.is_empty();
            assert!(!boolean || !is_flag || setting.default.is_some(), "{}", setting.name());
        }
    }
}
