//! Zone labels of nodes. Processes start with any value of the setting, and never change the label of an initialised
//! node. A person runs `ccm node relabel`, which is killed at any write and repeated, while others change labels and
//! create volumes.

use super::nodes::invariants::node_written;
use super::{Topic, Verdict, nodes};
use crate::library::{Credentials, SandboxAccess, WriteLimit};
use crate::random::Random;
use ccm::controllers::node::{
    self, NodeController, NodeControllerSettings, Relabelling, UNINITIALIZED,
};
use ccm::controllers::{Report, Selection};
use ccm::provider::{TopologyLabel, ZoneLabel};
use sandbox::exchange::Request;
use sandbox::faults::{Effect, Rule};
use sandbox::hetzner::ServerSpec;
use sandbox::kubelet::NodeSpec;
use sandbox::kubernetes::PolicyRule;
use sandbox::{Half, Sandbox};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const BETA: &str = TopologyLabel::Zone.beta_key();
const STABLE: &str = TopologyLabel::Zone.stable_key();
const SETTINGS: [ZoneLabel; 2] = [ZoneLabel::Datacenter, ZoneLabel::Location];
const LOCATIONS: [&str; 2] = ["fsn1", "nbg1"];
const PREFIX: &str = "ccm-from-scratch://";

/// The number of nodes that events change.
const NODES: u64 = 5;

/// The number of runs of the command after which every planned node must have its label. A run makes at least one write.
const RUNS_AT_MOST: usize = 2 * NODES as usize + 5;

/// The labels of a node at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InitialZone {
    Datacenter,
    Location,
    /// Another program has changed the stable label only.
    Mixed,
    OfPerson,
    /// There is no beta label.
    StableOnly,
    New,
    ForeignProviderId,
}

const INITIAL_ZONES: [InitialZone; 9] = [
    InitialZone::Datacenter,
    InitialZone::Datacenter,
    InitialZone::Location,
    InitialZone::Location,
    InitialZone::Mixed,
    InitialZone::OfPerson,
    InitialZone::StableOnly,
    InitialZone::New,
    InitialZone::ForeignProviderId,
];

pub struct Zones {
    nodes: Vec<(String, InitialZone, &'static str)>,
    random: Mutex<Random>,
    /// The beta labels that persons have set, by the name of the node. They must stay.
    of_persons: Arc<Mutex<BTreeMap<String, String>>>,
    /// The run of the command that is at work.
    run: Mutex<Option<Run>>,
    /// The name of the process that works now. It is empty when no daemon works. While the command is paused, a daemon
    /// can work.
    process: Mutex<String>,
    counts: Mutex<BTreeMap<&'static str, u64>>,
}

/// A run of `ccm node relabel`.
#[derive(Clone, Copy)]
struct Run {
    setting: ZoneLabel,
    /// Whether a volume would be cut off, so that nothing must be written.
    is_prevented: bool,
}

impl Zones {
    pub fn generate(random: &mut Random) -> Zones {
        let nodes = (0..2 + random.below(NODES - 1))
            .map(|n| (format!("n-{n}"), *random.pick(&INITIAL_ZONES), *random.pick(&LOCATIONS)));
        let nodes = nodes.collect();
        Zones {
            nodes,
            random: Mutex::new(Random::new(random.next())),
            of_persons: Arc::default(),
            run: Mutex::default(),
            process: Mutex::default(),
            counts: Mutex::default(),
        }
    }

    /// Returns the run of the command when no daemon works meanwhile.
    fn person(&self) -> Option<Run> {
        let is_daemon = !self.process.lock().unwrap().is_empty();
        self.run.lock().unwrap().filter(|_| !is_daemon)
    }

    fn count(&self, what: &'static str) {
        *self.counts.lock().unwrap().entry(what).or_default() += 1;
    }

    /// A person sets the beta label, and the stable label too.
    fn set_by_person(&self, sandbox: &Sandbox, name: &str, value: &str) {
        sandbox.cluster().edit("nodes", None, name, |node| set_zone(node, value));
        self.of_persons.lock().unwrap().insert(name.to_owned(), value.to_owned());
    }

