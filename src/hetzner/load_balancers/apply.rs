//! One change, one write; and what its answer means.

use super::balancer::LoadBalancer;
use super::change::{Change, Create, Write};
use super::observe::State;
use super::refused;
use crate::cloud::{Applied, Error, ErrorKind, Gate, Landscape, Urgency};
use crate::hetzner::actions::Action;
use crate::hetzner::api::{Api, Failed};
use crate::hetzner::error::Code;
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

/// Makes the change. Never repeated: an answer that got lost does not mean that nothing happened.
pub(in crate::hetzner) fn apply(
    api: &Api,
    gate: &dyn Gate,
    change: &Change,
) -> Result<Applied, Error> {
    if let (Write::DeleteUnchanged { labels }, Some(id)) = (&change.write, change.balancer)
        && !is_unchanged(api, change, id, labels)?
    {
        return Ok(Applied::Done);
    }
    match send(api, gate, change) {
        Ok(answer) => applied(&change.write, answer),
        Err(failed) => match (&change.write, failed.code()) {
            // Whose it is now, the next look decides.
            (
                Write::Create(_) | Write::Edit { .. } | Write::CreateCertificate(_),
                Some("uniqueness_error"),
            ) => {
                log::info!("{}; looking again", failed.error);
                Ok(Applied::Overtaken)
            }
            (Write::Create(create), _) if is_about_a_part(create, &failed) => {
                Err(Error::new(ErrorKind::InPart, failed.error.message))
            }
            (Write::Create(create), _) => Err(refused::create(api, create, failed)),
            // Since it was read: then it stays, as the next look says.
            (Write::Delete, Some("protected")) => {
                log::info!("{}; looking again", failed.error);
                Ok(Applied::Overtaken)
            }
            // Somebody was faster.
            (Write::AddTarget(_), Some("target_already_defined"))
            | (Write::Attach { .. }, Some("load_balancer_already_attached"))
            | (Write::RemoveTarget { .. }, Some("load_balancer_target_not_found")) => {
                Ok(Applied::Overtaken)
            }
            (Write::Delete | Write::DeleteUnchanged { .. }, _)
                if failed.error.kind == ErrorKind::NotFound =>
            {
                Ok(Applied::Done)
            }
            _ => Err(refused::next_step(failed)),
        },
    }
}

/// Is it as it was when it was planned on? False: it is gone. Somebody may have moved into it, or
/// protected it, since all of them were listed: then an error.
fn is_unchanged(
    api: &Api,
    change: &Change,
    id: u64,
    labels: &BTreeMap<String, String>,
) -> Result<bool, Error> {
    let answer: Result<One, Error> = api.get(&format!("/load_balancers/{id}"), Urgency::Needed);
    let now = match answer {
        Ok(answer) => answer.load_balancer,
        Err(error) if error.kind == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    let why = match (now.protection.delete, now.labels == *labels && now.id == id) {
        (true, _) => "it is protected by now",
        (_, false) => "its labels changed meanwhile",
        (false, true) => return Ok(true),
    };
    let line = &change.line;
    Err(Error::new(
        ErrorKind::Other,
        format!("{line}: not done, {why}; look again"),
    ))
}

fn send(api: &Api, gate: &dyn Gate, change: &Change) -> Result<Option<Answer>, Failed> {
    let (method, path, body) = change.call();
    api.write(gate, method, &path, &body)
}

fn applied(write: &Write, answer: Option<Answer>) -> Result<Applied, Error> {
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
                Some(balancer) => Applied::Shown(running, alone(*balancer)),
                None => Applied::LookAgain(running),
            }
        }
        // Issuance may take minutes, and only one port waits for it: its status tells the end.
        (Write::CreateCertificate(_), _) => Applied::Done,
        // Addresses come and go, and targets with them.
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

/// The one that came as an answer may be shown before it has all of them.
fn has_its_addresses(create: &Create, balancer: &LoadBalancer) -> bool {
    let public = &balancer.public_net;
    let has_public = public.ipv4.ip.is_some() && public.ipv6.ip.is_some();
    let is_attached = |network: u64| {
        let mut attached = balancer.private_net.iter();
        attached.any(|net| net.network == network && net.ip.is_some())
    };
    (has_public || !public.enabled) && create.network.is_none_or(is_attached)
}

/// A project in which nothing else is: enough for a plan of the Service that it was made for.
fn alone(balancer: LoadBalancer) -> Landscape {
    Landscape(Arc::new(State {
        balancers: vec![balancer],
        ..State::default()
    }))
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
        // A server or certificate that has gone since.
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
