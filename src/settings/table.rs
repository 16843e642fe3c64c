//! The table of settings. Each setting is one row. The help prints the settings in the order of the rows.
//!
//! A row contains the texts for users, a field of [`Settings`] with its type, and the function that parses the value.
//! The values of settings for load balancers are fields of `provider::LoadBalancerDefaults` instead.

use super::effective::{Resolver, choice, kubeconfig, output, parsed, password, token, user};
use super::setting::Command::{
    Doctor, LbAdopt, LbInspect, LbList, LbRelease, LbSync, Lint, NodeInspect, NodeList,
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
use crate::text::duration::{departing_delay, duration, interval, whole_seconds};
use crate::text::selector::Selector;
use crate::text::{boolean, count, ip_range};
use ipnet::IpNet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

const DAEMON: &[Command] = &[Run];

/// The daemon (`run`), and the commands that check the same things as the daemon does at its start.
const DAEMON_AND_DOCTOR: &[Command] = &[Run, Doctor, Status];

/// All commands except the daemon.
const CLIENTS: &[Command] = Command::ALL.split_at(1).1;

/// The commands that can use the settings of the cluster's daemon (`--settings-from`). `config` is not among them: it
/// makes no API call, so it can't read these settings from the cluster.
const TAKE_SETTINGS: &[Command] = CLIENTS.split_at(1).1;

const SYNCS: &[Command] = &[NodeSync, NodeRelabel, LbSync, RouteSync];

/// The commands that plan changes and can also make these changes.
const PLANNING: &[Command] = &[Run, NodeSync, NodeRelabel, LbSync, LbAdopt, LbRelease, RouteSync];

/// The commands that plan load balancers.
const WITH_LOAD_BALANCERS: &[Command] =
    &[Run, LbList, LbInspect, LbSync, LbAdopt, LbRelease, Doctor, Status, Lint];

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
    Doctor,
    Status,
    Lint,
];

/// The daemon, and the commands that show or do the work of a controller that runs only by its name.
const WITH_CONTROLLERS: &[Command] = &[Run, NodeInspect, NodeSync];

/// The commands that plan routes.
const WITH_ROUTES: &[Command] = &[Run, RouteList, RouteSync];

const LOAD_BALANCERS: &[Command] = &[LbList, LbInspect, LbSync, LbAdopt, LbRelease];

const LISTS: &[Command] = &[NodeList, LbList, RouteList];

/// Returns the setting with this long flag, or `None` when no setting has it. `name` has no dashes.
pub(super) fn by_flag(name: &str) -> Option<&'static Setting> {
    TABLE.iter().copied().find(|setting| setting.flags.contains(&name))
}

pub(super) fn by_letter(letter: char) -> Option<&'static Setting> {
    TABLE.iter().copied().find(|setting| setting.short == Some(letter))
}

