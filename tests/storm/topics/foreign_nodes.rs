//! Nodes of other providers as targets. Their kubelets report addresses of other servers, of none and of all. Other
//! nodes claim their servers, servers exchange their names, and nodes are deleted and join again.
//!
//! The judge keeps what both APIs showed lately. A plan can rest on any of these nodes together with any of these
//! servers, so a write is wrong only when it is wrong for each such pair.

use super::cluster::{
    EXCLUDED, NAMESPACE, PERMANENT_NODE, join, list, server, services, targets, wants_balancer,
};
use super::nodes::invariants::{PREFIX, node_written};
use super::{Topic, Verdict, nodes, targets::users};
use crate::random::Random;
use ccm::controllers::node::UNINITIALIZED;
use ccm::hetzner::load_balancers::annotations::PREFIX as ANNOTATIONS;
use ccm::provider::ForeignNodes;
use ipnet::IpNet;
use sandbox::exchange::Request;
use sandbox::kubelet::NodeSpec;
use sandbox::{Half, Sandbox};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The number of nodes of other providers that events change.
const NODES: u64 = 4;

/// A node of another provider that no event changes. It proves that the project is the right one.
const PERMANENT: &str = "f-8";

/// The servers on which no node runs.
const FREE: [&str; 2] = ["free-0", "free-1"];

/// A load balancer without labels, whose only target is the server of [`PERMANENT`]. A Service names it.
const PLANTED: &str = "planted";

/// How old the lists may be on which the rest of a plan rests.
const PLAN_AGE: Duration = Duration::from_secs(60);

/// For how long a process is paused at most while it carries out a plan.
const PAUSE_AT_MOST: Duration = Duration::from_secs(90);

pub struct ForeignTargets {
    /// Whether a node of ours exists, beside those of other providers.
    has_own_node: bool,
    /// The names of the Services at the start.
    services: Vec<&'static str>,
    history: Mutex<History>,
}

/// What both APIs showed lately, the newest last.
#[derive(Default)]
struct History {
    nodes: Vec<(Instant, Vec<SeenNode>)>,
    servers: Vec<(Instant, Vec<SeenServer>)>,
    /// Since when the API server shows old nodes, and until when.
    stale: Option<(Instant, Option<Instant>)>,
    /// How many targets were added and removed.
    added: u64,
    removed: u64,
}

#[derive(Clone, Debug, PartialEq)]
struct SeenNode {
    name: String,
    id: Claim,
    /// Whether the node has the taint `uninitialized`.
    is_new: bool,
    /// Whether the node is neither excluded nor being deleted.
    is_offered: bool,
    addresses: Vec<IpAddr>,
}

/// What the provider ID of a node says.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Claim {
    Server(u64),
    Foreign,
    None,
}

#[derive(Clone, Debug, PartialEq)]
struct SeenServer {
    id: u64,
    name: String,
    nets: Vec<IpNet>,
}

/// How a node joins.
#[derive(Clone, Copy, Debug)]
enum Kind {
    K3s,
    /// The node of another provider still has the taint `uninitialized`.
    K3sTainted,
    /// The node has neither a provider ID nor a taint.
    Bare,
    /// The node waits for a provider ID of ours.
    New,
}

/// The nodes and the servers on which one plan can rest.
#[derive(Clone, Copy)]
struct View<'a> {
    nodes: &'a [SeenNode],
    servers: &'a [SeenServer],
}

impl SeenNode {
    /// Whether the node is of another provider, so that nothing may be written to it.
    fn is_candidate(&self) -> bool {
        self.id == Claim::Foreign || self.id == Claim::None && !self.is_new
    }

    fn read(node: &Value) -> SeenNode {
        let id = node["spec"]["providerID"].as_str().unwrap_or_default();
        let number = id.strip_prefix(PREFIX).and_then(|number| number.parse().ok());
        let metadata = &node["metadata"];
        let excluded = metadata["labels"][EXCLUDED].as_str();
        let addresses = list(&node["status"]["addresses"]).iter();
        let addresses = addresses.filter_map(|address| address["address"].as_str()?.parse().ok());
        SeenNode {
            name: text(&metadata["name"]),
            id: match number {
                Some(number) => Claim::Server(number),
                None if id.is_empty() => Claim::None,
                None => Claim::Foreign,
            },
            is_new: is_new(node),
            is_offered: excluded.is_none_or(|value| value == "false")
                && metadata["deletionTimestamp"].is_null(),
            addresses: addresses.collect(),
        }
    }
}

