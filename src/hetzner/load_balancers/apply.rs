//! One change, one write; and what its answer means.

use super::balancer::{LoadBalancer, Location};
use super::change::{Change, Create, LabelEdit, Seen, Write};
use super::names::{CLUSTER_UID, SERVICE_UID};
use super::observe::Observed;
use super::{annotations as a, primary_ips};
use crate::hetzner::actions::{self, Action};
use crate::hetzner::api::{Api, Failed};
use crate::hetzner::certificates;
use crate::hetzner::error::Code;
use crate::provider::{Applied, Error, ErrorKind, Snapshot, Urgency};
use crate::text::one_of;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Of the answer to a write; no content at all, where there was nothing to say. Whatever else
/// comes with a 200 is not the API's, and says nothing of what was done.
#[derive(Deserialize)]
#[serde(try_from = "Parts")]
struct Answer {
    action: Option<Action>,
    balancer: Option<Box<LoadBalancer>>,
}

#[derive(Deserialize)]
struct Parts {
    #[serde(default)]
    action: Option<Action>,
    #[serde(default)]
    load_balancer: Option<Box<LoadBalancer>>,
    #[serde(default)]
    certificate: Option<IgnoredAny>,
}

impl TryFrom<Parts> for Answer {
    type Error = &'static str;

    fn try_from(parts: Parts) -> Result<Answer, Self::Error> {
        match parts {
            Parts {
                action: None,
                load_balancer: None,
                certificate: None,
            } => Err("neither an action nor what was changed"),
            Parts {
                action,
                load_balancer: balancer,
                ..
            } => Ok(Answer { action, balancer }),
        }
    }
}

#[derive(Deserialize)]
struct One {
    load_balancer: LoadBalancer,
}

/// Makes the change. Never repeated: an answer that got lost does not mean that nothing happened. `snapshot` makes one
/// of what an answer shows.
pub(in crate::hetzner) fn apply(
    api: &Api,
    change: &Change,
    snapshot: impl FnOnce(Observed) -> Arc<dyn Snapshot>,
) -> Result<Applied, Error> {
    let rebased;
    let change = match prepared(api, change)? {
        Ready::AsPlanned => change,
        Ready::Rebased(on_now) => {
            rebased = on_now;
            &*rebased
        }
        Ready::Not(instead) => return Ok(instead),
    };
    match send(api, change) {
        Ok(answer) => applied(&change.write, answer, snapshot),
        Err(failed) => match (&change.write, failed.code()) {
            // Who owns it now is read again.
            (
                Write::Create(_) | Write::Edit { .. } | Write::CreateCertificate(_),
                Some("uniqueness_error"),
            ) => {
                log::info!("{}; reading again", failed.error);
                Ok(Applied::Overtaken)
            }
            (Write::Create(create), _) if is_about_a_part(create, &failed) => {
                Err(Error::new(ErrorKind::InPart, failed.error.message))
            }
            (Write::Create(create), _) => Err(explain_create(api, create, failed)),
            // Protected since it was read: it stays.
            (Write::Delete { .. }, Some("protected")) => {
                log::info!("{}; reading again", failed.error);
                Ok(Applied::Overtaken)
            }
            // Another program was faster.
            (Write::AddTarget(_), Some("target_already_defined"))
            | (Write::Attach { .. }, Some("load_balancer_already_attached"))
            | (Write::RemoveTarget { .. }, Some("load_balancer_target_not_found")) => {
                Ok(Applied::Overtaken)
            }
            (Write::Delete { .. }, _) if failed.error.kind == ErrorKind::NotFound => {
                Ok(Applied::Done)
            }
            _ => Err(with_next_step(failed)),
        },
    }
}

/// What comes before a write.
enum Ready {
    AsPlanned,
    /// With the labels that were read just now.
    Rebased(Box<Change>),
    /// It is not made; the outcome instead.
    Not(Applied),
}

