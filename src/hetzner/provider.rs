//! Implements the traits of `crate::provider` for Hetzner Cloud. The controllers use only these traits to read and
//! change servers, load balancers and routes, so they do not depend on Hetzner.

use super::actions;
use super::addresses::{AddressRules, addresses, check_ranges, explain_missing};
use super::api::{self, Api, Resource};
use super::load_balancers::{self, Project};
use super::networks::{self, ApiNetwork};
use super::pages::{self, PER_PAGE};
use super::robot::{self, Robot};
use super::servers::CloudServer;
use crate::http::{self, Proxies, Retry, SecretSource, Timing, Tls, percent_encoded};
use crate::provider::variables::{HCLOUD_NETWORK, ROBOT_ENABLED};
use crate::provider::{
    ActionId, Actions, AddressFamily, Applied, Attached, Cause, Change, Checkup, Cluster,
    Dedicated, Description, ErrorKind, Finding, ForeignNodes, Gate, Instance, InstanceId,
    Instances, InternalIpFrom, KeptObject, LabelPrefixes, LoadBalancers, Metadata,
    NamespaceAnnotations, Network as PrivateNetwork, NetworkSelector, Node, Permission, Profile,
    Provider, ProviderError, ProviderId, Reason, RouteChange, Routes, Service, Snapshot, Source,
    Sourced, TargetHealth, Urgency, Usage, Write, ZoneSettings, ZoneValues, lock,
};
use crate::text::shell_command;
use ipnet::IpNet;
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout of a read from the API. Normally the API answers within some hundred milliseconds.
pub const READ_TIMEOUT: Duration = Duration::from_secs(20);
/// The highest number of bytes in the body of an answer. A page with 50 servers has about 300 kB.
const BODY_LIMIT_BYTES: u64 = 16 << 20;

/// The settings of [`Hetzner`], the client of Hetzner's APIs.
pub struct HetznerSettings {
    pub profile: Profile,
    pub connection: CloudConnection,
    pub network: Option<NetworkSelector>,
    /// The URL of Hetzner's metadata service, which says whether this machine is attached to the Network. `None` means
    /// that the attachment is not checked.
    pub metadata: Option<String>,
    pub nodes: NodeSettings,
    /// The settings of Robot, or `None` when `ROBOT_ENABLED` is false.
    pub robot: Option<robot::RobotSettings>,
    /// The default settings for load balancers, or `None` when `HCLOUD_LOAD_BALANCERS_ENABLED` is false.
    pub load_balancers: Option<Arc<load_balancers::Defaults>>,
    /// The gate is asked before each write whether writes are allowed now. For example, it refuses all writes in a dry
    /// run.
    pub gate: Arc<dyn Gate>,
    /// The urgency of all writes. An urgent write is sent even when few calls of the API's rate limit remain.
    pub urgency: Urgency,
}

/// Settings of the connection to the Cloud API.
pub struct CloudConnection {
    /// The value of `HCLOUD_ENDPOINT`, without a trailing slash.
    pub endpoint: String,
    /// The certificate authorities that are trusted for the connection.
    pub tls: Tls,
    pub proxies: Proxies,
    pub token: SecretSource,
    /// Whether the bodies of requests and answers are logged (`HCLOUD_DEBUG`).
    pub debug: bool,
    pub timing: Timing,
}

/// Settings of the addresses and labels that nodes get from their servers.
pub struct NodeSettings {
    pub address_family: Sourced<AddressFamily>,
    pub internal_ip_from: InternalIpFrom,
    /// The ranges in which the addresses of the annotation `internal-ip` must be
    /// (`HCLOUD_INSTANCES_INTERNAL_IP_RANGES`). When the list is empty, every address is allowed.
    pub internal_ip_ranges: Vec<IpNet>,
    pub label_prefixes: LabelPrefixes,
    /// Whether nodes of other providers can be targets of load balancers (`HCLOUD_LOAD_BALANCERS_FOREIGN_NODES`).
    pub foreign: ForeignNodes,
    pub zone: ZoneSettings,
}

