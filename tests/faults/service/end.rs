//! What there must be in the end, worked out from the Services and nodes that are there then, apart from `ccm`'s own
//! comparison.

use crate::service::story::{EXCLUDED, NAMESPACE, cluster_uid};
use crate::service::watch::{has_finalizer, wants};
use ccm::hetzner::load_balancers::annotations::PREFIX;
use ccm::hetzner::load_balancers::{CLUSTER_UID, SERVICE_UID};
use sandbox::Sandbox;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Of no load balancer.
const BAD: [(&str, &str); 3] = [
    ("algorithm-type", "by-the-moon"),
    ("type", "lb99"),
    ("http-sticky-sessions", "maybe"),
];

/// Other people's load balancers, byte by byte; how healthy their targets are changes by itself.
pub fn others(sandbox: &Sandbox) -> BTreeMap<u64, String> {
    let own = cluster_uid(sandbox);
    let all = sandbox.cloud().load_balancers(sandbox.project());
    let names = [
        "theirs",
        "kubernetes-default-s-0",
        "kubernetes-default-s-1",
        "somebody",
    ];
    let theirs = all.into_iter().filter(|one| {
        let is_ours = one["labels"][CLUSTER_UID] == *own;
        !is_ours && names.iter().any(|name| one["name"] == *name)
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

/// Somebody mends what kept certificates from being issued, and they are.
pub fn certificates_come(sandbox: &Sandbox) {
    let (cloud, project) = (sandbox.cloud(), sandbox.project());
    cloud.set_action_duration("create_certificate", Some(std::time::Duration::ZERO));
    let with = |issuance: &str| {
        let mut all = cloud.certificates(project);
        all.retain(|one| one["status"]["issuance"] == issuance);
        all
    };
    crate::common::wait_until("certificates", || {
        for failed in with("failed") {
            cloud.retry_certificate(failed["id"].as_u64().unwrap());
        }
        with("pending").is_empty()
    });
}

/// Exactly the load balancers that are wanted, each as it should be.
pub fn is_right(sandbox: &Sandbox) -> Result<(), String> {
    let balancers = sandbox.cloud().load_balancers(sandbox.project());
    let services = sandbox.cluster().list("services", NAMESPACE);
    let nodes = sandbox.cluster().list("nodes", None);
    let certificates = sandbox.cloud().certificates(sandbox.project());
    let primary_ips = sandbox.cloud().primary_ips(sandbox.project());
    for service in &services {
        let of_service = |why: String| format!("Service {}: {why}", service["metadata"]["name"]);
        let lacks = lacks(service, &certificates, &primary_ips, &balancers);
        service_is_right(service, &balancers, &nodes, &certificates, lacks).map_err(of_service)?;
    }
    for certificate in &certificates {
        let uid = &certificate["labels"][SERVICE_UID];
        let same = certificates.iter();
        let same = same.filter(|one| one["labels"][SERVICE_UID] == *uid);
        if same.count() > 1 {
            return Err(format!("Service {uid} has more than one certificate"));
        }
    }
    let ours = cluster_uid(sandbox);
    let lives = |uid: &Value| {
        let mut services = services.iter();
        services.any(|service| service["metadata"]["uid"] == *uid && wants(service))
    };
    // Of Services that were taken away by force, and of those that go on living, but not with us.
    let known = |uid: &Value| {
        let mut services = services.iter();
        services.any(|service| service["metadata"]["uid"] == *uid)
    };
    for one in &balancers {
        let uid = &one["labels"][SERVICE_UID];
        if one["labels"][CLUSTER_UID] == *ours && known(uid) && !lives(uid) {
            return Err(format!(
                "load balancer {} is left of Service {uid}",
                one["name"]
            ));
        }
    }
    Ok(())
}

/// Of this cluster, and of no Service that is there; what was so from the start is not meant.
pub fn orphans(sandbox: &Sandbox) -> BTreeSet<u64> {
    let ours = cluster_uid(sandbox);
    let services = sandbox.cluster().list("services", NAMESPACE);
    let is_orphan = |one: &Value| {
        let uid = &one["labels"][SERVICE_UID];
        let mut services = services.iter();
        one["labels"][CLUSTER_UID] == *ours
            && !services.any(|service| service["metadata"]["uid"] == *uid)
    };
    let mut all = sandbox.cloud().load_balancers(sandbox.project());
    all.retain(is_orphan);
    all.iter().map(|one| one["id"].as_u64().unwrap()).collect()
}

/// Somebody else has the certificate or the address that it asks for.
fn lacks(
    service: &Value,
    certificates: &[Value],
    primary_ips: &[Value],
    balancers: &[Value],
) -> bool {
    let uid = &service["metadata"]["uid"];
    let is_https = annotation(service, "protocol") == Some("https");
    let named = annotation(service, "http-managed-certificate-name").filter(|_| is_https);
    let taken = certificates.iter().any(|one| {
        Some(one["name"].as_str().unwrap()) == named && one["labels"][SERVICE_UID] != *uid
    });
    let own = balancers
        .iter()
        .any(|one| one["labels"][SERVICE_UID] == *uid);
    let asked = annotation(service, "public-net-ipv4").filter(|_| !own);
    let assigned = primary_ips
        .iter()
        .any(|one| Some(one["name"].as_str().unwrap()) == asked && !one["assignee_id"].is_null());
    taken || assigned
}

fn service_is_right(
    service: &Value,
    balancers: &[Value],
    nodes: &[Value],
    certificates: &[Value],
    lacks: bool,
) -> Result<(), String> {
    let uid = &service["metadata"]["uid"];
    let own: Vec<&Value> = balancers
        .iter()
        .filter(|one| one["labels"][SERVICE_UID] == *uid)
        .collect();
    if !wants(service) {
        return match (has_finalizer(service), own.len()) {
            (false, 0) if service["metadata"]["deletionTimestamp"].is_null() => Ok(()),
            (finalizer, count) => Err(format!("finalizer {finalizer}, {count} load balancers")),
        };
    }
    let is_bad = BAD
        .iter()
        .any(|(key, value)| annotation(service, key) == Some(value));
    let named = annotation(service, "name");
    let name_is_taken = named.is_some_and(|name| {
        let mut others = balancers.iter();
        others.any(|one| one["name"] == name && one["labels"][SERVICE_UID] != *uid)
    });
    let is_bad = is_bad || lacks;
    let one = match own.as_slice() {
        [one] => one,
        [] if is_bad || name_is_taken => return Ok(()),
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
    if let Some(name) = named.filter(|_| !name_is_taken) {
        equal("name", one["name"].clone(), json!(name))?;
    }
    if let Some(kind) = annotation(service, "type") {
        equal(
            "type",
            one["load_balancer_type"]["name"].clone(),
            json!(kind),
        )?;
    }
    let algorithm = annotation(service, "algorithm-type").unwrap_or("round_robin");
    equal(
        "algorithm",
        one["algorithm"]["type"].clone(),
        json!(algorithm),
    )?;
    equal("ports", ports(one), wanted_ports(service))?;
    let shown = one["services"].as_array().unwrap().iter();
    let shown = shown.filter(|port| port["protocol"] == "https");
    for port in shown {
        let ids = port["http"]["certificates"].as_array().unwrap();
        let is_own = |id: &Value| {
            let mut all = certificates.iter();
            all.any(|one| one["id"] == *id && one["labels"][SERVICE_UID] == *uid)
        };
        if ids.len() != 1 || !ids.iter().all(is_own) {
            return Err(format!(
                "certificates {ids:?} on port {}",
                port["listen_port"]
            ));
        }
    }
    equal(
        "targets",
        json!(targets(one)),
        json!(servers(service, nodes)),
    )?;
    let address = &one["public_net"]["ipv4"]["ip"];
    equal(
        "status",
        service["status"]["loadBalancer"]["ingress"][0]["ip"].clone(),
        address.clone(),
    )
}

fn ports(balancer: &Value) -> Value {
    let services = balancer["services"].as_array().unwrap().iter();
    let ports = services.map(|service| {
        json!([
            service["listen_port"],
            service["destination_port"],
            service["protocol"],
            service["proxyprotocol"],
            service["health_check"]["interval"],
        ])
    });
    sorted(ports)
}

fn wanted_ports(service: &Value) -> Value {
    let interval = if annotation(service, "health-check-interval").is_some() {
        7
    } else {
        15
    };
    let spec = service["spec"]["ports"].as_array().unwrap().iter();
    let ports = spec.map(|port| {
        json!([
            port["port"],
            port["nodePort"],
            annotation(service, "protocol").unwrap_or("tcp"),
            annotation(service, "uses-proxyprotocol").is_some(),
            interval,
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
    targets
        .filter_map(|target| target["server"]["id"].as_u64())
        .collect()
}

/// Of the nodes that this Service sends traffic to.
pub fn servers(service: &Value, nodes: &[Value]) -> BTreeSet<u64> {
    let pool = annotation(service, "node-selector").map(|selector| selector.replace("pool=", ""));
    let offered = nodes.iter().filter(|node| {
        let labels = &node["metadata"]["labels"];
        let is_excluded = labels[EXCLUDED]
            .as_str()
            .is_some_and(|value| value != "false");
        !is_excluded && pool.as_ref().is_none_or(|pool| labels["pool"] == **pool)
    });
    let id = |node: &Value| {
        let id = node["spec"]["providerID"].as_str()?;
        id.strip_prefix("ccm-from-scratch://")?.parse().ok()
    };
    offered.filter_map(id).collect()
}

fn annotation<'a>(service: &'a Value, name: &str) -> Option<&'a str> {
    service["metadata"]["annotations"][format!("{PREFIX}{name}")].as_str()
}
