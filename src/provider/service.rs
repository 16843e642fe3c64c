//! A Service of type LoadBalancer and the nodes behind it, as far as a cloud needs to know them.

use super::instance::{InstanceId, ProviderId};
use super::interned::NodeLabels;
use super::node::NodeAddress;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// A Service that wants a load balancer, or wanted one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Service {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// `metadata.creationTimestamp`, by the API server's clock; none: not known.
    pub created: Option<Timestamp>,
    pub annotations: BTreeMap<String, String>,
    /// How many annotations it has that are not known, besides those in `annotations`, which have no values.
    pub more_unknown: usize,
    pub ports: Vec<ServicePort>,
    pub traffic_policy: TrafficPolicy,
    /// Where every node says whether it runs a pod of the Service; only with [`TrafficPolicy::Local`].
    pub health_check_node_port: Option<u16>,
    /// `spec.loadBalancerIP`; empty when unset.
    pub load_balancer_ip: String,
    /// `spec.loadBalancerSourceRanges`.
    pub source_ranges: Vec<String>,
    /// `spec.sessionAffinity` is `ClientIP`.
    pub has_session_affinity: bool,
    /// `spec.ipFamilies` is `IPv6` alone: so are its node ports.
    pub is_ipv6_alone: bool,
    /// IP addresses and host names in its status.
    pub addresses: Vec<String>,
}

/// What is kept of an annotation of a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnnotationKind {
    /// Its value is read.
    Known,
    /// It has our prefix, and no such annotation exists: its name is reported.
    Unknown,
    /// Nothing of it is read.
    Foreign,
}

/// One of `spec.ports`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServicePort {
    /// Empty when the only port has none.
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub protocol: Protocol,
    pub port: u16,
    /// None: `allocateLoadBalancerNodePorts` is false, or not allocated yet.
    pub node_port: Option<u16>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(from = "String")]
pub enum Protocol {
    #[default]
    Tcp,
    Udp,
    Sctp,
}

/// `spec.externalTrafficPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TrafficPolicy {
    #[default]
    Cluster,
    /// Only nodes that run a pod of the Service answer.
    Local,
}

/// A node that may become a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferedNode {
    pub name: String,
    pub provider_id: ProviderId,
    pub labels: NodeLabels,
    pub addresses: Vec<NodeAddress>,
    /// What the cloud's list of servers says of its server.
    pub reach: Reach,
    /// Of a dedicated server: its public address; none: it has none, or it is not known without credentials.
    pub dedicated_ipv4: Option<Ipv4Addr>,
}

/// What the cloud's list of servers says of one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// No list was read.
    #[default]
    Unknown,
    /// The complete list does not have it.
    Missing {
        /// The list was requested after this pass began; else the server may be newer than the list.
        is_certain: bool,
    },
    /// It exists, and can be reached by these.
    By {
        has_public_ipv4: bool,
        /// Numbers of the private networks that it has an address in.
        networks: Vec<u64>,
    },
}

/// A certificate with its chain, and its key: they fit each other, and the certificate is valid now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TlsPair {
    /// PEM, the server's own certificate first.
    pub chain: String,
    /// How many it has.
    pub certificates: usize,
    /// SHA-256 of the chain, in hexadecimal digits.
    pub digest: String,
    pub key: PrivateKey,
}

/// PEM of a private key. `Debug` says nothing of it.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct PrivateKey(String);

/// What a Secret of type `kubernetes.io/tls` holds; the error: why it can't be used, for people.
pub type TlsSecret = Result<Arc<TlsPair>, String>;

/// By namespace and name. One that was not read is not among them.
pub type TlsSecrets = BTreeMap<(String, String), TlsSecret>;

