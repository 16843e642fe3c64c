//! What both APIs say about Services: read only. And which nodes a load balancer may send traffic to.
//!
//! Ready is not asked for: the load balancer has health checks of its own, and nodes that flap must not churn targets.

use crate::cache::{self, Apis, Error, Poll, ReadFrom};
use crate::controllers::controller::Selection;
use crate::controllers::matching::server_of;
use crate::kube::{AnyService, Node, Service};
use crate::provider::{
    self, AddressKind, Cluster, Instance, InstanceId, Needs, NodeAddress, OfferedNode, Provider,
    ProviderId, Reach, Snapshot, Urgency,
};
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub const NAME: &str = "service-lb-controller";

/// The Service whose UID identifies the cluster.
const IDENTITY: (&str, &str) = ("default", "kubernetes");

const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// The cluster autoscaler is about to remove the node.
const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";

/// How late a label that changes which nodes are targets may be seen.
const METADATA_MAX_AGE: Duration = Duration::from_secs(30);

/// Settings of the service controller.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `--service-sync-interval`: how often Services are read.
    pub sync_interval: Duration,
    /// `--load-balancer-resync-period`: how often unchanged load balancers are compared.
    pub resync_period: Duration,
    /// `--concurrent-service-syncs`: requests in flight.
    pub concurrency: usize,
    /// `--cluster-name`: for people.
    pub cluster_name: String,
    /// `--delete-orphaned-load-balancers`: at the resync.
    pub delete_orphans: bool,
    /// Multiplies waits; 1 outside of tests.
    pub time_scale: f64,
}

/// What Kubernetes shows at one moment.
pub(super) struct Polled {
    pub(super) nodes: Arc<Vec<Arc<Node>>>,
    /// Every Service that we may have to do with, by name.
    pub(super) services: Vec<Arc<Service>>,
    /// All Services are compared.
    pub(super) is_resync: bool,
}

/// Namespace and name of a Service.
pub(super) type FullName = (String, String);

/// Services and nodes: read from Kubernetes alone. Those of `known` were of type LoadBalancer or carried our finalizer:
/// one that is not in the list any more may be of another type now. `is_busy`: changes are being executed.
pub(super) fn poll(
    apis: &Apis,
    settings: &Settings,
    selection: &Selection,
    known: &BTreeSet<FullName>,
    is_resync: bool,
    is_busy: bool,
) -> Result<Polled, Error> {
    let is_explicit = selection.is_explicit();
    let shared = settings.sync_interval / 2;
    let (age, from) = match is_explicit {
        true => (shared, ReadFrom::Latest),
        false if !is_busy => (shared, ReadFrom::Cache),
        // What is executed is compared with what there is now: its plan rests on a read of an earlier tick, and an
        // old list would not show that a load balancer which is to be deleted is wanted again.
        false => (Duration::ZERO, ReadFrom::Latest),
    };
    let listed = apis.load_balancer_services(age, from)?;
    let mut known = known.clone();
    if is_resync || is_explicit {
        let all = apis.any_services(settings.resync_period / 2)?;
        let ours = all.value.iter().filter(|one| one.has_our_finalizer());
        known.extend(ours.map(|one| (one.metadata.namespace.clone(), one.metadata.name.clone())));
    }
    for service in listed.value.iter() {
        known.remove(&full_name(service));
    }
    let mut services = listed.value.as_ref().clone();
    for (namespace, name) in known {
        let service = apis.kube.service(&namespace, &name)?;
        services.extend(
            service.filter(|one| one.has_our_finalizer() && !one.is_of_type_load_balancer()),
        );
    }
    services.sort_by_cached_key(|service| service.full_name());
    let nodes = match (is_explicit, services.is_empty()) {
        (true, _) => apis.nodes.whole(age, from)?.value,
        // Without Services the nodes are not needed.
        (false, true) => Arc::default(),
        (false, false) => {
            apis.nodes
                .poll(Poll {
                    table_max_age: age,
                    // The node controller reads them whole more often, where it runs.
                    whole_max_age: settings.resync_period * 2,
                    metadata_max_age: Some(METADATA_MAX_AGE.mul_f64(settings.time_scale)),
                })?
                .value
        }
    };
    Ok(Polled {
        nodes,
        services,
        is_resync,
    })
}

pub(super) fn full_name(service: &Service) -> FullName {
    (
        service.metadata.namespace.clone(),
        service.metadata.name.clone(),
    )
}

