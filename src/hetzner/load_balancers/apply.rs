//! One change, one write; and what its answer means.

use super::change::{Change, Create, Write};
use crate::cloud::{Applied, Error, ErrorKind, Gate};
use crate::hetzner::actions::Action;
use crate::hetzner::api::{Api, Failed};
use crate::hetzner::error::Code;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// Of the answer to a write; no content at all, where there was nothing to say. Whatever else
/// comes with a 200 is not the API's, and says nothing of what was done.
#[derive(Deserialize)]
#[serde(untagged)]
enum Answer {
    Begun {
        action: Action,
    },
    Changed {
        #[serde(rename = "load_balancer")]
        _balancer: IgnoredAny,
    },
}

/// Makes the change. Never repeated: an answer that got lost does not mean that nothing happened.
pub(in crate::hetzner) fn apply(
    api: &Api,
    gate: &dyn Gate,
    change: &Change,
) -> Result<Applied, Error> {
    match send(api, gate, change) {
        Ok(answer) => applied(&change.write, answer),
        Err(failed) => match (&change.write, failed.code()) {
            // Whose it is now, the next look decides.
            (Write::Create(_) | Write::Edit { .. }, Some("uniqueness_error")) => {
                log::info!("{}; looking again", failed.error);
                Ok(Applied::LookAgain(None))
            }
            (Write::Create(create), _) if is_about_a_part(create, &failed) => {
                log::warn!("{}; made without ports and targets first", failed.error);
                apply(api, gate, &bare(change, create))
            }
            // Somebody was faster.
            (Write::AddTarget(_), Some("target_already_defined"))
            | (Write::RemoveTarget { .. }, Some("load_balancer_target_not_found")) => {
                Ok(Applied::LookAgain(None))
            }
            (Write::Delete, _) if failed.error.kind == ErrorKind::NotFound => Ok(Applied::Done),
            _ => Err(failed.error),
        },
    }
}

fn send(api: &Api, gate: &dyn Gate, change: &Change) -> Result<Option<Answer>, Failed> {
    let (method, path, body) = change.call();
    api.write(gate, method, &path, &body)
}

fn applied(write: &Write, answer: Option<Answer>) -> Result<Applied, Error> {
    let action = match answer {
        Some(Answer::Begun { action }) => Some(action),
        Some(Answer::Changed { .. }) | None => None,
    };
    let running = match action.as_ref().map(|action| (action, action.end())) {
        None | Some((_, Some(Ok(())))) => None,
        Some((action, None)) => Some(action.id()),
        Some((_, Some(Err(error)))) => return Err(error),
    };
    Ok(match (write, running) {
        // Addresses come and go, and targets with them.
        (
            Write::Create(_)
            | Write::Attach { .. }
            | Write::Detach { .. }
            | Write::EnablePublicInterface
            | Write::DisablePublicInterface,
            running,
        ) => Applied::LookAgain(running),
        (_, Some(running)) => Applied::Running(running),
        (_, None) => Applied::Done,
    })
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
    let has_parts = !create.services.is_empty() || !create.targets.is_empty();
    let Some(Code { code, fields }) = &failed.code else {
        return false;
    };
    let of_a_part = |field: &String| {
        let part = field.strip_prefix("load_balancer_").unwrap_or(field);
        ["services", "targets", "certificates"]
            .iter()
            .any(|name| part.starts_with(name))
    };
    let invalid_part = matches!(code.as_str(), "invalid_input" | "resource_limit_exceeded")
        && fields.iter().any(of_a_part);
    has_parts && (PARTS.contains(&code.as_str()) || invalid_part)
}

/// The same without ports and targets.
fn bare(change: &Change, create: &Create) -> Change {
    Change {
        write: Write::Create(Box::new(Create {
            services: Vec::new(),
            targets: Vec::new(),
            ..create.clone()
        })),
        ..change.clone()
    }
}
