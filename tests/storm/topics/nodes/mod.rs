//! Nodes on cloud servers and on dedicated servers. They join, are initialised, labelled and switched off, lose their
//! servers, and come back under the same names.

pub(super) mod invariants;
mod out_of_service;
mod wrong_answers;

use super::{Topic, Verdict};
use crate::random::Random;
use ccm::controllers::node::UNINITIALIZED;
use invariants::{PREFIX, node_written, servers, violation_by};
use out_of_service::OutOfService;
use sandbox::exchange::Request;
use sandbox::faults::{Effect, Rule};
use sandbox::hetzner::{Cloud, ServerSpec};
use sandbox::kubelet::NodeSpec;
use sandbox::kubernetes::Cluster;
use sandbox::{Builder, Half, Sandbox};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
const POOL: &str = "node.example.com/pool";

/// The number of nodes that events change.
const CHANGING_NODES: u64 = 7;

pub struct Nodes {
    nodes: Vec<StoryNode>,
    has_dedicated: bool,
    /// Whether the project has more servers than one page of a list.
    many_servers: bool,
    /// The labels that servers had before they were changed.
    former: Mutex<invariants::Servers>,
    /// The servers that stay off, in a story in which nodes are taken out of service.
    out_of_service: Option<OutOfService>,
}

struct StoryNode {
    name: String,
    initial: InitialState,
    /// Whether the node runs on a dedicated server.
    is_dedicated: bool,
    labels: Labels,
}

/// Where the label comes from that a server may set on its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Labels {
    /// Neither the server nor the node has the label.
    None,
    OfServer,
    /// A person set the label on the node before.
    OfPerson,
}

/// The state of a node and its server at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InitialState {
    /// The node is not initialised yet.
    New,
    Initialised,
    /// The server was deleted.
    ServerDeleted,
    Off,
    /// The server runs, and the kubelet reports nothing.
    NotReady,
    /// The node is ready again, but still has the shutdown taint.
    ReadyButTainted,
    /// The node is not initialised, and no server has its name.
    WithoutServer,
    NotReadyWithoutServer,
    /// The node's provider ID names no server of ours, and the node is not ready.
    ForeignProviderId(&'static str),
}

const INITIAL_STATES: [InitialState; 14] = [
    InitialState::New,
    InitialState::New,
    InitialState::Initialised,
    InitialState::ServerDeleted,
    InitialState::ServerDeleted,
    InitialState::Off,
    InitialState::NotReady,
    InitialState::NotReady,
    InitialState::ReadyButTainted,
    InitialState::WithoutServer,
    InitialState::NotReadyWithoutServer,
    InitialState::ForeignProviderId("aws:///eu-central-1a/i-0abc"),
    InitialState::ForeignProviderId("ccm-from-scratch://not-a-number"),
    InitialState::ForeignProviderId("hrobot://not-a-number"),
];

impl Nodes {
    pub fn generate(random: &mut Random, two_at_once: bool, is_real: bool) -> Nodes {
        let has_dedicated = random.percent(40);
        let mut nodes: Vec<StoryNode> = (0..2 + random.below(5))
            .map(|n| StoryNode {
                name: format!("n-{n}"),
                initial: *random.pick(&INITIAL_STATES),
                is_dedicated: has_dedicated && random.percent(50),
                labels: *random.pick(&[Labels::None, Labels::OfServer, Labels::OfPerson]),
            })
            .collect();
        // No event changes these nodes, so that some server of each API is always visible.
        let anchors = [("anchor-1", false), ("anchor-2", false)];
        let is_dedicated = [("anchor-3", true), ("anchor-4", true)];
        let is_dedicated = is_dedicated.into_iter().filter(|_| has_dedicated);
        for (name, is_dedicated) in anchors.into_iter().chain(is_dedicated) {
            let place = random.below(nodes.len() as u64 + 1) as usize;
            let member = StoryNode {
                name: name.into(),
                initial: InitialState::NotReady,
                is_dedicated,
                labels: Labels::OfServer,
            };
            nodes.insert(place, member);
        }
        let many_servers = random.percent(8);
        let has_long_rounds = random.percent(30) && !is_real;
        let out_of_service = has_long_rounds.then(|| OutOfService::new(two_at_once));
        Nodes { nodes, has_dedicated, many_servers, former: Mutex::default(), out_of_service }
    }
}

