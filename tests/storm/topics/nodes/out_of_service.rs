//! The taint `out-of-service` in stories: servers that stay off, are locked, or are switched on at the worst moment, and
//! taints of other programs.

use super::invariants::{PREFIX, node_written};
use super::{Host, SHUTDOWN, edit};
use crate::random::Random;
use sandbox::calls::Call;
use sandbox::exchange::Request;
use sandbox::faults::{Effect, Rule};
use sandbox::hetzner::ServerSpec;
use sandbox::kubelet::NodeSpec;
use sandbox::time;
use sandbox::{Half, Sandbox};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const KEY: &str = "node.kubernetes.io/out-of-service";
const OWN: &str = "ccm-from-scratch";

/// The setting of the processes. The shortest time that a person may set would make the stories long.
pub const AFTER: Duration = Duration::from_secs(100);

/// The number of rounds in which a node can get the taint.
pub const ROUNDS: u64 = 32;

/// How long a server that was switched on stays on at least. Without a read in twice the longest time between two
/// reads, which is 120 s, `ccm` measures anew. So it notices that the server was on.
const ON_AT_LEAST: Duration = Duration::from_secs(130);

/// The longest time that the write may take. The read of the server on which a taint rests may be as old.
const WRITE: Duration = Duration::from_secs(8);

/// The nodes that are there beside those of the other events, so that at least half of all nodes are ready. Events
/// change the first ones.
const STEADY: usize = 14;
const CHANGING: u64 = 4;

/// When each server was switched on or off, by its ID, oldest first. A server that was not switched is not in the map.
type Power = HashMap<u64, Vec<(bool, Instant)>>;

/// What servers really did, and how often nodes were taken out of service.
#[derive(Default)]
pub struct OutOfService {
    power: Arc<Mutex<Power>>,
    tainted: AtomicU64,
    /// Whether another process may work while one is paused. A server is then not switched on during a tick.
    pub two_at_once: bool,
}

impl OutOfService {
    pub fn new(two_at_once: bool) -> OutOfService {
        OutOfService { two_at_once, ..OutOfService::default() }
    }

    pub fn set_up(&self, sandbox: &Sandbox) {
        for n in 0..STEADY {
            let name = format!("s-{n}");
            let spec = ServerSpec { name: name.clone(), ..ServerSpec::default() };
            let server = sandbox.cloud().create_server(sandbox.project(), spec);
            sandbox.register_node(NodeSpec {
                name: name.clone(),
                server: Some(server),
                provider_id: Some(format!("{PREFIX}{server}")),
                ..NodeSpec::default()
            });
        }
        sandbox.kubelets().heartbeat();
        for name in ["s-0", "s-2", "s-3"] {
            self.set_power(sandbox, Host::of_node(sandbox, name), false);
        }
        set_taints(sandbox, "s-1", &["nodeshutdown"]);
        set_taints(sandbox, "s-4", &[OWN]);
        set_taints(sandbox, "s-5", &["nodeshutdown"]);
        let servers = sandbox.cloud().servers(sandbox.project());
        let off = servers.iter().filter(|server| server["status"] == "off");
        let off =
            off.filter_map(|server| Some((server["id"].as_u64()?, vec![(false, time::now())])));
        self.power.lock().unwrap().extend(off);
    }

    /// Switches a server on or off. A server that was just switched on stays on. Returns whether anything was done.
    pub fn set_power(&self, sandbox: &Sandbox, host: Option<Host>, is_on: bool) -> bool {
        let mut power = self.power.lock().unwrap();
        if let Some(Host::Server(id)) = host {
            let switched = power.entry(id).or_default();
            if switched.last().is_some_and(|(was_on, since)| {
                *was_on == is_on || *was_on && time::since(*since) < ON_AT_LEAST
            }) {
                return false;
            }
            switched.push((is_on, time::now()));
        }
        if let Some(host) = host {
            host.set_power(sandbox, is_on);
        }
        true
    }

