//! A Service of type LoadBalancer, and the nodes and Secrets that are needed to plan its load balancer.

use super::instance::{InstanceId, ProviderId};
use super::interned::{Interned, NodeLabels};
use super::node::NodeAddress;
use super::secret::Secret;
use crate::text::named;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

/// A Service that needs a load balancer now, or needed one earlier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Service {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// `metadata.creationTimestamp`, by the API server's clock. `None` when it is not known.
    pub created: Option<Timestamp>,
    pub annotations: BTreeMap<String, String>,
    /// The number of unknown annotations of the Service that are left out of `annotations`. Only the names of the first
    /// few unknown annotations are kept, to report them.
    pub more_unknown: usize,
    pub ports: Vec<ServicePort>,
    pub traffic_policy: TrafficPolicy,
    /// `spec.healthCheckNodePort`, the port on which each node answers whether it runs a pod of the Service. `None`
    /// when the Service has no such port. Kubernetes gives one only to Services with [`TrafficPolicy::Local`].
    pub health_check_node_port: Option<u16>,
    /// `spec.loadBalancerIP`, or an empty text when it is unset.
    pub load_balancer_ip: String,
    /// `spec.loadBalancerSourceRanges`.
    pub source_ranges: Vec<String>,
    /// Whether `spec.sessionAffinity` is `ClientIP`.
    pub has_session_affinity: bool,
    /// Whether `spec.ipFamilies` is only `IPv6`. The node ports of such a Service accept only IPv6.
    pub is_ipv6_alone: bool,
    /// The IP addresses and host names in `status.loadBalancer` of the Service.
    pub addresses: Vec<String>,
    /// The annotations of the Service's Namespace.
    pub of_namespace: Arc<NamespaceAnnotations>,
}

/// The annotations of a Namespace that are defaults for the Services in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NamespaceAnnotations {
    /// The keys and values. The list is empty when the Namespace has no defaults, or when a setting turns them off.
    Known(Vec<(String, String)>),
    /// It is not known which defaults the Namespace has. The text says why.
    Unknown(Arc<str>),
}

impl Default for NamespaceAnnotations {
    fn default() -> NamespaceAnnotations {
        NamespaceAnnotations::Known(Vec::new())
    }
}

/// The defaults that Namespaces have for their Services, as they were read last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceDefaults {
    /// The annotations of each Namespace that has some, by the name of the Namespace.
    pub all: BTreeMap<String, Arc<NamespaceAnnotations>>,
    /// Why the annotations of the Namespaces are not known. `None` when the Namespaces were read, or when a setting
    /// turns their defaults off.
    pub unread: Option<Arc<str>>,
    /// Some annotations of Namespaces that have no effect, each with the name of its Namespace.
    pub without_effect: Vec<(String, String)>,
}

impl NamespaceDefaults {
    /// Returns the message that this annotation of a Namespace has no effect.
    pub fn no_effect((namespace, key): &(String, String)) -> String {
        format!(
            "annotation {key} of namespace {namespace} has no effect. A Namespace can set only annotations that \
             have an environment variable in the output of ccm help annotations, and no annotations for a single port. \
             Set the annotation on the Services instead, or remove it"
        )
    }

    /// Returns the annotations of this Namespace.
    pub fn of(&self, namespace: &str) -> Arc<NamespaceAnnotations> {
        match &self.unread {
            Some(why) => Arc::new(NamespaceAnnotations::Unknown(Arc::clone(why))),
            None => self.all.get(namespace).cloned().unwrap_or_default(),
        }
    }
}

/// The kind of an annotation of a Service. It decides whether this program keeps the annotation's name and value in
/// memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnnotationKind {
    /// An annotation that this program reads. Its name and value are kept.
    Known,
    /// An annotation with a prefix of this program, but with an unknown name. Only the name is kept, to report it.
    Unknown,
    /// An annotation of another program. Neither its name nor its value is kept.
    Foreign,
}

/// An entry of `spec.ports`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServicePort {
    /// The name of the port. It is empty when the Service does not name its only port.
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub protocol: Protocol,
    pub port: u16,
    /// The node port. `None` when `allocateLoadBalancerNodePorts` is `false`, or when Kubernetes has
    /// not chosen one yet.
    pub node_port: Option<u16>,
}

named! {
    /// The protocol of a port.
    #[derive(Default, Hash, Deserialize)]
    #[serde(from = "String")]
    Protocol {
        #[default]
        Tcp = "TCP",
        Udp = "UDP",
        Sctp = "SCTP",
    }
}

/// `spec.externalTrafficPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TrafficPolicy {
    #[default]
    Cluster,
    /// A node accepts traffic for the Service only when it runs a pod of the Service.
    Local,
}

