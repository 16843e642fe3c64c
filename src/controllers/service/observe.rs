//! Reads the state of Services and load balancers from Kubernetes and the cloud, and decides to which nodes a load
//! balancer may send traffic.
//!
//! A node that is not ready can be a target, because the load balancer has health checks of its own. If only ready
//! nodes were targets, a node that often changes between ready and not ready would be added and removed each time.

use super::departures::Departures;
use crate::cache::{self, Apis, CacheError, ReadFrom, View};
use crate::controllers::matching::{Claims, ForeignMatch, MatchIndex, is_foreign, server_of};
use crate::controllers::schedule::Reads;
use crate::kube::{AnyService, KubeNode, KubeService};
use crate::provider::order;
use crate::provider::{
    self, AddressKind, Cluster, Departure, ErrorKind, Groups, Instance, InstanceId,
    NamespaceDefaults, Needs, NodeAddress, OfferedNode, Provider, ProviderId, Reach, ReplaceOrder,
    Servers, Snapshot, TlsSecrets, Urgency, clock,
};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub const NAME: &str = "service-lb-controller";

/// The Service whose UID identifies the cluster. When this Service is deleted and created again, it gets another UID.
/// The first UID that is stored in the daemon's Lease then still identifies the cluster.
const IDENTITY: (&str, &str) = ("default", "kubernetes");

/// The message for the operator when the cluster's identity (a UID) is not known. Without the identity, nothing is
/// created or deleted.
pub(super) const NO_IDENTITY: &str = "the Service default/kubernetes does not exist, and no Lease of ccm holds its \
                                      UID, by which ccm recognises the load balancers of this cluster. The API server \
                                      creates this Service within a minute of its start";

const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// How many Services of one namespace can be in a group, i.e. share a load balancer. No load balancer has so many
/// ports, so the limit does not restrict a useful group. When a namespace has more Services in a group, the youngest of
/// them are ignored in the plans of the other Services.
const GROUP_AT_MOST: usize = 100;

/// Settings of the service controller.
#[derive(Clone, Debug)]
pub struct ServiceSettings {
    /// How often Services are read. This is the setting `--service-sync-interval`.
    pub sync_interval: Duration,
    /// How often all load balancers are compared with their desired state, even when nothing has changed. This is the
    /// setting `--load-balancer-resync-period`.
    pub resync_period: Duration,
    /// How many requests to the cloud can be in flight at the same time. This is the setting
    /// `--concurrent-service-syncs`.
    pub concurrency: usize,
    /// The name of the cluster. It occurs in names and labels of load balancers, so that people recognise them. This is
    /// the setting `--cluster-name`.
    pub cluster_name: String,
    /// Whether a cordoned node counts as departing (it will stop soon) without any other mark. This is the setting
    /// `HCLOUD_LOAD_BALANCERS_DEPARTING_CORDONED`.
    pub departing_cordoned: bool,
    /// Whether orphans (load balancers whose Service does not exist) are deleted each time after all Services were
    /// compared with their load balancers. This is the setting `--delete-orphaned-load-balancers`.
    pub delete_orphans: bool,
}

/// The namespace and the name of a Service.
pub(super) type FullName = (String, String);

pub(super) fn full_name(service: &KubeService) -> FullName {
    let meta = &service.metadata;
    (meta.namespace.clone(), meta.name.clone())
}

/// The data from which the plans for Services are made.
pub(super) struct ObservedServices {
    pub(super) services: Vec<Arc<KubeService>>,
    pub(super) nodes: Vec<OfferedNode>,
    pub(super) cluster: Cluster,
    pub(super) snapshot: Arc<dyn Snapshot>,
    /// When the cloud answered with the list of all load balancers.
    pub(super) answered: Instant,
    /// How urgent the API calls are that read data for the plans.
    pub(super) urgency: Urgency,
    /// Whether a node of the cluster runs on a server of this project, which shows that the API token belongs to the
    /// right project. This is true when such a server is a target of a load balancer, or when it is found in the cloud.
    /// The servers are read after the load balancers, because somebody can replace the token between the two reads.
    /// `None` means that it is not known.
    pub(super) has_own_servers: Option<bool>,
    pub(super) management: Management,
    /// The UIDs of the Services with a change that waits, because their namespace has used up its share of API calls. A
    /// plan for such a Service is made as if the change had not happened.
    pub(super) waiting: HashSet<String>,
    /// The data that [`ObservedServices::read_needs`] has already read.
    pub(super) read_again: Needs,
}

