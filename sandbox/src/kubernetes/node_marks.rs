//! Changes that people and other controllers make to Nodes: conditions, taints, cordons.

use serde_json::{Value, json};

use super::{Cluster, write};

/// The taint that the node controller adds to a cordoned node.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

impl Cluster {
    /// Sets a condition of a Node, such as `DrainInProgress`, to a status: `True`, `False` or `Unknown`. A condition
    /// that the Node does not have is added. A condition that the kubelet reports itself, e.g. `Ready`, keeps the
    /// status only until the kubelet's next report.
    ///
    /// # Panics
    /// Panics when there is no such Node.
    pub fn set_condition(&self, node: &str, kind: &str, status: &str) {
        let now = write::now();
        self.change_node(node, |node| {
            let conditions = list(&mut node["status"]["conditions"]);
            let known = conditions.iter().position(|condition| condition["type"] == kind);
            let before = known.map(|place| conditions.remove(place)).unwrap_or_default();
            let since = match before["status"] == status {
                true => before["lastTransitionTime"].clone(),
                false => now.as_str().into(),
            };
            conditions.insert(known.unwrap_or(conditions.len()), json!({
                "type": kind, "status": status, "lastHeartbeatTime": now, "lastTransitionTime": since,
                "reason": "Sandbox", "message": format!("{kind} was set to {status}."),
            }));
        });
    }

    /// Removes a condition of a Node. Nothing happens when the Node does not have the condition.
    ///
    /// # Panics
    /// Panics when there is no such Node.
    pub fn remove_condition(&self, node: &str, kind: &str) {
        self.change_node(node, |node| {
            list(&mut node["status"]["conditions"]).retain(|condition| condition["type"] != kind);
        });
    }

    /// Adds a taint to a Node, such as `ToBeDeletedByClusterAutoscaler` with the effect `NoSchedule`. A taint with the
    /// same key and effect is replaced. An empty value means that the taint has no value.
    ///
    /// # Panics
    /// Panics when there is no such Node.
    pub fn set_taint(&self, node: &str, key: &str, value: &str, effect: &str) {
        self.change_node(node, |node| add_taint(node, key, value, effect));
    }

    /// Removes all taints of a Node that have this key.
    ///
    /// # Panics
    /// Panics when there is no such Node.
    pub fn remove_taint(&self, node: &str, key: &str) {
        self.change_node(node, |node| drop_taint(node, key));
    }

    /// Cordons a Node, or ends the cordon. The taint that the node controller sets on a cordoned node is changed too.
    ///
    /// # Panics
    /// Panics when there is no such Node.
    pub fn set_cordoned(&self, node: &str, is_cordoned: bool) {
        self.change_node(node, |node| {
            drop_taint(node, UNSCHEDULABLE);
            if is_cordoned {
                node["spec"]["unschedulable"] = true.into();
                add_taint(node, UNSCHEDULABLE, "", "NoSchedule");
            } else {
                remove(node, "unschedulable");
            }
        });
    }

    fn change_node(&self, name: &str, edit: impl FnMut(&mut Value)) {
        assert!(self.edit("nodes", None, name, edit), "there is no Node {name}");
    }
}

fn add_taint(node: &mut Value, key: &str, value: &str, effect: &str) {
    let mut taint = json!({"key": key, "effect": effect, "timeAdded": write::now()});
    if !value.is_empty() {
        taint["value"] = value.into();
    }
    let taints = list(&mut node["spec"]["taints"]);
    taints.retain(|known| known["key"] != key || known["effect"] != effect);
    taints.push(taint);
}

fn drop_taint(node: &mut Value, key: &str) {
    let taints = list(&mut node["spec"]["taints"]);
    taints.retain(|taint| taint["key"] != key);
    if taints.is_empty() {
        remove(node, "taints");
    }
}

fn remove(node: &mut Value, field: &str) {
    if let Some(spec) = node["spec"].as_object_mut() {
        spec.remove(field);
    }
}

/// Returns the items of `value` so that they can be changed. A value that is not a list is first replaced by an empty
/// list.
fn list(value: &mut Value) -> &mut Vec<Value> {
    if !value.is_array() {
        *value = json!([]);
    }
    match value {
        Value::Array(items) => items,
        _ => unreachable!("the value was made a list above"),
    }
}
