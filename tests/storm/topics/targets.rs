//! Targets of load balancers while nodes depart: they are cordoned, drained, shut down and deleted, and come back. The
//! load balancers belong to one Service, to a group, or to another owner.

use super::cluster::{
    NAMESPACE, PERMANENT_NODE, delete_node_and_server, eligible_servers, ids, join, list,
    server_named, server_of, services, targets,
};
use super::{Topic, Verdict, nodes};
use crate::random::Random;
use ccm::controllers::Report;
use ccm::hetzner::load_balancers::annotations::PREFIX;
use ccm::hetzner::load_balancers::{EXTERNAL, GROUP, SERVICE_UID};
use sandbox::exchange::Request;
use sandbox::hetzner::{Health, Machine};
use sandbox::{Half, Sandbox};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The number of nodes that events change.
const NODES: u64 = 5;

/// The taint of the cluster autoscaler.
pub(super) const AUTOSCALER: &str = "ToBeDeletedByClusterAutoscaler";

/// The conditions that say that a node will stop soon.
pub(super) const CONDITIONS: [&str; 3] =
    ["DrainInProgress", "Drained", "GracefulNodeShutdownInProgress"];

/// A server that is not a node, and that another owner made a target.
const FOREIGN: &str = "foreign";

/// How often one process may remove a node from one load balancer within [`REMOVALS_KEPT`].
const REMOVALS_AT_MOST: usize = 6;
const REMOVALS_KEPT: Duration = Duration::from_secs(3600);

/// How long the rest of a plan may still be executed. A change that is refused for a moment is sent up to ten times, and
/// reads that get no answer can lie between.
const PLAN_AGE: Duration = Duration::from_secs(60);

/// A node that departs and comes back many times.
const RESTLESS: &str = "n-0";

/// In how many rounds a target is removed or added, when nothing prevents it.
const ROUNDS_OF_A_CHANGE: usize = 6;

/// How many rounds more a process works that sees the ends of delays.
const ROUNDS: u64 = 12;

pub struct Targets {
    /// The name and the annotations of each Service.
    services: Vec<(&'static str, Vec<(&'static str, &'static str)>)>,
    /// Whether the other owner made the server of [`PERMANENT_NODE`] a target, too.
    owner_has_node: bool,
    /// Whether a node departs and comes back many times after the faults have ended.
    is_restless: bool,
    history: Mutex<History>,
}

#[derive(Default)]
struct History {
    /// When each node departed first, by its UID. `ccm` need not notice that a node does not depart in between.
    departed: BTreeMap<String, Instant>,
    /// Since when each server's node has the taint of the autoscaler.
    tainted: BTreeMap<u64, Instant>,
    /// When the cache of the API server was last seen to be frozen, so that a list of nodes could be old.
    frozen: Option<Instant>,
    /// When something was written to each load balancer.
    written: BTreeMap<u64, Vec<Instant>>,
    /// How many targets were removed because their nodes depart.
    removals: u64,
    /// The name of the process that works now. It is empty when it is not known.
    process: String,
    /// When a process removed a server from a load balancer.
    removed: BTreeMap<Removal, Vec<Instant>>,
    /// The removals after which the server was not added again. When the same removal follows, it is the same attempt.
    left: BTreeSet<Removal>,
}

/// The name of a process, the ID of the load balancer, and the ID of the server that is removed.
type Removal = (String, u64, u64);

/// What both APIs show about one load balancer and its nodes.
struct View {
    nodes: Vec<Value>,
    /// The servers of the nodes that would be targets if no node departed.
    wanted: BTreeSet<u64>,
    there: BTreeSet<u64>,
    departing: BTreeSet<u64>,
}

impl Targets {
    pub fn generate(random: &mut Random) -> Targets {
        let mut services = Vec::new();
        for (name, more) in [
            ("own", None),
            ("host", Some(("share", "edge"))),
            ("member", Some(("share", "edge"))),
            ("outside", Some(("external", "terraform"))),
            ("outside-2", Some(("external", "terraform"))),
        ] {
            let delay = *random.pick(&["", "0s", "10s", "60s", "600s", "soon"]);
            let delay = Some(("departing-delay", delay)).filter(|(_, delay)| !delay.is_empty());
            if name == "own" || random.percent(40) {
                services.push((name, delay.into_iter().chain(more).collect()));
            }
        }
        Targets {
            services,
            owner_has_node: random.percent(50),
            is_restless: random.percent(10),
            history: Mutex::default(),
        }
    }

