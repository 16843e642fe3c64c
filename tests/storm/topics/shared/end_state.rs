//! Checks the end state of a story. What must exist is computed from the state of both APIs, without
//! `ccm`'s own comparison.

use super::cluster::{
    eligible_servers, has_finalizer, ids, list, services, targets, wants_balancer,
};
use super::hostile;
use super::invariants::History;
use super::{
    CLOSED_BALANCER, OPEN_BALANCER, OWNER_PORT, both_numbers, is_of_others, number, owner, served,
    shows,
};
use ccm::hetzner::load_balancers::annotations::PREFIX;
use ccm::hetzner::load_balancers::{CREATED, EXTERNAL, GROUP, PORT, SERVICE_UID};
use sandbox::Sandbox;
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub fn check_end_state(sandbox: &Sandbox, history: &History) -> Result<(), String> {
    let is_lost = |uid: &Value| uid.as_str().is_some_and(|uid| history.lost_uids.contains(uid));
    let services = services(sandbox);
    let all = sandbox.cloud().load_balancers(sandbox.project());
    let existing = ids(&sandbox.cloud().servers(sandbox.project()));
    let eligible = eligible_servers(&sandbox.cluster().list("nodes", None), &existing);
    let tenants = hostile::services(sandbox);
    let living = services.iter().chain(&tenants);
    let living: Vec<&Value> = living.filter(|one| wants_balancer(one)).collect();
    for service in &services {
        let name = &service["metadata"]["name"];
        let is_right = match wants_balancer(service) {
            true => {
                check_served(service, &living, &all, history.is_restored).and_then(|stays_on| {
                    let mut have = stays_on.map(targets).unwrap_or_default();
                    have.retain(|server| existing.contains(server));
                    match stays_on.is_none() || have == eligible {
                        true => Ok(()),
                        false => Err(format!("targets {have:?}, and not {eligible:?}")),
                    }
                })
            }
            false if has_finalizer(service) => Err("it has our finalizer".to_owned()),
            false => Ok(()),
        };
        is_right.map_err(|why| format!("Service {name}: {why}"))?;
    }
    hostile::check_end_state(sandbox, &all)?;
    for balancer in all.iter().filter(|one| !hostile::is_of_tenant(one)) {
        let name = &balancer["name"];
        check_whole_balancer(balancer, &living, &eligible, &existing)
            .map_err(|why| format!("load balancer {name}: {why}"))?;
        let wanting = |uid: &Value| living.iter().find(|one| one["metadata"]["uid"] == *uid);
        let labels = balancer["labels"].as_object().unwrap().iter();
        let mut uids = labels.filter(|(label, _)| label.starts_with(PORT) || *label == SERVICE_UID);
        // The port's Service was deleted before the label of the port was written again.
        let is_unlabelled = |label: &str| {
            let port = label.strip_prefix(PORT).and_then(|port| port.parse().ok());
            let mut unlabelled_ports = history.unlabelled_ports.iter();
            is_of_others(balancer) && unlabelled_ports.any(|(listen, _)| Some(*listen) == port)
        };
        if let Some((label, uid)) = uids
            .find(|(label, uid)| wanting(uid).is_none() && !is_lost(uid) && !is_unlabelled(label))
        {
            return Err(format!(
                "load balancer {name} has label {label}={uid} of no living Service"
            ));
        }
        for listener in list(&balancer["services"]) {
            let port = number(&listener["listen_port"]);
            let is_theirs = is_of_others(balancer) && port == OWNER_PORT;
            let is_unlabelled = wanting(owner(balancer, port)).is_none()
                && history.unlabelled_ports.contains(&both_numbers(listener));
            // A Service that can't have what it asks for leaves no load balancer, even when it was about to move from
            // one to another.
            let stays = |of: &Value| {
                let asked = Demand::of(of, &living, &all);
                !asked.is_for(balancer) && asked.is_blocked()
            };
            let of = wanting(owner(balancer, port));
            let is_right = of.is_some_and(|of| {
                // What a hostile Service asks for may be wrong in any way. Its ports then stay as they are.
                is_hostile(of) || served(balancer, of).contains(&port) || stays(of)
            });
            if !is_right && !is_theirs && !is_unlabelled && !is_lost(owner(balancer, port)) {
                return Err(format!("load balancer {name} has port {port} of no living Service"));
            }
        }
        for label in [GROUP, SERVICE_UID] {
            let value = &balancer["labels"][label];
            let same = all.iter().filter(|one| one["labels"][label] == *value);
            if !value.is_null() && same.count() > 1 {
                return Err(format!("two load balancers with {label}={value}"));
            }
        }
    }
    Ok(())
}

