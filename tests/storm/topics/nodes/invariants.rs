//! What must never happen to a node. It is checked when the request arrives.

use super::SHUTDOWN;
use ccm::controllers::node::UNINITIALIZED;
use sandbox::Sandbox;
use sandbox::exchange::Request;
use serde_json::{Value, json};

/// The prefix of the provider IDs that `ccm` writes.
pub const PREFIX: &str = "ccm-from-scratch://";

/// Returns the servers of both APIs.
pub fn servers(sandbox: &Sandbox) -> Servers {
    let of_cloud = sandbox.cloud().server_summaries(sandbox.project());
    let of_cloud = of_cloud.into_iter().map(|server| {
        let id = format!("{PREFIX}{}", server.id);
        (id, server.name, !server.is_running, json!(server.labels))
    });
    let dedicated = sandbox.robot().servers().into_iter();
    let dedicated = dedicated.map(|server| {
        let id = format!("hrobot://{}", server.number);
        // Robot's API does not always tell whether a server is off.
        (id, server.name, true, Value::Null)
    });
    of_cloud.chain(dedicated).collect()
}

/// The provider ID, the name, whether the server may be off, and the labels of each server. A server whose labels were
/// changed is contained more than once, because a process that read it before can't know the change.
pub type Servers = Vec<(String, String, bool, Value)>;

/// Returns the name of the node that a write is about.
pub fn node_written(request: &Request) -> Option<&str> {
    let rest = request.path.strip_prefix("/api/v1/nodes/")?;
    rest.split('/').next()
}

/// Returns why a write violates an invariant. `node` is the node before the write.
pub fn violation_by(request: &Request, node: Option<&Value>, servers: &Servers) -> Option<String> {
    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let preconditions = match request.method.as_str() {
        "DELETE" => &body["preconditions"],
        _ => &body["metadata"],
    };
    let (version, uid) = (&preconditions["resourceVersion"], &preconditions["uid"]);
    if !version.is_string() || request.method == "DELETE" && !uid.is_string() {
        return Some("without a precondition".into());
    }
    let node = node?;
    let metadata = &node["metadata"];
    if metadata["resourceVersion"] != *version || uid.is_string() && metadata["uid"] != *uid {
        // The API server refuses such a write.
        return None;
    }
    let provider_id = node["spec"]["providerID"].as_str().unwrap_or_default();
    let numbers = [PREFIX, "hrobot://"].map(|prefix| provider_id.strip_prefix(prefix));
    let mut numbers = numbers.into_iter().flatten();
    let is_ours = numbers.any(|number| number.parse::<u64>().is_ok());
    let exists = servers.iter().any(|(id, ..)| id == provider_id);
    match (request.method.as_str(), is_ours) {
        ("DELETE", false) => Some(format!("provider ID {provider_id:?} names no server of ours")),
        ("DELETE", true) if exists => Some(format!("server {provider_id} exists")),
        ("DELETE", true) => None,
        _ => wrong_provider_id(&body["spec"]["providerID"], provider_id, metadata, servers)
            .or_else(|| wrong_labels(&body["metadata"]["labels"], provider_id, metadata, servers))
            .or_else(|| wrong_taints(&body["spec"]["taints"], node, servers)),
    }
}

/// Returns why a write changes a person's label, or removes a label that the server has.
fn wrong_labels(
    written: &Value,
    provider_id: &str,
    metadata: &Value,
    servers: &Servers,
) -> Option<String> {
    let remembered = metadata["annotations"]["instance.hetzner.cloud/server-labels"].as_str();
    let remembered: Vec<&str> = remembered.unwrap_or_default().split(',').collect();
    let written = written.as_object().into_iter().flatten();
    let mut written = written.filter(|(key, _)| key.starts_with("node.example.com/"));
    written.find_map(|(key, value)| {
        let have = metadata["labels"][key].as_str();
        let is_person_s = have.filter(|have| !remembered.contains(&&*format!("{key}={have}")));
        let of_server = servers.iter().filter(|(id, ..)| id == provider_id);
        let of_server: Vec<&Value> = of_server.map(|(.., labels)| &labels[key]).collect();
        match is_person_s {
            Some(have) => Some(format!("label {key}={have} of a person becomes {value}")),
            None if of_server.is_empty() || of_server.contains(&value) => None,
            None => Some(format!("label {key} becomes {value}, and the server's is {of_server:?}")),
        }
    })
}

/// Returns why a write lets pods in before the node has addresses, or keeps them out although the server runs.
fn wrong_taints(written: &Value, node: &Value, servers: &Servers) -> Option<String> {
    let written = written.as_array()?;
    let has = |taints: &[Value], key: &str| taints.iter().any(|taint| taint["key"] == key);
    let taints = node["spec"]["taints"].as_array();
    let taints = taints.map_or(&[][..], Vec::as_slice);
    let mut addresses = node["status"]["addresses"].as_array().into_iter().flatten();
    let id = &node["spec"]["providerID"];
    // The first entry has the server's present state, or the state that a recent read found.
    let server = servers.iter().find(|(other, ..)| id == other);
    if has(taints, UNINITIALIZED)
        && !has(written, UNINITIALIZED)
        && addresses.all(|address| address["type"] == "Hostname")
    {
        Some("it is initialised, and has no addresses".into())
    } else if !has(taints, SHUTDOWN)
        && has(written, SHUTDOWN)
        && server.is_some_and(|(_, _, is_off, _)| !is_off)
    {
        Some("it gets the shutdown taint, and its server runs".into())
    } else {
        None
    }
}

fn wrong_provider_id(
    written: &Value,
    have: &str,
    metadata: &Value,
    servers: &Servers,
) -> Option<String> {
    let written = written.as_str()?;
    if !have.is_empty() {
        return Some(format!("provider ID {have:?} becomes {written:?}"));
    }
    let mut servers = servers.iter();
    let own = servers.find(|(_, name, ..)| metadata["name"] == *name);
    // A server that is not found was deleted after it was listed, and the node will be deleted.
    let right = own.map(|(id, ..)| id.as_str())?;
    (right != written).then(|| format!("provider ID {written:?}, and not {right:?}"))
}
