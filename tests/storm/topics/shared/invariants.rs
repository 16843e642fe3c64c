//! What must never happen. It is checked when the request arrives.

use super::cluster::{self, FINALIZER, has_finalizer, is_ours, list, services, wants_balancer};
use super::events::NAMESPACE;
use super::hostile;
use super::{
    CLOSED_BALANCER, OPEN_BALANCER, OWNER_PORT, both_numbers, is_of_others, number, owner, served,
    shows,
};
use ccm::hetzner::load_balancers::{CREATED, EXTERNAL, GROUP, PORT, SERVICE_UID};
use sandbox::exchange::Request;
use sandbox::{Sandbox, time};
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long a plan may still be executed while two processes are at work.
const PLAN_AGE: Duration = Duration::from_secs(30);

/// What was observed so far.
#[derive(Default)]
pub struct History {
    /// What `ccm` may know, which is what the API server's cache showed at the last read.
    services: Vec<Value>,
    nodes: Vec<Value>,
    /// Whether Terraform has run.
    pub terraform: bool,
    /// The ports of Services that lost their labels when Terraform ran. When the Service of such a port changes before
    /// the label is written again, nothing shows any more that the port is the Service's.
    pub unlabelled_ports: BTreeSet<(u64, u64)>,
    /// The ports that were requested on load balancers of other owners.
    asked: BTreeSet<(u64, u64)>,
    /// The time of the last request that removes a port from a load balancer.
    removed: HashMap<(u64, u64), Instant>,
    /// The UIDs on load balancers of Services that were created, or got our finalizer, after the backup from which the
    /// cluster was restored. An operator decides about such orphans.
    pub lost_uids: BTreeSet<String>,
    /// Whether the cluster was restored from a backup.
    pub is_restored: bool,
    /// Whether a Service may claim the owner's port, see [`hostile::may_be_claimed`]. From then on the owner's port is
    /// not checked any more.
    pub is_claimable: bool,
}

/// Checks requests against the state of both APIs at the moment of the request.
pub struct Checker<'a> {
    pub sandbox: &'a Sandbox,
    pub history: &'a Mutex<History>,
    pub two_at_once: bool,
}