    /// Returns the servers that the owner of the external load balancer made targets.
    fn targets_of_others(&self, sandbox: &Sandbox) -> BTreeSet<u64> {
        let node = Some(PERMANENT_NODE).filter(|_| self.owner_has_node);
        let names = [Some(FOREIGN), node].into_iter().flatten();
        names.filter_map(|name| server_named(sandbox, name)).collect()
    }

    /// Returns what both APIs show about the load balancer.
    fn view(&self, sandbox: &Sandbox, balancer: &Value) -> View {
        let mut view = View::read(sandbox, balancer);
        if is_external(balancer) {
            let of_others = self.targets_of_others(sandbox);
            view.wanted.retain(|id| !of_others.contains(id));
        }
        view
    }

    /// Returns why the target must not be removed, or `None`.
    fn violation_by_removal(&self, sandbox: &Sandbox, id: u64, server: u64) -> Option<String> {
        let all = sandbox.cloud().load_balancers(sandbox.project());
        let balancer = all.iter().find(|one| one["id"] == id)?;
        if is_external(balancer) && self.targets_of_others(sandbox).contains(&server) {
            return Some("it belongs to another owner".into());
        }
        let view = self.view(sandbox, balancer);
        // The answer to a removal can be lost. Then the target is gone when its removal is tried again.
        let is_gone = !view.there.contains(&server);
        if is_gone || !view.wanted.contains(&server) || users(sandbox, balancer).is_empty() {
            return None;
        }
        if !view.departing.contains(&server) {
            return Some("its node is wanted and does not depart".into());
        }
        let Some(delay) = delay(sandbox, balancer) else {
            return Some("no Service asks for it".into());
        };
        let node = view.nodes.iter().find(|node| server_of(node) == Some(server))?;
        let history = &mut *self.history.lock().unwrap();
        let departed = history.departed.get(node["metadata"]["uid"].as_str()?)?;
        let since = sandbox::time::now().saturating_duration_since(*departed);
        // Over sockets the time of `ccm` is scaled.
        if since < delay && sandbox::time::is_simulated() {
            return Some(format!("its node departs since {since:?}, which is less than {delay:?}"));
        }
        let (left_out, count) = view.left_out();
        if left_out + 1 > count / 2 {
            return Some(format!("{} of {count} targets would be left out", left_out + 1));
        }
        for port in list(&balancer["services"]) {
            let port = &port["listen_port"];
            let healthy =
                list(&balancer["targets"]).iter().filter(|target| is_healthy(target, port));
            let healthy = healthy.filter_map(|target| target["server"]["id"].as_u64());
            let healthy: BTreeSet<u64> = healthy.collect();
            let leaving = healthy.intersection(&view.departing).count();
            let staying = healthy.len() - leaving;
            if healthy.contains(&server) && (staying == 0 || staying < leaving) {
                return Some(format!(
                    "port {port}: {staying} healthy targets stay, {leaving} leave"
                ));
            }
        }
        history.removals += 1;
        history.violation_by_repetition(id, server)
    }

