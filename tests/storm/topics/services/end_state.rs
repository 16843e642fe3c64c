//! Checks the end state of a story. What must exist is computed from the Services and nodes that exist then, without
//! `ccm`'s own comparison.

use super::events::{EXCLUDED, UNCHECKED_ANNOTATIONS, cluster_uid};
use super::foreign::{NEVER_ADOPTED, is_copy};
use super::invariants::{has_finalizer, wants_balancer};
use super::ownership::{ClusterState, is_ours, server_of};
use super::secrets;
use crate::process::PRIMARY_IP_SELECTOR;
use crate::topics::cluster::ids;
use ccm::hetzner::load_balancers::annotations::PREFIX;
use ccm::hetzner::load_balancers::{ADOPT, CLUSTER_UID, KEEP, SERVICE_UID};
use sandbox::Sandbox;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Annotations with values that no load balancer can have.
const INVALID_ANNOTATIONS: [(&str, &str); 3] =
    [("algorithm-type", "by-the-moon"), ("type", "lb99"), ("http-sticky-sessions", "maybe")];

/// The annotations that name the certificates of a Service's ports. One of them is enough.
const CERTIFICATES: [&str; 3] = ["certificate-type", "http-certificates", "http-tls-secret"];

/// Returns the load balancers of other owners as text, without the health of their targets, which changes by itself.
pub fn foreign_balancers(sandbox: &Sandbox) -> BTreeMap<u64, String> {
    let own = cluster_uid(sandbox);
    let all = sandbox.cloud().load_balancers(sandbox.project());
    let theirs = all.into_iter().filter(|one| {
        let is_ours = one["labels"][CLUSTER_UID] == *own;
        !is_ours && NEVER_ADOPTED.iter().any(|name| one["name"] == *name)
    });
    theirs
        .map(|mut one| {
            for target in one["targets"].as_array_mut().unwrap() {
                target["health_status"] = Value::Null;
            }
            (one["id"].as_u64().unwrap(), one.to_string())
        })
        .collect()
}

/// Removes the reasons for which certificates could not be issued, and issues the certificates.
pub fn issue_failed_certificates(sandbox: &Sandbox) {
    let cloud = sandbox.cloud();
    for one in cloud.certificates(sandbox.project()) {
        if one["status"]["issuance"] == "failed" {
            cloud.retry_certificate(one["id"].as_u64().unwrap());
        }
    }
}

/// The state of both APIs at one moment.
struct ApiState {
    kubernetes: ClusterState,
    balancers: Vec<Value>,
    certificates: Vec<Value>,
    primary_ips: Vec<Value>,
    servers: BTreeSet<u64>,
    /// Whether `ccm` has compared everything with the present state of both APIs.
    is_compared: bool,
}

/// What happened to Services in the story.
#[derive(Default)]
pub struct PastEvents {
    /// The names of Services whose ports were changed. Their former ports may stay on a load balancer that is released.
    pub other_ports: BTreeSet<String>,
    /// The UIDs of Services that a backup restored without their finalizer, although they have a load balancer. When
    /// such a Service does not want the load balancer any more, it stays, and is reported as an orphan.
    pub lost_finalizer: BTreeSet<String>,
    /// The ports of each load balancer that existed before `ccm` ran. They are its former owner's.
    pub first_ports: BTreeMap<u64, Value>,
}

/// Checks that exactly the wanted load balancers exist, each as it should be.
pub fn check_end_state(sandbox: &Sandbox, past_events: &PastEvents) -> Result<(), String> {
    check(sandbox, None, past_events, true)
}

/// Checks the same, except for the Service of this name, and before everything has been compared. A target whose server
/// does not exist may still be there, and a name that became free may not be used yet.
pub fn check_end_state_except(
    sandbox: &Sandbox,
    stuck: &str,
    past_events: &PastEvents,
) -> Result<(), String> {
    check(sandbox, Some(stuck), past_events, false)
}

