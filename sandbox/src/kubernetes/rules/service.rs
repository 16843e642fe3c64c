//! The rules of `Service`: defaults, values that depend on its type, and validation.

use serde_json::{Value, json};

use super::service_addresses as addresses;
use super::{
    Rules, items, items_mut, names, remove, service_fields, service_status, text, validate_meta,
    validate_meta_update,
};
use crate::kubernetes::status::FieldError;
use crate::kubernetes::store::Store;

pub struct Service;

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const CLIENT_IP_TIMEOUT_SECONDS: i64 = 3 * 60 * 60;
const ONLY_LOAD_BALANCER: &str = "may only be used when `type` is 'LoadBalancer'";

impl Rules for Service {
    fn defaults(&self, object: &mut Value) {
        let spec = &mut object["spec"];
        default_to(spec, "type", "ClusterIP");
        default_to(spec, "sessionAffinity", "None");
        if spec["sessionAffinity"] == "ClientIP" && spec["sessionAffinityConfig"].is_null() {
            spec["sessionAffinityConfig"] =
                json!({"clientIP": {"timeoutSeconds": CLIENT_IP_TIMEOUT_SECONDS}});
        }
        if is_external(spec) || !items(&spec["externalIPs"]).is_empty() {
            default_to(spec, "externalTrafficPolicy", "Cluster");
        }
        if spec["type"] != "ExternalName" {
            default_to(spec, "internalTrafficPolicy", "Cluster");
        }
        if spec["type"] == "LoadBalancer" && spec["allocateLoadBalancerNodePorts"].is_null() {
            spec["allocateLoadBalancerNodePorts"] = true.into();
        }
        for port in items_mut(spec, "ports") {
            default_to(port, "protocol", "TCP");
            if port["targetPort"] == 0 || port["targetPort"] == "" {
                port["targetPort"] = port["port"].clone();
            }
        }
        if spec["type"] == "LoadBalancer" {
            let ingress = items_mut(&mut object["status"]["loadBalancer"], "ingress");
            for entry in ingress.iter_mut().filter(|entry| !text(&entry["ip"]).is_empty()) {
                default_to(entry, "ipMode", "VIP");
            }
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        object["status"] = json!({"loadBalancer": {}});
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        new["status"] = old["status"].clone();
        drop_what_the_type_has_not(&mut new["spec"], &old["spec"]);
        if old["spec"]["type"] == "LoadBalancer" && new["spec"]["type"] != "LoadBalancer" {
            new["status"]["loadBalancer"] = json!({});
        }
    }

    fn allocate(&self, new: &mut Value, old: Option<&Value>, store: &Store) -> Vec<FieldError> {
        addresses::allocate(new, old, store)
    }

    fn validate_name(&self, name: &str) -> Vec<String> {
        names::label(name)
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = validate_meta(object, &|name| self.validate_name(name));
        let spec = &object["spec"];
        errors.extend(service_type(spec));
        errors.extend(ports(spec));
        errors.extend(selector(spec));
        errors.extend(load_balancer_fields(spec));
        errors.extend(policies(spec));
        errors.extend(service_fields::validate(spec));
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = validate_meta_update(new, old);
        errors.extend(immutable(&new["spec"], &old["spec"]));
        errors.extend(service_fields::validate_update(&new["spec"], &old["spec"]));
        errors.extend(self.validate(new));
        errors
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = validate_meta_update(new, old);
        errors.extend(service_status::validate(new));
        errors
    }
}

/// Whether the Service has the type `LoadBalancer` or `NodePort`. Only these types have node ports, which clients
/// outside of the cluster can reach.
pub fn is_external(spec: &Value) -> bool {
    spec["type"] == "LoadBalancer" || spec["type"] == "NodePort"
}

pub fn needs_cluster_ip(spec: &Value) -> bool {
    spec["type"] != "ExternalName"
}

pub fn needs_health_check_node_port(spec: &Value) -> bool {
    spec["type"] == "LoadBalancer" && spec["externalTrafficPolicy"] == "Local"
}

fn default_to(object: &mut Value, field: &str, value: &str) {
    if text(&object[field]).is_empty() {
        object[field] = value.into();
    }
}

/// Removes the fields that only the old type of the Service has, e.g. node ports. A field that the update itself has
/// changed stays, so that validation reports an error.
fn drop_what_the_type_has_not(new: &mut Value, old: &Value) {
    let unchanged = |new: &Value, field: &str| new[field] == old[field];
    if needs_cluster_ip(old) && !needs_cluster_ip(new) {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            if unchanged(new, field) {
                remove(new, field);
            }
        }
    }
    if is_external(old) && !is_external(new) {
        let node_ports = |spec: &Value| -> Vec<Value> {
            items(&spec["ports"]).iter().map(|port| port["nodePort"].clone()).collect()
        };
        if node_ports(new) == node_ports(old) {
            for port in items_mut(new, "ports") {
                remove(port, "nodePort");
            }
        }
        if unchanged(new, "externalTrafficPolicy") && items(&new["externalIPs"]).is_empty() {
            remove(new, "externalTrafficPolicy");
        }
    }
    if needs_health_check_node_port(old)
        && !needs_health_check_node_port(new)
        && unchanged(new, "healthCheckNodePort")
    {
        remove(new, "healthCheckNodePort");
    }
    if old["type"] == "LoadBalancer" && new["type"] != "LoadBalancer" {
        for field in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
            if unchanged(new, field) {
                remove(new, field);
            }
        }
    }
}

