//! A Service of type LoadBalancer and the nodes behind it, with the fields that a cloud needs to know.

use super::instance::{InstanceId, ProviderId};
use super::interned::NodeLabels;
use super::node::NodeAddress;
use super::secret::Secret;
use crate::text::named;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// A Service that needs a load balancer, or had needed one earlier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Service {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// `metadata.creationTimestamp`, by the API server's clock. `None` when it is not known.
    pub created: Option<Timestamp>,
    pub annotations: BTreeMap<String, String>,
    /// How many unknown annotations are not in `annotations`. That map holds only the first unknown annotations,
    /// with empty values.
    pub more_unknown: usize,
    pub ports: Vec<ServicePort>,
    pub traffic_policy: TrafficPolicy,
    /// The port where every node answers whether it runs a pod of the Service. Set only with [`TrafficPolicy::Local`].
    pub health_check_node_port: Option<u16>,
    /// `spec.loadBalancerIP`, or an empty text when it is unset.
    pub load_balancer_ip: String,
    /// `spec.loadBalancerSourceRanges`.
    pub source_ranges: Vec<String>,
    /// Whether `spec.sessionAffinity` is `ClientIP`.
    pub has_session_affinity: bool,
    /// Whether `spec.ipFamilies` is `IPv6` alone, so that the node ports are IPv6 alone too.
    pub is_ipv6_alone: bool,
    /// The IP addresses and host names in the status of the Service.
    pub addresses: Vec<String>,
}

/// The kind of an annotation of a Service. It decides what is kept of the annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnnotationKind {
    /// The annotation is known, and its value is read.
    Known,
    /// The annotation has our prefix, but no such annotation exists. Its name is reported.
    Unknown,
    /// The annotation belongs to other programs, and this controller does not read its value.
    Foreign,
}

/// An entry of `spec.ports`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServicePort {
    /// The name of the port. Empty when the only port has no name.
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub protocol: Protocol,
    pub port: u16,
    /// The node port. `None` when `allocateLoadBalancerNodePorts` is false, or when no node port is allocated yet.
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
    /// A node takes traffic for the Service only when it runs one of the Service's pods.
    Local,
}

/// A node that may become a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferedNode {
    pub name: String,
    pub provider_id: ProviderId,
    pub labels: NodeLabels,
    pub addresses: Vec<NodeAddress>,
    /// What the list of servers says about the server of the node.
    pub reach: Reach,
    /// The public address of a dedicated server. `None` when the server has no such address, or when it is not known
    /// because credentials are missing.
    pub dedicated_ipv4: Option<Ipv4Addr>,
}

/// What the list of servers says about one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// No list of servers was read.
    #[default]
    Unknown,
    /// The list is complete, and the server is not in it.
    Missing {
        /// Whether the list was requested after this pass of the controller began. Otherwise the server may be newer
        /// than the list.
        is_certain: bool,
    },
    /// The server exists. It can be reached by its public IPv4 address, if any, and by its addresses in these networks.
    By {
        has_public_ipv4: bool,
        /// The IDs of the private networks in which the server has an address.
        networks: Vec<u64>,
    },
}

/// A certificate with its chain and its private key. The key fits the certificate, and the certificate is valid now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TlsPair {
    /// The chain as PEM. The server's own certificate comes first.
    pub chain: String,
    /// How many certificates the chain has.
    pub certificates: usize,
    /// The SHA-256 digest of the chain, in hexadecimal digits.
    pub digest: String,
    /// The private key as PEM.
    pub key: Secret,
}

/// The content of a Secret of type `kubernetes.io/tls`. The error is a text that says why the Secret can't be used.
pub type TlsSecret = Result<Arc<TlsPair>, String>;

/// The namespace and the name of a Secret.
pub type SecretName = (String, String);

/// Secrets of type `kubernetes.io/tls`. A Secret that was not read is missing.
pub type TlsSecrets = BTreeMap<SecretName, TlsSecret>;