/// A node that can become a target of a load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferedNode {
    pub name: String,
    pub provider_id: ProviderId,
    pub labels: NodeLabels,
    pub addresses: Vec<NodeAddress>,
    /// How a load balancer can reach the node's server, according to the cloud's list of servers.
    pub reach: Reach,
    /// The public IPv4 address of a dedicated server. `None` when the server has no such address, or when the
    /// credentials for the API of dedicated servers are missing.
    pub dedicated_ipv4: Option<Ipv4Addr>,
    /// The location of the node's server, e.g. `fsn1`, according to the list of servers. Empty when it is not known.
    pub location: Interned,
    pub departure: Departure,
}

/// Whether and since when a node departs, i.e. will stop soon, because it is drained, shut down or deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Departure {
    /// For how long this process has seen that the node departs (will stop soon). `None` when the node does not depart.
    pub departed: Option<Duration>,
    /// Whether the node has the taint that the cluster autoscaler sets before it deletes a node.
    pub is_to_be_deleted: bool,
}

/// How a load balancer can reach a server, according to the cloud's list of servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// The list of servers was not read, so it is not known how the server can be reached.
    #[default]
    Unknown,
    /// The server has the name of the node, but it is not certain that the node runs on this server. This is only
    /// possible for a node of another provider, which is matched with its server by name. The server does not become a
    /// target, but a server that is a target already stays one.
    Doubtful,
    /// The list of servers is complete, but does not have this server.
    Missing {
        /// Whether the server certainly does not exist. The value is `false` when the list of servers was requested
        /// before the controller began its present sync pass, because the server may have been created after that
        /// request.
        is_certain: bool,
    },
    /// The cloud's list of servers contains this server. A load balancer can reach it at its public IPv4 address, if it
    /// has one, and at its addresses in these private networks.
    By {
        has_public_ipv4: bool,
        /// The IDs of the private networks in which the server has an address.
        networks: Vec<u64>,
    },
}

/// A certificate with its chain and its private key. The key was checked to belong to the certificate, and the
/// certificate was valid when it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TlsPair {
    /// The certificate chain in PEM form. It begins with the certificate to which the private key belongs.
    pub chain: String,
    /// The number of certificates in the chain.
    pub certificates: usize,
    /// The SHA-256 digest of the certificate chain, in hexadecimal digits.
    pub digest: String,
    /// The private key in PEM form.
    pub key: Secret,
}

/// The content of a Secret of type `kubernetes.io/tls`. The error is a text that says why the Secret can't be used.
pub type TlsSecret = Result<Arc<TlsPair>, String>;

/// The namespace and the name of a Secret.
pub type SecretName = (String, String);

/// The namespace and the name of a Service.
pub type ServiceName = (String, String);

/// On which nodes the pods of some Services run, as the EndpointSlices of these Services show it. Each `u64` here is a
/// mask: bit 0 stands for the first Service in `services`, bit 1 for the second, and so on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodNodes {
    /// The Services whose EndpointSlices were read. There are at most 64, because each `u64` in this type and in
    /// [`PodsOnNode`] has one bit for each Service.
    pub services: Vec<ServiceName>,
    /// The nodes that run a pod of at least one Service in `services`, by the name of the node. Nodes that are not in
    /// the map run no pods of these Services.
    pub nodes: BTreeMap<String, PodsOnNode>,
    /// The Services with an endpoint that names no node, as a mask (each bit stands for a Service). It is not known
    /// which nodes run their pods.
    pub unplaced: u64,
    /// The Services whose EndpointSlices this process has begun to read less than a minute ago, as a mask (each bit
    /// stands for a Service). It is not known on which nodes their pods ran before that.
    pub new: u64,
    /// For each Service whose EndpointSlices could not be read, the reason.
    pub unread: BTreeMap<ServiceName, String>,
}

/// The Services with pods on a node. Each field is a mask, in which each bit stands for a Service, see [`PodNodes`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodsOnNode {
    /// The Services with a ready pod on the node, as a mask (each bit stands for a Service).
    pub ready: u64,
    /// The Services with a pod on the node for which the EndpointSlices say `serving`, as a mask (each bit stands for a
    /// Service). A pod that is about to end can still serve.
    pub serving: u64,
    /// The Services that may have had a serving pod on the node within the last minute, as a mask (each bit stands for
    /// a Service).
    pub recent: u64,
}

impl PodNodes {
    /// Returns the mask in which the bits of these Services are set. `None` when the nodes with pods of one of the
    /// Services are not known, because its EndpointSlices were not read or have an endpoint that names no node.
    pub fn mask(&self, services: &[ServiceName]) -> Option<u64> {
        let mut mask = 0;
        for service in services {
            mask |= 1 << self.services.iter().position(|other| other == service)?;
        }
        (mask & self.unplaced == 0).then_some(mask)
    }

