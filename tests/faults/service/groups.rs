//! Services that share load balancers, or use one of somebody else, in a storm: they join, leave, change their ports,
//! come and are deleted, Terraform removes labels, and `ccm` dies at any write.
//!
//! At every write a watcher checks that nothing that is served is taken away and that nothing of others is touched. In
//! the end each living Service is served, and nothing is left of the others.

use crate::common::seeds::for_each_seed;
use crate::service::end::{self, servers, targets};
use crate::service::library::{Place, SCALE};
use crate::service::life::Ccm;
use crate::service::nothing_is_written;
use crate::service::ownership::{Kubernetes, is_ours, list};
use crate::service::random::Random;
use crate::service::story::{Event as NodeEvent, FINALIZER, NAMESPACE, cluster_uid, server};
use crate::service::watch::{all_writes, has_finalizer, wants};
use crate::service::weather::Weather;
use ccm::controllers::Selection;
use ccm::hetzner::load_balancers::annotations::PREFIX;
use ccm::hetzner::load_balancers::{CREATED, EXTERNAL, GROUP, PORT, SERVICE_UID};
use sandbox::exchange::Request;
use sandbox::faults::{Effect, Rule};
use sandbox::hetzner::Cloud;
use sandbox::kubernetes::Cluster;
use sandbox::{Half, Sandbox};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

const STORIES: u64 = 120;
const SERVICES: u64 = 5;

/// The port of others on their load balancers.
const THEIR_PORT: u64 = 6443;
/// Five, as many as the smallest type takes.
const PORTS: [u64; 5] = [80, 81, 443, 8080, THEIR_PORT];

/// What its owner allows, and what it does not.
const OPEN: &str = "edge-lb";
const CLOSED: &str = "closed-lb";

#[test]
fn services_that_share_are_served_and_nothing_of_others_is_touched() {
    let seeds = 5001..=5000 + STORIES;
    for_each_seed("faults groups", seeds, |seed| {
        let mut random = Random::new(seed);
        let sandbox = begin(&mut random);
        let outcome = story(&mut random, &sandbox);
        outcome.map_err(|why| {
            let mut ccm = Ccm::new(&Place::new(&sandbox), true);
            let failures = ccm.tick(&Selection::All).failures;
            let (writes, state) = (all_writes(&sandbox), state(&sandbox));
            format!("{why}\n{writes}\n{state}\n{failures:#?}")
        })
    });
}

/// Nodes, Services, and load balancers of others.
fn begin(random: &mut Random) -> Sandbox {
    let sandbox = Sandbox::builder()
        .nodes(0)
        .heartbeats(false)
        .scale(SCALE)
        .start();
    for n in 0..1 + random.below(3) {
        NodeEvent::Join(format!("n-{n}")).happen(&sandbox);
    }
    let foreign = server(&sandbox, "foreign");
    for name in [OPEN, CLOSED] {
        let mut labels = json!({ "provisioner": "terraform" });
        if name == OPEN {
            labels[EXTERNAL] = json!(*random.pick(&["", "default"]));
        }
        let spec = json!({
            "name": name, "load_balancer_type": "lb21", "location": "fsn1", "labels": labels,
            "algorithm": { "type": "least_connections" },
            "services": [{ "protocol": "tcp", "listen_port": THEIR_PORT, "destination_port": THEIR_PORT }],
            "targets": [{ "type": "server", "server": { "id": foreign } }],
        });
        sandbox
            .cloud()
            .create_load_balancer(sandbox.project(), spec);
    }
    for n in 0..2 + random.below(SERVICES - 1) {
        Event::Add(name(n), choice(random), ports(random)).happen(&sandbox);
    }
    sandbox
}

