//! The ports on which kube-proxy listens on the nodes: the node ports of Services, and their health check node ports.
//!
//! kube-proxy sends connections to endpoints that are ready. When no endpoint is ready, it sends them to endpoints that
//! terminate and still serve (KEP-1669). A health check node port only counts endpoints that are ready.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value;

use super::row;
use super::store::{Object, Store};

/// The label of an EndpointSlice that contains the name of its Service.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// A port on which kube-proxy listens on every node, and the nodes with endpoints to which kube-proxy sends the
/// connections.
#[derive(Debug, Default)]
pub struct NodePort {
    purpose: Purpose,
    /// The names of the nodes on which there is an endpoint that is ready. The set contains an empty name when a ready
    /// endpoint is on no node.
    ready: HashSet<String>,
    /// The nodes with an endpoint whose pod is terminating but still accepts connections. The name is empty for an
    /// endpoint without a node.
    draining: HashSet<String>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Purpose {
    /// Connections to the port go to the endpoints on all nodes, as with `externalTrafficPolicy: Cluster`.
    #[default]
    Cluster,
    /// Connections to the port go only to the endpoints on the same node, as with `externalTrafficPolicy: Local`.
    Local,
    /// The port answers the health checks of load balancers by HTTP.
    HealthCheck,
}

/// What happens when a client connects to a port of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortAnswer {
    /// kube-proxy passes the connection on to a pod of the Service, which accepts it.
    Pod,
    /// kube-proxy refuses the connection, because the Service has no endpoint at all.
    Refused,
    /// kube-proxy drops the packets. The Service has `externalTrafficPolicy: Local`, and it has endpoints on other
    /// nodes but none on the node to which the client connects.
    Dropped,
    /// The port is a health check node port, on which kube-proxy answers each HTTP request with this status.
    Status(u16),
}

/// All ports on which kube-proxy listens for Services that have an EndpointSlice of type IPv4.
#[derive(Default)]
pub struct NodePorts {
    /// The revision of the last write of a Service, and the revision of the last write of an EndpointSlice. `ports` was
    /// computed after these writes, and is computed again when a later write has changed one of the two revisions.
    revisions: [u64; 2],
    ports: HashMap<u16, Arc<NodePort>>,
}

/// The EndpointSlices by the namespace and the name of their Service.
type Slices<'a> = HashMap<(&'a str, &'a str), Vec<&'a Value>>;

impl NodePort {
    /// Returns what happens when a client connects to this port on the node `node`.
    pub fn answer(&self, node: &str) -> PortAnswer {
        match self.purpose {
            Purpose::HealthCheck if self.ready.contains(node) => PortAnswer::Status(200),
            Purpose::HealthCheck => PortAnswer::Status(503),
            _ if self.ready.is_empty() && self.draining.is_empty() => PortAnswer::Refused,
            Purpose::Cluster => PortAnswer::Pod,
            Purpose::Local if self.ready.contains(node) || self.draining.contains(node) => {
                PortAnswer::Pod
            }
            Purpose::Local => PortAnswer::Dropped,
        }
    }

    fn new<'a>(purpose: Purpose, slices: impl Iterator<Item = &'a Value>) -> NodePort {
        let mut port = NodePort { purpose, ..NodePort::default() };
        for endpoint in slices.flat_map(|slice| items(&slice["endpoints"])) {
            let condition = |name: &str| endpoint["conditions"][name].as_bool();
            // kube-proxy treats a missing condition `ready` or `serving` as true, and a missing condition `terminating`
            // as false.
            let is_ready = condition("ready").unwrap_or(true);
            let is_serving = condition("serving").unwrap_or(true);
            let is_terminating = condition("terminating").unwrap_or(false);
            let node = text(&endpoint["nodeName"]).to_owned();
            if is_ready {
                port.ready.insert(node);
            } else if is_serving && is_terminating {
                port.draining.insert(node);
            }
        }
        port
    }
}

impl NodePorts {
    /// Returns the node port or health check node port with this number, and the endpoints behind it. `None` means that
    /// no Service has this port, or that its Service has no EndpointSlice of type IPv4.
    pub fn find(&mut self, store: &Store, number: u16) -> Option<Arc<NodePort>> {
        let [services, slices] = ["services", "endpointslices"].map(row);
        let revisions = [services, slices].map(|resource| store.changed(resource));
        if self.revisions != revisions {
            let ports = listening(&store.list(services, ""), &store.list(slices, ""));
            *self = NodePorts { revisions, ports };
        }
        self.ports.get(&number).cloned()
    }
}

fn listening(services: &[Arc<Object>], slices: &[Arc<Object>]) -> HashMap<u16, Arc<NodePort>> {
    let mut by_service = Slices::new();
    for slice in slices.iter().filter(|slice| slice.value["addressType"] == "IPv4") {
        let service = text(&slice.value["metadata"]["labels"][SERVICE_NAME]);
        by_service.entry((slice.metadata("namespace"), service)).or_default().push(&slice.value);
    }
    let mut ports = HashMap::new();
    for service in services {
        let name = (service.metadata("namespace"), service.metadata("name"));
        if let Some(slices) = by_service.get(&name) {
            ports.extend(ports_of(&service.value["spec"], slices));
        }
    }
    ports
}

/// Returns the ports of a Service. A load balancer only uses TCP, so ports of other protocols are left out.
fn ports_of(spec: &Value, slices: &[&Value]) -> Vec<(u16, Arc<NodePort>)> {
    let is_local = spec["externalTrafficPolicy"] == "Local";
    let purpose = if is_local { Purpose::Local } else { Purpose::Cluster };
    let mut ports = Vec::new();
    for port in items(&spec["ports"]).iter().filter(|port| port["protocol"] == "TCP") {
        if let Some(number) = number(&port["nodePort"]) {
            let slices =
                slices.iter().copied().filter(|slice| has_port(slice, text(&port["name"])));
            ports.push((number, NodePort::new(purpose, slices)));
        }
    }
    if let Some(number) = number(&spec["healthCheckNodePort"]) {
        ports.push((number, NodePort::new(Purpose::HealthCheck, slices.iter().copied())));
    }
    ports.into_iter().map(|(number, port)| (number, Arc::new(port))).collect()
}

/// Whether the endpoints of the slice have a TCP port with this name, which is the name of a port of the Service.
/// kube-proxy ignores a port without a number.
fn has_port(slice: &Value, name: &str) -> bool {
    items(&slice["ports"]).iter().any(|port| {
        text(&port["name"]) == name && port["protocol"] == "TCP" && port["port"].is_number()
    })
}

fn number(port: &Value) -> Option<u16> {
    port.as_u64().and_then(|number| u16::try_from(number).ok())
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