impl SeenServer {
    fn read(server: &Value) -> SeenServer {
        let public = &server["public_net"];
        let ipv4 = public["ipv4"]["ip"].as_str().and_then(|ip| ip.parse::<IpAddr>().ok());
        let ipv6 = public["ipv6"]["ip"].as_str().and_then(|net| net.parse::<IpNet>().ok());
        SeenServer {
            id: server["id"].as_u64().unwrap_or_default(),
            name: text(&server["name"]),
            nets: ipv4.map(IpNet::from).into_iter().chain(ipv6).collect(),
        }
    }

    fn has_one_of(&self, addresses: &[IpAddr]) -> bool {
        addresses.iter().any(|ip| self.nets.iter().any(|net| net.contains(ip)))
    }
}

impl<'a> View<'a> {
    fn node(self, name: &str) -> Option<&'a SeenNode> {
        self.nodes.iter().find(|node| node.name == name)
    }

    fn named(self, name: &'a str) -> impl Iterator<Item = &'a SeenServer> {
        self.servers.iter().filter(move |server| server.name == name)
    }

    fn claims(self, id: u64) -> impl Iterator<Item = &'a SeenNode> {
        self.nodes.iter().filter(move |node| node.id == Claim::Server(id))
    }

    /// Returns the node of another provider that has the name of this server.
    fn candidate(self, id: u64) -> Option<&'a SeenNode> {
        let server = self.servers.iter().find(|server| server.id == id)?;
        self.node(&server.name).filter(|node| node.is_candidate())
    }

    /// Whether a target stays because an offered node of another provider has the server's name.
    fn stays_by_name(self, id: u64) -> bool {
        self.candidate(id).is_some_and(|node| node.is_offered)
    }

    /// Whether the server belongs to an offered node of ours. When several nodes name the server, one may have it.
    fn is_claimed(self, id: u64) -> bool {
        self.claims(id).any(|node| node.is_offered)
    }

    /// Whether it is certain that the node runs on the server that has its name.
    fn is_matched(self, node: &'a SeenNode) -> bool {
        let mut named = self.named(&node.name);
        let (Some(server), None) = (named.next(), named.next()) else {
            return false;
        };
        let mut others = self.servers.iter().filter(|other| other.id != server.id);
        self.claims(server.id).next().is_none()
            && server.has_one_of(&node.addresses)
            && !others.any(|other| other.has_one_of(&node.addresses))
    }

    /// Whether the server may become a target.
    fn may_be_added(self, id: u64) -> bool {
        match self.candidate(id) {
            Some(node) => node.is_offered && self.is_matched(node),
            None => self.is_claimed(id),
        }
    }

    /// Whether the server must be a target when everything has converged.
    fn must_be_target(self, id: u64) -> bool {
        let exists = self.servers.iter().any(|server| server.id == id);
        exists && self.may_be_added(id) && self.claims(id).nth(1).is_none()
    }

    /// Whether the server may be a target when everything has converged.
    fn may_be_target(self, id: u64) -> bool {
        self.stays_by_name(id) || self.is_claimed(id)
    }

    /// Whether a new node without a provider ID may get this server.
    fn may_get(self, node: &'a SeenNode, id: u64) -> bool {
        let others = || self.nodes.iter().filter(|other| other.name != node.name);
        let mut named = self.named(&node.name);
        if let Some(server) = named.next() {
            let is_initialised = |other: &SeenNode| !other.is_new;
            return server.id == id
                && named.next().is_none()
                && !self.claims(id).any(is_initialised);
        }
        let is_free = |server: &&SeenServer| {
            self.claims(server.id).next().is_none() && self.node(&server.name).is_none()
        };
        let mut such = self.servers.iter().filter(is_free);
        let mut such = such.by_ref().filter(|server| server.has_one_of(&node.addresses));
        let (Some(server), None) = (such.next(), such.next()) else {
            return false;
        };
        // A node that has its server by its ID or name does not contend for another one.
        let is_unmatched = |other: &&SeenNode| {
            !matches!(other.id, Claim::Server(_)) && self.named(&other.name).next().is_none()
        };
        let mut rivals = others().filter(is_unmatched);
        server.id == id && !rivals.any(|rival| server.has_one_of(&rival.addresses))
    }
}