/// The cluster whose Services are planned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster {
    /// The UID of the cluster's Service `default/kubernetes` as it was first seen. It distinguishes two clusters in one
    /// project. Empty when the UID is not known. Then nothing is created or deleted.
    pub uid: String,
    /// Other UIDs that the Service `default/kubernetes` had earlier. Objects that were made under one of these UIDs
    /// belong to this cluster.
    pub former_uids: Vec<String>,
    /// The value of `--cluster-name`, which only people read.
    pub name: String,
    /// The UIDs of all Services of the cluster, of any type.
    pub service_uids: HashSet<String>,
    /// The Services whose ports on a shared load balancer must not be changed, by UID.
    pub untouched: HashMap<String, UntouchedService>,
    /// The Services that use load balancers together.
    pub groups: Groups,
    /// The cloud servers of all nodes of the cluster, offered or not, with the names of the nodes.
    pub servers: HashMap<InstanceId, String>,
    /// The `InternalIP`s and `ExternalIP`s of all nodes of the cluster.
    pub addresses: HashSet<IpAddr>,
    /// The addresses of the nodes on dedicated servers, with the names of the nodes. Empty without credentials for
    /// these servers. Then none of their targets is removed.
    pub dedicated: HashMap<IpAddr, String>,
    /// The addresses of `dedicated` that the cloud itself names. The others were written by kubelets, which may write
    /// any address, so that no target is removed because of them.
    pub proven: HashSet<IpAddr>,
    /// The names of the nodes with a provider ID that is not ours, each with this provider ID.
    pub foreign_nodes: Vec<(String, String)>,
    /// The Secrets that the planned Services name.
    pub tls_secrets: TlsSecrets,
}

/// A Service whose ports are not touched, because it belongs to another controller, or because it is ours
/// and was not read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UntouchedService {
    pub namespace: String,
    /// Whether the Service is too large to be read, so that it is not known what the Service asks for. Otherwise it
    /// belongs to another controller.
    pub is_unread: bool,
}

/// The groups of Services that share load balancers. An index by UID lets a plan find its group without a search
/// through the other groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    /// The Services of each group by the key of [`group`](super::LoadBalancers::group), the oldest Service first.
    by_key: HashMap<String, Vec<Service>>,
    /// The key of the group of each Service, and the position of the Service in the group, by the UID of the Service.
    places: HashMap<String, (Arc<str>, usize)>,
}

/// An entry of `status.loadBalancer.ingress`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ingress {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// `VIP` or `Proxy`, or `None` for a hostname.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_mode: Option<String>,
}

/// Creates the index. `from` maps the key of each [`group`](super::LoadBalancers::group) to its Services,
/// the oldest first.
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
    /// Returns the Services of the group with this key, the oldest first.
    pub fn of_key(&self, key: &str) -> &[Service] {
        self.by_key.get(key).map_or(&[], Vec::as_slice)
    }

    /// Returns the Service with this UID, or `None` when it is in no group.
    pub fn of_uid(&self, uid: &str) -> Option<&Service> {
        let (key, place) = self.places.get(uid)?;
        self.of_key(key).get(*place)
    }

    /// Returns all Services that are in a group.
    pub fn services(&self) -> impl Iterator<Item = &Service> {
        self.by_key.values().flatten()
    }
}

impl Cluster {
    /// Returns all UIDs by which the cluster is known, its identity first. Nothing is returned when the identity
    /// is not known.
    pub fn uids(&self) -> impl Iterator<Item = &str> {
        let all = [&self.uid].into_iter().chain(&self.former_uids);
        all.map(String::as_str).filter(|uid| !uid.is_empty())
    }

    /// Whether this UID is one of the cluster's UIDs.
    pub fn is_known_by(&self, uid: &str) -> bool {
        self.uids().any(|owner| owner == uid)
    }
}

impl Service {
    /// Returns `namespace/name`, as people write it.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// Parses the name of a protocol. A protocol that is unset or unknown here is TCP.
impl From<String> for Protocol {
    fn from(name: String) -> Protocol {
        let known = Protocol::ALL.iter().find(|protocol| protocol.name() == name);
        known.copied().unwrap_or_default()
    }
}
