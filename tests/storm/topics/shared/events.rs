//! The events that change Services, nodes and load balancers outside of `ccm`.

pub use super::cluster::NAMESPACE;
use super::cluster::{self, EXCLUDED, is_ours};
use super::{OWNER_NODE_PORT, OWNER_PORT, hostile, is_of_others};
use crate::random::Random;
use ccm::hetzner::load_balancers::EXTERNAL;
use ccm::hetzner::load_balancers::annotations::PREFIX;
use sandbox::Sandbox;
use serde_json::{Value, json};

/// The largest number of Services.
pub const MAX_SERVICES: u64 = 5;

/// The listen ports. There are five, because the smallest type takes five.
pub const PORTS: [u64; 5] = [80, 81, 443, 8080, OWNER_PORT];

/// The load balancers of other owners. The first one may be used, and the second one may not.
pub const OPEN_BALANCER: &str = "edge-lb";
pub const CLOSED_BALANCER: &str = "closed-lb";

/// The annotation and the value with which a Service asks for a load balancer. `None` means a load balancer of its own.
pub type Choice = Option<(&'static str, &'static str)>;

#[derive(Debug)]
pub enum Event {
    Add(String, Choice, Vec<u64>),
    Delete(String),
    ChooseBalancer(String, Choice),
    Ports(String, Vec<u64>),
    /// The Service's annotation changes that names the namespaces which may share its load balancer.
    Allow(String, &'static str),
    /// The Service's type changes from LoadBalancer to another type, or back.
    ChangeType(String),
    /// The hostile tenant does something.
    Tenant(hostile::TenantEvent),
    /// Terraform removes all labels that it does not know from its own load balancers.
    Terraform,
    Exclude(String, bool),
    Join(String),
    /// A node is deleted with its server.
    DeleteNodeAndServer(String),
}

pub fn name(n: u64) -> String {
    format!("s-{n}")
}

pub fn ports(random: &mut Random) -> Vec<u64> {
    let mut ports = PORTS.to_vec();
    ports.retain(|port| random.percent(if *port == OWNER_PORT { 10 } else { 35 }));
    if ports.is_empty() {
        ports.push(80);
    }
    ports
}

pub fn choice(random: &mut Random) -> Choice {
    *random.pick(&[
        None,
        Some(("share", "x")),
        Some(("share", "x")),
        Some(("share", "default/x")),
        Some(("share", "y")),
        Some(("external", OPEN_BALANCER)),
        Some(("external", OPEN_BALANCER)),
        Some(("external", CLOSED_BALANCER)),
    ])
}

/// Creates the load balancers of other owners. `allowed_to` is the value of the label by which the owner of
/// [`OPEN_BALANCER`] allows its use.
pub fn make_others(sandbox: &Sandbox, allowed_to: &str) {
    let foreign = cluster::server(sandbox, "foreign");
    for name in [OPEN_BALANCER, CLOSED_BALANCER] {
        let mut labels = json!({ "provisioner": "terraform" });
        if name == OPEN_BALANCER {
            labels[EXTERNAL] = json!(allowed_to);
        }
        let spec = json!({
            "name": name, "load_balancer_type": "lb21", "location": "fsn1", "labels": labels,
            "algorithm": { "type": "least_connections" },
            "services": [
                { "protocol": "tcp", "listen_port": OWNER_PORT, "destination_port": OWNER_NODE_PORT },
            ],
            "targets": [{ "type": "server", "server": { "id": foreign } }],
        });
        sandbox.cloud().create_load_balancer(sandbox.project(), spec);
    }
}

impl Event {
    /// Chooses an event. `has_tenant` means that a hostile tenant takes part.
    pub fn generate(random: &mut Random, has_tenant: bool) -> Event {
        if has_tenant && random.percent(40) {
            return Event::Tenant(hostile::TenantEvent::generate(random));
        }
        let service = name(random.below(MAX_SERVICES));
        let node = format!("n-{}", random.below(4));
        match random.below(16) {
            0..=2 => Event::Add(service, choice(random), ports(random)),
            3 | 4 => Event::Delete(service),
            5..=9 => Event::ChooseBalancer(service, choice(random)),
            10 if has_tenant => {
                Event::Allow(service, random.pick::<&str>(&["hostile", "web, hostile", "*", ""]))
            }
            10 => Event::Ports(service, ports(random)),
            11 => Event::ChangeType(service),
            12 | 13 => Event::Terraform,
            14 => Event::Exclude(node, random.percent(50)),
            _ if random.percent(50) => Event::Join(node),
            _ => Event::DeleteNodeAndServer(node),
        }
    }