/// Everything a plan rests on.
pub(super) struct Observed {
    pub(super) services: Vec<Arc<Service>>,
    pub(super) nodes: Vec<OfferedNode>,
    pub(super) cluster: Cluster,
    pub(super) snapshot: Arc<dyn Snapshot>,
    /// When the load balancers were all listed.
    pub(super) answered: Instant,
    /// Does the project have a server of the cluster's nodes, by a list that was requested after that of the load
    /// balancers? None: there is no such list.
    pub(super) has_own_servers: Option<bool>,
}

impl Observed {
    /// Reads what plans for these Services need besides, from the APIs themselves. A cloud without servers has no list.
    pub(super) fn read_needs(
        &mut self,
        apis: &Apis,
        nodes: &[Arc<Node>],
        needs: Needs,
        since: Instant,
        urgency: Urgency,
    ) -> Result<(), Error> {
        if needs.services {
            let all = apis.any_services(since.elapsed())?;
            self.cluster = cluster(apis, &self.cluster.name, &all.value, nodes)?;
        }
        if needs.servers && apis.provider.instances().is_some() {
            // A token may be replaced at any time: the list is of the project that the load balancers are of, or newer.
            let since = since.max(self.answered);
            let servers = apis
                .instances_since(Some(since), Duration::MAX, urgency)?
                .value;
            let is_own = |server: &Instance| self.cluster.servers.contains_key(&server.id);
            self.has_own_servers = Some(servers.iter().any(is_own));
            self.nodes = offered(
                nodes,
                &*apis.provider,
                Some(&servers),
                &Dedicated::of(apis),
                true,
            );
        }
        Ok(())
    }
}

/// The Services themselves are given: those that are due. `max_age`: of the list of load balancers.
pub(super) fn observe(
    apis: &Apis,
    cluster_name: &str,
    services: Vec<Arc<Service>>,
    nodes: &[Arc<Node>],
    max_age: Duration,
    urgency: Urgency,
) -> Result<Observed, Error> {
    let for_cloud: Vec<_> = services.iter().map(|one| one.for_cloud()).collect();
    let for_cloud: Vec<&provider::Service> = for_cloud.iter().collect();
    let snapshot = apis.load_balancers(&for_cloud, max_age, urgency)?;
    // Whatever was read last, and by whom: see `Observed::read_needs`.
    let servers = apis.instances_last();
    let servers = servers.as_deref().map(Vec::as_slice);
    // Which Services exist changes little, and only a take-over rests on it.
    let all = apis.any_services(Duration::MAX)?;
    Ok(Observed {
        cluster: cluster(apis, cluster_name, &all.value, nodes)?,
        nodes: offered(nodes, &*apis.provider, servers, &Dedicated::of(apis), false),
        services,
        snapshot: Arc::clone(&snapshot.value),
        answered: snapshot.answered,
        has_own_servers: None,
    })
}

/// What is known of dedicated servers: as they were last listed, however long ago.
struct Dedicated {
    servers: Option<cache::Instances>,
    /// With credentials.
    is_known: bool,
}

impl Dedicated {
    fn of(apis: &Apis) -> Dedicated {
        Dedicated {
            servers: apis.dedicated_last(),
            is_known: apis.provider.dedicated().is_some(),
        }
    }

    /// The public address of a node's dedicated server. Until the servers are listed, that which its node got at its
    /// initialisation.
    fn ipv4(&self, node: &Node, id: InstanceId) -> Option<Ipv4Addr> {
        id.dedicated().filter(|_| self.is_known)?;
        let mut servers = self.servers.iter().flat_map(|view| view.value.iter());
        if let Some(server) = servers.find(|server| server.id == id) {
            return server.public_ipv4;
        }
        let external = node.status.addresses.iter();
        let external = external.filter(|one| one.kind == AddressKind::ExternalIP);
        let mut ips = external.filter_map(NodeAddress::ip);
        ips.find_map(|ip| match ip {
            IpAddr::V4(ip) => Some(ip),
            IpAddr::V6(_) => None,
        })
    }

    /// All by which the node can be a target, when it runs on a dedicated server.
    fn addresses(&self, node: &Node, provider: &dyn Provider) -> Vec<(IpAddr, String)> {
        if !self.is_known {
            return Vec::new();
        }
        let id = server_of(node, provider).filter(|id| id.dedicated().is_some());
        let Some(id) = id else {
            return Vec::new();
        };
        let own = node.status.addresses.iter();
        let own = own.filter(|one| one.kind != AddressKind::Hostname);
        let own = own.filter_map(NodeAddress::ip);
        let all = own.chain(self.ipv4(node, id).map(IpAddr::from));
        all.map(|ip| (ip, node.name().to_owned())).collect()
    }
}

