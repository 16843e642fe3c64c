//! The columns and cells of tables, which `kubectl get` shows.

mod apps;
mod signing_requests;
mod slices;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use super::age;
use crate::kubernetes::resource::Resource;

/// A column of a table. `kubectl get` shows the columns with priority 0, and `kubectl get -o wide` shows all columns.
struct Column {
    name: &'static str,
    priority: u8,
    description: &'static str,
}

const NAME: Column = Column { name: "Name", priority: 0, description: "Name of the object." };
const AGE: Column =
    Column { name: "Age", priority: 0, description: "Time since the object was created." };

const NODE: &[Column] = &[
    NAME,
    Column {
        name: "Status",
        priority: 0,
        description: "Whether it is ready, and whether it is cordoned.",
    },
    Column {
        name: "Roles",
        priority: 0,
        description: "Its labels of the form node-role.kubernetes.io/ROLE.",
    },
    AGE,
    Column { name: "Version", priority: 0, description: "Version of its kubelet." },
    Column { name: "Internal-IP", priority: 1, description: "First address of type InternalIP." },
    Column { name: "External-IP", priority: 1, description: "First address of type ExternalIP." },
    Column {
        name: "OS-Image",
        priority: 1,
        description: "Operating system, as the kubelet reports it.",
    },
    Column {
        name: "Kernel-Version",
        priority: 1,
        description: "Kernel, as the kubelet reports it.",
    },
    Column {
        name: "Container-Runtime",
        priority: 1,
        description: "Container runtime and its version.",
    },
];

const SERVICE: &[Column] = &[
    NAME,
    Column { name: "Type", priority: 0, description: "How the Service is exposed." },
    Column { name: "Cluster-IP", priority: 0, description: "First address inside the cluster." },
    Column { name: "External-IP", priority: 0, description: "Addresses outside the cluster." },
    Column { name: "Port(s)", priority: 0, description: "Ports, node ports and protocols." },
    AGE,
    Column { name: "Selector", priority: 1, description: "Labels of the pods behind it." },
];

const EVENT: &[Column] = &[
    Column { name: "Last Seen", priority: 0, description: "Time since it happened last." },
    Column { name: "Type", priority: 0, description: "Normal or Warning." },
    Column { name: "Reason", priority: 0, description: "One word for the cause." },
    Column { name: "Object", priority: 0, description: "What the event is about." },
    Column { name: "Subobject", priority: 1, description: "Part of the object that it is about." },
    Column { name: "Source", priority: 1, description: "Component that reports it." },
    Column { name: "Message", priority: 0, description: "What happened." },
    Column { name: "First Seen", priority: 1, description: "Time since it happened first." },
    Column { name: "Count", priority: 1, description: "How often it happened." },
    Column { name: "Name", priority: 1, description: "Name of the event." },
];

const NAMESPACE: &[Column] =
    &[NAME, Column { name: "Status", priority: 0, description: "Active or Terminating." }, AGE];

const LEASE: &[Column] =
    &[NAME, Column { name: "Holder", priority: 0, description: "Identity of its holder." }, AGE];

/// Returns the `columnDefinitions` of a table of this resource's objects, as JSON.
pub fn columns(resource: &Resource) -> Arc<str> {
    // The JSON of the columns by the plural name of the resource. All tables of a resource have the same columns, so
    // this JSON is made only once.
    static SHOWN: Mutex<BTreeMap<&str, Arc<str>>> = Mutex::new(BTreeMap::new());
    let mut shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let columns = || Arc::from(new_columns(resource).to_string());
    Arc::clone(shown.entry(resource.plural).or_insert_with(columns))
}

fn new_columns(resource: &Resource) -> Value {
    let columns = match resource.plural {
        "nodes" => NODE,
        "services" => SERVICE,
        "events" => EVENT,
        "namespaces" => NAMESPACE,
        "leases" => LEASE,
        "deployments" => apps::DEPLOYMENT,
        "daemonsets" => apps::DAEMON_SET,
        "endpointslices" => slices::ENDPOINT_SLICE,
        "certificatesigningrequests" => signing_requests::SIGNING_REQUEST,
        _ => &[NAME, AGE],
    };
    columns.iter().map(Column::definition).collect()
}

/// Returns the cells of one row, one for each column.
pub fn cells(resource: &Resource, object: &Value) -> Value {
    let name = &object["metadata"]["name"];
    let age = age::since(object["metadata"]["creationTimestamp"].as_str());
    match resource.plural {
        "nodes" => node(object, name, &age),
        "services" => service(object, name, &age),
        "events" => event(object, name),
        "namespaces" => json!([name, object["status"]["phase"], age]),
        "deployments" => apps::deployment(object, name, &age),
        "daemonsets" => apps::daemon_set(object, name, &age),
        "endpointslices" => slices::endpoint_slice(object, name, &age),
        "certificatesigningrequests" => signing_requests::signing_request(object, name, &age),
        "leases" => json!([name, text(&object["spec"]["holderIdentity"]), age]),
        _ => json!([name, age]),
    }
}