/// The Services, nodes and Secrets as a sync pass has read them from Kubernetes.
#[derive(Default)]
pub(super) struct SeenObjects {
    /// The Services of type LoadBalancer, as the API server listed them.
    pub(super) list: Arc<Vec<Arc<KubeService>>>,
    /// Every Service that may need a sync, sorted by name. These also include Services that have another type now but
    /// still have our finalizer.
    pub(super) services: Vec<Arc<KubeService>>,
    pub(super) nodes: Arc<Vec<Arc<KubeNode>>>,
    /// The contents of the Secrets that the Services name. When a person asked only for Services with certain names,
    /// this is empty, because the Secrets are then read later, together with the other data for the plans.
    pub(super) tls_secrets: TlsSecrets,
    /// The annotations of Namespaces that are defaults for the annotations of their Services. Empty when a setting
    /// turns such defaults off.
    pub(super) namespaces: Arc<NamespaceDefaults>,
    /// Whether this sync pass compares every Service with its load balancer, including the Services that did not
    /// change. Such a sync pass is made at fixed intervals.
    pub(super) is_comparison: bool,
}

/// What a person asks for by a command: that the management of a load balancer begins or ends, or that a load balancer
/// is replaced. This has effect even if no annotation of the Service asks for it. `Usual` means that no person asks for
/// anything, so the Service itself decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Management {
    #[default]
    Usual,
    /// From now on, this controller manages the load balancer with this ID for the Service.
    Begins(u64),
    /// A new load balancer replaces the load balancer of the Service. Or a replacement that has begun is aborted, or
    /// the time in which both load balancers serve ends now.
    Replaced(ReplaceOrder),
    /// From now on, this controller does not manage the load balancer any more: it removes its finalizer, and changes
    /// nothing for the Service afterwards.
    Ends,
}

impl ObservedServices {
    /// Stores the groups of Services that share a load balancer. Also adds the UIDs of these Services to
    /// `service_uids`, the UIDs of all existing Services. The list from which `service_uids` was made can be older than
    /// the groups and lack some of these Services.
    fn set_groups(&mut self, groups: Groups) {
        let members = groups.services().map(|service| service.uid.clone());
        self.cluster.service_uids.extend(members);
        self.cluster.groups = groups;
    }

    /// Reads the additional data that the plans for these Services need before they are carried out. Cached data are
    /// used only if they were requested after the moment `since`. Returns `false` when this function has already read
    /// these data. Otherwise the caller makes the plans again and calls this function again, because a plan that is
    /// made from newer data can need more data. No servers are read when the provider has no API for servers.
    pub(super) fn read_needs(
        &mut self,
        apis: &Apis,
        nodes: &[Arc<KubeNode>],
        needs: Needs,
        since: Instant,
    ) -> Result<bool, CacheError> {
        if self.read_again.includes(needs) {
            return Ok(false);
        }
        let needs = needs.and(self.read_again);
        self.read_again = needs;
        if needs.services {
            let all = all_services(apis, clock::since(since))?;
            let now = cluster(apis, &all.value, nodes)?;
            let before = std::mem::replace(&mut self.cluster, now);
            self.cluster.name = before.name;
            self.cluster.untouched = before.untouched;
            self.cluster.history = before.history;
            self.cluster.tls_secrets = before.tls_secrets;
            self.cluster.namespaces = before.namespaces;
            self.set_groups(before.groups);
            if apis.provider.matches_foreign_nodes() {
                let last = apis.instances_last();
                let list = last.as_deref().map(Vec::as_slice);
                self.offer_again(apis, nodes, ServerList { list, is_certain: false });
            }
        }
        if needs.statuses {
            let services =
                apis.load_balancer_services(clock::since(since), ReadFrom::Latest)?.value;
            let ingress = services.iter().flat_map(|service| &service.status.load_balancer.ingress);
            let addresses = ingress.filter_map(|entry| entry.ip.as_ref()?.parse().ok());
            self.cluster.shown = Some(addresses.collect());
        }
        if needs.types {
            let with_types = self.snapshot.with_new_types(self.urgency);
            self.snapshot = with_types.unwrap_or_else(|| Arc::clone(&self.snapshot));
        }
        // One existing server of the cluster already proves that the token is for the Hetzner Cloud project of this
        // cluster. To read one server takes fewer calls than to read all.
        let is_one_enough = needs.project && !needs.servers;
        if is_one_enough && self.has_first_server(apis)? {
            self.has_own_servers = Some(true);
        } else if (needs.servers || needs.project) && apis.provider.instances().is_some() {
            // The token can be replaced at any time by the token of another Hetzner Cloud project. A list of servers
            // that is older than the list of load balancers may come from another project, so it is not used.
            let since = since.max(self.answered);
            let servers = apis.instances(Some(since), Duration::MAX, self.urgency)?;
            let list = Some(servers.value.as_slice());
            self.offer_again(apis, nodes, ServerList { list, is_certain: true });
            let is_own = |server: &Instance| self.is_own(server.id);
            self.has_own_servers = Some(servers.value.iter().any(is_own));
        }
        Ok(true)
    }

