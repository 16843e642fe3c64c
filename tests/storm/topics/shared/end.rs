//! What there must be in the end, worked out from what both APIs hold then, apart from `ccm`'s own comparison.

use super::cluster::{has_finalizer, ids, list, offered, services, targets, wants};
use super::harm::Seen;
use super::hostile;
use super::{CLOSED, OPEN, THEIR_PORT, both_numbers, is_of_others, number, owner, served, shows};
use ccm::hetzner::load_balancers::annotations::PREFIX;
use ccm::hetzner::load_balancers::{CREATED, EXTERNAL, GROUP, PORT, SERVICE_UID};
use sandbox::Sandbox;
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub fn is_right(sandbox: &Sandbox, seen: &Seen) -> Result<(), String> {
    let is_lost = |uid: &Value| uid.as_str().is_some_and(|uid| seen.lost.contains(uid));
    let services = services(sandbox);
    let all = sandbox.cloud().load_balancers(sandbox.project());
    let existing = ids(&sandbox.cloud().servers(sandbox.project()));
    let offered = offered(&sandbox.cluster().list("nodes", None), &existing);
    let tenants = hostile::services(sandbox);
    let living = services.iter().chain(&tenants);
    let living: Vec<&Value> = living.filter(|one| wants(one)).collect();
    for service in &services {
        let name = &service["metadata"]["name"];
        let is_right = match wants(service) {
            true => is_served(service, &living, &all, seen.is_restored).and_then(|stays_on| {
                let mut have = stays_on.map(targets).unwrap_or_default();
                have.retain(|server| existing.contains(server));
                match stays_on.is_none() || have == offered {
                    true => Ok(()),
                    false => Err(format!("targets {have:?}, and not {offered:?}")),
                }
            }),
            false if has_finalizer(service) => Err("it has our finalizer".to_owned()),
            false => Ok(()),
        };
        is_right.map_err(|why| format!("Service {name}: {why}"))?;
    }
    hostile::is_right(sandbox, &all)?;
    for balancer in all.iter().filter(|one| !hostile::is_its(one)) {
        let name = &balancer["name"];
        whole_is_right(balancer, &living, &offered, &existing)
            .map_err(|why| format!("load balancer {name}: {why}"))?;
        let wanting = |uid: &Value| living.iter().find(|one| one["metadata"]["uid"] == *uid);
        let labels = balancer["labels"].as_object().unwrap().iter();
        let mut uids = labels.filter(|(label, _)| label.starts_with(PORT) || *label == SERVICE_UID);
        // Its Service ended before its label was written again.
        let is_forgotten = |label: &str| {
            let port = label.strip_prefix(PORT).and_then(|port| port.parse().ok());
            let mut forgotten = seen.forgotten.iter();
            is_of_others(balancer) && forgotten.any(|(listen, _)| Some(*listen) == port)
        };
        if let Some((label, uid)) = uids
            .find(|(label, uid)| wanting(uid).is_none() && !is_lost(uid) && !is_forgotten(label))
        {
            return Err(format!(
                "load balancer {name} has label {label}={uid} of no living Service"
            ));
        }
        for listener in list(&balancer["services"]) {
            let port = number(&listener["listen_port"]);
            let is_theirs = is_of_others(balancer) && port == THEIR_PORT;
            let is_forgotten = wanting(owner(balancer, port)).is_none()
                && seen.forgotten.contains(&both_numbers(listener));
            // A Service that can't have what it asks for leaves nothing, also where it was about to move to or from.
            let stays = |of: &Value| {
                let asked = Asked::of(of, &living, &all);
                !asked.is_for(balancer) && asked.is_blocked()
            };
            let of = wanting(owner(balancer, port));
            let is_right = of.is_some_and(|of| {
                // What a hostile Service asks for may be wrong in any way, and then its ports stay as they are.
                is_hostile(of) || served(balancer, of).contains(&port) || stays(of)
            });
            if !is_right && !is_theirs && !is_forgotten && !is_lost(owner(balancer, port)) {
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
struct Asked<'a> {
    service: &'a Value,
    living: &'a [&'a Value],
    share: Option<String>,
    external: Option<String>,
    /// The load balancer that it asks for, where it exists.
    wanted: Option<&'a Value>,
}

impl<'a> Asked<'a> {
    fn of(service: &'a Value, living: &'a [&'a Value], all: &'a [Value]) -> Asked<'a> {
        let (share, external) = asks(service);
        let mut asked = Asked { service, living, share, external, wanted: None };
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
        self.external.as_deref() == Some(CLOSED)
    }

    /// By another Service that asks for the same, or by whoever has it there.
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

/// Names of the group, with its namespace, and of the load balancer of another owner.
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

/// Whether a Service may get a port before another one, if none of them has it.
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
    !hostile::is_left_alone(service)
        && match (&share, &external) {
            (Some(_), _) => hosts.any(|host| is_host(host)),
            (None, external) => external.is_some() && is_open(),
        }
}

/// Whether each address in the status has this `ipMode`.
pub fn mode_is(service: &Value, mode: &str) -> Result<(), String> {
    let ingress = &service["status"]["loadBalancer"]["ingress"];
    let wrong = list(ingress).iter().find(|one| one["ipMode"] != mode);
    match wrong {
        None => Ok(()),
        Some(one) => Err(format!("its status has {one}, and not {mode}")),
    }
}

/// What is about the whole load balancer: as honest Services want it, which ask for nothing about it.
fn whole_is_right(
    balancer: &Value,
    living: &[&Value],
    offered: &BTreeSet<u64>,
    existing: &BTreeSet<u64>,
) -> Result<(), String> {
    let mut have = targets(balancer);
    have.retain(|server| existing.contains(server));
    let mut honest = living.iter().filter(|one| !is_hostile(one));
    let is_used = honest.any(|one| {
        let mut served = served(balancer, one).into_iter();
        served.any(|port| *owner(balancer, port) == one["metadata"]["uid"])
    });
    if is_used && !offered.is_subset(&have) {
        return Err(format!("targets {have:?} without {offered:?}"));
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
        balancer["labels"][hostile::LABEL],
    ]);
    let want = json!(["lb11", "fsn1", "round_robin", true, [], false, null]);
    match have == want && balancer["name"].as_str().unwrap().starts_with("kubernetes-default-") {
        true => Ok(()),
        false => Err(format!("it is {have}, and not {want}")),
    }
}

/// Whether traffic of the cluster for an address may be sent to the pods of this Service at once, or has to go by the load
/// balancer.
fn mode_is_right(
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
        // One that asks for its own load balancer can add no port to this one any more.
        let asks_for_own = asks(one) == (None, None) && !hostile::is_left_alone(one);
        has_port && !asks_for_own || asks(one) == asks(service) && is_allowed(one, living, Some(at))
    });
    match is_of_others(at) || is_shared || missing > 0 {
        true => mode_is(service, "Proxy"),
        false => mode_is(service, "VIP"),
    }
}