    /// Returns why these targets must not be added, or `None`. The rest of a plan may still be executed that was begun
    /// before the autoscaler set its taint.
    fn violation_by_addition(&self, sandbox: &Sandbox, id: u64, servers: &[u64]) -> Option<String> {
        let all = sandbox.cloud().load_balancers(sandbox.project());
        let there = all.iter().find(|one| one["id"] == id).map(targets).unwrap_or_default();
        self.note_frozen_cache(sandbox);
        let history = self.history.lock().unwrap();
        let is_alone =
            there.is_empty() && servers.iter().all(|id| history.tainted.contains_key(id));
        let now = sandbox::time::now();
        // The taint can be missing in a list of nodes from the frozen cache.
        let is_recent = |at: Instant| now.saturating_duration_since(at) <= PLAN_AGE;
        if history.frozen.is_some_and(is_recent) {
            return None;
        }
        let is_begun = |since: &Instant| {
            let mut written = history.written.get(&id).into_iter().flatten();
            written.any(|at| at < since && is_recent(*at))
        };
        let is_wrong =
            |id: &&u64| history.tainted.get(id).is_some_and(|since| !is_alone && !is_begun(since));
        let wrong = servers.iter().find(is_wrong)?;
        Some(format!("the autoscaler is about to delete the node of server {wrong}"))
    }

    /// Notes when the cache of the API server was frozen last.
    fn note_frozen_cache(&self, sandbox: &Sandbox) {
        if sandbox.cluster().is_cache_frozen() {
            self.history.lock().unwrap().frozen = Some(sandbox::time::now());
        }
    }

    /// Notes which nodes depart now.
    fn note(&self, sandbox: &Sandbox) {
        self.note_frozen_cache(sandbox);
        let now = sandbox::time::now();
        let nodes = sandbox.cluster().list("nodes", None);
        let History { departed, tainted, .. } = &mut *self.history.lock().unwrap();
        let of_autoscaler = nodes.iter().filter(|node| has_taint(node)).filter_map(server_of);
        let of_autoscaler: BTreeSet<u64> = of_autoscaler.collect();
        tainted.retain(|id, _| of_autoscaler.contains(id));
        for id in of_autoscaler {
            tainted.entry(id).or_insert(now);
        }
        for node in nodes.iter().filter(|node| departs(node)) {
            let uid = node["metadata"]["uid"].as_str().unwrap().to_owned();
            departed.entry(uid).or_insert(now);
        }
    }
}

impl History {
    /// Notes a removal because the node departs. Returns why it is one too many, or `None`.
    fn violation_by_repetition(&mut self, balancer: u64, server: u64) -> Option<String> {
        // Over sockets the time of `ccm` is scaled.
        if self.process.is_empty() || !sandbox::time::is_simulated() {
            return None;
        }
        let now = sandbox::time::now();
        let removal = (self.process.clone(), balancer, server);
        let is_again = !self.left.insert(removal.clone());
        let all = self.removed.entry(removal).or_default();
        if is_again {
            all.pop();
        }
        all.push(now);
        all.retain(|at| now.saturating_duration_since(*at) < REMOVALS_KEPT);
        let count = all.len();
        (count > REMOVALS_AT_MOST).then(|| format!("{count} removals of its node within an hour"))
    }

    /// Notes that a server becomes a target.
    fn added(&mut self, balancer: u64, server: u64) {
        self.left.retain(|(_, of, removed)| (*of, *removed) != (balancer, server));
    }
}

impl View {
    fn read(sandbox: &Sandbox, balancer: &Value) -> View {
        let nodes = sandbox.cluster().list("nodes", None);
        let existing = ids(&sandbox.cloud().servers(sandbox.project()));
        let of = |is_such: fn(&Value) -> bool| -> BTreeSet<u64> {
            nodes.iter().filter(|node| is_such(node)).filter_map(server_of).collect()
        };
        let (there, tainted, departing) = (targets(balancer), of(has_taint), of(departs));
        let mut wanted = eligible_servers(&nodes, &existing);
        // A node that the autoscaler is about to delete does not become a target.
        wanted.retain(|id| there.contains(id) || !tainted.contains(id));
        View { nodes, wanted, there, departing }
    }

