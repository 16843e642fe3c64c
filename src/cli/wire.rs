//! Creates the clients of Kubernetes and the cloud, and the settings of each controller, from the settings of a
//! command. Only this file creates the cloud provider.

use crate::cache::Apis;
use crate::controllers::kubelet_certificates::KubeletCertificates;
use crate::controllers::{lifecycle, node, route, service};
use crate::hetzner::{self, CloudConnection, Hetzner, NodeSettings, robot};
use crate::http::{
    self, Authorities, Proxies, SecretSource, Timing, Tls, WRITE_TIMEOUT, read_file, without_tls,
};
use crate::kube::{self, KubeClient, config};
use crate::provider::variables::{HCLOUD_NETWORK, HCLOUD_NETWORK_ROUTES_ENABLED, HCLOUD_TOKEN};
use crate::provider::{Gate, OpenGate, Profile, Refused, Urgency, ZoneSettings, clock, process};
use crate::settings::{Command, Controller, Settings};
use std::path::Path;
use std::sync::{Arc, Once};
use std::time::Duration;

/// The greatest number of threads that write nodes at the same time. Each thread has a connection of its own.
const WRITERS_AT_MOST: u32 = 100;

/// How long a client waits before it repeats a failed read.
const RETRY_WAIT: Duration = Duration::from_millis(250);

/// The shortest timeout of a read. In tests in which the program's clock runs faster than real time, timeouts are
/// shorter, but never shorter than this real time, because an API needs some real time to answer.
const SHORTEST_READ_TIMEOUT: Duration = Duration::from_secs(2);

/// The shortest time limit of the program that the kubeconfig names under `exec`. This program prints credentials, and
/// needs some real time to start and to read its files. So its time limit is never below this real time, even in tests
/// in which the clock of ccm runs faster.
const SHORTEST_EXEC_TIME_LIMIT: Duration = Duration::from_secs(5);

/// The number of characters that a token of the Cloud API has. A token of another length causes a warning.
pub(super) const TOKEN_CHARACTERS: usize = 64;

/// Returns the URL of the metadata service, which says whether this machine is attached to the private Network. Returns
/// `None` when a setting turns this check off. A dry run also gets `None`, because it may be started on any machine.
pub(super) fn metadata(settings: &Settings) -> Option<String> {
    if settings.network_disable_attached_check.value || settings.dry_run.value {
        return None;
    }
    let named = settings.metadata_endpoint.value.as_ref().map(ToString::to_string);
    Some(named.unwrap_or_else(|| hetzner::METADATA_ENDPOINT.to_owned()))
}

/// The gate, i.e. the check before each write, for a command that must not change anything. It refuses all writes
/// except those that are known to change nothing, such as a review of the user's rights.
struct ReadOnly;

impl Gate for ReadOnly {
    fn pass(&self, what: &str) -> Result<(), Refused> {
        if [kube::ACCESS_REVIEW, hetzner::HARMLESS_WRITE].contains(&what) {
            Ok(())
        } else {
            Err(Refused("this command writes nothing".into()))
        }
    }
}

/// Returns the gate, i.e. the check before each write, for a command that a user runs. The gate allows all writes of a
/// command such as `lb sync`. With `--dry-run`, and for commands that only read, it refuses writes.
pub(super) fn gate(command: Command, settings: &Settings) -> Arc<dyn Gate> {
    match command {
        _ if command.writes() && !settings.dry_run.value => Arc::new(OpenGate),
        _ => Arc::new(ReadOnly),
    }
}

/// Creates the clients of Kubernetes and the cloud from the settings. When `kube` is `None`, a new client of Kubernetes
/// is created. `writes` says how urgent writes to the cloud are. When few calls remain in the API's rate limit, less
/// urgent writes are delayed first. This function makes no call.
pub(super) fn apis(
    kube: Option<KubeClient>,
    settings: &Settings,
    gate: Arc<dyn Gate>,
    writes: Urgency,
    metadata: Option<String>,
) -> Result<Apis, String> {
    let kube = match kube {
        Some(kube) => kube,
        None => kube_client(settings, Arc::clone(&gate))?,
    };
    let provider = provider(settings, gate, writes, metadata)?;
    let length = settings.token.value.as_ref().map_or(TOKEN_CHARACTERS, SecretSource::length);
    if length != TOKEN_CHARACTERS {
        log::warn!(
            "the token from {} has {length} instead of {TOKEN_CHARACTERS} characters: copy the token again",
            settings.token.source.name(),
        );
    }
    Ok(together(settings, kube, provider))
}