/// The client of the APIs of Hetzner, for one project of Hetzner Cloud. The controllers use it by the traits of
/// `crate::provider`.
pub struct Hetzner {
    settings: HetznerSettings,
    api: Arc<Api>,
    /// The Network in the settings, as soon as it was found in the project.
    found: OnceLock<ApiNetwork>,
    finding: std::sync::Mutex<()>,
    polls: load_balancers::EarlierPolls,
    /// The client of the Robot web service, or `None` when no credentials for it are set.
    robot: Option<Robot>,
}

impl Hetzner {
    /// Creates the provider. Does not call the API.
    pub fn new(settings: HetznerSettings) -> Hetzner {
        let connection = &settings.connection;
        let client = |base: &str, login, retry, watch| {
            http::HttpClient::new(http::HttpSettings {
                base: base.to_owned(),
                tls: connection.tls.clone().into(),
                proxies: connection.proxies.clone(),
                login,
                connect_timeout: CONNECT_TIMEOUT,
                timing: connection.timing,
                retry,
                body_limit_bytes: BODY_LIMIT_BYTES,
                unread: &[],
                log_bodies: connection.debug,
                gate: Arc::clone(&settings.gate),
                watch,
            })
        };
        let token = Arc::new(connection.token.clone());
        let http = client(&connection.endpoint, token, Retry::NotRateLimited, api::watch);
        let robot = settings.robot.as_ref().and_then(|robot| {
            Robot::new(robot, |base, login| client(base, login, Retry::Never, robot::watch))
        });
        Hetzner {
            robot,
            api: Arc::new(Api::new(http, settings.urgency)),
            found: OnceLock::new(),
            finding: std::sync::Mutex::new(()),
            polls: load_balancers::EarlierPolls::default(),
            settings,
        }
    }

    /// Returns the settings and the API client with which the load balancers of the Hetzner project are planned.
    /// `network` is the ID of the private Network, or `None` when the settings name no Network.
    pub fn project(&self, network: Option<u64>) -> Project {
        Project {
            profile: self.settings.profile,
            defaults: self.settings.load_balancers.clone().unwrap_or_default(),
            network,
            api: Arc::clone(&self.api),
            types: Arc::clone(&self.polls.types),
        }
    }

    /// Returns the Network in the settings, or `None` when no Network is set. Each call looks for the Network in the
    /// project until one call has found it. If `is_checked` is `true`, the call that finds the Network also checks that
    /// this machine is attached to it.
    fn find_network(&self, is_checked: bool) -> Result<Option<&ApiNetwork>, ProviderError> {
        let Some(selector) = &self.settings.network else {
            return Ok(None);
        };
        let _one_at_a_time = lock(&self.finding);
        if self.found.get().is_none() {
            let network = networks::find(&self.api, selector)?;
            if is_checked {
                if let Some(endpoint) = &self.settings.metadata {
                    networks::check_attached(endpoint, &network)?;
                }
                log::info!("private Network: {} ({})", network.name, network.id);
            }
            let _ = self.found.set(network);
        }
        Ok(self.found.get())
    }

    fn network_id(&self) -> Option<u64> {
        self.found.get().map(|network| network.id)
    }

    fn instances_of(&self, servers: Vec<CloudServer>) -> Vec<Instance> {
        let labels = &self.settings.nodes.label_prefixes;
        servers.into_iter().map(|server| server.instance(labels)).collect()
    }

    /// Returns a snapshot (the objects of the API from which plans are made) without load balancers, for checks of
    /// manifest files without a cluster. When `reads` is `true`, the certificates and other resources that the Services
    /// name are read from the API. Otherwise every name is accepted.
    pub fn for_manifests(
        &self,
        services: &[&Service],
        reads: bool,
    ) -> Result<Arc<dyn Snapshot>, ProviderError> {
        let (mut project, mut observed) = if reads {
            let read = self.load_balancers_for(services, Urgency::Asked)?;
            (read.project, read.observed)
        } else {
            (self.project(None), load_balancers::ObservedBalancers::default())
        };
        observed.balancers.clear();
        observed.is_for_manifests = true;
        // The cluster may have a Network although the settings of `ccm lint` do not name one. So a Network with the ID
        // 0 is assumed, and annotations that need a Network are accepted.
        project.network = project.network.or(Some(0));
        Ok(Arc::new(load_balancers::BalancerSnapshot::new(project, observed)))
    }

