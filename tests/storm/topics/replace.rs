//! Load balancers that are replaced by new ones while both serve. A person asks for it, aborts it, changes labels and
//! deletes load balancers, while targets become unhealthy. The load balancers belong to one Service, to a group, or were
//! adopted.

use super::cluster::{
    NAMESPACE, PERMANENT_NODE, delete_node_and_server, ensure_existing_server, join, list,
    services, wants_balancer,
};
use super::{Topic, Verdict, nodes};
use crate::random::Random;
use ccm::hetzner::load_balancers::annotations::PREFIX;
use ccm::hetzner::load_balancers::{
    ADOPT, CREATED, GROUP, OVERLAP, REPLACE, REPLACES, SERVICE_UID,
};
use sandbox::exchange::Request;
use sandbox::hetzner::{Health, Machine};
use sandbox::{Half, Sandbox};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The number of nodes that events change.
const NODES: u64 = 3;

/// How old the list may be on which a write was planned, with lost answers and waits in between.
const PLAN_AGE: Duration = Duration::from_secs(60);

/// A time that is so long that no story sees its end, and a time that is over at once.
const OVERLAPS: [&str; 2] = ["0s", "720h"];

pub struct Replacements {
    /// The name and the annotations of each Service.
    services: Vec<(&'static str, Vec<(&'static str, &'static str)>)>,
    history: Mutex<History>,
}

#[derive(Default)]
struct History {
    /// When a load balancer could take over from another one last. The key has the ID of the one that stays, and the ID
    /// of the one that leaves.
    held: BTreeMap<(u64, u64), Instant>,
    /// When a load balancer had the label `replace` last.
    asked: BTreeMap<u64, Instant>,
    /// When a load balancer existed without the label `replace` last.
    not_asked: BTreeMap<u64, Instant>,
    /// By how many seconds the clock of the Cloud API was ahead at most.
    ahead_s: i64,
    counts: BTreeMap<&'static str, u64>,
}

impl Replacements {
    pub fn generate(random: &mut Random) -> Replacements {
        let mut all = vec![("own", vec![])];
        if random.percent(40) {
            all.push(("host", vec![("share", "edge")]));
            all.push(("member", vec![("share", "edge")]));
        }
        if random.percent(30) {
            all.push(("adopted", vec![]));
        }
        Replacements { services: all, history: Mutex::default() }
    }

    /// Notes what a plan may see now.
    fn note(&self, sandbox: &Sandbox) {
        let (now, all) = (sandbox::time::now(), balancers(sandbox));
        let history = &mut *self.history.lock().unwrap();
        history.ahead_s = history.ahead_s.max(sandbox.cloud().clock_ahead());
        for balancer in &all {
            let is_asked = !balancer["labels"][REPLACE].is_null();
            let noted = if is_asked { &mut history.asked } else { &mut history.not_asked };
            noted.insert(id(balancer), now);
            for other in all.iter().filter(|other| is_pair(balancer, other)) {
                if takes_over(balancer, other) {
                    history.held.insert((id(balancer), id(other)), now);
                }
            }
        }
    }

    /// Whether the moment is not older than a plan.
    fn is_recent<K: Ord>(map: &BTreeMap<K, Instant>, key: &K) -> bool {
        let now = sandbox::time::now();
        map.get(key).is_some_and(|at| now.saturating_duration_since(*at) <= PLAN_AGE)
    }

    fn count(&self, what: &'static str) {
        *self.history.lock().unwrap().counts.entry(what).or_default() += 1;
    }

    /// Returns why this load balancer must not be deleted now, or `None`.
    fn violation_by_deletion(&self, sandbox: &Sandbox, id: u64) -> Option<String> {
        let all = balancers(sandbox);
        let balancer = all.iter().find(|one| self::id(one) == id)?;
        let users = users(sandbox, balancer);
        let wanting: Vec<&Value> = users.iter().filter(|one| wants_balancer(one)).collect();
        let other = all.iter().find(|other| is_pair(balancer, other));
        let first = wanting.first()?;
        if balancer["labels"][CREATED].is_null() {
            return Some("it was adopted".into());
        }
        let Some(other) = other else {
            return Some(format!("Service {} uses it", first["metadata"]["name"]));
        };
        if let Some(named) = services(sandbox).iter().find(|service| names(service, balancer)) {
            return Some(format!("the status of {} names it", named["metadata"]["name"]));
        }
        let history = self.history.lock().unwrap();
        let is_new = !balancer["labels"][REPLACES].is_null();
        let (old, overlap) = if is_new {
            (self::id(other), balancer["labels"][OVERLAP].as_str().unwrap_or_default())
        } else {
            (id, other["labels"][OVERLAP].as_str().unwrap_or_default())
        };
        let word = if is_new { "leaves." } else { "serves." };
        let allows = if is_new { &history.not_asked } else { &history.asked };
        if !Self::is_recent(allows, &old) {
            return Some(format!("nobody asks for this: {balancer}"));
        }
        if is_new && overlap.is_empty() {
            return None;
        }
        let ends = overlap.strip_prefix(word).and_then(|time| time.parse::<i64>().ok());
        let now = sandbox::time::timestamp().as_second() + history.ahead_s;
        if ends.is_none_or(|ends| ends > now) {
            return Some(format!("its time is not over: {overlap:?}, {now}"));
        }
        let holds = Self::is_recent(&history.held, &(self::id(other), id));
        (!holds).then(|| format!("the other one can't take over: {other}"))
    }

