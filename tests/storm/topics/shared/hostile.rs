//! A tenant who may edit the Services of one namespace, and asks with them for what others have: ports, targets, settings
//! and names of their load balancers.

use super::cluster::{has_finalizer, is_ours, list, wants};
use super::end::mode_is;
use super::events::{self, CLOSED, Choice, Event, OPEN, PORTS};
use super::{THEIR_NODE_PORT, THEIR_PORT, shows};
use crate::random::Random;
use ccm::hetzner::load_balancers::SECRET;
use ccm::hetzner::load_balancers::annotations::PREFIX;
use sandbox::faults::{Effect, Rule};
use sandbox::{Half, Sandbox};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub const NAMESPACE: Option<&str> = Some("hostile");

/// How many Services the tenant has at most.
const SERVICES: u64 = 3;

/// How often the tenant acts before the story begins.
const ACTS: usize = 10;

/// The Service that asks for the port of an owner with the owner's node port. No two Services have one node port.
const CLAIMANT: &str = "h-0";

/// A finalizer of the tenant: a deleted Service stays while it has one.
const FINALIZER: &str = "example.org/hold";

/// A label that the tenant wants on every load balancer.
pub const LABEL: &str = "hostile";

/// Sizes of an annotation in bytes: the first is read, and the second is more than is read of one Service.
const HUGE: [usize; 2] = [15_000, 40_000];

/// An annotation that may be long, and is huge sometimes.
const LONG: &str = "http-certificates";

/// The name of a certificate from a Secret of another namespace.
const CERTIFICATE: &str = "of-default";

#[derive(Debug)]
pub enum Act {
    Add(String, Choice, Vec<u64>),
    Delete(String),
    Choose(String, Choice),
    Ports(String, Vec<u64>),
    Annotate(String, &'static str, &'static str),
    /// Gives one of the sizes [`HUGE`] to an annotation whose name is known.
    Huge(String, usize),
    /// Names the certificate that was uploaded for a namespace of others.
    Certify(String),
    /// Away from LoadBalancer, or back.
    Turn(String),
    /// Adds a finalizer, or removes it.
    Hold(String, bool),
    /// Deletes the Service `kubernetes`, and the API server makes it again. Before the Lease remembers its UID, that would
    /// make another cluster of this one.
    Identity,
}

/// What would be about the load balancers of others if others could not prevent it.
const ANNOTATIONS: [(&str, &str); 26] = [
    ("node-selector", "no=such"),
    ("node-selector", "no=such"),
    ("external-targets", "false"),
    ("type", "lb31"),
    ("type", "lb99"),
    ("location", "nbg1"),
    ("algorithm-type", "least_connections"),
    ("use-private-ip", "true"),
    ("private-ipv4", "10.0.0.9"),
    ("disable-public-network", "true"),
    ("public-net-ipv4", "kept"),
    ("ipv4-rdns", "hostile.example.org"),
    ("deletion-protection", "true"),
    ("keep", "true"),
    ("name", OPEN),
    ("name", "free"),
    ("name", "kubernetes-default-x"),
    ("labels", "hostile=yes"),
    ("labels", "caph-cluster-x=owned"),
    ("uses-proxyprotocol", "true"),
    ("protocol", "http"),
    ("health-check-interval", "7s"),
    // Nothing of the Service is synced any more.
    ("health-check-interval", "soon"),
    ("health-check-interval", "soon"),
    ("hostname", "hostile.example.org"),
    ("share-namespaces", "*"),
];

fn choice(random: &mut Random) -> Choice {
    *random.pick(&[
        None,
        Some(("share", "own")),
        Some(("share", "default/x")),
        Some(("share", "default/x")),
        Some(("share", "default/x")),
        Some(("share", "default/y")),
        Some(("external", OPEN)),
        Some(("external", OPEN)),
        Some(("external", OPEN)),
        Some(("external", CLOSED)),
    ])
}

fn ports(random: &mut Random) -> Vec<u64> {
    match random.percent(50) {
        true => vec![THEIR_PORT],
        false => events::ports(random),
    }
}

/// What happens before the story begins: one or two honest Services allow the tenant to share what they have.
pub fn before(random: &mut Random) -> Vec<Event> {
    let mut events: Vec<Event> =
        (0..1 + random.below(2)).map(|n| Event::Allow(events::name(n), "hostile")).collect();
    events.extend((0..ACTS).map(|_| Event::Hostile(Act::of(random))));
    events
}

