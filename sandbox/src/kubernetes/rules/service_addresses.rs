//! The allocation of cluster IPs and node ports. Two Services cannot have the same cluster IP, or the same node port
//! for the same protocol.
//!
//! The cluster has only IPv4 addresses, like the real cluster whose recorded answers the tests compare with those of
//! the sandbox. An address or port is in use while a Service contains it. There is no other record of what is in use.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use serde_json::{Value, json};

use super::service::{is_external, needs_cluster_ip, needs_health_check_node_port};
use super::{items, items_mut, text};
use crate::kubernetes::resource;
use crate::kubernetes::status::FieldError;
use crate::kubernetes::store::Store;

/// The first and the last usable address of 10.96.0.0/16. The program `kind` uses this range for Services by default.
/// The Service `kubernetes` has the first address.
const CLUSTER_IPS: (u32, u32) = (0x0A60_0001, 0x0A60_FFFE);
const NODE_PORTS: (i64, i64) = (30000, 32767);
const HEADLESS: &str = "None";

pub fn allocate(new: &mut Value, old: Option<&Value>, store: &Store) -> Vec<FieldError> {
    if let Some(old) = old {
        sync_cluster_ips(&mut new["spec"], &old["spec"]);
        keep_allocated(&mut new["spec"], &old["spec"]);
    }
    let taken = Taken::by_others(new, store);
    let seed = text(&new["metadata"]["uid"])
        .bytes()
        .fold(0_u32, |sum, byte| sum.wrapping_mul(31) + u32::from(byte));
    let mut errors = cluster_ip(&mut new["spec"], &taken, seed);
    errors.extend(node_ports(&mut new["spec"], old.map(|old| &old["spec"]), &taken, seed));
    errors
}

/// The addresses and ports that are in use by all Services except the one that is being written.
struct Taken {
    cluster_ips: BTreeSet<String>,
    /// The node ports of other Services, each with its protocol. A `healthCheckNodePort` counts as a TCP port.
    node_ports: BTreeSet<(i64, String)>,
}

impl Taken {
    fn by_others(new: &Value, store: &Store) -> Taken {
        let mut taken = Taken { cluster_ips: BTreeSet::new(), node_ports: BTreeSet::new() };
        let Some(services) = resource::named("services") else {
            return taken;
        };
        for service in store.list(services, "") {
            if service.value["metadata"]["uid"] == new["metadata"]["uid"] {
                continue;
            }
            let spec = &service.value["spec"];
            taken
                .cluster_ips
                .extend(items(&spec["clusterIPs"]).iter().map(|ip| text(ip).to_string()));
            for port in items(&spec["ports"]) {
                if let Some(number) = port["nodePort"].as_i64() {
                    taken.node_ports.insert((number, text(&port["protocol"]).into()));
                }
            }
            if let Some(number) = spec["healthCheckNodePort"].as_i64() {
                taken.node_ports.insert((number, "TCP".into()));
            }
        }
        taken
    }

    fn has_port(&self, number: i64, protocol: &str) -> bool {
        self.node_ports.contains(&(number, protocol.to_string()))
    }

    /// Returns a node port that no other Service has for any protocol and that is not in `ours`, the node ports of this
    /// Service. Returns `None` when there is no such port. `seed` decides at which port the search begins.
    fn free_port(&self, ours: &[i64], seed: u32) -> Option<i64> {
        let count = NODE_PORTS.1 - NODE_PORTS.0 + 1;
        let candidates = (0..count).map(|step| NODE_PORTS.0 + (i64::from(seed) + step) % count);
        candidates.into_iter().find(|number| {
            !ours.contains(number)
                && !["TCP", "UDP", "SCTP"].iter().any(|protocol| self.has_port(*number, protocol))
        })
    }