fn immutable(new: &Value, old: &Value) -> Vec<FieldError> {
    const DETAIL: &str = "may not change once set";
    let mut errors = Vec::new();
    let keeps_address = needs_cluster_ip(new) && needs_cluster_ip(old);
    if keeps_address && !old["clusterIPs"].is_null() && new["clusterIPs"] != old["clusterIPs"] {
        errors.push(FieldError::invalid("spec.clusterIPs[0]", &new["clusterIPs"], DETAIL));
    }
    let stays_balanced = new["type"] == "LoadBalancer" && old["type"] == "LoadBalancer";
    if stays_balanced && new["loadBalancerClass"] != old["loadBalancerClass"] {
        errors.push(FieldError::invalid(
            "spec.loadBalancerClass",
            &new["loadBalancerClass"],
            DETAIL,
        ));
    }
    errors
}

fn service_type(spec: &Value) -> Vec<FieldError> {
    let kind = text(&spec["type"]);
    let headless = spec["clusterIP"] == "None";
    let mut errors = Vec::new();
    if items(&spec["ports"]).is_empty() && !headless && kind != "ExternalName" {
        errors.push(FieldError::required("spec.ports", ""));
    }
    if is_external(spec) && headless {
        let detail = format!("may not be set to 'None' for {kind} services");
        errors.push(FieldError::invalid("spec.clusterIPs[0]", &spec["clusterIP"], &detail));
    }
    if kind == "ExternalName" && text(&spec["externalName"]).is_empty() {
        errors.push(FieldError::required("spec.externalName", ""));
    }
    if !TYPES.contains(&kind) {
        errors.push(FieldError::unsupported("spec.type", &spec["type"], &TYPES));
    }
    errors
}

