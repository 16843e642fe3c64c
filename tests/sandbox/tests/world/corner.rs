//! Corners of a cluster that is not the sandbox's own; here it is another sandbox's, which answers like a real one.

use std::sync::Arc;

use sandbox::kubernetes::Cluster;
use sandbox::{Half, Sandbox};
use serde_json::json;

fn theirs() -> Sandbox {
    let builder = Sandbox::builder().only(Half::Kubernetes);
    builder.nodes(1).services(1).heartbeats(false).start()
}

fn corner(theirs: &Sandbox, nodes: usize) -> Sandbox {
    let builder = Sandbox::builder().real_cluster(theirs.folder().join("kubeconfig"));
    builder.nodes(nodes).heartbeats(false).start()
}

fn names(cluster: &Arc<Cluster>, resource: &str) -> Vec<String> {
    let objects = cluster.list(resource, None);
    let name = |object: &serde_json::Value| object["metadata"]["name"].as_str().unwrap().to_owned();
    objects.iter().map(name).collect()
}

#[test]
fn corners_see_themselves_and_leave_nothing_behind() {
    let theirs = theirs();
    let before = theirs.cluster().list("nodes", None);
    let (one, other) = (corner(&theirs, 2), corner(&theirs, 1));
    assert_eq!(names(one.cluster(), "nodes"), ["worker-1", "worker-2"]);
    assert_eq!(names(other.cluster(), "nodes"), ["worker-1"]);
    assert_eq!(theirs.cluster().list("nodes", None).len(), 4);
    let lease = json!({"metadata": {"name": "x"}, "spec": {"leaseDurationSeconds": 1}});
    one.cluster().create("leases", Some("kube-system"), lease);
    let held = json!({
        "metadata": {"name": "held", "finalizers": ["example.com/x"]}, "spec": {"ports": [{"port": 80}]},
    });
    one.cluster().create("services", Some("default"), held);
    assert_eq!(names(other.cluster(), "leases"), Vec::<String>::new());
    drop(one);
    drop(other);
    assert_eq!(theirs.cluster().list("nodes", None), before);
    assert_eq!(names(theirs.cluster(), "leases"), Vec::<String>::new());
    assert_eq!(names(theirs.cluster(), "services"), ["kubernetes", "web-1"]);
}

#[test]
fn what_is_there_is_changed_through_the_server_s_own_rules() {
    let theirs = theirs();
    let corner = corner(&theirs, 1);
    let cluster = corner.cluster();
    let change = |node: &mut serde_json::Value| {
        node["metadata"]["labels"]["a"] = json!("b");
        node["spec"]["taints"] = json!([]);
        node["status"]["addresses"] = json!([{"type": "Hostname", "address": "h"}]);
    };
    assert!(cluster.edit("nodes", None, "worker-1", change));
    assert!(!cluster.edit("nodes", None, "worker-9", change));
    let node = cluster.get("nodes", None, "worker-1").unwrap();
    assert_eq!(node["metadata"]["name"], "worker-1");
    assert_eq!(node["metadata"]["labels"]["a"], "b");
    assert_eq!(node["spec"]["taints"], serde_json::Value::Null);
    assert_eq!(node["status"]["addresses"][0]["address"], "h");
    corner.kubelets().expire();
    assert!(cluster.delete("nodes", None, "worker-1"));
    assert!(!cluster.delete("nodes", None, "worker-1"));
    assert_eq!(cluster.get("nodes", None, "worker-1"), None);
}

/// Between the read and the write of a change, somebody else writes.
#[test]
fn a_change_is_made_again_when_somebody_was_faster() {
    let theirs = theirs();
    let corner = corner(&theirs, 1);
    let mut tries = 0;
    let cluster = corner.cluster();
    let there = cluster.edit("nodes", None, "worker-1", |node| {
        tries += 1;
        if tries == 1 {
            let theirs_of_it = |node: &serde_json::Value| {
                let name = node["metadata"]["name"].as_str().unwrap();
                (name != "worker-1").then(|| name.to_owned())
            };
            let all = theirs.cluster().list("nodes", None);
            let name = all.iter().find_map(theirs_of_it).unwrap();
            theirs.cluster().edit("nodes", None, &name, |node| {
                node["metadata"]["labels"]["theirs"] = json!("kept");
            });
        }
        node["metadata"]["labels"]["mine"] = json!("too");
    });
    let node = cluster.get("nodes", None, "worker-1").unwrap();
    let labels = &node["metadata"]["labels"];
    assert_eq!((there, tries), (true, 2));
    assert_eq!(
        (&labels["theirs"], &labels["mine"]),
        (&json!("kept"), &json!("too"))
    );
}