impl History {
    /// Notes what both APIs show now.
    fn note(&mut self, sandbox: &Sandbox) {
        let now = sandbox::time::now();
        let nodes = sandbox.cluster().list("nodes", None);
        let nodes: Vec<SeenNode> = nodes.iter().map(SeenNode::read).collect();
        if self.nodes.last().is_none_or(|(_, last)| *last != nodes) {
            self.nodes.push((now, nodes));
        }
        let servers = sandbox.cloud().servers(sandbox.project());
        let servers: Vec<SeenServer> = servers.iter().map(SeenServer::read).collect();
        if self.servers.last().is_none_or(|(_, last)| *last != servers) {
            self.servers.push((now, servers));
        }
        match &mut self.stale {
            Some((_, until @ None)) if !sandbox.cluster().is_cache_frozen() => *until = Some(now),
            _ => {}
        }
    }

    /// Returns all pairs of nodes and servers on which a plan can rest that is carried out now.
    fn views(&self) -> impl Iterator<Item = View<'_>> {
        let now = sandbox::time::now();
        let is_recent =
            move |at: Instant| now.saturating_duration_since(at) <= PLAN_AGE + PAUSE_AT_MOST;
        let stale = self.stale.filter(|(_, until)| until.is_none_or(is_recent));
        let old = stale.map(|(since, _)| since);
        // What was shown first ended when something else was shown.
        let nodes = self.nodes.iter().enumerate().filter(move |(place, _)| {
            let end = self.nodes.get(place + 1);
            end.is_none_or(|(end, _)| is_recent(*end) || old.is_some_and(|old| *end >= old))
        });
        let servers = move || {
            self.servers.iter().enumerate().filter(move |(place, _)| {
                self.servers.get(place + 1).is_none_or(|(end, _)| is_recent(*end))
            })
        };
        nodes.flat_map(move |(_, (_, nodes))| {
            servers().map(move |(_, (_, servers))| View { nodes, servers })
        })
    }

    /// Returns the view of this moment.
    fn now(&self) -> View<'_> {
        let last = self.nodes.last().zip(self.servers.last());
        let ((_, nodes), (_, servers)) = last.expect("it was noted");
        View { nodes, servers }
    }
}

impl ForeignTargets {
    pub fn generate(random: &mut Random) -> ForeignTargets {
        let mut services = vec!["own"];
        if random.percent(50) {
            services.push("other");
        }
        if random.percent(50) {
            services.push(PLANTED);
        }
        let has_own_node = random.percent(50);
        ForeignTargets { has_own_node, services, history: Mutex::default() }
    }

