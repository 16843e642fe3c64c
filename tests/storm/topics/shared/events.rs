//! What happens to Services, nodes and load balancers outside of `ccm`.

pub use super::cluster::NAMESPACE;
use super::cluster::{self, EXCLUDED, is_ours};
use super::{THEIR_NODE_PORT, THEIR_PORT, hostile, is_of_others};
use crate::random::Random;
use ccm::hetzner::load_balancers::EXTERNAL;
use ccm::hetzner::load_balancers::annotations::PREFIX;
use sandbox::Sandbox;
use serde_json::{Value, json};

/// At most.
pub const SERVICES: u64 = 5;

/// Five, as many as the smallest type takes.
pub const PORTS: [u64; 5] = [80, 81, 443, 8080, THEIR_PORT];

/// Load balancers of other owners: one may be used, and one may not.
pub const OPEN: &str = "edge-lb";
pub const CLOSED: &str = "closed-lb";

/// Which load balancer a Service asks for: annotation and value; none: its own.
pub type Choice = Option<(&'static str, &'static str)>;

#[derive(Debug)]
pub enum Event {
    Add(String, Choice, Vec<u64>),
    Delete(String),
    Choose(String, Choice),
    Ports(String, Vec<u64>),
    /// Namespaces whose Services may share its load balancer.
    Allow(String, &'static str),
    /// Away from LoadBalancer, or back.
    Turn(String),
    /// Something that the hostile tenant does.
    Hostile(hostile::Act),
    /// It removes all labels from its own that it does not know.
    Terraform,
    Exclude(String, bool),
    Join(String),
    /// With its server.
    Destroy(String),
}

pub fn name(n: u64) -> String {
    format!("s-{n}")
}

pub fn ports(random: &mut Random) -> Vec<u64> {
    let mut ports = PORTS.to_vec();
    ports.retain(|port| random.percent(if *port == THEIR_PORT { 10 } else { 35 }));
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
        Some(("external", OPEN)),
        Some(("external", OPEN)),
        Some(("external", CLOSED)),
    ])
}

/// `allowed_to`: value of the label by which the owner of [`OPEN`] allows its use.
pub fn make_others(sandbox: &Sandbox, allowed_to: &str) {
    let foreign = cluster::server(sandbox, "foreign");
    for name in [OPEN, CLOSED] {
        let mut labels = json!({ "provisioner": "terraform" });
        if name == OPEN {
            labels[EXTERNAL] = json!(allowed_to);
        }
        let spec = json!({
            "name": name, "load_balancer_type": "lb21", "location": "fsn1", "labels": labels,
            "algorithm": { "type": "least_connections" },
            "services": [
                { "protocol": "tcp", "listen_port": THEIR_PORT, "destination_port": THEIR_NODE_PORT },
            ],
            "targets": [{ "type": "server", "server": { "id": foreign } }],
        });
        sandbox.cloud().create_load_balancer(sandbox.project(), spec);
    }
}

impl Event {
    /// `has_tenant`: a hostile tenant takes part.
    pub fn of(random: &mut Random, has_tenant: bool) -> Event {
        if has_tenant && random.percent(40) {
            return Event::Hostile(hostile::Act::of(random));
        }
        let service = name(random.below(SERVICES));
        let node = format!("n-{}", random.below(4));
        match random.below(16) {
            0..=2 => Event::Add(service, choice(random), ports(random)),
            3 | 4 => Event::Delete(service),
            5..=9 => Event::Choose(service, choice(random)),
            10 if has_tenant => {
                Event::Allow(service, random.pick::<&str>(&["hostile", "web, hostile", "*", ""]))
            }
            10 => Event::Ports(service, ports(random)),
            11 => Event::Turn(service),
            12 | 13 => Event::Terraform,
            14 => Event::Exclude(node, random.percent(50)),
            _ if random.percent(50) => Event::Join(node),
            _ => Event::Destroy(node),
        }
    }

    /// What cannot happen to what does not exist does not happen.
    pub fn happen(&self, sandbox: &Sandbox) {
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
            Event::Choose(name, choice) => {
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
            Event::Hostile(act) => act.happen(sandbox),
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
            Event::Turn(name) => {
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
            Event::Destroy(name) => cluster::destroy(sandbox, name),
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
