//! All settings, parsed: one field and one line for every row of the table.

use super::args::Args;
use super::effective::{Candidate, DaemonSettings, Effective, Place, Resolver};
use super::environment::Environment;
use super::problem::{Notice, Problem};
use super::setting::Command;
use super::table;
use super::values::{
    self, Controllers, ListenAddress, LogFormat, ObjectName, Output, Token, Url, WorkloadName,
    boolean, choice,
};
use crate::provider::{AddressFamily, Algorithm, NetworkSelector, Profile, Sourced};
use crate::text::duration::{duration, interval, whole_seconds};
use crate::text::selector::Selector;
use crate::text::{self, unencrypted};
use ipnet::{IpNet, Ipv4Net};
use std::path::PathBuf;
use std::time::Duration;

/// All settings, typed. Those that a command does not take have their default.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Required: `None` only together with a [`Problem`].
    pub token: Sourced<Option<Token>>,
    pub endpoint: Sourced<Url>,
    /// APIs on other machines may be reached without TLS.
    pub allow_insecure_endpoint: Sourced<bool>,
    pub network: Sourced<Option<NetworkSelector>>,
    pub network_routes_enabled: Sourced<bool>,
    pub network_disable_attached_check: Sourced<bool>,
    pub metadata_endpoint: Sourced<Option<Url>>,
    pub address_family: Sourced<AddressFamily>,
    pub zone_label_enabled: Sourced<bool>,
    /// Zero: every decision requests a new list.
    pub server_cache_max_age: Sourced<Duration>,
    /// Never true: refused as not built yet.
    pub robot_enabled: Sourced<bool>,
    pub load_balancers: LoadBalancers,
    /// Files to merge, the first wins. Empty: in-cluster, else `~/.kube/config`.
    pub kubeconfig: Sourced<Vec<PathBuf>>,
    pub context: Sourced<Option<String>>,
    pub master: Sourced<Option<Url>>,
    pub cloud_provider: Sourced<Profile>,
    pub controllers: Sourced<Controllers>,
    /// Longer than zero, before the time scale.
    pub node_sync_interval: Sourced<Duration>,
    /// Longer than zero, before the time scale.
    pub node_status_update_frequency: Sourced<Duration>,
    /// Longer than zero, before the time scale.
    pub node_monitor_period: Sourced<Duration>,
    pub node_deletion_guard: Sourced<bool>,
    /// Longer than zero, before the time scale.
    pub service_sync_interval: Sourced<Duration>,
    /// Longer than zero, before the time scale.
    pub load_balancer_resync_period: Sourced<Duration>,
    /// At least 1.
    pub concurrent_service_syncs: Sourced<usize>,
    pub cluster_name: Sourced<String>,
    /// Empty: unset.
    pub cluster_cidrs: Sourced<Vec<IpNet>>,
    pub configure_cloud_routes: Sourced<bool>,
    /// Longer than zero, before the time scale.
    pub route_reconciliation_period: Sourced<Duration>,
    pub delete_orphaned_load_balancers: Sourced<bool>,
    /// Of `lb sync`.
    pub delete_orphans: Sourced<bool>,
    pub yes: Sourced<bool>,
    /// Of the client commands.
    pub settings_from: Sourced<Option<WorkloadName>>,
    /// Of the client commands about load balancers.
    pub namespace: Sourced<Option<String>>,
    pub leader_elect: Sourced<bool>,
    /// This and the next two fit together when `leader_elect` is true; before the time scale.
    pub lease_duration: Sourced<Duration>,
    pub renew_deadline: Sourced<Duration>,
    pub retry_period: Sourced<Duration>,
    pub lease_name: Sourced<ObjectName>,
    pub lease_namespace: Sourced<ObjectName>,
    pub once: Sourced<bool>,
    pub dry_run: Sourced<bool>,
    pub detailed_exitcode: Sourced<bool>,
    pub output: Sourced<Output>,
    pub log_format: Sourced<LogFormat>,
    pub verbosity: Sourced<u32>,
    pub debug: Sourced<bool>,
    /// Whether it answers `/metrics`.
    pub metrics_enabled: Sourced<bool>,
    /// Of the health server. None: there is none.
    pub metrics_address: Sourced<Option<ListenAddress>>,
    /// A factor on every wait; greater than zero.
    pub test_time_scale: Sourced<f64>,
}