impl Topic for Nodes {
    fn configure(&self, builder: Builder) -> Builder {
        match self.has_dedicated {
            true => builder.serve_robot(),
            false => builder,
        }
    }

    fn set_up(&self, sandbox: &Sandbox) {
        if self.many_servers {
            for n in 0..50 {
                create_server(sandbox.cloud(), sandbox.project(), &format!("other-{n}"));
            }
        }
        self.nodes.iter().for_each(|member| member.join(sandbox));
        // Hetzner may assign the number of a dedicated server again. The simulation does not.
        for member in self.nodes.iter().filter(|member| member.is_dedicated) {
            let number = sandbox.robot().number_of(&member.name);
            if let (InitialState::ServerDeleted, Some(number)) = (member.initial, number) {
                sandbox.robot().remove(number);
            }
        }
        if self.nodes.len() % 2 == 1 {
            join_duplicate(sandbox, "anchor-1");
        }
        sandbox.kubelets().expire();
        for member in &self.nodes {
            match member.initial {
                InitialState::NotReady
                | InitialState::NotReadyWithoutServer
                | InitialState::ForeignProviderId(_) => mark_not_ready(sandbox, &member.name),
                InitialState::ReadyButTainted => edit(sandbox, &member.name, |node| {
                    node["spec"]["taints"] = json!([{ "key": SHUTDOWN, "effect": "NoSchedule" }]);
                }),
                _ => {}
            }
        }
        if let Some(out_of_service) = &self.out_of_service {
            out_of_service.set_up(sandbox);
        }
    }

    fn out_of_service_after(&self) -> Option<Duration> {
        self.out_of_service.as_ref().map(|_| out_of_service::AFTER)
    }

    fn more_rounds(&self, random: &mut Random) -> u64 {
        match &self.out_of_service {
            Some(_) if random.percent(50) => out_of_service::ROUNDS,
            _ => 0,
        }
    }

    fn apply_event(&self, sandbox: &Sandbox, random: &mut Random, _: bool) -> String {
        if let Some(out_of_service) = self.out_of_service.as_ref().filter(|_| random.percent(25)) {
            return out_of_service.apply_event(sandbox, random);
        }
        let name = format!("n-{}", random.below(CHANGING_NODES));
        let node = sandbox.cluster().get("nodes", None, &name);
        let host = Host::of_node(sandbox, &name);
        let choice = random.below(12);
        match (choice, node, host) {
            (0 | 1, None, host) => {
                let member = StoryNode {
                    name: name.clone(),
                    initial: *random.pick(&[
                        InitialState::New,
                        InitialState::New,
                        InitialState::WithoutServer,
                    ]),
                    is_dedicated: match host {
                        None => self.has_dedicated && random.percent(40),
                        Some(host) => matches!(host, Host::Dedicated(_)),
                    },
                    labels: Labels::None,
                };
                member.join(sandbox);
                format!("{name} joins: {:?}, dedicated {}", member.initial, member.is_dedicated)
            }
            (2, _, Some(host)) => {
                self.set_power(sandbox, host, false);
                sandbox.kubelets().expire();
                format!("{name} is switched off")
            }
            (3, _, Some(host)) => {
                self.set_power(sandbox, host, true);
                sandbox.kubelets().heartbeat();
                format!("{name} is switched on")
            }
            (4 | 5, _, Some(host)) => {
                host.delete(sandbox);
                sandbox.kubelets().expire();
                format!("the server of {name} is deleted")
            }
            (6, Some(_), _) => {
                mark_not_ready(sandbox, &name);
                format!("{name} falls silent")
            }
            (7, Some(_), _) => {
                let value = random.below(9).to_string();
                edit(sandbox, &name, |node| {
                    node["metadata"]["labels"]["team"] = json!(value);
                });
                format!("{name} has label team={value}")
            }
            (8 | 9, _, Some(Host::Server(id))) => {
                let value = random.percent(60).then(|| random.below(9).to_string());
                let line = format!("the server of {name} has label {value:?}");
                let is_it = |one: &(String, String, bool, Value)| one.0 == format!("{PREFIX}{id}");
                let before = servers(sandbox).into_iter().filter(is_it);
                self.former.lock().unwrap().extend(before);
                label_server(sandbox, id, value);
                line
            }
            (10, Some(_), _) => {
                sandbox.cluster().delete("nodes", None, &name);
                format!("node {name} is deleted")
            }
            (11, Some(_), Some(Host::Server(_))) => {
                replace_node(sandbox.cloud(), sandbox.cluster(), sandbox.project(), &name);
                format!("{name} is replaced")
            }
            _ => format!("nothing happens to {name}"),
        }
    }