fn story(random: &mut Random, sandbox: &Sandbox) -> Result<(), String> {
    let place = Place::new(sandbox);
    let watch = Arc::new(Watch::new(sandbox));
    let before = [OPEN, CLOSED].map(|name| as_it_is(sandbox, name));
    for _ in 0..1 + random.below(3) {
        for _ in 0..random.below(4) {
            watch.event(&Event::of(random), sandbox);
        }
        let weather = Weather::of(random.next(), false);
        weather.begin(sandbox);
        watch.over(sandbox);
        for _ in 0..1 + random.below(3) {
            let mut ccm = match random.percent(60) {
                true => Ccm::mortal(&place, random.below(20)),
                false => Ccm::new(&place, random.percent(50)),
            };
            let selection = match random.percent(30) {
                true => Selection::All,
                false => Selection::Due,
            };
            for _ in 0..1 + random.below(4) {
                ccm.tick(&selection);
                if random.percent(40) {
                    watch.event(&Event::of(random), sandbox);
                }
            }
        }
        weather.end(sandbox);
    }
    crate::service::story::some_node_is_alive(sandbox);
    watch.over(sandbox);
    for _ in 0..2 {
        Ccm::new(&place, true).settle()?;
        end::actions_end(sandbox);
    }
    watch.no_harm()?;
    let (forgotten, terraform_ran) = {
        let seen = watch.seen.lock().unwrap();
        (seen.forgotten.clone(), seen.terraform)
    };
    is_right(sandbox, &forgotten)?;
    of_others_is_as_before(sandbox, &before, terraform_ran, &forgotten)?;
    nothing_is_written(sandbox, &place)
}

/// How it ended, for whoever reads a failure.
fn state(sandbox: &Sandbox) -> String {
    let services = sandbox.cluster().list("services", NAMESPACE);
    let services = services.iter().map(|one| {
        let (metadata, spec) = (&one["metadata"], &one["spec"]);
        let ports = list(&spec["ports"]).iter();
        let ports: Vec<String> = ports
            .map(|port| format!("{}→{}", port["port"], port["nodePort"]))
            .collect();
        let status = &one["status"]["loadBalancer"]["ingress"][0]["ip"];
        let name = &metadata["name"];
        format!(
            "{name} {} {} {} {ports:?} at {status}",
            metadata["uid"], spec["type"], metadata["annotations"]
        )
    });
    let balancers = sandbox.cloud().load_balancers(sandbox.project());
    let balancers = balancers.iter().map(|one| {
        let ports = list(&one["services"]).iter();
        let ports: Vec<String> = ports
            .map(|port| format!("{}→{}", port["listen_port"], port["destination_port"]))
            .collect();
        let ip = &one["public_net"]["ipv4"]["ip"];
        format!(
            "{} {} {ip} {ports:?} {}",
            one["id"], one["name"], one["labels"]
        )
    });
    services.chain(balancers).collect::<Vec<_>>().join("\n")
}

fn name(n: u64) -> String {
    format!("s-{n}")
}

fn ports(random: &mut Random) -> Vec<u64> {
    let mut ports: Vec<u64> = PORTS
        .into_iter()
        .filter(|port| random.percent(if *port == THEIR_PORT { 10 } else { 35 }))
        .collect();
    if ports.is_empty() {
        ports.push(80);
    }
    ports
}

/// Which load balancer a Service asks for: annotation and value; none: its own.
type Choice = Option<(&'static str, &'static str)>;