pub(super) struct Resolved {
    pub(super) settings: Settings,
    pub(super) effective: Vec<Effective>,
    pub(super) notices: Vec<Notice>,
    pub(super) problems: Vec<Problem>,
}

pub(super) fn resolve(
    command: Command,
    args: &Args,
    environment: &dyn Environment,
    daemon: Option<&DaemonSettings>,
) -> Resolved {
    let mut read = Resolver {
        command,
        args,
        environment,
        daemon,
        effective: Vec::new(),
        problems: Vec::new(),
    };
    let cloud_provider = read.setting(&table::CLOUD_PROVIDER, choice);
    let allow_insecure_endpoint = read.setting(&table::ALLOW_INSECURE_ENDPOINT, boolean);
    let unencrypted = Unencrypted {
        is_allowed: allow_insecure_endpoint.value,
        profile: cloud_provider.value,
    };
    let settings = Settings {
        token: token(&mut read),
        endpoint: read.setting(&table::ENDPOINT, |text| {
            unencrypted.check(Url::parse(text)?)
        }),
        allow_insecure_endpoint,
        network: read.setting(&table::NETWORK, values::network),
        network_routes_enabled: read.setting(&table::NETWORK_ROUTES_ENABLED, boolean),
        network_disable_attached_check: read
            .setting(&table::NETWORK_DISABLE_ATTACHED_CHECK, boolean),
        metadata_endpoint: read.setting(&table::METADATA_ENDPOINT, values::url),
        address_family: read.setting(&table::ADDRESS_FAMILY, choice),
        zone_label_enabled: read.setting(&table::ZONE_LABEL_ENABLED, boolean),
        server_cache_max_age: read.setting(&table::SERVER_CACHE_MAX_AGE, duration),
        robot_enabled: read.setting(&table::ROBOT_ENABLED, values::robot),
        load_balancers: load_balancers(&mut read),
        kubeconfig: read.sourced(&table::KUBECONFIG, kubeconfig),
        context: read.setting(&table::CONTEXT, values::name),
        master: read.setting(&table::MASTER, |text| {
            let url = values::url(text)?;
            url.map(|url| unencrypted.check(url)).transpose()
        }),
        cloud_provider,
        controllers: read.setting(&table::CONTROLLERS, Controllers::parse),
        node_sync_interval: read.setting(&table::NODE_SYNC_INTERVAL, interval),
        node_status_update_frequency: read.setting(&table::NODE_STATUS_UPDATE_FREQUENCY, interval),
        node_monitor_period: read.setting(&table::NODE_MONITOR_PERIOD, interval),
        node_deletion_guard: read.setting(&table::NODE_DELETION_GUARD, boolean),
        service_sync_interval: read.setting(&table::SERVICE_SYNC_INTERVAL, interval),
        load_balancer_resync_period: read.setting(&table::LOAD_BALANCER_RESYNC_PERIOD, interval),
        concurrent_service_syncs: read.setting(&table::CONCURRENT_SERVICE_SYNCS, values::count),
        cluster_name: read.setting(&table::CLUSTER_NAME, values::cluster_name),
        cluster_cidrs: read.setting(&table::CLUSTER_CIDR, values::cidrs),
        configure_cloud_routes: read.setting(&table::CONFIGURE_CLOUD_ROUTES, boolean),
        route_reconciliation_period: read.setting(&table::ROUTE_RECONCILIATION_PERIOD, interval),
        delete_orphaned_load_balancers: read
            .setting(&table::DELETE_ORPHANED_LOAD_BALANCERS, boolean),
        delete_orphans: read.setting(&table::DELETE_ORPHANS, boolean),
        yes: read.setting(&table::YES, boolean),
        settings_from: read.setting(&table::SETTINGS_FROM, WorkloadName::parse),
        namespace: read.setting(&table::NAMESPACE, values::name),
        leader_elect: read.setting(&table::LEADER_ELECT, boolean),
        lease_duration: read.setting(&table::LEASE_DURATION, interval),
        renew_deadline: read.setting(&table::RENEW_DEADLINE, interval),
        retry_period: read.setting(&table::RETRY_PERIOD, interval),
        lease_name: read.setting(&table::LEASE_NAME, values::object_name),
        lease_namespace: read.setting(&table::LEASE_NAMESPACE, values::namespace),
        once: read.setting(&table::ONCE, boolean),
        dry_run: read.setting(&table::DRY_RUN, boolean),
        detailed_exitcode: read.setting(&table::DETAILED_EXITCODE, boolean),
        output: read.setting(&table::OUTPUT, choice),
        log_format: read.setting(&table::LOG_FORMAT, choice),
        verbosity: read.setting(&table::VERBOSITY, values::verbosity),
        debug: read.setting(&table::DEBUG, boolean),
        metrics_enabled: read.setting(&table::METRICS_ENABLED, boolean),
        metrics_address: read.setting(&table::METRICS_ADDRESS, ListenAddress::parse),
        test_time_scale: read.setting(&table::TEST_TIME_SCALE, values::scale),
    };
    let mut problems = read.problems;
    problems.extend(leader_election_problems(&settings));
    problems.extend(load_balancer_problems(&settings.load_balancers));
    let mut effective = read.effective;
    let place = |one: &Effective| {
        let mut table = table::TABLE.iter();
        table.position(|setting| std::ptr::eq(*setting, one.setting))
    };
    effective.sort_by_key(place);
    Resolved {
        notices: unencrypted.notices(&settings),
        settings,
        effective,
        problems,
    }
}

