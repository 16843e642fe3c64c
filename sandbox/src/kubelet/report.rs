//! Changes a Node's conditions and taints, when its kubelet reports and when the kubelet has been silent for too long.

use serde_json::{Map, Value, json};

use crate::time;

/// The taint of a Node that is not ready. The API server sets it on a new Node, and the node controller sets it while
/// the kubelet reports that the Node is not ready.
const NOT_READY_TAINT: &str = "node.kubernetes.io/not-ready";
/// The taint that the node controller sets while a kubelet does not report.
const UNREACHABLE_TAINT: &str = "node.kubernetes.io/unreachable";

/// The conditions that a healthy kubelet reports, each with type, status, reason and message.
const CONDITIONS: [[&str; 4]; 4] = [
    [
        "MemoryPressure",
        "False",
        "KubeletHasSufficientMemory",
        "kubelet has sufficient memory available",
    ],
    ["DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"],
    ["PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"],
    ["Ready", "True", "KubeletReady", "kubelet is posting ready status"],
];

/// Changes a Node as the kubelet and the node controller do when the node is healthy: all conditions become healthy,
/// and the taints `not-ready` and `unreachable` are removed.
pub(super) fn ready(node: &mut Value) {
    for [kind, status, reason, message] in CONDITIONS {
        set_condition(node, kind, status, reason, message, true);
    }
    set_taints(node, &[NOT_READY_TAINT, UNREACHABLE_TAINT], &[]);
}

/// Makes the changes that the node controller makes in a Node whose kubelet has not reported for the grace period. The
/// conditions become `Unknown`, and the taint `unreachable` is added.
pub(super) fn unknown(node: &mut Value) {
    for [kind, ..] in CONDITIONS {
        let message = "Kubelet stopped posting node status.";
        set_condition(node, kind, "Unknown", "NodeStatusUnknown", message, false);
    }
    let added = ["NoSchedule", "NoExecute"]
        .map(|effect| json!({"key": UNREACHABLE_TAINT, "effect": effect, "timeAdded": now()}));
    set_taints(node, &[NOT_READY_TAINT, UNREACHABLE_TAINT], &added);
}

fn set_condition(
    node: &mut Value,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
    heartbeat: bool,
) {
    let conditions = array(node, "status", "conditions");
    let place = match conditions.iter().position(|condition| condition["type"] == kind) {
        Some(place) => place,
        None => {
            conditions.push(json!({"type": kind, "lastHeartbeatTime": now()}));
            conditions.len() - 1
        }
    };
    let Some(condition) = conditions.get_mut(place).and_then(Value::as_object_mut) else {
        return;
    };
    let changed = condition.get("status").is_none_or(|old| old != status);
    let mut set = |field: &str, value: String| condition.insert(field.to_owned(), value.into());
    set("status", status.into());
    set("reason", reason.into());
    set("message", message.into());
    if heartbeat {
        set("lastHeartbeatTime", now());
    }
    if changed {
        set("lastTransitionTime", now());
    }
}

fn set_taints(node: &mut Value, removed: &[&str], added: &[Value]) {
    let taints = array(node, "spec", "taints");
    taints.retain(|taint| !taint["key"].as_str().is_some_and(|key| removed.contains(&key)));
    taints.extend_from_slice(added);
    if taints.is_empty()
        && let Some(spec) = node["spec"].as_object_mut()
    {
        spec.remove("taints");
    }
}

/// Returns the array at `node.part.field`. Creates an empty array when there is none.
fn array<'a>(node: &'a mut Value, part: &str, field: &str) -> &'a mut Vec<Value> {
    fn at<'a>(value: &'a mut Value, key: &str, empty: Value) -> &'a mut Value {
        if !value.is_object() {
            *value = Value::Object(Map::new());
        }
        let slot = &mut value[key];
        if slot.is_null() {
            *slot = empty;
        }
        slot
    }
    let slot = at(at(node, part, json!({})), field, json!([]));
    if !slot.is_array() {
        *slot = json!([]);
    }
    match slot {
        Value::Array(array) => array,
        _ => unreachable!("made an array above"),
    }
}

fn now() -> String {
    // Timestamps of the Kubernetes API have whole seconds.
    time::timestamp().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::UNINITIALIZED_TAINT;

    fn status_of(node: &Value, kind: &str) -> Vec<String> {
        let conditions = node["status"]["conditions"].as_array().unwrap().iter();
        let condition = conditions.filter(|condition| condition["type"] == kind);
        condition.map(|condition| condition["status"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn reports_change_their_own_conditions_and_taints_only() {
        let mut node =
            json!({"spec": {"taints": [{"key": UNINITIALIZED_TAINT, "effect": "NoSchedule"}]}});
        let kept = json!({"type": "NetworkUnavailable", "status": "False"});
        array(&mut node, "status", "conditions").push(kept.clone());
        array(&mut node, "spec", "taints")
            .push(json!({"key": NOT_READY_TAINT, "effect": "NoSchedule"}));
        let keys = |node: &Value| -> Vec<String> {
            let taints = node["spec"]["taints"].as_array().unwrap().iter();
            taints.map(|taint| taint["key"].as_str().unwrap().to_owned()).collect()
        };

        ready(&mut node);
        assert_eq!(
            (status_of(&node, "Ready"), keys(&node)),
            (vec!["True".into()], vec![UNINITIALIZED_TAINT.into()])
        );
        unknown(&mut node);
        unknown(&mut node);
        assert_eq!(status_of(&node, "Ready"), ["Unknown"]);
        assert_eq!(keys(&node), [UNINITIALIZED_TAINT, UNREACHABLE_TAINT, UNREACHABLE_TAINT]);
        ready(&mut node);
        assert_eq!(
            (status_of(&node, "Ready"), keys(&node)),
            (vec!["True".into()], vec![UNINITIALIZED_TAINT.into()])
        );
        assert_eq!(node["status"]["conditions"][0], kept);
    }
}
