//! What the API refuses when a load balancer is to be made, in the words of who asked for it.

use super::annotations as a;
use super::balancer::Location;
use super::change::Create;
use super::public_net;
use crate::cloud::{Error, Urgency};
use crate::hetzner::api::{Api, Failed};
use crate::text::one_of;
use serde::Deserialize;

#[derive(Deserialize)]
struct Locations {
    locations: Vec<Location>,
}

/// The error, with what to do about it. Costs a call where it may be about the place.
pub(super) fn create(api: &Api, create: &Create, failed: Failed) -> Error {
    let Some(said) = failed.code else {
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
        None
    };
    let error = failed.error;
    let Some(why) = why else { return error };
    let message = format!("{why}: {error}");
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
