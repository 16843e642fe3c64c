//! Makes a simulated Node as large as a real one. It adds labels and annotations as other programs set them, managed
//! fields, and images.

use serde_json::{Map, Value, json};

/// How many labels a Node has at least after [`pad`]. The function adds labels up to this number, as other programs do
/// in real clusters. In the same way, it adds annotations up to the number [`ANNOTATIONS`].
const LABELS: usize = 12;
const ANNOTATIONS: usize = 6;

/// Adds labels, annotations and managed fields to a Node, and then container images to its `status.images`, until its
/// JSON has at least this many bytes. With 0 the Node stays as it is. A Node of 12,000 bytes has 45 images.
pub(super) fn pad(node: &mut Value, bytes: usize) {
    if bytes == 0 {
        return;
    }
    let metadata = &mut node["metadata"];
    fill(&mut metadata["labels"], LABELS, |n| {
        (format!("node.example/label-{n}"), format!("value-{n}"))
    });
    fill(&mut metadata["annotations"], ANNOTATIONS, |n| {
        let value = format!(r#"{{"address":"00:16:3e:4a:{n:02x}:01","mtu":1450}}"#);
        (format!("network.example/annotation-{n}"), value)
    });
    node["metadata"]["managedFields"] = managed_fields(node);

    let mut size = node.to_string().len();
    let mut images = Vec::new();
    while size < bytes {
        let number = images.len();
        let name = format!("registry.example/team/image-{number}");
        let names = [format!("{name}@sha256:{number:064x}"), format!("{name}:v1.2.3")];
        let image = json!({"names": names, "sizeBytes": 10_000_000 + number});
        size += image.to_string().len() + 1;
        images.push(image);
    }
    if !images.is_empty() {
        node["status"]["images"] = images.into();
    }
}

fn fill(map: &mut Value, most: usize, entry: impl Fn(usize) -> (String, String)) {
    if let Some(map) = map.as_object_mut() {
        for (key, value) in (map.len()..most).map(entry) {
            map.insert(key, value.into());
        }
    }
}

/// Returns the field `managedFields` that an API server stores for the changes of the kubelet and the node controllers.
fn managed_fields(node: &Value) -> Value {
    let metadata = &node["metadata"];
    let status = &node["status"];
    let conditions: Map<String, Value> = ["DiskPressure", "MemoryPressure", "PIDPressure", "Ready"]
        .map(|kind| (format!("k:{{\"type\":\"{kind}\"}}"), condition_fields()))
        .into_iter()
        .collect();
    let mut reported = fields_of(status);
    reported["f:conditions"] = conditions.into();
    let entry = |manager: &str, subresource: &str, fields: Value| {
        let mut entry = json!({
            "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields, "manager": manager,
            "operation": "Update", "time": "2026-11-20T10:00:00Z",
        });
        if !subresource.is_empty() {
            entry["subresource"] = subresource.into();
        }
        entry
    };
    let own = json!({
        "f:annotations": fields_of(&metadata["annotations"]), "f:labels": fields_of(&metadata["labels"]),
    });
    let ranges = json!({"f:podCIDR": {}, "f:podCIDRs": {".": {}}, "f:taints": {}});
    json!([
        entry("kubelet", "", json!({"f:metadata": own})),
        entry("kube-controller-manager", "", json!({"f:spec": ranges})),
        entry("kubelet", "status", json!({"f:status": reported})),
    ])
}

/// Returns the names of the fields on the first two levels of `value`, in the format of `managedFields`: the field
/// `name` becomes `"f:name": {}`.
fn fields_of(value: &Value) -> Value {
    let inner = |value: &Value| match value {
        Value::Object(map) => map.keys().map(|key| (format!("f:{key}"), json!({}))).collect(),
        _ => Map::new(),
    };
    let fields = value.as_object().into_iter().flatten();
    fields.map(|(key, value)| (format!("f:{key}"), Value::Object(inner(value)))).collect()
}

fn condition_fields() -> Value {
    json!({
        ".": {}, "f:lastHeartbeatTime": {}, "f:lastTransitionTime": {}, "f:message": {}, "f:reason": {},
        "f:status": {}, "f:type": {},
    })
}