    fn free_ip(&self, seed: u32) -> Option<String> {
        let (first, last) = CLUSTER_IPS;
        let count = last - first + 1;
        let candidates = (0..count)
            .map(|step| Ipv4Addr::from(first + (seed % count + step) % count).to_string());
        candidates.into_iter().find(|ip| !self.cluster_ips.contains(ip))
    }
}

/// Sets `clusterIPs` from `clusterIP` when an update changes only `clusterIP`, which is the older name of
/// `clusterIPs[0]`.
fn sync_cluster_ips(new: &mut Value, old: &Value) {
    if new["clusterIP"] != old["clusterIP"] && new["clusterIPs"] == old["clusterIPs"] {
        match text(&new["clusterIP"]) {
            "" => super::remove(new, "clusterIPs"),
            ip => new["clusterIPs"] = json!([ip]),
        }
    }
}

/// Copies the allocated addresses and ports from `old` when an update does not contain them. This happens when a client
/// sends its original manifest in a PUT.
fn keep_allocated(new: &mut Value, old: &Value) {
    if needs_cluster_ip(new) && needs_cluster_ip(old) {
        for field in ["clusterIP", "clusterIPs"] {
            if new[field].is_null() && !old[field].is_null() {
                new[field] = old[field].clone();
            }
        }
    }
    if is_external(new) && is_external(old) {
        for port in items_mut(new, "ports").iter_mut().filter(|port| port["nodePort"].is_null()) {
            let same = |known: &&Value| {
                known["port"] == port["port"] && known["protocol"] == port["protocol"]
            };
            if let Some(known) =
                items(&old["ports"]).iter().find(same).filter(|known| !known["nodePort"].is_null())
            {
                port["nodePort"] = known["nodePort"].clone();
            }
        }
    }
    let checked = needs_health_check_node_port(new) && needs_health_check_node_port(old);
    if checked && new["healthCheckNodePort"].is_null() && !old["healthCheckNodePort"].is_null() {
        new["healthCheckNodePort"] = old["healthCheckNodePort"].clone();
    }
}

fn cluster_ip(spec: &mut Value, taken: &Taken, seed: u32) -> Vec<FieldError> {
    if !needs_cluster_ip(spec) {
        return Vec::new();
    }
    let mut errors = Vec::new();
    if text(&spec["clusterIP"]).is_empty() {
        let first = spec["clusterIPs"].get(0).cloned().filter(Value::is_string);
        match first.or_else(|| taken.free_ip(seed).map(Value::from)) {
            Some(ip) => spec["clusterIP"] = ip,
            None => errors.push(FieldError::invalid(
                "spec.clusterIPs[0]",
                &Value::Null,
                "range is full",
            )),
        }
    }
    let ip = text(&spec["clusterIP"]).to_string();
    if ip != HEADLESS && is_outside(&ip) {
        let detail = format!(
            "failed to allocate IP {ip}: the provided IP is not in the valid range. The range of valid IPs is 10.96.0.0/16"
        );
        errors.push(FieldError::invalid("spec.clusterIPs", &json!([ip]), &detail));
    }
    if ip != HEADLESS && taken.cluster_ips.contains(&ip) {
        let detail =
            "failed to allocate IP ".to_string() + &ip + ": provided IP is already allocated";
        errors.push(FieldError::invalid("spec.clusterIPs", &json!([ip]), &detail));
    }
    if items(&spec["clusterIPs"]).is_empty() {
        spec["clusterIPs"] = json!([ip]);
    }
    if items(&spec["ipFamilies"]).is_empty() {
        spec["ipFamilies"] = json!(["IPv4"]);
    }
    if spec["ipFamilyPolicy"].is_null() {
        spec["ipFamilyPolicy"] = "SingleStack".into();
    }
    errors
}

/// Whether the text is an IPv4 address outside of [`CLUSTER_IPS`]. Returns false for an IPv6 address, and for text that
/// is no IP address. The later validation of the Service reports text that is no IP address.
fn is_outside(ip: &str) -> bool {
    let (first, last) = CLUSTER_IPS;
    ip.parse::<Ipv4Addr>().is_ok_and(|ip| !(first..=last).contains(&u32::from(ip)))
}

