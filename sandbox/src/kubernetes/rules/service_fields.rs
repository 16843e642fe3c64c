//! Checks of single fields of a Service: addresses, the health check's port, session affinity.

use std::net::IpAddr;

use serde_json::Value;

use super::service::{needs_cluster_ip, needs_health_check_node_port};
use super::{items, text};
use crate::kubernetes::status::FieldError;

const MAX_SESSION_SECONDS: i64 = 24 * 60 * 60;
const HEALTH_CHECK: &str = "spec.healthCheckNodePort";

pub fn validate(spec: &Value) -> Vec<FieldError> {
    let mut errors = addresses(spec);
    errors.extend(session_affinity(spec));
    let port = &spec["healthCheckNodePort"];
    if !port.is_null() && !needs_health_check_node_port(spec) {
        let detail =
            "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        errors.push(FieldError::invalid(HEALTH_CHECK, port, detail));
    }
    errors
}

pub fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let stays = needs_health_check_node_port(new) && needs_health_check_node_port(old);
    if stays && new["healthCheckNodePort"] != old["healthCheckNodePort"] {
        return vec![FieldError::forbidden(HEALTH_CHECK, "field is immutable")];
    }
    Vec::new()
}

fn addresses(spec: &Value) -> Vec<FieldError> {
    const DETAIL: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
    let mut errors = Vec::new();
    let is_address = |value: &Value| text(value).parse::<IpAddr>().is_ok();
    if needs_cluster_ip(spec) {
        for (index, ip) in items(&spec["clusterIPs"]).iter().enumerate() {
            if *ip != "None" && !is_address(ip) {
                let field = format!("spec.clusterIPs[{index}]");
                errors.push(FieldError::invalid(field, ip, DETAIL));
            }
        }
    }
    for (index, ip) in items(&spec["externalIPs"]).iter().enumerate() {
        if !is_address(ip) {
            let field = format!("spec.externalIPs[{index}]");
            errors.push(FieldError::invalid(field, ip, DETAIL));
        }
    }
    errors
}

fn session_affinity(spec: &Value) -> Vec<FieldError> {
    let config = &spec["sessionAffinityConfig"];
    if config.is_null() {
        return Vec::new();
    }
    if spec["sessionAffinity"] != "ClientIP" {
        let detail = "must not be set when session affinity is None";
        return vec![FieldError::forbidden("spec.sessionAffinityConfig", detail)];
    }
    let seconds = &config["clientIP"]["timeoutSeconds"];
    let field = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
    match seconds.as_i64() {
        Some(number) if (1..=MAX_SESSION_SECONDS).contains(&number) => Vec::new(),
        Some(_) => {
            let detail = format!("must be greater than 0 and less than {MAX_SESSION_SECONDS}");
            vec![FieldError::invalid(field, seconds, &detail)]
        }
        None => vec![FieldError::required(field, "")],
    }
}