    /// Runs `ccm node relabel`. The process is killed after this number of writes.
    fn relabel(&self, sandbox: &Sandbox, setting: ZoneLabel, writes: Option<u64>) -> String {
        if !sandbox.is_in_memory() {
            return "nothing is relabelled over sockets".into();
        }
        let access = SandboxAccess::in_memory(sandbox);
        *access.zone_label.lock().unwrap() = Some(setting);
        let (gate, token) = (WriteLimit::after(writes), sandbox.add_token());
        let mut apis = access.apis(gate, &token, Credentials::Right, None);
        apis.concurrent_nodes = 2;
        let controller = NodeController::new(NodeControllerSettings {
            sync_interval: Duration::from_secs(5),
            status_update_frequency: Duration::from_secs(300),
            server_cache_max_age: Duration::from_secs(10),
        });
        let is_prevented = is_prevented(sandbox, setting);
        *self.run.lock().unwrap() = Some(Run { setting, is_prevented });
        let outcome = ccm::http::apart(|| {
            let relabelling =
                Relabelling::of(&apis.kube, controller.evaluate(&apis, &Selection::All)?);
            Ok::<Report, ccm::cache::CacheError>(relabelling.apply(&apis, node::NAME).0)
        });
        *self.run.lock().unwrap() = None;
        self.count(if is_prevented {
            "relabellings prevented by a volume"
        } else {
            "relabellings"
        });
        let line = match outcome {
            Ok(report) => format!("{}, {:?}", report.counts(), report.failures),
            Err(error) => error.to_string(),
        };
        format!("relabel {setting:?}, {writes:?} writes, prevented {is_prevented}: {line}")
    }