pub(super) fn together(settings: &Settings, mut kube: KubeClient, provider: Hetzner) -> Apis {
    kube.scope = service_scope(settings);
    let mut apis = Apis::new(kube, Box::new(provider));
    apis.concurrent_nodes = settings.concurrent_node_syncs.value.min(WRITERS_AT_MOST) as usize;
    apis.dedicated_max_age = settings.robot_cache_timeout.value;
    apis
}

/// Creates the cloud provider from the settings. No call is made.
pub(super) fn provider(
    settings: &Settings,
    gate: Arc<dyn Gate>,
    writes: Urgency,
    metadata: Option<String>,
) -> Result<Hetzner, String> {
    let authorities = authorities()?;
    if authorities.unusable > 0 {
        log::warn!(
            "SSL_CERT_FILE: number of certificates in this file that ccm ignores, because they are damaged or of an \
             unsupported kind: {}",
            authorities.unusable
        );
    }
    let (user, password) = (&settings.robot_user.value, &settings.robot_password.value);
    let has_load_balancers = settings.load_balancers_enabled.value;
    Ok(Hetzner::new(hetzner::HetznerSettings {
        profile: settings.cloud_provider.value,
        connection: CloudConnection {
            endpoint: settings.endpoint.value.clone(),
            tls: Tls { more_authorities: authorities.certificates.into(), ..Tls::default() },
            proxies: proxies()?,
            token: settings
                .token
                .value
                .clone()
                .ok_or_else(|| format!("{HCLOUD_TOKEN}: not set"))?,
            debug: settings.debug.value,
            timing: timing(hetzner::READ_TIMEOUT),
        },
        network: settings.network.value.clone(),
        metadata,
        nodes: NodeSettings {
            address_family: settings.address_family.clone(),
            internal_ip_from: settings.internal_ip_from.value,
            internal_ip_ranges: settings.internal_ip_ranges.value.clone(),
            label_prefixes: settings.label_prefixes.value.clone(),
            foreign: settings.foreign_nodes.value,
            zone: ZoneSettings {
                is_enabled: settings.zone_label_enabled.value,
                label: settings.zone_label.value,
            },
        },
        robot: settings.robot_enabled.value.then(|| robot::RobotSettings {
            endpoint: settings.robot_endpoint.value.clone(),
            credentials: user.clone().zip(password.clone()),
            rate_limit_wait: settings.robot_rate_limit_wait_time.value,
            forward_internal_ips: settings.robot_forward_internal_ips.clone(),
        }),
        load_balancers: has_load_balancers.then(|| Arc::new(settings.load_balancers.clone())),
        gate,
        urgency: writes,
    }))
}

/// Creates a client for the Kubernetes API of the cluster that the settings name. No call is made.
pub(super) fn kube_client(settings: &Settings, gate: Arc<dyn Gate>) -> Result<KubeClient, String> {
    client(settings, gate, timing(kube::READ_TIMEOUT))
}

/// Creates the client that reads and writes only the Lease. Its timeout is half of the renew deadline, so that a failed
/// renewal can be tried once more. The timeout is real time, even in tests in which the program's clock runs faster
/// than real time. In such a test, a renewal can wait longer than the renew deadline. This does no harm, because the
/// leadership ends at the renew deadline in any case.
pub(super) fn lease_client(settings: &Settings, gate: Arc<dyn Gate>) -> Result<KubeClient, String> {
    let timeout = settings.renew_deadline.value / 2;
    let timeout = clock::at_least(timeout, timeout);
    let timing =
        Timing { read_timeout: timeout, write_timeout: timeout, ..timing(kube::READ_TIMEOUT) };
    client(settings, gate, timing)
}

fn client(settings: &Settings, gate: Arc<dyn Gate>, timing: Timing) -> Result<KubeClient, String> {
    let mut access = config::load(&kube_options(settings))?;
    check_encryption(settings, &access)?;
    access.tls.tls.more_authorities = authorities()?.certificates.into();
    Ok(KubeClient::new(access, proxies()?, timing, gate))
}

