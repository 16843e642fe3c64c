//! What each setting is: one field and one line for every row of the table.

use crate::text::unencrypted;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;

use super::choice::{AddressFamily, LogFormat, Output, Profile, choice};
use super::controllers::Controllers;
use super::duration::{duration, interval};
use super::environment::Environment;
use super::in_force::InForce;
use super::leader_election::{self, ObjectName};
use super::line::Line;
use super::listen::ListenAddress;
use super::load_balancers::{self, LoadBalancers};
use super::problem::{Notice, Problem};
use super::reader::{Candidate, Reader, Source, Sourced};
use super::setting::Command;
use super::table;
use super::taken::{Taken, WorkloadName};
use super::text::{self, NetworkName};
use super::token::Token;
use super::url::Url;

/// All settings, typed. Those that a command does not take have their default.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Required: `None` only together with a [`Problem`].
    pub token: Sourced<Option<Token>>,
    pub endpoint: Sourced<Url>,
    /// APIs on other machines may be reached without TLS.
    pub allow_insecure_endpoint: Sourced<bool>,
    pub network: Sourced<Option<NetworkName>>,
    pub network_routes_enabled: Sourced<bool>,
    pub network_disable_attached_check: Sourced<bool>,
    pub metadata_endpoint: Sourced<Option<Url>>,
    pub address_family: Sourced<AddressFamily>,
    pub zone_label_enabled: Sourced<bool>,
    /// Zero: every decision reads anew.
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
    /// Empty: nobody said it.
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
    pub(super) in_force: Vec<InForce>,
    pub(super) notices: Vec<Notice>,
    pub(super) problems: Vec<Problem>,
}

