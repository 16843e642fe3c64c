//! What both APIs say about Services: read only. And which nodes a load balancer may send traffic to.
//!
//! Ready is not asked for: the load balancer has health checks of its own, and nodes that flap must not churn targets.

use super::plan::{View, needs};
use crate::cache::{Apis, Error};
use crate::kube::{AnyService, Node, Service};
use crate::provider::{
    self, Cluster, Instance, InstanceId, NodeAddress, OfferedNode, Provider, ProviderId, Reach,
    Snapshot, Urgency,
};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The Service whose UID identifies the cluster.
const IDENTITY: (&str, &str) = ("default", "kubernetes");

const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// The cluster autoscaler is about to remove the node.
const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";

/// A list of load balancers that is older is no ground for a write.
const LIST_MAX_AGE: Duration = Duration::from_secs(5);

/// Everything a plan rests on.
pub struct Observed {
    pub services: Vec<Arc<Service>>,
    pub nodes: Vec<OfferedNode>,
    pub cluster: Cluster,
    pub snapshot: Arc<dyn Snapshot>,
    /// When the load balancers were all listed.
    answered: Instant,
    /// Does the project have a server of the cluster's nodes, by a list that was requested after that of the load
    /// balancers? None: there is no such list.
    pub(super) has_own_servers: Option<bool>,
}

/// How fresh what is read has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freshness {
    /// Whatever was read last, no older than this: such a plan only proposes.
    Proposes(Duration),
    /// Asked for since then, and a moment ago: such a plan is applied.
    Since(Instant),
}

impl Observed {
    /// Reads what plans for these Services need besides, from the APIs themselves. A cloud without servers has no list.
    /// `has_refused`: it refused some of the targets.
    pub(super) fn read_needs(
        &mut self,
        apis: &Apis,
        nodes: &[Arc<Node>],
        since: Instant,
        has_refused: bool,
        urgency: Urgency,
    ) -> Result<(), Error> {
        let view = self.view(false);
        let needs: Vec<_> = self.services.iter().map(|one| needs(&view, one)).collect();
        if needs.iter().any(|one| one.services) {
            let all = apis.any_services(since.elapsed())?;
            self.cluster = cluster(apis, &self.cluster.name, &all.value, nodes)?;
        }
        let needs_servers = has_refused || needs.iter().any(|one| one.servers);
        if needs_servers && apis.provider.instances().is_some() {
            // A token may be replaced at any time: the list is of the project that the load balancers are of, or newer.
            let since = since.max(self.answered);
            let servers = apis.instances_since(since, Duration::MAX, urgency)?.value;
            let is_own = |server: &Instance| self.cluster.servers.contains_key(&server.id);
            self.has_own_servers = Some(servers.iter().any(is_own));
            let servers = Servers {
                list: &servers,
                is_certain: true,
            };
            self.nodes = offered(nodes, &*apis.provider, Some(servers));
        }
        Ok(())
    }

    pub(super) fn view(&self, for_people: bool) -> View<'_> {
        View {
            services: &self.services,
            nodes: &self.nodes,
            cluster: &self.cluster,
            snapshot: &*self.snapshot,
            for_people,
        }
    }
}

impl Freshness {
    fn max_age(self) -> Duration {
        match self {
            Freshness::Proposes(age) => age,
            Freshness::Since(begun) => begun.elapsed().min(LIST_MAX_AGE),
        }
    }
}

/// The Services themselves are given: those that are due.
pub(super) fn observe(
    apis: &Apis,
    cluster_name: &str,
    services: Vec<Arc<Service>>,
    nodes: &[Arc<Node>],
    freshness: Freshness,
    urgency: Urgency,
) -> Result<Observed, Error> {
    let for_cloud: Vec<provider::Service> =
        services.iter().map(|service| service.for_cloud()).collect();
    let for_cloud: Vec<&provider::Service> = for_cloud.iter().collect();
    let snapshot = apis.load_balancers(&for_cloud, freshness.max_age(), urgency)?;
    // Whatever was read last, and by whom: see `Observed::read_needs`.
    let servers = apis.instances_last();
    let servers = servers.as_ref().map(|list| Servers {
        list,
        is_certain: false,
    });
    // Which Services exist changes little, and only a take-over rests on it.
    let all = apis.any_services(Duration::MAX)?;
    Ok(Observed {
        cluster: cluster(apis, cluster_name, &all.value, nodes)?,
        nodes: offered(nodes, &*apis.provider, servers),
        services,
        snapshot: Arc::clone(&snapshot.value),
        answered: snapshot.answered,
        has_own_servers: None,
    })
}

/// Who we are, and who lives here.
pub(super) fn cluster(
    apis: &Apis,
    name: &str,
    all: &[Arc<AnyService>],
    nodes: &[Arc<Node>],
) -> Result<Cluster, Error> {
    let identity = all.iter().find(|service| {
        (
            service.metadata.namespace.as_str(),
            service.metadata.name.as_str(),
        ) == IDENTITY
    });
    let Some(identity) = identity else {
        let why = "the Service default/kubernetes, whose UID names this cluster on its load balancers, is not \
                   there; the API server makes it by itself within a minute of its start";
        return Err(Error::Cloud(provider::Error::new(
            provider::ErrorKind::Other,
            why,
        )));
    };
    let server = |node: &Arc<Node>| match apis.provider.parse_provider_id(&node.spec.provider_id) {
        ProviderId::Ours(id) => Some((id, node.name().to_owned())),
        ProviderId::Foreign | ProviderId::Unknown(_) => None,
    };
    Ok(Cluster {
        uid: identity.metadata.uid.clone(),
        name: name.to_owned(),
        service_uids: all
            .iter()
            .map(|service| service.metadata.uid.clone())
            .collect(),
        servers: nodes.iter().filter_map(server).collect(),
        addresses: addresses(nodes),
        foreign_nodes: foreign_nodes(nodes, &*apis.provider),
    })
}

