//! Certificate requests of kubelets, honest ones and hostile ones. Addresses move between servers, Nodes claim servers of
//! others, and people approve and deny requests, too.
//!
//! The judge computes from the simulated cloud alone which names a server has. What a request asks for it reads with
//! `x509-parser`, which `ccm` does not use.

use super::{Topic, Verdict, nodes};
use crate::random::Random;
use crate::requests;
use ccm::kube::AltName;
use sandbox::exchange::Request;
use sandbox::hetzner::ServerSpec;
use sandbox::kubelet::{CertificateAsk, NodeSpec, sign_approved};
use sandbox::kubernetes::PolicyRule;
use sandbox::{Builder, Half, Sandbox};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Mutex;
use std::time::Instant;

const REQUESTS: &str = "certificatesigningrequests";
const PATH: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const SERVING: &str = "kubernetes.io/kubelet-serving";

/// The number of nodes that ask for certificates.
const NODES: u64 = 4;

/// Returns the name of the node with this number. One of them has a name of the API server.
fn node_name(number: u64) -> String {
    if number == 2 { "kubernetes".to_owned() } else { format!("n-{number}") }
}

/// How many requests events create at most, and how many there are at most with those of the busy node. The answer with
/// all of them must be smaller than what a process may have more in memory when nothing changes.
const OF_EVENTS: usize = 20;
const OF_ALL: usize = 40;

/// A node that asks for a new certificate before each read of the requests, in some stories.
const BUSY: &str = "n-0";

/// A hostile node. Its kubelet has created its Node with the provider ID of another node's server, or without a server.
const HOSTILE: &str = "zz-hostile";

/// How many requests of a node are approved at most. The stories delete no request, so the approved ones are counted.
const APPROVALS_AT_MOST: usize = 10;

/// How many approvals of people and of another process one process may not have seen yet.
const UNSEEN: usize = 4;

/// How many rounds more a process works when a node is busy.
const ROUNDS: u64 = 14;

pub struct Certificates {
    is_busy: bool,
    /// Whether the provider ID of the hostile node names the server of another node.
    hostile_has_id: bool,
    history: Mutex<History>,
}

#[derive(Default)]
struct History {
    /// The cloud at each moment at which it may have changed.
    clouds: Vec<(Instant, Cloud)>,
    process: String,
    /// When each process first saw each request, by the names of both.
    seen: BTreeMap<(String, String), Instant>,
    approvals: u64,
    /// Whether the busy node asks no more, because everything shall converge.
    is_quiet: bool,
}

/// The servers by their names, each with its provider ID and with the addresses that the cloud states for it.
type Cloud = BTreeMap<String, (String, Vec<Stated>)>;

#[derive(Clone, Copy)]
enum Stated {
    Address(IpAddr),
    /// A network of IPv6 with 64 bits.
    Network(Ipv6Addr),
}

impl Stated {
    fn has(self, ip: IpAddr) -> bool {
        match (self, ip) {
            (Stated::Address(own), ip) => own == ip,
            (Stated::Network(network), IpAddr::V6(ip)) => {
                network.segments()[..4] == ip.segments()[..4] && network != ip
            }
            (Stated::Network(_), IpAddr::V4(_)) => false,
        }
    }

    fn example(self) -> String {
        match self {
            Stated::Address(ip) => ip.to_string(),
            Stated::Network(network) => Ipv6Addr::from(u128::from(network) + 1).to_string(),
        }
    }
}

fn cloud(sandbox: &Sandbox) -> Cloud {
    let network = sandbox.network();
    let servers = sandbox.cloud().servers(sandbox.project()).into_iter();
    servers
        .map(|server| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let public = &server["public_net"];
            let mut stated = Vec::new();
            if let Ok(ip) = text(&public["ipv4"]["ip"]).parse() {
                stated.push(Stated::Address(ip));
            }
            if let Some(ip) = text(&public["ipv6"]["ip"]).strip_suffix("/64") {
                stated.push(Stated::Network(ip.parse().unwrap()));
            }
            for private in server["private_net"].as_array().into_iter().flatten() {
                if private["network"].as_u64() == network {
                    stated.push(Stated::Address(text(&private["ip"]).parse().unwrap()));
                }
            }
            let id = format!("{}{}", nodes::invariants::PREFIX, server["id"]);
            (text(&server["name"]), (id, stated))
        })
        .collect()
}