fn check(
    sandbox: &Sandbox,
    stuck: Option<&str>,
    past_events: &PastEvents,
    is_compared: bool,
) -> Result<(), String> {
    let (cloud, project) = (sandbox.cloud(), sandbox.project());
    let ours = cluster_uid(sandbox);
    let apis = ApiState {
        kubernetes: ClusterState::read(sandbox.cluster(), &ours),
        balancers: cloud.load_balancers(project),
        certificates: cloud.certificates(project),
        primary_ips: cloud.primary_ips(project),
        servers: ids(&cloud.servers(project)),
        is_compared,
    };
    let name = |service: &Value| service["metadata"]["name"].as_str().map(str::to_owned);
    let services = apis.kubernetes.services.iter();
    for service in services.filter(|one| stuck.is_none() || name(one).as_deref() != stuck) {
        let of_service = |why: String| format!("Service {}: {why}", service["metadata"]["name"]);
        let uid = service["metadata"]["uid"].as_str().unwrap_or_default();
        let is_lost = past_events.lost_finalizer.contains(uid) && !wants_balancer(service);
        if !is_lost || has_finalizer(service) {
            apis.check_service(sandbox, service).map_err(of_service)?;
        }
    }
    for certificate in &apis.certificates {
        let uid = &certificate["labels"][SERVICE_UID];
        let same = apis.certificates.iter();
        let same = same.filter(|one| one["labels"][SERVICE_UID] == *uid);
        if !uid.is_null() && same.count() > 1 {
            return Err(format!("Service {uid} has more than one certificate"));
        }
    }
    if let Some(left) = secrets::left_over(sandbox).first().filter(|_| is_compared) {
        return Err(format!("certificate {} is left", left["name"]));
    }
    let is_stuck = |one: &&Value| {
        let service = apis.kubernetes.service(&one["labels"][SERVICE_UID]);
        stuck.is_some() && service.and_then(name).as_deref() == stuck
    };
    let mut others = apis.balancers.iter().filter(|one| !is_stuck(one));
    others.try_for_each(|one| apis.check_labels(one, &ours, past_events))
}

/// Returns the load balancers of this cluster whose Service does not exist. Some may have been orphans from the start.
pub fn orphans(sandbox: &Sandbox) -> BTreeSet<u64> {
    let ours = cluster_uid(sandbox);
    let kubernetes = ClusterState::read(sandbox.cluster(), &ours);
    let is_orphan = |one: &Value| {
        let labels = &one["labels"];
        let is_kept = !labels[KEEP].is_null();
        labels[CLUSTER_UID] == *ours
            && !is_kept
            && kubernetes.service(&labels[SERVICE_UID]).is_none()
    };
    let mut all = sandbox.cloud().load_balancers(sandbox.project());
    all.retain(is_orphan);
    all.iter().map(|one| one["id"].as_u64().unwrap()).collect()
}

impl ApiState {
    /// Checks the labels of a load balancer. Without a Service's UID it may have none of our labels, except those of an
    /// operator or of another cluster. It must not have the UID of a Service that wants no load balancer.
    fn check_labels(
        &self,
        balancer: &Value,
        ours: &str,
        past_events: &PastEvents,
    ) -> Result<(), String> {
        let (name, labels) = (&balancer["name"], &balancer["labels"]);
        let uid = &labels[SERVICE_UID];
        if !uid.is_null() {
            let is_left = labels[CLUSTER_UID].is_null() || labels[CLUSTER_UID] == *ours;
            let service = self.kubernetes.service(uid);
            let is_lost = uid.as_str().is_some_and(|uid| past_events.lost_finalizer.contains(uid));
            let is_unwanted = service.is_some_and(|service| !wants_balancer(service)) && !is_lost;
            return match is_left && is_unwanted {
                true => Err(format!("load balancer {name} is left of Service {uid}")),
                false => Ok(()),
            };
        }
        let all = labels.as_object().unwrap();
        let mut labels = all.keys().filter(|label| is_ours(label));
        let kept_of = all.get(KEEP).and_then(Value::as_str).unwrap_or_default();
        let kept_of = kept_of.trim_start_matches("default.");
        let first = balancer["id"].as_u64().and_then(|id| past_events.first_ports.get(&id));
        let is_first = |port: &Value| {
            let first = first.and_then(Value::as_array);
            first.is_some_and(|first| first.contains(port))
        };
        let has_no_other = list(&self::ports(balancer)).all(is_first);
        let is_bare = past_events.other_ports.contains(kept_of) || has_no_other;
        let of_kept = [KEEP, CLUSTER_UID].map(str::to_owned);
        let is_kept = is_bare && all.contains_key(KEEP);
        match labels.find(|label| *label != ADOPT && !(is_kept && of_kept.contains(label))) {
            Some(label) => Err(format!("released load balancer {name} has label {label}")),
            None => Ok(()),
        }
    }

    /// Whether `ccm` removes targets whose servers do not exist. It does not when the list contains no server of any
    /// node, because such a list is another project's, or wrong.
    fn removes_targets_without_servers(&self) -> bool {
        let mut eligible = self.kubernetes.nodes.iter().filter(|node| is_eligible(node));
        let is_alive =
            |node: &Value| server_of(node).is_some_and(|server| self.servers.contains(&server));
        self.is_compared && eligible.any(is_alive)
    }

