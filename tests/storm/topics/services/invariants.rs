//! What must never happen. It is checked when the request arrives.

use super::defaults;
use super::end_state::{servers, targets, why_not_claimable};
use super::events::{FINALIZER, NAMESPACE, cluster_uid};
use super::foreign::is_copy;
use super::ownership::{ClusterState, is_kept, is_of_others, is_ours as is_ours_label, list};
use super::secrets;
use crate::topics::cluster::ids;
pub use crate::topics::cluster::{has_finalizer, wants_balancer};
use ccm::hetzner::load_balancers::{ADOPT, CLUSTER_UID, CREATED, KEEP, SERVICE_UID};
use sandbox::Sandbox;
use sandbox::exchange::Request;
use sandbox::hetzner::Cloud;
use sandbox::kubernetes::Cluster;
use serde_json::{Map, Value};
use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::Mutex;

/// How often the controllers of a program read the nodes in one round, at most.
const LISTS: usize = 4;

/// What was observed so far.
#[derive(Default)]
pub struct History {
    /// What `ccm` may know, which is what the API server's cache showed at the last read.
    known: ClusterState,
    /// The nodes of the previous lists, at most [`LISTS`] of them. The threads of a program know the nodes
    /// from different lists.
    nodes_before: VecDeque<Vec<Value>>,
    /// The load balancer and the server of each attempt to add a target.
    tried: HashSet<(u64, u64)>,
    /// The load balancers that were released and not adopted since.
    released: HashSet<u64>,
    pub adopted: u64,
    pub released_count: u64,
}

/// Checks requests against the state of both APIs at the moment of the request.
pub struct Checker<'a> {
    cloud: &'a Cloud,
    cluster: &'a Cluster,
    project: u64,
    cluster_uid: String,
    history: &'a Mutex<History>,
    two_at_once: bool,
}

