//! Validation of `status.loadBalancer` of a Service, which a load balancer controller writes.

use serde_json::Value;

use super::{items, names, text};
use crate::kubernetes::status::FieldError;

pub fn validate(service: &Value) -> Vec<FieldError> {
    let ingress = items(&service["status"]["loadBalancer"]["ingress"]);
    let mut errors = Vec::new();
    if !ingress.is_empty() && service["spec"]["type"] != "LoadBalancer" {
        let detail = "may only be used when `spec.type` is \"LoadBalancer\"";
        errors.push(FieldError::forbidden("status.loadBalancer.ingress", detail));
    }
    for (index, entry) in ingress.iter().enumerate() {
        let at = |field: &str| format!("status.loadBalancer.ingress[{index}].{field}");
        let is_address = |field: &str| text(&entry[field]).parse::<std::net::IpAddr>().is_ok();
        let given = |field: &str| !text(&entry[field]).is_empty();
        if given("ip") && !is_address("ip") {
            let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            errors.push(FieldError::invalid(at("ip"), &entry["ip"], detail));
        }
        match (given("ip"), text(&entry["ipMode"])) {
            (false, mode) if !mode.is_empty() => {
                let detail = "may not be specified when `ip` is not set";
                errors.push(FieldError::forbidden(at("ipMode"), detail));
            }
            (true, "") => errors
                .push(FieldError::required(at("ipMode"), "must be specified when `ip` is set")),
            (true, mode) if !["VIP", "Proxy"].contains(&mode) => {
                errors.push(FieldError::unsupported(
                    at("ipMode"),
                    &entry["ipMode"],
                    &["Proxy", "VIP"],
                ));
            }
            _ => {}
        }
        if given("hostname") {
            let wrong = names::subdomain(text(&entry["hostname"]));
            errors.extend(
                wrong
                    .iter()
                    .map(|why| FieldError::invalid(at("hostname"), &entry["hostname"], why)),
            );
            if is_address("hostname") {
                let detail = "must be a DNS name, not an IP address";
                errors.push(FieldError::invalid(at("hostname"), &entry["hostname"], detail));
            }
        }
    }
    errors
}
