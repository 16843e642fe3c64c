//! A Service of type LoadBalancer and the nodes behind it, with the fields that a provider reads.

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
    /// How many unknown annotations are missing from `annotations`, which contains only the first few of
    /// them, with empty values.
    pub more_unknown: usize,
    pub ports: Vec<ServicePort>,
    pub traffic_policy: TrafficPolicy,
    /// The port on which each node answers whether it runs a pod of the Service. `None` unless the
    /// traffic policy is [`TrafficPolicy::Local`].
    pub health_check_node_port: Option<u16>,
    /// `spec.loadBalancerIP`, or an empty text when it is unset.
    pub load_balancer_ip: String,
    /// `spec.loadBalancerSourceRanges`.
    pub source_ranges: Vec<String>,
    /// Whether `spec.sessionAffinity` is `ClientIP`.
    pub has_session_affinity: bool,
    /// Whether `spec.ipFamilies` is only `IPv6`. Node ports then accept only IPv6.
    pub is_ipv6_alone: bool,
    /// The IP addresses and host names in the Service's status.
    pub addresses: Vec<String>,
}

/// The kind of an annotation of a Service. It decides whether the name and the value are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnnotationKind {
    /// An annotation that this program reads. Its value is kept.
    Known,
    /// An annotation with a prefix that this program uses, but with a name that does not exist. The name is kept, so
    /// that it can be reported.
    Unknown,
    /// An annotation of another program. Nothing of it is kept.
    Foreign,
}

/// An entry of `spec.ports`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServicePort {
    /// The name of the port. A Service with one port need not name it, and the text is then empty.
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

/// A node that may become a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferedNode {
    pub name: String,
    pub provider_id: ProviderId,
    pub labels: NodeLabels,
    pub addresses: Vec<NodeAddress>,
    /// Whether the cloud's list of servers has the node's server, and by which addresses the server can be reached.
    pub reach: Reach,
    /// The public IPv4 address of a dedicated server. `None` when the server has none, or when the credentials that are
    /// needed to read it are missing.
    pub dedicated_ipv4: Option<Ipv4Addr>,
    pub departure: Departure,
}

/// What is known of the end of a node. A departing node will stop soon, because it is drained, shut down or deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Departure {
    /// How long this process has seen that the node departs. `None` when the node does not depart.
    pub departed: Option<Duration>,
    /// Whether the node has the taint that the cluster autoscaler sets before it deletes a node.
    pub is_to_be_deleted: bool,
}

/// How a server appears in the cloud's list of servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// The list of servers was not read.
    #[default]
    Unknown,
    /// The list is complete, but the server is not in it.
    Missing {
        /// Whether it is certain that the server does not exist. This is so when the list was requested in this pass of
        /// the controller. A server that was created after an older list was read is not in that list.
        is_certain: bool,
    },
    /// The server is in the list. A load balancer can reach it by its public IPv4 address, if it has one, and
    /// in these private networks.
    By {
        has_public_ipv4: bool,
        /// The IDs of the private networks in which the server has an address.
        networks: Vec<u64>,
    },
}

/// A certificate with its chain and its private key. It was checked that the key belongs to the certificate, and that
/// the certificate is valid now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TlsPair {
    /// The chain in PEM form, beginning with the server's own certificate.
    pub chain: String,
    /// The number of certificates in the chain.
    pub certificates: usize,
    /// The SHA-256 digest of the chain, in hexadecimal digits.
    pub digest: String,
    /// The private key in PEM form.
    pub key: Secret,
}

/// The content of a Secret of type `kubernetes.io/tls`. The error is a text that says why the Secret can't be used.
pub type TlsSecret = Result<Arc<TlsPair>, String>;

/// The namespace and the name of a Secret.
pub type SecretName = (String, String);

/// The Secrets of type `kubernetes.io/tls` that were read.
pub type TlsSecrets = BTreeMap<SecretName, TlsSecret>;

/// The cluster whose Services are planned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster {
    /// The first known UID of the cluster's Service `default/kubernetes`. It distinguishes two clusters in the same
    /// project. While it is not known, the text is empty, and nothing is created or deleted.
    pub uid: String,
    /// Other UIDs that the Service `default/kubernetes` had earlier. An object with a label that has one of these UIDs
    /// belongs to this cluster, too.
    pub former_uids: Vec<String>,
    /// The value of `--cluster-name`. It is used only in texts for users.
    pub name: String,
    /// The UIDs of all Services of the cluster, of any type.
    pub service_uids: HashSet<String>,
    /// The Services whose ports on a shared load balancer must not be changed. The key is the UID of the Service.
    pub untouched: HashMap<String, UntouchedService>,
    /// The groups of Services that share a load balancer.
    pub groups: Groups,
    /// The names of the nodes on cloud servers, by the ID of the server. All nodes of the cluster are included, even
    /// nodes that can't become targets.
    pub servers: HashMap<InstanceId, String>,
    /// The `InternalIP`s and `ExternalIP`s of all nodes of the cluster.
    pub addresses: HashSet<IpAddr>,
    /// The names of the nodes on dedicated servers, by each address of the node. Empty when the credentials for
    /// dedicated servers are missing. Their targets are then not removed.
    pub dedicated: HashMap<IpAddr, String>,
    /// Those addresses in `dedicated` that the cloud itself reports. Kubelets have written the others, and a kubelet
    /// may write any address. So a target with such an address is not removed.
    pub proven: HashSet<IpAddr>,
    /// The names and provider IDs of the nodes whose provider ID does not belong to this program.
    pub foreign_nodes: Vec<(String, String)>,
    /// The Secrets that the planned Services use.
    pub tls_secrets: TlsSecrets,
    /// The targets that were removed so often, because their nodes departed, that they stay for now. An entry is the ID
    /// of the load balancer and the name of the node.
    pub removed_often: HashSet<(u64, String)>,
}

/// A Service whose ports must not be changed, because another controller manages it, or because it could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UntouchedService {
    pub namespace: String,
    /// Whether the Service is too large to be read. It is then not known what the Service asks for. Otherwise another
    /// controller manages the Service.
    pub is_unread: bool,
}

/// The groups of Services that share a load balancer. A Service's group is found quickly by the UID of the Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    /// The Services of each group, the oldest first, by the key from [`group`](super::LoadBalancers::group).
    by_key: HashMap<String, Vec<Service>>,
    /// The key of each Service's group, and the position of the Service in `by_key`, by the UID of the Service.
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
    /// `VIP` or `Proxy`. `None` for an entry with a host name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_mode: Option<String>,
}

/// Creates the groups. The map has the Services of each group, the oldest first, by
/// the key from [`group`](super::LoadBalancers::group).
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
    /// Returns the Services of the group with this key, the oldest Service first.
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
    /// Returns all known UIDs of the cluster, with the present one first.
    pub fn uids(&self) -> impl Iterator<Item = &str> {
        let all = [&self.uid].into_iter().chain(&self.former_uids);
        all.map(String::as_str).filter(|uid| !uid.is_empty())
    }

    /// Whether this is one of the cluster's UIDs.
    pub fn is_known_by(&self, uid: &str) -> bool {
        self.uids().any(|owner| owner == uid)
    }
}

impl Service {
    /// Returns the name of the Service as `namespace/name`.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// Parses the name of a protocol. An empty or unknown name becomes TCP.
impl From<String> for Protocol {
    fn from(name: String) -> Protocol {
        let known = Protocol::ALL.iter().find(|protocol| protocol.name() == name);
        known.copied().unwrap_or_default()
    }
}