fn ports(spec: &Value) -> Vec<FieldError> {
    let ports = items(&spec["ports"]);
    let mut errors = Vec::new();
    for (index, port) in ports.iter().enumerate() {
        let at = |field: &str| format!("spec.ports[{index}]{field}");
        let earlier = &ports[..index];
        match text(&port["name"]) {
            "" if ports.len() > 1 => errors.push(FieldError::required(at(".name"), "")),
            "" => {}
            name => {
                let wrong = names::label(name);
                errors.extend(
                    wrong.iter().map(|why| FieldError::invalid(at(".name"), &port["name"], why)),
                );
                if earlier.iter().any(|other| other["name"] == port["name"]) {
                    errors.push(FieldError::duplicate(at(".name"), &port["name"].to_string(), ""));
                }
            }
        }
        errors.extend(port_number(&port["port"], at(".port")));
        if !PROTOCOLS.contains(&text(&port["protocol"])) {
            errors.push(FieldError::unsupported(at(".protocol"), &port["protocol"], &PROTOCOLS));
        }
        if port["targetPort"].is_number() {
            errors.extend(port_number(&port["targetPort"], at(".targetPort")));
        }
        let same = |other: &Value, field: &str| {
            other["protocol"] == port["protocol"] && other[field] == port[field]
        };
        if earlier.iter().any(|other| same(other, "port")) {
            let shown = format!(
                r#"{{"Name":"","Protocol":{},"AppProtocol":null,"Port":{},"TargetPort":0,"NodePort":0}}"#,
                port["protocol"], port["port"]
            );
            errors.push(FieldError::duplicate(at(""), &shown, ""));
        }
        if port["nodePort"].is_null() {
            continue;
        }
        if !is_external(spec) {
            let detail = format!("may not be used when `type` is '{}'", text(&spec["type"]));
            errors.push(FieldError::forbidden(at(".nodePort"), &detail));
        } else if earlier.iter().any(|other| same(other, "nodePort")) {
            errors.push(FieldError::duplicate(at(".nodePort"), &port["nodePort"].to_string(), ""));
        }
    }
    errors
}

fn port_number(port: &Value, field: String) -> Option<FieldError> {
    let valid = port.as_i64().is_some_and(|number| (1..=65535).contains(&number));
    (!valid).then(|| FieldError::invalid(field, port, "must be between 1 and 65535, inclusive"))
}

fn selector(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, value) in spec["selector"].as_object().into_iter().flatten() {
        let wrong_key = names::qualified(key);
        errors.extend(
            wrong_key
                .iter()
                .map(|why| FieldError::invalid("spec.selector", &key.as_str().into(), why)),
        );
        let wrong_value = names::label_value(text(value));
        errors
            .extend(wrong_value.iter().map(|why| FieldError::invalid("spec.selector", value, why)));
    }
    errors
}

fn load_balancer_fields(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let balanced = spec["type"] == "LoadBalancer";
    for (index, range) in items(&spec["loadBalancerSourceRanges"]).iter().enumerate() {
        if text(range).trim().parse::<ipnet::IpNet>().is_err() {
            let detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
            errors.push(FieldError::invalid(
                format!("spec.loadBalancerSourceRanges[{index}]"),
                range,
                detail,
            ));
        }
    }
    for field in ["loadBalancerSourceRanges", "allocateLoadBalancerNodePorts", "loadBalancerClass"]
    {
        if !balanced && !spec[field].is_null() {
            errors.push(FieldError::forbidden(format!("spec.{field}"), ONLY_LOAD_BALANCER));
        }
    }
    if balanced && spec["loadBalancerClass"].is_string() {
        let wrong = names::qualified(text(&spec["loadBalancerClass"]));
        let class = &spec["loadBalancerClass"];
        errors.extend(
            wrong.iter().map(|why| FieldError::invalid("spec.loadBalancerClass", class, why)),
        );
    }
    errors
}

fn policies(spec: &Value) -> Vec<FieldError> {
    const KNOWN: [(&str, &[&str]); 4] = [
        ("sessionAffinity", &["ClientIP", "None"]),
        ("externalTrafficPolicy", &["Cluster", "Local"]),
        ("internalTrafficPolicy", &["Cluster", "Local"]),
        ("ipFamilyPolicy", &["PreferDualStack", "RequireDualStack", "SingleStack"]),
    ];
    let mut errors = Vec::new();
    for (field, supported) in KNOWN {
        let value = &spec[field];
        if !value.is_null() && !supported.contains(&text(value)) {
            errors.push(FieldError::unsupported(format!("spec.{field}"), value, supported));
        }
    }
    let external = is_external(spec) || !items(&spec["externalIPs"]).is_empty();
    if !external && !spec["externalTrafficPolicy"].is_null() {
        let detail = "may only be set for externally-accessible services";
        errors.push(FieldError::invalid(
            "spec.externalTrafficPolicy",
            &spec["externalTrafficPolicy"],
            detail,
        ));
    }
    errors
}
