//! One change, one write; and what its answer means.

use super::annotations as a;
use super::balancer::LoadBalancer;
use super::change::{Change, Create, LabelEdit, Seen, Write};
use super::context::Observed;
use super::names::{CLUSTER_UID, SERVICE_UID};
use crate::hetzner::actions::{self, Action};
use crate::hetzner::api::{Api, Failed, Resource};
use crate::hetzner::certificates::Certificate;
use crate::hetzner::error::Code;
use crate::provider::{Applied, Error, ErrorKind, Snapshot, Urgency};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::sync::Arc;

/// Of the answer to a write; no content at all, where there was nothing to say.
#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    action: Option<Action>,
    #[serde(default)]
    load_balancer: Option<Box<LoadBalancer>>,
    #[serde(default)]
    certificate: Option<IgnoredAny>,
}

/// Makes the change. Never repeated: an answer that got lost does not mean that nothing happened. `snapshot` makes one
/// of what an answer shows.
pub(in crate::hetzner) fn apply(
    api: &Api,
    change: &Change,
    snapshot: impl FnOnce(Observed) -> Arc<dyn Snapshot>,
) -> Result<Applied, Error> {
    let mut change = change.clone();
    if let Some(instead) = rebase(api, &mut change)? {
        return Ok(instead);
    }
    let (method, path, body) = change.call();
    match api.write(method, &path, body.as_ref()) {
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
            (write, _) => Err(explain(write, failed)),
        },
    }
}

/// A write that replaces labels, or deletes, rests on a read just before it: an operator, Terraform or another cluster
/// may have changed the load balancer since all of them were listed. The outcome, where it is not made.
fn rebase(api: &Api, change: &mut Change) -> Result<Option<Applied>, Error> {
    let line = &change.line;
    let overtaken = |why: &str| {
        log::info!("{line}: not done, {why}; reading and planning again");
        Ok(Some(Applied::Overtaken))
    };
    match (&mut change.write, change.balancer) {
        (
            Write::EditCertificate {
                certificate, seen, ..
            },
            _,
        ) => {
            let Some(now) = read::<Certificate>(api, *certificate)? else {
                return Ok(Some(Applied::Overtaken));
            };
            let is_same = |label: &&str| seen.get(*label) == now.labels.get(*label);
            if ![SERVICE_UID, CLUSTER_UID].iter().all(is_same) {
                return overtaken(OTHER_OWNER);
            }
            *seen = now.labels;
        }
        (
            Write::Edit {
                labels: Some(labels),
                ..
            },
            Some(id),
        ) => {
            if change.is_release {
                actions::check_none_runs(api, &format!("/load_balancers/{id}"))?;
            }
            let Some(now) = read::<LoadBalancer>(api, id)? else {
                return Ok(Some(Applied::Overtaken));
            };
            let now = Seen::of(&now);
            if let Some(why) = edit_refused(labels, change.is_release, &now) {
                return overtaken(why);
            }
            *labels.seen = now;
        }
        (Write::Delete { seen, is_orphan }, Some(id)) => {
            let Some(now) = read::<LoadBalancer>(api, id)? else {
                return Ok(Some(Applied::Done));
            };
            match deletion_refused(seen, &now) {
                Some(why) if *is_orphan => {
                    let message = format!("{line}: not done, {why}; reading and planning again");
                    return Err(Error::new(ErrorKind::Other, message));
                }
                Some(why) => return overtaken(why),
                None => {}
            }
        }
        _ => {}
    }
    Ok(None)
}

/// As it is now; none: it does not exist.
fn read<T: Resource>(api: &Api, id: u64) -> Result<Option<T>, Error> {
    match api.one(id, Urgency::Needed) {
        Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

const OTHER_OWNER: &str = "the labels that say whose it is changed meanwhile";

/// What a process that was killed had begun may have ended since the load balancers were listed: a release must not
/// leave it.
fn edit_refused(edit: &LabelEdit, is_release: bool, now: &Seen) -> Option<&'static str> {
    if !edit.seen.has_same_owner(now) {
        Some(OTHER_OWNER)
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

fn applied(
    write: &Write,
    answer: Option<Answer>,
    snapshot: impl FnOnce(Observed) -> Arc<dyn Snapshot>,
) -> Result<Applied, Error> {
    let (action, balancer) = match answer {
        None => (None, None),
        // Whatever else comes with a 200 is not the API's, and says nothing of what was done.
        Some(Answer {
            action: None,
            load_balancer: None,
            certificate: None,
        }) => {
            let why = format!(
                "{}: answered neither an action nor what was changed",
                write.action()
            );
            return Err(Error::new(ErrorKind::Unavailable, why));
        }
        Some(answer) => (answer.action, answer.load_balancer),
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

/// The error, with what to do about it.
fn explain(write: &Write, failed: Failed) -> Error {
    let Some(said) = &failed.code else {
        return failed.error;
    };
    let names = |wanted: &str| said.fields.iter().any(|field| field == wanted);
    let names_part = ["targets", "services", "certificates"]
        .iter()
        .any(|part| names(&format!("load_balancer_{part}")));
    let is_not_found = said.code == "not_found" && said.fields.is_empty();
    let names_place = names("location") || names("network_zone") || is_not_found;
    let step = match (said.code.as_str(), write) {
        (code, _) if code.starts_with("primary_ip_") => format!(
            "free the Primary IP, or choose another in annotation {} or {}",
            a::PUBLIC_NET_IPV4.key(),
            a::PUBLIC_NET_IPV6.key()
        ),
        ("invalid_input" | "not_found", Write::Create(create)) if names_place => {
            let place = create.location.as_ref().or(create.network_zone.as_ref());
            format!(
                "{}: {:?} may not exist, see hcloud location list",
                create.place,
                place.map_or("", |place| place)
            )
        }
        ("resource_unavailable" | "invalid_input" | "not_found", Write::Create(create))
            if said.code == "resource_unavailable" || names("load_balancer_type") =>
        {
            format!(
                "type {:?} can't be had there: choose another in annotation {}, or another place in annotation {}",
                create.kind,
                a::TYPE.key(),
                a::LOCATION.key()
            )
        }
        ("resource_limit_exceeded", _) if names("network_attached_resources") => {
            "the Network holds as many servers and load balancers as it may: take out of it what need not be there"
                .to_owned()
        }
        // Of its type.
        ("resource_limit_exceeded", _) if names_part => return failed.error,
        ("resource_limit_exceeded", _) => {
            "the project holds as many as it may: delete what is not needed, or have the limit raised, in the console \
             under Limits"
                .to_owned()
        }
        ("no_subnet_available", _) => {
            "the Network has no subnet with a free address in the load balancer's network zone: add one, e.g. with \
             hcloud network add-subnet"
                .to_owned()
        }
        ("ip_not_available", _) => format!(
            "choose another address in annotation {}",
            a::PRIVATE_IPV4.key()
        ),
        _ => return failed.error,
    };
    let message = format!("{}; {step}", failed.error);
    Error::new(failed.error.kind, message)
}