/// Returns a time setting of the Lease, e.g. the renew deadline, as a duration of the program's clock. In tests this
/// clock can run faster than real time, but renewing a Lease still takes some real time. The result is therefore so
/// long that at least a tenth of `time` passes in real time.
pub(super) fn for_lease(time: Duration) -> Duration {
    clock::at_least(time, time / 10)
}

pub(super) fn node_settings(settings: &Settings) -> node::NodeControllerSettings {
    node::NodeControllerSettings {
        sync_interval: settings.node_sync_interval.value,
        status_update_frequency: settings.node_status_update_frequency.value,
        server_cache_max_age: settings.server_cache_max_age.value,
    }
}

pub(super) fn lifecycle_settings(settings: &Settings) -> lifecycle::LifecycleSettings {
    lifecycle::LifecycleSettings {
        monitor_period: settings.node_monitor_period.value,
        node_max_age: settings.node_status_update_frequency.value,
        server_cache_max_age: settings.server_cache_max_age.value,
        deletion_guard: settings.node_deletion_guard.value,
        out_of_service_after: settings.out_of_service_after.value,
    }
}

/// Returns the controller of the certificates of kubelets, or `None` when `--controllers` does not name it.
pub(super) fn certificates(settings: &Settings) -> Option<KubeletCertificates> {
    let is_named = settings.controllers.value.contains(&Controller::NodeCsrApproval);
    is_named.then(|| KubeletCertificates::new(settings.server_cache_max_age.value))
}

/// Returns the settings that decide which Services get a load balancer from ccm: the load balancer class and the
/// selector.
pub(super) fn service_scope(settings: &Settings) -> kube::ServiceScope {
    kube::ServiceScope {
        class: settings.load_balancer_class.value.clone(),
        selector: settings.service_selector.value.clone().unwrap_or_default(),
        annotations: Some(hetzner::load_balancers::annotations::kind_of),
        defaults: settings
            .load_balancers_namespace_defaults
            .value
            .then_some(hetzner::load_balancers::annotations::is_default),
    }
}

pub(super) fn service_settings(settings: &Settings) -> service::ServiceSettings {
    service::ServiceSettings {
        sync_interval: settings.service_sync_interval.value,
        resync_period: settings.load_balancer_resync_period.value,
        concurrency: settings.concurrent_service_syncs.value as usize,
        cluster_name: settings.cluster_name.value.clone(),
        departing_cordoned: settings.load_balancers_departing_cordoned.value,
        delete_orphans: settings.delete_orphaned_load_balancers.value,
    }
}

/// Returns the settings of the route controller. The error says why the route controller does not run.
pub(super) fn route_settings(settings: &Settings) -> Result<route::RouteSettings, RoutesOff> {
    let cidrs = &settings.cluster_cidrs.value;
    let ipv4 = cidrs.iter().filter(|cidr| cidr.addr().is_ipv4()).count();
    let enabled = &settings.network_routes_enabled;
    let is_asked_for = !enabled.source.is_default();
    let switches = [enabled, &settings.configure_cloud_routes];
    if let Some(switch) = switches.into_iter().find(|flag| !flag.value) {
        let why = format!("{} is false", switch.source.name());
        return Err(RoutesOff { why, is_wanted: false });
    }
    // With `--cloud-provider=hcloud`, a dual-stack cluster gets routes only when a setting asks for them.
    // hcloud-cloud-controller-manager behaves in this way, and a cluster that was moved from it may rely on having no
    // routes.
    let is_hcloud = settings.cloud_provider.value == Profile::Hcloud;
    let has_network = settings.network.value.is_some();
    let is_wanted = has_network || is_asked_for || !cidrs.is_empty();
    let why = if !has_network {
        format!("{HCLOUD_NETWORK} is not set")
    } else if cidrs.is_empty() {
        "--cluster-cidr is not set".to_owned()
    } else if ipv4 == 0 {
        "--cluster-cidr has no IPv4 range, but a Network has only IPv4 routes".to_owned()
    } else if is_hcloud && ipv4 < cidrs.len() && !is_asked_for {
        format!(
            "with --cloud-provider=hcloud and a dual-stack --cluster-cidr, IPv4 routes need \
             {HCLOUD_NETWORK_ROUTES_ENABLED}=true"
        )
    } else {
        return Ok(route::RouteSettings {
            cluster_cidrs: cidrs.clone(),
            reconciliation_period: settings.route_reconciliation_period.value,
            server_cache_max_age: settings.server_cache_max_age.value,
        });
    };
    Err(RoutesOff { why, is_wanted })
}

