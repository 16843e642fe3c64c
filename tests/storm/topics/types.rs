//! Types of load balancers. `type: auto` lets a load balancer grow before a limit of its type is hit. It never becomes
//! smaller by itself, and never larger than a person allows.

use super::cluster::{
    NAMESPACE, PERMANENT_NODE, delete_node_and_server, eligible_servers, ids, join, list, services,
    wants_balancer,
};
use super::{Topic, Verdict, nodes};
use crate::random::Random;
use ccm::hetzner::load_balancers::annotations::PREFIX;
use ccm::hetzner::load_balancers::{GROUP, SERVICE_UID};
use sandbox::exchange::{Request, Response};
use sandbox::faults::{Effect, Rule};
use sandbox::{Half, Sandbox};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The types, the smallest first, with the number of targets that they take in these stories, and of ports.
const TYPES: [(&str, usize, usize); 3] = [("lb11", 3, 5), ("lb21", 5, 15), ("lb31", 8, 30)];

/// The path of the list of types.
const LIST: &str = "/v1/load_balancer_types";

/// The number of nodes that events add and delete.
const NODES: u64 = 7;

/// The Services, each with its first port. `host` and `member` share a load balancer.
const SERVICES: [(&str, u64); 4] = [("auto", 80), ("host", 100), ("member", 200), ("plain", 300)];

/// How long the rest of a plan may still be executed.
const PLAN_AGE: Duration = Duration::from_secs(60);

/// The greatest age of the list of types before a type is written.
const LIST_AGE: Duration = Duration::from_secs(600);

pub struct Types {
    history: Arc<Mutex<History>>,
}

#[derive(Default)]
struct History {
    /// What both APIs have shown, each with the time since when, the oldest first.
    views: Vec<(Instant, View)>,
    /// When the cache of the API server was last seen to be frozen.
    frozen: Option<Instant>,
    /// The name of the process that works now.
    process: String,
    /// When each process has read the list of types.
    read: BTreeMap<String, Instant>,
    changes: u64,
}

/// What the APIs show about the needs of load balancers.
#[derive(Clone, Debug, PartialEq)]
struct View {
    targets: usize,
    services: BTreeMap<String, Asked>,
}

/// What one Service asks for.
#[derive(Clone, Debug, PartialEq)]
struct Asked {
    kind: Option<String>,
    most: Option<String>,
    ports: usize,
}

impl View {
    fn read(sandbox: &Sandbox) -> View {
        let existing = ids(&sandbox.cloud().servers(sandbox.project()));
        let nodes = sandbox.cluster().list("nodes", None);
        let services = services(sandbox).into_iter().filter(wants_balancer).map(|service| {
            let text = |name: &str| {
                let value = service["metadata"]["annotations"][format!("{PREFIX}{name}")].as_str();
                value.map(str::to_owned)
            };
            let ports = list(&service["spec"]["ports"]).len();
            let asked = Asked { kind: text("type"), most: text("type-max"), ports };
            (service["metadata"]["name"].as_str().unwrap().to_owned(), asked)
        });
        View { targets: eligible_servers(&nodes, &existing).len(), services: services.collect() }
    }

    /// Returns the Service whose annotations decide about the load balancer of this Service.
    fn decider(&self, service: &str) -> Option<&Asked> {
        self.services.get(if service == "member" { "host" } else { service })
    }

    /// Returns the number of the largest type that the load balancer of this Service may get.
    fn most(&self, service: &str) -> usize {
        let most = self.decider(service).and_then(|asked| asked.most.as_deref());
        most.map_or(TYPES.len() - 1, place)
    }

    /// Returns the number of ports that the Services of this load balancer ask for.
    fn ports(&self, service: &str) -> usize {
        let of_group = ["host", "member"];
        let names = if of_group.contains(&service) { &of_group[..] } else { &[service][..] };
        names.iter().filter_map(|name| self.services.get(*name)).map(|asked| asked.ports).sum()
    }

    /// Whether a type has room for what the Services of this load balancer ask for.
    fn fits(&self, service: &str, kind: usize) -> bool {
        let (_, targets_at_most, ports_at_most) = TYPES[kind];
        self.targets <= targets_at_most && self.ports(service) <= ports_at_most
    }

    /// Whether a load balancer of this Service may change from one type to the other.
    fn allows(&self, service: &str, from: usize, to: usize) -> bool {
        let most = self.most(service);
        match self.decider(service).and_then(|asked| asked.kind.as_deref()) {
            Some("auto") => to > from && to <= most && !self.fits(service, from),
            Some(kind) => to == place(kind).min(most),
            None => false,
        }
    }
}

/// Returns the number of a type in the order of sizes.
fn place(kind: &str) -> usize {
    TYPES.iter().position(|(name, ..)| *name == kind).unwrap()
}

impl Types {
    pub fn generate(_: &mut Random) -> Types {
        Types { history: Arc::default() }
    }