impl Checker<'_> {
    pub fn new<'a>(
        sandbox: &'a Sandbox,
        history: &'a Mutex<History>,
        two_at_once: bool,
    ) -> Checker<'a> {
        Checker {
            cloud: sandbox.cloud(),
            cluster: sandbox.cluster(),
            project: sandbox.project(),
            cluster_uid: cluster_uid(sandbox),
            history,
            two_at_once,
        }
    }

    fn read(&self) -> ClusterState {
        ClusterState::read(self.cluster, &self.cluster_uid)
    }

    /// Returns a violation when a load balancer gets the API's default although its Namespace has another one, which is
    /// wrong or can't be read at times.
    pub fn violation_of_default(&self, request: &Request) -> Option<String> {
        let known = self.history.lock().unwrap().known.clone();
        let labels = request.path.split('/').nth(3).and_then(|id| id.parse().ok());
        let labels = labels.map(|id| self.cloud.load_balancer(id)["labels"].clone());
        defaults::violation(request, labels, &[known, self.read()])
    }

    /// Records that `ccm` may know the present state.
    pub fn record_state(&self) {
        self.history.lock().unwrap().known = self.read();
    }

    /// Records that `ccm` reads a list. A table of nodes without metadata does not show their labels.
    pub fn record_read(&self, request: &Request) {
        let is_list = ["/api/v1/nodes", "/api/v1/services"].contains(&request.path.as_str());
        if !is_list || self.cluster.is_cache_frozen() {
            return;
        }
        let mut now = self.read();
        let history = &mut *self.history.lock().unwrap();
        let known = &mut history.known;
        if request.path == "/api/v1/services" {
            known.services = now.services;
            return;
        }
        if request.query("includeObject") == Some("None") {
            for node in &mut now.nodes {
                let is_same = |old: &&Value| old["metadata"]["uid"] == node["metadata"]["uid"];
                if let Some(old) = known.nodes.iter().find(is_same) {
                    *node = old.clone();
                }
            }
        }
        let before = std::mem::replace(&mut known.nodes, now.nodes);
        if !sandbox::time::is_simulated() {
            history.nodes_before.push_front(before);
            history.nodes_before.truncate(LISTS);
        }
    }

    /// Returns a violation by a part of a plan. A plan may be executed over several ticks, and each tick stops the
    /// parts that do not fit any more. So a part is a violation only when both the present state and what the last tick
    /// could read forbid it, for reasons that differ at most in their numbers. An old list may still want the target
    /// itself, although newer reads of the plan did not show it any more.
    fn violation_by_rest_of_plan(
        &self,
        violation: impl Fn(&ClusterState) -> Option<String>,
    ) -> Option<String> {
        let violation_now = violation(&self.read())?;
        let history = self.history.lock().unwrap();
        let mut known = history.known.clone();
        let before = history.nodes_before.clone();
        drop(history);
        let reason = |violation: &str| violation.replace(char::is_numeric, "");
        let forbids = |known: &ClusterState| {
            violation(known).is_some_and(|violation| reason(&violation) == reason(&violation_now))
        };
        let is_violation = forbids(&known)
            && before.into_iter().all(|nodes| {
                known.nodes = nodes;
                forbids(&known)
            });
        is_violation.then_some(violation_now)
    }

    pub fn violation_in_cloud(&self, request: &Request) -> Option<String> {
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        if let Some(rest) = request.path.strip_prefix("/v1/certificates") {
            return self.violation_of_certificate(request, &body, rest);
        }
        let Some(rest) = request.path.strip_prefix("/v1/load_balancers") else {
            return Some("not about load balancers".into());
        };
        let all = self.cloud.certificates(self.project);
        if let Some(violation) = secrets::violation_by_showing(&body, &all) {
            return Some(violation);
        }
        let mut parts = rest.split('/').skip(1);
        let Some(id) = parts.next().and_then(|id| id.parse::<u64>().ok()) else {
            return self.violation_by_creation(&body);
        };
        let balancer = self.cloud.load_balancer(id);
        if balancer.is_null() {
            return None;
        }
        let kubernetes = self.read();
        let labels = &balancer["labels"];
        let owner_uid = &labels[SERVICE_UID];
        let is_this_cluster = !owner_uid.is_null() && labels[CLUSTER_UID] == *self.cluster_uid;
        let is_ours = is_this_cluster || kubernetes.is_owned(&balancer);
        match (request.method.as_str(), parts.nth(1)) {
            ("PUT", _) => self.violation_by_edit(&kubernetes, id, &balancer, &body, is_ours),
            _ if self.is_released_twice(id) => None,
            _ if !is_ours => Some(format!("not ours: {labels}")),
            ("DELETE", _) => match kubernetes.service(owner_uid) {
                Some(service) if wants_balancer(service) => {
                    Some(format!("Service {owner_uid} wants it"))
                }
                Some(service) => kubernetes.deletable(&balancer, service).err(),
                None if !labels[KEEP].is_null() => Some("it is kept".into()),
                None if labels[CREATED].is_null() => {
                    Some(format!("was not made for a Service: {labels}"))
                }
                None => None,
            },
            (_, Some("add_target")) => {
                let server = body["server"]["id"].as_u64().unwrap_or_default();
                self.history.lock().unwrap().tried.insert((id, server));
                None
            }
            (_, Some("remove_target")) => {
                let removed = body["server"]["id"].as_u64().filter(|_| body["type"] == "server");
                let Some(removed) = removed else {
                    return Some("a target that is no server".into());
                };
                self.violation_by_rest_of_plan(|kubernetes| {
                    let service = kubernetes.service(owner_uid)?;
                    match wants_balancer(service) {
                        true => {
                            self.violation_of_order(kubernetes, id, &balancer, removed, service)
                        }
                        false => (!kubernetes.servers().contains(&removed)).then(|| {
                            format!("released without server {removed}, which is no node")
                        }),
                    }
                })
            }
            _ => None,
        }
    }

    fn violation_by_creation(&self, body: &Value) -> Option<String> {
        let labels = &body["labels"];
        if labels[CREATED].is_null() {
            return Some(format!("without label {CREATED}: {labels}"));
        }
        let primary_ips = self.cloud.primary_ips(self.project);
        for kind in ["ipv4", "ipv6"] {
            let id = &body["public_net"][kind];
            let Some(one) = primary_ips.iter().find(|one| one["id"] == *id) else {
                continue;
            };
            let holder = one["assignee_id"].as_u64();
            let holder = holder.map(|holder| self.cloud.load_balancer(holder));
            // Another creation of ours may have been faster. The API refuses this one.
            let is_others =
                holder.is_some_and(|holder| holder["labels"][CLUSTER_UID] != *self.cluster_uid);
            let why = is_others.then_some("it is assigned");
            if let Some(why) = why.or_else(|| why_not_claimable(one)) {
                return Some(format!("claims Primary IP {}: {why}", one["name"]));
            }
        }
        self.violation_of_owner(&labels[SERVICE_UID])
    }

    /// Checks an adoption, a release, and an edit that only corrects labels or the name.
    fn violation_by_edit(
        &self,
        kubernetes: &ClusterState,
        id: u64,
        balancer: &Value,
        body: &Value,
        is_ours: bool,
    ) -> Option<String> {
        let labels = &balancer["labels"];
        let owner_uid = &labels[SERVICE_UID];
        let new = &body["labels"];
        let Some(new) = new.as_object() else {
            return (!is_ours).then(|| format!("renamed, and not ours: {labels}"));
        };
        let all = labels.as_object().unwrap();
        let mut of_others = all.iter().filter(|(label, _)| is_of_others(label));
        if let Some((label, _)) = of_others.find(|(label, value)| new.get(*label) != Some(value)) {
            return Some(format!("label {label}, which is not ours, is lost"));
        }
        let Some(uid) = new.get(SERVICE_UID) else {
            if self.is_released_twice(id) {
                return None;
            }
            self.history.lock().unwrap().released.insert(id);
            let violation = self.violation_by_rest_of_plan(|kubernetes| {
                self.violation_by_release(kubernetes, balancer, new, is_ours)
            });
            self.history.lock().unwrap().released_count += u64::from(violation.is_none());
            return violation;
        };
        let Some(service) = kubernetes.service(uid) else {
            return Some(format!("for Service {uid}, which does not exist"));
        };
        if uid != owner_uid || !is_ours {
            let asked = &labels[ADOPT];
            let all = self.cloud.load_balancers(self.project);
            let mut others = all.iter().filter(|one| one["id"] != id);
            if !asked.is_null() && others.any(|one| one["labels"][ADOPT] == *asked) {
                return Some(format!("two carry label {ADOPT}={asked}"));
            }
            if let Err(why) = kubernetes.adoptable(balancer, service) {
                return Some(format!("adopted for {}: {why}", service["metadata"]["name"]));
            }
            self.history.lock().unwrap().released.remove(&id);
            self.history.lock().unwrap().adopted += 1;
        }
        self.violation_of_owner(uid)
    }

    /// Checks a release. Ports and targets must be removed before the labels, so that `ccm` finds the load balancer
    /// after a restart.
    fn violation_by_release(
        &self,
        kubernetes: &ClusterState,
        balancer: &Value,
        new: &Map<String, Value>,
        is_ours: bool,
    ) -> Option<String> {
        let labels = &balancer["labels"];
        let Some(service) = kubernetes.service(&labels[SERVICE_UID]).filter(|_| is_ours) else {
            return Some(format!("released, and not ours: {labels}"));
        };
        if wants_balancer(service) {
            return Some("released, and its Service wants it".into());
        }
        let kept = [KEEP, CLUSTER_UID].map(|label| label.to_owned());
        let kept = BTreeSet::from_iter(kept.into_iter().filter(|_| is_kept(balancer, service)));
        let ours = new.keys().filter(|label| is_ours_label(label)).cloned();
        let ours = BTreeSet::from_iter(ours);
        if ours != kept {
            return Some(format!("released with labels {ours:?}, and not {kept:?}"));
        }
        let has_port = |port: &&Value| {
            let mut ports = list(&service["spec"]["ports"]).iter();
            ports.any(|one| one["port"] == port["listen_port"])
        };
        if let Some(port) = list(&balancer["services"]).iter().find(has_port) {
            return Some(format!("released with port {}", port["listen_port"]));
        }
        let targets = targets(balancer);
        if let Some(server) = targets.intersection(&kubernetes.servers()).next() {
            return Some(format!("released with target {server}"));
        }
        // The owner would go on paying for a load balancer that is released without need.
        let is_deletable = kubernetes.deletable(balancer, service).is_ok();
        is_deletable.then(|| format!("released, and was made for the Service: {labels}"))
    }

    /// Whether the load balancer was released before. Of two processes the slower one repeats the release of
    /// the faster one.
    fn is_released_twice(&self, id: u64) -> bool {
        self.two_at_once && self.history.lock().unwrap().released.contains(&id)
    }

    /// Checks a write to a certificate. A certificate may be ordered, uploaded, or taken over when no Service owns it.
    /// An uploaded certificate may be deleted when no port shows it.
    fn violation_of_certificate(
        &self,
        request: &Request,
        body: &Value,
        rest: &str,
    ) -> Option<String> {
        let uid = &body["labels"][SERVICE_UID];
        let all = self.cloud.certificates(self.project);
        match (request.method.as_str(), rest.strip_prefix('/')) {
            ("POST", None) if body["type"] == "uploaded" => {
                secrets::violation_by_upload(body, &self.cluster_uid)
            }
            ("DELETE", Some(id)) => {
                let one = all.iter().find(|one| one["id"].as_u64() == id.parse().ok())?;
                let balancers = self.cloud.load_balancers(self.project);
                secrets::violation_by_deletion(one, &self.cluster_uid, &balancers)
            }
            ("POST", None) => {
                let same = |one: &&Value| {
                    // The API refuses a second certificate of the same name.
                    one["name"] != body["name"]
                        && one["labels"][SERVICE_UID] == *uid
                        && one["domain_names"] == body["domain_names"]
                };
                let twice = all.iter().find(same);
                let twice = twice.map(|one| format!("Service {uid} has {}", one["name"]));
                twice.or_else(|| self.violation_of_owner(uid))
            }
            ("PUT", Some(id)) => {
                let one = all.iter().find(|one| one["id"].as_u64() == id.parse().ok())?;
                let owner_uid = &one["labels"][SERVICE_UID];
                if owner_uid != uid && self.service(owner_uid).is_some() {
                    return Some(format!("taken from Service {owner_uid}, which exists"));
                }
                self.violation_of_owner(uid)
            }
            _ => Some("neither an order nor a take-over".into()),
        }
    }

    /// Checks the Service for which something is made. It must exist and have the finalizer, so that it stays until
    /// everything made for it is gone.
    fn violation_of_owner(&self, uid: &Value) -> Option<String> {
        let Some(service) = self.service(uid) else {
            return Some(format!("for Service {uid}, which does not exist"));
        };
        (!has_finalizer(&service)).then(|| format!("Service {uid} has no finalizer"))
    }

    fn violation_of_order(
        &self,
        kubernetes: &ClusterState,
        id: u64,
        balancer: &Value,
        removed: u64,
        service: &Value,
    ) -> Option<String> {
        let alive = ids(&self.cloud.servers(self.project));
        let wanted = servers(service, &kubernetes.nodes, &alive);
        if wanted.contains(&removed) {
            return Some(format!("server {removed} is wanted"));
        }
        let there = targets(balancer);
        let history = self.history.lock().unwrap();
        let mut missing = wanted.difference(&there);
        let untried = missing.find(|server| !history.tried.contains(&(id, **server)));
        untried.map(|server| format!("server {server} is to come, and was not tried yet"))
    }

    pub fn violation_in_cluster(&self, request: &Request) -> Option<String> {
        let path = "/api/v1/namespaces/default/services/";
        let name = request.path.strip_prefix(path);
        let Some(name) = name.and_then(|name| name.strip_suffix("/status")) else {
            return Some("not the status".into());
        };
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let version = &body["metadata"]["resourceVersion"];
        if !version.is_string() {
            return Some("without a precondition".into());
        }
        let service = self.cluster.get("services", NAMESPACE, name)?;
        if service["metadata"]["resourceVersion"] != *version {
            // The API server refuses such a write.
            return None;
        }
        if !service["spec"]["loadBalancerClass"].is_null() {
            return Some("another controller's".into());
        }
        let finalizers = body["metadata"]["finalizers"].as_array()?;
        if finalizers.iter().any(|one| one == FINALIZER) {
            return None;
        }
        if wants_balancer(&service) {
            return Some("its finalizer is removed, and it wants a load balancer".into());
        }
        let uid = &service["metadata"]["uid"];
        let all = self.cloud.load_balancers(self.project);
        let left = all.iter();
        let mut left = left.filter(|one| one["labels"][SERVICE_UID] == *uid);
        let left = left.find(|one| !is_copy(one));
        left.map(|one| {
            format!("its finalizer is removed, and load balancer {} is there", one["id"])
        })
    }

    fn service(&self, uid: &Value) -> Option<Value> {
        let services = self.cluster.list("services", NAMESPACE);
        let mut services = services.into_iter();
        services.find(|service| uid.is_string() && service["metadata"]["uid"] == *uid)
    }
}