    fn inject_faults(&self, sandbox: &Sandbox, random: &mut Random) {
        // A wrong answer about a server prevents that its node is taken out of service.
        if self.out_of_service.is_none() || random.percent(40) {
            wrong_answers::inject(sandbox, random);
        }
        if self.many_servers && random.percent(70) {
            shift_pages(sandbox, random.below(50));
        }
        if random.percent(50) {
            let name = format!("n-{}", random.below(CHANGING_NODES));
            replaced_before_a_write(sandbox, name, random.percent(50));
        }
        if let Some(out_of_service) = self.out_of_service.as_ref().filter(|it| !it.two_at_once) {
            out_of_service.inject_faults(sandbox, random);
        }
    }

    fn repair(&self, sandbox: &Sandbox) {
        // A node with the provider ID of another server of the same name was made by another program.
        sandbox.kubelets().expire();
    }

    fn check_write(&self, sandbox: &Sandbox, half: Half, request: &Request) -> Verdict {
        let former = self.former.lock().unwrap();
        let out_of_service = self.out_of_service.as_ref();
        let verdict = check_write_after_reads(sandbox, half, request, &former, out_of_service);
        match (&self.out_of_service, verdict) {
            (Some(out_of_service), Verdict::Allowed) => {
                Verdict::from_violation(out_of_service.violation_by(sandbox, request))
            }
            (_, verdict) => verdict,
        }
    }

    fn counts(&self, _: &Sandbox) -> BTreeMap<&'static str, u64> {
        let count = self.out_of_service.as_ref().map_or(0, OutOfService::count);
        BTreeMap::from([("nodes taken out of service", count)])
    }

    fn check_end_state(&self, sandbox: &Sandbox) -> Result<(), String> {
        check_nodes(sandbox)
    }
}

impl Nodes {
    fn set_power(&self, sandbox: &Sandbox, host: Host, is_on: bool) {
        match &self.out_of_service {
            Some(out_of_service) => drop(out_of_service.set_power(sandbox, Some(host), is_on)),
            None => host.set_power(sandbox, is_on),
        }
    }
}

/// A new Node with the provider ID of an initialised node. Nothing may ever be written to the new Node.
const DUPLICATE: &str = "zz-second";

fn join_duplicate(sandbox: &Sandbox, of: &str) {
    let node = sandbox.cluster().get("nodes", None, of).unwrap();
    let id = node["spec"]["providerID"].as_str().unwrap().to_owned();
    sandbox.register_node(NodeSpec {
        name: DUPLICATE.into(),
        provider_id: Some(id),
        ..NodeSpec::default()
    });
    edit(sandbox, DUPLICATE, |node| {
        node["spec"]["taints"] = json!([{ "key": UNINITIALIZED, "effect": "NoSchedule" }]);
    });
}

/// Checks a write to a node of any topic. `former` contains the labels that servers had before.
pub(super) fn check_write(
    sandbox: &Sandbox,
    half: Half,
    request: &Request,
    former: &invariants::Servers,
) -> Verdict {
    check_write_after_reads(sandbox, half, request, former, None)
}

