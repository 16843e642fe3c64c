//! The view of nodes that controllers share: what a poll of the table with metadata shows, and when the answer to a
//! write is kept. The library runs against the sandbox.

use crate::common::fake_provider::FakeProvider;
use crate::common::library::SandboxAccess;
use crate::common::{Cluster, on, simulated_cluster, socket_cluster};
use ccm::cache::{Apis, Poll, ReadFrom};
use ccm::http::Proxies;
use ccm::kube::{self, KubeNode, Labels};
use ccm::provider::{OpenGate, clock};
use sandbox::Sandbox;
use sandbox::faults::Effect;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// Looks at the table every time, and at everything only at first.
const METADATA: Poll = Poll {
    table_max_age: Duration::ZERO,
    whole_max_age: Duration::MAX,
    metadata_max_age: Some(Duration::ZERO),
};

const CELLS: Poll = Poll { metadata_max_age: None, ..METADATA };

fn world(sandbox: &Sandbox) -> Apis {
    let place = SandboxAccess::new(sandbox);
    let (access, timing) = (place.access(), place.timing());
    let kube = kube::KubeClient::new(access, Proxies::Never, timing, Arc::new(OpenGate));
    Apis::new(kube, Box::new(FakeProvider::default()))
}

fn poll(world: &Apis, poll: Poll) -> Arc<Vec<Arc<KubeNode>>> {
    world.nodes.poll(poll).unwrap().value
}

fn named(nodes: &[Arc<KubeNode>], name: &str) -> Arc<KubeNode> {
    Arc::clone(nodes.iter().find(|node| node.name() == name).unwrap())
}

fn reads_by_name(sandbox: &Sandbox) -> usize {
    let is_one = |path: &str| path.starts_with("/api/v1/nodes/");
    sandbox.calls().count(|call| call.method == "GET" && is_one(&call.path))
}

#[test]
fn a_table_with_metadata_shows_changed_labels_deletions_and_uids() {
    let sandbox = socket_cluster(3);
    let world = world(&sandbox);
    let before = poll(&world, METADATA);
    assert_eq!(before.len(), 3);
    let cluster = sandbox.cluster();
    sandbox.edit_node("worker-1", |node| {
        node["metadata"]["labels"]["pool"] = json!("a");
        node["metadata"]["annotations"]["not"] = json!("read");
    });
    sandbox.edit_node("worker-2", |node| {
        node["metadata"]["finalizers"] = json!(["example.com/mine"]);
    });
    sandbox.delete_node("worker-2");
    let mut anew = sandbox.node("worker-3");
    let labels = anew["metadata"]["labels"].clone();
    sandbox.delete_node("worker-3");
    anew["metadata"] = json!({ "name": "worker-3", "labels": labels });
    let status = anew["status"].clone();
    cluster.create("nodes", None, anew);
    sandbox.edit_node("worker-3", |node| node["status"] = status.clone());

    // The new nodes have the same names and the same status.
    let nodes = poll(&world, CELLS);
    let expected = (before.as_ref(), 0);
    assert_eq!((nodes.as_ref(), reads_by_name(&sandbox)), expected);
    let nodes = poll(&world, METADATA);
    assert_eq!(reads_by_name(&sandbox), 3);
    assert_eq!(named(&nodes, "worker-1").metadata.labels.get("pool"), Some("a"));
    assert!(named(&nodes, "worker-2").metadata.deletion_timestamp.is_some());
    let uid = |nodes: &[Arc<KubeNode>]| named(nodes, "worker-3").metadata.uid.clone();
    assert_ne!(uid(&nodes), uid(&before));
    let again = poll(&world, METADATA);
    assert_eq!((again, reads_by_name(&sandbox)), (nodes, 3), "known by now");
    assert_eq!(before.len(), 3, "who holds a view keeps it was");
}

