//! What must never happen, checked in the moment in which the request arrives.

use super::end::{may_not_be_claimed, servers, targets};
use super::events::{FINALIZER, NAMESPACE, cluster_uid};
use super::others::is_copy;
use super::ownership::{Kubernetes, is_kept, is_of_others, is_ours as is_ours_label, list};
use super::secrets;
use crate::topics::cluster::ids;
pub use crate::topics::cluster::{has_finalizer, wants};
use ccm::hetzner::load_balancers::{ADOPT, CLUSTER_UID, CREATED, KEEP, SERVICE_UID};
use sandbox::Sandbox;
use sandbox::exchange::Request;
use sandbox::hetzner::Cloud;
use sandbox::kubernetes::Cluster;
use serde_json::{Map, Value};
use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::Mutex;

/// A round of a program's controllers reads the nodes so often, or less.
const LISTS: usize = 4;

/// What was seen so far.
#[derive(Default)]
pub struct Seen {
    /// What `ccm` may know: what the API server's cache showed at the last read.
    known: Kubernetes,
    /// Nodes as they were listed before, at most [`LISTS`]: the threads of a program know them from different lists.
    nodes_before: VecDeque<Vec<Value>>,
    /// Load balancer and server of each attempt to add a target.
    tried: HashSet<(u64, u64)>,
    /// Load balancers that were released, and not adopted since.
    released: HashSet<u64>,
    pub adopted: u64,
    pub released_count: u64,
}

/// Both APIs at the moment of a request.
pub struct Moment<'a> {
    cloud: &'a Cloud,
    cluster: &'a Cluster,
    project: u64,
    cluster_uid: String,
    seen: &'a Mutex<Seen>,
    two_at_once: bool,
}

