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
        let robot = Arc::clone(sandbox.robot());
        let harm = Arc::clone(&self.harm);
        let look = move |request: &Request| {
            let Some(name) = node_written(request) else {
                return;
            };
            let node = cluster.get("nodes", None, name);
            // Both APIs' servers: provider ID, name.
            let of_cloud = cloud.servers(project).into_iter();
            let of_cloud = of_cloud.map(|server| {
                let name = server["name"].as_str().unwrap_or_default().to_owned();
                (
                    format!("{PREFIX}{}", server["id"]),
                    name,
                    server["labels"].clone(),
                )
            });
            let metal = robot.servers().into_iter();
            let metal = metal.map(|server| {
                (
                    format!("hrobot://{}", server.number),
                    server.name,
                    Value::Null,
                )
            });
            let servers: Servers = of_cloud.chain(metal).collect();
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
            .filter(|call| call.half != Half::Kubernetes && call.is_write());
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

/// Provider IDs, names and labels.
type Servers = Vec<(String, String, Value)>;

/// The node that a write is about.
fn node_written(request: &Request) -> Option<&str> {
    let rest = request.path.strip_prefix("/api/v1/nodes/")?;
    rest.split('/').next()
}

/// `node`: as it is now, before the write.
fn harm_of(request: &Request, node: Option<&Value>, servers: &Servers) -> Option<String> {
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
    let numbers = [PREFIX, "hrobot://"].map(|prefix| provider_id.strip_prefix(prefix));
    let mut numbers = numbers.into_iter().flatten();
    let is_ours = numbers.any(|number| number.parse::<u64>().is_ok());
    let exists = servers.iter().any(|(id, ..)| id == provider_id);
    match (request.method.as_str(), is_ours) {
        ("DELETE", false) => Some(format!(
            "provider ID {provider_id:?} names no server of ours"
        )),
        ("DELETE", true) if exists => Some(format!("server {provider_id} exists")),
        ("DELETE", true) => None,
        _ => wrong_provider_id(&body["spec"]["providerID"], provider_id, metadata, servers)
            .or_else(|| wrong_labels(&body["metadata"]["labels"], provider_id, metadata, servers)),
    }
}

/// A label of a person changes, or one that the server has is removed.
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
        let server = servers.iter().find(|(id, ..)| id == provider_id);
        let of_server = server.map_or(&Value::Null, |(.., labels)| &labels[key]);
        match (is_person_s, value == of_server) {
            (Some(have), _) => Some(format!("label {key}={have} of a person becomes {value}")),
            (None, false) if server.is_some() => Some(format!(
                "label {key} becomes {value}, and the server's is {of_server}"
            )),
            (None, _) => None,
        }
    })
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
    let own = servers.find(|(_, name, _)| metadata["name"] == *name);
    let right = own.map(|(id, ..)| id.as_str());
    (right != Some(written)).then(|| format!("provider ID {written:?}, and not {right:?}"))
}