impl Act {
    pub fn of(random: &mut Random) -> Act {
        let service = format!("h-{}", random.below(SERVICES));
        match random.below(16) {
            0..=4 => Act::Add(service, choice(random), ports(random)),
            5 => Act::Delete(service),
            6 | 7 => Act::Choose(service, choice(random)),
            8 | 9 => Act::Ports(service, ports(random)),
            10 | 11 => {
                let (key, value) = *random.pick(&ANNOTATIONS);
                Act::Annotate(service, key, value)
            }
            12 => Act::Certify(service),
            13 => Act::Huge(service, *random.pick(&HUGE)),
            14 => Act::Turn(service),
            _ => Act::Hold(service, random.percent(50)),
        }
    }

    /// What cannot happen to a Service that does not exist does not happen.
    pub fn happen(&self, sandbox: &Sandbox) {
        let cluster = sandbox.cluster();
        let edit = |name: &str, change: &dyn Fn(&mut Value)| {
            cluster.edit("services", NAMESPACE, name, |service| change(service));
        };
        match self {
            Act::Add(name, choice, ports) => {
                if cluster.get("services", NAMESPACE, name).is_some() {
                    return;
                }
                let service = json!({
                    "apiVersion": "v1", "kind": "Service",
                    "metadata": {
                        "name": name, "namespace": "hostile",
                        "annotations": events::annotations(*choice),
                    },
                    "spec": { "type": "LoadBalancer", "selector": { "app": name },
                              "ports": [{ "name": "first", "port": 80 }] },
                });
                cluster.create("services", NAMESPACE, service);
                edit(name, &|one| one["spec"]["ports"] = spec_ports(name, ports));
            }
            Act::Delete(name) => drop(cluster.delete("services", NAMESPACE, name)),
            // The other annotations stay.
            Act::Choose(name, choice) => edit(name, &|one| {
                let annotations = &mut one["metadata"]["annotations"];
                let mut chosen = events::annotations(*choice);
                for (key, value) in annotations.as_object().into_iter().flatten() {
                    if !key.ends_with("/share") && !key.ends_with("/external") {
                        chosen[key] = value.clone();
                    }
                }
                *annotations = chosen;
            }),
            Act::Ports(name, ports) => {
                edit(name, &|one| one["spec"]["ports"] = spec_ports(name, ports));
            }
            Act::Annotate(name, key, value) => edit(name, &|one| annotate(one, key, value)),
            Act::Huge(name, size) => {
                edit(name, &|one| annotate(one, LONG, &"x,".repeat(size / 2)));
            }
            Act::Certify(name) => edit(name, &|one| {
                annotate(one, "protocol", "https");
                annotate(one, LONG, CERTIFICATE);
            }),
            Act::Turn(name) => edit(name, &|one| {
                let spec = &mut one["spec"];
                let away = spec["type"] == "LoadBalancer";
                spec["type"] = json!(if away { "NodePort" } else { "LoadBalancer" });
            }),
            Act::Identity => replace_kubernetes(sandbox),
            Act::Hold(name, holds) => {
                edit(name, &|one| {
                    let finalizers = &mut one["metadata"]["finalizers"];
                    let mut all = list(finalizers).to_vec();
                    all.retain(|one| one != FINALIZER);
                    all.extend(holds.then(|| json!(FINALIZER)));
                    *finalizers = all.into();
                });
                let ends = |one: Value| {
                    let is_deleted = !one["metadata"]["deletionTimestamp"].is_null();
                    is_deleted && list(&one["metadata"]["finalizers"]).is_empty()
                };
                if cluster.get("services", NAMESPACE, name).is_some_and(ends) {
                    cluster.delete("services", NAMESPACE, name);
                }
            }
        }
    }
}

fn replace_kubernetes(sandbox: &Sandbox) {
    let cluster = sandbox.cluster();
    let of = |uid: &Value| uid.as_str().unwrap_or_default().to_owned();
    let Some(service) = cluster.get("services", events::NAMESPACE, "kubernetes") else {
        return;
    };
    let leases = cluster.list("leases", Some("kube-system"));
    let is_noted = leases.iter().any(|lease| {
        let annotations = lease["metadata"]["annotations"].to_string();
        annotations.contains(&of(&service["metadata"]["uid"]))
    });
    if is_noted {
        cluster.delete("services", events::NAMESPACE, "kubernetes");
        let again = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": { "name": "kubernetes", "namespace": "default" },
            "spec": { "type": "ClusterIP",
                      "ports": [{ "name": "https", "port": 443, "protocol": "TCP" }] },
        });
        cluster.create("services", events::NAMESPACE, again);
    }
}

