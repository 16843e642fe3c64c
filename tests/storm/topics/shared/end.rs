//! What there must be in the end, worked out from what both APIs hold then, apart from `ccm`'s own comparison.

use super::cluster::{has_finalizer, ids, list, offered, services, targets, wants};
use super::harm::Seen;
use super::{CLOSED, OPEN, THEIR_PORT, both_numbers, is_of_others, number, owner, served, shows};
use ccm::hetzner::load_balancers::annotations::PREFIX;
use ccm::hetzner::load_balancers::{GROUP, PORT, SERVICE_UID};
use sandbox::Sandbox;
use serde_json::Value;
use std::collections::BTreeSet;

pub fn is_right(sandbox: &Sandbox, seen: &Seen) -> Result<(), String> {
    let is_lost = |uid: &Value| uid.as_str().is_some_and(|uid| seen.lost.contains(uid));
    let services = services(sandbox);
    let all = sandbox.cloud().load_balancers(sandbox.project());
    let existing = ids(&sandbox.cloud().servers(sandbox.project()));
    let offered = offered(&sandbox.cluster().list("nodes", None), &existing);
    let living: Vec<&Value> = services.iter().filter(|one| wants(one)).collect();
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
    for balancer in &all {
        let name = &balancer["name"];
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
            let is_right = of.is_some_and(|of| served(balancer, of).contains(&port) || stays(of));
            if !is_right && !is_theirs && !is_forgotten && !is_lost(owner(balancer, port)) {
                return Err(format!(
                    "load balancer {name} has port {port} of no living Service"
                ));
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
        let mut asked = Asked {
            service,
            living,
            share,
            external,
            wanted: None,
        };
        asked.wanted = all.iter().find(|one| asked.is_for(one));
        asked
    }

    fn is_for(&self, balancer: &Value) -> bool {
        match (&self.share, &self.external) {
            (Some(name), _) => balancer["labels"][GROUP] == format!("default.{name}"),
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
            is_other(one) && ports.any(|own| own["port"] == port)
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

/// Names of the group, and of the load balancer of another owner.
fn asks(service: &Value) -> (Option<String>, Option<String>) {
    let annotation = |name: &str| {
        let value = service["metadata"]["annotations"][format!("{PREFIX}{name}")].as_str();
        value.map(|value| value.trim_start_matches("default/").to_owned())
    };
    (annotation("share"), annotation("external"))
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
        _ => match missing.find(|port| !asked.is_taken(**port)) {
            Some(port) => Err(format!("port {port} is not served")),
            None => Ok(None),
        },
    }
}

/// And where no Service uses it any more it is as it was; which targets were there before is not known any more once
/// Terraform removed that label.
pub fn of_others_is_as_before(
    sandbox: &Sandbox,
    before: &[Value; 2],
    terraform_ran: bool,
    forgotten: &BTreeSet<(u64, u64)>,
) -> Result<(), String> {
    let [open, closed] = before;
    let now = as_it_is(sandbox, CLOSED);
    if now != *closed {
        return Err(format!("{CLOSED} was {closed}, and is {now}"));
    }
    let mut now = as_it_is(sandbox, OPEN);
    // A target that was added while its server was deleted is not known to be a node's any more.
    let existing = ids(&sandbox.cloud().servers(sandbox.project()));
    let targets_now = now["targets"].as_array_mut().unwrap();
    targets_now.retain(|one| {
        one["server"]["id"]
            .as_u64()
            .is_none_or(|id| existing.contains(&id))
    });
    let is_theirs = |one: &Value| one["listen_port"] == THEIR_PORT;
    let ports = now["services"].as_array_mut().unwrap();
    ports.retain(|one| is_theirs(one) || !forgotten.contains(&both_numbers(one)));
    for part in [
        "name",
        "load_balancer_type",
        "algorithm",
        "public_net",
        "private_net",
        "protection",
    ] {
        if now[part] != open[part] {
            return Err(format!(
                "{OPEN}: {part} was {}, and is {}",
                open[part], now[part]
            ));
        }
    }
    let lacks = |part: &str| {
        list(&open[part])
            .iter()
            .any(|one| !list(&now[part]).contains(one))
    };
    if lacks("services") || !targets(open).is_subset(&targets(&now)) {
        return Err(format!("{OPEN} was {open}, and is {now}"));
    }
    let services = services(sandbox);
    let asks = |one: &Value| {
        let annotation = &one["metadata"]["annotations"][format!("{PREFIX}external")];
        wants(one) && *annotation == OPEN
    };
    let is_used = services.iter().any(asks)
        || now["labels"]
            .as_object()
            .unwrap()
            .keys()
            .any(|label| label.starts_with(PORT));
    if is_used {
        return Ok(());
    }
    let parts: &[&str] = if terraform_ran {
        &["labels", "services"]
    } else {
        &["labels", "services", "targets"]
    };
    match parts.iter().find(|part| now[**part] != open[**part]) {
        None => Ok(()),
        Some(part) => Err(format!(
            "{OPEN}: {part} was {}, and is {}",
            open[*part], now[*part]
        )),
    }
}

fn by_name(sandbox: &Sandbox, name: &str) -> Value {
    let mut all = sandbox
        .cloud()
        .load_balancers(sandbox.project())
        .into_iter();
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