/// The same, for a story in which nodes are taken out of service. `out_of_service` knows which servers `ccm` may take
/// for off although they were switched on. Without it, only the present state of a server counts.
fn check_write_after_reads(
    sandbox: &Sandbox,
    half: Half,
    request: &Request,
    former: &invariants::Servers,
    out_of_service: Option<&OutOfService>,
) -> Verdict {
    let Some(name) = node_written(request).filter(|_| half == Half::Kubernetes) else {
        return Verdict::Unrelated;
    };
    if name == DUPLICATE {
        return Verdict::from_violation(Some("another node has its server".into()));
    }
    let node = sandbox.cluster().get("nodes", None, name);
    let mut servers = servers(sandbox);
    for (id, _, is_off, _) in &mut servers {
        let number = id.strip_prefix(PREFIX).and_then(|id| id.parse().ok());
        let was_read_off = |it: &OutOfService| it.was_read_off(sandbox, number.unwrap_or(0));
        *is_off |= out_of_service.is_some_and(was_read_off);
    }
    for former in former {
        if servers.iter().any(|(id, ..)| *id == former.0) {
            servers.push(former.clone());
        }
    }
    Verdict::from_violation(violation_by(request, node.as_ref(), &servers))
}

/// Checks all nodes after everything has converged.
pub(super) fn check_nodes(sandbox: &Sandbox) -> Result<(), String> {
    let all = servers(sandbox);
    for node in sandbox.cluster().list("nodes", None) {
        let name = node["metadata"]["name"].as_str().unwrap();
        check_node(sandbox, &node, &all).map_err(|why| format!("node {name}: {why}: {node}"))?;
    }
    Ok(())
}