#[test]
fn a_write_s_answer_is_kept_unless_something_newer_was_read() {
    let sandbox = socket_cluster(1);
    let world = world(&sandbox);
    let labelled = |node: &KubeNode, value: &str| {
        let mut node = node.clone();
        node.metadata.labels = Labels::from_iter([("written", value)]);
        node
    };
    let old = clock::now();
    let nodes = world.nodes.whole(Duration::ZERO, ReadFrom::Latest).unwrap().value;
    let seen = || {
        let nodes = world.nodes.last().unwrap().value;
        nodes[0].metadata.labels.get("written").map(str::to_owned)
    };
    world.nodes.written(labelled(&nodes[0], "before the list"), old);
    assert_eq!(seen(), None);
    world.nodes.written(labelled(&nodes[0], "after it"), clock::now());
    assert_eq!(seen(), Some("after it".to_owned()));
    let mut another = labelled(&nodes[0], "another UID");
    another.metadata.uid = "another".into();
    world.nodes.written(another, clock::now());
    assert_eq!(seen(), Some("after it".to_owned()));
    let names = ["worker-1".to_owned(), "nobody".to_owned()];
    world.nodes.again(&names, Duration::MAX).unwrap();
    assert_eq!((seen().is_some(), reads_by_name(&sandbox)), (true, 0));
    world.nodes.again(&names, Duration::ZERO).unwrap();
    assert_eq!((seen(), reads_by_name(&sandbox)), (None, 1));
}

/// A large list is dropped before the next list is read. When that read fails, the cache has no nodes, and must not say
/// that there are none: routes and targets of all nodes would be removed.
#[test]
fn a_list_that_was_dropped_for_a_failed_read_is_read_again() {
    const NODES: usize = 501;
    let sandbox = simulated_cluster(NODES);
    let world = world(&sandbox);
    let list = |max_age| world.nodes.whole(max_age, ReadFrom::Latest).map(|all| all.value.len());
    assert_eq!(list(Duration::ZERO).ok(), Some(NODES));
    sandbox
        .faults()
        .add(on("GET /api/v1/nodes", Effect::kubernetes_status(500, "InternalError", "no")));
    assert_eq!(list(Duration::ZERO).ok(), None);
    assert_eq!(list(Duration::from_secs(60)).ok(), None);
    sandbox.faults().clear();
    assert_eq!(list(Duration::from_secs(60)).ok(), Some(NODES));
}

/// The node is known by its UID. A list of servers that was requested later contains its machine.
#[test]
fn a_node_is_first_seen_once_and_a_new_node_of_its_name_again() {
    let sandbox = socket_cluster(2);
    let world = world(&sandbox);
    let list = || world.nodes.whole(Duration::ZERO, ReadFrom::Latest).unwrap().value;
    let before = clock::now();
    let first = named(&list(), "worker-1");
    let seen = world.nodes.first_seen(&first).unwrap();
    assert!(seen > before);
    // Listed, written and read by its name again, it is the same.
    list();
    world.nodes.again(&["worker-1".to_owned()], Duration::ZERO).unwrap();
    world.nodes.written(first.as_ref().clone(), clock::now());
    assert_eq!(world.nodes.first_seen(&first), Some(seen));
    let other = named(&list(), "worker-2");
    let renew = |name: &str| {
        sandbox.delete_node(name);
        sandbox.register(name, None, "");
    };
    // Read by its name, and by a list.
    renew("worker-1");
    let before = clock::now();
    let nodes = world.nodes.again(&["worker-1".to_owned()], Duration::ZERO);
    let second = named(&nodes.unwrap().value, "worker-1");
    assert_eq!(world.nodes.first_seen(&first), None, "another one has its name");
    assert!(world.nodes.first_seen(&second).unwrap() > before);
    renew("worker-2");
    let before = clock::now();
    let renewed = named(&list(), "worker-2");
    assert_eq!(world.nodes.first_seen(&other), None);
    assert!(world.nodes.first_seen(&renewed).unwrap() > before);
}
