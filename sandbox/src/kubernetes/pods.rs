//! The pods of Services, as far as EndpointSlices show them. No pod is simulated. A test says where the pods of a
//! Service are, and the slices are written as the endpointslice controller of Kubernetes writes them.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::Ipv4Net;
use serde_json::{Map, Value, json};

use super::Cluster;
use super::node_ports::SERVICE_NAME;
use super::random::Random;

/// The state of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pod {
    Ready,
    /// The pod runs, but its readiness probe fails.
    NotReady,
    /// The pod is about to end, and still accepts connections.
    Terminating,
    /// The pod is about to end, and its readiness probe fails.
    TerminatingNotReady,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    IPv4,
    IPv6,
}

const SLICES: &str = "endpointslices";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const CONTROLLER: &str = "endpointslice-controller.k8s.io";
/// The largest number of endpoints that the endpointslice controller writes into a slice. It is the default of the flag
/// `--max-endpoints-per-slice` of kube-controller-manager.
const MOST_ENDPOINTS: usize = 100;
const ZONE: &str = "topology.kubernetes.io/zone";

impl Cluster {
    /// Sets the pods of a Service, each with the name of its node and its state. A pod whose node is empty is on no
    /// node. The pods become endpoints of EndpointSlices of type IPv4, which get the labels of the Service. Slices keep
    /// their names as long as they are needed, and one empty slice stays when there are no pods.
    ///
    /// # Panics
    /// Panics when there is no such Service.
    pub fn set_endpoints(&self, namespace: &str, service: &str, pods: &[(&str, Pod)]) {
        self.write_slices(namespace, service, Family::IPv4, pods);
    }

    /// Sets the pods of a dual-stack Service in its EndpointSlices of type IPv6. Such a Service also has slices of type
    /// IPv4, which [`set_endpoints`](Cluster::set_endpoints) writes and which do not change here.
    ///
    /// # Panics
    /// Panics when there is no such Service.
    pub fn set_ipv6_endpoints(&self, namespace: &str, service: &str, pods: &[(&str, Pod)]) {
        self.write_slices(namespace, service, Family::IPv6, pods);
    }

    /// Deletes all EndpointSlices of a Service that [`set_endpoints`](Cluster::set_endpoints) and
    /// [`set_ipv6_endpoints`](Cluster::set_ipv6_endpoints) have written. In Kubernetes, the garbage collector does this
    /// after the Service was deleted.
    pub fn remove_endpoints(&self, namespace: &str, service: &str) {
        for family in [Family::IPv4, Family::IPv6] {
            for slice in self.own_slices(namespace, service, family) {
                self.delete(SLICES, Some(namespace), name_of(&slice));
            }
        }
    }

    fn write_slices(&self, namespace: &str, service: &str, family: Family, pods: &[(&str, Pod)]) {
        let found = self.get("services", Some(namespace), service);
        let found = found.unwrap_or_else(|| panic!("there is no Service {namespace}/{service}"));
        let present = self.own_slices(namespace, service, family);
        let mut parts = distribute(&present, self.endpoints(&found, family, pods));
        if parts.is_empty() {
            parts.push(Vec::new());
        }
        // A slice that has no endpoints any more is deleted. When no endpoints are left in any slice of the Service,
        // its first slice stays and has an empty list of endpoints.
        let has_endpoints = parts.iter().any(|part| !part.is_empty());
        for (index, part) in parts.iter().enumerate() {
            let is_needed = if has_endpoints { !part.is_empty() } else { index == 0 };
            let slice = slice_of(&found, family, part);
            match present.get(index) {
                Some(before) if is_needed => self.update_slice(namespace, before, &slice),
                Some(before) => drop(self.delete(SLICES, Some(namespace), name_of(before))),
                None => drop(self.create(SLICES, Some(namespace), slice)),
            }
        }
    }

    /// Returns the EndpointSlices that the sandbox itself has written for a Service and that have the address type
    /// `family`. EndpointSlices that a client has created are left out. The result is sorted by name.
    fn own_slices(&self, namespace: &str, service: &str, family: Family) -> Vec<Value> {
        let is_own = |slice: &&Value| {
            let labels = &slice["metadata"]["labels"];
            labels[SERVICE_NAME] == service
                && labels[MANAGED_BY] == CONTROLLER
                && slice["addressType"] == family.name()
        };
        let all = self.list(SLICES, Some(namespace));
        all.into_iter().filter(|slice| is_own(&slice)).collect()
    }