fn check_node(sandbox: &Sandbox, node: &Value, all: &invariants::Servers) -> Result<(), String> {
    let name = node["metadata"]["name"].as_str().unwrap();
    let has_taint = |key: &str| {
        let taints = node["spec"]["taints"].as_array();
        taints.is_some_and(|taints| taints.iter().any(|taint| taint["key"] == key))
    };
    if name == DUPLICATE {
        let is_new = has_taint(UNINITIALIZED);
        return is_new.then_some(()).ok_or("it is initialised".into());
    }
    let conditions = node["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    let is_ready = conditions.any(|one| one["type"] == "Ready" && one["status"] == "True");
    let Some(id) = node["spec"]["providerID"].as_str() else {
        let named = all.iter().filter(|(_, other, ..)| other == name);
        let named: Vec<&str> = named.map(|(id, ..)| id.as_str()).collect();
        return match named[..] {
            // When two servers have the name, it is unknown which one is meant. A dedicated server must have
            // the node's address.
            [id] if id.starts_with(PREFIX) => Err("it is not initialised, and has a server".into()),
            _ if has_taint(UNINITIALIZED) => Ok(()),
            _ => Err("it is initialised without a server".into()),
        };
    };
    let numbers = [PREFIX, "hrobot://"].map(|prefix| id.strip_prefix(prefix));
    let mut numbers = numbers.into_iter().flatten();
    if !numbers.any(|number| number.parse::<u64>().is_ok()) {
        return Ok(());
    }
    let Some((.., labels)) = all.iter().find(|(other, ..)| other == id) else {
        return match is_ready {
            true => Ok(()),
            false => Err("it is there without its server".into()),
        };
    };
    if has_taint(UNINITIALIZED) {
        return Err("it is not initialised".into());
    }
    if node["status"]["addresses"].as_array().is_none_or(Vec::is_empty) {
        return Err("it has no address".into());
    }
    let is_off = Host::by_id(id).is_some_and(|host| host.is_off(sandbox));
    out_of_service::check_node(node, is_off)?;
    // A node that was off keeps its taint until it is ready again, because nothing proves that it works.
    if has_taint(SHUTDOWN) && is_ready || is_off && !is_ready && !has_taint(SHUTDOWN) {
        return Err(format!("ready {is_ready}, off {is_off}"));
    }
    let (have, want) = (&node["metadata"]["labels"][POOL], &labels[POOL]);
    let is_person_s = !have.is_null() && {
        let of_server = node["metadata"]["annotations"]["instance.hetzner.cloud/server-labels"]
            .as_str()
            .unwrap_or_default();
        !of_server.split(',').any(|one| one.starts_with(POOL))
    };
    match labels.is_null() || is_person_s || have == want {
        true => Ok(()),
        false => Err(format!("label {POOL} is {have}, and its server's {want}")),
    }
}

/// The server that a node runs on.
#[derive(Clone, Copy)]
enum Host {
    Server(u64),
    Dedicated(u32),
}

impl Host {
    fn of_node(sandbox: &Sandbox, name: &str) -> Option<Host> {
        if let Some(number) = sandbox.robot().number_of(name) {
            return Some(Host::Dedicated(number as u32));
        }
        let servers = sandbox.cloud().servers(sandbox.project());
        let own = servers.iter().find(|server| server["name"] == name)?;
        own["id"].as_u64().map(Host::Server)
    }

    fn by_id(provider_id: &str) -> Option<Host> {
        if let Some(number) = provider_id.strip_prefix("hrobot://") {
            return number.parse().ok().map(Host::Dedicated);
        }
        let id = provider_id.strip_prefix(PREFIX)?;
        id.parse().ok().map(Host::Server)
    }

    fn set_power(self, sandbox: &Sandbox, on: bool) {
        match self {
            Host::Dedicated(number) => sandbox.robot().set_power(number.into(), on),
            Host::Server(id) => sandbox.cloud().set_power(id, on),
        }
    }

    fn delete(self, sandbox: &Sandbox) {
        match self {
            Host::Dedicated(number) => sandbox.robot().remove(number.into()),
            Host::Server(id) => sandbox.cloud().delete_server(id),
        }
    }

    /// Whether the server is off. Robot's API does not tell whether a dedicated server is off.
    fn is_off(self, sandbox: &Sandbox) -> bool {
        match self {
            Host::Dedicated(_) => false,
            Host::Server(id) => {
                let servers = sandbox.cloud().servers(sandbox.project());
                let mut off = servers.iter().filter(|server| server["status"] == "off");
                off.any(|server| server["id"] == id)
            }
        }
    }
}

impl StoryNode {
    fn join(&self, sandbox: &Sandbox) {
        let has_server = !matches!(
            self.initial,
            InitialState::WithoutServer
                | InitialState::NotReadyWithoutServer
                | InitialState::ForeignProviderId(_)
        );
        if self.is_dedicated && has_server {
            return self.join_dedicated(sandbox);
        }
        let id = has_server.then(|| match Host::of_node(sandbox, &self.name) {
            Some(Host::Server(id)) => id,
            _ => create_server(sandbox.cloud(), sandbox.project(), &self.name),
        });
        let provider_id = match self.initial {
            InitialState::New
            | InitialState::WithoutServer
            | InitialState::NotReadyWithoutServer => None,
            InitialState::ForeignProviderId(provider_id) => Some(provider_id.to_owned()),
            _ => id.map(|id| format!("{PREFIX}{id}")),
        };
        sandbox.register_node(NodeSpec {
            name: self.name.clone(),
            server: id,
            provider_id,
            ..NodeSpec::default()
        });
        if let Some(id) = id.filter(|_| self.labels != Labels::None) {
            label_server(sandbox, id, Some("begin".into()));
        }
        if self.labels == Labels::OfPerson {
            edit(sandbox, &self.name, |node| {
                node["metadata"]["labels"][POOL] = json!("person");
            });
        }
        match (self.initial, id) {
            (InitialState::ServerDeleted, Some(id)) => sandbox.cloud().delete_server(id),
            (InitialState::Off, Some(id)) => sandbox.cloud().set_power(id, false),
            _ => {}
        }
    }

    fn join_dedicated(&self, sandbox: &Sandbox) {
        let robot = sandbox.robot();
        let number = robot.number_of(&self.name);
        let number = number.unwrap_or_else(|| robot.create(&self.name));
        let server = robot.server(number).unwrap();
        let provider_id = match self.initial {
            InitialState::New => None,
            _ => Some(format!("hrobot://{number}")),
        };
        sandbox.register_node(NodeSpec {
            name: self.name.clone(),
            machine: Some(server.machine()),
            provider_id,
            ..NodeSpec::default()
        });
        if self.initial == InitialState::Off {
            robot.set_power(number, false);
        }
    }
}

/// Deletes a server of the first page while a list is read. The first server of the second page is then
/// on neither page.
fn shift_pages(sandbox: &Sandbox, n: u64) {
    let (cloud, project) = (Arc::clone(sandbox.cloud()), sandbox.project());
    let delete = move |_: &Request| {
        let all = cloud.server_summaries(project).into_iter();
        let mut others = all.filter(|one| one.name.starts_with("other-"));
        if let Some(one) = others.nth(n as usize) {
            cloud.delete_server(one.id);
        }
    };
    let rule = Rule::new(Effect::before(delete)).half(Half::Hetzner);
    let is_second = |request: &Request| request.query("page") == Some("2");
    let rule = rule.path("/v1/servers").method("GET").when(is_second);
    sandbox.faults().add(rule.times(2));
}

/// Replaces the node at the worst moment, just before the old node is deleted or initialised.
fn replaced_before_a_write(sandbox: &Sandbox, name: String, is_deletion: bool) {
    let (method, path) = match is_deletion {
        true => ("DELETE", format!("/api/v1/nodes/{name}")),
        false => ("PATCH", format!("/api/v1/nodes/{name}/status")),
    };
    let (cloud, cluster, project) =
        (Arc::clone(sandbox.cloud()), Arc::clone(sandbox.cluster()), sandbox.project());
    let robot = Arc::clone(sandbox.robot());
    let done = Mutex::new(false);
    let replace_node = move |_: &Request| {
        let is_dedicated = robot.number_of(&name).is_some();
        if !is_dedicated && !std::mem::replace(&mut *done.lock().unwrap(), true) {
            replace_node(&cloud, &cluster, project, &name);
        }
    };
    let rule = Rule::new(Effect::before(replace_node)).half(Half::Kubernetes);
    sandbox.faults().add(rule.method(method).path(&path));
}

/// Replaces a node by another node of the same name, on another server.
fn replace_node(cloud: &Cloud, cluster: &Cluster, project: u64, name: &str) {
    let servers = cloud.servers(project);
    let old = servers.iter().find(|server| server["name"] == name);
    if let Some(id) = old.and_then(|server| server["id"].as_u64()) {
        cloud.delete_server(id);
    }
    create_server(cloud, project, name);
    cluster.delete("nodes", None, name);
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": name },
        "spec": { "taints": [{ "key": UNINITIALIZED, "value": "true", "effect": "NoSchedule" }] },
    });
    cluster.create("nodes", None, node);
    // The kubelet has not reported yet that the node is ready.
    cluster.edit("nodes", None, name, |node| {
        node["status"]["conditions"] = json!([{ "type": "Ready", "status": "False" }]);
    });
}

fn create_server(cloud: &Cloud, project: u64, name: &str) -> u64 {
    let spec = ServerSpec { name: name.to_owned(), ..ServerSpec::default() };
    cloud.create_server(project, spec)
}

fn label_server(sandbox: &Sandbox, id: u64, value: Option<String>) {
    sandbox.cloud().edit_server(id, |server| match value {
        Some(value) => server["labels"] = json!({ POOL: value }),
        None => server["labels"] = json!({}),
    });
}

fn mark_not_ready(sandbox: &Sandbox, name: &str) {
    edit(sandbox, name, |node| {
        let conditions = node["status"]["conditions"].as_array_mut();
        for condition in conditions.into_iter().flatten() {
            if condition["type"] == "Ready" {
                condition["status"] = json!("Unknown");
            }
        }
    });
}

fn edit(sandbox: &Sandbox, name: &str, change: impl FnMut(&mut Value)) {
    sandbox.cluster().edit("nodes", None, name, change);
}