/// A write that replaces labels, or deletes, rests on a read just before it: an operator, Terraform or another cluster
/// may have changed the load balancer since all of them were listed.
fn prepared(api: &Api, change: &Change) -> Result<Ready, Error> {
    if let Write::EditCertificate {
        certificate,
        set,
        seen,
    } = &change.write
    {
        return certificate_edit(api, change, *certificate, set, seen);
    }
    let Some(id) = change.balancer else {
        return Ok(Ready::AsPlanned);
    };
    let line = &change.line;
    match &change.write {
        Write::Edit {
            name,
            labels: Some(labels),
        } => {
            if change.is_release {
                actions::check_none_runs(api, &format!("/load_balancers/{id}"))?;
            }
            let Some(now) = read(api, id)? else {
                return Ok(Ready::Not(Applied::Overtaken));
            };
            let now = Seen::of(&now);
            if let Some(why) = edit_refused(labels, change.is_release, &now) {
                log::info!("{line}: not done, {why}; reading and planning again");
                return Ok(Ready::Not(Applied::Overtaken));
            }
            let labels = LabelEdit {
                seen: Box::new(now),
                ..labels.clone()
            };
            let write = Write::Edit {
                name: name.clone(),
                labels: Some(labels),
            };
            Ok(Ready::Rebased(Box::new(Change {
                write,
                ..change.clone()
            })))
        }
        Write::Delete { seen, is_orphan } => {
            let Some(now) = read(api, id)? else {
                return Ok(Ready::Not(Applied::Done));
            };
            let Some(why) = deletion_refused(seen, &now) else {
                return Ok(Ready::AsPlanned);
            };
            let message = format!("{line}: not done, {why}; reading and planning again");
            if *is_orphan {
                return Err(Error::new(ErrorKind::Other, message));
            }
            log::info!("{message}");
            Ok(Ready::Not(Applied::Overtaken))
        }
        _ => Ok(Ready::AsPlanned),
    }
}

fn certificate_edit(
    api: &Api,
    change: &Change,
    id: u64,
    set: &BTreeMap<String, String>,
    seen: &BTreeMap<String, String>,
) -> Result<Ready, Error> {
    let now = match certificates::read(api, id, Urgency::Needed) {
        Ok(now) => now.labels,
        Err(error) if error.kind == ErrorKind::NotFound => {
            return Ok(Ready::Not(Applied::Overtaken));
        }
        Err(error) => return Err(error),
    };
    let is_same = |label: &&str| seen.get(*label) == now.get(*label);
    if ![SERVICE_UID, CLUSTER_UID].iter().all(is_same) {
        let line = &change.line;
        log::info!(
            "{line}: not done, the labels that say whose it is changed meanwhile; reading and planning again"
        );
        return Ok(Ready::Not(Applied::Overtaken));
    }
    let write = Write::EditCertificate {
        certificate: id,
        set: set.clone(),
        seen: now,
    };
    Ok(Ready::Rebased(Box::new(Change {
        write,
        ..change.clone()
    })))
}

/// As it is now; none: it does not exist.
fn read(api: &Api, id: u64) -> Result<Option<LoadBalancer>, Error> {
    let path = format!("/load_balancers/{id}");
    let answer: Result<One, Error> = api.get(&path, Urgency::Needed);
    match answer {
        Ok(answer) if answer.load_balancer.id == id => Ok(Some(answer.load_balancer)),
        Ok(answer) => {
            let other = answer.load_balancer.id;
            let why = format!("GET {path}: answered load balancer {other}");
            Err(Error::new(ErrorKind::Unavailable, why))
        }
        Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// What a process that was killed had begun may have ended since the load balancers were listed: a release must not
/// leave it.
fn edit_refused(edit: &LabelEdit, is_release: bool, now: &Seen) -> Option<&'static str> {
    if !edit.seen.has_same_owner(now) {
        Some("the labels that say whose it is changed meanwhile")
    } else if (edit.adopts || is_release) && !edit.seen.has_all_of(now) {
        Some("it got ports or targets meanwhile")
    } else {
        None
    }
}

fn deletion_refused(seen: &Seen, now: &LoadBalancer) -> Option<&'static str> {
    let is_protected = now.protection.delete;
    let now = Seen::of(now);
    if is_protected {
        Some("it is protected by now")
    } else if seen.labels != now.labels {
        Some("its labels changed meanwhile")
    } else if !seen.has_all_of(&now) {
        Some("it got ports or targets meanwhile")
    } else {
        None
    }
}