/// What a Service asks for.
struct Demand<'a> {
    service: &'a Value,
    living: &'a [&'a Value],
    share: Option<String>,
    external: Option<String>,
    /// The load balancer that the Service asks for, if it exists.
    wanted: Option<&'a Value>,
}

impl<'a> Demand<'a> {
    fn of(service: &'a Value, living: &'a [&'a Value], all: &'a [Value]) -> Demand<'a> {
        let (share, external) = asks(service);
        let mut asked = Demand { service, living, share, external, wanted: None };
        asked.wanted = all.iter().find(|one| asked.is_for(one));
        asked
    }

    fn is_for(&self, balancer: &Value) -> bool {
        match (&self.share, &self.external) {
            (Some(name), _) => balancer["labels"][GROUP] == name.replace('/', "."),
            (None, Some(name)) => balancer["name"] == *name,
            (None, None) => balancer["labels"][SERVICE_UID] == self.service["metadata"]["uid"],
        }
    }

    fn is_closed(&self) -> bool {
        self.external.as_deref() == Some(CLOSED_BALANCER)
    }

    /// Whether the port is taken by another Service that asks for the same load balancer, or by its owner on
    /// that load balancer.
    fn is_taken(&self, port: u64) -> bool {
        let uid = &self.service["metadata"]["uid"];
        let is_other = |one: &Value| one["metadata"]["uid"] != *uid;
        let same = (self.share.clone(), self.external.clone());
        let mut group = self.living.iter().filter(|one| asks(one) == same);
        let asked = group.any(|one| {
            let mut ports = list(&one["spec"]["ports"]).iter();
            let may_have = !is_hostile(one)
                || is_older(one, self.service) && is_allowed(one, self.living, self.wanted);
            is_other(one) && may_have && ports.any(|own| own["port"] == port)
        });
        let is_there = self.wanted.is_some_and(|wanted| {
            let mut ports = list(&wanted["services"]).iter();
            ports.any(|one| one["listen_port"] == port) && owner(wanted, port) != uid
        });
        (self.share.is_some() || self.external.is_some()) && (asked || is_there)
    }

    fn ports(&self) -> Vec<u64> {
        let ports = list(&self.service["spec"]["ports"]).iter();
        ports.map(|port| number(&port["port"])).collect()
    }

    fn is_blocked(&self) -> bool {
        self.is_closed() || self.ports().iter().any(|port| self.is_taken(*port))
    }
}

/// Returns the name of the group with its namespace, and the name of the external load balancer.
fn asks(service: &Value) -> (Option<String>, Option<String>) {
    let share = annotation(service, "share").map(|name| match name.contains('/') {
        true => name.to_owned(),
        false => format!("{}/{name}", service["metadata"]["namespace"].as_str().unwrap()),
    });
    (share, annotation(service, "external").map(str::to_owned))
}

fn annotation<'a>(service: &'a Value, name: &str) -> Option<&'a str> {
    service["metadata"]["annotations"][format!("{PREFIX}{name}")].as_str()
}

fn is_hostile(service: &Value) -> bool {
    service["metadata"]["namespace"] == "hostile"
}

/// Whether a Service may get a port before another Service, if neither of them has it.
fn is_older(service: &Value, than: &Value) -> bool {
    let age =
        |one: &Value| ["creationTimestamp", "uid"].map(|field| one["metadata"][field].to_string());
    age(service) < age(than)
}

/// Whether a hostile Service may use the load balancer that it asks for, and `ccm` reads what it asks for.
fn is_allowed(service: &Value, living: &[&Value], wanted: Option<&Value>) -> bool {
    let (share, external) = asks(service);
    let mut hosts = living.iter().filter(|one| !is_hostile(one));
    let is_host = |host: &Value| {
        let list = annotation(host, "share-namespaces").unwrap_or_default();
        let mut namespaces = list.split(',').map(str::trim);
        asks(host).0 == share && namespaces.any(|one| one == "*" || one == "hostile")
    };
    let is_open = || wanted.is_some_and(|one| one["labels"][EXTERNAL] == "");
    !hostile::is_too_large(service)
        && match (&share, &external) {
            (Some(_), _) => hosts.any(|host| is_host(host)),
            (None, external) => external.is_some() && is_open(),
        }
}