    /// Returns how many departing nodes are no targets, and how many targets there would be without departing nodes.
    fn left_out(&self) -> (usize, usize) {
        let out = self.wanted.difference(&self.there).filter(|id| self.departing.contains(id));
        (out.count(), self.wanted.len())
    }
}

/// Returns the Services that have a port on the load balancer, the oldest first.
pub(super) fn users(sandbox: &Sandbox, balancer: &Value) -> Vec<Value> {
    let mut all = services(sandbox);
    all.retain(|service| is_on(service, balancer));
    all.sort_by_key(age);
    all
}

/// The order in which Services decide: by their age, and by their UIDs when they are equally old.
fn age(service: &Value) -> (String, String) {
    let meta = &service["metadata"];
    (meta["creationTimestamp"].to_string(), meta["uid"].to_string())
}

/// Whether another owner made the load balancer.
fn is_external(balancer: &Value) -> bool {
    !balancer["labels"][EXTERNAL].is_null()
}

/// Returns the Services that decide about targets which depart, the oldest first. In a group these are all Services that
/// ask for it, also one that has no port on the load balancer yet.
fn deciders(sandbox: &Sandbox, balancer: &Value) -> Vec<Value> {
    let Some(group) = balancer["labels"][GROUP].as_str() else {
        return users(sandbox, balancer);
    };
    let mut all = services(sandbox);
    let share = format!("{PREFIX}share");
    all.retain(|service| {
        let asks = service["metadata"]["annotations"][&share].as_str();
        asks.is_some_and(|name| group == format!("default.{name}"))
    });
    all.sort_by_key(age);
    all
}

/// Returns how long a departing node stays a target of the load balancer. `None` means that it stays a target.
pub(super) fn delay(sandbox: &Sandbox, balancer: &Value) -> Option<Duration> {
    let delays = deciders(sandbox, balancer).into_iter().map(|service| delay_of(&service));
    if is_external(balancer) {
        delays.collect::<Option<Vec<Duration>>>()?.into_iter().max()
    } else {
        delays.flatten().next()
    }
}

impl Topic for Targets {
    fn set_up(&self, sandbox: &Sandbox) {
        join(sandbox, PERMANENT_NODE);
        (0..NODES).for_each(|n| join(sandbox, &format!("n-{n}")));
        let cloud = sandbox.cloud();
        super::cluster::server(sandbox, FOREIGN);
        let targets = self.targets_of_others(sandbox);
        let target = |id| json!({ "type": "server", "server": { "id": id } });
        let targets: Vec<Value> = targets.into_iter().map(target).collect();
        let check =
            json!({ "protocol": "tcp", "port": 9000, "interval": 15, "timeout": 10, "retries": 3 });
        let port = json!({
            "protocol": "tcp", "listen_port": 9000, "destination_port": 9000, "proxyprotocol": false,
            "health_check": check,
        });
        let body = json!({
            "name": "terraform", "load_balancer_type": "lb11", "location": "fsn1",
            "labels": { EXTERNAL: "default" }, "services": [port],
            "targets": targets,
        });
        cloud.create_load_balancer(sandbox.project(), body);
        for (n, (name, annotations)) in self.services.iter().enumerate() {
            let annotations =
                annotations.iter().map(|(key, value)| (format!("{PREFIX}{key}"), value));
            let annotations: BTreeMap<String, &&str> = annotations.collect();
            let port = 80 + n as u64;
            sandbox.cluster().create(
                "services",
                NAMESPACE,
                json!({
                    "metadata": { "name": name, "namespace": "default", "annotations": annotations },
                    "spec": { "type": "LoadBalancer", "ports": [{ "name": "web", "port": port }] },
                }),
            );
        }
    }

    fn starts_converged(&self) -> bool {
        true
    }

    fn may_have_wrong_token(&self) -> bool {
        false
    }

    /// A process that works for a short time sees the end of no delay.
    fn more_rounds(&self, random: &mut Random) -> u64 {
        if random.percent(30) { ROUNDS } else { 0 }
    }

    fn process_works(&self, name: &str) {
        name.clone_into(&mut self.history.lock().unwrap().process);
    }