/// The reason why the route controller does not run.
pub(super) struct RoutesOff {
    pub(super) why: String,
    /// Whether the settings ask for routes. If so, the reason why the route controller does not run is logged as a
    /// warning.
    pub(super) is_wanted: bool,
}

fn timing(read_timeout: Duration) -> Timing {
    Timing {
        read_timeout: clock::at_least(read_timeout, SHORTEST_READ_TIMEOUT),
        write_timeout: for_lease(WRITE_TIMEOUT),
        retry_wait: RETRY_WAIT,
    }
}

/// Returns an error when credentials would leave this machine without TLS, and no setting allows this. With
/// `--cloud-provider=hcloud`, only a warning is logged once, because hcloud-cloud-controller-manager accepts such a
/// connection, and ccm must be able to replace that program in each cluster.
fn check_encryption(settings: &Settings, access: &config::Access) -> Result<(), String> {
    static WARNING: Once = Once::new();
    if !access.is_unencrypted() || settings.allow_insecure_endpoint.value {
        return Ok(());
    }
    let (place, server) = (&access.named_by, &access.server);
    let why = format!("{place}: {server:?}: {}", without_tls("credentials"));
    match settings.cloud_provider.value {
        Profile::CcmFromScratch => Err(why),
        Profile::Hcloud => {
            WARNING.call_once(|| log::warn!("{why}"));
            Ok(())
        }
    }
}

/// The greatest size in bytes of the file that `SSL_CERT_FILE` names. An operating system's file with all root
/// certificates has about a quarter of a megabyte.
const BUNDLE_LIMIT_BYTES: u64 = 4 << 20;

/// Returns the certificates in the file that `SSL_CERT_FILE` names. They are trusted in addition to the built-in root
/// certificates.
fn authorities() -> Result<Authorities, String> {
    match process::variable("SSL_CERT_FILE").filter(|path| !path.is_empty()) {
        None => Ok(Authorities::default()),
        Some(path) => read_file(Path::new(&path), BUNDLE_LIMIT_BYTES)
            .and_then(|pem| Authorities::parse(&pem))
            .map_err(|why| format!("SSL_CERT_FILE: {}: {why}", path.display())),
    }
}

/// Returns the names of all contexts in the kubeconfig, or an empty list when the kubeconfig can't be read.
pub(super) fn contexts(settings: &Settings) -> Vec<String> {
    config::contexts(&kube_options(settings)).unwrap_or_default()
}

fn kube_options(settings: &Settings) -> config::Options {
    let variable = |name| process::variable(name).and_then(|value| value.into_string().ok());
    let variable = |name| variable(name).filter(|value| !value.is_empty());
    config::Options {
        kubeconfig: settings.kubeconfig.value.clone(),
        context: settings.context.value.clone(),
        master: settings.master.value.clone(),
        service: variable("KUBERNETES_SERVICE_HOST").map(|host| {
            let port = variable("KUBERNETES_SERVICE_PORT");
            (host, port.unwrap_or_else(|| "443".into()))
        }),
        home: process::home(),
        exec_time_limit: Some(clock::at_least(config::EXEC_TIME_LIMIT, SHORTEST_EXEC_TIME_LIMIT)),
    }
}

/// Returns the proxies that are set by environment variables such as `HTTPS_PROXY`. The variables are the same as those
/// of Go programs.
fn proxies() -> Result<Proxies, String> {
    // A value that is not valid UTF-8 can't be the address of a proxy. Its invalid bytes are replaced here.
    // `ProxyEnvironment::read` then refuses the value, and its error names the value.
    let variable = |name: &str| process::variable(name).map(|v| v.to_string_lossy().into_owned());
    http::ProxyEnvironment::read(variable).map(Proxies::ByEnvironment)
}