    /// Notes what both APIs show now.
    fn history(&self, sandbox: &Sandbox) -> MutexGuard<'_, History> {
        let (now, view) = (sandbox::time::now(), View::read(sandbox));
        let mut history = self.history.lock().unwrap();
        if history.views.last().is_none_or(|(_, last)| *last != view) {
            history.views.push((now, view));
        }
        if sandbox.cluster().is_cache_frozen() {
            history.frozen = Some(now);
        }
        history
    }

    /// Returns why the type must not be written, or `None`. `present` is the type before, and `None` for a new load
    /// balancer.
    fn violation(
        &self,
        sandbox: &Sandbox,
        service: &str,
        present: Option<usize>,
        kind: usize,
    ) -> Option<String> {
        let mut history = self.history(sandbox);
        let now = sandbox::time::now();
        let is_recent = |at: Instant| now.saturating_duration_since(at) <= PLAN_AGE;
        let name = TYPES[kind].0;
        let Some(from) = present else {
            let is_allowed = history.recent(is_recent).any(|view| kind <= view.most(service));
            let is_known = is_allowed || history.frozen.is_some_and(is_recent);
            return (!is_known).then(|| format!("a new load balancer of type {name} is too large"));
        };
        if history.frozen.is_some_and(is_recent) {
            return None;
        }
        let asked = |view: &View| view.decider(service).and_then(|asked| asked.kind.clone());
        let allowing = history.recent(is_recent).filter(|view| view.allows(service, from, kind));
        let kinds: Vec<Option<String>> = allowing.map(asked).collect();
        if kinds.is_empty() {
            let views: Vec<&View> = history.recent(is_recent).collect();
            return Some(format!("from {} to {name}, not asked for in {views:?}", TYPES[from].0));
        }
        let read = history.read.get(&history.process);
        let is_fresh = read.is_some_and(|at| now.saturating_duration_since(*at) <= LIST_AGE);
        // A type that a person names needs no new list.
        let is_chosen = kinds.iter().all(|kind| kind.as_deref() == Some("auto"));
        if is_chosen && !is_fresh && sandbox::time::is_simulated() {
            return Some(format!("to {name} by a list of types that was read at {read:?}"));
        }
        history.changes += 1;
        None
    }
}

impl History {
    /// Returns the views on which a plan can rest that is executed now.
    fn recent(&self, is_recent: impl Fn(Instant) -> bool) -> impl Iterator<Item = &View> {
        let end = |place: usize| self.views.get(place + 1).map(|(since, _)| *since);
        let views = self.views.iter().enumerate();
        views
            .filter(move |(place, _)| end(*place).is_none_or(&is_recent))
            .map(|(_, (_, view))| view)
    }

    fn answer(&mut self, response: Response) -> Response {
        if response.status == 200 {
            self.read.insert(self.process.clone(), sandbox::time::now());
        }
        response
    }
}

/// Returns a Service of the load balancer. Of a group it is any of its Services.
fn service_of(sandbox: &Sandbox, balancer: &Value) -> Option<String> {
    if balancer["labels"][GROUP].is_string() {
        return Some("host".into());
    }
    let uid = &balancer["labels"][SERVICE_UID];
    let services = services(sandbox);
    let service = services.iter().find(|service| service["metadata"]["uid"] == *uid)?;
    Some(service["metadata"]["name"].as_str()?.to_owned())
}

fn set(sandbox: &Sandbox, service: &str, annotation: &str, value: &str) {
    sandbox.cluster().edit("services", NAMESPACE, service, |one| {
        let all = one["metadata"]["annotations"].as_object_mut().unwrap();
        let key = format!("{PREFIX}{annotation}");
        match value {
            "" => drop(all.remove(&key)),
            value => drop(all.insert(key, json!(value))),
        }
    });
}

fn ports(first: u64, count: u64) -> Value {
    let port = |n: u64| json!({ "name": format!("p{n}"), "port": first + n, "nodePort": 30_000 + first + n });
    (0..count).map(port).collect()
}

impl Topic for Types {
    fn set_up(&self, sandbox: &Sandbox) {
        for (name, targets, _) in TYPES {
            sandbox.cloud().set_target_limit(name, targets);
        }
        join(sandbox, PERMANENT_NODE);
        for (name, first) in SERVICES {
            let annotations = match name {
                "plain" => json!({}),
                "auto" => json!({ format!("{PREFIX}type"): "auto" }),
                "host" => {
                    json!({ format!("{PREFIX}type"): "auto", format!("{PREFIX}share"): "edge" })
                }
                _ => json!({ format!("{PREFIX}share"): "edge" }),
            };
            sandbox.cluster().create(
                "services",
                NAMESPACE,
                json!({
                    "metadata": { "name": name, "namespace": "default", "annotations": annotations },
                    "spec": { "type": "LoadBalancer", "ports": ports(first, 1) },
                }),
            );
        }
    }

    fn may_have_wrong_token(&self) -> bool {
        false
    }

    fn process_works(&self, name: &str) {
        name.clone_into(&mut self.history.lock().unwrap().process);
    }

    fn phase_starts(&self, sandbox: &Sandbox) {
        drop(self.history(sandbox));
        let history = Arc::clone(&self.history);
        let note = Effect::changed(move |response| history.lock().unwrap().answer(response));
        sandbox.faults().add(Rule::new(note).half(Half::Hetzner).method("GET").path(LIST));
    }