/// Each of its ports is served where its status says so, but for those that another one has. A Service may ask for what
/// it can't have, and stays where it is: on which load balancer of its own.
fn is_served<'a>(
    service: &Value,
    living: &[&Value],
    all: &'a [Value],
    is_restored: bool,
) -> Result<Option<&'a Value>, String> {
    let asked = Asked::of(service, living, all);
    let uid = &service["metadata"]["uid"];
    let at = all.iter().find(|one| shows(service, one));
    if at.is_none() && !list(&service["status"]["loadBalancer"]["ingress"]).is_empty() {
        // As it was when its load balancer was there. It can't have another one, and is left to a person.
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
                mode_is_right(service, at, living, missing.count()).map(|()| None)
            }),
        },
    }
}

/// And where no Service uses it any more it is as it was; which targets were there before is not known any more once
/// Terraform removed that label.
pub fn of_others_is_as_before(
    sandbox: &Sandbox,
    before: &[Value; 2],
    seen: &Seen,
) -> Result<(), String> {
    let [open, closed] = before;
    let now = as_it_is(sandbox, CLOSED);
    if now != *closed {
        return Err(format!("{CLOSED} was {closed}, and is {now}"));
    }
    if seen.is_given {
        return Ok(());
    }
    let mut now = as_it_is(sandbox, OPEN);
    // A target that was added while its server was deleted is not known to be a node's any more.
    let existing = ids(&sandbox.cloud().servers(sandbox.project()));
    let targets_now = now["targets"].as_array_mut().unwrap();
    targets_now.retain(|one| one["server"]["id"].as_u64().is_none_or(|id| existing.contains(&id)));
    let is_theirs = |one: &Value| one["listen_port"] == THEIR_PORT;
    let ports = now["services"].as_array_mut().unwrap();
    ports.retain(|one| is_theirs(one) || !seen.forgotten.contains(&both_numbers(one)));
    for part in
        ["name", "load_balancer_type", "algorithm", "public_net", "private_net", "protection"]
    {
        if now[part] != open[part] {
            return Err(format!("{OPEN}: {part} was {}, and is {}", open[part], now[part]));
        }
    }
    let lacks = |part: &str| list(&open[part]).iter().any(|one| !list(&now[part]).contains(one));
    if lacks("services") || !targets(open).is_subset(&targets(&now)) {
        return Err(format!("{OPEN} was {open}, and is {now}"));
    }
    let mut services = services(sandbox);
    services.extend(hostile::services(sandbox));
    let asks = |one: &Value| {
        let annotation = &one["metadata"]["annotations"][format!("{PREFIX}external")];
        wants(one) && *annotation == OPEN
    };
    let is_used = services.iter().any(asks)
        || now["labels"].as_object().unwrap().keys().any(|label| label.starts_with(PORT));
    if is_used {
        return Ok(());
    }
    let parts: &[&str] =
        if seen.terraform { &["labels", "services"] } else { &["labels", "services", "targets"] };
    match parts.iter().find(|part| now[**part] != open[**part]) {
        None => Ok(()),
        Some(part) => Err(format!("{OPEN}: {part} was {}, and is {}", open[*part], now[*part])),
    }
}

fn by_name(sandbox: &Sandbox, name: &str) -> Value {
    let mut all = sandbox.cloud().load_balancers(sandbox.project()).into_iter();
    all.find(|one| one["name"] == name).unwrap()
}

/// Without what changes by itself, and the label that an operator adds in some weather.
pub fn as_it_is(sandbox: &Sandbox, name: &str) -> Value {
    let mut one = by_name(sandbox, name);
    for target in one["targets"].as_array_mut().unwrap() {
        target["health_status"] = Value::Null;
    }
    one["labels"].as_object_mut().unwrap().remove("noted");
    one
}
