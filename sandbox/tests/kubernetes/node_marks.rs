//! The marks that a test sets on Nodes: conditions, taints, cordons.

use serde_json::{Value, json};

use crate::{World, world};

fn node(world: &World) -> Value {
    world.get("/api/v1/nodes/n0").1
}

/// Returns the conditions as `type=status`.
fn conditions(world: &World) -> Vec<String> {
    let node = node(world);
    let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    conditions.map(|one| format!("{}={}", text(&one["type"]), text(&one["status"]))).collect()
}

/// Returns the taints as `key=value:effect`.
fn taints(world: &World) -> Vec<String> {
    let node = node(world);
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let shown = |taint: &Value| {
        format!("{}={}:{}", text(&taint["key"]), text(&taint["value"]), text(&taint["effect"]))
    };
    taints.map(shown).collect()
}

#[test]
fn a_condition_is_added_changed_and_removed() {
    let world = world();
    world.nodes(1);
    let cluster = &world.cluster;
    let version = || node(&world)["metadata"]["resourceVersion"].clone();
    let before = version();
    cluster.set_condition("n0", "Ready", "True");
    cluster.set_condition("n0", "DrainInProgress", "True");
    assert_ne!(version(), before);
    assert_eq!(conditions(&world), ["Ready=True", "DrainInProgress=True"]);
    cluster.edit("nodes", None, "n0", |node| {
        for condition in node["status"]["conditions"].as_array_mut().into_iter().flatten() {
            condition["lastTransitionTime"] = json!("2026-01-01T00:00:00Z");
        }
    });
    cluster.set_condition("n0", "Ready", "Unknown");
    cluster.set_condition("n0", "DrainInProgress", "True");
    assert_eq!(conditions(&world), ["Ready=Unknown", "DrainInProgress=True"]);
    let shown = node(&world);
    let since = |index: usize| &shown["status"]["conditions"][index]["lastTransitionTime"];
    assert_ne!(since(0), "2026-01-01T00:00:00Z");
    assert_eq!(since(1), "2026-01-01T00:00:00Z", "the status is the same");
    cluster.remove_condition("n0", "Ready");
    cluster.remove_condition("n0", "Drained");
    assert_eq!(conditions(&world), ["DrainInProgress=True"]);
}

#[test]
fn taints_and_cordons_are_set_and_taken_back() {
    let world = world();
    world.nodes(1);
    let cluster = &world.cluster;
    let (autoscaler, mine) = ("ToBeDeletedByClusterAutoscaler", "example.com/mine");
    let unready = "node.kubernetes.io/not-ready=:NoSchedule";
    let cordon = "node.kubernetes.io/unschedulable=:NoSchedule";
    assert_eq!(taints(&world), [unready]);
    cluster.set_taint("n0", autoscaler, "1", "NoSchedule");
    cluster.set_taint("n0", mine, "", "NoSchedule");
    cluster.set_taint("n0", mine, "", "NoExecute");
    cluster.set_taint("n0", autoscaler, "2", "NoSchedule");
    let all = [
        unready,
        "example.com/mine=:NoSchedule",
        "example.com/mine=:NoExecute",
        "ToBeDeletedByClusterAutoscaler=2:NoSchedule",
    ];
    assert_eq!(taints(&world), all);
    cluster.set_cordoned("n0", true);
    cluster.remove_taint("n0", mine);
    cluster.remove_taint("n0", autoscaler);
    assert_eq!(
        (taints(&world), &node(&world)["spec"]["unschedulable"]),
        (vec![unready.into(), cordon.into()], &json!(true))
    );
    cluster.set_cordoned("n0", false);
    cluster.remove_taint("n0", "node.kubernetes.io/not-ready");
    let spec = &node(&world)["spec"];
    assert_eq!((spec.get("taints"), spec.get("unschedulable")), (None, None));
}

#[test]
#[should_panic(expected = "there is no Node n1")]
fn a_mark_needs_its_node() {
    let world = world();
    world.nodes(1);
    world.cluster.set_condition("n1", "DrainInProgress", "True");
}