    /// Whether a node of the cluster runs on this server. A node of another provider counts only when it surely runs on
    /// the server.
    fn is_own(&self, id: InstanceId) -> bool {
        let is_matched = |node: &OfferedNode| {
            node.provider_id == ProviderId::Ours(id) && matches!(node.reach, Reach::By { .. })
        };
        self.cluster.has_claimed(id) || self.nodes.iter().any(is_matched)
    }

    /// Sets again which nodes a plan may use as targets, because the Services or the servers were read again. Whether a
    /// node will stop soon is not decided again. The earlier answer for each node is kept.
    fn offer_again(&mut self, apis: &Apis, nodes: &[Arc<KubeNode>], servers: ServerList) {
        let known: HashMap<String, Departure> =
            self.nodes.drain(..).map(|node| (node.name, node.departure)).collect();
        let departure = |node: &KubeNode| known.get(node.name()).copied().unwrap_or_default();
        self.offer(apis, nodes, servers, departure);
    }

    /// Stores which nodes a plan may use as targets, and how a load balancer can reach their servers. A node of another
    /// provider is matched with a server by its name and addresses, if the settings allow this.
    fn offer(
        &mut self,
        apis: &Apis,
        nodes: &[Arc<KubeNode>],
        servers: ServerList,
        departure: impl Fn(&KubeNode) -> Departure,
    ) {
        let dedicated = DedicatedServers::of(apis);
        let foreign = foreign_matches(apis, nodes, servers.list);
        // For each node of another provider, the servers that have the name of the node. The value `true` means that
        // the node surely runs on this server, so that the server can become a target.
        let named: Vec<(&KubeNode, &Instance, bool)> = foreign
            .iter()
            .flat_map(|(node, found)| {
                found.named.iter().map(|server| (*node, server, found.obstacle.is_none()))
            })
            .collect();
        let servers_of = |is_match: bool| -> HashSet<InstanceId> {
            let named = named.iter().filter(|(.., it)| *it == is_match);
            named.map(|(_, server, _)| server.id).collect()
        };
        let doubtful = servers_of(false);
        let listed = servers.list.unwrap_or_default();
        let by_id: HashMap<_, _> = listed.iter().map(|server| (server.id, server)).collect();
        let reach = |id: InstanceId| match by_id.get(&id) {
            _ if doubtful.contains(&id) => Reach::Doubtful,
            Some(server) => Reach::By {
                has_public_ipv4: server.public_ipv4.is_some(),
                networks: server.private.iter().map(|address| address.network).collect(),
            },
            None if servers.list.is_some() => Reach::Missing { is_certain: servers.is_certain },
            None => Reach::Unknown,
        };
        let server = |id: InstanceId| by_id.get(&id).copied().or_else(|| dedicated.server(id));
        let offer = |node: &KubeNode, id: InstanceId| OfferedNode {
            name: node.name().to_owned(),
            reach: reach(id),
            departure: departure(node),
            dedicated_ipv4: None,
            provider_id: ProviderId::Ours(id),
            labels: node.metadata.labels.clone(),
            addresses: Vec::new(),
            location: server(id).map(|server| server.location.clone()).unwrap_or_default(),
        };
        let own = candidates(nodes, &*apis.provider).map(|(node, id)| OfferedNode {
            dedicated_ipv4: dedicated.ipv4(node, id),
            addresses: node.status.addresses.clone(),
            ..offer(node, id)
        });
        self.nodes = own.collect();
        self.cluster.target_only = foreign.iter().map(|(node, _)| node.name().to_owned()).collect();
        self.cluster.matched = servers_of(true);
        for (node, server, _) in &named {
            let name = || node.name().to_owned();
            // The target of a dedicated server is its IP address. It comes from the list of servers and not from the
            // status of the node, because the kubelet could write any address there.
            let public = server.public_ipv4.filter(|_| server.id.dedicated().is_some());
            if server.id.cloud().is_some() {
                self.cluster.servers.entry(server.id).or_insert_with(name);
            } else if let Some(ip) = public {
                self.cluster.dedicated.entry(ip.into()).or_insert_with(name);
                self.cluster.proven.insert(ip.into());
            }
            if is_offered(node) {
                self.nodes.push(OfferedNode { dedicated_ipv4: public, ..offer(node, server.id) });
            }
        }
        let known: HashSet<&str> = named.iter().map(|(node, ..)| node.name()).collect();
        self.cluster.foreign_nodes.retain(|(name, _)| !known.contains(name.as_str()));
    }

