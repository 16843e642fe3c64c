//! Nodes and Services as both APIs show them, and nodes that are added and deleted.

use ccm::hetzner::load_balancers::SERVICE_UID;
use sandbox::Sandbox;
use sandbox::hetzner::ServerSpec;
use sandbox::kubelet::NodeSpec;
use serde_json::Value;
use std::collections::BTreeSet;

pub const NAMESPACE: Option<&str> = Some("default");
pub const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
pub const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

pub fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Whether `ccm` sets this label.
pub fn is_ours(label: &str) -> bool {
    label == SERVICE_UID || label.starts_with("ccm-from-scratch/")
}

pub fn has_finalizer(service: &Value) -> bool {
    let finalizers = list(&service["metadata"]["finalizers"]);
    finalizers.iter().any(|one| one == FINALIZER)
}

/// Whether the Service asks for a load balancer.
pub fn wants_balancer(service: &Value) -> bool {
    let spec = &service["spec"];
    spec["type"] == "LoadBalancer"
        && spec["loadBalancerClass"].is_null()
        && service["metadata"]["deletionTimestamp"].is_null()
}

/// Returns the IDs of these servers.
pub fn ids(servers: &[Value]) -> BTreeSet<u64> {
    let ids = servers.iter().filter_map(|one| one["id"].as_u64());
    ids.collect()
}

/// Returns the IDs of the targets that are servers.
pub fn targets(balancer: &Value) -> BTreeSet<u64> {
    let targets = list(&balancer["targets"]).iter();
    let ids = targets.filter_map(|target| target["server"]["id"].as_u64());
    ids.collect()
}

/// Returns the servers of the nodes that get traffic, if the servers exist.
pub fn eligible_servers(nodes: &[Value], existing: &BTreeSet<u64>) -> BTreeSet<u64> {
    let is_eligible = |node: &&Value| {
        let excluded = node["metadata"]["labels"][EXCLUDED].as_str();
        excluded.is_none_or(|value| value == "false")
    };
    let ids = nodes.iter().filter(is_eligible).filter_map(server_of);
    ids.filter(|id| existing.contains(id)).collect()
}

/// A node that no event deletes.
pub const PERMANENT_NODE: &str = "n-8";

/// The label of all servers of this cluster's nodes.
pub const NODE_LABEL: (&str, &str) = ("cluster", "k");

/// Adds a node with the server of that name, or with a new server. Half of the nodes are in pool `a`.
pub fn join(sandbox: &Sandbox, name: &str) {
    let id = server(sandbox, name);
    let pool = match name.ends_with(['0', '2', '4']) {
        true => "a",
        false => "b",
    };
    sandbox.register_node(NodeSpec {
        name: name.to_owned(),
        server: Some(id),
        provider_id: Some(format!("ccm-from-scratch://{id}")),
        labels: [("pool".to_owned(), pool.to_owned())].into(),
        ..NodeSpec::default()
    });
}

pub fn delete_node_and_server(sandbox: &Sandbox, name: &str) {
    if let Some(id) = server_named(sandbox, name) {
        sandbox.cloud().delete_server(id);
    }
    sandbox.cluster().delete("nodes", None, name);
}

/// Adds a node when no node has an existing server. Otherwise `ccm` would rightly doubt that it sees the right project.
pub fn ensure_existing_server(sandbox: &Sandbox) {
    let existing = ids(&sandbox.cloud().servers(sandbox.project()));
    let nodes = sandbox.cluster().list("nodes", None);
    let mut servers = nodes.iter().filter_map(server_of);
    if !nodes.is_empty() && !servers.any(|id| existing.contains(&id)) {
        join(sandbox, "n-9");
    }
}

/// Returns the server of that name. It is created when it does not exist.
pub fn server(sandbox: &Sandbox, name: &str) -> u64 {
    server_named(sandbox, name).unwrap_or_else(|| {
        let (key, value) = NODE_LABEL;
        let spec = ServerSpec {
            name: name.to_owned(),
            labels: [(key.to_owned(), value.to_owned())].into(),
            ..ServerSpec::default()
        };
        sandbox.cloud().create_server(sandbox.project(), spec)
    })
}

pub fn server_named(sandbox: &Sandbox, name: &str) -> Option<u64> {
    let all = sandbox.cloud().servers(sandbox.project());
    let there = all.iter().find(|server| server["name"] == name);
    there.and_then(|server| server["id"].as_u64())
}

/// Returns the ID of a node's server, which is in the node's provider ID.
pub fn server_of(node: &Value) -> Option<u64> {
    let id = node["spec"]["providerID"].as_str()?;
    id.strip_prefix("ccm-from-scratch://")?.parse().ok()
}

pub fn services(sandbox: &Sandbox) -> Vec<Value> {
    sandbox.cluster().list("services", NAMESPACE)
}
