//! What must never happen, checked in the moment in which the request arrives.

use super::cluster::{self, FINALIZER, has_finalizer, is_ours, list, services, wants};
use super::events::NAMESPACE;
use super::hostile;
use super::{CLOSED, OPEN, THEIR_PORT, both_numbers, is_of_others, number, owner, served, shows};
use ccm::hetzner::load_balancers::{CREATED, EXTERNAL, GROUP, PORT, SERVICE_UID};
use sandbox::exchange::Request;
use sandbox::{Sandbox, time};
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long a plan of two processes may still be executed.
const PLAN_AGE: Duration = Duration::from_secs(30);

/// What was seen so far.
#[derive(Default)]
pub struct Seen {
    /// What `ccm` may know: what the API server's cache showed at the last read.
    services: Vec<Value>,
    nodes: Vec<Value>,
    /// Terraform ran.
    pub terraform: bool,
    /// Ports of Services that lost their labels then. One whose Service changes before its label is written again is
    /// known to be that Service's by nothing.
    pub forgotten: BTreeSet<(u64, u64)>,
    /// Ports that were asked for on load balancers of others.
    asked: BTreeSet<(u64, u64)>,
    /// When the removal of a port from a load balancer was last asked for.
    removed: HashMap<(u64, u64), Instant>,
    /// UIDs on load balancers of Services that came, or got our finalizer, after the backup from which the cluster was
    /// restored. An operator decides about orphans.
    pub lost: BTreeSet<String>,
    /// The cluster was restored from a backup.
    pub is_restored: bool,
    /// See [`hostile::may_be_given`]: from then on it says nothing what becomes of the owner's port.
    pub is_given: bool,
}

/// Both APIs at the moment of a request.
pub struct Moment<'a> {
    pub sandbox: &'a Sandbox,
    pub seen: &'a Mutex<Seen>,
    pub two_at_once: bool,
}