    /// Whether the server with the lowest ID among all servers of the cluster's nodes still exists. One such server is
    /// enough to prove that the API token belongs to the right project.
    fn has_first_server(&self, apis: &Apis) -> Result<bool, CacheError> {
        let claimed = self.cluster.servers.keys().filter(|id| self.cluster.has_claimed(**id));
        let first = claimed.min();
        match first.map(|id| apis.instance(id.number())) {
            Some(Err(error)) if error.kind != ErrorKind::NotFound => Err(CacheError::Cloud(error)),
            found => Ok(matches!(found, Some(Ok(_)))),
        }
    }
}

/// Returns a text that is equal for all Services which share one load balancer with this Service. `None` when the
/// Service shares no load balancer.
pub(super) fn group(provider: &dyn Provider, service: &KubeService) -> Option<String> {
    let metadata = &service.metadata;
    let balancers = provider.load_balancers()?;
    balancers.group(&metadata.namespace, &mut metadata.annotations.iter())
}

/// Returns a function that finds the key of a Service's group. The Services of a group share a load balancer, but one
/// Service can name it by its ID and another Service by its name. Both Services get the same key when this process has
/// already read a list that contains the load balancer.
pub(super) fn known_group(apis: &Apis) -> impl Fn(&KubeService) -> Option<String> {
    let snapshot = apis.load_balancers_last();
    move |service| {
        let key = group(&*apis.provider, service)?;
        Some(match &snapshot {
            Some(snapshot) => snapshot.known_group(key),
            None => key,
        })
    }
}

/// Returns the namespace and name of each TLS Secret that these Services name for their ports.
pub(super) fn tls_secret_names<'a>(
    provider: &dyn Provider,
    services: impl IntoIterator<Item = &'a Arc<KubeService>>,
) -> BTreeSet<FullName> {
    let mut names = BTreeSet::new();
    let Some(balancers) = provider.load_balancers() else {
        return names;
    };
    for service in services {
        let metadata = &service.metadata;
        let mut keys = metadata.annotations.iter().map(|(key, _)| key);
        if service.wants_load_balancer() && keys.any(|key| balancers.can_name_tls_secrets(key)) {
            let secrets = balancers.tls_secrets(&service.for_cloud()).into_iter();
            names.extend(secrets.map(|name| (metadata.namespace.clone(), name)));
        }
    }
    names
}