fn send(api: &Api, change: &Change) -> Result<Option<Answer>, Failed> {
    let (method, path, body) = change.call();
    api.write(method, &path, body.as_ref())
}

fn applied(
    write: &Write,
    answer: Option<Answer>,
    snapshot: impl FnOnce(Observed) -> Arc<dyn Snapshot>,
) -> Result<Applied, Error> {
    let (action, balancer) = match answer {
        Some(Answer { action, balancer }) => (action, balancer),
        None => (None, None),
    };
    let running = match action.as_ref().map(|action| (action, action.end())) {
        None | Some((_, Some(Ok(())))) => None,
        Some((action, None)) => Some(action.id()),
        Some((_, Some(Err(error)))) => return Err(error),
    };
    Ok(match (write, running) {
        (Write::Create(create), running) => {
            match balancer.filter(|balancer| has_its_addresses(create, balancer)) {
                Some(balancer) => Applied::Shown(running, snapshot(alone(*balancer))),
                None => Applied::LookAgain(running),
            }
        }
        // Issuance may take minutes, and only one port waits for it: the certificate's status shows the end.
        (Write::CreateCertificate(_), _) => Applied::Done,
        // Addresses change, and targets with them.
        (
            Write::Attach { .. }
            | Write::Detach { .. }
            | Write::EnablePublicInterface
            | Write::DisablePublicInterface,
            running,
        ) => Applied::LookAgain(running),
        (_, Some(running)) => Applied::Running(running),
        (_, None) => Applied::Done,
    })
}

/// The load balancer in the answer may not have all its addresses yet.
fn has_its_addresses(create: &Create, balancer: &LoadBalancer) -> bool {
    let public = &balancer.public_net;
    let has_public = public.ipv4.ip.is_some() && public.ipv6.ip.is_some();
    let is_attached = |network: u64| {
        let mut attached = balancer.private_net.iter();
        attached.any(|net| net.network == network && net.ip.is_some())
    };
    (has_public || !public.enabled) && create.network.is_none_or(is_attached)
}

/// This load balancer alone: enough for a plan of the Service that it was created for.
fn alone(balancer: LoadBalancer) -> Observed {
    Observed {
        balancers: vec![balancer],
        ..Observed::default()
    }
}

/// Was it refused for one of its ports, certificates or targets? Then the rest of it can be made:
/// the address is there, and each part is tried by itself.
fn is_about_a_part(create: &Create, failed: &Failed) -> bool {
    const PARTS: [&str; 11] = [
        "server_not_attached_to_network",
        "resolve_cloud_private_targets_error",
        "missing_ipv4",
        "resolve_cloud_public_targets_error",
        "ip_not_owned",
        "cloud_resource_ip_not_allowed",
        "target_already_defined",
        "load_balancer_not_attached_to_network",
        "source_port_already_used",
        "robot_unavailable",
        // A server or certificate that was deleted since.
        "not_found",
    ];
    const FIELDS: [&str; 10] = [
        "services",
        "targets",
        "certificates",
        "http",
        "health_check",
        "listen_port",
        "destination_port",
        "proxyprotocol",
        "server",
        "use_private_ip",
    ];
    let has_parts = !create.services.is_empty() || !create.targets.is_empty();
    let Some(Code { code, fields }) = &failed.code else {
        return false;
    };
    // `services[0].http.certificates`, `http.certificates`, or a limit: `load_balancer_targets`.
    let of_a_part = |field: &String| {
        let mut names = field.split(['.', '[', ']']);
        names.any(|name| FIELDS.contains(&name.strip_prefix("load_balancer_").unwrap_or(name)))
    };
    let invalid_part = matches!(code.as_str(), "invalid_input" | "resource_limit_exceeded")
        && fields.iter().any(of_a_part);
    has_parts && (PARTS.contains(&code.as_str()) || invalid_part)
}

