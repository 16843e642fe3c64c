//! Defaults and validation of `EndpointSlice`. They follow the reference of the API and `pkg/apis/discovery/validation`
//! of Kubernetes. No test compares the texts of the errors with those of a real API server.

use std::net::IpAddr;

use serde_json::Value;

use super::{Rules, items, items_mut, names, remove, text, validate_meta};
use crate::kubernetes::status::FieldError;

pub struct EndpointSlice;

const ADDRESS_TYPES: [&str; 3] = ["FQDN", "IPv4", "IPv6"];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
/// The largest number of endpoints that the API allows in a slice. The endpointslice controller of Kubernetes writes at
/// most 100 endpoints into each slice.
const MOST_ENDPOINTS: usize = 1000;
/// The largest number of addresses that the API allows in one endpoint.
const MOST_ADDRESSES: usize = 100;
/// The largest number of zones, and of nodes, in the hints of an endpoint.
const MOST_HINTS: usize = 8;

impl Rules for EndpointSlice {
    /// Gives each port without a name or protocol its default value. An empty list of endpoints or ports becomes null,
    /// because kube-apiserver stores an empty list and null in the same way. The old field `deprecatedTopology` cannot
    /// be written by this version of the API, and is removed.
    fn defaults(&self, object: &mut Value) {
        for port in items_mut(object, "ports") {
            default_to(port, "name", "");
            default_to(port, "protocol", "TCP");
        }
        for endpoint in items_mut(object, "endpoints") {
            remove(endpoint, "deprecatedTopology");
        }
        for field in ["endpoints", "ports"] {
            if items(&object[field]).is_empty() {
                object[field] = Value::Null;
            }
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        object["metadata"]["generation"] = 1.into();
    }

    /// Raises `metadata.generation` when the update changes the labels or anything outside of the metadata.
    fn prepare_update(&self, new: &mut Value, old: &Value) {
        let is_changed =
            ["addressType", "endpoints", "ports"].iter().any(|field| new[field] != old[field])
                || new["metadata"]["labels"] != old["metadata"]["labels"];
        let generation = old["metadata"]["generation"].as_i64().unwrap_or_default();
        new["metadata"]["generation"] = (generation + i64::from(is_changed)).into();
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = validate_meta(object, &|name| self.validate_name(name));
        errors.extend(address_type(&object["addressType"]));
        errors.extend(endpoints(object));
        errors.extend(ports(items(&object["ports"])));
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = self.validate(new);
        let field = "addressType";
        if new[field] != old[field] {
            errors.push(FieldError::invalid(field, &new[field], "field is immutable"));
        }
        errors
    }
}

fn default_to(port: &mut Value, field: &str, value: &str) {
    if port[field].is_null() {
        port[field] = value.into();
    }
}

fn address_type(kind: &Value) -> Option<FieldError> {
    match text(kind) {
        "" => Some(FieldError::required("addressType", "")),
        known if ADDRESS_TYPES.contains(&known) => None,
        _ => Some(FieldError::unsupported("addressType", kind, &ADDRESS_TYPES)),
    }
}

fn endpoints(slice: &Value) -> Vec<FieldError> {
    let endpoints = items(&slice["endpoints"]);
    if endpoints.len() > MOST_ENDPOINTS {
        return vec![FieldError::too_many("endpoints", endpoints.len(), MOST_ENDPOINTS)];
    }
    let kind = text(&slice["addressType"]);
    let endpoints = endpoints.iter().enumerate();
    endpoints.flat_map(|(index, endpoint)| one_endpoint(endpoint, kind, index)).collect()
}

fn one_endpoint(endpoint: &Value, kind: &str, index: usize) -> Vec<FieldError> {
    let at = |field: &str| format!("endpoints[{index}].{field}");
    let addresses = items(&endpoint["addresses"]);
    let mut errors = Vec::new();
    match addresses.len() {
        0 => {
            let detail = "must contain at least 1 address";
            errors.push(FieldError::required(at("addresses"), detail));
        }
        count if count > MOST_ADDRESSES => {
            errors.push(FieldError::too_many(at("addresses"), count, MOST_ADDRESSES));
        }
        _ => {}
    }
    for (place, value) in addresses.iter().enumerate() {
        let field = at(&format!("addresses[{place}]"));
        let wrong = address(text(value), kind);
        errors.extend(wrong.iter().map(|why| FieldError::invalid(field.as_str(), value, why)));
    }
    let node = &endpoint["nodeName"];
    let wrong = node.as_str().map(names::subdomain).unwrap_or_default();
    errors.extend(wrong.iter().map(|why| FieldError::invalid(at("nodeName"), node, why)));
    let host = &endpoint["hostname"];
    let wrong = host.as_str().map(names::label).unwrap_or_default();
    errors.extend(wrong.iter().map(|why| FieldError::invalid(at("hostname"), host, why)));
    for field in ["forZones", "forNodes"] {
        let count = items(&endpoint["hints"][field]).len();
        if count > MOST_HINTS {
            let field = at(&format!("hints.{field}"));
            errors.push(FieldError::too_many(field, count, MOST_HINTS));
        }
    }
    errors
}

/// Returns what is wrong with an address of an endpoint. `kind` is the field `addressType` of the EndpointSlice. Any
/// address is accepted when `kind` is not `IPv4`, `IPv6` or `FQDN`.
fn address(address: &str, kind: &str) -> Vec<String> {
    let is_wanted: fn(&IpAddr) -> bool = match kind {
        "IPv4" => IpAddr::is_ipv4,
        "IPv6" => IpAddr::is_ipv6,
        "FQDN" => return domain_name(address),
        _ => return Vec::new(),
    };
    let Ok(ip) = address.parse::<IpAddr>() else {
        return vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".into()];
    };
    if !is_wanted(&ip) {
        return vec![format!("must be an {kind} address")];
    }
    special(ip).map(|why| format!("may not be {why}")).into_iter().collect()
}

/// Returns why no pod can have this address, e.g. because it is in the loopback range. Returns `None` for an address
/// that a pod can have.
fn special(ip: IpAddr) -> Option<&'static str> {
    let (is_link_local, is_local_multicast) = match ip {
        IpAddr::V4(ip) => (ip.is_link_local(), ip.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(ip) => (ip.is_unicast_link_local(), ip.segments()[0] & 0xff0f == 0xff02),
    };
    match ip {
        _ if ip.is_unspecified() => Some("unspecified (0.0.0.0 or ::)"),
        _ if ip.is_loopback() => Some("in the loopback range (127.0.0.0/8, ::1/128)"),
        _ if is_link_local => Some("in the link-local range (169.254.0.0/16, fe80::/10)"),
        _ if is_local_multicast => {
            Some("in the link-local multicast range (224.0.0.0/24, ff02::/10)")
        }
        _ => None,
    }
}

fn domain_name(name: &str) -> Vec<String> {
    let mut wrong = names::subdomain(name);
    if wrong.is_empty() && !name.contains('.') {
        wrong.push("should be a domain with at least two segments separated by dots".into());
    }
    wrong
}

fn ports(ports: &[Value]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, port) in ports.iter().enumerate() {
        let at = |field: &str| format!("ports[{index}].{field}");
        let name = &port["name"];
        if !text(name).is_empty() {
            let wrong = names::label(text(name));
            errors.extend(wrong.iter().map(|why| FieldError::invalid(at("name"), name, why)));
        }
        if ports[..index].iter().any(|earlier| earlier["name"] == *name) {
            errors.push(FieldError::duplicate(at("name"), &name.to_string(), ""));
        }
        if !PROTOCOLS.contains(&text(&port["protocol"])) {
            let protocol = &port["protocol"];
            errors.push(FieldError::unsupported(at("protocol"), protocol, &PROTOCOLS));
        }
        let protocol = &port["appProtocol"];
        let wrong = protocol.as_str().map(names::qualified).unwrap_or_default();
        errors
            .extend(wrong.iter().map(|why| FieldError::invalid(at("appProtocol"), protocol, why)));
    }
    errors
}
