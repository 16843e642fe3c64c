//! A tenant who may edit the Services of one namespace, and uses them to ask for what others have: ports, targets,
//! settings and names of their load balancers.

use super::cluster::{has_finalizer, is_ours, list, wants_balancer};
use super::end_state::check_ip_mode;
use super::events::{self, CLOSED_BALANCER, Choice, Event, OPEN_BALANCER, PORTS};
use super::{OWNER_NODE_PORT, OWNER_PORT, shows};
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
const MAX_SERVICES: u64 = 3;

/// How often the tenant acts before the story begins.
const INITIAL_EVENTS: usize = 10;

/// The Service that asks for an owner's port with the owner's node port. No two Services have the same node port.
const CLAIMANT: &str = "h-0";

/// A finalizer that the tenant sets. A deleted Service stays while it has the finalizer.
const FINALIZER: &str = "example.org/hold";

/// A label that the tenant wants on every load balancer.
pub const TENANT_LABEL: &str = "hostile";

/// Sizes of an annotation in bytes. An annotation of the first size is read. The second size is more than `ccm` reads
/// of one Service.
const HUGE_SIZES: [usize; 2] = [15_000, 40_000];

/// An annotation that may be long, and sometimes is too long.
const LONG_ANNOTATION: &str = "http-certificates";

/// The name of a certificate from a Secret of another namespace.
const CERTIFICATE: &str = "of-default";

#[derive(Debug)]
pub enum TenantEvent {
    Add(String, Choice, Vec<u64>),
    Delete(String),
    ChooseBalancer(String, Choice),
    Ports(String, Vec<u64>),
    Annotate(String, &'static str, &'static str),
    /// Gives one of [`HUGE_SIZES`] to an annotation whose name is known.
    SetHugeAnnotation(String, usize),
    /// Names the certificate that was uploaded for a namespace of others.
    NameForeignCertificate(String),
    /// Changes the Service's type from LoadBalancer to another type, or back.
    ChangeType(String),
    /// Adds a finalizer, or removes it.
    SetFinalizer(String, bool),
    /// Deletes the Service `kubernetes`, which the API server creates again. Before the Lease remembers the UID, `ccm`
    /// would then take this cluster for another one.
    ReplaceKubernetesService,
}

/// Annotations that would change the load balancers of others if `ccm` did not prevent it.
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
    ("name", OPEN_BALANCER),
    ("name", "free"),
    ("name", "kubernetes-default-x"),
    ("labels", "hostile=yes"),
    ("labels", "caph-cluster-x=owned"),
    ("uses-proxyprotocol", "true"),
    ("protocol", "http"),
    ("health-check-interval", "7s"),
    // With this value nothing of the Service is synced any more.
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
        Some(("external", OPEN_BALANCER)),
        Some(("external", OPEN_BALANCER)),
        Some(("external", OPEN_BALANCER)),
        Some(("external", CLOSED_BALANCER)),
    ])
}

fn ports(random: &mut Random) -> Vec<u64> {
    match random.percent(50) {
        true => vec![OWNER_PORT],
        false => events::ports(random),
    }
}

/// Returns the events before the story begins. One or two honest Services allow the tenant to share
/// their load balancers.
pub fn initial_events(random: &mut Random) -> Vec<Event> {
    let mut events: Vec<Event> =
        (0..1 + random.below(2)).map(|n| Event::Allow(events::name(n), "hostile")).collect();
    events.extend((0..INITIAL_EVENTS).map(|_| Event::Tenant(TenantEvent::generate(random))));
    events
}

impl TenantEvent {
    pub fn generate(random: &mut Random) -> TenantEvent {
        let service = format!("h-{}", random.below(MAX_SERVICES));
        match random.below(16) {
            0..=4 => TenantEvent::Add(service, choice(random), ports(random)),
            5 => TenantEvent::Delete(service),
            6 | 7 => TenantEvent::ChooseBalancer(service, choice(random)),
            8 | 9 => TenantEvent::Ports(service, ports(random)),
            10 | 11 => {
                let (key, value) = *random.pick(&ANNOTATIONS);
                TenantEvent::Annotate(service, key, value)
            }
            12 => TenantEvent::NameForeignCertificate(service),
            13 => TenantEvent::SetHugeAnnotation(service, *random.pick(&HUGE_SIZES)),
            14 => TenantEvent::ChangeType(service),
            _ => TenantEvent::SetFinalizer(service, random.percent(50)),
        }
    }