pub(super) fn resolve(
    command: Command,
    line: &Line,
    environment: &dyn Environment,
    taken: Option<&Taken>,
) -> Resolved {
    let mut read = Reader::new(command, line, environment, taken);
    let cloud_provider = read.setting(&table::CLOUD_PROVIDER, choice);
    let allow_insecure_endpoint = read.setting(&table::ALLOW_INSECURE_ENDPOINT, text::boolean);
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
        network: read.setting(&table::NETWORK, text::network),
        network_routes_enabled: read.setting(&table::NETWORK_ROUTES_ENABLED, text::boolean),
        network_disable_attached_check: read
            .setting(&table::NETWORK_DISABLE_ATTACHED_CHECK, text::boolean),
        metadata_endpoint: read.setting(&table::METADATA_ENDPOINT, text::url),
        address_family: read.setting(&table::ADDRESS_FAMILY, choice),
        zone_label_enabled: read.setting(&table::ZONE_LABEL_ENABLED, text::boolean),
        server_cache_max_age: read.setting(&table::SERVER_CACHE_MAX_AGE, duration),
        robot_enabled: read.setting(&table::ROBOT_ENABLED, text::robot),
        load_balancers: load_balancers::load_balancers(&mut read),
        kubeconfig: read.sourced(&table::KUBECONFIG, kubeconfig),
        context: read.setting(&table::CONTEXT, text::name),
        master: read.setting(&table::MASTER, |text| {
            let url = text::url(text)?;
            url.map(|url| unencrypted.check(url)).transpose()
        }),
        cloud_provider,
        controllers: read.setting(&table::CONTROLLERS, Controllers::parse),
        node_sync_interval: read.setting(&table::NODE_SYNC_INTERVAL, interval),
        node_status_update_frequency: read.setting(&table::NODE_STATUS_UPDATE_FREQUENCY, interval),
        node_monitor_period: read.setting(&table::NODE_MONITOR_PERIOD, interval),
        node_deletion_guard: read.setting(&table::NODE_DELETION_GUARD, text::boolean),
        service_sync_interval: read.setting(&table::SERVICE_SYNC_INTERVAL, interval),
        load_balancer_resync_period: read.setting(&table::LOAD_BALANCER_RESYNC_PERIOD, interval),
        concurrent_service_syncs: read.setting(&table::CONCURRENT_SERVICE_SYNCS, text::count),
        cluster_name: read.setting(&table::CLUSTER_NAME, text::cluster_name),
        cluster_cidrs: read.setting(&table::CLUSTER_CIDR, text::cidrs),
        configure_cloud_routes: read.setting(&table::CONFIGURE_CLOUD_ROUTES, text::boolean),
        route_reconciliation_period: read.setting(&table::ROUTE_RECONCILIATION_PERIOD, interval),
        delete_orphaned_load_balancers: read
            .setting(&table::DELETE_ORPHANED_LOAD_BALANCERS, text::boolean),
        delete_orphans: read.setting(&table::DELETE_ORPHANS, text::boolean),
        yes: read.setting(&table::YES, text::boolean),
        settings_from: read.setting(&table::SETTINGS_FROM, WorkloadName::parse),
        namespace: read.setting(&table::NAMESPACE, text::name),
        leader_elect: read.setting(&table::LEADER_ELECT, text::boolean),
        lease_duration: read.setting(&table::LEASE_DURATION, interval),
        renew_deadline: read.setting(&table::RENEW_DEADLINE, interval),
        retry_period: read.setting(&table::RETRY_PERIOD, interval),
        lease_name: read.setting(&table::LEASE_NAME, leader_election::name),
        lease_namespace: read.setting(&table::LEASE_NAMESPACE, leader_election::namespace),
        once: read.setting(&table::ONCE, text::boolean),
        dry_run: read.setting(&table::DRY_RUN, text::boolean),
        detailed_exitcode: read.setting(&table::DETAILED_EXITCODE, text::boolean),
        output: read.setting(&table::OUTPUT, choice),
        log_format: read.setting(&table::LOG_FORMAT, choice),
        verbosity: read.setting(&table::VERBOSITY, text::verbosity),
        debug: read.setting(&table::DEBUG, text::boolean),
        metrics_enabled: read.setting(&table::METRICS_ENABLED, text::boolean),
        metrics_address: read.setting(&table::METRICS_ADDRESS, ListenAddress::parse),
        test_time_scale: read.setting(&table::TEST_TIME_SCALE, text::scale),
    };
    let mut problems = read.problems;
    problems.extend(leader_election::problems(&settings));
    problems.extend(load_balancers::problems(&settings.load_balancers));
    let mut in_force = read.in_force;
    let place = |one: &InForce| {
        let mut table = table::TABLE.iter();
        table.position(|setting| std::ptr::eq(*setting, one.setting))
    };
    in_force.sort_by_key(place);
    Resolved {
        notices: unencrypted.notices(&settings),
        settings,
        in_force,
        problems,
    }
}

fn token(read: &mut Reader) -> Sourced<Option<Token>> {
    let problems_before = read.problems.len();
    let token = read.sourced(&table::TOKEN, |candidate| {
        Token::parse(&candidate.text, candidate.source.file()).map(Some)
    });
    if token.value.is_none() && read.problems.len() == problems_before {
        let message = "not set; set it or HCLOUD_TOKEN_FILE to a token of the project's API \
                       (Hetzner Console → Security → API tokens)";
        read.problems
            .push(Problem::environment("HCLOUD_TOKEN", message));
    }
    token
}

/// What is done about an API that is reached without TLS.
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

    /// Where it is worth a warning.
    fn notices(&self, settings: &Settings) -> Vec<Notice> {
        let endpoint = (Some(&settings.endpoint.value), &settings.endpoint.source);
        let master = (settings.master.value.as_ref(), &settings.master.source);
        let such = [endpoint, master]
            .into_iter()
            .filter(|(url, _)| !self.is_allowed && url.is_some_and(Url::leaves_unencrypted));
        such.map(|(_, source)| Notice::Unencrypted {
            name: source.to_string(),
        })
        .collect()
    }
}

/// The flag is one path; the variable may list several.
fn kubeconfig(candidate: &Candidate) -> Result<Vec<PathBuf>, String> {
    Ok(match candidate.source {
        Source::Flag(_) => text::path(&candidate.text),
        _ => text::paths(&candidate.text),
    })
}