fn choice(random: &mut Random) -> Choice {
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

#[derive(Debug)]
enum Event {
    Add(String, Choice, Vec<u64>),
    Delete(String),
    Choose(String, Choice),
    Ports(String, Vec<u64>),
    /// Away from LoadBalancer, or back.
    Turn(String),
    /// It removes all labels from its own that it does not know.
    Terraform,
    Node(NodeEvent),
}

impl Event {
    fn of(random: &mut Random) -> Event {
        let service = name(random.below(SERVICES));
        let node = format!("n-{}", random.below(4));
        match random.below(16) {
            0..=2 => Event::Add(service, choice(random), ports(random)),
            3 | 4 => Event::Delete(service),
            5..=9 => Event::Choose(service, choice(random)),
            10 => Event::Ports(service, ports(random)),
            11 => Event::Turn(service),
            12 | 13 => Event::Terraform,
            14 => Event::Node(NodeEvent::Exclude(node, random.percent(50))),
            _ => Event::Node(match random.percent(50) {
                true => NodeEvent::Join(node),
                false => NodeEvent::Destroy(node),
            }),
        }
    }

    fn happen(&self, sandbox: &Sandbox) {
        let cluster = sandbox.cluster();
        match self {
            Event::Add(name, choice, ports) => {
                if cluster.get("services", NAMESPACE, name).is_some() {
                    return;
                }
                let mut annotations = json!({});
                if let Some((key, value)) = choice {
                    annotations[format!("{PREFIX}{key}")] = json!(value);
                }
                let port = |port: &u64| json!({ "name": format!("p{port}"), "port": port });
                let ports: Vec<Value> = ports.iter().map(port).collect();
                let service = json!({
                    "apiVersion": "v1", "kind": "Service",
                    "metadata": { "name": name, "namespace": "default", "annotations": annotations },
                    "spec": { "type": "LoadBalancer", "selector": { "app": name }, "ports": ports },
                });
                cluster.create("services", NAMESPACE, service);
            }
            Event::Choose(name, choice) => {
                cluster.edit("services", NAMESPACE, name, |service| {
                    let annotations = &mut service["metadata"]["annotations"];
                    *annotations = json!({});
                    if let Some((key, value)) = choice {
                        annotations[format!("{PREFIX}{key}")] = json!(value);
                    }
                });
            }
            Event::Delete(name) => NodeEvent::Delete(name.clone()).happen(sandbox),
            Event::Ports(name, ports) => {
                // Each Service has node ports of its own.
                let base = 31_000 + 100 * u64::from(name.as_bytes().last().unwrap() - b'0');
                let at =
                    |port: &u64| base + PORTS.iter().position(|one| one == port).unwrap() as u64;
                let ports = ports.iter();
                let ports = ports.map(|port| {
                    json!({ "name": format!("p{port}"), "port": port, "protocol": "TCP",
                            "targetPort": port, "nodePort": at(port) })
                });
                let ports: Value = ports.collect();
                cluster.edit("services", NAMESPACE, name, |service| {
                    service["spec"]["ports"] = ports.clone();
                });
            }
            Event::Turn(name) => NodeEvent::Turn(name.clone()).happen(sandbox),
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
            Event::Node(event) => event.happen(sandbox),
        }
    }
}

fn is_of_others(balancer: &Value) -> bool {
    balancer["name"] == OPEN || balancer["name"] == CLOSED
}

fn by_name(sandbox: &Sandbox, name: &str) -> Value {
    let mut all = sandbox
        .cloud()
        .load_balancers(sandbox.project())
        .into_iter();
    all.find(|one| one["name"] == name).unwrap()
}

/// Without what changes by itself, and the label that an operator adds in some weather.
fn as_it_is(sandbox: &Sandbox, name: &str) -> Value {
    let mut one = by_name(sandbox, name);
    for target in one["targets"].as_array_mut().unwrap() {
        target["health_status"] = Value::Null;
    }
    one["labels"].as_object_mut().unwrap().remove("noted");
    one
}

fn both_numbers(listener: &Value) -> (u64, u64) {
    let numbers = ["listen_port", "destination_port"].map(|field| number(&listener[field]));
    numbers.into()
}

fn number(port: &Value) -> u64 {
    port.as_u64().unwrap_or_default()
}

/// What the label of a port says, else that of the whole load balancer.
fn owner(balancer: &Value, port: u64) -> &Value {
    match &balancer["labels"][format!("{PORT}{port}")] {
        Value::Null => &balancer["labels"][SERVICE_UID],
        uid => uid,
    }
}

/// The Service's ports that this load balancer sends to its node ports.
fn served(balancer: &Value, service: &Value) -> BTreeSet<u64> {
    let is_it = |listener: &Value, port: &Value| {
        listener["listen_port"] == port["port"] && listener["destination_port"] == port["nodePort"]
    };
    let ports = list(&service["spec"]["ports"]).iter();
    let served = ports.filter(|port| {
        list(&balancer["services"])
            .iter()
            .any(|one| is_it(one, port))
    });
    served.map(|port| number(&port["port"])).collect()
}

fn shows(service: &Value, balancer: &Value) -> bool {
    let ip = &service["status"]["loadBalancer"]["ingress"][0]["ip"];
    ip.is_string() && *ip == balancer["public_net"]["ipv4"]["ip"]
}

struct Watch {
    cloud: Arc<Cloud>,
    cluster: Arc<Cluster>,
    project: u64,
    cluster_uid: String,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    harm: Vec<String>,
    /// What `ccm` may know: what the API server's cache showed at the last read.
    services: Vec<Value>,
    nodes: Vec<Value>,
    /// Terraform ran.
    terraform: bool,
    /// Ports of Services that lost their labels then. One whose Service changes before its label is written again is
    /// known to be that Service's by nothing.
    forgotten: BTreeSet<(u64, u64)>,
}

impl Watch {
    fn new(sandbox: &Sandbox) -> Watch {
        Watch {
            cloud: Arc::clone(sandbox.cloud()),
            cluster: Arc::clone(sandbox.cluster()),
            project: sandbox.project(),
            cluster_uid: cluster_uid(sandbox),
            seen: Mutex::default(),
        }
    }

    fn event(&self, event: &Event, sandbox: &Sandbox) {
        if std::env::var_os("CCM_TEST_SEED").is_some_and(|seed| !seed.is_empty()) {
            let calls = sandbox
                .calls()
                .count(|call| call.is_write() && !call.path.ends_with("/events"));
            println!("after {calls} writes: {event:?}");
        }
        if let Event::Terraform = event {
            let mut seen = self.seen.lock().unwrap();
            seen.terraform = true;
            let open = by_name(sandbox, OPEN);
            let ports = list(&open["services"]).iter();
            seen.forgotten.extend(ports.map(both_numbers));
        }
        event.happen(sandbox);
    }

    /// From now on, until the faults are cleared.
    fn over(self: &Arc<Self>, sandbox: &Sandbox) {
        self.learn();
        let look = Arc::clone(self);
        let learn = Effect::before(move |_: &Request| {
            if !look.cluster.is_cache_frozen() {
                look.learn();
            }
        });
        let is_list = |request: &Request| {
            ["/api/v1/nodes", "/api/v1/services"].contains(&request.path.as_str())
        };
        let reads = Rule::new(learn).half(Half::Kubernetes).method("GET");
        sandbox.faults().add(reads.when(is_list));
        for (half, harm_of) in [
            (
                Half::Hetzner,
                Watch::harm_in_cloud as fn(&Watch, &Request) -> Option<String>,
            ),
            (Half::Kubernetes, Watch::harm_in_cluster),
        ] {
            let look = Arc::clone(self);
            let hook = move |request: &Request| {
                if let Some(why) = harm_of(&look, request) {
                    let call = format!("{} {}", request.method, request.path);
                    look.seen
                        .lock()
                        .unwrap()
                        .harm
                        .push(format!("{call}: {why}"));
                }
            };
            sandbox
                .faults()
                .add(Rule::new(Effect::before(hook)).half(half).writes());
        }
    }

    fn learn(&self) {
        let now = Kubernetes::read(&self.cluster, &self.cluster_uid);
        let mut seen = self.seen.lock().unwrap();
        (seen.services, seen.nodes) = (now.services, now.nodes);
    }

    fn no_harm(&self) -> Result<(), String> {
        let harm = self.seen.lock().unwrap().harm.join("\n");
        if harm.is_empty() { Ok(()) } else { Err(harm) }
    }

    /// Services for which it holds now, and by what `ccm` read last: the rest of a plan is executed over several ticks.
    fn of_both(&self, holds: impl Fn(&Value) -> bool) -> Option<Value> {
        let now = self.cluster.list("services", NAMESPACE);
        let seen = self.seen.lock().unwrap();
        let mut both = now.into_iter().filter(|one| wants(one) && holds(one));
        both.find(|one| {
            let mut known = seen.services.iter();
            let known = known.find(|old| old["metadata"]["uid"] == one["metadata"]["uid"]);
            known.is_some_and(|old| wants(old) && holds(old))
        })
    }

    fn harm_in_cloud(&self, request: &Request) -> Option<String> {
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let Some(rest) = request.path.strip_prefix("/v1/load_balancers") else {
            return Some("not about load balancers".into());
        };
        let mut parts = rest.split('/').skip(1);
        let Some(id) = parts.next().and_then(|id| id.parse::<u64>().ok()) else {
            return self.harm_of_creation(&body);
        };
        let balancer = self.cloud.load_balancer(id);
        if balancer.is_null() {
            return None;
        }
        let is_theirs = is_of_others(&balancer);
        if balancer["name"] == CLOSED {
            return Some("its owner does not allow it".into());
        }
        let port = number(&body["listen_port"]);
        let name_of = |one: Value| one["metadata"]["name"].clone();
        match (request.method.as_str(), parts.nth(1)) {
            ("DELETE", _) if balancer["labels"][CREATED].is_null() => Some("not ours".into()),
            ("DELETE", _) => {
                let user = self.of_both(|one| shows(one, &balancer));
                user.map(|one| format!("Service {} shows its address", name_of(one)))
            }
            ("PUT", _) => {
                let keys: Vec<&String> = body
                    .as_object()
                    .into_iter()
                    .flatten()
                    .map(|(key, _)| key)
                    .collect();
                if is_theirs && keys != ["labels"] {
                    return Some(format!("sets {keys:?}"));
                }
                let labels = balancer["labels"].as_object().unwrap().iter();
                let mut of_others =
                    labels.filter(|(label, _)| !is_ours(label) || *label == EXTERNAL);
                let lost =
                    of_others.find(|(label, value)| body["labels"][label.as_str()] != **value);
                lost.map(|(label, _)| format!("label {label} is lost"))
            }
            (_, Some("add_service" | "update_service" | "delete_service"))
                if is_theirs && port == THEIR_PORT =>
            {
                Some("a port of others".into())
            }
            (_, Some("delete_service")) => {
                let user = self.of_both(|one| {
                    *owner(&balancer, port) == one["metadata"]["uid"]
                        && shows(one, &balancer)
                        && served(&balancer, one).contains(&port)
                });
                user.map(|one| format!("port {port} is served for {}", name_of(one)))
            }
            (_, Some("add_service")) => {
                if !owner(&balancer, port).is_null() {
                    return None;
                }
                let mut seen = self.seen.lock().unwrap();
                if is_theirs && seen.terraform {
                    // It came between the two, and this port has no label either.
                    seen.forgotten
                        .insert((port, number(&body["destination_port"])));
                    return None;
                }
                Some(format!("port {port} comes before its label"))
            }
            (_, Some("update_service")) => {
                let to = &body["destination_port"];
                let of_other = self.of_both(|one| {
                    let mut ports = list(&one["spec"]["ports"]).iter();
                    let has_it = ports.any(|one| one["port"] == port && one["nodePort"] == *to);
                    *owner(&balancer, port) == one["metadata"]["uid"] && to.is_u64() && !has_it
                });
                of_other.map(|one| format!("port {port} is of {}", name_of(one)))
            }
            (_, Some("remove_target")) => self.harm_of_removal(&balancer, &body, is_theirs),
            (_, Some("add_target")) => None,
            (_, Some(action)) if is_theirs => Some(format!("{action} on what is not ours")),
            _ => None,
        }
    }

    fn harm_of_removal(&self, balancer: &Value, body: &Value, is_theirs: bool) -> Option<String> {
        let removed = body["server"]["id"].as_u64()?;
        let foreign = self.cloud.servers(self.project);
        let mut foreign = foreign.iter().filter(|one| one["name"] == "foreign");
        if is_theirs && foreign.any(|one| one["id"] == removed) {
            return Some("a target of others".into());
        }
        let alive = end::alive(&self.cloud.servers(self.project));
        let nodes = [
            self.cluster.list("nodes", None),
            self.seen.lock().unwrap().nodes.clone(),
        ];
        let user = self.of_both(|one| {
            shows(one, balancer)
                && !served(balancer, one).is_empty()
                && nodes
                    .iter()
                    .all(|nodes| servers(one, nodes, &alive).contains(&removed))
        });
        user.map(|one| format!("server {removed} serves {}", one["metadata"]["name"]))
    }

    fn harm_of_creation(&self, body: &Value) -> Option<String> {
        let labels = &body["labels"];
        if labels[CREATED].is_null() {
            return Some(format!("without label {CREATED}"));
        }
        let all = self.cloud.load_balancers(self.project);
        let same = [GROUP, SERVICE_UID].into_iter().find(|label| {
            // The API refuses a second one of a name.
            let others = all.iter().filter(|one| one["name"] != body["name"]);
            // A Service leaves its group's, which others use by now.
            let is_left = |one: &&Value| *label == SERVICE_UID && !one["labels"][GROUP].is_null();
            let mut others = others.filter(|one| !is_left(one));
            !labels[label].is_null() && others.any(|one| one["labels"][label] == labels[label])
        });
        same.map(|label| format!("a second one with {label}={}", labels[label]))
    }

    fn harm_in_cluster(&self, request: &Request) -> Option<String> {
        let path = "/api/v1/namespaces/default/services/";
        let name = request.path.strip_prefix(path)?.strip_suffix("/status")?;
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let service = self.cluster.get("services", NAMESPACE, name)?;
        if service["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]
            || !wants(&service)
        {
            return None;
        }
        if let Some(finalizers) = body["metadata"]["finalizers"].as_array() {
            let is_kept = finalizers.iter().any(|one| one == FINALIZER);
            return (!is_kept).then(|| "its finalizer goes, and it wants a load balancer".into());
        }
        let ingress = body["status"]["loadBalancer"].get("ingress")?;
        let mut moved = service.clone();
        moved["status"]["loadBalancer"]["ingress"] = ingress.clone();
        let all = self.cloud.load_balancers(self.project);
        let at = |service: &Value| {
            let balancer = all.iter().find(|one| shows(service, one));
            balancer.map_or(BTreeSet::new(), |one| served(one, service))
        };
        let (old, new) = (at(&service), at(&moved));
        let lost: Vec<&u64> = old.difference(&new).collect();
        (!lost.is_empty()).then(|| format!("ports {lost:?} of {name} are not served at {ingress}"))
    }
}

fn is_right(sandbox: &Sandbox, forgotten: &BTreeSet<(u64, u64)>) -> Result<(), String> {
    let services = sandbox.cluster().list("services", NAMESPACE);
    let all = sandbox.cloud().load_balancers(sandbox.project());
    let living: Vec<&Value> = services.iter().filter(|one| wants(one)).collect();
    for service in &services {
        let name = &service["metadata"]["name"];
        let is_right = match wants(service) {
            true => is_served(service, &living, &all),
            false if has_finalizer(service) => Err("it has our finalizer".to_owned()),
            false => Ok(()),
        };
        is_right.map_err(|why| format!("Service {name}: {why}"))?;
    }
    let ours = cluster_uid(sandbox);
    let known = Kubernetes::read(sandbox.cluster(), &ours);
    for balancer in &all {
        let name = &balancer["name"];
        let wanting = |uid: &Value| known.service(uid).filter(|one| wants(one));
        let labels = balancer["labels"].as_object().unwrap().iter();
        let mut uids = labels.filter(|(label, _)| label.starts_with(PORT) || *label == SERVICE_UID);
        if let Some((label, uid)) = uids.find(|(_, uid)| wanting(uid).is_none()) {
            return Err(format!(
                "load balancer {name} has label {label}={uid} of no living Service"
            ));
        }
        for listener in list(&balancer["services"]) {
            let port = number(&listener["listen_port"]);
            let is_theirs = is_of_others(balancer) && port == THEIR_PORT;
            let is_forgotten =
                owner(balancer, port).is_null() && forgotten.contains(&both_numbers(listener));
            let of = wanting(owner(balancer, port));
            // A Service that may not have what it asks for stays where it is, as it is: see `is_served`.
            let asks_for_other = |of: &Value| {
                let asked = &of["metadata"]["annotations"][format!("{PREFIX}external")];
                *asked == CLOSED && shows(of, balancer)
            };
            let is_right =
                of.is_some_and(|of| served(balancer, of).contains(&port) || asks_for_other(of));
            if !is_right && !is_theirs && !is_forgotten {
                return Err(format!(
                    "load balancer {name} has port {port} of no living Service"
                ));
            }
        }
        for label in [GROUP, SERVICE_UID] {
            let value = &balancer["labels"][label];
            let same = all.iter().filter(|one| one["labels"][label] == *value);
            if !value.is_null() && same.count() > 1 {
                return Err(format!("two load balancers with {label}={value}"));
            }
        }
    }
    Ok(())
}

/// Each of its ports is served where its status says so, but for those that another one has. A Service may ask for what
/// it can't have, and stays where it is.
fn is_served(service: &Value, living: &[&Value], all: &[Value]) -> Result<(), String> {
    let annotation = |one: &Value, name: &str| {
        let value = one["metadata"]["annotations"][format!("{PREFIX}{name}")].as_str();
        value.map(|value| value.trim_start_matches("default/").to_owned())
    };
    let asks = |one: &Value| (annotation(one, "share"), annotation(one, "external"));
    let (share, external) = asks(service);
    let uid = &service["metadata"]["uid"];
    let is_closed = external.as_deref() == Some(CLOSED);
    let at = all.iter().find(|one| shows(service, one));
    if at.is_none() && !list(&service["status"]["loadBalancer"]["ingress"]).is_empty() {
        return Err("its status has an address of no load balancer".into());
    }
    if is_closed && at.is_none() {
        return Ok(());
    }
    if !has_finalizer(service) && !is_closed {
        return Err("no finalizer".into());
    }
    let is_wanted = |at: &Value| match (&share, &external) {
        (Some(name), _) => at["labels"][GROUP] == format!("default.{name}"),
        (None, Some(name)) => at["name"] == *name,
        (None, None) => at["labels"][SERVICE_UID] == *uid,
    };
    let wanted = all.iter().find(|one| is_wanted(one));
    // By another Service that asks for the same, or by whoever has it there.
    let is_taken = |port: u64| {
        let is_other = |one: &Value| one["metadata"]["uid"] != *uid;
        let mut group = living.iter().filter(|one| asks(one) == asks(service));
        let asked = group.any(|one| {
            let mut ports = list(&one["spec"]["ports"]).iter();
            is_other(one) && ports.any(|own| own["port"] == port)
        });
        let is_there = wanted.is_some_and(|wanted| {
            let mut ports = list(&wanted["services"]).iter();
            ports.any(|one| one["listen_port"] == port) && owner(wanted, port) != uid
        });
        (share.is_some() || external.is_some()) && (asked || is_there)
    };
    let served = at.map_or(BTreeSet::new(), |at| {
        let mut served = served(at, service);
        served.retain(|port| owner(at, *port) == uid);
        served
    });
    let ports = list(&service["spec"]["ports"]).iter();
    let ports: Vec<u64> = ports.map(|port| number(&port["port"])).collect();
    let is_blocked = is_closed || ports.iter().any(|port| is_taken(*port));
    let mut missing = ports.iter().filter(|port| !served.contains(port));
    let has_port = |one: &Value| {
        let mut ports = list(&one["services"]).iter();
        ports.any(|port| owner(one, number(&port["listen_port"])) == uid)
    };
    match at {
        None if all.iter().any(has_port) => Err("it is served, and its status is empty".to_owned()),
        Some(at) if !is_wanted(at) && is_blocked => Ok(()),
        Some(at) if !is_wanted(at) => Err(format!("it is at {}", at["name"])),
        _ => match missing.find(|port| !is_taken(**port)) {
            Some(port) => Err(format!("port {port} is not served")),
            None => Ok(()),
        },
    }
}

/// And where no Service uses it any more it is as it was; which targets were there before is not known any more once
/// Terraform removed that label.
fn of_others_is_as_before(
    sandbox: &Sandbox,
    before: &[Value; 2],
    terraform_ran: bool,
    forgotten: &BTreeSet<(u64, u64)>,
) -> Result<(), String> {
    let [open, closed] = before;
    let now = as_it_is(sandbox, CLOSED);
    if now != *closed {
        return Err(format!("{CLOSED} was {closed}, and is {now}"));
    }
    let mut now = as_it_is(sandbox, OPEN);
    let is_theirs = |one: &Value| one["listen_port"] == THEIR_PORT;
    let ports = now["services"].as_array_mut().unwrap();
    ports.retain(|one| is_theirs(one) || !forgotten.contains(&both_numbers(one)));
    for part in [
        "name",
        "load_balancer_type",
        "algorithm",
        "public_net",
        "private_net",
        "protection",
    ] {
        if now[part] != open[part] {
            return Err(format!(
                "{OPEN}: {part} was {}, and is {}",
                open[part], now[part]
            ));
        }
    }
    let lacks = |part: &str| {
        list(&open[part])
            .iter()
            .any(|one| !list(&now[part]).contains(one))
    };
    if lacks("services") || !targets(open).is_subset(&targets(&now)) {
        return Err(format!("{OPEN} was {open}, and is {now}"));
    }
    let services = sandbox.cluster().list("services", NAMESPACE);
    let asks = |one: &Value| {
        let annotation = &one["metadata"]["annotations"][format!("{PREFIX}external")];
        wants(one) && *annotation == OPEN
    };
    let is_used = services.iter().any(asks)
        || now["labels"]
            .as_object()
            .unwrap()
            .keys()
            .any(|label| label.starts_with(PORT));
    if is_used {
        return Ok(());
    }
    let parts: &[&str] = if terraform_ran {
        &["labels", "services"]
    } else {
        &["labels", "services", "targets"]
    };
    match parts.iter().find(|part| now[**part] != open[**part]) {
        None => Ok(()),
        Some(part) => Err(format!(
            "{OPEN}: {part} was {}, and is {}",
            open[*part], now[*part]
        )),
    }
}