/// Creates a row of the table of settings that has only its group (the heading in `--help`), its commands and, after
/// the word `variable`, an environment variable with the name of the row. After the word `flag`, the row has no
/// environment variable.
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
                help: concat!($($help),+).trim_ascii_start(),
                $($row)*
                ..base!($named_by $name $group, $commands)
            };
        )*)*

        /// All settings, in the order in which help prints them.
        pub static TABLE: &[&Setting] = &[$($(&$name),*),*];

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
    /// Token of the Hetzner Cloud project's API, read & write. Required. A file (HCLOUD_TOKEN_FILE) is read again
    /// whenever it changes, so a rotated token needs no restart.
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

    /// Whether an API on another machine may be reached without TLS (http://): HCLOUD_ENDPOINT, ROBOT_ENDPOINT and the
    /// cluster's server. Anybody on the network path can then read the token or password. Profile hcloud only warns.
    HCLOUD_ALLOW_INSECURE_ENDPOINT allow_insecure_endpoint: bool = parsed(boolean) => {
        own: true,
        default: Some("false"),
    }

    /// Private Network of the cluster: a number is its ID, any other text is its name. Nodes get their IP in this
    /// Network as InternalIP. Unset: nodes get no InternalIP.
    HCLOUD_NETWORK network: Option<NetworkSelector> = parsed(unless_empty(values::network)) => {
        kind: ValueKind::Text("ID|NAME"),
    }

    /// Whether the Network gets a route to the pods of each node. Needs HCLOUD_NETWORK and --cluster-cidr. false leaves
    /// all routes unchanged.
    HCLOUD_NETWORK_ROUTES_ENABLED network_routes_enabled: bool = parsed(boolean) => {
        default: Some("true"),
        commands: WITH_ROUTES,
    }

    /// Skip the check at the start (with the metadata service) that this machine is attached to the Network.
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

    /// Which public addresses of a server become its node's ExternalIP. The value none means no address.
    HCLOUD_INSTANCES_ADDRESS_FAMILY address_family: AddressFamily = choice => {
        kind: ValueKind::Choice(&["ipv4", "ipv6", "dualstack", "none"]),
        default: Some("ipv4"),
    }

    /// Where the InternalIP of a cloud server's node comes from. network: only from HCLOUD_NETWORK. kubelet: from the
    /// kubelet's --node-ip, even when the API does not know the address, e.g. in a VPN; without --node-ip from
    /// HCLOUD_NETWORK.
    HCLOUD_INSTANCES_INTERNAL_IP_FROM internal_ip_from: InternalIpFrom = choice => {
        kind: ValueKind::Choice(&["network", "kubelet"]),
        default: Some("network"),
    }

    // The list is empty when the setting is unset.
    /// The ranges that must contain the addresses in a node's annotation instance.hetzner.cloud/internal-ip, because
    /// the kubelet can write the annotation. Unset: no limit.
    HCLOUD_INSTANCES_INTERNAL_IP_RANGES internal_ip_ranges: Vec<IpNet> = parsed(values::ip_ranges) => {
        kind: ValueKind::List("CIDR"),
    }

    /// Which labels of cloud servers become labels of their nodes: DOMAIN/ for all labels of a domain, DOMAIN/NAME for
    /// one label. Labels of kubernetes.io, k8s.io and hetzner.cloud are refused, except labels of
    /// topology.kubernetes.io and node-role.kubernetes.io that are listed by their whole key. Unset: no label.
    HCLOUD_INSTANCES_LABEL_PREFIXES label_prefixes: LabelPrefixes = parsed(values::label_prefixes) => {
        kind: ValueKind::List("PREFIX"),
    }

    /// Whether nodes get the zone labels (topology.kubernetes.io/zone and its older beta form).
    HCLOUD_INSTANCES_ZONE_LABEL_ENABLED zone_label_enabled: bool = parsed(boolean) => { default: Some("true"), }

    // Without the setting, the profile decides.
    /// Which zone label a new node gets: datacenter, e.g. nbg1-dc3, or location, e.g. nbg1. Unset: location; in profile
    /// hcloud datacenter. Nodes that are initialised keep their label; ccm node relabel changes it.
    HCLOUD_INSTANCES_ZONE_LABEL zone_label: Option<ZoneLabel> = |candidate| choice(candidate).map(Some) => {
        kind: ValueKind::Choice(&["datacenter", "location"]),
    }

    // Zero means that a new list of servers is requested each time that one is needed.
    /// How old a list of servers may be when a decision uses it. A longer time saves API calls (a project has 3600 an
    /// hour). 0 requests a new list each time.
    HCLOUD_SERVER_CACHE_MAX_AGE server_cache_max_age: Duration = parsed(duration) => {
        variables: &[Value(variables::HCLOUD_SERVER_CACHE_MAX_AGE), Older(variables::HCLOUD_SERVER_CACHE_TTL)],
        kind: ValueKind::Duration,
        default: Some("10s"),
    }

    /// Whether nodes may be dedicated servers of the Robot web service. Without ROBOT_USER and ROBOT_PASSWORD their
    /// nodes stay unchanged: nothing is looked up, set or deleted.
    ROBOT_ENABLED robot_enabled: bool = parsed(boolean) => { default: Some("false"), }

    // When `robot_enabled` is true, user and password are either both set or both unset. Otherwise the module `resolve`
    // reports a problem.
    /// User of the Robot web service (Robot → Settings → Web service and app settings). A file (ROBOT_USER_FILE) is
    /// read again whenever it changes; if it is missing or empty at the start, the setting is unset. Refused credentials
    /// are not tried again for ten minutes, because three failed logins block the IP of this machine.
    ROBOT_USER robot_user: Option<SecretSource> = user => {
        variables: &[Value(variables::ROBOT_USER), OptionalFile(variables::ROBOT_USER_FILE)],
        kind: ValueKind::Text("USER"),
        secret: true,
    }

    /// Password of that user. A file (ROBOT_PASSWORD_FILE) is read again whenever it changes; other credentials are
    /// tried at once.
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
    /// How old a list of dedicated servers may be. The list is read again at once for a node with an unknown name. The
    /// web service allows 200 calls an hour, of which ccm makes at most 180. 0 means 5m.
    ROBOT_CACHE_TIMEOUT robot_cache_timeout: Duration = parsed(values::robot_cache_timeout) => {
        kind: ValueKind::Duration,
        default: Some("5m"),
    }

    /// How long ccm does not call the web service after it reported its rate limit, at most 1h. Unset or 0: as long as
    /// the web service says, at most 5m.
    ROBOT_RATE_LIMIT_WAIT_TIME robot_rate_limit_wait_time: Option<Duration> = parsed(values::robot_wait_time) => {
        kind: ValueKind::Duration,
    }

    /// Whether the node of a dedicated server keeps the InternalIPs that its kubelet was given (--node-ip).
    ROBOT_FORWARD_INTERNAL_IPS robot_forward_internal_ips: bool = parsed(boolean) => { default: Some("true"), }

    (Group::Hetzner, WITH_LOAD_BALANCERS, by variable)

    /// Whether Services get load balancers. false leaves all of them unchanged.
    HCLOUD_LOAD_BALANCERS_ENABLED load_balancers_enabled: bool = parsed(boolean) => { default: Some("true"), }

    /// Type of load balancers whose Service sets no type, e.g. lb21. Unset: a new load balancer is an lb11, an existing
    /// one keeps its type.
    HCLOUD_LOAD_BALANCERS_TYPE [kind = parsed(values::text)] => { kind: ValueKind::Text("TYPE"), }

    /// Location in which load balancers are created, e.g. fsn1. The value auto means the location of most of the targets
    /// of the load balancer, also in profile hcloud. Not together with HCLOUD_LOAD_BALANCERS_NETWORK_ZONE.
    /// Unset: the location of most nodes; in profile hcloud the Service must then set it.
    HCLOUD_LOAD_BALANCERS_LOCATION [location = parsed(values::text)] => { kind: ValueKind::Text("LOCATION"), }

    /// Network zone in which load balancers are created, e.g. eu-central, when the location does not matter.
    HCLOUD_LOAD_BALANCERS_NETWORK_ZONE [network_zone = parsed(values::text)] => { kind: ValueKind::Text("ZONE"), }

    /// Which target gets the next connection. Unset: round_robin; profile hcloud leaves it unchanged.
    HCLOUD_LOAD_BALANCERS_ALGORITHM_TYPE [algorithm = choice] => {
        kind: ValueKind::Choice(&["round_robin", "least_connections"]),
    }

    /// Turn the public interface of load balancers off. Unset: left unchanged.
    HCLOUD_LOAD_BALANCERS_DISABLE_PUBLIC_NETWORK [network.disable_public_network = parsed(boolean)] => {}

    /// Leave the load balancers' private IPs out of the status of Services.
    HCLOUD_LOAD_BALANCERS_DISABLE_PRIVATE_INGRESS [network.disable_private_ingress = parsed(boolean)] => {}

    /// Reach the nodes by their private IPs. Needs HCLOUD_NETWORK.
    HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP [network.use_private_ip = parsed(boolean)] => {}

    /// Subnet of the private Network to which load balancers are attached, e.g. 10.0.1.0/24.
    HCLOUD_LOAD_BALANCERS_PRIVATE_SUBNET_IP_RANGE [network.private_subnet = parsed(ip_range)] => {
        kind: ValueKind::Text("CIDR"),
    }

    /// Addresses of the private Network that Services may ask for by the annotation private-ipv4, e.g.
    /// 10.0.1.0/24,10.0.2.8/29. A load balancer that has another address keeps it. Unset: every address of a subnet.
    HCLOUD_LOAD_BALANCERS_PRIVATE_IPV4_RANGES [permitted.private_ipv4_ranges = parsed(values::ipv4_ranges)] => {
        kind: ValueKind::List("CIDR"),
    }

    /// Leave the load balancers' IPv6 addresses out of the status of Services.
    HCLOUD_LOAD_BALANCERS_DISABLE_IPV6 [network.disable_ipv6 = parsed(boolean)] => {}

    /// Send the PROXY protocol to the targets. Unset: no; profile hcloud leaves it unchanged.
    HCLOUD_LOAD_BALANCERS_USES_PROXYPROTOCOL [uses_proxyprotocol = parsed(boolean)] => {}

    /// kube-proxy: nodes are checked by GET /healthz on port 10256, where kube-proxy answers 503 when its node is about
    /// to be deleted. This is for ports of Services with externalTrafficPolicy: Cluster that set no other check. The
    /// load balancers must reach that port: ccm help services. Unset: the node port is checked.
    HCLOUD_LOAD_BALANCERS_HEALTH_CHECK [health_check.kind = choice] => { kind: ValueKind::Choice(&["kube-proxy"]), }

    /// Interval of health checks, in whole seconds. Unset: 15s; profile hcloud leaves it unchanged.
    HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_INTERVAL [health_check.interval_s = parsed(whole_seconds)] => {
        kind: ValueKind::Duration,
    }

    /// Timeout of a health check, in whole seconds. Unset: 10s; profile hcloud leaves it unchanged.
    HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_TIMEOUT [health_check.timeout_s = parsed(whole_seconds)] => {
        kind: ValueKind::Duration,
    }

    /// How many checks in a row change the health of a target. Unset: 3; profile hcloud leaves it unchanged.
    HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_RETRIES [health_check.retries = parsed(count)] => { kind: ValueKind::Integer, }

    /// Whether targets of a Service with externalTrafficPolicy: Local are checked on its health check node port. Unset:
    /// yes; profile hcloud: no.
    HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_NODE_PORT [health_check.node_port = parsed(boolean)] => {}

    /// How long a node that will stop soon stays a target, from 0s to 600s. This is the default of the annotation
    /// departing-delay: ccm help services. Unset: it stays a target until another rule removes it.
    HCLOUD_LOAD_BALANCERS_DEPARTING_DELAY [departing_delay = parsed(departing_delay)] => { kind: ValueKind::Duration, }

    /// Whether a cordon alone makes a node depart, as after kubectl drain. Otherwise a cordoned node departs when a drain,
    /// a shutdown or the cluster autoscaler has marked it: ccm help services.
    HCLOUD_LOAD_BALANCERS_DEPARTING_CORDONED load_balancers_departing_cordoned: bool = parsed(boolean) => { default: Some("false"), }

    /// Whether nodes that run pods become targets first, when the type takes fewer targets than there are nodes. This is
    /// the default of the annotation prefer-nodes-with-pods: ccm help services. Unset: no.
    HCLOUD_LOAD_BALANCERS_PREFER_NODES_WITH_PODS [prefer_nodes_with_pods = parsed(boolean)] => {}

    /// Whether annotations of a Namespace are defaults for the Services in it. They come after the annotations of a
    /// Service, and before these variables: ccm help services. Needs the right to list namespaces.
    HCLOUD_LOAD_BALANCERS_NAMESPACE_DEFAULTS load_balancers_namespace_defaults: bool = parsed(boolean) => { default: Some("false"), }

    /// Whether nodes with a provider ID of another provider, or without one, can be targets. match: they are targets when
    /// exactly one server has their name, and they report an address of it. ccm writes nothing to them: ccm help nodes.
    HCLOUD_LOAD_BALANCERS_FOREIGN_NODES foreign_nodes: ForeignNodes = choice => {
        kind: ValueKind::Choice(&["ignore", "match"]),
        default: Some("ignore"),
        commands: WITH_TARGETS,
    }

    /// Labels of all load balancers of Services, e.g. team=web,cost=42. A label stays on the load balancer when its key
    /// is removed.
    HCLOUD_LOAD_BALANCERS_LABELS [labels = parsed(Labels::parse)] => { kind: ValueKind::List("KEY=VALUE"), }

    /// Labels of the Primary IPs that Services may claim, e.g. use=services; written like a selector of kubectl -l.
    /// Unset: they may claim any free Primary IP of the project.
    HCLOUD_LOAD_BALANCERS_PRIMARY_IP_SELECTOR [permitted.primary_ip_selector = parsed(Selector::parse)] => {
        kind: ValueKind::Text("SELECTOR"),
    }

    /// Labels of the certificates of the project that Services may use besides those of their own namespace, e.g.
    /// use=services; written like a selector of kubectl -l. Unset: they may use all that do not belong to another
    /// namespace or cluster.
    HCLOUD_LOAD_BALANCERS_CERTIFICATE_SELECTOR [permitted.certificate_selector = parsed(Selector::parse)] => {
        kind: ValueKind::Text("SELECTOR"),
    }

    /// Domains for which Services may have managed certificates, e.g. example.com, each with its subdomains. The
    /// value none turns managed certificates off. Unset: all domains.
    HCLOUD_LOAD_BALANCERS_CERTIFICATE_DOMAINS [permitted.certificate_domains = parsed(CertificateDomains::parse)] => {
        kind: ValueKind::List("DOMAIN"),
    }

    (Group::Cluster, Command::ALL, by flag)

    // Several files are merged. When two files have different values, the first file wins. Without any file, the
    // service account of the pod is used, or else `~/.kube/config`.
    /// How to reach the cluster; the variable may list several files, separated by colons. If neither flag nor variable
    /// is set: the service account of the pod, else ~/.kube/config.
    KUBECONFIG kubeconfig: Vec<PathBuf> = kubeconfig => {
        flags: &["kubeconfig"],
        variables: &[Value(variables::KUBECONFIG)],
        kind: ValueKind::Path,
    }

    /// Context of the kubeconfig. Unset: its current-context.
    CONTEXT context: Option<String> = parsed(unless_empty(values::text)) => {
        flags: &["context"],
        kind: ValueKind::Text("CONTEXT"),
    }

    /// URL of the Kubernetes API server, instead of the one in the kubeconfig or, in a pod, the cluster's own. The
    /// credentials of the kubeconfig, in a pod the token of the service account, are sent to this URL: use only an
    /// address of the same cluster.
    MASTER master: Option<String> = parsed(unless_empty(values::url)) => { flags: &["master"], kind: ValueKind::Url, }

    /// Use the settings of the daemon that runs there (or NAMESPACE/daemonset/NAME): its arguments and variables. Your
    /// own settings win. Values in Secrets and ConfigMaps are not read, but reported. Tokens, API addresses and output
    /// settings are always your own. Unset, and outside a pod: the settings of the only ccm or
    /// hcloud-cloud-controller-manager in kube-system. The value none is the same as --own-settings.
    SETTINGS_FROM settings_from: Option<WorkloadName> = parsed(WorkloadName::parse) => {
        flags: &["settings-from"],
        kind: ValueKind::Text("NAMESPACE/deployment/NAME"),
        commands: TAKE_SETTINGS,
    }

    /// Do not look for the daemon's settings: a setting that neither you nor the daemon of --settings-from sets has its
    /// default. Without this flag nothing is written while a setting of the daemon is not known.
    OWN_SETTINGS own_settings: bool = parsed(boolean) => {
        flags: &["own-settings"],
        default: Some("false"),
        commands: TAKE_SETTINGS,
    }

    (Group::Controllers, DAEMON, by flag)

    /// Profile: which provider IDs and labels are written. hcloud replaces hcloud-cloud-controller-manager. A node
    /// keeps its provider ID, and a node of the other profile is ignored: do not change the profile of a running
    /// cluster.
    CLOUD_PROVIDER cloud_provider: Profile = choice => {
        flags: &["cloud-provider"],
        kind: ValueKind::Choice(&["ccm-from-scratch", "hcloud"]),
        default: Some("ccm-from-scratch"),
        commands: Command::ALL,
    }

    /// Which controllers run: NAME runs it, -NAME does not, * runs all that are not named, except node-csr-approval.
    /// Names: cloud-node, cloud-node-lifecycle, service, route, node-csr-approval, or their canonical names.
    CONTROLLERS controllers: Vec<Controller> = parsed(values::controllers) => {
        flags: &["controllers"],
        kind: ValueKind::List("NAME"),
        default: Some("*"),
        commands: WITH_CONTROLLERS,
    }

    // The value is never 0, because the parser refuses 0.
    /// How often ccm polls for new nodes: the longest time that a new node waits.
    NODE_SYNC_INTERVAL node_sync_interval: Duration = parsed(interval) => {
        flags: &["node-sync-interval"],
        kind: ValueKind::Duration,
        default: Some("5s"),
    }

    /// How often addresses and labels of all nodes are compared with their servers. With more than 450 servers in the
    /// project, this is less often: these lists use at most 120 calls an hour, one for each 50 servers and one more.
    NODE_STATUS_UPDATE_FREQUENCY node_status_update_frequency: Duration = parsed(interval) => {
        flags: &["node-status-update-frequency"],
        kind: ValueKind::Duration,
        default: Some("5m"),
    }

    /// How often ccm polls for nodes that are not ready.
    NODE_MONITOR_PERIOD node_monitor_period: Duration = parsed(interval) => {
        flags: &["node-monitor-period"],
        kind: ValueKind::Duration,
        default: Some("5s"),
    }

    /// Delete a node only while the token sees the server of another node, because the token of another project sees
    /// none of these servers. Turn it off only for clusters that may have a single node.
    NODE_DELETION_GUARD node_deletion_guard: bool = parsed(boolean) => {
        flags: &["node-deletion-guard"],
        default: Some("true"),
        commands: &[Run, NodeList, NodeInspect, NodeSync],
    }

    /// How long a Cloud server must be off until its node gets the taint node.kubernetes.io/out-of-service, so that its
    /// pods and their volumes move to other nodes: at least 5m. 0: never. See ccm help nodes.
    NODE_OUT_OF_SERVICE_AFTER out_of_service_after: Option<Duration> = parsed(values::out_of_service_after) => {
        flags: &["node-out-of-service-after"],
        kind: ValueKind::Duration,
        default: Some("0"),
        commands: &[Run, NodeInspect],
    }

    /// How often ccm polls for changed Services: the longest time that a new Service waits.
    SERVICE_SYNC_INTERVAL service_sync_interval: Duration = parsed(interval) => {
        flags: &["service-sync-interval"],
        kind: ValueKind::Duration,
        default: Some("5s"),
    }

    /// Only Services with this spec.loadBalancerClass get a load balancer. Unset: only Services without a class. The
    /// load balancers of all other Services stay unchanged.
    LOAD_BALANCER_CLASS load_balancer_class: Option<String> = parsed(unless_empty(values::class)) => {
        flags: &["load-balancer-class"],
        kind: ValueKind::Text("CLASS"),
        commands: WITH_LOAD_BALANCERS,
    }

    /// Only Services whose labels match get a load balancer, e.g. lb!=metallb; written like a selector of kubectl -l.
    /// The load balancers of all other Services stay unchanged, with ports, targets and addresses, until these Services
    /// match again.
    SERVICE_SELECTOR service_selector: Option<Selector> = parsed(unless_empty(Selector::parse)) => {
        flags: &["service-selector"],
        kind: ValueKind::Text("SELECTOR"),
        commands: WITH_LOAD_BALANCERS,
    }

    /// How often load balancers are compared when their Service did not change. Changes made by hand are then undone.
    /// With more than 200 load balancers, this is less often: these lists use at most 60 calls an hour (ccm status
    /// shows how often).
    LOAD_BALANCER_RESYNC_PERIOD load_balancer_resync_period: Duration = parsed(interval) => {
        flags: &["load-balancer-resync-period"],
        kind: ValueKind::Duration,
        default: Some("5m"),
    }

    /// How many nodes are written at the same time, 100 at most: new nodes, taints of nodes whose server is off,
    /// conditions of routes.
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

    /// Name of the cluster, for people: the first part of the names of load balancers. Two clusters in one project may
    /// have the same name: the UID of their Service default/kubernetes identifies them.
    CLUSTER_NAME cluster_name: String = parsed(values::cluster_name) => {
        flags: &["cluster-name"],
        kind: ValueKind::Text("NAME"),
        default: Some("kubernetes"),
        commands: WITH_LOAD_BALANCERS,
    }

    // The list is empty when the setting is unset.
    /// Address ranges of the cluster's pods, the same as for kube-controller-manager. Routes of the Network within
    /// these ranges are managed, all other routes are never changed. Unset: the route controller does not run.
    CLUSTER_CIDR cluster_cidrs: Vec<IpNet> = parsed(values::cidrs) => {
        flags: &["cluster-cidr"],
        kind: ValueKind::List("CIDR"),
        commands: WITH_ROUTES,
    }

    /// false turns the route controller off, as HCLOUD_NETWORK_ROUTES_ENABLED=false does.
    CONFIGURE_CLOUD_ROUTES configure_cloud_routes: bool = parsed(boolean) => {
        flags: &["configure-cloud-routes"],
        default: Some("true"),
        commands: WITH_ROUTES,
    }

    /// Shortest time between two comparisons of the Network's routes. They are compared when nodes change, and every
    /// five minutes.
    ROUTE_RECONCILIATION_PERIOD route_reconciliation_period: Duration = parsed(interval) => {
        flags: &["route-reconciliation-period"],
        kind: ValueKind::Duration,
        default: Some("30s"),
    }

    /// Delete load balancers of this cluster whose Service does not exist, at each resync. Load balancers with delete
    /// protection stay. false: they are only reported; ccm lb list shows them.
    DELETE_ORPHANED_LOAD_BALANCERS delete_orphaned_load_balancers: bool = parsed(boolean) => {
        flags: &["delete-orphaned-load-balancers"],
        default: Some("false"),
    }

    /// Delete load balancers of this cluster whose Service does not exist, and do nothing else. They are listed, and
    /// you confirm.
    DELETE_ORPHANS delete_orphans: bool = parsed(boolean) => {
        flags: &["delete-orphans"],
        default: Some("false"),
        commands: &[LbSync],
    }

    /// With --delete-orphans, lb adopt, lb release and node relabel: do not ask.
    YES yes: bool = parsed(boolean) => {
        flags: &["yes"],
        default: Some("false"),
        commands: &[NodeRelabel, LbSync, LbAdopt, LbRelease],
    }

    (Group::LeaderElection, DAEMON, by flag)

    /// When several daemons run, only the holder of the Lease works, and the others wait.
    /// hcloud-cloud-controller-manager uses the same Lease. false: no Lease is read or written.
    LEADER_ELECT leader_elect: bool = parsed(boolean) => {
        flags: &["leader-elect"],
        default: Some("true"),
        commands: DAEMON_AND_DOCTOR,
    }

    // When `leader_elect` is true, the module `resolve` has checked that the lease duration, the renew deadline and the
    // retry period fit together.
    /// How long the others wait for a leader that does not renew its Lease. It must be longer than the renew deadline,
    /// and not shorter than the retry period plus 8s (the longest write).
    LEASE_DURATION lease_duration: Duration = parsed(interval) => {
        flags: &["leader-elect-lease-duration"],
        kind: ValueKind::Duration,
        default: Some("15s"),
    }

    /// A leader that could not renew its Lease for this time exits with code 1. The time must be
    /// longer than 1.2 retry periods.
    RENEW_DEADLINE renew_deadline: Duration = parsed(interval) => {
        flags: &["leader-elect-renew-deadline"],
        kind: ValueKind::Duration,
        default: Some("10s"),
    }

    /// How often the leader renews its Lease, and the others read it.
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

    /// Run every enabled controller once, then exit: for cron and CronJobs.
    ONCE once: bool = parsed(boolean) => { flags: &["once"], default: Some("false"), }

    /// Print the planned changes. Write nothing to either API.
    DRY_RUN dry_run: bool = parsed(boolean) => {
        own: true,
        flags: &["dry-run"],
        default: Some("false"),
        commands: PLANNING,
    }

    (Group::Output, Command::ALL, by flag)

    /// With --dry-run: exit code 3 instead of 0 when changes are pending.
    DETAILED_EXITCODE detailed_exitcode: bool = parsed(boolean) => {
        flags: &["detailed-exitcode"],
        default: Some("false"),
        commands: SYNCS,
    }

    /// Namespace of Services that are named without a namespace. Unset: the namespace of the kubeconfig's context. lb
    /// list shows only this namespace.
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

    /// List only objects with these labels, e.g. app=web,tier in (a,b),!old.
    SELECTOR selector: Option<Selector> = parsed(unless_empty(Selector::parse)) => {
        flags: &["selector"],
        short: Some('l'),
        kind: ValueKind::Text("SELECTOR"),
        commands: &[NodeList, LbList],
    }

    /// Sort by any heading of -o wide, numbers by their value.
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
    /// Repeat the output until Ctrl-C (exit code 130): the cluster is read every 5 seconds, the Cloud API once a
    /// minute. A terminal is redrawn; elsewhere a list prints the rows that changed, and status prints each screen with
    /// its time.
    WATCH watch: bool = parsed(boolean) => {
        flags: &["watch"],
        short: Some('w'),
        default: Some("false"),
        commands: &[NodeList, LbList, RouteList, Status],
    }

    /// Manifests to check, YAML or JSON, each at most 8 MiB; - is stdin. Folders are not read.
    FILES files: Vec<String> = parsed(|text| Ok(text.split(',').map(str::to_owned).collect())) => {
        flags: &["filename"],
        short: Some('f'),
        kind: ValueKind::List("FILE"),
        commands: &[Lint],
    }

    // Commands that do not print a list refuse the format `name`.
    /// Output format on stdout. json and yaml are stable, for scripts. name: only the names in a list, e.g.
    /// service/default/web.
    OUTPUT output: Output = output => {
        flags: &["output"],
        short: Some('o'),
        kind: ValueKind::Choice(&["table", "wide", "name", "json", "yaml"]),
        default: Some("table"),
        commands: CLIENTS,
    }

    /// Whether text is coloured; json, yaml and the log never are. auto: at a terminal, unless NO_COLOR is set or TERM
    /// is dumb.
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

    /// Log level: 0 logs changes and failures, 4 adds every call to both APIs. Secrets are never logged.
    VERBOSITY verbosity: u32 = parsed(values::verbosity) => {
        called: "verbosity",
        flags: &["v"],
        short: Some('v'),
        kind: ValueKind::Integer,
        default: Some("0"),
    }

    /// Log every request to the Hetzner Cloud API and its answer, with secrets redacted.
    DEBUG debug: bool = parsed(boolean) => { variables: &[Value(variables::HCLOUD_DEBUG)], default: Some("false"), }

    /// Serve /metrics for Prometheus. false removes only /metrics: the probes stay.
    METRICS_ENABLED metrics_enabled: bool = parsed(boolean) => {
        variables: &[Value(variables::HCLOUD_METRICS_ENABLED)],
        default: Some("true"),
        commands: DAEMON,
    }

    // The address on which the daemon serves its metrics and health checks. `[::]` means every IPv4 and IPv6 address of
    // the machine, and port 0 means any free port. `None` means that nothing is served.
    /// Address on which the daemon serves /healthz, /livez, /readyz and /metrics. :PORT listens on every address of the
    /// machine. An empty flag (--metrics-address=) turns the server off; an empty variable does not.
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