    fn phase_starts(&self, sandbox: &Sandbox) {
        self.note(sandbox);
    }

    fn apply_event(&self, sandbox: &Sandbox, random: &mut Random, _: bool) -> String {
        let cluster = sandbox.cluster();
        let name = format!("n-{}", random.below(NODES));
        let exists = cluster.get("nodes", None, &name).is_some();
        let line = match random.below(14) {
            _ if !exists => {
                join(sandbox, &name);
                format!("{name} joins")
            }
            0..3 => {
                cluster.set_cordoned(&name, true);
                format!("{name} is cordoned")
            }
            3 => {
                cluster.set_cordoned(&name, false);
                format!("{name} is uncordoned")
            }
            4..7 => {
                let kind = random.pick(&CONDITIONS);
                cluster.set_condition(&name, kind, "True");
                format!("{name} has {kind}")
            }
            7 => {
                let kind = random.pick(&CONDITIONS);
                cluster.set_condition(&name, kind, "False");
                format!("{name} has no {kind}")
            }
            8 => {
                cluster.set_taint(&name, AUTOSCALER, "1", "NoSchedule");
                cluster.set_cordoned(&name, true);
                format!("the autoscaler will delete {name}")
            }
            9 => {
                cluster.remove_taint(&name, AUTOSCALER);
                format!("the autoscaler keeps {name}")
            }
            10 => {
                let status = random.pick(&["True", "False"]);
                cluster.set_condition(&name, "Ready", status);
                format!("{name} has Ready={status}")
            }
            11 => {
                delete_node_and_server(sandbox, &name);
                format!("{name} is deleted with its server")
            }
            12 => {
                let (service, delay) =
                    (random.pick(&self.services).0, *random.pick(&["0s", "60s", ""]));
                set_delay(sandbox, service, |_| delay.to_owned());
                format!("{service} has the delay {delay:?}")
            }
            _ => set_health(sandbox, random, &name),
        };
        self.note(sandbox);
        line
    }

    /// All targets become healthy, and no delay lasts, so that everything converges.
    fn repair(&self, sandbox: &Sandbox) {
        for (name, _) in &self.services {
            set_delay(sandbox, name, |delay| if delay.is_empty() { "" } else { "0s" }.to_owned());
        }
        end_bad_health(sandbox);
        self.note(sandbox);
    }

    /// One node departs and comes back more often than it may leave the targets in an hour.
    fn extra_check(
        &self,
        sandbox: &Sandbox,
        round: &mut dyn FnMut() -> Vec<Report>,
    ) -> Result<(), String> {
        if !self.is_restless {
            return Ok(());
        }
        let cluster = sandbox.cluster();
        if cluster.get("nodes", None, RESTLESS).is_none() {
            join(sandbox, RESTLESS);
        }
        for name in (0..NODES).map(|n| format!("n-{n}")) {
            if cluster.get("nodes", None, &name).is_some() {
                comes_back(sandbox, &name);
            }
        }
        let (service, _) = &self.services[0];
        set_delay(sandbox, service, |_| "0s".to_owned());
        self.note(sandbox);
        (0..ROUNDS_OF_A_CHANGE).for_each(|_| drop(round()));
        // After a restore from a backup the node can name a server that does not exist any more.
        let server = cluster.get("nodes", None, RESTLESS).and_then(|node| server_of(&node));
        let balancers = sandbox.cloud().load_balancers(sandbox.project());
        let is_target =
            |balancer: &Value| server.is_some_and(|server| targets(balancer).contains(&server));
        if !balancers.iter().any(is_target) {
            return Ok(());
        }
        self.process_works("the process that sees a restless node");
        for _ in 0..REMOVALS_AT_MOST + 2 {
            cluster.set_cordoned(RESTLESS, true);
            cluster.set_condition(RESTLESS, CONDITIONS[0], "True");
            self.note(sandbox);
            (0..ROUNDS_OF_A_CHANGE).for_each(|_| drop(round()));
            comes_back(sandbox, RESTLESS);
            (0..ROUNDS_OF_A_CHANGE).for_each(|_| drop(round()));
        }
        let history = &mut *self.history.lock().unwrap();
        history.process.clear();
        let most = history.removed.values().map(Vec::len).max().unwrap_or_default();
        match most < REMOVALS_AT_MOST {
            true => Err(format!("a restless node was removed {most} times at most")),
            false => Ok(()),
        }
    }

