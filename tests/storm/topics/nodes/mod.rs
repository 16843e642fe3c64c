//! Nodes on cloud servers and on dedicated servers: they join, are initialised, labelled, switched off, lose their
//! machines, and come back under their names.

pub(super) mod harm;
mod lies;

use super::{Topic, Verdict};
use crate::random::Random;
use ccm::controllers::node::UNINITIALIZED;
use harm::{PREFIX, harm_of, node_written, servers};
use sandbox::exchange::Request;
use sandbox::faults::{Effect, Rule};
use sandbox::hetzner::{Cloud, ServerSpec};
use sandbox::kubelet::NodeSpec;
use sandbox::kubernetes::Cluster;
use sandbox::{Builder, Half, Sandbox};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
const POOL: &str = "node.example.com/pool";

/// Nodes to which something happens.
const MEMBERS: u64 = 7;

pub struct Nodes {
    members: Vec<Member>,
    has_metal: bool,
    /// The project has more servers than a page of a list.
    many_servers: bool,
    /// Labels that servers had.
    had: Mutex<harm::Servers>,
}

struct Member {
    name: String,
    kind: Kind,
    /// It runs on a dedicated server.
    metal: bool,
    labels: Labels,
}

/// A label that its server may set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Labels {
    /// Neither has it.
    None,
    OfServer,
    /// A person set it on the node before.
    OfPerson,
}

/// How a node and its machine are at the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Not initialised yet.
    New,
    Initialised,
    /// Its server was deleted.
    Gone,
    Off,
    /// Its server runs, and its kubelet is silent.
    Silent,
    /// Ready again, and still tainted as if it were off.
    Back,
    /// Not initialised, and no server is its own.
    Stray,
    SilentStray,
    /// A provider ID that names no server of ours; not ready.
    NotOurs(&'static str),
}

const KINDS: [Kind; 14] = [
    Kind::New,
    Kind::New,
    Kind::Initialised,
    Kind::Gone,
    Kind::Gone,
    Kind::Off,
    Kind::Silent,
    Kind::Silent,
    Kind::Back,
    Kind::Stray,
    Kind::SilentStray,
    Kind::NotOurs("aws:///eu-central-1a/i-0abc"),
    Kind::NotOurs("ccm-from-scratch://not-a-number"),
    Kind::NotOurs("hrobot://not-a-number"),
];

impl Nodes {
    pub fn of(random: &mut Random) -> Nodes {
        let has_metal = random.percent(40);
        let mut members: Vec<Member> = (0..2 + random.below(5))
            .map(|n| Member {
                name: format!("n-{n}"),
                kind: *random.pick(&KINDS),
                metal: has_metal && random.percent(50),
                labels: *random.pick(&[Labels::None, Labels::OfServer, Labels::OfPerson]),
            })
            .collect();
        // Nothing happens to these: some server of each API is always visible.
        let anchors = [("anchor-1", false), ("anchor-2", false)];
        let metal = [("anchor-3", true), ("anchor-4", true)];
        let metal = metal.into_iter().filter(|_| has_metal);
        for (name, metal) in anchors.into_iter().chain(metal) {
            let place = random.below(members.len() as u64 + 1) as usize;
            let member =
                Member { name: name.into(), kind: Kind::Silent, metal, labels: Labels::OfServer };
            members.insert(place, member);
        }
        Nodes { members, has_metal, many_servers: random.percent(8), had: Mutex::default() }
    }
}

impl Topic for Nodes {
    fn needs(&self, builder: Builder) -> Builder {
        match self.has_metal {
            true => builder.serve_robot(),
            false => builder,
        }
    }

    fn begin(&self, sandbox: &Sandbox) {
        if self.many_servers {
            for n in 0..50 {
                create_server(sandbox.cloud(), sandbox.project(), &format!("other-{n}"));
            }
        }
        self.members.iter().for_each(|member| member.join(sandbox));
        // Numbers of dedicated servers may be given out again: here they are not.
        for member in self.members.iter().filter(|member| member.metal) {
            let number = sandbox.robot().number_of(&member.name);
            if let (Kind::Gone, Some(number)) = (member.kind, number) {
                sandbox.robot().remove(number);
            }
        }
        if self.members.len() % 2 == 1 {
            join_second(sandbox, "anchor-1");
        }
        sandbox.kubelets().expire();
        for member in &self.members {
            match member.kind {
                Kind::Silent | Kind::SilentStray | Kind::NotOurs(_) => {
                    silence(sandbox, &member.name)
                }
                Kind::Back => edit(sandbox, &member.name, |node| {
                    node["spec"]["taints"] = json!([{ "key": SHUTDOWN, "effect": "NoSchedule" }]);
                }),
                _ => {}
            }
        }
    }

