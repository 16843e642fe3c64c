//! Defaults and validation of `Node`.

use serde_json::{Value, json};

use super::{Rules, items, names, text, validate_meta, validate_meta_update};
use crate::kubernetes::status::FieldError;

pub struct Node;

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "PreferNoSchedule"];

impl Rules for Node {
    fn defaults(&self, object: &mut Value) {
        // `podCIDR` is an older field that contains the first item of `podCIDRs`. When a client sets only one of the
        // two fields, the server sets the other.
        let spec = &mut object["spec"];
        let first = spec["podCIDRs"].get(0).cloned();
        match (text(&spec["podCIDR"]).is_empty(), first) {
            (true, Some(first)) => spec["podCIDR"] = first,
            (false, None) => spec["podCIDRs"] = json!([spec["podCIDR"]]),
            _ => {}
        }
    }

    /// Adds the taint of the admission plugin TaintNodesByCondition, which keeps pods away until the node lifecycle
    /// controller has seen the node.
    fn prepare_create(&self, object: &mut Value) {
        let taint = json!({"key": NOT_READY, "effect": "NoSchedule"});
        let taints = &mut object["spec"]["taints"];
        match taints.as_array_mut() {
            Some(taints) if taints.iter().any(|known| same_taint(known, &taint)) => {}
            Some(taints) => taints.push(taint),
            None => *taints = json!([taint]),
        }
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        new["status"] = old["status"].clone();
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = validate_meta(object, &|name| self.validate_name(name));
        errors.extend(taints(object));
        errors.extend(pod_cidrs(object));
        errors
    }

    /// Validates an update in two steps as kube-apiserver does: as if the node were new, and then as an update. An
    /// error that both steps find is in the list twice.
    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = self.validate(new);
        errors.extend(update(new, old));
        errors
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        update(new, old)
    }
}

fn update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = validate_meta_update(new, old);
    errors.extend(addresses(new));
    errors.extend(set_once(new, old, "podCIDRs", "podCIDR"));
    errors.extend(set_once(new, old, "providerID", "providerID"));
    errors.extend(taints(new));
    errors
}

/// Returns an error when an update changes a field of `spec` that already has a value, because such a field can be set
/// only once. `shown` is the field's name in the error.
fn set_once(new: &Value, old: &Value, field: &str, shown: &str) -> Option<FieldError> {
    let (new, old) = (&new["spec"][field], &old["spec"][field]);
    let detail = format!("node updates may not change {shown} except from \"\" to valid");
    (!old.is_null() && new != old).then(|| FieldError::forbidden(format!("spec.{field}"), &detail))
}

fn taints(node: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let taints = items(&node["spec"]["taints"]);
    for (index, taint) in taints.iter().enumerate() {
        let at = |field: &str| format!("metadata.taints[{index}]{field}");
        let wrong_key = names::qualified(text(&taint["key"]));
        errors.extend(
            wrong_key.iter().map(|why| FieldError::invalid(at(".key"), &taint["key"], why)),
        );
        let wrong_value = names::label_value(text(&taint["value"]));
        errors.extend(
            wrong_value.iter().map(|why| FieldError::invalid(at(".value"), &taint["value"], why)),
        );
        match text(&taint["effect"]) {
            "" => errors.push(FieldError::required(at(".effect"), "")),
            effect if !EFFECTS.contains(&effect) => {
                errors.push(FieldError::unsupported(at(".effect"), &taint["effect"], &EFFECTS));
            }
            _ => {}
        }
        if taints[..index].iter().any(|earlier| same_taint(earlier, taint)) {
            let detail = "taints must be unique by key and effect pair";
            errors.push(FieldError::duplicate(at(""), &go_taint(taint), detail));
        }
    }
    errors
}

fn same_taint(left: &Value, right: &Value) -> bool {
    left["key"] == right["key"] && left["effect"] == right["effect"]
}

/// Returns the taint as error messages show it: as JSON with the field names of Go's internal struct.
fn go_taint(taint: &Value) -> String {
    let (key, effect) = (&taint["key"], &taint["effect"]);
    let value = text(&taint["value"]);
    format!(
        r#"{{"Key":{key},"Value":{value:?},"Effect":{effect},"TimeAdded":{}}}"#,
        taint["timeAdded"]
    )
}

fn addresses(node: &Value) -> Vec<FieldError> {
    let addresses = items(&node["status"]["addresses"]);
    let repeated = addresses
        .iter()
        .enumerate()
        .filter(|(index, address)| addresses[..*index].contains(address));
    repeated
        .map(|(index, address)| {
            let shown =
                format!(r#"{{"Type":{},"Address":{}}}"#, address["type"], address["address"]);
            FieldError::duplicate(format!("status.addresses[{index}]"), &shown, "")
        })
        .collect()
}

fn pod_cidrs(node: &Value) -> Vec<FieldError> {
    let cidrs = items(&node["spec"]["podCIDRs"]).iter().enumerate();
    cidrs
        .filter(|(_, cidr)| text(cidr).parse::<ipnet::IpNet>().is_err())
        .map(|(index, cidr)| {
            let detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
            FieldError::invalid(format!("spec.podCIDRs[{index}]"), cidr, detail)
        })
        .collect()
}