    fn check_write(&self, sandbox: &Sandbox, half: Half, request: &Request) -> Verdict {
        if half == Half::Kubernetes && request.path.contains("/services/") {
            return Verdict::Allowed;
        }
        if half != Half::Hetzner || !request.path.starts_with("/v1/load_balancers") {
            return nodes::check_write(sandbox, half, request, &Vec::new());
        }
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let id = request.path.split('/').nth(3).and_then(|id| id.parse().ok()).unwrap_or_default();
        let server = |target: &Value| target["server"]["id"].as_u64();
        let added = |targets: &[Value]| -> Vec<u64> { targets.iter().filter_map(server).collect() };
        if let (true, Some(server)) = (request.path.ends_with("/add_target"), server(&body)) {
            self.history.lock().unwrap().added(id, server);
        }
        let violation = match (request.path.rsplit('/').next(), server(&body)) {
            (Some("remove_target"), Some(server)) => self.violation_by_removal(sandbox, id, server),
            (Some("add_target"), Some(server)) => {
                self.violation_by_addition(sandbox, id, &[server])
            }
            (Some("load_balancers"), _) => {
                self.violation_by_addition(sandbox, 0, &added(list(&body["targets"])))
            }
            _ => None,
        };
        let history = &mut *self.history.lock().unwrap();
        history.written.entry(id).or_default().push(sandbox::time::now());
        Verdict::from_violation(violation)
    }

    fn check_end_state(&self, sandbox: &Sandbox) -> Result<(), String> {
        let of_others = self.targets_of_others(sandbox);
        for balancer in sandbox.cloud().load_balancers(sandbox.project()) {
            let name = &balancer["name"];
            let is_external = is_external(&balancer);
            if is_external && !of_others.is_subset(&targets(&balancer)) {
                return Err(format!("{name}: the target of another owner is gone"));
            }
            if users(sandbox, &balancer).is_empty() {
                continue;
            }
            let view = self.view(sandbox, &balancer);
            let may_depart = delay(sandbox, &balancer).is_some();
            let out = view.wanted.difference(&view.there);
            let mut wrong = out.filter(|id| !(may_depart && view.departing.contains(id)));
            if let Some(id) = wrong.next() {
                return Err(format!("{name}: server {id} is no target"));
            }
            let (left_out, count) = view.left_out();
            let stay = view.departing.intersection(&view.there).count();
            // All targets are healthy now. More targets of departing nodes than others stay.
            let others = view.there.difference(&view.departing).count();
            // A node whose server is missing may count among the nodes that are left out, because a list of servers that
            // was read before the sync pass does not prove that the server is gone.
            let has_server = |id| ids(&sandbox.cloud().servers(sandbox.project())).contains(id);
            let is_known = view.departing.iter().all(has_server);
            let is_safe = may_depart && stay <= others && is_known;
            if left_out > count / 2 || is_safe && left_out < (count / 2).min(left_out + stay) {
                return Err(format!(
                    "{name}: {left_out} of {count} left out, {stay} departing stay"
                ));
            }
            // On an external load balancer, a server without a node may belong to another owner.
            let more = view.there.difference(&view.wanted).find(|_| !is_external);
            if let Some(id) = more {
                return Err(format!("{name}: server {id} is a target"));
            }
        }
        nodes::check_nodes(sandbox)
    }

    fn counts(&self, _: &Sandbox) -> BTreeMap<&'static str, u64> {
        [("targets of departing nodes removed", self.history.lock().unwrap().removals)].into()
    }
}