    /// Writes the labels, endpoints and ports of `wanted` into the EndpointSlice `before`. Nothing is written when
    /// `before` already has them.
    fn update_slice(&self, namespace: &str, before: &Value, wanted: &Value) {
        let has_same_labels = before["metadata"]["labels"] == wanted["metadata"]["labels"];
        if has_same_labels
            && ["endpoints", "ports"].iter().all(|field| before[field] == wanted[field])
        {
            return;
        }
        self.edit(SLICES, Some(namespace), name_of(before), |slice| {
            slice["metadata"]["labels"] = wanted["metadata"]["labels"].clone();
            for field in ["endpoints", "ports"] {
                slice[field] = wanted[field].clone();
            }
            let generation = slice["metadata"]["generation"].as_u64().unwrap_or_default();
            slice["metadata"]["generation"] = (generation + 1).into();
        });
    }

    fn endpoints(&self, service: &Value, family: Family, pods: &[(&str, Pod)]) -> Vec<Value> {
        let mut on_node: HashMap<&str, usize> = HashMap::new();
        let mut endpoints = Vec::new();
        for (position, (node, pod)) in pods.iter().enumerate() {
            let count = on_node.entry(node).or_default();
            let (range, zone) = self.place(node);
            let address = match family {
                Family::IPv4 => ipv4(range, *count, position).to_string(),
                Family::IPv6 => ipv6(position).to_string(),
            };
            let mut endpoint = json!({
                "addresses": [address], "conditions": pod.conditions(service),
                "targetRef": reference(service, node, *count),
            });
            *count += 1;
            let optional = [("nodeName", (*node).to_owned()), ("zone", zone)];
            for (field, text) in optional.into_iter().filter(|(_, text)| !text.is_empty()) {
                endpoint[field] = text.into();
            }
            endpoints.push(endpoint);
        }
        endpoints
    }

    /// Returns the pod range and the zone of a node. A node that does not exist has neither.
    fn place(&self, node: &str) -> (Option<Ipv4Net>, String) {
        let Some(node) = self.get("nodes", None, node) else {
            return (None, String::new());
        };
        let range = node["spec"]["podCIDR"].as_str().and_then(|range| range.parse().ok());
        let zone = node["metadata"]["labels"][ZONE].as_str().unwrap_or_default();
        (range, zone.to_owned())
    }
}

impl Family {
    fn name(self) -> &'static str {
        match self {
            Family::IPv4 => "IPv4",
            Family::IPv6 => "IPv6",
        }
    }
}

impl Pod {
    /// Returns the conditions of the pod's endpoint. With `publishNotReadyAddresses`, all endpoints of the Service
    /// count as ready.
    fn conditions(self, service: &Value) -> Value {
        let is_serving = matches!(self, Pod::Ready | Pod::Terminating);
        let is_terminating = matches!(self, Pod::Terminating | Pod::TerminatingNotReady);
        let all_count = service["spec"]["publishNotReadyAddresses"] == true;
        let is_ready = all_count || is_serving && !is_terminating;
        json!({"ready": is_ready, "serving": is_serving, "terminating": is_terminating})
    }
}

/// Distributes the endpoints of a Service to its slices. An endpoint whose pod already has an endpoint in a slice stays
/// in that slice. Each of the remaining endpoints goes to the first slice that has room, or to a new slice when all are
/// full.
fn distribute(present: &[Value], endpoints: Vec<Value>) -> Vec<Vec<Value>> {
    let pod = |endpoint: &Value| endpoint["targetRef"]["name"].as_str().map(str::to_owned);
    let mut homes = HashMap::new();
    for (index, slice) in present.iter().enumerate() {
        let inside = slice["endpoints"].as_array().into_iter().flatten();
        homes.extend(inside.filter_map(pod).map(|name| (name, index)));
    }
    let home = |endpoint: &Value| pod(endpoint).and_then(|name| homes.get(&name)).copied();
    let mut places: Vec<Option<usize>> = endpoints.iter().map(home).collect();
    let mut sizes = vec![0; present.len()];
    places.iter().flatten().for_each(|place| sizes[*place] += 1);
    for place in places.iter_mut().filter(|place| place.is_none()) {
        let with_room = sizes.iter().position(|size| *size < MOST_ENDPOINTS);
        let index = with_room.unwrap_or(sizes.len());
        if index == sizes.len() {
            sizes.push(0);
        }
        sizes[index] += 1;
        *place = Some(index);
    }
    let mut parts = vec![Vec::new(); sizes.len()];
    for (place, endpoint) in places.into_iter().flatten().zip(endpoints) {
        parts[place].push(endpoint);
    }
    parts
}