    /// Whether the Service asks for a certificate or an address that it may not have, or for `https`
    /// without a certificate.
    fn asks_for_unavailable(&self, service: &Value) -> bool {
        let uid = &service["metadata"]["uid"];
        let is_https = annotation(service, "protocol") == Some("https");
        // Somebody has removed the annotation that named a certificate of others.
        let names_none = CERTIFICATES.iter().all(|key| annotation(service, key).is_none());
        let named = annotation(service, "http-managed-certificate-name").filter(|_| is_https);
        let taken = self.certificates.iter().any(|one| {
            Some(one["name"].as_str().unwrap()) == named && one["labels"][SERVICE_UID] != *uid
        });
        let own = self.balancers.iter().any(|one| one["labels"][SERVICE_UID] == *uid);
        let asked = annotation(service, "public-net-ipv4").filter(|_| !own);
        let mut refused = self.primary_ips.iter().filter(|one| {
            let is_assigned = !one["assignee_id"].is_null();
            is_assigned || why_not_claimable(one).is_some()
        });
        (is_https && names_none) || taken || refused.any(|one| one["name"].as_str() == asked)
    }

    /// Checks a Service that has no load balancer. A load balancer of its name, or one that an operator offers, must
    /// exist, and the Service may not adopt it.
    fn check_blocked(&self, service: &Value) -> Result<(), String> {
        let own = format!("default.{}", service["metadata"]["name"].as_str().unwrap());
        let with = |is_it: &dyn Fn(&Value) -> bool| -> Vec<&Value> {
            self.balancers.iter().filter(|one| is_it(one)).collect()
        };
        let eligible = with(&|one| one["labels"][ADOPT] == *own);
        // Without the annotation the default name counts, which a released load balancer may still have.
        let default = format!("kubernetes-{}-", own.replace('.', "-"));
        let named = with(&|one| match annotation(service, "name") {
            Some(name) => one["name"] == name,
            None => one["name"].as_str().unwrap().starts_with(&default),
        });
        let one = match (eligible.as_slice(), named.as_slice()) {
            ([], []) => return Err("no load balancer".into()),
            ([], [one, ..]) | ([one], _) => one,
            // An operator must decide.
            ([_, _, ..], _) => return Ok(()),
        };
        match self.kubernetes.adoptable(one, service) {
            Ok(()) => Err(format!("did not adopt load balancer {}", one["name"])),
            Err(_) => Ok(()),
        }
    }

    fn check_service(&self, sandbox: &Sandbox, service: &Value) -> Result<(), String> {
        let uid = &service["metadata"]["uid"];
        let ApiState { balancers, certificates, .. } = self;
        let with_uid = balancers.iter();
        let with_uid = with_uid.filter(|one| one["labels"][SERVICE_UID] == *uid);
        let (copies, own): (Vec<&Value>, Vec<&Value>) = with_uid.partition(|one| is_copy(one));
        if !wants_balancer(service) {
            return match (has_finalizer(service), own.len()) {
                (false, 0) if service["metadata"]["deletionTimestamp"].is_null() => Ok(()),
                (finalizer, count) => Err(format!("finalizer {finalizer}, {count} load balancers")),
            };
        }
        let is_bad =
            INVALID_ANNOTATIONS.iter().any(|(key, value)| annotation(service, key) == Some(value));
        let named = annotation(service, "name");
        let name_is_taken = named.is_some_and(|name| {
            let mut others = balancers.iter();
            others.any(|one| one["name"] == name && one["labels"][SERVICE_UID] != *uid)
        });
        let is_other = |key: &&str| annotation(service, key).is_some();
        let is_bad = is_bad
            || self.asks_for_unavailable(service)
            || UNCHECKED_ANNOTATIONS.iter().any(is_other);
        let one = match own.as_slice() {
            [one] => one,
            [] if is_bad || !copies.is_empty() => return Ok(()),
            [] => return self.check_blocked(service),
            all => return Err(format!("{} load balancers", all.len())),
        };
        if is_bad {
            return Ok(());
        }
        if !has_finalizer(service) {
            return Err("no finalizer".into());
        }
        let equal = |what: &str, have: Value, want: Value| match have == want {
            true => Ok(()),
            false => Err(format!("{what}: {have}, and not {want}")),
        };
        if let Some(name) = named.filter(|_| !name_is_taken && self.is_compared) {
            equal("name", one["name"].clone(), json!(name))?;
        }
        if let Some(kind) = annotation(service, "type") {
            equal("type", one["load_balancer_type"]["name"].clone(), json!(kind))?;
        }
        let default = sandbox.cluster().get("namespaces", None, "default").unwrap_or_default();
        let default = annotation(&default, "algorithm-type").unwrap_or("round_robin");
        let algorithm = annotation(service, "algorithm-type").unwrap_or(default);
        equal("algorithm", one["algorithm"]["type"].clone(), json!(algorithm))?;
        if annotation(service, "labels").is_some() {
            equal("label", one["labels"]["tier"].clone(), json!("web"))?;
        }
        equal("ports", ports(one), wanted_ports(service))?;
        let shown = one["services"].as_array().unwrap().iter();
        let shown = shown.filter(|port| port["protocol"] == "https");
        for port in shown {
            let ids = port["http"]["certificates"].as_array().unwrap();
            let shown = certificates.iter().filter(|one| ids.contains(&one["id"]));
            let shown: Vec<Value> = shown.cloned().collect();
            let is_right = match secrets::secret_of(service) {
                Some(_) => secrets::is_shown(sandbox, service, &shown),
                None => matches!(&shown[..], [one] if one["labels"][SERVICE_UID] == *uid),
            };
            if !is_right {
                return Err(format!("certificates {ids:?} on port {}", port["listen_port"]));
            }
        }
        let wanted = servers(service, &self.kubernetes.nodes, &self.servers);
        let mut have = targets(one);
        if !self.removes_targets_without_servers() {
            have.retain(|server| self.servers.contains(server));
        }
        equal("targets", json!(have), json!(wanted))?;
        let address = &one["public_net"]["ipv4"]["ip"];
        equal(
            "status",
            service["status"]["loadBalancer"]["ingress"][0]["ip"].clone(),
            address.clone(),
        )
    }
}