fn node_ports(spec: &mut Value, old: Option<&Value>, taken: &Taken, seed: u32) -> Vec<FieldError> {
    if !is_external(spec) {
        return Vec::new();
    }
    let mut errors = Vec::new();
    let wanted = spec["type"] == "NodePort" || spec["allocateLoadBalancerNodePorts"] != false;
    let mut ours: Vec<i64> =
        items(&spec["ports"]).iter().filter_map(|port| port["nodePort"].as_i64()).collect();
    // When a Service has the same port number for TCP and for UDP, both get the same node port.
    let mut by_port: BTreeMap<i64, i64> = BTreeMap::new();
    for (index, port) in items_mut(spec, "ports").iter_mut().enumerate() {
        let protocol = text(&port["protocol"]).to_string();
        if let Some(number) = port["nodePort"].as_i64() {
            if let Some(detail) = refused(number, &protocol, old, taken) {
                errors.push(FieldError::invalid(
                    format!("spec.ports[{index}].nodePort"),
                    &number.into(),
                    detail,
                ));
            }
            by_port.insert(port["port"].as_i64().unwrap_or_default(), number);
            continue;
        }
        if !wanted {
            continue;
        }
        let shared = port["port"].as_i64().and_then(|number| by_port.get(&number).copied());
        match shared
            .filter(|number| !taken.has_port(*number, &protocol))
            .or_else(|| taken.free_port(&ours, seed))
        {
            Some(number) => {
                port["nodePort"] = number.into();
                ours.push(number);
                by_port.insert(port["port"].as_i64().unwrap_or_default(), number);
            }
            None => errors.push(FieldError::invalid(
                format!("spec.ports[{index}].nodePort"),
                &0.into(),
                "failed to allocate a nodePort: range is full",
            )),
        }
    }
    errors.extend(health_check_port(spec, old, taken, &ours, seed));
    errors
}

/// Allocates the `healthCheckNodePort` of a Service. Returns an error when the requested port is not available. The
/// client then gets a 422, as for other node ports, while kube-apiserver sends the same message with a 500.
fn health_check_port(
    spec: &mut Value,
    old: Option<&Value>,
    taken: &Taken,
    ours: &[i64],
    seed: u32,
) -> Option<FieldError> {
    if !needs_health_check_node_port(spec) {
        return None;
    }
    let Some(asked) = spec["healthCheckNodePort"].as_i64() else {
        spec["healthCheckNodePort"] = taken.free_port(ours, seed)?.into();
        return None;
    };
    // The Service had a health check port before, so nothing is allocated. Validation reports an error when the update
    // changes that port.
    if old.is_some_and(needs_health_check_node_port) {
        return None;
    }
    let why = match ours.contains(&asked) {
        true => "provided port is already allocated",
        false => refused(asked, "TCP", old, taken)?,
    };
    let detail = format!("failed to allocate requested HealthCheck NodePort {asked}: {why}");
    Some(FieldError::invalid("spec.healthCheckNodePort", &asked.into(), &detail))
}

/// Returns why a requested node port is not available, or `None` when it is available. A node port that the Service
/// already has is always available.
fn refused(
    number: i64,
    protocol: &str,
    old: Option<&Value>,
    taken: &Taken,
) -> Option<&'static str> {
    let held =
        old.is_some_and(|old| items(&old["ports"]).iter().any(|port| port["nodePort"] == number));
    if held {
        return None;
    }
    if !(NODE_PORTS.0..=NODE_PORTS.1).contains(&number) {
        return Some(
            "provided port is not in the valid range. The range of valid ports is 30000-32767",
        );
    }
    taken.has_port(number, protocol).then_some("provided port is already allocated")
}