    /// Runs the command while a person changes the label of a node, just before the command writes to this node.
    fn relabel_with_rival(&self, sandbox: &Sandbox, random: &mut Random) -> String {
        let (setting, name) = (*random.pick(&SETTINGS), random_name(random));
        let value = format!("rack-{}", random.below(9));
        let (cluster, of_persons) = (Arc::clone(sandbox.cluster()), Arc::clone(&self.of_persons));
        let rule = Rule::new(Effect::before({
            let name = name.clone();
            move |_: &Request| {
                // The labels of a node that is not initialised yet are not the person's.
                let node = cluster.get("nodes", None, &name);
                if node.is_some_and(|node| !is_new(&node)) {
                    cluster.edit("nodes", None, &name, |node| set_zone(node, &value));
                    of_persons.lock().unwrap().insert(name.clone(), value.clone());
                }
            }
        }));
        let rule =
            rule.half(Half::Kubernetes).method("PATCH").path(&format!("/api/v1/nodes/{name}"));
        let rule = sandbox.faults().add(rule.times(1));
        let line = self.relabel(sandbox, setting, None);
        sandbox.faults().remove(rule);
        format!("a person changes {name}: {line}")
    }
}

fn random_name(random: &mut Random) -> String {
    format!("n-{}", random.below(NODES))
}

fn set_zone(node: &mut Value, value: &str) {
    node["metadata"]["labels"][BETA] = json!(value);
    node["metadata"]["labels"][STABLE] = json!(value);
}

/// The zone label of a node in this location.
fn zone(location: &str, setting: ZoneLabel) -> String {
    match (setting, location) {
        (ZoneLabel::Location, location) => location.to_owned(),
        (ZoneLabel::Datacenter, "fsn1") => "fsn1-dc14".to_owned(),
        (ZoneLabel::Datacenter, _) => "nbg1-dc3".to_owned(),
    }
}

/// Returns the location of the node's server. `None` when the provider ID is not ours.
fn location(sandbox: &Sandbox, node: &Value) -> Option<String> {
    let id = node["spec"]["providerID"].as_str()?.strip_prefix(PREFIX)?;
    let id: u64 = id.parse().ok()?;
    let servers = sandbox.cloud().servers(sandbox.project());
    let server = servers.iter().find(|server| server["id"] == id)?;
    Some(location_of(server).to_owned())
}

fn location_of(server: &Value) -> &str {
    server["location"]["name"].as_str().unwrap()
}

fn is_new(node: &Value) -> bool {
    let taints = node["spec"]["taints"].as_array();
    taints.is_some_and(|taints| taints.iter().any(|taint| taint["key"] == UNINITIALIZED))
}

/// Returns the labels that the command must set on the node, or `None` when it must leave the node alone.
fn planned(sandbox: &Sandbox, node: &Value, setting: ZoneLabel) -> Option<String> {
    let location = location(sandbox, node).filter(|_| !is_new(node))?;
    let labels = &node["metadata"]["labels"];
    let wanted = zone(&location, setting);
    let is_ours = SETTINGS.iter().any(|setting| labels[BETA] == zone(&location, *setting));
    (is_ours && (labels[BETA] != wanted || labels[STABLE] != wanted)).then_some(wanted)
}

/// Whether a volume can be used on a planned node, and not after the node was written.
fn is_prevented(sandbox: &Sandbox, setting: ZoneLabel) -> bool {
    let volumes = sandbox.cluster().list("persistentvolumes", None);
    let nodes = sandbox.cluster().list("nodes", None);
    nodes.iter().any(|node| {
        let Some(wanted) = planned(sandbox, node, setting) else {
            return false;
        };
        volumes.iter().any(|volume| {
            let terms = &volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"];
            let requirement = &terms[0]["matchExpressions"][0];
            let key = requirement["key"].as_str().unwrap();
            let zone = &requirement["values"][0];
            node["metadata"]["labels"][key] == *zone && *zone != wanted
        })
    })
}

fn create_volume(sandbox: &Sandbox, random: &mut Random) -> String {
    let (key, number) = (*random.pick(&[BETA, STABLE]), random.below(1000));
    let (location, setting) = (*random.pick(&LOCATIONS), *random.pick(&SETTINGS));
    let zone = zone(location, setting);
    let name = format!("pv-{number}");
    if sandbox.cluster().get("persistentvolumes", None, &name).is_none() {
        let term =
            json!({ "matchExpressions": [{ "key": key, "operator": "In", "values": [zone] }] });
        let affinity = json!({ "required": { "nodeSelectorTerms": [term] } });
        let volume = json!({ "metadata": { "name": name }, "spec": { "nodeAffinity": affinity } });
        sandbox.cluster().create("persistentvolumes", None, volume);
    }
    format!("volume {name} is bound to {key}={zone}")
}

fn delete_volumes(sandbox: &Sandbox) {
    for volume in sandbox.cluster().list("persistentvolumes", None) {
        let name = volume["metadata"]["name"].as_str().unwrap();
        sandbox.cluster().delete("persistentvolumes", None, name);
    }
}

fn join(sandbox: &Sandbox, name: &str, initial: InitialZone, location: &str) {
    // A cluster that was restored from a backup can lack the node of a server.
    let servers = sandbox.cloud().servers(sandbox.project());
    let there = servers.iter().find(|server| server["name"] == name);
    let location = there.map_or(location, location_of);
    let server = there.and_then(|server| server["id"].as_u64()).unwrap_or_else(|| {
        let (name, location) = (name.to_owned(), location.to_owned());
        let spec = ServerSpec { name, location, ..ServerSpec::default() };
        sandbox.cloud().create_server(sandbox.project(), spec)
    });
    let [datacenter, place] = SETTINGS.map(|setting| zone(location, setting));
    let (beta, stable) = match initial {
        InitialZone::Datacenter | InitialZone::ForeignProviderId => {
            (Some(&datacenter), Some(&datacenter))
        }
        InitialZone::Location => (Some(&place), Some(&place)),
        InitialZone::Mixed => (Some(&datacenter), Some(&place)),
        InitialZone::StableOnly => (None, Some(&place)),
        InitialZone::OfPerson | InitialZone::New => (None, None),
    };
    let labels = [(BETA, beta), (STABLE, stable)].into_iter();
    let labels = labels.filter_map(|(key, value)| Some((key.to_owned(), value?.clone())));
    sandbox.register_node(NodeSpec {
        name: name.to_owned(),
        server: Some(server),
        provider_id: match initial {
            InitialZone::New => None,
            InitialZone::ForeignProviderId => Some(format!("k3s://{name}")),
            _ => Some(format!("{PREFIX}{server}")),
        },
        labels: labels.collect(),
        ..NodeSpec::default()
    });
}

impl Topic for Zones {
    fn set_up(&self, sandbox: &Sandbox) {
        let rule = |group: &str, resources: &[&str]| PolicyRule {
            api_groups: vec![group.into()],
            resources: resources.iter().map(|resource| (*resource).to_owned()).collect(),
            verbs: vec!["list".into()],
            ..PolicyRule::default()
        };
        // The person uses the account of the daemon here, so it has the person's rights too.
        let rules = vec![rule("", &["persistentvolumes", "pods"]), rule("apps", &["daemonsets"])];
        sandbox.cluster().grant("ccm", rules);
        for (name, initial, location) in &self.nodes {
            join(sandbox, name, *initial, location);
            if *initial == InitialZone::OfPerson {
                self.set_by_person(sandbox, name, "rack-0");
            }
        }
    }