/// The cluster that asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster {
    /// The UID of its Service `default/kubernetes` as it was first seen: distinguishes two clusters in one project. Empty:
    /// it is not known, and nothing is created or deleted.
    pub uid: String,
    /// UIDs that this Service had besides: what was made under one of them is this cluster's.
    pub former_uids: Vec<String>,
    /// `--cluster-name`: for people only.
    pub name: String,
    /// UIDs of all its Services, of any type.
    pub service_uids: HashSet<String>,
    /// The Services whose ports on a load balancer of several stay as they are, by their UIDs.
    pub untouched: HashMap<String, UntouchedService>,
    /// The Services that use load balancers together.
    pub groups: Groups,
    /// Cloud servers of all its nodes, offered or not, and the nodes' names.
    pub servers: HashMap<InstanceId, String>,
    /// `InternalIP` and `ExternalIP` of all its nodes.
    pub addresses: HashSet<IpAddr>,
    /// Those of its nodes on dedicated servers, and the nodes' names. None without credentials for these servers:
    /// then nothing of them is removed.
    pub dedicated: HashMap<IpAddr, String>,
    /// Those of `dedicated` that the cloud itself names. The others were written by kubelets, which may write any address:
    /// no target is removed because of them.
    pub proven: HashSet<IpAddr>,
    /// Nodes with a provider ID that is not ours, and that ID.
    pub foreign_nodes: Vec<(String, String)>,
    /// Those that the Services which are planned name.
    pub tls_secrets: TlsSecrets,
}

/// A Service whose ports are not touched: another controller's, or one of ours that was not read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UntouchedService {
    pub namespace: String,
    /// The Service is larger than is read, so what it asks for is not known. Else it belongs to another controller.
    pub is_unread: bool,
}

/// The Services that use load balancers together, indexed: no plan looks at the groups of others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    /// By [`group`](super::LoadBalancers::group); the oldest first.
    by_key: HashMap<String, Vec<Service>>,
    /// The key of its group, and its place there, by the UID of a Service.
    places: HashMap<String, (Arc<str>, usize)>,
}

/// One entry of `status.loadBalancer.ingress`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ingress {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// `VIP` or `Proxy`; none for a hostname.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_mode: Option<String>,
}

/// By [`group`](super::LoadBalancers::group), the oldest first.
impl From<HashMap<String, Vec<Service>>> for Groups {
    fn from(by_key: HashMap<String, Vec<Service>>) -> Groups {
        let places = by_key.iter().flat_map(|(key, all)| {
            let key: Arc<str> = Arc::from(key.as_str());
            let uids = all.iter().map(|one| one.uid.clone()).enumerate();
            uids.map(move |(place, uid)| (uid, (Arc::clone(&key), place)))
        });
        let places = places.collect();
        Groups { by_key, places }
    }
}

impl Groups {
    /// The Services with this key, the oldest first.
    pub fn of_key(&self, key: &str) -> &[Service] {
        self.by_key.get(key).map_or(&[], Vec::as_slice)
    }

    /// The Service with this UID, where it is in a group.
    pub fn of_uid(&self, uid: &str) -> Option<&Service> {
        let (key, place) = self.places.get(uid)?;
        self.of_key(key).get(*place)
    }

    /// All Services that are in a group.
    pub fn services(&self) -> impl Iterator<Item = &Service> {
        self.by_key.values().flatten()
    }
}

impl Cluster {
    /// All UIDs by which the cluster is known, its identity first; none: it is not known.
    pub fn uids(&self) -> impl Iterator<Item = &str> {
        let all = [&self.uid].into_iter().chain(&self.former_uids);
        all.map(String::as_str).filter(|uid| !uid.is_empty())
    }

    /// Is the cluster known by this UID?
    pub fn is_known_by(&self, uid: &str) -> bool {
        self.uids().any(|one| one == uid)
    }
}

impl Service {
    /// `namespace/name`, as people write it.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

impl PrivateKey {
    pub fn new(pem: String) -> PrivateKey {
        PrivateKey(pem)
    }

    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

/// What is unset, or unknown here, is TCP.
impl From<String> for Protocol {
    fn from(name: String) -> Protocol {
        match name.as_str() {
            "UDP" => Protocol::Udp,
            "SCTP" => Protocol::Sctp,
            _ => Protocol::Tcp,
        }
    }
}

impl Protocol {
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
            Protocol::Sctp => "SCTP",
        }
    }
}
