//! What happens outside of `ccm`: machines and nodes at the beginning, and what befalls them.
//!
//! Events are such that their end does not depend on how far `ccm` was when they happened: so the same story, told
//! without faults, says what the end has to be.

use super::End;
use crate::node::life::Life;
use crate::node::random::Random;
use ccm::controllers::node::UNINITIALIZED;
use sandbox::Sandbox;
use sandbox::faults::{Effect, Rule};
use sandbox::hetzner::{Cloud, ServerSpec};
use sandbox::kubelet::NodeSpec;
use sandbox::kubernetes::Cluster;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

pub const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

pub struct Story {
    members: Vec<Member>,
    /// The project has more servers than a page of a list.
    many_servers: bool,
    pub chapters: Vec<Chapter>,
    /// Nodes that must be there in the end; all others must not.
    stay: Vec<String>,
    renewed: Option<Renewed>,
}

/// A node that comes back under its name, as another node on another server.
#[derive(Clone)]
enum Renewed {
    /// It had lost its server; its provider ID is set by somebody else.
    Gone(String),
    /// It was not initialised yet, and so is the new one.
    New(String),
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

const POOL: &str = "node.example.com/pool";

/// How a node and its machine are at the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Not initialised yet.
    New,
    Initialised,
    /// Its server was deleted.
    Gone,
    Off,
    /// Its server runs, and nothing is heard of its kubelet.
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

/// Something happens, and then a few lives of `ccm` pass.
pub struct Chapter {
    pub seed: u64,
    pub events: Vec<Event>,
    pub lives: Vec<Life>,
}

#[derive(Debug)]
pub enum Event {
    PowerOff(String),
    PowerOn(String),
    DeleteServer(String),
    /// The kubelet falls silent while its machine runs.
    Silence(String),
    /// Somebody else writes to the node.
    Label(String, u64),
    /// To its server; none: the label is removed.
    LabelServer(String, Option<u64>),
}

/// It happens once, whoever comes first to let it happen.
#[derive(Clone)]
pub struct Renewal {
    of: Option<Renewed>,
    done: Arc<Mutex<bool>>,
}

impl Story {
    pub fn of(seed: u64) -> Story {
        let mut random = Random::new(seed);
        let mut members: Vec<Member> = (0..2 + random.below(5))
            .map(|n| Member {
                name: format!("{}-{n}", random.pick(&["n", "power"])),
                kind: *random.pick(&KINDS),
                metal: random.percent(35),
                labels: *random.pick(&[Labels::None, Labels::OfServer, Labels::OfPerson]),
            })
            .collect();
        // Nothing happens to these: some server of each API is always visible.
        let mut anchors = vec![("anchor-1", false), ("anchor-2", false)];
        if members.iter().any(|member| member.metal) {
            anchors.extend([("anchor-3", true), ("anchor-4", true)]);
        }
        for (name, metal) in anchors {
            let place = random.below(members.len() as u64 + 1) as usize;
            let member = Member {
                name: name.into(),
                kind: Kind::Silent,
                metal,
                labels: Labels::OfServer,
            };
            members.insert(place, member);
        }
        let mut of_cloud = members.iter().filter(|member| !member.metal);
        let gone = of_cloud.find(|member| member.kind == Kind::Gone);
        let renewed = gone
            .filter(|_| random.percent(50))
            .map(|member| Renewed::Gone(member.name.clone()));
        let is_new = |member: &&Member| member.kind == Kind::New && !member.metal;
        let mut news = members.iter().filter(is_new);
        let renewed = renewed.or_else(|| Some(Renewed::New(news.next()?.name.clone())));
        let is_renewed = |name: &String| match &renewed {
            Some(Renewed::Gone(other) | Renewed::New(other)) => name == other,
            None => false,
        };
        let mut stay: Vec<String> = members
            .iter()
            .filter(|member| member.kind != Kind::Gone || is_renewed(&member.name))
            .map(|member| member.name.clone())
            .collect();
        let mut chapters = Vec::new();
        for _ in 0..1 + random.below(3) {
            let mut events = Vec::new();
            if !chapters.is_empty() {
                events.extend(members.iter().filter_map(|member| {
                    random
                        .percent(50)
                        .then(|| member.befalls(&mut stay, &mut random))?
                        // What is written to one of them is not written to the other.
                        .filter(|_| !is_renewed(&member.name))
                }));
            }
            chapters.push(Chapter {
                seed: random.next(),
                events,
                lives: (0..1 + random.below(3))
                    .map(|_| Life::of(&mut random))
                    .collect(),
            });
        }
        let many_servers = random.percent(8);
        Story {
            members,
            many_servers,
            chapters,
            stay,
            renewed,
        }
    }