/// Returns the groups: each is a set of Services that share one load balancer. When a Service occurs more than once in
/// `services`, only its first occurrence is used.
pub fn groups<'a>(
    provider: &dyn Provider,
    namespaces: &NamespaceDefaults,
    services: impl IntoIterator<Item = &'a KubeService>,
) -> Groups {
    let mut groups: HashMap<String, Vec<provider::Service>> = HashMap::new();
    let mut seen = HashSet::new();
    for service in services {
        if service.wants_load_balancer()
            && seen.insert(&service.metadata.uid)
            && let Some(key) = group(provider, service)
        {
            groups.entry(key).or_default().push(service.in_namespace(namespaces));
        }
    }
    groups.values_mut().for_each(limit);
    groups.into()
}

/// Sorts the Services of a group (Services that share a load balancer) by age, and keeps only the oldest
/// [`GROUP_AT_MOST`] Services of each namespace.
fn limit(group: &mut Vec<provider::Service>) {
    order::sort_by(group, |one, other| (one.created, &one.uid).cmp(&(other.created, &other.uid)));
    let mut counts: HashMap<String, usize> = HashMap::new();
    group.retain(|service| {
        let count = counts.entry(service.namespace.clone()).or_default();
        *count += 1;
        *count <= GROUP_AT_MOST
    });
}

/// Reads the data from which plans for these Services are made. `seen` has the objects that were read from Kubernetes
/// before. It must contain the nodes and, when some of these Services share a load balancer, all Services of type
/// LoadBalancer.
pub(super) fn observe(
    apis: &Apis,
    departures: &Departures,
    services: Vec<Arc<KubeService>>,
    seen: &SeenObjects,
    reads: Reads,
) -> Result<ObservedServices, CacheError> {
    let all = services.iter().chain(&seen.services);
    // For a Service that this program must leave unchanged, returns its UID, its namespace, and whether it is too large
    // to be read. Returns `None` for any other Service. An unchanged Service can share a load balancer with other
    // Services, and its ports then stay on that load balancer.
    let untouched = |service: &Arc<KubeService>| {
        let is_unread = service.too_large().is_some();
        let left =
            provider::UntouchedService { namespace: service.metadata.namespace.clone(), is_unread };
        let is_left = is_unread || service.left_alone.is_some();
        is_left.then(|| (service.metadata.uid.clone(), left))
    };
    let untouched = all.clone().filter_map(untouched).collect();
    let namespaces = &seen.namespaces;
    let groups = groups(&*apis.provider, namespaces, all.map(|service| &**service));
    let for_cloud = services.iter().map(|service| service.in_namespace(namespaces));
    let for_cloud: Vec<_> = for_cloud.collect();
    let for_cloud: Vec<&provider::Service> = for_cloud.iter().chain(groups.services()).collect();
    let snapshot = apis.load_balancers(&for_cloud, reads.max_age, reads.urgency)?;
    let tls_secrets = apis.tls_secrets(&tls_secret_names(&*apis.provider, &services))?;
    // The nodes of this cloud name their servers in their provider IDs. For these nodes, the last list of servers is
    // used, however old it is. A plan that needs a newer list gets it from `ObservedServices::read_needs`. The nodes of
    // other providers are matched with servers by name and address. When there are such nodes, the list of servers is
    // as new as the list of load balancers.
    let provider = &*apis.provider;
    let is_matched = |node: &Arc<KubeNode>| is_foreign(node, provider);
    let servers = if provider.matches_foreign_nodes() && seen.nodes.iter().any(is_matched) {
        Some(apis.instances(None, reads.max_age, reads.urgency)?.value)
    } else {
        apis.instances_last()
    };
    let servers = servers.as_deref().map(Vec::as_slice);
    // An old list of all Services is enough here, because Services are seldom created or deleted. When a plan depends
    // on whether another Service owns a load balancer, the function `read_needs` reads the list again before the plan
    // is used.
    let all = all_services(apis, Duration::MAX)?;
    let mut observed = ObservedServices {
        cluster: cluster(apis, &all.value, &seen.nodes)?,
        nodes: Vec::new(),
        services,
        snapshot: Arc::clone(&snapshot.value),
        answered: snapshot.answered,
        urgency: reads.urgency,
        has_own_servers: None,
        management: Management::Usual,
        waiting: HashSet::new(),
        read_again: Needs::default(),
    };
    observed.cluster.namespaces = Arc::clone(namespaces);
    let servers = ServerList { list: servers, is_certain: false };
    observed.offer(apis, &seen.nodes, servers, |node| departures.of(node));
    observed.cluster.untouched = untouched;
    observed.set_groups(groups);
    observed.cluster.tls_secrets = tls_secrets;
    let is_own = observed.snapshot.has_server_of(&observed.cluster);
    observed.has_own_servers = is_own.then_some(true);
    Ok(observed)
}

