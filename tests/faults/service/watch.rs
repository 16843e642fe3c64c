//! What must never happen, looked at in the moment in which the request arrives.

use crate::service::story::{FINALIZER, NAMESPACE, cluster_uid};
use ccm::hetzner::load_balancers::{CLUSTER_UID, CREATED, SERVICE_UID};
use sandbox::exchange::Request;
use sandbox::faults::{Effect, Rule};
use sandbox::hetzner::Cloud;
use sandbox::kubernetes::Cluster;
use sandbox::{Half, Sandbox};
use serde_json::Value;
use std::collections::HashSet;
use std::sync::{Arc, Mutex};

pub struct Watch {
    look: Arc<Look>,
}

/// Both halves, and what was seen.
struct Look {
    cloud: Arc<Cloud>,
    cluster: Arc<Cluster>,
    project: u64,
    cluster_uid: String,
    harm: Mutex<Vec<String>>,
    /// Load balancer and server of each attempt to add a target.
    tried: Mutex<HashSet<(u64, u64)>>,
}

impl Watch {
    pub fn new(sandbox: &Sandbox) -> Watch {
        Watch {
            look: Arc::new(Look {
                cloud: Arc::clone(sandbox.cloud()),
                cluster: Arc::clone(sandbox.cluster()),
                project: sandbox.project(),
                cluster_uid: cluster_uid(sandbox),
                harm: Mutex::default(),
                tried: Mutex::default(),
            }),
        }
    }

    /// From now on, until the faults are cleared.
    pub fn over(&self, sandbox: &Sandbox) {
        let own = |half: Half, harm_of: fn(&Look, &Request) -> Option<String>| {
            let look = Arc::clone(&self.look);
            let hook = move |request: &Request| {
                if let Some(why) = harm_of(&look, request) {
                    let call = format!("{} {}", request.method, request.path);
                    look.harm.lock().unwrap().push(format!("{call}: {why}"));
                }
            };
            Rule::new(Effect::before(hook)).half(half).writes()
        };
        sandbox
            .faults()
            .add(own(Half::Hetzner, Look::harm_in_cloud));
        sandbox
            .faults()
            .add(own(Half::Kubernetes, Look::harm_in_cluster));
    }

    pub fn no_harm(&self, sandbox: &Sandbox) -> Result<(), String> {
        let harm = self.look.harm.lock().unwrap().join("\n");
        match harm.is_empty() {
            true => Ok(()),
            false => Err(format!("{harm}\n{}", all_writes(sandbox))),
        }
    }
}

/// Of both halves, events left out: they say how it came to this.
pub fn all_writes(sandbox: &Sandbox) -> String {
    let calls = sandbox.calls().calls();
    let writes = calls
        .iter()
        .filter(|call| call.is_write() && !call.path.ends_with("/events"));
    let lines = writes.map(|call| format!("{call} {}", String::from_utf8_lossy(&call.body)));
    format!("all writes:\n{}", lines.collect::<Vec<_>>().join("\n"))
}