    fn happens(&self, sandbox: &Sandbox, random: &mut Random, _: bool) -> String {
        let name = format!("n-{}", random.below(MEMBERS));
        let node = sandbox.cluster().get("nodes", None, &name);
        let machine = Machine::of(sandbox, &name);
        let choice = random.below(12);
        match (choice, node, machine) {
            (0 | 1, None, machine) => {
                let member = Member {
                    name: name.clone(),
                    kind: *random.pick(&[Kind::New, Kind::New, Kind::Stray]),
                    metal: match machine {
                        None => self.has_metal && random.percent(40),
                        Some(machine) => matches!(machine, Machine::Dedicated(_)),
                    },
                    labels: Labels::None,
                };
                member.join(sandbox);
                format!("{name} joins: {:?}, metal {}", member.kind, member.metal)
            }
            (2, _, Some(machine)) => {
                machine.set_power(sandbox, false);
                sandbox.kubelets().expire();
                format!("{name} is switched off")
            }
            (3, _, Some(machine)) => {
                machine.set_power(sandbox, true);
                sandbox.kubelets().heartbeat();
                format!("{name} is switched on")
            }
            (4 | 5, _, Some(machine)) => {
                machine.delete(sandbox);
                sandbox.kubelets().expire();
                format!("the server of {name} is deleted")
            }
            (6, Some(_), _) => {
                silence(sandbox, &name);
                format!("{name} falls silent")
            }
            (7, Some(_), _) => {
                let value = random.below(9).to_string();
                edit(sandbox, &name, |node| {
                    node["metadata"]["labels"]["team"] = json!(value);
                });
                format!("{name} has label team={value}")
            }
            (8 | 9, _, Some(Machine::Server(id))) => {
                let value = random.percent(60).then(|| random.below(9).to_string());
                let line = format!("the server of {name} has label {value:?}");
                let is_it = |one: &(String, String, bool, Value)| one.0 == format!("{PREFIX}{id}");
                let before = servers(sandbox).into_iter().filter(is_it);
                self.had.lock().unwrap().extend(before);
                label_server(sandbox, id, value);
                line
            }
            (10, Some(_), _) => {
                sandbox.cluster().delete("nodes", None, &name);
                format!("node {name} is deleted")
            }
            (11, Some(_), Some(Machine::Server(_))) => {
                renew(sandbox.cloud(), sandbox.cluster(), sandbox.project(), &name);
                format!("{name} is replaced")
            }
            _ => format!("nothing happens to {name}"),
        }
    }

    fn weather(&self, sandbox: &Sandbox, random: &mut Random) {
        lies::begin(sandbox, random);
        if self.many_servers && random.percent(70) {
            page_moves(sandbox, random.below(50));
        }
        if random.percent(50) {
            let name = format!("n-{}", random.below(MEMBERS));
            replaced_before_a_write(sandbox, name, random.percent(50));
        }
    }

    fn clear_up(&self, sandbox: &Sandbox) {
        // Who has a provider ID of another server of its name was made by a program that is none of ours.
        sandbox.kubelets().expire();
    }

    fn judge(&self, sandbox: &Sandbox, half: Half, request: &Request) -> Verdict {
        judge(sandbox, half, request, &self.had.lock().unwrap())
    }

    fn is_right(&self, sandbox: &Sandbox) -> Result<(), String> {
        are_right(sandbox)
    }
}

/// A new Node with the provider ID of an initialised one: nothing may ever be written to that new Node.
const SECOND: &str = "zz-second";

fn join_second(sandbox: &Sandbox, of: &str) {
    let node = sandbox.cluster().get("nodes", None, of).unwrap();
    let id = node["spec"]["providerID"].as_str().unwrap().to_owned();
    sandbox.register_node(NodeSpec {
        name: SECOND.into(),
        provider_id: Some(id),
        ..NodeSpec::default()
    });
    edit(sandbox, SECOND, |node| {
        node["spec"]["taints"] = json!([{ "key": UNINITIALIZED, "effect": "NoSchedule" }]);
    });
}

/// About a write to any topic's nodes. `had`: what servers had before, too.
pub(super) fn judge(
    sandbox: &Sandbox,
    half: Half,
    request: &Request,
    had: &harm::Servers,
) -> Verdict {
    let Some(name) = node_written(request).filter(|_| half == Half::Kubernetes) else {
        return Verdict::Other;
    };
    if name == SECOND {
        return Verdict::of(Some("another node has its server".into()));
    }
    let node = sandbox.cluster().get("nodes", None, name);
    let mut servers = servers(sandbox);
    for had in had {
        if servers.iter().any(|(id, ..)| *id == had.0) {
            servers.push(had.clone());
        }
    }
    Verdict::of(harm_of(request, node.as_ref(), &servers))
}

/// All nodes.
pub(super) fn are_right(sandbox: &Sandbox) -> Result<(), String> {
    let all = servers(sandbox);
    for node in sandbox.cluster().list("nodes", None) {
        let name = node["metadata"]["name"].as_str().unwrap();
        is_right(sandbox, &node, &all).map_err(|why| format!("node {name}: {why}: {node}"))?;
    }
    Ok(())
}