/// The node does not depart any more.
fn comes_back(sandbox: &Sandbox, name: &str) {
    let cluster = sandbox.cluster();
    cluster.set_cordoned(name, false);
    cluster.remove_taint(name, AUTOSCALER);
    CONDITIONS.iter().for_each(|kind| cluster.set_condition(name, kind, "False"));
    cluster.set_condition(name, "Ready", "True");
}

/// Changes the delay of a Service. An empty text removes the annotation.
pub(super) fn set_delay(sandbox: &Sandbox, service: &str, change: impl Fn(&str) -> String) {
    let key = format!("{PREFIX}departing-delay");
    sandbox.cluster().edit("services", NAMESPACE, service, |service| {
        let annotations = &mut service["metadata"]["annotations"];
        let delay = change(annotations[&key].as_str().unwrap_or_default());
        match delay.as_str() {
            "" => drop(annotations.as_object_mut().and_then(|all| all.remove(&key))),
            delay => annotations[&key] = json!(delay),
        }
    });
}

/// Sets the result of the health checks of one target, or of all targets, on each load balancer.
pub(super) fn set_health(sandbox: &Sandbox, random: &mut Random, name: &str) -> String {
    let unhealthy = Health::unhealthy("layer4_timeout");
    let unknown = Health { status: "unknown".into(), detail: None, ..unhealthy.clone() };
    let health = random.pick(&[None, Some(unhealthy), Some(unknown)]).clone();
    let chosen = server_named(sandbox, name).filter(|_| random.percent(50));
    for balancer in sandbox.cloud().load_balancers(sandbox.project()) {
        let id = balancer["id"].as_u64().unwrap();
        for server in targets(&balancer) {
            if chosen.is_none_or(|chosen| chosen == server) {
                sandbox.cloud().set_health(id, Machine::Server(server), None, health.clone());
            }
        }
    }
    let of = chosen.map_or("all targets", |_| name);
    format!("the health of {of} is {:?}", health.map(|health| health.status))
}

/// Whether a node will stop soon.
pub(super) fn departs(node: &Value) -> bool {
    let is = |kind: &str, status: &str| {
        let mut conditions = list(&node["status"]["conditions"]).iter();
        conditions.any(|one| one["type"] == kind && one["status"] == status)
    };
    let is_cordoned = node["spec"]["unschedulable"] == true;
    let is_marked = has_taint(node) || CONDITIONS.iter().any(|kind| is(kind, "True"));
    is_marked && (is_cordoned || !is("Ready", "True"))
}

pub(super) fn has_taint(node: &Value) -> bool {
    list(&node["spec"]["taints"]).iter().any(|taint| taint["key"] == AUTOSCALER)
}

/// Ends what [`set_health`] has begun, also for servers that are no targets now.
pub(super) fn end_bad_health(sandbox: &Sandbox) {
    let servers = ids(&sandbox.cloud().servers(sandbox.project()));
    for balancer in sandbox.cloud().load_balancers(sandbox.project()) {
        let id = balancer["id"].as_u64().unwrap();
        for server in &servers {
            sandbox.cloud().set_health(id, Machine::Server(*server), None, None);
        }
    }
}

/// Whether the Service uses the load balancer, as the labels say.
fn is_on(service: &Value, balancer: &Value) -> bool {
    let uid = &service["metadata"]["uid"];
    let labels = balancer["labels"].as_object().unwrap();
    labels.iter().any(|(key, value)| {
        value == uid && (key == SERVICE_UID || key.starts_with("ccm-from-scratch/port-"))
    })
}

fn delay_of(service: &Value) -> Option<Duration> {
    let value = service["metadata"]["annotations"][format!("{PREFIX}departing-delay")].as_str()?;
    let seconds = value.strip_suffix('s')?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

pub(super) fn is_healthy(target: &Value, port: &Value) -> bool {
    let mut healths = list(&target["health_status"]).iter();
    healths.any(|health| health["listen_port"] == *port && health["status"] == "healthy")
}