#[derive(Deserialize)]
struct Locations {
    locations: Vec<Location>,
}

/// The error, with what to do about it. Costs a call where it may be about the place.
fn explain_create(api: &Api, create: &Create, failed: Failed) -> Error {
    let Some(said) = failed.code.clone() else {
        return failed.error;
    };
    let code = said.code.as_str();
    let names = |wanted: &str| said.fields.iter().any(|field| field == wanted);
    let is_input = matches!(code, "invalid_input" | "not_found");
    let names_place = names("location") || names("network_zone");
    let why = if code.starts_with("primary_ip_") {
        return primary_ips::refused(failed.error);
    } else if code == "resource_unavailable" || is_input && names("load_balancer_type") {
        Some(format!(
            "type {:?} can't be had there: choose another in annotation {}, or another place in annotation {}",
            create.kind,
            a::TYPE.key(),
            a::LOCATION.key()
        ))
    } else if is_input && (names_place || said.fields.is_empty()) {
        place_problem(api, create, names_place)
    } else {
        return with_next_step(failed);
    };
    let error = failed.error;
    let Some(why) = why else { return error };
    let message = format!("{why}: {error}");
    Error::new(error.kind, message)
}

/// The error, with what to do about it where that does not depend on what was asked for.
fn with_next_step(failed: Failed) -> Error {
    let Some(said) = &failed.code else {
        return failed.error;
    };
    let names = |wanted: &str| said.fields.iter().any(|field| field == wanted);
    let step = match said.code.as_str() {
        "resource_limit_exceeded" if names("network_attached_resources") => {
            "the Network holds as many servers and load balancers as it may: take out of it what need not be there"
        }
        // Of its type.
        "resource_limit_exceeded"
            if ["targets", "services", "certificates"]
                .iter()
                .any(|part| names(&format!("load_balancer_{part}"))) =>
        {
            return failed.error;
        }
        "resource_limit_exceeded" => {
            "the project holds as many as it may: delete what is not needed, or have the limit raised, in the console \
             under Limits"
        }
        "no_subnet_available" => {
            "the Network has no subnet with a free address in the load balancer's network zone: add one, e.g. with \
             hcloud network add-subnet"
        }
        "ip_not_available" => {
            return with_step(
                failed.error,
                &format!(
                    "choose another address in annotation {}",
                    a::PRIVATE_IPV4.key()
                ),
            );
        }
        _ => return failed.error,
    };
    with_step(failed.error, step)
}

fn with_step(error: Error, step: &str) -> Error {
    let message = format!("{error}; {step}");
    Error::new(error.kind, message)
}

/// What is wrong with the place; none: the error is about something else.
fn place_problem(api: &Api, create: &Create, is_named: bool) -> Option<String> {
    let (what, value) = match (&create.location, &create.network_zone) {
        (Some(location), _) => ("location", location),
        (None, Some(zone)) => ("network zone", zone),
        (None, None) => return None,
    };
    let answer = api.get::<Locations>("/locations?per_page=50", Urgency::Needed);
    let all = answer.map_or_else(|_| Vec::new(), |answer| answer.locations);
    let there = all.into_iter().map(|one| match &create.location {
        Some(_) => one.name,
        None => one.network_zone,
    });
    let mut there: Vec<String> = there.collect();
    there.sort_unstable();
    there.dedup();
    let place = &create.place;
    if there.is_empty() || there.contains(value) {
        return is_named.then(|| format!("{place}: {what} {value:?} is refused"));
    }
    let there = one_of(&there);
    Some(format!(
        "{place}: there is no {what} {value:?}; use {there}"
    ))
}