/// The dedicated servers, as they were listed last. The list can be of any age.
struct DedicatedServers {
    servers: Option<cache::ListedServers>,
    /// Whether the settings contain credentials for the API of dedicated servers. Without them, nothing is known about
    /// dedicated servers.
    is_known: bool,
}

impl DedicatedServers {
    fn of(apis: &Apis) -> DedicatedServers {
        DedicatedServers {
            servers: apis.dedicated_last(),
            is_known: apis.provider.dedicated().is_some(),
        }
    }

    /// Returns the dedicated servers as they were listed last. When there was no list yet and a node is a dedicated
    /// server, lists them now, because only such a list proves which address belongs to which server.
    fn listed(apis: &Apis, nodes: &[Arc<KubeNode>]) -> DedicatedServers {
        let mut dedicated = DedicatedServers::of(apis);
        let number = |node: &Arc<KubeNode>| server_of(node, &*apis.provider)?.dedicated();
        let mut numbers = nodes.iter().filter_map(number);
        if dedicated.servers.is_none() && dedicated.is_known && numbers.next().is_some() {
            // When Robot (the API of dedicated servers) does not answer, the error is ignored, and the plans are made
            // without a list of dedicated servers. The addresses of dedicated servers then come only from their Node
            // objects, and nothing proves that they are right.
            dedicated.servers = apis.dedicated(None, Urgency::Needed).ok();
        }
        dedicated
    }

    fn server(&self, id: InstanceId) -> Option<&Instance> {
        self.servers.iter().flat_map(|view| view.value.iter()).find(|server| server.id == id)
    }

    /// Returns the public address of a dedicated server, as the list of dedicated servers has it, or `None` when that
    /// list has no such address. This address can be trusted, because it does not come from a kubelet.
    fn proven(&self, id: InstanceId) -> Option<IpAddr> {
        self.server(id)?.public_ipv4.map(IpAddr::from)
    }

    /// Returns the public IPv4 address of a node's dedicated server. When no list of dedicated servers was read, or the
    /// list lacks this server, this is the external IPv4 address in the status of the node. Returns `None` when there
    /// is no such address, or when there are no credentials for the API of dedicated servers.
    fn ipv4(&self, node: &KubeNode, id: InstanceId) -> Option<Ipv4Addr> {
        id.dedicated().filter(|_| self.is_known)?;
        if let Some(server) = self.server(id) {
            return server.public_ipv4;
        }
        node.status.addresses.iter().find_map(|address| match (&address.kind, address.ip()?) {
            (AddressKind::ExternalIP, IpAddr::V4(ip)) => Some(ip),
            _ => None,
        })
    }

    /// Returns all addresses by which a load balancer can have this dedicated server as a target.
    fn addresses(&self, node: &KubeNode, id: InstanceId) -> impl Iterator<Item = IpAddr> {
        let own = node.status.addresses.iter();
        let own = own.filter(|address| self.is_known && address.kind != AddressKind::Hostname);
        let public = self.ipv4(node, id).map(IpAddr::from);
        own.filter_map(NodeAddress::ip).chain(public)
    }
}

/// Returns the UID of the Service `default/kubernetes`, or `None` when the list lacks the Service.
pub(super) fn identity_in(all: &[Arc<AnyService>]) -> Option<&str> {
    let mut services = all.iter().map(|service| &service.metadata);
    let found = services.find(|it| (it.namespace.as_str(), it.name.as_str()) == IDENTITY);
    found.map(|it| it.uid.as_str())
}