    pub fn apply_event(&self, sandbox: &Sandbox, random: &mut Random) -> String {
        let name = format!("s-{}", random.below(CHANGING));
        let host = Host::of_node(sandbox, &name);
        match random.below(8) {
            0 | 1 => {
                let done = self.set_power(sandbox, host, false);
                sandbox.kubelets().expire();
                format!("{name} is switched off: {done}")
            }
            2 => {
                let done = self.set_power(sandbox, host, true);
                format!("{name} is switched on, and its kubelet does not report yet: {done}")
            }
            3 => {
                let done = self.set_power(sandbox, host, true);
                sandbox.kubelets().heartbeat();
                format!("{name} is switched on: {done}")
            }
            4 => {
                set_taints(sandbox, &name, &["nodeshutdown"]);
                format!("{name} gets the taint of another program")
            }
            5 => {
                set_taints(sandbox, &name, &[]);
                format!("a person removes the taints of {name}")
            }
            _ => {
                let is_locked = random.percent(30);
                if let Some(Host::Server(id)) = host {
                    let lock = |server: &mut Value| server["locked"] = json!(is_locked);
                    sandbox.cloud().edit_server(id, lock);
                }
                format!("the server of {name} is locked: {is_locked}")
            }
        }
    }

    /// Switches a server on in the tick in which its node can get the taint, after the periodic read of the server. The
    /// node is read then, and this takes longer than a write may take.
    pub fn inject_faults(&self, sandbox: &Sandbox, random: &mut Random) {
        let name = format!("s-{}", random.below(CHANGING));
        let Some(Host::Server(id)) = Host::of_node(sandbox, &name) else {
            return;
        };
        let (cloud, power) = (Arc::clone(sandbox.cloud()), Arc::clone(&self.power));
        let switch_on = move |_: &Request| {
            power.lock().unwrap().entry(id).or_default().push((true, time::now()));
            cloud.set_power(id, true);
        };
        for effect in [Effect::before(switch_on), Effect::Slow(WRITE + Duration::from_secs(1))] {
            let (cluster, power) = (Arc::clone(sandbox.cluster()), Arc::clone(&self.power));
            let read = format!("/api/v1/nodes/{name}");
            let node = name.clone();
            let is_due = move |_: &Request| {
                let power = last_switched(&power, id);
                let is_off = power.is_some_and(|(on, since)| !on && time::since(since) >= AFTER);
                let node = cluster.get("nodes", None, &node);
                is_off && node.is_some_and(|node| has_key(&node, SHUTDOWN))
            };
            let rule = Rule::new(effect).half(Half::Kubernetes).method("GET").path(&read);
            sandbox.faults().add(rule.when(is_due).times(1));
        }
    }

    /// Whether a read of the server found it off, and is no older than a read may be on which a taint rests. The server
    /// may have been switched on since, which `ccm` can't know.
    pub fn was_read_off(&self, sandbox: &Sandbox, id: u64) -> bool {
        let power = self.power.lock().unwrap();
        let Some(switched) = power.get(&id) else {
            return false;
        };
        let was_off = |at: Instant| {
            let before = switched.iter().rfind(|(_, since)| *since <= at);
            before.is_some_and(|(is_on, _)| !is_on)
        };
        let alone = format!("/v1/servers/{id}");
        let is_list = |call: &Call| call.path == "/v1/servers" && call.query("name").is_none();
        let found_off = |call: &Call| {
            call.half == Half::Hetzner
                && call.method == "GET"
                && call.status == Some(200)
                && (call.path == alone || is_list(call))
                && time::since(call.started) <= WRITE
                && was_off(call.started)
        };
        // Most servers were not switched for long, so that the calls need not be searched.
        let is_recent = switched.last().is_some_and(|(_, since)| time::since(*since) <= WRITE);
        is_recent && sandbox.calls().count(found_off) > 0
    }