    fn load_balancers_for(
        &self,
        services: &[&Service],
        urgency: Urgency,
    ) -> Result<load_balancers::BalancerSnapshot, ProviderError> {
        // Plans need the Network in the settings. So when it can't be found, nothing is read, and the error is
        // returned.
        let network = self.find_network(true)?;
        let project = self.project(network.map(|network| network.id));
        load_balancers::observe(project, &self.polls, network, services, urgency)
    }
}

impl Provider for Hetzner {
    fn name(&self) -> &'static str {
        self.settings.profile.name()
    }

    fn parse_provider_id(&self, text: &str) -> ProviderId {
        match self.settings.profile.parse_provider_id(text) {
            ProviderId::Ours(InstanceId::Dedicated(number)) if self.settings.robot.is_none() => {
                let why = format!(
                    "ccm looks up dedicated server {number} only if {ROBOT_ENABLED} is true"
                );
                ProviderId::Disabled(why)
            }
            id => id,
        }
    }

    fn event_component(&self) -> Option<&'static str> {
        let is_hcloud = self.settings.profile == Profile::Hcloud;
        is_hcloud.then_some("hcloud-cloud-controller-manager")
    }

    fn prepare(&self) -> Result<(), ProviderError> {
        self.find_network(true).map(drop)
    }

    fn checkup(&self, asks: bool) -> Checkup {
        let asked = if asks { self.asked() } else { Checkup::default() };
        let (rate_limit, clock_ahead_s) = self.api.budget.seen();
        Checkup { rate_limit, clock_ahead_s, ..asked }
    }

    fn calls(&self) -> u64 {
        self.api.http.calls()
    }

    fn is_reached(&self) -> bool {
        self.api.http.is_reached()
    }

    fn instances(&self) -> Option<&dyn Instances> {
        Some(self)
    }

    fn dedicated(&self) -> Option<&dyn Dedicated> {
        self.robot.as_ref().map(|robot| robot as &dyn Dedicated)
    }

    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        self.settings.load_balancers.is_some().then_some(self)
    }

    fn matches_foreign_nodes(&self) -> bool {
        self.settings.load_balancers.is_some() && self.settings.nodes.foreign == ForeignNodes::Match
    }

    fn routes(&self) -> Option<&dyn Routes> {
        self.settings.network.is_some().then_some(self)
    }
}

impl Hetzner {
    /// Asks for what `ccm doctor` reports about the cloud: which permission the token has, whether the private Network
    /// in the settings exists, and whether this machine is attached to it.
    fn asked(&self) -> Checkup {
        let network = self.find_network(false);
        let attached = match (&network, &self.settings.metadata) {
            (Ok(Some(network)), Some(endpoint)) => networks::attached(endpoint, network),
            _ => Attached::default(),
        };
        let found = network.as_ref().ok().copied().flatten();
        let permission = match &network {
            Err(error) if error.kind == ErrorKind::Unauthorized => {
                Permission::Unknown("the API has already refused this token".into())
            }
            _ => api::permission(&self.api),
        };
        Checkup {
            permission,
            exposes_routes: found.and_then(ApiNetwork::exposes_routes),
            network: network.map(|found| found.map(ApiNetwork::shown)).transpose(),
            attached,
            ..Checkup::default()
        }
    }
}

impl Routes for Hetzner {
    fn observe(&self, urgency: Urgency) -> Result<PrivateNetwork, ProviderError> {
        let network = routed(self.find_network(true)?.map(|network| network.id))?;
        networks::routes(&self.api, network, urgency)
    }

    fn change(&self, change: RouteChange) -> Box<dyn Change> {
        Box::new(RouteWrite { api: Arc::clone(&self.api), network: self.network_id(), change })
    }
}

fn routed(network: Option<u64>) -> Result<u64, ProviderError> {
    network.ok_or_else(|| {
        ProviderError::new(ErrorKind::Misconfigured, format!("{HCLOUD_NETWORK}: not set"))
    })
}

/// A change that adds or deletes a route of the Network.
struct RouteWrite {
    api: Arc<Api>,
    network: Option<u64>,
    change: RouteChange,
}