fn is_right(sandbox: &Sandbox, node: &Value, all: &harm::Servers) -> Result<(), String> {
    let name = node["metadata"]["name"].as_str().unwrap();
    let has_taint = |key: &str| {
        let taints = node["spec"]["taints"].as_array();
        taints.is_some_and(|taints| taints.iter().any(|taint| taint["key"] == key))
    };
    if name == SECOND {
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
            // Of two nothing says which is meant, and a dedicated server must have the node's address.
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
    let is_off = Machine::by_id(id).is_some_and(|machine| machine.is_off(sandbox));
    // Until it is ready again a node that was off keeps its taint: nothing says that it works.
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

/// What a node runs on.
#[derive(Clone, Copy)]
enum Machine {
    Server(u64),
    Dedicated(u32),
}

impl Machine {
    fn of(sandbox: &Sandbox, name: &str) -> Option<Machine> {
        if let Some(number) = sandbox.robot().number_of(name) {
            return Some(Machine::Dedicated(number as u32));
        }
        let servers = sandbox.cloud().servers(sandbox.project());
        let own = servers.iter().find(|server| server["name"] == name)?;
        own["id"].as_u64().map(Machine::Server)
    }

    fn by_id(provider_id: &str) -> Option<Machine> {
        if let Some(number) = provider_id.strip_prefix("hrobot://") {
            return number.parse().ok().map(Machine::Dedicated);
        }
        let id = provider_id.strip_prefix(PREFIX)?;
        id.parse().ok().map(Machine::Server)
    }

    fn set_power(self, sandbox: &Sandbox, on: bool) {
        match self {
            Machine::Dedicated(number) => sandbox.robot().set_power(number.into(), on),
            Machine::Server(id) => sandbox.cloud().set_power(id, on),
        }
    }

    fn delete(self, sandbox: &Sandbox) {
        match self {
            Machine::Dedicated(number) => sandbox.robot().remove(number.into()),
            Machine::Server(id) => sandbox.cloud().delete_server(id),
        }
    }

    /// A dedicated server's power is not in its API.
    fn is_off(self, sandbox: &Sandbox) -> bool {
        match self {
            Machine::Dedicated(_) => false,
            Machine::Server(id) => {
                let servers = sandbox.cloud().servers(sandbox.project());
                let mut off = servers.iter().filter(|server| server["status"] == "off");
                off.any(|server| server["id"] == id)
            }
        }
    }
}

impl Member {
    fn join(&self, sandbox: &Sandbox) {
        let has_server = !matches!(self.kind, Kind::Stray | Kind::SilentStray | Kind::NotOurs(_));
        if self.metal && has_server {
            return self.join_metal(sandbox);
        }
        let id = has_server.then(|| match Machine::of(sandbox, &self.name) {
            Some(Machine::Server(id)) => id,
            _ => create_server(sandbox.cloud(), sandbox.project(), &self.name),
        });
        let provider_id = match self.kind {
            Kind::New | Kind::Stray | Kind::SilentStray => None,
            Kind::NotOurs(provider_id) => Some(provider_id.to_owned()),
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
        match (self.kind, id) {
            (Kind::Gone, Some(id)) => sandbox.cloud().delete_server(id),
            (Kind::Off, Some(id)) => sandbox.cloud().set_power(id, false),
            _ => {}
        }
    }

    fn join_metal(&self, sandbox: &Sandbox) {
        let robot = sandbox.robot();
        let number = robot.number_of(&self.name);
        let number = number.unwrap_or_else(|| robot.create(&self.name));
        let server = robot.server(number).unwrap();
        let provider_id = match self.kind {
            Kind::New => None,
            _ => Some(format!("hrobot://{number}")),
        };
        sandbox.register_node(NodeSpec {
            name: self.name.clone(),
            machine: Some(server.machine()),
            provider_id,
            ..NodeSpec::default()
        });
        if self.kind == Kind::Off {
            robot.set_power(number, false);
        }
    }
}

/// While a list is read, one of the servers on its first page is deleted: what was first on the second page is on
/// neither.
fn page_moves(sandbox: &Sandbox, n: u64) {
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

/// The worst moment for it: when the old node is being deleted, or initialised.
fn replaced_before_a_write(sandbox: &Sandbox, name: String, is_deletion: bool) {
    let (method, path) = match is_deletion {
        true => ("DELETE", format!("/api/v1/nodes/{name}")),
        false => ("PATCH", format!("/api/v1/nodes/{name}/status")),
    };
    let (cloud, cluster, project) =
        (Arc::clone(sandbox.cloud()), Arc::clone(sandbox.cluster()), sandbox.project());
    let robot = Arc::clone(sandbox.robot());
    let done = Mutex::new(false);
    let renew = move |_: &Request| {
        let is_metal = robot.number_of(&name).is_some();
        if !is_metal && !std::mem::replace(&mut *done.lock().unwrap(), true) {
            renew(&cloud, &cluster, project, &name);
        }
    };
    let rule = Rule::new(Effect::before(renew)).half(Half::Kubernetes);
    sandbox.faults().add(rule.method(method).path(&path));
}

/// A node comes back under its name, as another node on another server.
fn renew(cloud: &Cloud, cluster: &Cluster, project: u64, name: &str) {
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
    // Its kubelet has not said yet that it is ready.
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

fn silence(sandbox: &Sandbox, name: &str) {
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