impl Column {
    fn definition(&self) -> Value {
        let format = if self.name == "Name" { "name" } else { "" };
        json!({"name": self.name, "type": "string", "format": format, "description": self.description,
            "priority": self.priority})
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn or<'a>(text: &'a str, otherwise: &'a str) -> &'a str {
    if text.is_empty() { otherwise } else { text }
}

fn node(node: &Value, name: &Value, age: &str) -> Value {
    let info = &node["status"]["nodeInfo"];
    let address = |kind: &str| {
        let found =
            items(&node["status"]["addresses"]).iter().find(|address| address["type"] == kind);
        or(found.map_or("", |address| text(&address["address"])), "<none>").to_string()
    };
    let known = |field: &str| or(text(&info[field]), "<unknown>").to_string();
    json!([
        name,
        node_status(node),
        node_roles(node),
        age,
        text(&info["kubeletVersion"]),
        address("InternalIP"),
        address("ExternalIP"),
        known("osImage"),
        known("kernelVersion"),
        known("containerRuntimeVersion"),
    ])
}

fn node_status(node: &Value) -> String {
    let ready =
        items(&node["status"]["conditions"]).iter().find(|condition| condition["type"] == "Ready");
    let status = match ready {
        Some(condition) if condition["status"] == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    let cordoned = if node["spec"]["unschedulable"] == true { ",SchedulingDisabled" } else { "" };
    format!("{status}{cordoned}")
}

/// Returns the roles of a node. They come from labels `node-role.kubernetes.io/ROLE` and from the value of the label
/// `kubernetes.io/role`.
fn node_roles(node: &Value) -> String {
    let mut roles: Vec<&str> = Vec::new();
    for (key, value) in node["metadata"]["labels"].as_object().into_iter().flatten() {
        match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) if !role.is_empty() => roles.push(role),
            None if key == "kubernetes.io/role" && !text(value).is_empty() => {
                roles.push(text(value))
            }
            _ => {}
        }
    }
    roles.sort_unstable();
    roles.dedup();
    or(&roles.join(","), "<none>").to_string()
}

fn service(service: &Value, name: &Value, age: &str) -> Value {
    let spec = &service["spec"];
    let ports: Vec<String> = items(&spec["ports"]).iter().map(service_port).collect();
    let selector: Vec<String> = spec["selector"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", text(value)))
        .collect();
    json!([
        name,
        text(&spec["type"]),
        or(text(&spec["clusterIPs"][0]), "<none>"),
        external_ips(service),
        or(&ports.join(","), "<none>"),
        age,
        or(&selector.join(","), "<none>"),
    ])
}

fn service_port(port: &Value) -> String {
    let protocol = text(&port["protocol"]);
    match port["nodePort"].as_i64() {
        Some(node_port) => format!("{}:{node_port}/{protocol}", port["port"]),
        None => format!("{}/{protocol}", port["port"]),
    }
}

fn external_ips(service: &Value) -> String {
    let spec = &service["spec"];
    let mut shown: Vec<&str> = Vec::new();
    let balanced = spec["type"] == "LoadBalancer";
    if spec["type"] == "ExternalName" {
        return text(&spec["externalName"]).into();
    }
    if balanced {
        let ingress = items(&service["status"]["loadBalancer"]["ingress"]);
        shown.extend(ingress.iter().map(|entry| or(text(&entry["ip"]), text(&entry["hostname"]))));
        shown.sort_unstable();
        shown.dedup();
    }
    shown.extend(items(&spec["externalIPs"]).iter().map(text));
    or(&shown.join(","), if balanced { "<pending>" } else { "<none>" }).to_string()
}

fn event(event: &Value, name: &Value) -> Value {
    let first_time = event["firstTimestamp"].as_str().or_else(|| event["eventTime"].as_str());
    let first = age::since(first_time);
    let series = &event["series"];
    let last = match (series["lastObservedTime"].as_str(), event["lastTimestamp"].as_str()) {
        (Some(time), _) | (None, Some(time)) => age::since(Some(time)),
        (None, None) => first.clone(),
    };
    let count = series["count"].as_i64().or_else(|| event["count"].as_i64()).unwrap_or(1);
    let involved = &event["involvedObject"];
    let kind = text(&involved["kind"]).to_lowercase();
    let object = match text(&involved["name"]) {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let component = or(text(&event["source"]["component"]), text(&event["reportingComponent"]));
    let host = or(text(&event["source"]["host"]), text(&event["reportingInstance"]));
    let source =
        if host.is_empty() { component.to_string() } else { format!("{component}, {host}") };
    json!([
        last,
        text(&event["type"]),
        text(&event["reason"]),
        object,
        text(&involved["fieldPath"]),
        source,
        text(&event["message"]).trim(),
        first,
        count,
        name,
    ])
}
