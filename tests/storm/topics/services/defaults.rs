//! The Namespace of the Services has a default for the algorithm. It is there from the start to the end, but its value is
//! wrong at times, and Namespaces can't be read at times. So no load balancer may get the default of the API.

use super::end_state::annotation;
use super::ownership::ClusterState;
use crate::random::Random;
use ccm::hetzner::load_balancers::SERVICE_UID;
use sandbox::Sandbox;
use sandbox::exchange::Request;
use sandbox::kubernetes::PolicyRule;
use serde::Deserialize;
use serde_json::{Value, json};

pub const RIGHT: &str = "least_connections";
const WRONG: &str = "by-the-sun";
const OF_API: &str = "round_robin";

/// Gives ccm the right of `manifests/components/namespace-defaults`, and the Namespace its default.
pub fn allow_and_set(sandbox: &Sandbox) {
    let text = include_str!("../../../../manifests/components/namespace-defaults/role.yaml");
    let role = serde_yaml::Deserializer::from_str(text).next().unwrap();
    let role = Value::deserialize(role).unwrap();
    let rules: Vec<PolicyRule> = serde_json::from_value(role["rules"].clone()).unwrap();
    sandbox.cluster().grant("ccm", rules);
    set(sandbox, RIGHT);
}

pub fn set(sandbox: &Sandbox, value: &str) {
    sandbox.cluster().edit("namespaces", None, "default", |namespace| {
        let annotations = &mut namespace["metadata"]["annotations"];
        annotations["load-balancer.hetzner.cloud/algorithm-type"] = json!(value);
    });
}

/// Makes the default right or wrong. Returns a line for the log of the story.
pub fn change(sandbox: &Sandbox, random: &mut Random) -> String {
    let value = if random.percent(50) { RIGHT } else { WRONG };
    set(sandbox, value);
    format!("the default of the Namespace is {value}")
}

/// Returns a violation when the request gives a load balancer the default of the API, although no state of its Service
/// asks for this. `labels` are those of the load balancer, or `None` when the request creates it.
pub fn violation(
    request: &Request,
    labels: Option<Value>,
    states: &[ClusterState],
) -> Option<String> {
    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let (algorithm, uid) = match labels {
        Some(labels) if request.path.ends_with("/change_algorithm") => {
            (body["type"].clone(), labels[SERVICE_UID].clone())
        }
        None if request.path == "/v1/load_balancers" => {
            (body["algorithm"]["type"].clone(), body["labels"][SERVICE_UID].clone())
        }
        _ => return None,
    };
    let asks = |state: &ClusterState| {
        let service = state.service(&uid);
        service.is_some_and(|service| annotation(service, "algorithm-type") == Some(OF_API))
    };
    let is_of_api = algorithm == OF_API || algorithm.is_null();
    (is_of_api && !states.iter().any(asks))
        .then(|| format!("{algorithm} although the Namespace has a default: {uid}"))
}