/// Where the nodes are reached; a host name is no address.
fn addresses(nodes: &[Arc<Node>]) -> HashSet<IpAddr> {
    let of_nodes = nodes.iter().flat_map(|node| &node.status.addresses);
    let are_ips = of_nodes.filter(|one| matches!(one.kind.as_str(), "InternalIP" | "ExternalIP"));
    are_ips.filter_map(|one| one.address.parse().ok()).collect()
}

fn foreign_nodes(nodes: &[Arc<Node>], provider: &dyn Provider) -> Vec<(String, String)> {
    let is_foreign =
        |id: &str| !id.is_empty() && provider.parse_provider_id(id) == ProviderId::Foreign;
    nodes
        .iter()
        .filter(|node| is_foreign(&node.spec.provider_id))
        .map(|node| (node.name().to_owned(), node.spec.provider_id.to_string()))
        .collect()
}

/// Each of these Services as it is now; those that are gone are left out.
pub(super) fn read_again(
    apis: &Apis,
    services: &[Arc<Service>],
) -> Result<Vec<Arc<Service>>, Error> {
    let mut fresh = Vec::with_capacity(services.len());
    for service in services {
        let metadata = &service.metadata;
        let now = apis.service(&metadata.namespace, &metadata.name)?;
        // Another one that came to carry its name is looked at in the next tick.
        fresh.extend(now.filter(|now| now.metadata.uid == metadata.uid));
    }
    Ok(fresh)
}

/// Services that are not of type LoadBalancer any more, but carry our finalizer.
pub(super) fn leftovers(
    apis: &Apis,
    listed: &[Arc<Service>],
    suspects: impl IntoIterator<Item = (String, String)>,
) -> Result<Vec<Arc<Service>>, Error> {
    let mut found = Vec::new();
    for (namespace, name) in suspects {
        let is_listed = |service: &Arc<Service>| {
            service.metadata.namespace == namespace && service.metadata.name == name
        };
        if listed.iter().any(is_listed) {
            continue;
        }
        let service = apis.service(&namespace, &name)?;
        let ours = |service: &Arc<Service>| {
            service.has_our_finalizer() && !service.is_of_type_load_balancer()
        };
        found.extend(service.filter(ours));
    }
    Ok(found)
}

/// A complete list of servers.
#[derive(Clone, Copy)]
pub struct Servers<'a> {
    pub list: &'a [Instance],
    /// It was requested after this pass began.
    pub is_certain: bool,
}

/// The nodes that a plan may use, and what is known of their servers; `servers`: none were read.
pub fn offered(
    nodes: &[Arc<Node>],
    provider: &dyn Provider,
    servers: Option<Servers>,
) -> Vec<OfferedNode> {
    let list = servers.map_or(&[][..], |servers| servers.list);
    let by_id: HashMap<InstanceId, &Instance> =
        list.iter().map(|server| (server.id, server)).collect();
    let reach = |id: &ProviderId| match (id, servers) {
        (ProviderId::Ours(id), Some(servers)) => by_id.get(id).map_or(
            Reach::Missing {
                is_certain: servers.is_certain,
            },
            |server| reach(server),
        ),
        (ProviderId::Ours(_), None) | (ProviderId::Foreign | ProviderId::Unknown(_), _) => {
            Reach::Unknown
        }
    };
    candidates(nodes, provider)
        .filter(|(node, _)| node.taint(TO_BE_DELETED).is_none())
        .map(|(node, provider_id)| OfferedNode {
            name: node.name().to_owned(),
            reach: reach(&provider_id),
            provider_id,
            labels: node
                .metadata
                .labels
                .iter()
                .map(|(key, value)| (key.to_string(), value.to_string()))
                .collect(),
            addresses: node.status.addresses.iter().map(address).collect(),
        })
        .collect()
}

/// The nodes that a change of starts a sync for: one that gains the autoscaler's taint goes on
/// serving the connections it has, and leaves with the next sync.
pub(super) fn candidates<'a>(
    nodes: &'a [Arc<Node>],
    provider: &'a dyn Provider,
) -> impl Iterator<Item = (&'a Node, ProviderId)> {
    nodes.iter().filter_map(|node| {
        let id = provider.parse_provider_id(&node.spec.provider_id);
        let is_offered = node.metadata.deletion_timestamp.is_none()
            && !is_excluded(node)
            && matches!(id, ProviderId::Ours(_));
        is_offered.then_some((&**node, id))
    })
}

fn reach(server: &Instance) -> Reach {
    let networks = server.private.iter().map(|private| private.network);
    Reach::By {
        has_public_ipv4: server.public_ipv4.is_some(),
        networks: networks.collect(),
    }
}

/// The label counts when it is there, unless its value is a Go boolean that is false.
fn is_excluded(node: &Node) -> bool {
    let value = node.metadata.labels.get(EXCLUDED);
    value.is_some_and(|value| !["0", "f", "F", "false", "FALSE", "False"].contains(&value))
}

fn address(address: &crate::kube::NodeAddress) -> NodeAddress {
    NodeAddress::new(address.kind.as_str().into(), &address.address)
}