/// Returns every Service of any type, from a list that is not older than `max_age`. When the list lacks the Service
/// `default/kubernetes` although that Service exists, the list is incomplete and is read again. Returns an error when
/// the new list lacks the Service, too.
pub(super) fn all_services(
    apis: &Apis,
    max_age: Duration,
) -> Result<View<Vec<Arc<AnyService>>>, CacheError> {
    let is_whole = |all: &View<Vec<Arc<AnyService>>>| identity_in(&all.value).is_some();
    let all = apis.any_services(max_age)?;
    let (namespace, name) = IDENTITY;
    let exists = || apis.kube.service(namespace, name).map_err(CacheError::Kube);
    if is_whole(&all) || exists()?.is_none() {
        return Ok(all);
    }
    let all = apis.any_services(Duration::ZERO)?;
    if is_whole(&all) {
        return Ok(all);
    }
    Err(not_known(
        "the list of all Services lacks the Service default/kubernetes, which exists. The list may lack other \
         Services, too, so ccm does not use the list and tries again",
    ))
}

/// Returns an error which says that a decision needs data about the cluster that are not known. `why` is the message.
pub(super) fn not_known(why: &str) -> CacheError {
    CacheError::Cloud(provider::ProviderError::new(ErrorKind::Other, why))
}

/// Returns what is known about the cluster: its identity (a UID), its Services and its nodes. Returns an error when the
/// identity is not known.
pub(super) fn known_cluster(
    apis: &Apis,
    all: &[Arc<AnyService>],
    nodes: &[Arc<KubeNode>],
) -> Result<Cluster, CacheError> {
    let cluster = cluster(apis, all, nodes)?;
    if cluster.uid.is_empty() {
        return Err(not_known(NO_IDENTITY));
    }
    Ok(cluster)
}

/// Returns what is known about the cluster: its identity (a UID), its Services and its nodes. The cluster's name stays
/// empty, because only plans for Services need it.
pub(super) fn cluster(
    apis: &Apis,
    all: &[Arc<AnyService>],
    nodes: &[Arc<KubeNode>],
) -> Result<Cluster, CacheError> {
    // The identity of the cluster is a UID of the Service `default/kubernetes`: the first one that the daemon's Lease
    // contains, or the present one when the Lease contains none. It is empty when neither is known.
    let known = apis.identities(identity_in(all))?.unwrap_or_default();
    let mut cluster = Cluster {
        uid: known.identity,
        former_uids: known.former,
        service_uids: all.iter().map(|service| service.metadata.uid.clone()).collect(),
        ..Cluster::default()
    };
    let dedicated = DedicatedServers::listed(apis, nodes);
    let claims = Claims::new(&*apis.provider, nodes);
    for node in nodes {
        let id = &node.spec.provider_id;
        let parsed = apis.provider.parse_provider_id(id);
        let keeper = parsed.clone().ours().and_then(|id| claims.keeper(id));
        let name = keeper.unwrap_or(node).name().to_owned();
        match parsed {
            ProviderId::Ours(server @ InstanceId::Cloud(_)) => {
                cluster.servers.insert(server, name);
            }
            ProviderId::Ours(server) => {
                let proven = dedicated.proven(server);
                for ip in dedicated.addresses(node, server) {
                    cluster.dedicated.entry(ip).or_insert_with(|| name.clone());
                }
                // The list of dedicated servers proves to which server an address belongs, and the report of a kubelet
                // does not. So an address from the list is stored with the name of its server's node, even when the
                // kubelet of another node reports the same address.
                cluster.dedicated.extend(proven.map(|ip| (ip, name)));
                cluster.proven.extend(proven);
            }
            ProviderId::Foreign if !id.is_empty() => {
                cluster.foreign_nodes.push((name, id.clone()));
            }
            ProviderId::Foreign | ProviderId::Unknown(_) | ProviderId::Disabled(_) => {}
        }
        // Only the IP addresses in the node's status are used here, because the result is compared with addresses of
        // load balancer targets. Host names are left out.
        let ips = node.status.addresses.iter();
        let ips = ips.filter(|address| {
            matches!(address.kind, AddressKind::InternalIP | AddressKind::ExternalIP)
        });
        cluster.addresses.extend(ips.filter_map(NodeAddress::ip));
    }
    Ok(cluster)
}

