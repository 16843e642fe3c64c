//! What the API refuses when a load balancer is to be made, in the words of who asked for it.

use super::annotations as a;
use super::balancer::Location;
use super::change::Create;
use super::public_net;
use crate::hetzner::api::{Api, Failed};
use crate::provider::{Error, Urgency};
use crate::text::one_of;
use serde::Deserialize;

#[derive(Deserialize)]
struct Locations {
    locations: Vec<Location>,
}

/// The error, with what to do about it. Costs a call where it may be about the place.
pub(super) fn create(api: &Api, create: &Create, failed: Failed) -> Error {
    let Some(said) = failed.code.clone() else {
        return failed.error;
    };
    let code = said.code.as_str();
    let names = |wanted: &str| said.fields.iter().any(|field| field == wanted);
    let is_input = matches!(code, "invalid_input" | "not_found");
    let names_place = names("location") || names("network_zone");
    let why = if code.starts_with("primary_ip_") {
        return public_net::refused(failed.error);
    } else if code == "resource_unavailable" || is_input && names("load_balancer_type") {
        Some(format!(
            "type {:?} can't be had there: choose another in annotation {}, or another place in annotation {}",
            create.kind,
            a::TYPE.key(),
            a::LOCATION.key()
        ))
    } else if is_input && (names_place || said.fields.is_empty()) {
        place(api, create, names_place)
    } else {
        return next_step(failed);
    };
    let error = failed.error;
    let Some(why) = why else { return error };
    let message = format!("{why}: {error}");
    Error::new(error.kind, message)
}

/// The error, with what to do about it where that does not depend on what was asked for.
pub(super) fn next_step(failed: Failed) -> Error {
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

/// None: it is not about the place.
fn place(api: &Api, create: &Create, is_named: bool) -> Option<String> {
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
