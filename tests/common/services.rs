//! Services of type LoadBalancer in the simulated cluster, and what they have in the cloud.

use sandbox::Sandbox;
use serde_json::{Value, json};

const PREFIX: &str = "load-balancer.hetzner.cloud/";

/// One to be created.
pub struct LoadBalancerService(Value);

impl LoadBalancerService {
    /// In the namespace `default`.
    pub fn new(name: &str, ports: &[u16]) -> LoadBalancerService {
        let port = |port: &u16| json!({ "name": format!("p{port}"), "port": port });
        let ports: Vec<Value> = ports.iter().map(port).collect();
        LoadBalancerService(json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": { "name": name, "namespace": "default", "annotations": {} },
            "spec": { "type": "LoadBalancer", "selector": { "app": "web" }, "ports": ports },
        }))
    }

    /// With these annotations, named without their prefix.
    pub fn with(mut self, annotations: &[(&str, &str)]) -> LoadBalancerService {
        for (name, value) in annotations {
            self.0["metadata"]["annotations"][format!("{PREFIX}{name}")] = json!(value);
        }
        self
    }

    /// As it is sent.
    pub fn json(&self) -> Value {
        self.0.clone()
    }

    /// With these fields of its `spec`.
    pub fn spec(mut self, fields: Value) -> LoadBalancerService {
        for (name, value) in fields.as_object().into_iter().flatten() {
            self.0["spec"][name] = value.clone();
        }
        self
    }
}

pub fn create(sandbox: &Sandbox, service: LoadBalancerService) -> Value {
    sandbox
        .cluster()
        .create("services", Some("default"), service.0)
}

pub fn service(sandbox: &Sandbox, name: &str) -> Value {
    let found = sandbox.cluster().get("services", Some("default"), name);
    found.unwrap_or_else(|| panic!("there is no Service {name}"))
}

pub fn edit(sandbox: &Sandbox, name: &str, edit: impl FnMut(&mut Value)) {
    let cluster = sandbox.cluster();
    assert!(cluster.edit("services", Some("default"), name, edit));
}

/// Has it an address?
pub fn has_address(service: &Value) -> bool {
    let ingress = service["status"]["loadBalancer"]["ingress"].as_array();
    ingress.is_some_and(|list| !list.is_empty())
}

/// Number of the load balancer with the Service's label.
pub fn balancer_of(sandbox: &Sandbox, name: &str) -> u64 {
    let uid = service(sandbox, name)["metadata"]["uid"].clone();
    let all = sandbox.cloud().load_balancers(sandbox.project());
    let found = all
        .iter()
        .find(|one| one["labels"]["hcloud-ccm/service-uid"] == uid);
    let found = found.unwrap_or_else(|| panic!("{name} has no load balancer"));
    found["id"].as_u64().unwrap()
}