impl Moment<'_> {
    /// `ccm` may know all that there is now.
    pub fn learn_all(&self) {
        let mut seen = self.seen.lock().unwrap();
        seen.services = services(self.sandbox);
        seen.nodes = self.sandbox.cluster().list("nodes", None);
    }

    /// `ccm` reads a list.
    pub fn learn(&self, request: &Request) {
        let is_list = ["/api/v1/nodes", "/api/v1/services"].contains(&request.path.as_str());
        if is_list && !self.sandbox.cluster().is_cache_frozen() {
            self.learn_all();
        }
    }

    /// Just after it.
    pub fn restored(&self) {
        self.learn_all();
        let mut seen = self.seen.lock().unwrap();
        let all = self.sandbox.cloud().load_balancers(self.sandbox.project());
        let labels = all.iter().flat_map(|one| one["labels"].as_object().unwrap());
        let uids = labels.filter(|(label, _)| label.starts_with(PORT) || *label == SERVICE_UID);
        let uids = uids.filter_map(|(_, uid)| uid.as_str().map(str::to_owned));
        let lives = |uid: &String| {
            let mut services = seen.services.iter();
            services.any(|one| one["metadata"]["uid"] == **uid && has_finalizer(one))
        };
        let lost: Vec<String> = uids.filter(|uid| !lives(uid)).collect();
        seen.lost.extend(lost);
        seen.is_restored = true;
    }

    /// Just before it removes labels.
    pub fn terraform_runs(&self) {
        let mut seen = self.seen.lock().unwrap();
        seen.terraform = true;
        let all = self.sandbox.cloud().load_balancers(self.sandbox.project());
        let open = all.iter().filter(|one| one["name"] == OPEN);
        let ports = open.flat_map(|one| list(&one["services"]));
        seen.forgotten.extend(ports.map(both_numbers));
        // And those that come when their action has ended.
        let asked = seen.asked.clone();
        seen.forgotten.extend(asked);
    }

    /// Services for which it holds now, and by what `ccm` read last: the rest of a plan is executed over several ticks.
    fn of_both(&self, holds: impl Fn(&Value) -> bool) -> Option<Value> {
        let now = services(self.sandbox);
        let seen = self.seen.lock().unwrap();
        let mut both = now.into_iter().filter(|one| wants(one) && holds(one));
        both.find(|one| {
            let mut known = seen.services.iter();
            let known = known.find(|old| old["metadata"]["uid"] == one["metadata"]["uid"]);
            known.is_some_and(|old| wants(old) && holds(old))
        })
    }

    pub fn harm_in_cloud(&self, request: &Request) -> Option<String> {
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let Some(rest) = request.path.strip_prefix("/v1/load_balancers") else {
            return Some("not about load balancers".into());
        };
        if hostile::shows_certificate(&body) {
            return Some("it shows a certificate of others".into());
        }
        let mut parts = rest.split('/').skip(1);
        let Some(id) = parts.next().and_then(|id| id.parse::<u64>().ok()) else {
            return self.harm_of_creation(&body);
        };
        let balancer = self.sandbox.cloud().load_balancer(id);
        if balancer.is_null() {
            return None;
        }
        let is_theirs = is_of_others(&balancer);
        if balancer["name"] == CLOSED {
            return Some("its owner does not allow it".into());
        }
        if self.is_given(&balancer) {
            return None;
        }
        let port = number(&body["listen_port"]);
        let name_of = |one: Value| one["metadata"]["name"].clone();
        match (request.method.as_str(), parts.nth(1)) {
            ("DELETE", _) if balancer["labels"][CREATED].is_null() => Some("not ours".into()),
            ("DELETE", _) => {
                let user = self.of_both(|one| shows(one, &balancer));
                user.map(|one| format!("Service {} shows its address", name_of(one)))
            }
            ("PUT", _) => {
                let keys: Vec<&String> =
                    body.as_object().into_iter().flatten().map(|(key, _)| key).collect();
                if is_theirs && keys != ["labels"] {
                    return Some(format!("sets {keys:?}"));
                }
                if body["labels"].is_null() {
                    // The labels stay as they are.
                    return None;
                }
                let labels = balancer["labels"].as_object().unwrap().iter();
                let mut of_others =
                    labels.filter(|(label, _)| !is_ours(label) || *label == EXTERNAL);
                let lost =
                    of_others.find(|(label, value)| body["labels"][label.as_str()] != **value);
                let lost = lost.map(|(label, _)| format!("label {label} is lost"));
                lost.or_else(|| self.harm_of_labels(&balancer, &body))
            }
            (_, Some("add_service" | "update_service" | "delete_service"))
                if is_theirs && port == THEIR_PORT =>
            {
                Some("a port of others".into())
            }
            (_, Some("delete_service")) if self.is_removed_twice(id, port) => None,
            (_, Some("delete_service")) => {
                let user = self.of_both(|one| {
                    *owner(&balancer, port) == one["metadata"]["uid"]
                        && shows(one, &balancer)
                        && served(&balancer, one).contains(&port)
                });
                user.map(|one| format!("port {port} is served for {}", name_of(one)))
            }
            (_, Some("add_service")) => {
                let mut seen = self.seen.lock().unwrap();
                let both = (port, number(&body["destination_port"]));
                if is_theirs {
                    seen.asked.insert(both);
                }
                if !owner(&balancer, port).is_null() {
                    return None;
                }
                if is_theirs && seen.terraform {
                    // It came between the two, and this port has no label either.
                    seen.forgotten.insert(both);
                    return None;
                }
                Some(format!("port {port} comes before its label"))
            }
            (_, Some("update_service")) => {
                let to = &body["destination_port"];
                let has_setting = body["proxyprotocol"] == true || body["protocol"] == "http";
                let of_other = self.of_both(|one| {
                    let mut ports = list(&one["spec"]["ports"]).iter();
                    let has_it = ports.any(|one| one["port"] == port && one["nodePort"] == *to);
                    *owner(&balancer, port) == one["metadata"]["uid"]
                        && (to.is_u64() && !has_it || has_setting)
                });
                of_other.map(|one| format!("port {port} is of {}", name_of(one)))
            }
            (_, Some("remove_target")) => self.harm_of_removal(&balancer, &body, is_theirs),
            (_, Some("add_target")) => None,
            (_, Some(action)) if is_theirs => Some(format!("{action} on what is not ours")),
            // Honest Services ask for nothing about the whole.
            (_, Some(action)) if !hostile::is_its(&balancer) => Some(format!("{action}: {body}")),
            _ => None,
        }
    }

    /// Whether the owner's port may count as a Service's from now on.
    fn is_given(&self, balancer: &Value) -> bool {
        let may_be = |one: &Value| hostile::may_be_given(one, balancer);
        let is_given = balancer["name"] == OPEN && {
            let seen = self.seen.lock().unwrap();
            seen.terraform && hostile::services(self.sandbox).iter().any(may_be)
        };
        let mut seen = self.seen.lock().unwrap();
        seen.is_given |= is_given;
        balancer["name"] == OPEN && seen.is_given
    }

    /// Labels and a name that a load balancer must not get: of a port of others, and what a hostile tenant asks for.
    fn harm_of_labels(&self, balancer: &Value, body: &Value) -> Option<String> {
        if hostile::is_its(balancer) {
            return None;
        }
        let label = format!("{PORT}{THEIR_PORT}");
        let is_named = body["name"].is_string() && body["name"] != balancer["name"];
        if is_of_others(balancer) && !body["labels"][&label].is_null() {
            Some(format!("label {label} for a port of others"))
        } else if !body["labels"][hostile::LABEL].is_null() || is_named {
            Some(format!("a hostile tenant decides: {body}"))
        } else {
            None
        }
    }

    /// With two at once the slower one removes again what the faster one has removed, and given to another Service since.
    fn is_removed_twice(&self, id: u64, port: u64) -> bool {
        let now = time::now();
        let mut seen = self.seen.lock().unwrap();
        let before = seen.removed.insert((id, port), now);
        let is_recent = |before| now.saturating_duration_since(before) <= PLAN_AGE;
        self.two_at_once && before.is_some_and(is_recent)
    }

    fn harm_of_removal(&self, balancer: &Value, body: &Value, is_theirs: bool) -> Option<String> {
        let removed = body["server"]["id"].as_u64()?;
        let foreign = self.sandbox.cloud().servers(self.sandbox.project());
        let mut foreign = foreign.iter().filter(|one| one["name"] == "foreign");
        if is_theirs && foreign.any(|one| one["id"] == removed) {
            return Some("a target of others".into());
        }
        let alive = cluster::ids(&self.sandbox.cloud().servers(self.sandbox.project()));
        let nodes =
            [self.sandbox.cluster().list("nodes", None), self.seen.lock().unwrap().nodes.clone()];
        let user = self.of_both(|one| {
            shows(one, balancer)
                && !served(balancer, one).is_empty()
                && nodes.iter().all(|nodes| cluster::offered(nodes, &alive).contains(&removed))
        });
        user.map(|one| format!("server {removed} serves {}", one["metadata"]["name"]))
    }

    fn harm_of_creation(&self, body: &Value) -> Option<String> {
        let labels = &body["labels"];
        if labels[CREATED].is_null() {
            return Some(format!("without label {CREATED}"));
        }
        let all = self.sandbox.cloud().load_balancers(self.sandbox.project());
        let same = [GROUP, SERVICE_UID].into_iter().find(|label| {
            // The API refuses a second one of a name.
            let others = all.iter().filter(|one| one["name"] != body["name"]);
            // A Service leaves its group's, which others use by now.
            let is_left = |one: &&Value| *label == SERVICE_UID && !one["labels"][GROUP].is_null();
            let mut others = others.filter(|one| !is_left(one));
            !labels[label].is_null() && others.any(|one| one["labels"][label] == labels[label])
        });
        same.map(|label| format!("a second one with {label}={}", labels[label]))
    }

    pub fn harm_in_cluster(&self, request: &Request) -> Option<String> {
        if request.path.contains("/namespaces/hostile/") {
            return self.harm_of_status(request);
        }
        let path = "/api/v1/namespaces/default/services/";
        let name = request.path.strip_prefix(path)?.strip_suffix("/status")?;
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let service = self.sandbox.cluster().get("services", NAMESPACE, name)?;
        if service["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]
            || !wants(&service)
        {
            return None;
        }
        if let Some(finalizers) = body["metadata"]["finalizers"].as_array() {
            let is_kept = finalizers.iter().any(|one| one == FINALIZER);
            return (!is_kept).then(|| "its finalizer goes, and it wants a load balancer".into());
        }
        let ingress = body["status"]["loadBalancer"].get("ingress")?;
        let mut moved = service.clone();
        moved["status"]["loadBalancer"]["ingress"] = ingress.clone();
        let all = self.sandbox.cloud().load_balancers(self.sandbox.project());
        let forgotten = self.seen.lock().unwrap().forgotten.clone();
        let uid = &service["metadata"]["uid"];
        // A port without its label is known to be this Service's by nothing once the Service asks for another load balancer.
        let is_forgotten = |balancer: &Value, port: u64| {
            let mut ports = list(&balancer["services"]).iter();
            is_of_others(balancer)
                && ports
                    .any(|one| one["listen_port"] == port && forgotten.contains(&both_numbers(one)))
                && balancer["labels"][format!("{PORT}{port}")] != *uid
        };
        let at = |service: &Value| {
            let balancer = all.iter().find(|one| shows(service, one));
            let mut served = balancer.map_or(BTreeSet::new(), |one| served(one, service));
            served.retain(|port| !balancer.is_some_and(|one| is_forgotten(one, *port)));
            served
        };
        let (old, new) = (at(&service), at(&moved));
        let lost: Vec<&u64> = old.difference(&new).collect();
        (!lost.is_empty()).then(|| format!("ports {lost:?} of {name} are not served at {ingress}"))
    }

    /// The tenant gets no traffic of the cluster for a port of others: its pods are not where the address is.
    fn harm_of_status(&self, request: &Request) -> Option<String> {
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let all = self.sandbox.cloud().load_balancers(self.sandbox.project());
        let mut joint = all.iter().filter(|one| !hostile::is_its(one));
        let at = joint.find(|one| shows(&body, one))?;
        let why = super::end::mode_is(&body, "Proxy").err()?;
        Some(format!("the address of {}: {why}", at["name"]))
    }
}