    fn zone_label(&self) -> Option<ZoneLabel> {
        let mut random = self.random.lock().unwrap();
        *random.pick(&[None, Some(ZoneLabel::Datacenter), Some(ZoneLabel::Location)])
    }

    fn process_works(&self, name: &str) {
        name.clone_into(&mut self.process.lock().unwrap());
    }

    fn is_person_at_work(&self) -> bool {
        self.person().is_some()
    }

    fn apply_event(&self, sandbox: &Sandbox, random: &mut Random, _: bool) -> String {
        let name = random_name(random);
        let node = sandbox.cluster().get("nodes", None, &name);
        match (random.below(8), node) {
            (0, None) => {
                let (initial, location) = (*random.pick(&INITIAL_ZONES), *random.pick(&LOCATIONS));
                join(sandbox, &name, initial, location);
                if initial == InitialZone::OfPerson {
                    self.set_by_person(sandbox, &name, "rack-0");
                }
                format!("{name} joins: {initial:?} in {location}")
            }
            (1, Some(node)) if !is_new(&node) => {
                let value = format!("rack-{}", random.below(9));
                self.set_by_person(sandbox, &name, &value);
                format!("a person sets the zone of {name} to {value}")
            }
            (2, Some(_)) => {
                let version = random.below(1000);
                sandbox.cluster().edit("nodes", None, &name, |node| {
                    node["status"]["nodeInfo"]["kernelVersion"] = json!(version.to_string());
                });
                format!("the kubelet of {name} reports")
            }
            (3, _) => create_volume(sandbox, random),
            (4, _) => {
                delete_volumes(sandbox);
                "all volumes are deleted".into()
            }
            (5, _) => self.relabel_with_rival(sandbox, random),
            _ => {
                let writes = random.percent(60).then(|| random.below(4));
                self.relabel(sandbox, *random.pick(&SETTINGS), writes)
            }
        }
    }

    fn restored(&self, sandbox: &Sandbox) {
        let mut of_persons = self.of_persons.lock().unwrap();
        of_persons.clear();
        for node in sandbox.cluster().list("nodes", None) {
            let [name, beta] = [&node["metadata"]["name"], &node["metadata"]["labels"][BETA]];
            let beta = beta.as_str().filter(|beta| beta.starts_with("rack-"));
            of_persons
                .extend(beta.map(|beta| (name.as_str().unwrap().to_owned(), beta.to_owned())));
        }
    }

    fn check_write(&self, sandbox: &Sandbox, half: Half, request: &Request) -> Verdict {
        let verdict = nodes::check_write(sandbox, half, request, &Vec::new());
        if verdict != Verdict::Allowed {
            return verdict;
        }
        let node =
            node_written(request).and_then(|name| sandbox.cluster().get("nodes", None, name));
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let Some(node) = node else {
            return Verdict::Allowed;
        };
        if body["metadata"]["resourceVersion"] != node["metadata"]["resourceVersion"] {
            // The API server refuses the write.
            return Verdict::Allowed;
        }
        let run = self.person();
        let violation = match run {
            Some(run) => violation_by_person(sandbox, run, &node, &body),
            None => violation_by_daemon(&node, &body),
        };
        if run.is_some() && violation.is_none() {
            self.count("zone labels changed");
        }
        Verdict::from_violation(violation)
    }