    /// The world at the beginning.
    pub fn begin(&self) -> Sandbox {
        let mut builder = Sandbox::builder().nodes(0).heartbeats(false);
        if self.members.iter().any(|member| member.metal) {
            builder = builder.serve_robot();
        }
        let sandbox = builder.start();
        if self.many_servers {
            for n in 0..50 {
                create_server(sandbox.cloud(), sandbox.project(), &format!("other-{n}"));
            }
        }
        self.members.iter().for_each(|member| member.join(&sandbox));
        // Numbers of dedicated servers may be given out again: here they are not.
        for member in self.members.iter().filter(|member| member.metal) {
            let number = sandbox.robot().number_of(&member.name);
            if let (Kind::Gone, Some(number)) = (member.kind, number) {
                sandbox.robot().remove(number);
            }
        }
        sandbox.kubelets().expire();
        for member in &self.members {
            match member.kind {
                Kind::Silent | Kind::SilentStray | Kind::NotOurs(_) => {
                    silence(&sandbox, &member.name)
                }
                Kind::Back => edit(&sandbox, &member.name, |node| {
                    node["spec"]["taints"] = json!([{ "key": SHUTDOWN, "effect": "NoSchedule" }]);
                }),
                _ => {}
            }
        }
        sandbox
    }

    pub fn renewal(&self) -> Renewal {
        Renewal {
            of: self.renewed.clone(),
            done: Arc::default(),
        }
    }