/// Whether the cloud states this name for the server of this name.
fn is_stated(cloud: &Cloud, node: &str, name: &AltName) -> bool {
    let Some((_, stated)) = cloud.get(node) else { return false };
    match name {
        AltName::Dns(dns) => dns.eq_ignore_ascii_case(node) && dns != "kubernetes",
        AltName::Ip(ip) => stated.iter().any(|own| own.has(*ip)),
    }
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn node_of(request: &Value) -> Option<&str> {
    request["spec"]["username"].as_str()?.strip_prefix("system:node:")
}

fn has(request: &Value, kind: &str) -> bool {
    let conditions = request["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|one| one["type"] == kind))
}

fn is_pending(request: &Value) -> bool {
    !has(request, "Approved") && !has(request, "Denied")
}

fn is_serving(request: &Value) -> bool {
    request["spec"]["signerName"] == SERVING
}

/// Returns why the request is not one of this node's kubelet for names that this cloud states.
fn unproven(cloud: &Cloud, request: &Value) -> Option<String> {
    let spec = &request["spec"];
    let node = node_of(request)?;
    let usages: BTreeSet<&str> =
        spec["usages"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let without_third = usages.iter().filter(|usage| **usage != "key encipherment");
    if !without_third.eq(["digital signature", "server auth"].iter()) {
        return Some(format!("usages {usages:?}"));
    }
    match requests::read_by_other(spec["request"].as_str().unwrap_or_default()) {
        Err(why) => Some(why),
        Ok(content) if content.common_name != format!("system:node:{node}") => {
            Some(format!("common name {}", content.common_name))
        }
        Ok(content) => {
            let mut names = content.names.iter();
            names.find(|name| !is_stated(cloud, node, name)).map(|name| format!("name {name}"))
        }
    }
}

impl Certificates {
    pub fn generate(random: &mut Random) -> Certificates {
        Certificates {
            is_busy: random.percent(35),
            hostile_has_id: random.percent(70),
            history: Mutex::default(),
        }
    }

    fn note_cloud(&self, sandbox: &Sandbox) {
        let now = (sandbox::time::now(), cloud(sandbox));
        self.history.lock().unwrap().clouds.push(now);
    }

    /// Returns why this approval violates an invariant.
    fn violation(&self, sandbox: &Sandbox, name: &str, body: &Value) -> Option<String> {
        let stored = sandbox.cluster().get(REQUESTS, None, name)?;
        if body["metadata"]["resourceVersion"].as_str().is_none() {
            return Some("without a version".into());
        }
        if body["metadata"]["resourceVersion"] != stored["metadata"]["resourceVersion"] {
            // The API server refuses it.
            return None;
        }
        if !is_serving(&stored) {
            return Some(format!("it is for {}", stored["spec"]["signerName"]));
        }
        if has(body, "Denied") || !is_pending(&stored) {
            return Some("it denies, or somebody has decided before".into());
        }
        let Some(node) = node_of(&stored) else {
            return Some(format!("its user is {}", stored["spec"]["username"]));
        };
        let id = sandbox.cluster().get("nodes", None, node);
        let id = id.and_then(|node| Some(node["spec"]["providerID"].as_str()?.to_owned()));
        if self.hostile_has_id && node == node_name(1) {
            return Some("another node has its provider ID".into());
        }
        self.note_cloud(sandbox);
        let mut history = self.history.lock().unwrap();
        let process = history.process.clone();
        let Some(since) = history.seen.get(&(process.clone(), name.to_owned())).copied() else {
            return Some("the process has not seen it".into());
        };
        // The cloud that was valid when the process first saw the request, and all later ones.
        let first = history.clouds.iter().rposition(|(at, _)| *at <= since).unwrap_or(0);
        let mut why = None;
        let is_proven = history.clouds[first..].iter().any(|(_, cloud)| {
            let own = cloud.get(node).map(|(id, _)| id);
            why = unproven(cloud, &stored);
            if id.is_some() && own != id.as_ref() {
                why = Some(format!("the node's provider ID is {id:?}, and its server is {own:?}"));
            }
            why.is_none()
        });
        if !is_proven {
            return Some(format!("the cloud does not prove it: {why:?}"));
        }
        history.approvals += 1;
        let all = sandbox.cluster().list(REQUESTS, None);
        let own = all.iter().filter(|it| node_of(it) == Some(node) && has(it, "Approved"));
        let count = own.count();
        let at_most = APPROVALS_AT_MOST + UNSEEN;
        (count >= at_most).then(|| format!("{node} has {count} approved requests already"))
    }

    /// Returns a random list of names for a hostile request of this node.
    fn hostile_names(sandbox: &Sandbox, random: &mut Random, node: &str) -> Vec<String> {
        let cloud = cloud(sandbox);
        let of = |name: &str| cloud.get(name).map(|(_, stated)| stated.clone()).unwrap_or_default();
        let other = node_name(random.below(NODES));
        // The network address of the node's own network belongs to no machine.
        let own_network = || {
            of(node).into_iter().filter_map(|stated| match stated {
                Stated::Network(network) => Some(network.to_string()),
                Stated::Address(_) => None,
            })
        };
        let mapped = of(node).into_iter().filter_map(|stated| match stated {
            Stated::Address(IpAddr::V4(ip)) => Some(format!("::ffff:{ip}")),
            _ => None,
        });
        let mut names: Vec<String> = match random.below(9) {
            0 => of(&other).into_iter().map(Stated::example).collect(),
            1 => vec![other],
            2 => vec!["kubernetes.default.svc".into(), "10.96.0.1".into()],
            3 => vec![format!("*.{node}"), "*".into()],
            4 => vec!["localhost".into(), "127.0.0.1".into()],
            5 => vec![format!("{node}.example.com"), format!("{node}.")],
            6 => {
                ["192.168.7.7".to_owned(), "10.0.0.251".into()].into_iter().chain(mapped).collect()
            }
            7 => own_network().collect(),
            _ => vec!["kubernetes".into()],
        };
        if random.percent(50) {
            names.insert(random.below(names.len() as u64 + 1) as usize, node.to_owned());
        }
        names
    }

    fn ask(sandbox: &Sandbox, node: &str, names: &[String]) -> Option<String> {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let ask = (!names.is_empty()).then(|| CertificateAsk::of(node, &names))?;
        Some(ask.create(sandbox.cluster()))
    }

    /// Asks for the name of the node and for all addresses that the cloud states for its server.
    fn ask_honestly(sandbox: &Sandbox, node: &str) -> Option<String> {
        let cloud = cloud(sandbox);
        let stated = cloud.get(node)?.1.iter();
        let names: Vec<String> =
            [node.to_owned()].into_iter().chain(stated.map(|one| one.example())).collect();
        Certificates::ask(sandbox, node, &names)
    }
}

impl Topic for Certificates {
    fn configure(&self, builder: Builder) -> Builder {
        builder.network("10.0.0.0/8")
    }

    fn set_up(&self, sandbox: &Sandbox) {
        let rule = |resource: &str, verb: &str, names: &[&str]| {
            let rule = json!({ "apiGroups": ["certificates.k8s.io"], "resources": [resource], "verbs": [verb], "resourceNames": names });
            serde_json::from_value::<PolicyRule>(rule).unwrap()
        };
        let rights = vec![
            rule(REQUESTS, "list", &[]),
            rule(&format!("{REQUESTS}/approval"), "update", &[]),
            rule("signers", "approve", &[SERVING]),
        ];
        sandbox.cluster().grant("ccm", rights);
        for n in 0..NODES {
            let name = node_name(n);
            let networks = sandbox.network().map(|id| (id, None)).into_iter().collect();
            let spec = ServerSpec { name: name.clone(), networks, ..ServerSpec::default() };
            let id = sandbox.cloud().create_server(sandbox.project(), spec);
            let provider_id = format!("{}{id}", nodes::invariants::PREFIX);
            sandbox.register_node(NodeSpec {
                name,
                server: Some(id),
                provider_id: Some(provider_id.clone()),
                ..NodeSpec::default()
            });
            if n == 1 && self.hostile_has_id {
                let (name, provider_id) = (HOSTILE.to_owned(), Some(provider_id));
                sandbox.register_node(NodeSpec { name, provider_id, ..NodeSpec::default() });
            }
        }
        self.note_cloud(sandbox);
    }

    fn approves_certificates(&self) -> bool {
        true
    }

    fn more_rounds(&self, random: &mut Random) -> u64 {
        if self.is_busy && random.percent(60) { ROUNDS } else { 0 }
    }

    fn process_works(&self, name: &str) {
        name.clone_into(&mut self.history.lock().unwrap().process);
    }

    fn before_read(&self, sandbox: &Sandbox, request: &Request) {
        if request.path != PATH || request.query("includeObject").is_none() {
            return;
        }
        let now = sandbox::time::now();
        let mut history = self.history.lock().unwrap();
        let count = sandbox.cluster().list(REQUESTS, None).len();
        if self.is_busy && !history.is_quiet && count < OF_ALL {
            Certificates::ask_honestly(sandbox, BUSY);
        }
        let process = history.process.clone();
        for request in sandbox.cluster().list(REQUESTS, None) {
            let key = (process.clone(), name_of(&request).to_owned());
            history.seen.entry(key).or_insert(now);
        }
    }

    fn repair(&self, _: &Sandbox) {
        self.history.lock().unwrap().is_quiet = true;
    }

    fn apply_event(&self, sandbox: &Sandbox, random: &mut Random, _: bool) -> String {
        let cluster = sandbox.cluster();
        let node = match random.percent(15) {
            true => HOSTILE.to_owned(),
            false => node_name(random.below(NODES)),
        };
        let choice = random.below(11);
        let is_full = cluster.list(REQUESTS, None).len() >= OF_EVENTS;
        let line = match choice {
            0..=6 if is_full => "nobody asks, because there are enough requests".to_owned(),
            0..=2 => {
                format!("{node} asks honestly: {:?}", Certificates::ask_honestly(sandbox, &node))
            }
            3 | 4 => {
                let names = Certificates::hostile_names(sandbox, random, &node);
                let asked = Certificates::ask(sandbox, &node, &names);
                format!("{node} asks for {names:?}: {asked:?}")
            }
            5 => {
                let mut ask = CertificateAsk::of(&node, &[&node]);
                match random.below(4) {
                    0 => ask.signer = "kubernetes.io/kube-apiserver-client-kubelet".into(),
                    1 => ask.usages = vec!["client auth".into(), "digital signature".into()],
                    2 => {
                        ask.common_name = format!("system:node:{}", node_name(random.below(NODES)))
                    }
                    _ => ask.organisation = "system:masters".into(),
                }
                format!("{node} asks in another form: {}", ask.create(cluster))
            }
            6 => {
                let count = 1 + random.below(10);
                for _ in 0..count {
                    let names = Certificates::hostile_names(sandbox, random, &node);
                    Certificates::ask(sandbox, &node, &names);
                }
                format!("{node} asks {count} times")
            }
            7 => {
                // The address of a server moves to another server, whose kubelet has asked for it before.
                let (from, to) = (random.below(NODES), random.below(NODES));
                let named = |n: u64| {
                    let servers = sandbox.cloud().servers(sandbox.project());
                    servers.into_iter().find(|one| one["name"] == node_name(n))
                };
                if let (Some(old), Some(new), true) = (named(from), named(to), from != to) {
                    let address = old["public_net"]["ipv4"].clone();
                    if let Some(ip) = address["ip"].as_str() {
                        Certificates::ask(sandbox, &node_name(to), &[ip.to_owned()]);
                        Certificates::ask_honestly(sandbox, &node_name(from));
                    }
                    for (server, address) in [(&old, Value::Null), (&new, address)] {
                        sandbox.cloud().edit_server(server["id"].as_u64().unwrap(), |server| {
                            server["public_net"]["ipv4"] = address.clone();
                        });
                    }
                }
                format!("the address of n-{from} moves to n-{to}")
            }
            8 => {
                // A person, or another approver, decides.
                let kind = if random.percent(50) { "Approved" } else { "Denied" };
                let all = cluster.list(REQUESTS, None).into_iter();
                let pending: Vec<Value> = all.filter(is_pending).collect();
                for request in pending.iter().take(2) {
                    cluster.edit(REQUESTS, None, name_of(request), |request| {
                        request["status"]["conditions"] =
                            json!([{ "type": kind, "status": "True" }]);
                    });
                }
                format!("{kind} by a person: {}", pending.len().min(2))
            }
            9 => {
                sign_approved(cluster);
                "the signer signs".to_owned()
            }
            _ => {
                let name = format!("renamed-{}", random.below(100));
                let named = |server: &Value| server["name"] == *node;
                let server = sandbox.cloud().servers(sandbox.project()).into_iter().find(named);
                let id = server.and_then(|server| server["id"].as_u64());
                if let Some(id) = id.filter(|_| node == "n-3") {
                    sandbox.cloud().edit_server(id, |server| server["name"] = json!(name));
                }
                format!("the server of n-3 is renamed to {name}, perhaps")
            }
        };
        self.note_cloud(sandbox);
        line
    }

    fn check_write(&self, sandbox: &Sandbox, half: Half, request: &Request) -> Verdict {
        let Some(rest) = request.path.strip_prefix(PATH).filter(|_| half == Half::Kubernetes)
        else {
            return nodes::check_write(sandbox, half, request, &Vec::new());
        };
        let name = rest.trim_start_matches('/').strip_suffix("/approval");
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        Verdict::from_violation(match (request.method.as_str(), name) {
            ("PUT", Some(name)) => self.violation(sandbox, name, &body),
            _ => Some("only approvals are written".into()),
        })
    }

    fn check_end_state(&self, sandbox: &Sandbox) -> Result<(), String> {
        let (cloud, cluster) = (cloud(sandbox), sandbox.cluster());
        let all: Vec<Value> = cluster.list(REQUESTS, None).into_iter().filter(is_serving).collect();
        let ids: Vec<(String, Value)> = cluster
            .list("nodes", None)
            .iter()
            .map(|node| (name_of(node).to_owned(), node["spec"]["providerID"].clone()))
            .collect();
        for (node, id) in &ids {
            let own: Vec<&Value> = all.iter().filter(|it| node_of(it) == Some(node)).collect();
            let approved = own.iter().filter(|it| has(it, "Approved")).count();
            let pending = own.iter().filter(|it| is_pending(it));
            let key = |it: &&&Value| {
                (it["metadata"]["creationTimestamp"].to_string(), name_of(it).to_owned())
            };
            let Some(newest) = pending.max_by_key(key) else { continue };
            // A kubelet does not wait for a request when somebody has decided about a newer one.
            let is_newer = |it: &&&Value| !is_pending(it) && key(it).0 > key(&newest).0;
            if own.iter().any(|it| is_newer(&it)) {
                continue;
            }
            let is_alone = ids.iter().filter(|(_, other)| other == id).count() == 1;
            let has_server = cloud.get(node).is_some_and(|(server, _)| *id == **server);
            let why = unproven(&cloud, newest);
            if is_alone && has_server && approved < APPROVALS_AT_MOST && why.is_none() {
                return Err(format!("{} of {node} is proven and pending", name_of(newest)));
            }
        }
        Ok(())
    }

    fn counts(&self, _: &Sandbox) -> BTreeMap<&'static str, u64> {
        let approvals = self.history.lock().unwrap().approvals;
        BTreeMap::from([("certificates approved", approvals)])
    }
}