    /// Returns why the status must not become this one, or `None`.
    fn violation_by_status(&self, sandbox: &Sandbox, name: &str, to: &[Value]) -> Option<String> {
        let service = sandbox.cluster().get("services", NAMESPACE, name)?;
        let all = balancers(sandbox);
        let mut new = service.clone();
        new["status"]["loadBalancer"]["ingress"] = json!(to);
        let before: Vec<&Value> = all.iter().filter(|one| names(&service, one)).collect();
        let after: Vec<&Value> = all.iter().filter(|one| names(&new, one)).collect();
        if after.len() > 1 {
            return Some("it names two load balancers".into());
        }
        let before = before.first().filter(|_| wants_balancer(&service))?;
        let Some(after) = after.first() else {
            return Some("it would name none, and one serves".into());
        };
        // A backup of the cluster can show a load balancer that was released since.
        if !is_pair(before, after) {
            return None;
        }
        self.count("statuses that changed to another load balancer");
        let history = self.history.lock().unwrap();
        let holds = Self::is_recent(&history.held, &(id(after), id(before)));
        (!holds).then(|| format!("it changes to one that can't take over: {before} {after}"))
    }

    /// Returns why a load balancer with these labels must not be created, or `None`.
    fn violation_by_creation(&self, sandbox: &Sandbox, body: &Value) -> Option<String> {
        let (labels, name) = (&body["labels"], &body["name"]);
        let is_same =
            |key: &str, one: &Value| !labels[key].is_null() && labels[key] == one["labels"][key];
        let all = balancers(sandbox);
        let same = all.iter().filter(|one| is_same(SERVICE_UID, one) || is_same(GROUP, one));
        let same: Vec<&Value> = same.collect();
        let Some(old) = labels[REPLACES].as_str().and_then(|id| id.parse::<u64>().ok()) else {
            // The API refuses a name that exists. A list that lacks everything can lead to this.
            let is_refused = all.iter().any(|one| one["name"] == *name);
            let is_wrong = !same.is_empty() && !is_refused;
            return is_wrong.then(|| "a second one that replaces nothing".into());
        };
        self.count("load balancers created to replace another one");
        // The old one was deleted, or its new one was created by another process just now. The API refuses a second one.
        if same.len() > 1 {
            let is_again = same.iter().any(|one| one["labels"][REPLACES] == labels[REPLACES]);
            return (!is_again).then(|| "a third one".into());
        }
        let history = self.history.lock().unwrap();
        (!Self::is_recent(&history.asked, &old)).then(|| "nobody asks for this".into())
    }