    fn inject_faults(&self, sandbox: &Sandbox, random: &mut Random) {
        if random.percent(20) {
            let refused = Rule::new(Effect::hetzner_error(500, "server_error", "later"));
            let times = 1 + random.below(20);
            sandbox.faults().add(refused.half(Half::Hetzner).path(LIST).times(times));
        }
    }

    fn apply_event(&self, sandbox: &Sandbox, random: &mut Random, _: bool) -> String {
        drop(self.history(sandbox));
        let cluster = sandbox.cluster();
        let name = format!("n-{}", random.below(NODES));
        let exists = cluster.get("nodes", None, &name).is_some();
        let line = match random.below(12) {
            0..4 if !exists => {
                join(sandbox, &name);
                format!("{name} joins")
            }
            0 | 1 if exists => {
                delete_node_and_server(sandbox, &name);
                format!("{name} is deleted with its server")
            }
            2..4 if exists => {
                let status = *random.pick(&["True", "False"]);
                cluster.set_condition(&name, "Ready", status);
                format!("{name} has Ready={status}")
            }
            4..8 => {
                let (service, first) = *random.pick(&SERVICES);
                let count = *random.pick(&[1, 2, 5, 6, 8, 16]);
                cluster.edit("services", NAMESPACE, service, |one| {
                    one["spec"]["ports"] = ports(first, count);
                });
                format!("{service} has {count} ports")
            }
            8 => {
                let value = *random.pick(&["lb11", "lb21", "auto", "auto"]);
                let service = *random.pick(&["auto", "host"]);
                set(sandbox, service, "type", value);
                format!("{service} has type {value}")
            }
            9 | 10 => {
                let value = *random.pick(&["lb11", "lb21", "lb31", ""]);
                let service = *random.pick(&["auto", "host"]);
                set(sandbox, service, "type-max", value);
                format!("{service} has type-max {value:?}")
            }
            _ => {
                let (since, until) = ("2026-01-01T00:00:00Z", "2999-01-01T00:00:00Z");
                sandbox.cloud().deprecate_load_balancer_type("lb11", since, until);
                "lb11 is deprecated".into()
            }
        };
        drop(self.history(sandbox));
        line
    }

    fn restored(&self, sandbox: &Sandbox) {
        drop(self.history(sandbox));
    }

    fn check_write(&self, sandbox: &Sandbox, half: Half, request: &Request) -> Verdict {
        if half == Half::Kubernetes && request.path.contains("/services/") {
            return Verdict::Allowed;
        }
        if half != Half::Hetzner || !request.path.starts_with("/v1/load_balancers") {
            return nodes::check_write(sandbox, half, request, &Vec::new());
        }
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let kind = || body["load_balancer_type"].as_str().map(place);
        let violation = if request.path.ends_with("/change_type") {
            let id = request.path.split('/').nth(3).and_then(|id| id.parse::<u64>().ok());
            let all = sandbox.cloud().load_balancers(sandbox.project());
            let balancer = all.iter().find(|one| one["id"].as_u64() == id);
            let present = balancer.and_then(|one| one["load_balancer_type"]["name"].as_str());
            // The answer to an earlier write of the same type can be lost.
            let present = present.map(place).filter(|present| Some(*present) != kind());
            let service = balancer.and_then(|one| service_of(sandbox, one));
            let all = service.zip(present).zip(kind());
            all.and_then(|((service, from), to)| self.violation(sandbox, &service, Some(from), to))
        } else if request.path.ends_with("/load_balancers") {
            let service = service_of(sandbox, &body);
            let all = service.zip(kind());
            all.and_then(|(service, kind)| self.violation(sandbox, &service, None, kind))
        } else {
            None
        };
        Verdict::from_violation(violation)
    }

    fn check_end_state(&self, sandbox: &Sandbox) -> Result<(), String> {
        let view = View::read(sandbox);
        for balancer in sandbox.cloud().load_balancers(sandbox.project()) {
            let Some(service) = service_of(sandbox, &balancer) else {
                return Err(format!("a load balancer of no Service: {balancer}"));
            };
            let kind = place(balancer["load_balancer_type"]["name"].as_str().unwrap());
            let asked = view.decider(&service).and_then(|asked| asked.kind.as_deref());
            let most = view.most(&service);
            // With too many ports for any type that is allowed, nothing is changed until a person corrects this.
            let (.., ports_at_most) = TYPES[most];
            let is_right = match asked {
                _ if view.ports(&service) > ports_at_most => true,
                Some("auto") => view.fits(&service, kind) || kind >= most,
                // A load balancer that is larger than the limit stays as it is.
                Some(named) => {
                    kind == place(named).min(most)
                        || kind > most
                        || !view.fits(&service, place(named))
                }
                None => true,
            };
            if !is_right {
                return Err(format!("{service} has type {}: {view:?}", TYPES[kind].0));
            }
        }
        nodes::check_nodes(sandbox)
    }

    fn counts(&self, _: &Sandbox) -> BTreeMap<&'static str, u64> {
        BTreeMap::from([("types changed", self.history.lock().unwrap().changes)])
    }
}