    pub fn same_end(&self, in_storm: &End, in_calm: &End) -> Result<(), String> {
        let mut stay = self.stay.clone();
        stay.sort();
        for (weather, end) in [("calm", in_calm), ("the storm", in_storm)] {
            let names: Vec<&String> = end.keys().collect();
            if names != stay.iter().collect::<Vec<_>>() {
                return Err(format!(
                    "in {weather} the nodes are {names:?} in the end, and not {stay:?}"
                ));
            }
        }
        for (name, calm) in in_calm {
            let storm = &in_storm[name];
            for section in ["metadata", "spec", "status"] {
                let keys = [calm, storm].map(|node| node[section].as_object().unwrap().keys());
                for key in keys.into_iter().flatten() {
                    let [calm, storm] = [calm, storm].map(|node| &node[section][key]);
                    if calm != storm {
                        return Err(format!(
                            "node {name}, {section}.{key}: in the storm {storm}, in calm {calm}"
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}

impl Member {
    fn join(&self, sandbox: &Sandbox) {
        let has_server = !matches!(
            self.kind,
            Kind::Stray | Kind::SilentStray | Kind::NotOurs(_)
        );
        if self.metal && has_server {
            return self.join_metal(sandbox);
        }
        let id = has_server.then(|| create_server(sandbox.cloud(), sandbox.project(), &self.name));
        let provider_id = match self.kind {
            Kind::New | Kind::Stray | Kind::SilentStray => None,
            Kind::NotOurs(provider_id) => Some(provider_id.to_owned()),
            _ => id.map(|id| format!("ccm-from-scratch://{id}")),
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
        let number = robot.create(&self.name);
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

    /// An event that may happen to it; none for those that must stay as they are.
    fn befalls(&self, stay: &mut Vec<String>, random: &mut Random) -> Option<Event> {
        let name = self.name.clone();
        let is_anchor = name.starts_with("anchor");
        let has_server = !matches!(
            self.kind,
            Kind::Gone | Kind::Stray | Kind::SilentStray | Kind::NotOurs(_)
        );
        if self.kind == Kind::Gone {
            // Whether it is still there depends on who was faster.
            return None;
        }
        if is_anchor || !has_server || !stay.contains(&name) {
            return stay
                .contains(&name)
                .then(|| Event::Label(name, random.below(9)));
        }
        // A node that fell silent while it was still tainted would keep the taint.
        let may_go_off = matches!(self.kind, Kind::Off | Kind::Back) || name.starts_with("power");
        match random.below(5) {
            0 if may_go_off => Some(Event::PowerOff(name)),
            1 if may_go_off => Some(Event::PowerOn(name)),
            0 | 1 => Some(Event::Silence(name)),
            // Had it no provider ID yet, its end would depend on who was faster.
            2 if self.kind != Kind::New => {
                stay.retain(|other| *other != name);
                Some(Event::DeleteServer(name))
            }
            _ if !self.metal && random.percent(60) => {
                let value = random.percent(60).then(|| random.below(9));
                Some(Event::LabelServer(name, value))
            }
            _ => Some(Event::Label(name, random.below(9))),
        }
    }
}

impl Event {
    pub fn happen(&self, sandbox: &Sandbox) {
        match self {
            Event::PowerOff(name) => {
                set_power(sandbox, name, false);
                sandbox.kubelets().expire();
            }
            Event::PowerOn(name) => {
                set_power(sandbox, name, true);
                sandbox.kubelets().heartbeat();
            }
            Event::DeleteServer(name) => {
                match sandbox.robot().number_of(name) {
                    Some(number) => sandbox.robot().remove(number),
                    None => sandbox.cloud().delete_server(server_id(sandbox, name)),
                }
                sandbox.kubelets().expire();
            }
            Event::Silence(name) => silence(sandbox, name),
            Event::LabelServer(name, value) => {
                let value = value.map(|value| value.to_string());
                label_server(sandbox, server_id(sandbox, name), value);
            }
            Event::Label(name, value) => edit(sandbox, name, |node| {
                node["metadata"]["labels"]["somebody"] = json!(value.to_string());
            }),
        }
    }
}

impl Renewal {
    /// The worst moment for it: when the old node is being deleted, or initialised.
    pub fn may_come_before_a_write(&self, sandbox: &Sandbox) {
        let (method, path) = match &self.of {
            Some(Renewed::Gone(name)) => ("DELETE", format!("/api/v1/nodes/{name}")),
            Some(Renewed::New(name)) => ("PATCH", format!("/api/v1/nodes/{name}/status")),
            None => return,
        };
        let renewal = self.clone();
        let (cloud, cluster, project) = (
            Arc::clone(sandbox.cloud()),
            Arc::clone(sandbox.cluster()),
            sandbox.project(),
        );
        let renew = move |_: &sandbox::exchange::Request| renewal.once(&cloud, &cluster, project);
        sandbox
            .faults()
            .add(Rule::new(Effect::before(renew)).method(method).path(&path));
    }

    pub fn happen(&self, sandbox: &Sandbox) {
        self.once(sandbox.cloud(), sandbox.cluster(), sandbox.project());
        if let Some(Renewed::New(name)) = &self.of {
            // The kubelet of the machine before may have been the last to report on it.
            sandbox.cluster().edit("nodes", None, name, |node| {
                let taints = node["spec"]["taints"].as_array().cloned();
                let ours = |taint: &Value| taint["key"] == UNINITIALIZED;
                let taints: Vec<Value> = taints.into_iter().flatten().filter(ours).collect();
                let spec = node["spec"].as_object_mut().unwrap();
                match taints.is_empty() {
                    true => drop(spec.remove("taints")),
                    false => drop(spec.insert("taints".into(), json!(taints))),
                }
            });
            not_ready(sandbox.cluster(), name);
        }
    }

    pub fn has_replaced_a_server(&self) -> bool {
        matches!(self.of, Some(Renewed::New(_))) && *self.done.lock().unwrap()
    }

    fn once(&self, cloud: &Cloud, cluster: &Cluster, project: u64) {
        let mut done = self.done.lock().unwrap();
        let Some(of) = self.of.as_ref().filter(|_| !*done) else {
            return;
        };
        *done = true;
        let (Renewed::Gone(name) | Renewed::New(name)) = of;
        if let Renewed::New(_) = of {
            let servers = cloud.servers(project);
            let old = servers.iter().find(|server| server["name"] == **name);
            cloud.delete_server(old.unwrap()["id"].as_u64().unwrap());
        }
        let id = create_server(cloud, project, name);
        cluster.delete("nodes", None, name);
        let spec = match of {
            Renewed::Gone(_) => json!({ "providerID": format!("ccm-from-scratch://{id}") }),
            Renewed::New(_) => {
                json!({ "taints": [{ "key": UNINITIALIZED, "value": "true", "effect": "NoSchedule" }] })
            }
        };
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": name }, "spec": spec,
        });
        cluster.create("nodes", None, node);
        // Its kubelet has not said yet that it is ready.
        not_ready(cluster, name);
    }
}

fn not_ready(cluster: &Cluster, name: &str) {
    cluster.edit("nodes", None, name, |node| {
        node["status"]["conditions"] = json!([{ "type": "Ready", "status": "False" }]);
    });
}

fn create_server(cloud: &Cloud, project: u64, name: &str) -> u64 {
    let spec = ServerSpec {
        name: name.to_owned(),
        ..ServerSpec::default()
    };
    cloud.create_server(project, spec)
}

fn server_id(sandbox: &Sandbox, name: &str) -> u64 {
    let servers = sandbox.cloud().servers(sandbox.project());
    let own = servers.iter().find(|server| server["name"] == name);
    own.and_then(|server| server["id"].as_u64()).unwrap()
}

fn label_server(sandbox: &Sandbox, id: u64, value: Option<String>) {
    sandbox.cloud().edit_server(id, |server| match value {
        Some(value) => server["labels"] = json!({ POOL: value }),
        None => server["labels"] = json!({}),
    });
}

fn set_power(sandbox: &Sandbox, name: &str, on: bool) {
    match sandbox.robot().number_of(name) {
        Some(number) => sandbox.robot().set_power(number, on),
        None => sandbox.cloud().set_power(server_id(sandbox, name), on),
    }
}

fn silence(sandbox: &Sandbox, name: &str) {
    edit(sandbox, name, |node| {
        for condition in node["status"]["conditions"].as_array_mut().unwrap() {
            if condition["type"] == "Ready" {
                condition["status"] = json!("Unknown");
            }
        }
    });
}

fn edit(sandbox: &Sandbox, name: &str, change: impl FnMut(&mut Value)) {
    assert!(
        sandbox.cluster().edit("nodes", None, name, change),
        "there is no node {name}"
    );
}