    /// Returns why a write changes taints of others, or takes a node out of service whose server may run.
    pub fn violation_by(&self, sandbox: &Sandbox, request: &Request) -> Option<String> {
        let body: Value = serde_json::from_slice(&request.body).ok()?;
        let (written, version) = (&body["spec"]["taints"], &body["metadata"]["resourceVersion"]);
        let node = &sandbox.cluster().get("nodes", None, node_written(request)?)?;
        // The API server refuses a write for another version of the node.
        if !written.is_array() || node["metadata"]["resourceVersion"] != *version {
            return None;
        }
        let (before, after) = (of_key(&node["spec"]["taints"]), of_key(written));
        let (own_before, others_before) = parted(before);
        let (own_after, others_after) = parted(after);
        if others_before != others_after {
            return Some(format!("taints of others become {others_after:?}: {others_before:?}"));
        }
        if own_after.is_empty() || own_after == own_before {
            return None;
        }
        self.tainted.fetch_add(1, Ordering::Relaxed);
        let id = node["spec"]["providerID"].as_str().unwrap_or_default();
        let server = id.strip_prefix(PREFIX).and_then(|id| id.parse().ok()).unwrap_or(0);
        let power = last_switched(&self.power, server);
        let servers = sandbox.cloud().servers(sandbox.project());
        let server = servers.iter().find(|one| one["id"] == server);
        match power {
            _ if !others_before.is_empty() => Some("it has a taint of the key already".into()),
            _ if ready(node) != Some("Unknown") => Some(format!("Ready is {:?}", ready(node))),
            _ if !has_key(node, SHUTDOWN) => Some("it does not have the taint shutdown".into()),
            _ if server.is_some_and(|server| server["locked"] == true) => {
                Some("its server is locked".into())
            }
            Some((true, since)) if time::since(since) <= WRITE => None,
            Some((false, since)) if time::since(since) >= AFTER => None,
            power => Some(format!("its server: {:?}", power.map(|(on, at)| (on, time::since(at))))),
        }
    }

    pub fn count(&self) -> u64 {
        self.tainted.load(Ordering::Relaxed)
    }
}

/// Returns what is wrong with the node at the end, when it has the taint of `ccm`.
pub fn check_node(node: &Value, is_off: bool) -> Result<(), String> {
    let (own, _) = parted(of_key(&node["spec"]["taints"]));
    match ready(node) {
        Some("True") if !own.is_empty() => Err("it is ready and out of service".into()),
        _ if !own.is_empty() && !is_off => Err("its server runs, and it is out of service".into()),
        _ => Ok(()),
    }
}

/// Returns whether the server was last switched on or off, and when. `None` when it was not switched.
fn last_switched(power: &Mutex<Power>, id: u64) -> Option<(bool, Instant)> {
    power.lock().unwrap().get(&id)?.last().copied()
}

fn set_taints(sandbox: &Sandbox, name: &str, values: &[&str]) {
    edit(sandbox, name, |node| {
        let taints = &mut node["spec"]["taints"];
        let mut all = taints.as_array().cloned().unwrap_or_default();
        all.retain(|taint| taint["key"] != KEY);
        let new = values.iter();
        all.extend(new.map(|value| json!({ "key": KEY, "value": value, "effect": "NoExecute" })));
        *taints = json!(all);
    });
}

fn of_key(taints: &Value) -> Vec<Value> {
    let all = taints.as_array().into_iter().flatten();
    all.filter(|taint| taint["key"] == KEY).cloned().collect()
}

/// Parts the taints of `ccm` from those of others.
fn parted(taints: Vec<Value>) -> (Vec<Value>, Vec<Value>) {
    taints.into_iter().partition(|taint| taint["value"] == OWN)
}

fn has_key(node: &Value, key: &str) -> bool {
    let mut taints = node["spec"]["taints"].as_array().into_iter().flatten();
    taints.any(|taint| taint["key"] == key)
}

fn ready(node: &Value) -> Option<&str> {
    let mut conditions = node["status"]["conditions"].as_array()?.iter();
    conditions.find(|one| one["type"] == "Ready")?["status"].as_str()
}