    /// Returns which of the Services in `mask` have pods on the node. Each bit of `mask` and of the results stands for
    /// a Service.
    pub fn on(&self, node: &str, mask: u64) -> PodsOnNode {
        let pods = self.nodes.get(node).copied().unwrap_or_default();
        PodsOnNode {
            ready: pods.ready & mask,
            serving: pods.serving & mask,
            recent: (pods.serving | pods.recent | self.new) & mask,
        }
    }
}

/// The Secrets of type `kubernetes.io/tls` that were read.
pub type TlsSecrets = BTreeMap<SecretName, TlsSecret>;

/// What a plan for a Service needs to know about the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster {
    /// The first known UID of the Service `default/kubernetes`. It distinguishes the clusters in one Hetzner Cloud
    /// project. The field keeps this UID when that Service is deleted and created again. While no UID is known, the
    /// field is empty, and nothing is created or deleted in the cloud.
    pub uid: String,
    /// The later UIDs of the Service `default/kubernetes`, without the first known one, which is in `uid`. That Service
    /// gets a new UID each time it is deleted and created again. An object in the cloud whose label has any of these
    /// UIDs belongs to this cluster.
    pub former_uids: Vec<String>,
    /// The value of `--cluster-name`, which is part of the names and labels of load balancers, and of texts for users.
    /// It does not identify the cluster.
    pub name: String,
    /// The UIDs of all Services of the cluster, of any type.
    pub service_uids: HashSet<String>,
    /// The Services that this program must not manage or could not read completely. Their ports on a shared load
    /// balancer stay as they are. The key is the UID of the Service.
    pub untouched: HashMap<String, UntouchedService>,
    /// The groups of Services. The Services of a group share a load balancer.
    pub groups: Groups,
    /// The defaults that Namespaces have for their Services.
    pub namespaces: Arc<NamespaceDefaults>,
    /// The names of the nodes that run on cloud servers. The key is the ID of the server. Nodes that can't become
    /// targets are included.
    pub servers: HashMap<InstanceId, String>,
    /// The `InternalIP` and `ExternalIP` addresses of all nodes of the cluster.
    pub addresses: HashSet<IpAddr>,
    /// The names of the nodes that run on dedicated servers. The key is an address of the node, and a node has an entry
    /// for each address. The map is empty when the credentials for dedicated servers are missing. Targets with
    /// addresses of dedicated servers are then not removed.
    pub dedicated: HashMap<IpAddr, String>,
    /// The addresses in `dedicated` that the cloud's API reports. The other addresses in `dedicated` come from
    /// kubelets, which can report any address. A target with an address that only a kubelet reports is never removed.
    pub proven: HashSet<IpAddr>,
    /// The name and the provider ID of each node whose provider ID has a prefix that this program does not use, e.g.
    /// `k3s://`. A node that has the name of a server is not in this list when nodes of other providers can be targets
    /// of load balancers.
    pub foreign_nodes: Vec<(String, String)>,
    /// The names of the nodes of other providers that can be targets (`HCLOUD_LOAD_BALANCERS_FOREIGN_NODES`). Their
    /// servers are in `servers`, too. Such a node as a target does not prove that a load balancer belongs to this
    /// cluster, because these nodes are matched with servers only by their names and addresses.
    pub target_only: HashSet<String>,
    /// The servers on which nodes in `target_only` (nodes of other providers that can be targets) certainly run. A
    /// server that only has the same name as such a node is not included, e.g. when the node reports none of the
    /// server's addresses.
    pub matched: HashSet<InstanceId>,
    /// The Secrets of type `kubernetes.io/tls` whose certificates the planned Services use.
    pub tls_secrets: TlsSecrets,
    /// The addresses in the statuses of all Services of type LoadBalancer. `None` when they were not read for this plan.
    pub shown: Option<HashSet<IpAddr>>,
    /// Data about earlier targets and about the nodes on which pods run, e.g. which targets were removed too often
    /// within the last hour. The plan uses these data to choose the nodes that become targets.
    pub history: TargetHistory,
}

/// What a plan must know about earlier targets to decide which nodes become targets: which targets were removed often,
/// how many were replaced by nodes with pods, and on which nodes pods run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetHistory {
    /// The targets that must not be removed now, because they were removed too often within the last hour. A removal
    /// counts only when the node would stop soon, or when the target made room for a node with pods. An entry is the ID
    /// of the load balancer and the name of the node.
    pub removed_often: HashSet<(u64, String)>,
    /// The number of targets of each load balancer that were replaced by nodes with pods within the last minute. The
    /// key is the ID of the load balancer.
    pub exchanged: HashMap<u64, usize>,
    /// On which nodes pods of Services run. Only Services that prefer nodes with pods as targets are included, because
    /// the EndpointSlices of other Services are not read.
    pub pods: Arc<PodNodes>,
}