    /// Notes what both APIs show now, and returns everything that they showed lately.
    fn history(&self, sandbox: &Sandbox) -> MutexGuard<'_, History> {
        let mut history = self.history.lock().unwrap();
        history.note(sandbox);
        history
    }

    /// Returns why these servers must not become targets, or `None`.
    fn violation_by_addition(&self, sandbox: &Sandbox, added: &[u64]) -> Option<String> {
        let history = &mut *self.history(sandbox);
        history.added += added.len() as u64;
        let is_wrong = |id: &&u64| !history.views().any(|view| view.may_be_added(**id));
        let wrong = added.iter().find(is_wrong)?;
        Some(format!("no node is certain to run on server {wrong}"))
    }

    /// Returns why the target must not be removed, or `None`.
    fn violation_by_removal(&self, sandbox: &Sandbox, balancer: u64, id: u64) -> Option<String> {
        let all = sandbox.cloud().load_balancers(sandbox.project());
        let balancer = all.iter().find(|one| one["id"] == balancer)?;
        // A Service that leaves its load balancer removes its targets.
        let is_used = users(sandbox, balancer).iter().any(wants_balancer);
        // The answer to a removal can be lost. Then the target is gone when its removal is tried again.
        if !is_used || !targets(balancer).contains(&id) {
            return None;
        }
        let history = &mut *self.history(sandbox);
        history.removed += 1;
        let stays = history.views().all(|view| view.stays_by_name(id));
        stays.then(|| format!("an offered node of another provider has the name of server {id}"))
    }

    fn check_node_write(&self, sandbox: &Sandbox, name: &str, request: &Request) -> Verdict {
        let Some(node) = sandbox.cluster().get("nodes", None, name) else {
            return Verdict::Allowed;
        };
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let version = match request.method.as_str() {
            "DELETE" => &body["preconditions"]["resourceVersion"],
            _ => &body["metadata"]["resourceVersion"],
        };
        // The API server refuses a write that names another version.
        if version.is_string() && *version != node["metadata"]["resourceVersion"] {
            return Verdict::Allowed;
        }
        let seen = SeenNode::read(&node);
        if seen.is_candidate() {
            return Verdict::Violation("it is a node of another provider".into());
        }
        let history = self.history(sandbox);
        let written = body["spec"]["providerID"].as_str().and_then(|id| id.strip_prefix(PREFIX));
        if let (Some(number), Claim::None) = (written, seen.id) {
            let id = number.parse().unwrap_or_default();
            let may = |view: View| view.node(name).is_none_or(|node| view.may_get(node, id));
            return Verdict::from_violation(
                (!history.views().any(may)).then(|| format!("it must not get server {id}")),
            );
        }
        let taints = &body["spec"]["taints"];
        let keeps_taint = || list(taints).iter().any(|taint| taint["key"] == UNINITIALIZED);
        // Over sockets a node gets its taint a moment after it was created.
        if let Claim::Server(id) = seen.id
            && seen.is_new
            && taints.is_array()
            && !keeps_taint()
            && sandbox::time::is_simulated()
        {
            let is_of_another = |view: View| {
                let named = view.servers.iter().find(|server| server.id == id);
                let is_only = named.is_some_and(|server| view.named(&server.name).count() == 1);
                let is_claimed = view.claims(id).any(|other| other.name != name && !other.is_new);
                is_claimed || is_only && view.candidate(id).is_some()
            };
            if history.views().all(is_of_another) {
                let why = format!("it is initialised, and server {id} is of another node");
                return Verdict::Violation(why);
            }
        }
        drop(history);
        nodes::check_write(sandbox, Half::Kubernetes, request, &Vec::new())
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn is_new(node: &Value) -> bool {
    list(&node["spec"]["taints"]).iter().any(|taint| taint["key"] == UNINITIALIZED)
}

fn edit(sandbox: &Sandbox, name: &str, change: impl FnMut(&mut Value)) {
    sandbox.cluster().edit("nodes", None, name, change);
}

fn server_id(sandbox: &Sandbox, name: &str) -> Option<u64> {
    super::cluster::server_named(sandbox, name)
}

/// Returns an address of the server, of either family.
fn address(sandbox: &Sandbox, random: &mut Random, name: &str) -> Option<String> {
    let servers = sandbox.cloud().servers(sandbox.project());
    let server = servers.iter().find(|server| server["name"] == name)?;
    let public = &server["public_net"];
    match random.percent(25) {
        true => Some(public["ipv6"]["ip"].as_str()?.replace("/64", "1")),
        false => public["ipv4"]["ip"].as_str().map(str::to_owned),
    }
}

/// The kubelet of the node reports these addresses from now on.
fn report(sandbox: &Sandbox, name: &str, addresses: &[String]) {
    let of = |ip: &String| json!({ "type": "InternalIP", "address": ip });
    let mut addresses: Vec<Value> = addresses.iter().map(of).collect();
    addresses.push(json!({ "type": "Hostname", "address": name }));
    edit(sandbox, name, |node| node["status"]["addresses"] = json!(addresses));
}

/// Registers a node. Over sockets no other kind of node is seen in between.
fn register(sandbox: &Sandbox, name: &str, kind: Kind, addresses: &[String]) {
    sandbox.register_node(NodeSpec {
        name: name.to_owned(),
        server: server_id(sandbox, name),
        provider_id: match kind {
            Kind::New => None,
            _ => Some(format!("k3s://{name}")),
        },
        internal_ip: addresses.first().cloned(),
        ..NodeSpec::default()
    });
    match kind {
        Kind::Bare => edit(sandbox, name, |node| {
            node["spec"].as_object_mut().expect("an object").remove("providerID");
        }),
        Kind::K3sTainted => set_taint(sandbox, name),
        Kind::K3s | Kind::New => {}
    }
    report(sandbox, name, addresses);
}

fn set_taint(sandbox: &Sandbox, name: &str) {
    sandbox.cluster().set_taint(name, UNINITIALIZED, "true", "NoSchedule");
}

fn create_service(sandbox: &Sandbox, name: &str, port: u64) {
    let mut metadata = json!({ "name": name, "namespace": "default" });
    if name == PLANTED {
        metadata["annotations"] = json!({ format!("{ANNOTATIONS}name"): PLANTED });
    }
    sandbox.cluster().create(
        "services",
        NAMESPACE,
        json!({
            "metadata": metadata,
            "spec": { "type": "LoadBalancer", "ports": [{ "name": "web", "port": port }] },
        }),
    );
}

/// Returns a name of a server or node that events change.
fn any_name(random: &mut Random) -> String {
    match random.percent(20) {
        true => (*random.pick(&FREE)).to_owned(),
        false => format!("f-{}", random.below(NODES)),
    }
}

/// Returns addresses for the kubelet of this node: its own, others, all, or none.
fn some_addresses(sandbox: &Sandbox, random: &mut Random, name: &str) -> Vec<String> {
    let other = any_name(random);
    let choice = random.below(10);
    let names: Vec<String> = match choice {
        0..4 => vec![name.to_owned()],
        4 => vec![other],
        5 | 6 => vec![name.to_owned(), other],
        7 => {
            let servers = sandbox.cloud().servers(sandbox.project());
            servers.iter().map(|server| text(&server["name"])).collect()
        }
        8 => Vec::new(),
        _ => return vec!["10.9.9.9".to_owned()],
    };
    names.iter().filter_map(|name| address(sandbox, random, name)).collect()
}

/// Gives the server another name, and the server that has this name the name of the first one.
fn exchange_names(sandbox: &Sandbox, one: u64, to: &str) {
    let servers = sandbox.cloud().servers(sandbox.project());
    let from =
        servers.iter().find(|server| server["id"] == one).map(|server| text(&server["name"]));
    let other = server_id(sandbox, to);
    let rename = |id: u64, name: &str| {
        sandbox.cloud().edit_server(id, |server| server["name"] = json!(name));
    };
    rename(one, to);
    if let (Some(other), Some(from)) = (other, from) {
        rename(other, &from);
    }
}

/// A node with our provider ID that names the server of another node, or a server without a node.
fn rival_event(sandbox: &Sandbox, random: &mut Random) -> String {
    let cluster = sandbox.cluster();
    let name = format!("evil-{}", random.below(2));
    if cluster.delete("nodes", None, &name) {
        return format!("{name} is deleted");
    }
    let of = any_name(random);
    if random.percent(25) {
        // No server has its name, so it gets a server by its address.
        let addresses: Vec<String> = address(sandbox, random, &of).into_iter().collect();
        register(sandbox, &name, Kind::New, &addresses);
        return format!("{name} joins without a provider ID and reports an address of {of}");
    }
    let Some(id) = server_id(sandbox, &of) else {
        return "nothing".into();
    };
    sandbox.register_node(NodeSpec {
        name: name.clone(),
        provider_id: Some(format!("{PREFIX}{id}")),
        ..NodeSpec::default()
    });
    let is_new = random.percent(70);
    if is_new {
        set_taint(sandbox, &name);
    }
    format!("{name} joins and claims server {id} of {of}, new {is_new}")
}

/// Something happens to the name or the existence of a server.
fn server_event(sandbox: &Sandbox, random: &mut Random) -> String {
    let cloud = sandbox.cloud();
    let (name, other) = (any_name(random), any_name(random));
    let Some(id) = server_id(sandbox, &name) else {
        server(sandbox, &name);
        return format!("server {name} is created");
    };
    match random.below(6) {
        0 | 1 => {
            exchange_names(sandbox, id, &other);
            format!("servers {name} and {other} exchange their names")
        }
        2 => {
            let to = format!("{name}-renamed");
            exchange_names(sandbox, id, &to);
            format!("server {name} has the name {to}")
        }
        3 => {
            let second = server(sandbox, "second");
            cloud.edit_server(second, |server| server["name"] = json!(name));
            format!("server {second} is a second one with the name {name}")
        }
        4 => {
            // The oldest server of each name stays.
            let servers = cloud.servers(sandbox.project());
            let mut names = BTreeSet::new();
            let seconds = servers.iter().filter(|server| !names.insert(text(&server["name"])));
            seconds
                .filter_map(|server| server["id"].as_u64())
                .for_each(|id| cloud.delete_server(id));
            "no two servers have the same name".into()
        }
        _ => {
            cloud.delete_server(id);
            sandbox.kubelets().expire();
            format!("server {name} is deleted")
        }
    }
}

impl Topic for ForeignTargets {
    fn foreign_nodes(&self) -> ForeignNodes {
        ForeignNodes::Match
    }

    fn set_up(&self, sandbox: &Sandbox) {
        let names = (0..NODES).map(|n| format!("f-{n}")).chain([PERMANENT.to_owned()]);
        for (n, name) in names.enumerate() {
            server(sandbox, &name);
            let kind = if n % 3 == 2 { Kind::Bare } else { Kind::K3s };
            let addresses = address(sandbox, &mut Random::new(n as u64), &name);
            register(sandbox, &name, kind, &addresses.into_iter().collect::<Vec<_>>());
        }
        for name in FREE {
            server(sandbox, name);
        }
        if self.has_own_node {
            join(sandbox, PERMANENT_NODE);
        }
        let id = server_id(sandbox, PERMANENT);
        let body = json!({
            "name": PLANTED, "load_balancer_type": "lb11", "location": "fsn1",
            "targets": [{ "type": "server", "server": { "id": id } }],
        });
        sandbox.cloud().create_load_balancer(sandbox.project(), body);
        for (n, name) in self.services.iter().enumerate() {
            create_service(sandbox, name, 80 + n as u64);
        }
    }

    fn starts_converged(&self) -> bool {
        true
    }

    /// A process that works for a short time sees few of the lists that follow an event.
    fn more_rounds(&self, random: &mut Random) -> u64 {
        *random.pick(&[0, 0, 10])
    }

    fn may_die_late(&self) -> bool {
        true
    }

    fn phase_starts(&self, sandbox: &Sandbox) {
        let mut history = self.history(sandbox);
        if sandbox.cluster().is_cache_frozen() {
            history.stale = Some((sandbox::time::now(), None));
        }
    }

    fn apply_event(&self, sandbox: &Sandbox, random: &mut Random, _: bool) -> String {
        drop(self.history(sandbox));
        let cluster = sandbox.cluster();
        let name = format!("f-{}", random.below(NODES));
        let exists = cluster.get("nodes", None, &name).is_some();
        let line = match random.below(20) {
            0..4 => server_event(sandbox, random),
            4..8 => rival_event(sandbox, random),
            8 | 9 => {
                let service = *random.pick(&["late-0", "late-1"]);
                match cluster.get("services", NAMESPACE, service).is_some() {
                    true => cluster.delete("services", NAMESPACE, service),
                    false => {
                        create_service(sandbox, service, 90);
                        true
                    }
                };
                format!("Service {service} is created or deleted")
            }
            _ if !exists => {
                let kind = *random.pick(&[
                    Kind::K3s,
                    Kind::K3s,
                    Kind::K3s,
                    Kind::K3sTainted,
                    Kind::Bare,
                    Kind::Bare,
                    Kind::New,
                ]);
                let addresses = some_addresses(sandbox, random, &name);
                register(sandbox, &name, kind, &addresses);
                format!("{name} joins: {kind:?} with {addresses:?}")
            }
            10..16 => {
                let addresses = some_addresses(sandbox, random, &name);
                report(sandbox, &name, &addresses);
                format!("{name} reports {addresses:?}")
            }
            16 | 17 => {
                let value = *random.pick(&["true", "", "false", "false"]);
                edit(sandbox, &name, |node| {
                    node["metadata"]["labels"][EXCLUDED] = json!(value);
                });
                format!("{name} has the label {EXCLUDED}={value:?}")
            }
            _ => {
                cluster.delete("nodes", None, &name);
                format!("{name} is deleted")
            }
        };
        drop(self.history(sandbox));
        line
    }

    fn restored(&self, sandbox: &Sandbox) {
        drop(self.history(sandbox));
    }

    fn check_write(&self, sandbox: &Sandbox, half: Half, request: &Request) -> Verdict {
        if half == Half::Kubernetes {
            return match node_written(request) {
                Some(name) => self.check_node_write(sandbox, name, request),
                None if request.path.contains("/services/") => Verdict::Allowed,
                None => Verdict::Unrelated,
            };
        }
        if !request.path.starts_with("/v1/load_balancers") {
            return Verdict::Unrelated;
        }
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let id = request.path.split('/').nth(3).and_then(|id| id.parse().ok()).unwrap_or_default();
        let all = sandbox.cloud().load_balancers(sandbox.project());
        if all.iter().any(|one| one["id"] == id && one["name"] == PLANTED) {
            return Verdict::Violation("nothing proves that it is of this cluster".into());
        }
        let server = |target: &Value| target["server"]["id"].as_u64();
        let added: Vec<u64> = list(&body["targets"]).iter().filter_map(server).collect();
        let violation = match (request.path.rsplit('/').next(), server(&body)) {
            (Some("remove_target"), Some(server)) => self.violation_by_removal(sandbox, id, server),
            (Some("add_target"), Some(server)) => self.violation_by_addition(sandbox, &[server]),
            (Some("load_balancers"), _) => self.violation_by_addition(sandbox, &added),
            _ => None,
        };
        Verdict::from_violation(violation)
    }

    fn check_end_state(&self, sandbox: &Sandbox) -> Result<(), String> {
        let history = self.history(sandbox);
        let view = history.now();
        for balancer in sandbox.cloud().load_balancers(sandbox.project()) {
            let (name, there) = (&balancer["name"], targets(&balancer));
            if users(sandbox, &balancer).is_empty() {
                continue;
            }
            if let Some(id) = there.iter().find(|id| !view.may_be_target(**id)) {
                return Err(format!("{name}: server {id} is a target"));
            }
            let mut servers = view.servers.iter();
            let is_left_out = |server: &&SeenServer| {
                view.must_be_target(server.id) && !there.contains(&server.id)
            };
            if let Some(server) = servers.find(is_left_out) {
                return Err(format!("{name}: server {} is no target", server.id));
            }
        }
        let is_served = |service: &Value| {
            let ingress = &service["status"]["loadBalancer"]["ingress"];
            service["metadata"]["name"] == PLANTED || !list(ingress).is_empty()
        };
        let all = services(sandbox);
        let mut wanting = all.iter().filter(|service| wants_balancer(service));
        match wanting.find(|service| !is_served(service)) {
            Some(service) => Err(format!("{} has no address", service["metadata"]["name"])),
            None => Ok(()),
        }
    }

    fn counts(&self, _: &Sandbox) -> BTreeMap<&'static str, u64> {
        let history = self.history.lock().unwrap();
        [
            ("targets added beside nodes of other providers", history.added),
            ("targets removed beside nodes of other providers", history.removed),
        ]
        .into()
    }
}