/// Whether its annotations are too large to be read, so that it is reported and left as it is.
pub fn is_left_alone(service: &Value) -> bool {
    let long = service["metadata"]["annotations"][format!("{PREFIX}{LONG}")].as_str();
    long.is_some_and(|value| value.len() == HUGE[1])
}

fn annotate(service: &mut Value, key: &str, value: &str) {
    service["metadata"]["annotations"][format!("{PREFIX}{key}")] = json!(value);
}

fn spec_ports(name: &str, ports: &[u64]) -> Value {
    let base = 31_500 + 100 * u64::from(name.as_bytes().last().unwrap() - b'0');
    let at = |port: &u64| match *port == THEIR_PORT && name == CLAIMANT {
        true => THEIR_NODE_PORT,
        false => base + PORTS.iter().position(|one| one == port).unwrap() as u64,
    };
    let port = |port: &u64| {
        json!({ "name": format!("p{port}"), "port": port, "protocol": "TCP", "targetPort": port,
                "nodePort": at(port) })
    };
    ports.iter().map(port).collect()
}

/// An annotation changes just before each write in the cloud, until the faults are cleared.
pub fn flood(sandbox: &Sandbox) {
    let cluster = Arc::clone(sandbox.cluster());
    let count = AtomicU64::new(0);
    let change = Effect::before(move |_| {
        let count = count.fetch_add(1, Ordering::Relaxed);
        for n in 0..SERVICES {
            cluster.edit("services", NAMESPACE, &format!("h-{n}"), |one| {
                annotate(one, "health-check-interval", &format!("{}s", 5 + count % 9));
            });
        }
    });
    let faults = sandbox.faults();
    faults.add(Rule::new(change).half(Half::Hetzner).writes());
}

/// Makes the tenant's namespace, and the certificate.
pub fn begin(sandbox: &Sandbox) {
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "hostile" } });
    sandbox.cluster().create("namespaces", None, namespace);
    let certificate = json!({
        "name": CERTIFICATE, "type": "managed", "domain_names": ["www.example.com"],
        "labels": { SECRET: "default.web-tls" },
    });
    let (cloud, project) = (sandbox.cloud(), sandbox.project());
    cloud.set_dns_zones(project, &["example.com"]);
    cloud.create_certificate(project, certificate);
}

/// Whether a port of this request shows a certificate. No honest Service asks for one.
pub fn shows_certificate(body: &Value) -> bool {
    let mut ports = list(&body["services"]).iter().chain([body]);
    ports.any(|port| !list(&port["http"]["certificates"]).is_empty())
}

pub fn services(sandbox: &Sandbox) -> Vec<Value> {
    sandbox.cluster().list("services", NAMESPACE)
}

/// Whether a load balancer was made for the tenant alone, so that others have nothing on it.
pub fn is_its(balancer: &Value) -> bool {
    let mut labels = balancer["labels"].as_object().unwrap().iter();
    let is_of_tenant = |value: &Value| value.as_str().unwrap_or_default().starts_with("hostile.");
    labels.any(|(label, value)| is_ours(label) && is_of_tenant(value))
}

/// What remains possible: while all labels of an external load balancer are gone, the owner's port counts as the port of
/// a Service that has the same numbers and whose status says that this load balancer serves it.
pub fn may_be_given(service: &Value, balancer: &Value) -> bool {
    let mut labels = balancer["labels"].as_object().unwrap().keys();
    let mut ports = list(&service["spec"]["ports"]).iter();
    let ingress = &service["status"]["loadBalancer"]["ingress"][0];
    let has_label = labels.any(|label| is_ours(label) && !label.ends_with("/external"));
    let has_numbers =
        ports.any(|one| one["port"] == THEIR_PORT && one["nodePort"] == THEIR_NODE_PORT);
    !has_label && has_numbers && (shows(service, balancer) || ingress["hostname"].is_string())
}

/// What is left of Services that want no load balancer any more, and how pods reach what others share.
pub fn is_right(sandbox: &Sandbox, all: &[Value]) -> Result<(), String> {
    for service in services(sandbox) {
        let name = &service["metadata"]["name"];
        if !wants(&service) && has_finalizer(&service) {
            return Err(format!("hostile Service {name} has our finalizer"));
        }
        let mut joint = all.iter().filter(|one| !is_its(one));
        if let Some(at) = joint.find(|one| shows(&service, one)) {
            mode_is(&service, "Proxy")
                .map_err(|why| format!("hostile Service {name} at {}: {why}", at["name"]))?;
        }
    }
    Ok(())
}