/// The list of all cloud servers, if it was read.
#[derive(Clone, Copy)]
struct ServerList<'a> {
    list: Option<&'a [Instance]>,
    /// Whether the list of servers was requested after this sync pass began. Only such a list proves that a server
    /// which it lacks does not exist.
    is_certain: bool,
}

/// Finds the servers of those nodes whose provider ID belongs to another provider, by their names and addresses. The
/// result is empty when the settings do not allow such nodes as targets of load balancers, or when the cloud servers
/// were not listed.
pub(super) fn foreign_matches<'a>(
    apis: &Apis,
    nodes: &'a [Arc<KubeNode>],
    servers: Option<&[Instance]>,
) -> Vec<(&'a KubeNode, ForeignMatch)> {
    let provider = &*apis.provider;
    let foreign = nodes.iter().filter(|node| is_foreign(node, provider));
    let foreign: Vec<&KubeNode> = foreign.map(|node| &**node).collect();
    let Some(cloud) = servers.filter(|_| provider.matches_foreign_nodes() && !foreign.is_empty())
    else {
        return Vec::new();
    };
    let dedicated = match provider.dedicated() {
        None => Ok(None),
        Some(_) => apis.dedicated(None, Urgency::Needed).map(Some),
    };
    let dedicated =
        dedicated.as_ref().map(|list| list.as_ref().map_or(&[][..], |list| &list.value));
    let index = MatchIndex::new(provider, nodes, Servers { cloud: Ok(cloud), dedicated });
    foreign.into_iter().map(|node| (node, index.foreign(node))).collect()
}

/// Whether the node can become a target as far as its Node object shows: it is not being deleted, and no label excludes
/// it from load balancers.
pub(super) fn is_offered(node: &KubeNode) -> bool {
    node.metadata.deletion_timestamp.is_none() && !is_excluded(node)
}

/// Returns the nodes that can become targets, with the IDs of their servers. When one of these nodes changes, the
/// Services get new plans. A node that the cluster autoscaler is about to remove is among them, so it stays a target
/// until its Node object is deleted or its `departing-delay` is over. New traffic to this node ends without a removal
/// of the target, because kube-proxy lets the health check of the node fail (KEP-3836). A removal would break the open
/// connections.
pub(super) fn candidates<'a>(
    nodes: &'a [Arc<KubeNode>],
    provider: &'a dyn Provider,
) -> impl Iterator<Item = (&'a KubeNode, InstanceId)> {
    let claims = Claims::new(provider, nodes);
    nodes.iter().filter_map(move |node| {
        let id = claims.server_of(node)?;
        is_offered(node).then_some((&**node, id))
    })
}

/// Whether the node has the label that excludes it from load balancers. A value such as `false` or `0`, which Go reads
/// as a false boolean, turns the label off.
fn is_excluded(node: &KubeNode) -> bool {
    let value = node.metadata.labels.get(EXCLUDED);
    value.is_some_and(|value| !["0", "f", "F", "false", "FALSE", "False"].contains(&value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;

    /// Anyone who can create a Service can put it, by an annotation, into a group of Services that share a load
    /// balancer. Many Services of one namespace must not push a Service of another namespace out of the group.
    #[test]
    fn many_services_of_one_namespace_leave_room_for_those_of_others() {
        let service = |namespace: &str, number: i64| provider::Service {
            namespace: namespace.to_owned(),
            uid: format!("{namespace}-{number}"),
            created: Timestamp::from_second(number).ok(),
            ..provider::Service::default()
        };
        let mut group: Vec<_> = (0..300).map(|number| service("hostile", number)).collect();
        group.push(service("infra", 1000));
        limit(&mut group);
        assert_eq!(group.len(), GROUP_AT_MOST + 1);
        assert_eq!(group[GROUP_AT_MOST].namespace, "infra");
        assert_eq!(group[0].uid, "hostile-0", "the oldest first");
    }
}