    /// Applies the event. An event for a Service that does not exist has no effect.
    pub fn apply(&self, sandbox: &Sandbox) {
        let cluster = sandbox.cluster();
        let edit = |name: &str, change: &dyn Fn(&mut Value)| {
            cluster.edit("services", NAMESPACE, name, |service| change(service));
        };
        match self {
            TenantEvent::Add(name, choice, ports) => {
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
            TenantEvent::Delete(name) => drop(cluster.delete("services", NAMESPACE, name)),
            // The other annotations stay.
            TenantEvent::ChooseBalancer(name, choice) => edit(name, &|one| {
                let annotations = &mut one["metadata"]["annotations"];
                let mut chosen = events::annotations(*choice);
                for (key, value) in annotations.as_object().into_iter().flatten() {
                    if !key.ends_with("/share") && !key.ends_with("/external") {
                        chosen[key] = value.clone();
                    }
                }
                *annotations = chosen;
            }),
            TenantEvent::Ports(name, ports) => {
                edit(name, &|one| one["spec"]["ports"] = spec_ports(name, ports));
            }
            TenantEvent::Annotate(name, key, value) => edit(name, &|one| annotate(one, key, value)),
            TenantEvent::SetHugeAnnotation(name, size) => {
                edit(name, &|one| annotate(one, LONG_ANNOTATION, &"x,".repeat(size / 2)));
            }
            TenantEvent::NameForeignCertificate(name) => edit(name, &|one| {
                annotate(one, "protocol", "https");
                annotate(one, LONG_ANNOTATION, CERTIFICATE);
            }),
            TenantEvent::ChangeType(name) => edit(name, &|one| {
                let spec = &mut one["spec"];
                let away = spec["type"] == "LoadBalancer";
                spec["type"] = json!(if away { "NodePort" } else { "LoadBalancer" });
            }),
            TenantEvent::ReplaceKubernetesService => replace_kubernetes(sandbox),
            TenantEvent::SetFinalizer(name, holds) => {
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

/// Whether the Service's annotations are too large to be read, so that the Service is reported and left as it is.
pub fn is_too_large(service: &Value) -> bool {
    let long = service["metadata"]["annotations"][format!("{PREFIX}{LONG_ANNOTATION}")].as_str();
    long.is_some_and(|value| value.len() == HUGE_SIZES[1])
}

fn annotate(service: &mut Value, key: &str, value: &str) {
    service["metadata"]["annotations"][format!("{PREFIX}{key}")] = json!(value);
}

fn spec_ports(name: &str, ports: &[u64]) -> Value {
    let base = 31_500 + 100 * u64::from(name.as_bytes().last().unwrap() - b'0');
    let at = |port: &u64| match *port == OWNER_PORT && name == CLAIMANT {
        true => OWNER_NODE_PORT,
        false => base + PORTS.iter().position(|one| one == port).unwrap() as u64,
    };
    let port = |port: &u64| {
        json!({ "name": format!("p{port}"), "port": port, "protocol": "TCP", "targetPort": port,
                "nodePort": at(port) })
    };
    ports.iter().map(port).collect()
}

/// Changes an annotation just before each write to the cloud, until the faults are removed.
pub fn flood(sandbox: &Sandbox) {
    let cluster = Arc::clone(sandbox.cluster());
    let count = AtomicU64::new(0);
    let change = Effect::before(move |_| {
        let count = count.fetch_add(1, Ordering::Relaxed);
        for n in 0..MAX_SERVICES {
            cluster.edit("services", NAMESPACE, &format!("h-{n}"), |one| {
                annotate(one, "health-check-interval", &format!("{}s", 5 + count % 9));
            });
        }
    });
    let faults = sandbox.faults();
    faults.add(Rule::new(change).half(Half::Hetzner).writes());
}

/// Creates the tenant's namespace and the certificate.
pub fn set_up(sandbox: &Sandbox) {
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
pub fn is_of_tenant(balancer: &Value) -> bool {
    let mut labels = balancer["labels"].as_object().unwrap().iter();
    let is_tenant_name = |value: &Value| value.as_str().unwrap_or_default().starts_with("hostile.");
    labels.any(|(label, value)| is_ours(label) && is_tenant_name(value))
}

/// Whether an owner's port may count as this Service's. This remains possible while an external load balancer has lost
/// all its labels, when the Service has the same numbers and its status says that this load balancer serves it.
pub fn may_be_claimed(service: &Value, balancer: &Value) -> bool {
    let mut labels = balancer["labels"].as_object().unwrap().keys();
    let mut ports = list(&service["spec"]["ports"]).iter();
    let ingress = &service["status"]["loadBalancer"]["ingress"][0];
    let has_label = labels.any(|label| is_ours(label) && !label.ends_with("/external"));
    let has_numbers =
        ports.any(|one| one["port"] == OWNER_PORT && one["nodePort"] == OWNER_NODE_PORT);
    !has_label && has_numbers && (shows(service, balancer) || ingress["hostname"].is_string())
}

/// Checks the end state of the tenant's Services: what is left of those that want no load balancer any more, and
/// whether pods reach shared ports of others through the load balancer.
pub fn check_end_state(sandbox: &Sandbox, all: &[Value]) -> Result<(), String> {
    for service in services(sandbox) {
        let name = &service["metadata"]["name"];
        if !wants_balancer(&service) && has_finalizer(&service) {
            return Err(format!("hostile Service {name} has our finalizer"));
        }
        let mut joint = all.iter().filter(|one| !is_of_tenant(one));
        if let Some(at) = joint.find(|one| shows(&service, one)) {
            check_ip_mode(&service, "Proxy")
                .map_err(|why| format!("hostile Service {name} at {}: {why}", at["name"]))?;
        }
    }
    Ok(())
}