    /// Applies the event. An event for an object that does not exist has no effect.
    pub fn apply(&self, sandbox: &Sandbox) {
        let cluster = sandbox.cluster();
        match self {
            Event::Add(name, choice, ports) => {
                if cluster.get("services", NAMESPACE, name).is_some() {
                    return;
                }
                let port = |port: &u64| json!({ "name": format!("p{port}"), "port": port });
                let ports: Vec<Value> = ports.iter().map(port).collect();
                let service = json!({
                    "apiVersion": "v1", "kind": "Service",
                    "metadata": {
                        "name": name, "namespace": "default", "annotations": annotations(*choice),
                    },
                    "spec": { "type": "LoadBalancer", "selector": { "app": name }, "ports": ports },
                });
                cluster.create("services", NAMESPACE, service);
            }
            Event::ChooseBalancer(name, choice) => {
                cluster.edit("services", NAMESPACE, name, |service| {
                    service["metadata"]["annotations"] = annotations(*choice);
                });
            }
            Event::Allow(name, namespaces) => {
                cluster.edit("services", NAMESPACE, name, |service| {
                    let annotations = &mut service["metadata"]["annotations"];
                    annotations[format!("{PREFIX}share-namespaces")] = json!(namespaces);
                });
            }
            Event::Tenant(event) => event.apply(sandbox),
            Event::Delete(name) => drop(cluster.delete("services", NAMESPACE, name)),
            Event::Ports(name, ports) => {
                // Each Service has node ports of its own.
                let base = 31_000 + 100 * u64::from(name.as_bytes().last().unwrap() - b'0');
                let at =
                    |port: &u64| base + PORTS.iter().position(|one| one == port).unwrap() as u64;
                let port = |port: &u64| {
                    json!({ "name": format!("p{port}"), "port": port, "protocol": "TCP",
                            "targetPort": port, "nodePort": at(port) })
                };
                let ports: Value = ports.iter().map(port).collect();
                cluster.edit("services", NAMESPACE, name, |service| {
                    service["spec"]["ports"] = ports.clone();
                });
            }
            Event::ChangeType(name) => {
                cluster.edit("services", NAMESPACE, name, |service| {
                    let spec = &mut service["spec"];
                    let away = spec["type"] == "LoadBalancer";
                    spec["type"] = json!(if away { "NodePort" } else { "LoadBalancer" });
                });
            }
            Event::Terraform => {
                let cloud = sandbox.cloud();
                let all = cloud.load_balancers(sandbox.project());
                for one in all.iter().filter(|one| is_of_others(one)) {
                    cloud.edit_load_balancer(one["id"].as_u64().unwrap(), |one| {
                        let labels = one["labels"].as_object_mut().unwrap();
                        labels.retain(|label, _| !is_ours(label) || label == EXTERNAL);
                    });
                }
            }
            Event::Exclude(name, yes) => {
                cluster.edit("nodes", None, name, |node| {
                    let labels = &mut node["metadata"]["labels"];
                    labels[EXCLUDED] = json!(if *yes { "" } else { "false" });
                });
            }
            Event::Join(name) => {
                if cluster.get("nodes", None, name).is_none() {
                    cluster::join(sandbox, name);
                }
            }
            Event::DeleteNodeAndServer(name) => cluster::delete_node_and_server(sandbox, name),
        }
    }
}

pub fn annotations(choice: Choice) -> Value {
    let mut annotations = json!({});
    if let Some((key, value)) = choice {
        annotations[format!("{PREFIX}{key}")] = json!(value);
    }
    annotations
}