/// Returns why no Service may claim this Primary IP, whether it is free or not.
pub fn why_not_claimable(primary_ip: &Value) -> Option<&'static str> {
    let (key, value) = PRIMARY_IP_SELECTOR.split_once('=').unwrap();
    if primary_ip["labels"][key] != value {
        Some("the selector does not select it")
    } else if primary_ip["auto_delete"] == true {
        Some("it would be deleted with the load balancer")
    } else {
        None
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

pub fn ports(balancer: &Value) -> Value {
    let services = balancer["services"].as_array().unwrap().iter();
    let ports = services.map(|service| {
        json!([
            service["listen_port"],
            service["destination_port"],
            service["protocol"],
            service["proxyprotocol"],
            service["health_check"]["interval"],
            service["health_check"]["port"] == 10256,
        ])
    });
    sorted(ports)
}

fn wanted_ports(service: &Value) -> Value {
    let interval = if annotation(service, "health-check-interval").is_some() { 7 } else { 15 };
    let spec = service["spec"]["ports"].as_array().unwrap().iter();
    let ports = spec.map(|port| {
        json!([
            port["port"],
            port["nodePort"],
            annotation(service, "protocol").unwrap_or("tcp"),
            annotation(service, "uses-proxyprotocol").is_some(),
            interval,
            annotation(service, "health-check").is_some(),
        ])
    });
    sorted(ports)
}

fn sorted(values: impl Iterator<Item = Value>) -> Value {
    let mut values: Vec<Value> = values.collect();
    values.sort_by_key(|value| value[0].as_u64());
    values.into()
}

pub fn targets(balancer: &Value) -> BTreeSet<u64> {
    let targets = balancer["targets"].as_array().unwrap().iter();
    targets.filter_map(|target| target["server"]["id"].as_u64()).collect()
}

/// Returns which of the servers `alive` belong to the nodes to which this Service sends traffic.
pub fn servers(service: &Value, nodes: &[Value], alive: &BTreeSet<u64>) -> BTreeSet<u64> {
    let pool = annotation(service, "node-selector").map(|selector| selector.replace("pool=", ""));
    let eligible = nodes.iter().filter(|node| {
        let own = &node["metadata"]["labels"]["pool"];
        is_eligible(node) && pool.as_ref().is_none_or(|pool| *own == **pool)
    });
    let ids = eligible.filter_map(server_of);
    ids.filter(|id| alive.contains(id)).collect()
}

fn is_eligible(node: &Value) -> bool {
    let excluded = node["metadata"]["labels"][EXCLUDED].as_str();
    excluded.is_none_or(|value| value == "false")
}

pub fn annotation<'a>(service: &'a Value, name: &str) -> Option<&'a str> {
    service["metadata"]["annotations"][format!("{PREFIX}{name}")].as_str()
}