/// Checks that each address in the status has this `ipMode`.
pub fn check_ip_mode(service: &Value, mode: &str) -> Result<(), String> {
    let ingress = &service["status"]["loadBalancer"]["ingress"];
    let wrong = list(ingress).iter().find(|one| one["ipMode"] != mode);
    match wrong {
        None => Ok(()),
        Some(one) => Err(format!("its status has {one}, and not {mode}")),
    }
}

/// Checks the settings of the whole load balancer. They are as honest Services want them, which set none of them.
fn check_whole_balancer(
    balancer: &Value,
    living: &[&Value],
    eligible: &BTreeSet<u64>,
    existing: &BTreeSet<u64>,
) -> Result<(), String> {
    let mut have = targets(balancer);
    have.retain(|server| existing.contains(server));
    let mut honest = living.iter().filter(|one| !is_hostile(one));
    let is_used = honest.any(|one| {
        let mut served = served(balancer, one).into_iter();
        served.any(|port| *owner(balancer, port) == one["metadata"]["uid"])
    });
    if is_used && !eligible.is_subset(&have) {
        return Err(format!("targets {have:?} without {eligible:?}"));
    }
    if is_of_others(balancer) || balancer["labels"][CREATED].is_null() {
        return Ok(());
    }
    let have = json!([
        balancer["load_balancer_type"]["name"],
        balancer["location"]["name"],
        balancer["algorithm"]["type"],
        balancer["public_net"]["enabled"],
        balancer["private_net"],
        balancer["protection"]["delete"],
        balancer["labels"][hostile::TENANT_LABEL],
    ]);
    let want = json!(["lb11", "fsn1", "round_robin", true, [], false, null]);
    match have == want && balancer["name"].as_str().unwrap().starts_with("kubernetes-default-") {
        true => Ok(()),
        false => Err(format!("it is {have}, and not {want}")),
    }
}

/// Checks whether traffic inside the cluster for an address may go to the pods of this Service directly, or must go
/// through the load balancer.
fn check_status_mode(
    service: &Value,
    at: &Value,
    living: &[&Value],
    missing: usize,
) -> Result<(), String> {
    let mut tenants = living.iter().filter(|one| is_hostile(one));
    let is_shared = tenants.any(|one| {
        let uid = &one["metadata"]["uid"];
        let mut labels = at["labels"].as_object().unwrap().iter();
        let has_port = labels.any(|(label, of)| label.starts_with(PORT) && of == uid);
        // A Service that asks for its own load balancer can add no port to this one any more.
        let asks_for_own = asks(one) == (None, None) && !hostile::is_too_large(one);
        has_port && !asks_for_own || asks(one) == asks(service) && is_allowed(one, living, Some(at))
    });
    match is_of_others(at) || is_shared || missing > 0 {
        true => check_ip_mode(service, "Proxy"),
        false => check_ip_mode(service, "VIP"),
    }
}

/// Checks that each port of a Service is served where the status says so, except ports that another Service has. A
/// Service that asks for something that it can't have stays where it is. Returns the load balancer of its own on
/// which it stays.
fn check_served<'a>(
    service: &Value,
    living: &[&Value],
    all: &'a [Value],
    is_restored: bool,
) -> Result<Option<&'a Value>, String> {
    let asked = Demand::of(service, living, all);
    let uid = &service["metadata"]["uid"];
    let at = all.iter().find(|one| shows(service, one));
    if at.is_none() && !list(&service["status"]["loadBalancer"]["ingress"]).is_empty() {
        // The status is from the time of the backup. The Service can't have another load balancer, so a
        // person must decide.
        if is_restored && asked.is_blocked() {
            return Ok(None);
        }
        return Err("its status has an address of no load balancer".into());
    }
    if asked.is_closed() && at.is_none() {
        return Ok(None);
    }
    if !has_finalizer(service) && !asked.is_closed() {
        return Err("no finalizer".into());
    }
    let served = at.map_or(BTreeSet::new(), |at| {
        let mut served = served(at, service);
        served.retain(|port| owner(at, *port) == uid);
        served
    });
    let ports = asked.ports();
    let mut missing = ports.iter().filter(|port| !served.contains(port));
    let has_port = |one: &Value| {
        let mut ports = list(&one["services"]).iter();
        ports.any(|port| owner(one, number(&port["listen_port"])) == uid)
    };
    match at {
        None if all.iter().any(has_port) => Err("it is served, and its status is empty".to_owned()),
        Some(at) if !asked.is_for(at) && asked.is_closed() => Ok(None),
        Some(at) if !asked.is_for(at) && asked.is_blocked() => {
            let is_own = at["labels"][SERVICE_UID] == *uid && at["labels"][GROUP].is_null();
            match missing.next().filter(|_| is_own) {
                Some(port) => Err(format!("port {port} is not served where it stays")),
                None => Ok(is_own.then_some(at)),
            }
        }
        Some(at) if !asked.is_for(at) => Err(format!("it is at {}", at["name"])),
        _ => match missing.clone().find(|port| !asked.is_taken(**port)) {
            Some(port) => Err(format!("port {port} is not served")),
            None => at.map_or(Ok(None), |at| {
                check_status_mode(service, at, living, missing.count()).map(|()| None)
            }),
        },
    }
}