impl Change for RouteWrite {
    fn apply(&self) -> Result<Applied, ProviderError> {
        let applied = networks::change_route(&self.api, routed(self.network)?, &self.change);
        applied.map_err(|error| {
            let why = format!("{}: {}", self.description().failed(), error.message);
            ProviderError::new(error.kind, why)
        })
    }
}

impl Write for RouteWrite {
    fn word(&self) -> &'static str {
        self.change.word()
    }

    fn description(&self) -> Description {
        self.change.description()
    }

    fn json(&self) -> Value {
        self.change.json()
    }
}

impl fmt::Debug for RouteWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.change.fmt(f)
    }
}

impl Actions for Hetzner {
    fn ended(
        &self,
        actions: &[ActionId],
    ) -> Result<HashMap<ActionId, Result<(), ProviderError>>, ProviderError> {
        actions::ended(&self.api, actions)
    }

    fn may_wait(&self) -> bool {
        self.api.http.may_wait()
    }
}

impl LoadBalancers for Hetzner {
    fn observe(
        &self,
        services: &[&Service],
        urgency: Urgency,
    ) -> Result<Arc<dyn Snapshot>, ProviderError> {
        Ok(Arc::new(self.load_balancers_for(services, urgency)?))
    }

    fn group(
        &self,
        namespace: &str,
        annotations: &mut dyn Iterator<Item = (&str, &str)>,
    ) -> Option<String> {
        load_balancers::group(namespace, annotations)
    }

    fn departing_delay(
        &self,
        annotations: &mut dyn Iterator<Item = (&str, &str)>,
        of_namespace: &NamespaceAnnotations,
    ) -> Option<Duration> {
        let defaults = self.settings.load_balancers.clone().unwrap_or_default();
        load_balancers::asked_delay(annotations, &defaults, of_namespace)
    }

    fn can_name_tls_secrets(&self, annotation: &str) -> bool {
        load_balancers::can_name_secrets(annotation)
    }

    fn tls_secrets(&self, service: &Service) -> BTreeSet<String> {
        load_balancers::secrets(service)
    }

    fn unused_certificates(
        &self,
        cluster: &Cluster,
        urgency: Urgency,
    ) -> Result<Option<Vec<Box<dyn Change>>>, ProviderError> {
        let all = load_balancers::certificates_of(&self.api, cluster, urgency)?;
        let project = self.project(self.network_id());
        Ok(load_balancers::unused(&project, &all, cluster))
    }

    fn kept(&self, cluster: &Cluster) -> Result<Vec<KeptObject>, ProviderError> {
        let all = load_balancers::certificates_of(&self.api, cluster, Urgency::Asked)?;
        Ok(load_balancers::left(&all, cluster))
    }

    fn cause(&self, health: &TargetHealth, service: &Service) -> Cause {
        load_balancers::cause(health, service)
    }

    fn usage(&self, id: u64) -> Result<Usage, ProviderError> {
        load_balancers::usage(&self.api, id)
    }
}

impl Instances for Hetzner {
    fn list(&self, urgency: Urgency) -> Result<Vec<Instance>, ProviderError> {
        Ok(self.instances_of(self.api.list("", urgency)?))
    }

    fn get(&self, number: u64) -> Result<Instance, ProviderError> {
        let server: CloudServer = self.api.one(number, Urgency::Gone)?;
        Ok(server.instance(&self.settings.nodes.label_prefixes))
    }

    fn named(&self, name: &str) -> Result<Vec<Instance>, ProviderError> {
        let query = format!("name={}&", percent_encoded(name));
        let mut servers: Vec<CloudServer> = self.api.list(&query, Urgency::Needed)?;
        servers.retain(|server| server.name == name);
        Ok(self.instances_of(servers))
    }

    fn around(
        &self,
        numbers: &BTreeSet<u64>,
        place: &dyn Fn(u64) -> usize,
        urgency: Urgency,
    ) -> Result<Vec<Instance>, ProviderError> {
        let read = |number| self.api.page("", number, urgency);
        let servers = pages::around(numbers, PER_PAGE as usize, place, CloudServer::id, read)?;
        Ok(self.instances_of(servers))
    }

