//! The events that change Services, nodes and other people's load balancers.
//!
//! `ccm` is not informed of any event. The module `end_state` computes what must exist in the end from
//! what exists then.

use super::foreign;
use super::secrets::{self, Content};
use crate::random::Random;
pub use crate::topics::cluster::{EXCLUDED, FINALIZER, NAMESPACE};
use crate::topics::cluster::{delete_node_and_server, join, server_named};
use ccm::hetzner::load_balancers::SERVICE_UID;
use ccm::hetzner::load_balancers::annotations::PREFIX;
use sandbox::Sandbox;
use serde_json::{Value, json};

/// The largest number of Services.
pub const MAX_SERVICES: u64 = 4;

/// How a Service is created.
#[derive(Clone, Debug)]
pub struct Template {
    ports: Vec<u64>,
    annotations: Vec<(&'static str, &'static str)>,
    has_class: bool,
}

#[derive(Clone, Debug)]
pub enum Event {
    Add(String, Template),
    Delete(String),
    /// The namespace is deleted with all Services in it, and created again at once.
    DeleteNamespace,
    /// The finalizers of the Service are removed by force, and it is created again. Its load balancer stays.
    Recreate(String, Template),
    Annotate(String, &'static str, Option<&'static str>),
    Ports(String, Vec<u64>),
    /// The Service's type changes from LoadBalancer to another type, or back.
    ChangeType(String),
    /// The Service's load balancer is deleted in the console.
    DeleteBalancer(String),
    Join(String),
    DeleteNode(String),
    /// A node is deleted with its server.
    DeleteNodeAndServer(String),
    Exclude(String, bool),
    /// The server of a node is deleted, and load balancers still show it as a target. The flag says whether the node is
    /// not ready at once.
    DeleteServer(String, bool),
    /// All nodes are replaced.
    ReplaceNodes(u64),
    /// Terraform runs, see [`foreign::run_terraform`].
    Terraform {
        keeps_uid: bool,
    },
    /// An operator sets or removes a label, see [`foreign::set_adopt_label`].
    SetAdoptLabel(&'static str, Option<String>),
    Secret(&'static str, Content),
    /// Hetzner's controller runs, see [`foreign::run_upstream`].
    RunUpstream,
}

/// Annotations with values that a load balancer can have, and with some that it can't.
const ANNOTATIONS: [(&str, &str); 16] = [
    ("algorithm-type", "least_connections"),
    ("algorithm-type", "round_robin"),
    ("type", "lb21"),
    ("type", "lb11"),
    ("uses-proxyprotocol", "true"),
    ("health-check-interval", "7s"),
    ("health-check", "kube-proxy"),
    ("labels", "tier=web"),
    ("protocol", "http"),
    ("node-selector", "pool=a"),
    ("algorithm-type", "by-the-moon"),
    ("type", "lb99"),
    ("http-sticky-sessions", "maybe"),
    ("ipv4-rdns", "lb.example.org"),
    ("keep", "true"),
    ("keep", "false"),
];

/// Annotations whose effect [`end_state`] does not compute. A Service with such an annotation must only keep the
/// invariants and converge. Some of the values are valid, and most are not.
pub const UNCHECKED_ANNOTATIONS: [&str; 22] = [
    "location",
    "network-zone",
    "disable-private-ingress",
    "private-subnet-ip-range",
    "ipv6-disabled",
    "hostname",
    "ipv6-rdns",
    "public-net-ipv6",
    "http-cookie-name",
    "http-cookie-lifetime",
    "http-timeout-idle",
    "http-redirect-http",
    "http-certificates",
    "http-managed-certificate-acme-staging",
    "health-check-protocol",
    "health-check-port",
    "health-check-timeout",
    "health-check-retries",
    "health-check-http-domain",
    "health-check-http-path",
    "http-status-codes",
    "health-check-http-validate-certificate",
];
const UNCHECKED_VALUES: [&str; 12] = [
    "",
    "true",
    "false",
    "5",
    "30s",
    "1000000",
    "http",
    "nbg1",
    "eu-central",
    "example.org",
    "/ready",
    "2??,301",
];

/// The annotations for a managed certificate of the Service's own.
const MANAGED_CERTIFICATE: [(&str, &str); 3] = [
    ("protocol", "https"),
    ("certificate-type", "managed"),
    ("http-managed-certificate-domains", "www.example.com"),
];

/// The names that Services ask for. Several Services want `shared`, `theirs` is another cluster's, and no Service owns
/// `free`. [`ForeignBalancer`] and [`foreign::OF_PROGRAM`] explain the other names.
const BALANCER_NAMES: [&str; 10] = [
    "front",
    "shared",
    "shared",
    "theirs",
    "free",
    "edge",
    "edge",
    "busy",
    "foreign",
    foreign::OF_PROGRAM,
];

/// The names of Primary IPs. A Service may claim some of them while they are free, and the others never.
const PRIMARY_IP_NAMES: [&str; 7] =
    ["kept", "kept", "kept", "another", "reserved", "brief", "used"];

impl Template {
    pub fn generate(random: &mut Random, two_at_once: bool) -> Template {
        let mut annotations = Vec::new();
        for _ in 0..random.below(4) {
            annotations.push(*random.pick(&ANNOTATIONS));
        }
        if random.percent(40) {
            annotations.push(("name", name(random, two_at_once)));
        }
        if random.percent(30) {
            annotations.extend(MANAGED_CERTIFICATE);
            // Two processes would both take over a certificate that no Service owns.
            if !two_at_once && random.percent(40) {
                annotations.push(("http-managed-certificate-name", "shared"));
            }
        } else if random.percent(25) {
            annotations.extend(random.pick(&secrets::WITH_SECRET));
        } else if random.percent(15) {
            annotations.extend(random.pick(&secrets::WITH_FOREIGN_CERTIFICATE));
        }
        if random.percent(40) {
            annotations.push(("public-net-ipv4", random.pick::<&str>(&PRIMARY_IP_NAMES)));
        }
        Template { ports: ports(random), annotations, has_class: random.percent(8) }
    }

    /// Returns a Service with one port and a name for its load balancer.
    pub fn named(name: &'static str) -> Template {
        Template { ports: vec![80], annotations: vec![("name", name)], has_class: false }
    }

    /// Returns a Service with one port and nothing else.
    pub fn plain() -> Template {
        Template { ports: vec![80], annotations: Vec::new(), has_class: false }
    }

    pub fn make(&self, sandbox: &Sandbox, name: &str) -> Value {
        let annotations = self.annotations.iter();
        let annotations: serde_json::Map<String, Value> =
            annotations.map(|(key, value)| (format!("{PREFIX}{key}"), json!(value))).collect();
        let mut service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": { "name": name, "namespace": "default", "annotations": annotations },
            "spec": { "type": "LoadBalancer", "selector": { "app": name }, "ports": spec_ports(&self.ports) },
        });
        if self.has_class {
            service["spec"]["loadBalancerClass"] = json!("example.org/another");
        }
        sandbox.cluster().create("services", NAMESPACE, service)
    }
}