/// Checks that the load balancers of other owners are as they were, when no Service uses them any more. The former
/// targets are not known any more once Terraform removed their label.
pub fn check_foreign_balancers(
    sandbox: &Sandbox,
    before: &[Value; 2],
    history: &History,
) -> Result<(), String> {
    let [open, closed] = before;
    let now = comparable(sandbox, CLOSED_BALANCER);
    if now != *closed {
        return Err(format!("{CLOSED_BALANCER} was {closed}, and is {now}"));
    }
    if history.is_claimable {
        return Ok(());
    }
    let mut now = comparable(sandbox, OPEN_BALANCER);
    // A target that was added while its server was deleted is not known as a node's any more.
    let existing = ids(&sandbox.cloud().servers(sandbox.project()));
    let targets_now = now["targets"].as_array_mut().unwrap();
    targets_now.retain(|one| one["server"]["id"].as_u64().is_none_or(|id| existing.contains(&id)));
    let is_theirs = |one: &Value| one["listen_port"] == OWNER_PORT;
    let ports = now["services"].as_array_mut().unwrap();
    ports.retain(|one| is_theirs(one) || !history.unlabelled_ports.contains(&both_numbers(one)));
    for part in
        ["name", "load_balancer_type", "algorithm", "public_net", "private_net", "protection"]
    {
        if now[part] != open[part] {
            return Err(format!(
                "{OPEN_BALANCER}: {part} was {}, and is {}",
                open[part], now[part]
            ));
        }
    }
    let lacks = |part: &str| list(&open[part]).iter().any(|one| !list(&now[part]).contains(one));
    if lacks("services") || !targets(open).is_subset(&targets(&now)) {
        return Err(format!("{OPEN_BALANCER} was {open}, and is {now}"));
    }
    let mut services = services(sandbox);
    services.extend(hostile::services(sandbox));
    let asks = |one: &Value| {
        let annotation = &one["metadata"]["annotations"][format!("{PREFIX}external")];
        wants_balancer(one) && *annotation == OPEN_BALANCER
    };
    let is_used = services.iter().any(asks)
        || now["labels"].as_object().unwrap().keys().any(|label| label.starts_with(PORT));
    if is_used {
        return Ok(());
    }
    let parts: &[&str] = if history.terraform {
        &["labels", "services"]
    } else {
        &["labels", "services", "targets"]
    };
    match parts.iter().find(|part| now[**part] != open[**part]) {
        None => Ok(()),
        Some(part) => {
            Err(format!("{OPEN_BALANCER}: {part} was {}, and is {}", open[*part], now[*part]))
        }
    }
}

fn by_name(sandbox: &Sandbox, name: &str) -> Value {
    let mut all = sandbox.cloud().load_balancers(sandbox.project()).into_iter();
    all.find(|one| one["name"] == name).unwrap()
}

/// Returns a load balancer without what changes by itself, and without the label that an operator adds as a fault.
pub fn comparable(sandbox: &Sandbox, name: &str) -> Value {
    let mut one = by_name(sandbox, name);
    for target in one["targets"].as_array_mut().unwrap() {
        target["health_status"] = Value::Null;
    }
    one["labels"].as_object_mut().unwrap().remove("noted");
    one
}
