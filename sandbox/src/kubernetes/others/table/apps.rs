//! The columns and cells of tables that show Deployments and DaemonSets, e.g. how many pods exist and how many should
//! exist.

use serde_json::{Value, json};

use super::{AGE, Column, NAME, items, text};

const fn column(name: &'static str, priority: u8, description: &'static str) -> Column {
    Column { name, priority, description }
}

const READY: Column = column("Ready", 0, "Pods that are ready.");
const UP_TO_DATE: Column = column("Up-to-date", 0, "Pods of the newest template.");
const AVAILABLE: Column = column("Available", 0, "Pods that have been ready for a while.");
const CONTAINERS: Column = column("Containers", 1, "Names of the containers.");
const IMAGES: Column = column("Images", 1, "Images of the containers.");
const SELECTOR: Column = column("Selector", 1, "Labels of its pods.");

pub(super) const DEPLOYMENT: &[Column] =
    &[NAME, READY, UP_TO_DATE, AVAILABLE, AGE, CONTAINERS, IMAGES, SELECTOR];

pub(super) const DAEMON_SET: &[Column] = &[
    NAME,
    column("Desired", 0, "Nodes that should run a pod of it."),
    column("Current", 0, "Nodes that run one."),
    READY,
    UP_TO_DATE,
    AVAILABLE,
    column("Node Selector", 0, "Labels of the nodes that should run one."),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

pub(super) fn deployment(object: &Value, name: &Value, age: &str) -> Value {
    let count = |field: &str| object["status"][field].as_i64().unwrap_or_default();
    let wanted = object["spec"]["replicas"].as_i64().unwrap_or(1);
    let ready = format!("{}/{wanted}", count("readyReplicas"));
    let [containers, images, selector] = template(object);
    json!([
        name,
        ready,
        count("updatedReplicas"),
        count("availableReplicas"),
        age,
        containers,
        images,
        selector,
    ])
}

pub(super) fn daemon_set(object: &Value, name: &Value, age: &str) -> Value {
    let count = |field: &str| object["status"][field].as_i64().unwrap_or_default();
    let nodes = labels(&object["spec"]["template"]["spec"]["nodeSelector"]);
    let [containers, images, selector] = template(object);
    json!([
        name,
        count("desiredNumberScheduled"),
        count("currentNumberScheduled"),
        count("numberReady"),
        count("updatedNumberScheduled"),
        count("numberAvailable"),
        nodes,
        age,
        containers,
        images,
        selector,
    ])
}

/// Returns three cells of a workload's row: the names of its containers, their images, and the label selector.
fn template(object: &Value) -> [String; 3] {
    let containers = items(&object["spec"]["template"]["spec"]["containers"]);
    let joined = |field: &str| {
        let texts: Vec<&str> = containers.iter().map(|one| text(&one[field])).collect();
        texts.join(",")
    };
    let selector = labels(&object["spec"]["selector"]["matchLabels"]);
    [joined("name"), joined("image"), selector]
}

fn labels(map: &Value) -> String {
    let pairs = map.as_object().into_iter().flatten();
    let pairs: Vec<String> = pairs.map(|(key, value)| format!("{key}={}", text(value))).collect();
    if pairs.is_empty() { "<none>".into() } else { pairs.join(",") }
}