fn name(random: &mut Random, two_at_once: bool) -> &'static str {
    match *random.pick(&BALANCER_NAMES) {
        "free" | "edge" | "busy" | "foreign" if two_at_once => "front",
        name => name,
    }
}

fn ports(random: &mut Random) -> Vec<u64> {
    let mut ports: Vec<u64> =
        [80, 81, 443, 8080].into_iter().filter(|_| random.percent(50)).collect();
    if ports.is_empty() {
        ports.push(80);
    }
    ports
}

fn spec_ports(ports: &[u64]) -> Value {
    let port = |port: &u64| json!({ "name": format!("p{port}"), "port": port, "protocol": "TCP" });
    ports.iter().map(port).collect()
}

impl Event {
    pub fn generate(random: &mut Random, two_at_once: bool) -> Event {
        let service = format!("s-{}", random.below(MAX_SERVICES));
        let node = format!("n-{}", random.below(6));
        match random.below(24) {
            0 | 1 => Event::Add(service, Template::generate(random, two_at_once)),
            2..=4 => Event::Delete(service),
            5 => Event::Recreate(service, Template::generate(random, two_at_once)),
            6 => {
                let (key, value) = match random.percent(60) {
                    true => *random.pick(&ANNOTATIONS),
                    false => {
                        (*random.pick(&UNCHECKED_ANNOTATIONS), *random.pick(&UNCHECKED_VALUES))
                    }
                };
                Event::Annotate(service, key, random.percent(60).then_some(value))
            }
            7 => Event::Annotate(service, "name", Some(name(random, two_at_once))),
            8 => Event::Ports(service, ports(random)),
            9 | 10 => Event::ChangeType(service),
            11 => Event::DeleteBalancer(service),
            12 => Event::Join(node),
            13 => match random.percent(50) {
                true => Event::DeleteNode(node),
                false => Event::DeleteNodeAndServer(node),
            },
            14 => Event::Exclude(node, random.percent(50)),
            15 => Event::ReplaceNodes(random.below(100)),
            16 => Event::DeleteServer(node, random.percent(50)),
            17 | 18 => Event::Terraform { keeps_uid: random.percent(70) },
            19 if random.percent(30) => Event::DeleteNamespace,
            20 | 21 => Event::Secret(
                random.pick::<&str>(&secrets::SECRET_NAMES),
                Content::generate(random),
            ),
            22 => Event::RunUpstream,
            // Two processes would both adopt the load balancer, each for another Service.
            _ if two_at_once => Event::Terraform { keeps_uid: true },
            _ => {
                let balancer = *random.pick(&["edge", "edge", "busy", "foreign", "free"]);
                Event::SetAdoptLabel(
                    balancer,
                    random.percent(75).then(|| foreign::service_of(random)),
                )
            }
        }
    }

    /// Chooses an event that `ccm` may meet in the middle of its work. Terraform must keep the UID, because
    /// otherwise only the next list shows the owner of the load balancer again. Hetzner's controller works only when
    /// `ccm` does not.
    pub fn between_ticks(random: &mut Random, two_at_once: bool) -> Event {
        match Event::generate(random, two_at_once) {
            Event::Terraform { .. } | Event::RunUpstream => Event::Terraform { keeps_uid: true },
            event => event,
        }
    }