impl Look {
    fn harm_in_cloud(&self, request: &Request) -> Option<String> {
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        if let Some(rest) = request.path.strip_prefix("/v1/certificates") {
            return self.harm_to_certificate(request, &body, rest);
        }
        let Some(rest) = request.path.strip_prefix("/v1/load_balancers") else {
            return Some("not about load balancers".into());
        };
        let mut parts = rest.split('/').skip(1);
        let Some(id) = parts.next().and_then(|id| id.parse::<u64>().ok()) else {
            return self.may_live_in_it(&body["labels"][SERVICE_UID]);
        };
        let balancer = self.cloud.load_balancer(id);
        if balancer.is_null() {
            return None;
        }
        let labels = &balancer["labels"];
        let whose = &labels[SERVICE_UID];
        let is_ours = labels[CLUSTER_UID] == *self.cluster_uid;
        match (request.method.as_str(), parts.nth(1)) {
            ("PUT", _) => {
                let new = &body["labels"][SERVICE_UID];
                if !labels[CLUSTER_UID].is_null() && !is_ours {
                    return Some(format!("another cluster's: {labels}"));
                }
                let changes = !new.is_null() && new != whose;
                if changes && self.service(whose).is_some() {
                    return Some(format!("taken from Service {whose}, which exists"));
                }
                if !changes && !is_ours && whose.is_null() {
                    return Some(format!("renamed, and nobody's: {labels}"));
                }
                self.may_live_in_it(if changes { new } else { whose })
            }
            _ if !is_ours || whose.is_null() => Some(format!("not ours: {labels}")),
            ("DELETE", _) if labels[CREATED].is_null() => {
                Some(format!("was not made for a Service: {labels}"))
            }
            ("DELETE", _) => {
                let service = self.service(whose);
                let wanted = service.is_some_and(|service| wants(&service));
                wanted.then(|| format!("Service {whose} wants it"))
            }
            (_, Some("add_target")) => {
                let server = body["server"]["id"].as_u64().unwrap_or_default();
                self.tried.lock().unwrap().insert((id, server));
                None
            }
            (_, Some("remove_target")) => self.break_before_make(id, &balancer, &body),
            _ => None,
        }
    }

    /// One is ordered, or taken over where nobody has it any more; never deleted.
    fn harm_to_certificate(&self, request: &Request, body: &Value, rest: &str) -> Option<String> {
        let uid = &body["labels"][SERVICE_UID];
        let all = self.cloud.certificates(self.project);
        match (request.method.as_str(), rest.strip_prefix('/')) {
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
                let one = all
                    .iter()
                    .find(|one| one["id"].as_u64() == id.parse().ok())?;
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

    fn break_before_make(&self, id: u64, balancer: &Value, body: &Value) -> Option<String> {
        let service = self.service(&balancer["labels"][SERVICE_UID])?;
        if !wants(&service) {
            // It is released.
            return None;
        }
        let nodes = self.cluster.list("nodes", None);
        let wanted = crate::service::end::servers(&service, &nodes);
        let removed = body["server"]["id"].as_u64().unwrap_or_default();
        if wanted.contains(&removed) {
            return Some(format!("server {removed} is wanted"));
        }
        let there = crate::service::end::targets(balancer);
        let tried = self.tried.lock().unwrap();
        let mut missing = wanted.difference(&there);
        let untried = missing.find(|server| !tried.contains(&(id, **server)));
        untried.map(|server| format!("server {server} is to come, and was not tried yet"))
    }

    fn harm_in_cluster(&self, request: &Request) -> Option<String> {
        let path = "/api/v1/namespaces/default/services/";
        let name = request.path.strip_prefix(path)?.strip_suffix("/status");
        let Some(name) = name else {
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
            return Some("its finalizer goes, and it wants a load balancer".into());
        }
        let uid = &service["metadata"]["uid"];
        let all = self.cloud.load_balancers(self.project);
        let left = all.iter().find(|one| one["labels"][SERVICE_UID] == *uid);
        left.map(|one| {
            format!(
                "its finalizer goes, and load balancer {} is there",
                one["id"]
            )
        })
    }

    fn service(&self, uid: &Value) -> Option<Value> {
        let services = self.cluster.list("services", NAMESPACE);
        let mut services = services.into_iter();
        services.find(|service| uid.is_string() && service["metadata"]["uid"] == *uid)
    }
}

pub fn has_finalizer(service: &Value) -> bool {
    let finalizers = service["metadata"]["finalizers"].as_array();
    finalizers.is_some_and(|all| all.iter().any(|one| one == FINALIZER))
}

/// Does it ask us for a load balancer?
pub fn wants(service: &Value) -> bool {
    let spec = &service["spec"];
    spec["type"] == "LoadBalancer"
        && spec["loadBalancerClass"].is_null()
        && service["metadata"]["deletionTimestamp"].is_null()
}