impl Checker<'_> {
    /// Records that `ccm` may know the present state.
    pub fn record_state(&self) {
        let mut history = self.history.lock().unwrap();
        history.services = services(self.sandbox);
        history.nodes = self.sandbox.cluster().list("nodes", None);
    }

    /// Records that `ccm` reads a list.
    pub fn record_read(&self, request: &Request) {
        let is_list = ["/api/v1/nodes", "/api/v1/services"].contains(&request.path.as_str());
        if is_list && !self.sandbox.cluster().is_cache_frozen() {
            self.record_state();
        }
    }

    /// Records the state just after the cluster was restored from a backup.
    pub fn restored(&self) {
        self.record_state();
        let mut history = self.history.lock().unwrap();
        let all = self.sandbox.cloud().load_balancers(self.sandbox.project());
        let labels = all.iter().flat_map(|one| one["labels"].as_object().unwrap());
        let uids = labels.filter(|(label, _)| label.starts_with(PORT) || *label == SERVICE_UID);
        let uids = uids.filter_map(|(_, uid)| uid.as_str().map(str::to_owned));
        let lives = |uid: &String| {
            let mut services = history.services.iter();
            services.any(|one| one["metadata"]["uid"] == **uid && has_finalizer(one))
        };
        let lost: Vec<String> = uids.filter(|uid| !lives(uid)).collect();
        history.lost_uids.extend(lost);
        history.is_restored = true;
    }

    /// Records the ports that are about to lose their labels, just before Terraform removes them.
    pub fn before_terraform(&self) {
        let mut history = self.history.lock().unwrap();
        history.terraform = true;
        let all = self.sandbox.cloud().load_balancers(self.sandbox.project());
        let open = all.iter().filter(|one| one["name"] == OPEN_BALANCER);
        let ports = open.flat_map(|one| list(&one["services"]));
        history.unlabelled_ports.extend(ports.map(both_numbers));
        // Ports that are added when their action ends have no label either.
        let asked = history.asked.clone();
        history.unlabelled_ports.extend(asked);
    }

    /// Returns a Service for which `holds` is true both now and in the state that `ccm` read last, because the rest of
    /// a plan is executed over several ticks.
    fn service_in_both(&self, holds: impl Fn(&Value) -> bool) -> Option<Value> {
        let now = services(self.sandbox);
        let history = self.history.lock().unwrap();
        let mut both = now.into_iter().filter(|one| wants_balancer(one) && holds(one));
        both.find(|one| {
            let mut known = history.services.iter();
            let known = known.find(|old| old["metadata"]["uid"] == one["metadata"]["uid"]);
            known.is_some_and(|old| wants_balancer(old) && holds(old))
        })
    }

    pub fn violation_in_cloud(&self, request: &Request) -> Option<String> {
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let Some(rest) = request.path.strip_prefix("/v1/load_balancers") else {
            return Some("not about load balancers".into());
        };
        if hostile::shows_certificate(&body) {
            return Some("it shows a certificate of others".into());
        }
        let mut parts = rest.split('/').skip(1);
        let Some(id) = parts.next().and_then(|id| id.parse::<u64>().ok()) else {
            return self.violation_by_creation(&body);
        };
        let balancer = self.sandbox.cloud().load_balancer(id);
        if balancer.is_null() {
            return None;
        }
        let is_theirs = is_of_others(&balancer);
        if balancer["name"] == CLOSED_BALANCER {
            return Some("its owner does not allow it".into());
        }
        if self.is_claimable(&balancer) {
            return None;
        }
        let port = number(&body["listen_port"]);
        let name_of = |one: Value| one["metadata"]["name"].clone();
        match (request.method.as_str(), parts.nth(1)) {
            ("DELETE", _) if balancer["labels"][CREATED].is_null() => Some("not ours".into()),
            ("DELETE", _) => {
                let user = self.service_in_both(|one| shows(one, &balancer));
                user.map(|one| format!("Service {} shows its address", name_of(one)))
            }
            ("PUT", _) => {
                let keys: Vec<&String> =
                    body.as_object().into_iter().flatten().map(|(key, _)| key).collect();
                if is_theirs && keys != ["labels"] {
                    return Some(format!("sets {keys:?}"));
                }
                if body["labels"].is_null() {
                    // The request does not change the labels.
                    return None;
                }
                let labels = balancer["labels"].as_object().unwrap().iter();
                let mut of_others =
                    labels.filter(|(label, _)| !is_ours(label) || *label == EXTERNAL);
                let lost =
                    of_others.find(|(label, value)| body["labels"][label.as_str()] != **value);
                let lost = lost.map(|(label, _)| format!("label {label} is lost"));
                lost.or_else(|| self.violation_by_labels(&balancer, &body))
            }
            (_, Some("add_service" | "update_service" | "delete_service"))
                if is_theirs && port == OWNER_PORT =>
            {
                Some("a port of others".into())
            }
            (_, Some("delete_service")) if self.is_removed_twice(id, port) => None,
            (_, Some("delete_service")) => {
                let user = self.service_in_both(|one| {
                    *owner(&balancer, port) == one["metadata"]["uid"]
                        && shows(one, &balancer)
                        && served(&balancer, one).contains(&port)
                });
                user.map(|one| format!("port {port} is served for {}", name_of(one)))
            }
            (_, Some("add_service")) => {
                let mut history = self.history.lock().unwrap();
                let both = (port, number(&body["destination_port"]));
                if is_theirs {
                    history.asked.insert(both);
                }
                if !owner(&balancer, port).is_null() {
                    return None;
                }
                if is_theirs && history.terraform {
                    // Terraform ran between the writes of the label and of the port, so this port has no label either.
                    history.unlabelled_ports.insert(both);
                    return None;
                }
                Some(format!("port {port} comes before its label"))
            }
            (_, Some("update_service")) => {
                let to = &body["destination_port"];
                let has_setting = body["proxyprotocol"] == true || body["protocol"] == "http";
                let of_other = self.service_in_both(|one| {
                    let mut ports = list(&one["spec"]["ports"]).iter();
                    let has_it = ports.any(|one| one["port"] == port && one["nodePort"] == *to);
                    *owner(&balancer, port) == one["metadata"]["uid"]
                        && (to.is_u64() && !has_it || has_setting)
                });
                of_other.map(|one| format!("port {port} is of {}", name_of(one)))
            }
            (_, Some("remove_target")) => self.violation_by_removal(&balancer, &body, is_theirs),
            (_, Some("add_target")) => None,
            (_, Some(action)) if is_theirs => Some(format!("{action} on what is not ours")),
            // Honest Services ask for nothing about the whole load balancer.
            (_, Some(action)) if !hostile::is_of_tenant(&balancer) => {
                Some(format!("{action}: {body}"))
            }
            _ => None,
        }
    }

    /// Whether the owner's port may count as a Service's from now on.
    fn is_claimable(&self, balancer: &Value) -> bool {
        let may_be = |one: &Value| hostile::may_be_claimed(one, balancer);
        let is_claimable = balancer["name"] == OPEN_BALANCER && {
            let history = self.history.lock().unwrap();
            history.terraform && hostile::services(self.sandbox).iter().any(may_be)
        };
        let mut history = self.history.lock().unwrap();
        history.is_claimable |= is_claimable;
        balancer["name"] == OPEN_BALANCER && history.is_claimable
    }

    /// Checks that a load balancer gets no label for a port of others, and no name or label that a hostile
    /// tenant asks for.
    fn violation_by_labels(&self, balancer: &Value, body: &Value) -> Option<String> {
        if hostile::is_of_tenant(balancer) {
            return None;
        }
        let label = format!("{PORT}{OWNER_PORT}");
        let is_named = body["name"].is_string() && body["name"] != balancer["name"];
        if is_of_others(balancer) && !body["labels"][&label].is_null() {
            Some(format!("label {label} for a port of others"))
        } else if !body["labels"][hostile::TENANT_LABEL].is_null() || is_named {
            Some(format!("a hostile tenant decides: {body}"))
        } else {
            None
        }
    }

    /// Whether the port was removed a short time ago. Of two processes the slower one removes the port again, although
    /// another Service may have it by then.
    fn is_removed_twice(&self, id: u64, port: u64) -> bool {
        let now = time::now();
        let mut history = self.history.lock().unwrap();
        let before = history.removed.insert((id, port), now);
        let is_recent = |before| now.saturating_duration_since(before) <= PLAN_AGE;
        self.two_at_once && before.is_some_and(is_recent)
    }

    fn violation_by_removal(
        &self,
        balancer: &Value,
        body: &Value,
        is_theirs: bool,
    ) -> Option<String> {
        let removed = body["server"]["id"].as_u64()?;
        let foreign = self.sandbox.cloud().servers(self.sandbox.project());
        let mut foreign = foreign.iter().filter(|one| one["name"] == "foreign");
        if is_theirs && foreign.any(|one| one["id"] == removed) {
            return Some("a target of others".into());
        }
        let alive = cluster::ids(&self.sandbox.cloud().servers(self.sandbox.project()));
        let nodes = [
            self.sandbox.cluster().list("nodes", None),
            self.history.lock().unwrap().nodes.clone(),
        ];
        let user = self.service_in_both(|one| {
            shows(one, balancer)
                && !served(balancer, one).is_empty()
                && nodes
                    .iter()
                    .all(|nodes| cluster::eligible_servers(nodes, &alive).contains(&removed))
        });
        user.map(|one| format!("server {removed} serves {}", one["metadata"]["name"]))
    }

    fn violation_by_creation(&self, body: &Value) -> Option<String> {
        let labels = &body["labels"];
        if labels[CREATED].is_null() {
            return Some(format!("without label {CREATED}"));
        }
        let all = self.sandbox.cloud().load_balancers(self.sandbox.project());
        let same = [GROUP, SERVICE_UID].into_iter().find(|label| {
            // The API refuses a second load balancer of the same name.
            let others = all.iter().filter(|one| one["name"] != body["name"]);
            // The Service is leaving the group's load balancer, which others use now.
            let is_left = |one: &&Value| *label == SERVICE_UID && !one["labels"][GROUP].is_null();
            let mut others = others.filter(|one| !is_left(one));
            !labels[label].is_null() && others.any(|one| one["labels"][label] == labels[label])
        });
        same.map(|label| format!("a second one with {label}={}", labels[label]))
    }

    pub fn violation_in_cluster(&self, request: &Request) -> Option<String> {
        if request.path.contains("/namespaces/hostile/") {
            return self.violation_by_status(request);
        }
        let path = "/api/v1/namespaces/default/services/";
        let name = request.path.strip_prefix(path)?.strip_suffix("/status")?;
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let service = self.sandbox.cluster().get("services", NAMESPACE, name)?;
        if service["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]
            || !wants_balancer(&service)
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
        let unlabelled_ports = self.history.lock().unwrap().unlabelled_ports.clone();
        let uid = &service["metadata"]["uid"];
        // When the Service asks for another load balancer, nothing shows any more that a port without its label
        // is the Service's.
        let is_unlabelled = |balancer: &Value, port: u64| {
            let mut ports = list(&balancer["services"]).iter();
            is_of_others(balancer)
                && ports.any(|one| {
                    one["listen_port"] == port && unlabelled_ports.contains(&both_numbers(one))
                })
                && balancer["labels"][format!("{PORT}{port}")] != *uid
        };
        let at = |service: &Value| {
            let balancer = all.iter().find(|one| shows(service, one));
            let mut served = balancer.map_or(BTreeSet::new(), |one| served(one, service));
            served.retain(|port| !balancer.is_some_and(|one| is_unlabelled(one, *port)));
            served
        };
        let (old, new) = (at(&service), at(&moved));
        let lost: Vec<&u64> = old.difference(&new).collect();
        (!lost.is_empty()).then(|| format!("ports {lost:?} of {name} are not served at {ingress}"))
    }

    /// Checks that traffic inside the cluster for a port of others does not go to the tenant's pods.
    fn violation_by_status(&self, request: &Request) -> Option<String> {
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let all = self.sandbox.cloud().load_balancers(self.sandbox.project());
        let mut joint = all.iter().filter(|one| !hostile::is_of_tenant(one));
        let at = joint.find(|one| shows(&body, one))?;
        let why = super::end_state::check_ip_mode(&body, "Proxy").err()?;
        Some(format!("the address of {}: {why}", at["name"]))
    }
}
