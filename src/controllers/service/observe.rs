//! What both APIs say about Services: read only.

use super::offered::{Servers, offered};
use super::plan::View;
use crate::cache::{Apis, Error};
use crate::kube::{AnyService, Node, Service};
use crate::provider::{self, Cluster, OfferedNode, Provider, ProviderId, Snapshot, Urgency};
use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The Service whose UID identifies the cluster.
const IDENTITY: (&str, &str) = ("default", "kubernetes");

/// A list of load balancers that is older is no ground for a write.
const LIST_MAX_AGE: Duration = Duration::from_secs(5);

/// Everything a plan rests on.
pub struct Observed {
    pub services: Vec<Arc<Service>>,
    pub nodes: Vec<OfferedNode>,
    pub cluster: Cluster,
    pub snapshot: Arc<dyn Snapshot>,
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
    /// What the cloud says of the servers of these nodes since then. A cloud without servers says nothing.
    pub(super) fn ask_for_servers(
        &mut self,
        apis: &Apis,
        nodes: &[Arc<Node>],
        since: Instant,
        urgency: Urgency,
    ) -> Result<(), Error> {
        if apis.provider.instances().is_none() {
            return Ok(());
        }
        let servers = apis.instances(since.elapsed(), urgency)?;
        let servers = Servers {
            list: &servers.value,
            is_certain: true,
        };
        self.nodes = offered(nodes, &*apis.provider, Some(servers));
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
    // Whatever was read last, and by whom: see `Observed::ask_for_servers`.
    let servers = apis.instances_last();
    let servers = servers.as_ref().map(|list| Servers {
        list,
        is_certain: false,
    });
    // Which Services exist changes little, and only a take-over rests on it: see `sync`.
    let all = apis.any_services(Duration::MAX)?;
    Ok(Observed {
        cluster: cluster(apis, cluster_name, &all.value, nodes)?,
        nodes: offered(nodes, &*apis.provider, servers),
        services,
        snapshot: Arc::clone(&snapshot.value),
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