    fn check_is_idle(&self, number: u64) -> Result<(), ProviderError> {
        actions::check_server_is_idle(&self.api, number)
    }

    fn metadata(&self, instance: &Instance, node: &Node) -> Result<Metadata, Box<Finding>> {
        let robot = self.settings.robot.as_ref();
        let keeps_reported = match instance.id {
            InstanceId::Cloud(_) => self.settings.nodes.internal_ip_from == InternalIpFrom::Kubelet,
            InstanceId::Dedicated(_) => robot.is_some_and(|robot| robot.forward_internal_ips.value),
        };
        let rules = AddressRules {
            family: &self.settings.nodes.address_family,
            network: self.network_id(),
            keeps_reported,
        };
        check_ranges(node, &self.settings.nodes.internal_ip_ranges)?;
        let mut findings = Vec::new();
        let addresses = addresses(instance, node, &rules, &mut findings)?;
        if instance.id.dedicated().is_some() && instance.name != node.name {
            findings.push(renamed(instance, node));
        }
        let profile = self.settings.profile;
        let by_profile = Source::server_because("id", format_args!("profile {}", profile.name()));
        Ok(Metadata {
            provider_id: Sourced::new(profile.provider_id(instance.id), by_profile),
            addresses,
            topology: profile.topology(instance, self.settings.nodes.zone),
            extra_labels: profile.extra_labels(instance.id),
            findings,
        })
    }

    fn zone(&self, instance: &Instance) -> ZoneValues {
        self.settings.profile.zone(instance, self.settings.nodes.zone)
    }

    /// Returns the addresses by which a node is recognised as running on this cloud server. These are the server's
    /// public addresses. With `--cloud-provider=ccm-from-scratch`, its private address is one of them, too. With
    /// `--cloud-provider=hcloud` it is not, because hcloud-cloud-controller-manager does not compare private addresses.
    /// A dedicated server is recognised only by its name, so the result is empty.
    fn recognised_by(&self, instance: &Instance) -> Vec<IpNet> {
        if instance.id.dedicated().is_some() {
            return Vec::new();
        }
        let network =
            self.network_id().filter(|_| self.settings.profile == Profile::CcmFromScratch);
        addresses_in(instance, network)
    }

    fn stated_addresses(&self, instance: &Instance) -> Vec<IpNet> {
        let mut all = addresses_in(instance, self.network_id());
        all.retain(|net| net.addr().is_ipv4() || net.prefix_len() >= 64);
        all
    }

    fn allows_label(&self, key: &str) -> bool {
        self.settings.nodes.label_prefixes.allow(key)
    }

    fn explain_missing(&self, instance: &Instance, ip: IpAddr) -> Option<Finding> {
        explain_missing(instance, ip, &self.settings.nodes.address_family, self.network_id())
    }
}

/// Returns a warning about a dedicated server whose name is not the name of its node. The server may have got another
/// purpose, or belong to another customer after the end of a contract. hcloud-cloud-controller-manager deletes the node
/// in this case. This program does not, because a different name does not prove that the node is gone.
fn renamed(instance: &Instance, node: &Node) -> Finding {
    let (server, name, node) = (instance.id, &instance.name, &node.name);
    let delete = shell_command("kubectl delete node", &[node]);
    let message = format!(
        "dedicated server {server} of this node is named {name:?}, and not {node:?}. If the server still belongs to the \
         node, rename the server in Robot. If it does not, delete the node ({delete})"
    );
    Finding::warning(Reason::PossibleNodeDeletion, message).by_provider()
}

/// Returns the public addresses of the server, and its private addresses in the Network with this ID. When `network` is
/// `None`, only the public addresses are returned.
fn addresses_in(instance: &Instance, network: Option<u64>) -> Vec<IpNet> {
    let private = instance.private.iter().filter(|private| Some(private.network) == network);
    let private = private.map(|private| IpNet::from(private.ip));
    let ipv4 = instance.public_ipv4.map(|ip| IpNet::from(IpAddr::from(ip)));
    let ipv6 = instance.public_ipv6.map(IpNet::V6);
    private.chain(ipv4).chain(ipv6).collect()
}