    fn edit_labels(
        sandbox: &Sandbox,
        id: u64,
        edit: impl FnOnce(&mut serde_json::Map<String, Value>),
    ) {
        sandbox.cloud().edit_load_balancer(id, |one| {
            edit(one["labels"].as_object_mut().unwrap());
        });
    }
}

fn balancers(sandbox: &Sandbox) -> Vec<Value> {
    sandbox.cloud().load_balancers(sandbox.project())
}

fn id(balancer: &Value) -> u64 {
    balancer["id"].as_u64().unwrap()
}

/// Whether one of the two replaces the other.
fn is_pair(one: &Value, other: &Value) -> bool {
    let replaces = |new: &Value, old: &Value| new["labels"][REPLACES] == json!(id(old).to_string());
    replaces(one, other) || replaces(other, one)
}

/// Whether the status of the Service has an address of the load balancer.
fn names(service: &Value, balancer: &Value) -> bool {
    let net = &balancer["public_net"];
    let own = [&net["ipv4"]["ip"], &net["ipv6"]["ip"]];
    let shown = list(&service["status"]["loadBalancer"]["ingress"]);
    shown.iter().any(|entry| own.contains(&&entry["ip"]))
}

/// Returns the Services whose load balancer this is.
fn users(sandbox: &Sandbox, balancer: &Value) -> Vec<Value> {
    let labels = &balancer["labels"];
    let share = format!("{PREFIX}share");
    let is_user = |service: &Value| {
        let group = service["metadata"]["annotations"][&share].as_str();
        let group = group.map(|name| json!(format!("default.{name}")));
        labels[SERVICE_UID] == service["metadata"]["uid"]
            || group.is_some_and(|group| labels[GROUP] == group)
    };
    services(sandbox).into_iter().filter(is_user).collect()
}

fn healthy(balancer: &Value, port: &Value) -> usize {
    let checks =
        list(&balancer["targets"]).iter().flat_map(|target| list(&target["health_status"]));
    checks.filter(|check| check["listen_port"] == *port && check["status"] == "healthy").count()
}

/// Whether each port of the one that leaves has as many healthy targets on the one that stays.
fn takes_over(stays: &Value, leaves: &Value) -> bool {
    let ports = |one: &Value| -> Vec<Value> {
        list(&one["services"]).iter().map(|port| port["listen_port"].clone()).collect()
    };
    let there = ports(stays);
    ports(leaves)
        .iter()
        .all(|port| there.contains(port) && healthy(stays, port) >= healthy(leaves, port))
        && there.iter().any(|port| healthy(stays, port) > 0)
}

impl Topic for Replacements {
    fn set_up(&self, sandbox: &Sandbox) {
        join(sandbox, PERMANENT_NODE);
        (0..NODES).for_each(|n| join(sandbox, &format!("n-{n}")));
        for (n, (name, annotations)) in self.services.iter().enumerate() {
            if *name == "adopted" {
                let body = json!({
                    "name": "terraform", "load_balancer_type": "lb11", "location": "fsn1",
                    "labels": { ADOPT: "default.adopted" },
                });
                sandbox.cloud().create_load_balancer(sandbox.project(), body);
            }
            let annotations =
                annotations.iter().map(|(key, value)| (format!("{PREFIX}{key}"), *value));
            let annotations: BTreeMap<String, &str> = annotations.collect();
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

    fn more_rounds(&self, random: &mut Random) -> u64 {
        if random.percent(50) { 8 } else { 0 }
    }

    fn may_die_late(&self) -> bool {
        true
    }

    fn phase_starts(&self, sandbox: &Sandbox) {
        self.note(sandbox);
    }

    fn before_read(&self, sandbox: &Sandbox, _: &Request) {
        self.note(sandbox);
    }

    fn apply_event(&self, sandbox: &Sandbox, random: &mut Random, _: bool) -> String {
        self.note(sandbox);
        let all = balancers(sandbox);
        let name = format!("n-{}", random.below(NODES));
        let (service, annotations) = random.pick(&self.services).clone();
        let Some(balancer) = (!all.is_empty()).then(|| random.pick(&all)) else {
            return "nothing happens".to_owned();
        };
        let number = id(balancer);
        let is_new = !balancer["labels"][REPLACES].is_null();
        let line = match random.below(20) {
            0..6 if !is_new => {
                let overlap = *random.pick(&OVERLAPS);
                Self::edit_labels(sandbox, number, |labels| {
                    labels.insert(REPLACE.to_owned(), json!(overlap));
                });
                format!("{number} is to be replaced: {overlap}")
            }
            6 | 7 => {
                Self::edit_labels(sandbox, number, |labels| drop(labels.remove(REPLACE)));
                format!("the replacement of {number} is aborted")
            }
            8 if is_new => {
                Self::edit_labels(sandbox, number, |labels| drop(labels.remove(OVERLAP)));
                format!("{number} has lost the label overlap")
            }
            9 | 10 if is_new => {
                let now = sandbox::time::timestamp().as_second();
                Self::edit_labels(sandbox, number, |labels| {
                    if let Some(overlap) = labels.get_mut(OVERLAP) {
                        let word = overlap.as_str().unwrap().split('.').next().unwrap().to_owned();
                        *overlap = json!(format!("{word}.{now}"));
                    }
                });
                format!("the overlap of {number} ends now")
            }
            11 if random.percent(30) => {
                sandbox.cloud().delete_load_balancer(number);
                format!("{number} is deleted by a person")
            }
            12 => {
                let place = *random.pick(&["fsn1", "nbg1", "hel1"]);
                sandbox.cluster().edit("services", NAMESPACE, service, |one| {
                    one["metadata"]["annotations"][format!("{PREFIX}location")] = json!(place);
                });
                format!("{service} asks for {place}")
            }
            13 if annotations.is_empty() => {
                let port = 8000 + random.below(3);
                sandbox.cluster().edit("services", NAMESPACE, service, |one| {
                    one["spec"]["ports"][0]["port"] = json!(port);
                });
                format!("{service} has port {port}")
            }
            14 => {
                match sandbox.cluster().get("nodes", None, &name) {
                    Some(_) => delete_node_and_server(sandbox, &name),
                    None => join(sandbox, &name),
                }
                format!("{name} comes or goes")
            }
            15 if random.percent(20) => {
                let kind = *random.pick(&["LoadBalancer", "ClusterIP"]);
                sandbox.cluster().edit("services", NAMESPACE, service, |one| {
                    one["spec"]["type"] = json!(kind);
                });
                format!("{service} has type {kind}")
            }
            _ => {
                let targets = super::cluster::targets(balancer);
                let is_bad = random.percent(40);
                for server in targets {
                    let health = is_bad.then(|| Health::unhealthy("layer4_timeout"));
                    sandbox.cloud().set_health(number, Machine::Server(server), None, health);
                }
                format!("{number}: unhealthy: {is_bad}")
            }
        };
        self.note(sandbox);
        line
    }

    fn repair(&self, sandbox: &Sandbox) {
        ensure_existing_server(sandbox);
        let (servers, all) = (sandbox.cloud().servers(sandbox.project()), balancers(sandbox));
        for balancer in &all {
            // The hour after an abort would end while nothing may be written any more.
            let is_old = balancer["labels"][REPLACES].is_null();
            if is_old && all.iter().any(|other| is_pair(balancer, other)) {
                let overlap = balancer["labels"][REPLACE].as_str().unwrap_or("720h").to_owned();
                Self::edit_labels(sandbox, id(balancer), |labels| {
                    labels.insert(REPLACE.to_owned(), json!(overlap));
                });
            }
            for server in super::cluster::ids(&servers) {
                sandbox.cloud().set_health(id(balancer), Machine::Server(server), None, None);
            }
        }
    }

    fn check_write(&self, sandbox: &Sandbox, half: Half, request: &Request) -> Verdict {
        self.note(sandbox);
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let path = request.path.as_str();
        if half == Half::Kubernetes {
            let Some(rest) = path.strip_prefix("/api/v1/namespaces/default/services/") else {
                return nodes::check_write(sandbox, half, request, &Vec::new());
            };
            let name = rest.split('/').next().unwrap_or_default();
            let ingress = &body["status"]["loadBalancer"];
            if ingress.is_null() {
                return Verdict::Allowed;
            }
            let to = list(&ingress["ingress"]);
            return Verdict::from_violation(self.violation_by_status(sandbox, name, to));
        }
        let Some(rest) = path.strip_prefix("/v1/load_balancers") else {
            return Verdict::Unrelated;
        };
        let number = rest.trim_matches('/').split('/').next().and_then(|id| id.parse::<u64>().ok());
        Verdict::from_violation(match (request.method.as_str(), number) {
            ("POST", None) => self.violation_by_creation(sandbox, &body),
            ("DELETE", Some(number)) => self.violation_by_deletion(sandbox, number),
            _ => None,
        })
    }

    fn check_end_state(&self, sandbox: &Sandbox) -> Result<(), String> {
        let all = balancers(sandbox);
        let now = sandbox::time::timestamp().as_second();
        for balancer in &all {
            let Some(replaces) = balancer["labels"][REPLACES].as_str() else {
                continue;
            };
            let old = all.iter().find(|one| id(one).to_string() == replaces);
            let overlap = balancer["labels"][OVERLAP].as_str().unwrap_or_default();
            let ends = overlap.split_once('.').and_then(|(_, time)| time.parse::<i64>().ok());
            if old.is_none() || ends.is_none_or(|ends| ends < now) {
                return Err(format!("a replacement does not go on: {balancer:#} {old:#?}"));
            }
        }
        for service in services(sandbox).iter().filter(|service| wants_balancer(service)) {
            let own: BTreeSet<u64> = all
                .iter()
                .filter(|one| {
                    users(sandbox, one)
                        .iter()
                        .any(|user| user["metadata"]["uid"] == service["metadata"]["uid"])
                })
                .map(id)
                .collect();
            let named: Vec<u64> = all.iter().filter(|one| names(service, one)).map(id).collect();
            let has_pair =
                all.iter().any(|one| own.contains(&id(one)) && !one["labels"][REPLACES].is_null());
            if own.len() != if has_pair { 2 } else { 1 }
                || named.len() != 1
                || !own.contains(&named[0])
            {
                return Err(format!(
                    "Service {} has {own:?}, and its status names {named:?}: {service:#} {all:#?}",
                    service["metadata"]["name"]
                ));
            }
        }
        Ok(())
    }

    fn counts(&self, sandbox: &Sandbox) -> BTreeMap<&'static str, u64> {
        let mut counts = self.history.lock().unwrap().counts.clone();
        let calls = sandbox.calls().calls();
        let is_deletion = |call: &&sandbox::calls::Call| {
            call.method == "DELETE" && call.path.starts_with("/v1/load_balancers/")
        };
        counts.insert("load balancers deleted", calls.iter().filter(is_deletion).count() as u64);
        counts
    }
}