fn slice_of(service: &Value, family: Family, endpoints: &[Value]) -> Value {
    let metadata = &service["metadata"];
    let name = name_of(service);
    let mut labels = metadata["labels"].as_object().cloned().unwrap_or_default();
    labels.insert(SERVICE_NAME.into(), name.into());
    labels.insert(MANAGED_BY.into(), CONTROLLER.into());
    let owner = json!({
        "apiVersion": "v1", "kind": "Service", "name": name, "uid": metadata["uid"], "controller": true,
        "blockOwnerDeletion": true,
    });
    let mut slice = json!({
        "metadata": {"generateName": format!("{name}-"), "labels": labels, "ownerReferences": [owner]},
        "addressType": family.name(), "endpoints": null, "ports": null,
    });
    // A slice without endpoints has no ports, as in a real cluster. The endpointslice controller of a real cluster
    // takes the port numbers from the pods, so it knows no numbers when there are no pods.
    if !endpoints.is_empty() {
        slice["endpoints"] = endpoints.into();
        slice["ports"] = ports_of(service);
    }
    slice
}

/// Returns the ports of the pods of a Service. When `targetPort` is a name, only the containers of a pod say which
/// number it stands for. No pods are simulated, so the number in `port` is used then.
fn ports_of(service: &Value) -> Value {
    let ports = service["spec"]["ports"].as_array().into_iter().flatten();
    let ports: Vec<Value> = ports
        .map(|port| {
            let target = &port["targetPort"];
            let number = if target.is_number() { target } else { &port["port"] };
            let name = port["name"].as_str().unwrap_or_default();
            let mut shown = Map::new();
            shown.insert("name".into(), name.into());
            shown.insert("protocol".into(), port["protocol"].clone());
            shown.insert("port".into(), number.clone());
            if port["appProtocol"].is_string() {
                shown.insert("appProtocol".into(), port["appProtocol"].clone());
            }
            Value::Object(shown)
        })
        .collect();
    if ports.is_empty() { Value::Null } else { ports.into() }
}

/// Returns the `targetRef` of an endpoint: a reference to its pod. The pod exists in no API. The same pod always gets
/// the same name and UID.
fn reference(service: &Value, node: &str, number: usize) -> Value {
    let namespace = &service["metadata"]["namespace"];
    let name = [name_of(service), node, &number.to_string()]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("-");
    let text = format!("{namespace}/{name}");
    let seed = text.bytes().fold(0, |seed: u64, byte| seed.wrapping_mul(257) ^ u64::from(byte));
    let uid = Random::new(seed).uid();
    json!({"kind": "Pod", "namespace": namespace, "name": name, "uid": uid})
}

/// Returns the address of a pod. It is in the pod range of the node. When the node has no pod range, or no free address
/// in it, the address is in the range that begins at 10.64.0.1.
fn ipv4(range: Option<Ipv4Net>, count: usize, position: usize) -> Ipv4Addr {
    const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(10, 64, 0, 1);
    // The first address of a node's range belongs to the node itself, so the first pod gets the second address.
    let in_range = range.and_then(|range| range.hosts().nth(count + 1));
    in_range.unwrap_or_else(|| {
        let offset = u32::try_from(position).unwrap_or_default();
        Ipv4Addr::from(u32::from(ELSEWHERE).saturating_add(offset))
    })
}

fn ipv6(position: usize) -> Ipv6Addr {
    const FIRST: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x10, 0x244, 0, 0, 0, 0, 2);
    Ipv6Addr::from(u128::from(FIRST).saturating_add(position as u128))
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}