    /// Applies the event. An event for an object that does not exist has no effect.
    pub fn apply(&self, sandbox: &Sandbox) {
        let cluster = sandbox.cluster();
        let edit = |name: &str, change: &mut dyn FnMut(&mut Value)| {
            cluster.edit("services", NAMESPACE, name, |service| change(service));
        };
        match self {
            Event::Add(name, template) => {
                if cluster.get("services", NAMESPACE, name).is_none() {
                    drop(template.make(sandbox, name));
                }
            }
            Event::Delete(name) => drop(cluster.delete("services", NAMESPACE, name)),
            Event::DeleteNamespace => {
                for n in 0..MAX_SERVICES {
                    cluster.delete("services", NAMESPACE, &format!("s-{n}"));
                }
            }
            Event::Recreate(name, template) => {
                edit(name, &mut |service| {
                    service["metadata"]["finalizers"] = json!([]);
                });
                cluster.delete("services", NAMESPACE, name);
                if cluster.get("services", NAMESPACE, name).is_none() {
                    drop(template.make(sandbox, name));
                }
            }
            Event::Annotate(name, key, value) => edit(name, &mut |service| {
                let annotations = &mut service["metadata"]["annotations"];
                let key = format!("{PREFIX}{key}");
                match value {
                    Some(value) => annotations[key] = json!(value),
                    None => {
                        if let Some(annotations) = annotations.as_object_mut() {
                            annotations.remove(&key);
                        }
                    }
                }
            }),
            Event::Ports(name, ports) => edit(name, &mut |service| {
                let old = service["spec"]["ports"].take();
                let old = old.as_array().cloned().unwrap_or_default();
                let wanted = ports.iter().map(|number| {
                    let same = old.iter().find(|port| port["port"] == *number);
                    same.cloned().unwrap_or_else(|| {
                        json!({ "name": format!("p{number}"), "port": number, "protocol": "TCP",
                                "targetPort": number, "nodePort": 31_000 + number % 1_000 })
                    })
                });
                service["spec"]["ports"] = wanted.collect();
            }),
            Event::ChangeType(name) => edit(name, &mut |service| {
                let spec = &mut service["spec"];
                if spec["loadBalancerClass"].is_null() {
                    let away = spec["type"] == "LoadBalancer";
                    spec["type"] = json!(if away { "NodePort" } else { "LoadBalancer" });
                }
            }),
            Event::DeleteBalancer(name) => {
                let service = cluster.get("services", NAMESPACE, name);
                let uid = service.map(|service| service["metadata"]["uid"].clone());
                let all = sandbox.cloud().load_balancers(sandbox.project());
                let own = all.iter().find(|one| {
                    let is_own = Some(&one["labels"][SERVICE_UID]) == uid.as_ref();
                    is_own && !foreign::is_copy(one)
                });
                if let Some(id) = own.and_then(|one| one["id"].as_u64()) {
                    // Otherwise the actions of the load balancer would run for ever.
                    sandbox.cloud().hold_load_balancer(id, false);
                    sandbox.cloud().delete_load_balancer(id);
                }
            }
            Event::Join(name) => {
                if cluster.get("nodes", None, name).is_none() {
                    join(sandbox, name);
                }
            }
            Event::DeleteNode(name) => drop(cluster.delete("nodes", None, name)),
            Event::DeleteNodeAndServer(name) => delete_node_and_server(sandbox, name),
            Event::DeleteServer(name, is_silent) => {
                if let Some(id) = server_named(sandbox, name) {
                    sandbox.cloud().delete_server_but_not_targets(id);
                }
                if *is_silent {
                    sandbox.kubelets().expire();
                }
            }
            Event::Terraform { keeps_uid } => foreign::run_terraform(sandbox, *keeps_uid),
            Event::SetAdoptLabel(balancer, service) => {
                foreign::set_adopt_label(sandbox, balancer, service.as_deref());
            }
            Event::Secret(name, content) => content.put(sandbox, name),
            Event::RunUpstream => foreign::run_upstream(sandbox),
            Event::Exclude(name, yes) => {
                cluster.edit("nodes", None, name, |node| {
                    let labels = &mut node["metadata"]["labels"];
                    labels[EXCLUDED] = json!(if *yes { "" } else { "false" });
                });
            }
            Event::ReplaceNodes(mark) => {
                for node in cluster.list("nodes", None) {
                    let name = node["metadata"]["name"].as_str().unwrap();
                    cluster.delete("nodes", None, name);
                }
                for n in 0..2 {
                    join(sandbox, &format!("r-{mark}-{n}"));
                }
            }
        }
    }
}

/// Returns the UID of the Service `kubernetes`, which identifies the cluster.
pub fn cluster_uid(sandbox: &Sandbox) -> String {
    let identity = sandbox.cluster().get("services", NAMESPACE, "kubernetes");
    identity.unwrap()["metadata"]["uid"].as_str().unwrap().to_owned()
}