/// A Service whose ports must stay as they are, because the settings say that this program must not manage the Service,
/// or because the Service is too large to be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UntouchedService {
    pub namespace: String,
    /// Whether the Service is too large to be read, so that it is not known what the Service asks for. `false` means
    /// that the Service was read, and that the settings say that this program must not manage it.
    pub is_unread: bool,
}

/// The groups of Services. The Services of a group share a load balancer. The group of a Service can be looked up by
/// the UID of the Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    /// The Services of each group, with the oldest Service first. The Services of a group share a load balancer. The
    /// key is that of the group, see [`group`](super::LoadBalancers::group).
    by_key: HashMap<String, Vec<Service>>,
    /// For the UID of each Service, the key of its group (the Services that share a load balancer), and the position of
    /// the Service in the list of this group in `by_key`.
    places: HashMap<String, (Arc<str>, usize)>,
}

/// An entry of `status.loadBalancer.ingress` of a Service.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ingress {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// The field `ipMode`, which is `VIP` or `Proxy`. An entry with a host name has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_mode: Option<String>,
}

/// Creates the groups (Services that share a load balancer) from a map with the Services of each group, with the oldest
/// Service first. The key is that of the group, see [`group`](super::LoadBalancers::group).
impl From<HashMap<String, Vec<Service>>> for Groups {
    fn from(by_key: HashMap<String, Vec<Service>>) -> Groups {
        let places = by_key.iter().flat_map(|(key, all)| {
            let key: Arc<str> = Arc::from(key.as_str());
            let uids = all.iter().map(|service| service.uid.clone()).enumerate();
            uids.map(move |(place, uid)| (uid, (Arc::clone(&key), place)))
        });
        let places = places.collect();
        Groups { by_key, places }
    }
}

impl Groups {
    /// Returns the Services of the group (the Services that share a load balancer) with the name `key`, with the oldest
    /// Service first. The result is empty when there is no such group.
    pub fn of_key(&self, key: &str) -> &[Service] {
        self.by_key.get(key).map_or(&[], Vec::as_slice)
    }

    /// Returns the Service with this UID from the Services that share a load balancer. `None` when no Service that
    /// shares a load balancer has this UID.
    pub fn of_uid(&self, uid: &str) -> Option<&Service> {
        let (key, place) = self.places.get(uid)?;
        self.of_key(key).get(*place)
    }

    /// Returns the Services of all groups, which are all Services that share a load balancer.
    pub fn services(&self) -> impl Iterator<Item = &Service> {
        self.by_key.values().flatten()
    }
}

impl Cluster {
    /// Returns all UIDs that the Service `default/kubernetes` has or had, as far as they are known. An object with any
    /// of these UIDs in a label belongs to this cluster. The UID that was known first comes first. The result is empty
    /// while no UID is known.
    pub fn uids(&self) -> impl Iterator<Item = &str> {
        let all = [&self.uid].into_iter().chain(&self.former_uids);
        all.map(String::as_str).filter(|uid| !uid.is_empty())
    }

    /// Whether `uid` is one of the known UIDs of the Service `default/kubernetes`, and so identifies this cluster.
    pub fn is_known_by(&self, uid: &str) -> bool {
        self.uids().any(|owner| owner == uid)
    }

    /// Returns the number of nodes that should run on servers of the Hetzner Cloud project. These are all nodes of this
    /// provider, and the nodes of other providers that can be targets, without the nodes on dedicated servers.
    pub fn project_nodes(&self) -> usize {
        let dedicated: HashSet<&String> = self.dedicated.values().collect();
        let names = self.servers.values().chain(&self.target_only);
        names.filter(|name| !dedicated.contains(name)).collect::<HashSet<_>>().len()
    }

    /// Whether it is certain that a node of this cluster runs on this server. The node can also be a node of another
    /// provider.
    pub fn has_server(&self, id: InstanceId) -> bool {
        self.has_claimed(id) || self.matched.contains(&id)
    }

    /// Whether the provider ID of a node names this server. The result is `false` when the node is only matched with the
    /// server by its name, because it is a node of another provider.
    pub fn has_claimed(&self, id: InstanceId) -> bool {
        self.servers.get(&id).is_some_and(|node| !self.target_only.contains(node))
    }
}

impl Service {
    /// Returns the name of the Service as `namespace/name`.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// Returns the protocol with this name. An empty or unknown name becomes TCP.
impl From<String> for Protocol {
    fn from(name: String) -> Protocol {
        let known = Protocol::ALL.iter().find(|protocol| protocol.name() == name);
        known.copied().unwrap_or_default()
    }
}