/// The cluster's identity, its Services and its nodes.
pub(super) fn cluster(
    apis: &Apis,
    name: &str,
    all: &[Arc<AnyService>],
    nodes: &[Arc<Node>],
) -> Result<Cluster, Error> {
    let identity = all.iter().map(|service| &service.metadata);
    let mut identity = identity.filter(|it| (it.namespace.as_str(), it.name.as_str()) == IDENTITY);
    let Some(identity) = identity.next() else {
        let why = "the Service default/kubernetes, whose UID names this cluster on its load balancers, is not \
                   there; the API server makes it by itself within a minute of its start";
        return Err(Error::Cloud(provider::Error::new(
            provider::ErrorKind::Other,
            why,
        )));
    };
    let is_foreign =
        |id: &str| !id.is_empty() && apis.provider.parse_provider_id(id) == ProviderId::Foreign;
    let server = |node: &Arc<Node>| {
        let server = server_of(node, &*apis.provider)?;
        server.cloud()?;
        Some((server, node.name().to_owned()))
    };
    let dedicated = Dedicated::of(apis);
    Ok(Cluster {
        dedicated: nodes
            .iter()
            .flat_map(|node| dedicated.addresses(node, &*apis.provider))
            .collect(),
        uid: identity.uid.clone(),
        name: name.to_owned(),
        service_uids: all
            .iter()
            .map(|service| service.metadata.uid.clone())
            .collect(),
        servers: nodes.iter().filter_map(server).collect(),
        // A host name is no address.
        addresses: nodes
            .iter()
            .flat_map(|node| &node.status.addresses)
            .filter(|one| matches!(one.kind, AddressKind::InternalIP | AddressKind::ExternalIP))
            .filter_map(NodeAddress::ip)
            .collect(),
        foreign_nodes: nodes
            .iter()
            .filter(|node| is_foreign(&node.spec.provider_id))
            .map(|node| (node.name().to_owned(), node.spec.provider_id.clone()))
            .collect(),
    })
}

/// The nodes that a plan may use, and what is known of their servers. `servers`: all of them; none: they were not read.
/// `is_certain`: the list was requested after this pass began.
fn offered(
    nodes: &[Arc<Node>],
    provider: &dyn Provider,
    servers: Option<&[Instance]>,
    dedicated: &Dedicated,
    is_certain: bool,
) -> Vec<OfferedNode> {
    let list = servers.unwrap_or_default().iter();
    let by_id: HashMap<InstanceId, &Instance> = list.map(|one| (one.id, one)).collect();
    let reach = |id: InstanceId| match (by_id.get(&id), servers) {
        (Some(server), _) => Reach::By {
            has_public_ipv4: server.public_ipv4.is_some(),
            networks: server.private.iter().map(|one| one.network).collect(),
        },
        (None, Some(_)) => Reach::Missing { is_certain },
        (None, None) => Reach::Unknown,
    };
    candidates(nodes, provider)
        .filter(|(node, _)| node.taint(TO_BE_DELETED).is_none())
        .map(|(node, id)| OfferedNode {
            name: node.name().to_owned(),
            reach: reach(id),
            dedicated_ipv4: dedicated.ipv4(node, id),
            provider_id: ProviderId::Ours(id),
            labels: node
                .metadata
                .labels
                .iter()
                .map(|(key, value)| (key.to_string(), value.to_string()))
                .collect(),
            addresses: node.status.addresses.clone(),
        })
        .collect()
}

/// The nodes that a change of starts a sync for, with their servers: one that gains the autoscaler's taint still serves
/// the connections it has, and leaves with the next sync.
pub(super) fn candidates<'a>(
    nodes: &'a [Arc<Node>],
    provider: &'a dyn Provider,
) -> impl Iterator<Item = (&'a Node, InstanceId)> {
    nodes.iter().filter_map(|node| {
        let id = server_of(node, provider)?;
        let is_offered = node.metadata.deletion_timestamp.is_none() && !is_excluded(node);
        is_offered.then_some((&**node, id))
    })
}

/// The label counts when it is there, unless its value is a Go boolean that is false.
fn is_excluded(node: &Node) -> bool {
    let value = node.metadata.labels.get(EXCLUDED);
    value.is_some_and(|value| !["0", "f", "F", "false", "FALSE", "False"].contains(&value))
}