    /// A volume prevents every write. Without one, the command is killed and repeated until nothing is left to do.
    fn extra_check(
        &self,
        sandbox: &Sandbox,
        round: &mut dyn FnMut() -> Vec<Report>,
    ) -> Result<(), String> {
        round();
        let mut random = Random::new(self.random.lock().unwrap().next());
        let setting = *random.pick(&SETTINGS);
        let mark = sandbox.calls().mark();
        for _ in 0..random.below(3) {
            create_volume(sandbox, &mut random);
        }
        let is_prevented = is_prevented(sandbox, setting);
        let line = self.relabel(sandbox, setting, None);
        let calls = sandbox.calls().calls_since(mark);
        if let Some(call) = calls.iter().find(|call| call.is_write() && is_prevented) {
            return Err(format!("a volume is cut off by {call}: {line}"));
        }
        delete_volumes(sandbox);
        let all = || sandbox.cluster().list("nodes", None);
        let labels =
            |node: &Value| [BETA, STABLE].map(|key| node["metadata"]["labels"][key].clone());
        let before = all();
        let is_done = || all().iter().all(|node| planned(sandbox, node, setting).is_none());
        let mut runs = 0;
        while !is_done() {
            runs += 1;
            if runs > RUNS_AT_MOST {
                return Err(format!("nodes are left after {runs} runs: {:#?}", all()));
            }
            self.relabel(sandbox, setting, Some(1 + random.below(2)));
            if random.percent(30) {
                round();
            }
        }
        for (node, after) in before.iter().zip(all()) {
            // The daemon gives the stable label the value of the beta label.
            let expected = match planned(sandbox, node, setting) {
                Some(zone) => [json!(zone), json!(zone)],
                None => labels(node),
            };
            if !is_new(node) && labels(&after) != expected {
                return Err(format!("{:?}, and not {expected:?}: {after}", labels(&after)));
            }
        }
        Ok(())
    }

    fn check_end_state(&self, sandbox: &Sandbox) -> Result<(), String> {
        nodes::check_nodes(sandbox)?;
        let of_persons = self.of_persons.lock().unwrap();
        for node in sandbox.cluster().list("nodes", None) {
            let name = node["metadata"]["name"].as_str().unwrap();
            let [beta, stable] = [BETA, STABLE].map(|key| &node["metadata"]["labels"][key]);
            let of_person = of_persons.get(name).is_none_or(|value| beta == value);
            let are_equal = beta.is_null() || beta == stable;
            let is_of_place = location(sandbox, &node).is_none_or(|location| {
                beta.is_null() || SETTINGS.iter().any(|setting| *beta == zone(&location, *setting))
            });
            if !of_person || !are_equal || !(is_of_place || of_persons.contains_key(name)) {
                return Err(format!("node {name} has the zones {beta} and {stable}"));
            }
        }
        Ok(())
    }

    fn counts(&self, _: &Sandbox) -> BTreeMap<&'static str, u64> {
        self.counts.lock().unwrap().clone()
    }
}

/// Returns why a write of `ccm node relabel` is wrong.
fn violation_by_person(sandbox: &Sandbox, run: Run, node: &Value, body: &Value) -> Option<String> {
    if run.is_prevented {
        return Some("a volume would be cut off".into());
    }
    let Some(zone) = planned(sandbox, node, run.setting) else {
        return Some("the node must stay".into());
    };
    let version = &node["metadata"]["resourceVersion"];
    let labels = json!({ BETA: zone, STABLE: zone });
    let expected =
        json!({ "metadata": { "resourceVersion": version, "labels": labels }, "spec": {} });
    (*body != expected).then(|| format!("it is not {expected}"))
}

/// Returns why a write of a daemon is wrong. It may only give the stable label the value of the beta label.
fn violation_by_daemon(node: &Value, body: &Value) -> Option<String> {
    if is_new(node) {
        return None;
    }
    let written = &body["metadata"]["labels"];
    let beta = &node["metadata"]["labels"][BETA];
    let stable = written.get(STABLE);
    let is_right = written.get(BETA).is_none() && stable.is_none_or(|stable| stable == beta);
    (!is_right).then(|| format!("the zone label of an initialised node is {beta}"))
}