fn token(read: &mut Resolver) -> Sourced<Option<Token>> {
    let problems_before = read.problems.len();
    let token = read.sourced(&table::TOKEN, |candidate| {
        let file = match &candidate.place {
            Place::File(path) => Some(path.clone()),
            _ => None,
        };
        Token::parse(&candidate.text, file).map(Some)
    });
    if token.value.is_none() && read.problems.len() == problems_before {
        let message = "not set; set it or HCLOUD_TOKEN_FILE to a token of the project's API \
                       (Hetzner Console → Security → API tokens)";
        read.problems
            .push(Problem::environment("HCLOUD_TOKEN", message));
    }
    token
}

/// Whether an API may be reached without TLS.
struct Unencrypted {
    is_allowed: bool,
    profile: Profile,
}

impl Unencrypted {
    fn check(&self, url: Url) -> Result<Url, String> {
        match url.leaves_unencrypted() && !self.is_allowed && self.profile != Profile::Hcloud {
            true => Err(unencrypted::why("token")),
            false => Ok(url),
        }
    }

    /// Warnings.
    fn notices(&self, settings: &Settings) -> Vec<Notice> {
        let endpoint = (Some(&settings.endpoint.value), &settings.endpoint.source);
        let master = (settings.master.value.as_ref(), &settings.master.source);
        let such = [endpoint, master]
            .into_iter()
            .filter(|(url, _)| !self.is_allowed && url.is_some_and(Url::leaves_unencrypted));
        such.map(|(_, source)| Notice::Unencrypted {
            name: source.name().to_owned(),
        })
        .collect()
    }
}

/// The flag is one path; the variable may list several.
fn kubeconfig(candidate: &Candidate) -> Result<Vec<PathBuf>, String> {
    Ok(match candidate.place {
        Place::Flag => values::path(&candidate.text),
        _ => values::paths(&candidate.text),
    })
}

/// Defaults of load balancers, for Services without the annotation. None: unset.
#[derive(Debug, Clone)]
pub struct LoadBalancers {
    pub enabled: Sourced<bool>,
    pub kind: Option<Sourced<String>>,
    /// Not together with `network_zone`.
    pub location: Option<Sourced<String>>,
    pub network_zone: Option<Sourced<String>>,
    pub algorithm: Option<Sourced<Algorithm>>,
    pub disable_public_network: Option<Sourced<bool>>,
    pub disable_private_ingress: Option<Sourced<bool>>,
    pub use_private_ip: Option<Sourced<bool>>,
    pub private_subnet: Option<Sourced<Ipv4Net>>,
    pub disable_ipv6: Option<Sourced<bool>>,
    pub uses_proxyprotocol: Option<Sourced<bool>>,
    pub health_check_interval_s: Option<Sourced<u32>>,
    pub health_check_timeout_s: Option<Sourced<u32>>,
    pub health_check_retries: Option<Sourced<u32>>,
    pub health_check_node_port: Option<Sourced<bool>>,
    pub primary_ip_selector: Option<Sourced<Selector>>,
}

