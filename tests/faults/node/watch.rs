//! What must never happen, looked at in the moment in which the request arrives.

use sandbox::exchange::Request;
use sandbox::faults::{Effect, Rule};
use sandbox::{Half, Sandbox};
use serde_json::Value;
use std::sync::{Arc, Mutex};

/// The prefix of the provider IDs that `ccm` writes.
const PREFIX: &str = "ccm-from-scratch://";

#[derive(Default)]
pub struct Watch {
    harm: Arc<Mutex<Vec<String>>>,
}

impl Watch {
    /// From now on, until the faults are cleared.
    pub fn over(&self, sandbox: &Sandbox) {
        let (cloud, cluster, project) = (
            Arc::clone(sandbox.cloud()),
            Arc::clone(sandbox.cluster()),
            sandbox.project(),
        );
        let harm = Arc::clone(&self.harm);
        let look = move |request: &Request| {
            let Some(name) = node_written(request) else {
                return;
            };
            let node = cluster.get("nodes", None, name);
            let servers = cloud.servers(project);
            if let Some(why) = harm_of(request, node.as_ref(), &servers) {
                harm.lock()
                    .unwrap()
                    .push(format!("{} {}: {why}", request.method, request.path));
            }
        };
        let rule = Rule::new(Effect::before(look)).half(Half::Kubernetes);
        sandbox.faults().add(rule.writes());
    }

    /// Nothing of it happened; and nothing was written to the cloud, ever.
    pub fn no_harm(&self, sandbox: &Sandbox) -> Result<(), String> {
        let mut harm = self.harm.lock().unwrap().clone();
        let calls = sandbox.calls().calls();
        let to_cloud = calls
            .iter()
            .filter(|call| call.half == Half::Hetzner && call.is_write());
        harm.extend(to_cloud.map(|call| format!("a write to the cloud: {call}")));
        if harm.is_empty() {
            return Ok(());
        }
        let calls: Vec<String> = calls.iter().map(ToString::to_string).collect();
        Err(format!(
            "{}\nall calls:\n{}",
            harm.join("\n"),
            calls.join("\n")
        ))
    }
}

/// The node that a write is about.
fn node_written(request: &Request) -> Option<&str> {
    let rest = request.path.strip_prefix("/api/v1/nodes/")?;
    rest.split('/').next()
}

/// `node`: as it is now, before the write.
fn harm_of(request: &Request, node: Option<&Value>, servers: &[Value]) -> Option<String> {
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
        // The API server refuses it.
        return None;
    }
    let provider_id = node["spec"]["providerID"].as_str().unwrap_or_default();
    let server = provider_id
        .strip_prefix(PREFIX)
        .and_then(|id| id.parse::<u64>().ok());
    let exists = |id: u64| servers.iter().any(|server| server["id"] == id);
    match (request.method.as_str(), server) {
        ("DELETE", None) => Some(format!(
            "provider ID {provider_id:?} names no server of ours"
        )),
        ("DELETE", Some(id)) if exists(id) => Some(format!("server {id} exists")),
        ("DELETE", Some(_)) => None,
        _ => wrong_provider_id(&body["spec"]["providerID"], provider_id, metadata, servers),
    }
}

fn wrong_provider_id(
    written: &Value,
    have: &str,
    metadata: &Value,
    servers: &[Value],
) -> Option<String> {
    let written = written.as_str()?;
    if !have.is_empty() {
        return Some(format!("provider ID {have:?} becomes {written:?}"));
    }
    let own = servers
        .iter()
        .find(|server| server["name"] == metadata["name"]);
    let right = own.map(|server| format!("{PREFIX}{}", server["id"]));
    (right.as_deref() != Some(written))
        .then(|| format!("provider ID {written:?}, and not {right:?}"))
}