impl Moment<'_> {
    pub fn of<'a>(sandbox: &'a Sandbox, seen: &'a Mutex<Seen>, two_at_once: bool) -> Moment<'a> {
        Moment {
            cloud: sandbox.cloud(),
            cluster: sandbox.cluster(),
            project: sandbox.project(),
            cluster_uid: cluster_uid(sandbox),
            seen,
            two_at_once,
        }
    }

    fn read(&self) -> Kubernetes {
        Kubernetes::read(self.cluster, &self.cluster_uid)
    }

    /// `ccm` may know all that there is now.
    pub fn learn_all(&self) {
        self.seen.lock().unwrap().known = self.read();
    }

    /// `ccm` reads a list. A table of nodes without metadata does not show their labels.
    pub fn learn(&self, request: &Request) {
        let is_list = ["/api/v1/nodes", "/api/v1/services"].contains(&request.path.as_str());
        if !is_list || self.cluster.is_cache_frozen() {
            return;
        }
        let mut now = self.read();
        let seen = &mut *self.seen.lock().unwrap();
        let known = &mut seen.known;
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
            seen.nodes_before.push_front(before);
            seen.nodes_before.truncate(LISTS);
        }
    }

    /// The rest of a plan is executed over several ticks, and each stops it where it does not fit any more. So a part
    /// of it is harm where both what is there and what the last tick could read forbid it, for reasons that differ in their
    /// numbers at most: an old list may want the target itself, which newer reads of the plan did not show any more.
    fn harm_in_rest(&self, harm: impl Fn(&Kubernetes) -> Option<String>) -> Option<String> {
        let harm_now = harm(&self.read())?;
        let seen = self.seen.lock().unwrap();
        let mut known = seen.known.clone();
        let before = seen.nodes_before.clone();
        drop(seen);
        let reason = |harm: &str| harm.replace(char::is_numeric, "");
        let forbids =
            |known: &Kubernetes| harm(known).is_some_and(|harm| reason(&harm) == reason(&harm_now));
        let is_harm = forbids(&known)
            && before.into_iter().all(|nodes| {
                known.nodes = nodes;
                forbids(&known)
            });
        is_harm.then_some(harm_now)
    }

    pub fn harm_in_cloud(&self, request: &Request) -> Option<String> {
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        if let Some(rest) = request.path.strip_prefix("/v1/certificates") {
            return self.harm_to_certificate(request, &body, rest);
        }
        let Some(rest) = request.path.strip_prefix("/v1/load_balancers") else {
            return Some("not about load balancers".into());
        };
        let all = self.cloud.certificates(self.project);
        if let Some(harm) = secrets::harm_of_showing(&body, &all) {
            return Some(harm);
        }
        let mut parts = rest.split('/').skip(1);
        let Some(id) = parts.next().and_then(|id| id.parse::<u64>().ok()) else {
            return self.harm_of_creation(&body);
        };
        let balancer = self.cloud.load_balancer(id);
        if balancer.is_null() {
            return None;
        }
        let kubernetes = self.read();
        let labels = &balancer["labels"];
        let whose = &labels[SERVICE_UID];
        let is_this_cluster = !whose.is_null() && labels[CLUSTER_UID] == *self.cluster_uid;
        let is_ours = is_this_cluster || kubernetes.is_owned(&balancer);
        match (request.method.as_str(), parts.nth(1)) {
            ("PUT", _) => self.harm_of_edit(&kubernetes, id, &balancer, &body, is_ours),
            _ if self.is_released_twice(id) => None,
            _ if !is_ours => Some(format!("not ours: {labels}")),
            ("DELETE", _) => match kubernetes.service(whose) {
                Some(service) if wants(service) => Some(format!("Service {whose} wants it")),
                Some(service) => kubernetes.deletable(&balancer, service).err(),
                None if !labels[KEEP].is_null() => Some("it is kept".into()),
                None if labels[CREATED].is_null() => {
                    Some(format!("was not made for a Service: {labels}"))
                }
                None => None,
            },
            (_, Some("add_target")) => {
                let server = body["server"]["id"].as_u64().unwrap_or_default();
                self.seen.lock().unwrap().tried.insert((id, server));
                None
            }
            (_, Some("remove_target")) => {
                let removed = body["server"]["id"].as_u64().filter(|_| body["type"] == "server");
                let Some(removed) = removed else {
                    return Some("a target that is no server".into());
                };
                self.harm_in_rest(|kubernetes| {
                    let service = kubernetes.service(whose)?;
                    match wants(service) {
                        true => self.break_before_make(kubernetes, id, &balancer, removed, service),
                        false => (!kubernetes.servers().contains(&removed)).then(|| {
                            format!("released without server {removed}, which is no node")
                        }),
                    }
                })
            }
            _ => None,
        }
    }

    fn harm_of_creation(&self, body: &Value) -> Option<String> {
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
            // Another creation of ours may have been faster; the API refuses this one.
            let is_others =
                holder.is_some_and(|holder| holder["labels"][CLUSTER_UID] != *self.cluster_uid);
            let why = is_others.then_some("it is assigned");
            if let Some(why) = why.or_else(|| may_not_be_claimed(one)) {
                return Some(format!("claims Primary IP {}: {why}", one["name"]));
            }
        }
        self.may_live_in_it(&labels[SERVICE_UID])
    }

    /// Adoption, release, and what only sets labels right or renames.
    fn harm_of_edit(
        &self,
        kubernetes: &Kubernetes,
        id: u64,
        balancer: &Value,
        body: &Value,
        is_ours: bool,
    ) -> Option<String> {
        let labels = &balancer["labels"];
        let whose = &labels[SERVICE_UID];
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
            self.seen.lock().unwrap().released.insert(id);
            let harm = self.harm_in_rest(|kubernetes| {
                self.harm_of_release(kubernetes, balancer, new, is_ours)
            });
            self.seen.lock().unwrap().released_count += u64::from(harm.is_none());
            return harm;
        };
        let Some(service) = kubernetes.service(uid) else {
            return Some(format!("for Service {uid}, which does not exist"));
        };
        if uid != whose || !is_ours {
            let asked = &labels[ADOPT];
            let all = self.cloud.load_balancers(self.project);
            let mut others = all.iter().filter(|one| one["id"] != id);
            if !asked.is_null() && others.any(|one| one["labels"][ADOPT] == *asked) {
                return Some(format!("two carry label {ADOPT}={asked}"));
            }
            if let Err(why) = kubernetes.adoptable(balancer, service) {
                return Some(format!("adopted for {}: {why}", service["metadata"]["name"]));
            }
            self.seen.lock().unwrap().released.remove(&id);
            self.seen.lock().unwrap().adopted += 1;
        }
        self.may_live_in_it(uid)
    }

    /// Its ports and targets are removed before its labels are, so that a restart finds it.
    fn harm_of_release(
        &self,
        kubernetes: &Kubernetes,
        balancer: &Value,
        new: &Map<String, Value>,
        is_ours: bool,
    ) -> Option<String> {
        let labels = &balancer["labels"];
        let Some(service) = kubernetes.service(&labels[SERVICE_UID]).filter(|_| is_ours) else {
            return Some(format!("released, and not ours: {labels}"));
        };
        if wants(service) {
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
        // An owner pays for what is released without need.
        let is_deletable = kubernetes.deletable(balancer, service).is_ok();
        is_deletable.then(|| format!("released, and was made for the Service: {labels}"))
    }

    /// With two at once the slower one removes again what the faster one has removed.
    fn is_released_twice(&self, id: u64) -> bool {
        self.two_at_once && self.seen.lock().unwrap().released.contains(&id)
    }

    /// One is ordered or uploaded, or taken over where no Service has it any more; what was uploaded is deleted when
    /// nothing shows it.
    fn harm_to_certificate(&self, request: &Request, body: &Value, rest: &str) -> Option<String> {
        let uid = &body["labels"][SERVICE_UID];
        let all = self.cloud.certificates(self.project);
        match (request.method.as_str(), rest.strip_prefix('/')) {
            ("POST", None) if body["type"] == "uploaded" => {
                secrets::harm_of_upload(body, &self.cluster_uid)
            }
            ("DELETE", Some(id)) => {
                let one = all.iter().find(|one| one["id"].as_u64() == id.parse().ok())?;
                let balancers = self.cloud.load_balancers(self.project);
                secrets::harm_of_deletion(one, &self.cluster_uid, &balancers)
            }
            ("POST", None) => {
                let same = |one: &&Value| {
                    // The API refuses a second one of a name.
                    one["name"] != body["name"]
                        && one["labels"][SERVICE_UID] == *uid
                        && one["domain_names"] == body["domain_names"]
                };
                let twice = all.iter().find(same);
                let twice = twice.map(|one| format!("Service {uid} has {}", one["name"]));
                twice.or_else(|| self.may_live_in_it(uid))
            }
            ("PUT", Some(id)) => {
                let one = all.iter().find(|one| one["id"].as_u64() == id.parse().ok())?;
                let whose = &one["labels"][SERVICE_UID];
                if whose != uid && self.service(whose).is_some() {
                    return Some(format!("taken from Service {whose}, which exists"));
                }
                self.may_live_in_it(uid)
            }
            _ => Some("neither an order nor a take-over".into()),
        }
    }

    /// Something is made for this Service: it must be there, want it, and be kept until that is gone again.
    fn may_live_in_it(&self, uid: &Value) -> Option<String> {
        let Some(service) = self.service(uid) else {
            return Some(format!("for Service {uid}, which does not exist"));
        };
        (!has_finalizer(&service)).then(|| format!("Service {uid} has no finalizer"))
    }

    fn break_before_make(
        &self,
        kubernetes: &Kubernetes,
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
        let seen = self.seen.lock().unwrap();
        let mut missing = wanted.difference(&there);
        let untried = missing.find(|server| !seen.tried.contains(&(id, **server)));
        untried.map(|server| format!("server {server} is to come, and was not tried yet"))
    }

    pub fn harm_in_cluster(&self, request: &Request) -> Option<String> {
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
            // The API server refuses it.
            return None;
        }
        if !service["spec"]["loadBalancerClass"].is_null() {
            return Some("another controller's".into());
        }
        let finalizers = body["metadata"]["finalizers"].as_array()?;
        if finalizers.iter().any(|one| one == FINALIZER) {
            return None;
        }
        if wants(&service) {
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