fn load_balancers(read: &mut Resolver) -> LoadBalancers {
    LoadBalancers {
        enabled: read.setting(&table::LB_ENABLED, boolean),
        kind: read.optional(&table::LB_TYPE, values::text),
        location: read.optional(&table::LB_LOCATION, values::text),
        network_zone: read.optional(&table::LB_NETWORK_ZONE, values::text),
        algorithm: read.optional(&table::LB_ALGORITHM_TYPE, |text| {
            choice(&text.to_ascii_lowercase())
        }),
        disable_public_network: read.optional(&table::LB_DISABLE_PUBLIC_NETWORK, boolean),
        disable_private_ingress: read.optional(&table::LB_DISABLE_PRIVATE_INGRESS, boolean),
        use_private_ip: read.optional(&table::LB_USE_PRIVATE_IP, boolean),
        private_subnet: read.optional(&table::LB_PRIVATE_SUBNET_IP_RANGE, text::ip_range),
        disable_ipv6: read.optional(&table::LB_DISABLE_IPV6, boolean),
        uses_proxyprotocol: read.optional(&table::LB_USES_PROXYPROTOCOL, boolean),
        health_check_interval_s: read.optional(&table::LB_HEALTH_CHECK_INTERVAL, whole_seconds),
        health_check_timeout_s: read.optional(&table::LB_HEALTH_CHECK_TIMEOUT, whole_seconds),
        health_check_retries: read.optional(&table::LB_HEALTH_CHECK_RETRIES, text::count),
        health_check_node_port: read.optional(&table::LB_HEALTH_CHECK_NODE_PORT, boolean),
        primary_ip_selector: read.optional(&table::LB_PRIMARY_IP_SELECTOR, Selector::parse),
    }
}

/// A location and a network zone exclude each other.
fn load_balancer_problems(settings: &LoadBalancers) -> Vec<Problem> {
    match (&settings.location, &settings.network_zone) {
        (Some(location), Some(zone)) => {
            let message = format!(
                "set only one of it and HCLOUD_LOAD_BALANCERS_NETWORK_ZONE (which is {:?})",
                zone.value
            );
            let problem = Problem::environment("HCLOUD_LOAD_BALANCERS_LOCATION", message);
            vec![problem.with_value(location.value.as_str())]
        }
        _ => Vec::new(),
    }
}

/// What a write may take: one that could outlive the lease does not start.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(8);

/// client-go's `JitterFactor`: a candidate may look that many retry periods later.
const JITTER_FACTOR: f64 = 1.2;

/// `leaseDurationSeconds` is an int32.
const LONGEST_LEASE: Duration = Duration::from_secs(i32::MAX as u64);

/// Durations that do not fit together, as client-go checks them, and as our gate needs them.
fn leader_election_problems(settings: &Settings) -> Vec<Problem> {
    if !settings.leader_elect.value {
        return Vec::new();
    }
    let (lease, deadline) = (&settings.lease_duration, &settings.renew_deadline);
    let retry = settings.retry_period.value;
    let mut problems = Vec::new();
    let mut wrong = |flag: &str, value: Duration, message: String| {
        problems.push(Problem::usage(flag, message).with_value(in_seconds(value)));
    };
    if deadline.value.as_secs_f64() <= JITTER_FACTOR * retry.as_secs_f64() {
        let message = format!(
            "must be longer than {JITTER_FACTOR} × --leader-elect-retry-period ({})",
            in_seconds(retry)
        );
        wrong("--leader-elect-renew-deadline", deadline.value, message);
    }
    let shortest = WRITE_TIMEOUT.saturating_add(retry);
    if lease.value <= deadline.value {
        let message = format!(
            "must be longer than --leader-elect-renew-deadline ({})",
            in_seconds(deadline.value)
        );
        wrong("--leader-elect-lease-duration", lease.value, message);
    } else if lease.value < shortest {
        let message = format!(
            "must be {} or longer: a write may take {} and must be over before the Lease is, \
             also at the end of a --leader-elect-retry-period ({})",
            in_seconds(shortest),
            in_seconds(WRITE_TIMEOUT),
            in_seconds(retry)
        );
        wrong("--leader-elect-lease-duration", lease.value, message);
    } else if lease.value > LONGEST_LEASE {
        let message = "longer than 68 years".to_owned();
        wrong("--leader-elect-lease-duration", lease.value, message);
    }
    problems
}

fn in_seconds(duration: Duration) -> String {
    format!("{}s", duration.as_secs_f64())
}
