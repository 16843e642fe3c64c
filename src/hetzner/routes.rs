//! Routes of the private Network: read with it, changed one at a time.

use super::actions::Action;
use super::api::Api;
use crate::http::Method;
use crate::provider::{
    Applied, Error, ErrorKind, Network, Route, RouteChange, RouteChangeKind, Urgency,
};
use ipnet::Ipv4Net;
use serde::Deserialize;
use serde_json::json;

/// A Network takes no more.
const ROUTES_AT_MOST: usize = 100;

#[derive(Deserialize)]
struct Answer {
    network: Whole,
}

/// A Network, as far as routes need it. An answer that lacks one of these is none.
#[derive(Deserialize)]
struct Whole {
    id: u64,
    name: String,
    ip_range: Ipv4Net,
    subnets: Vec<Subnet>,
    routes: Vec<Written>,
}

#[derive(Deserialize)]
struct Subnet {
    ip_range: Ipv4Net,
}

/// A route as the API writes it.
#[derive(Deserialize)]
struct Written {
    destination: String,
    gateway: String,
}

#[derive(Deserialize)]
struct Begun {
    action: Action,
}

/// The Network as it is now.
pub(super) fn observe(api: &Api, id: u64, urgency: Urgency) -> Result<Network, Error> {
    let path = format!("/networks/{id}");
    let Answer { network } = api.get(&path, urgency)?;
    if network.id != id {
        let why = format!("GET {path}: answered Network {}", network.id);
        return Err(Error::new(ErrorKind::Unavailable, why));
    }
    let routes: Vec<Route> = network.routes.iter().filter_map(Written::read).collect();
    Ok(Network {
        id,
        name: network.name,
        range: Some(network.ip_range),
        subnets: network.subnets.iter().map(|one| one.ip_range).collect(),
        other_routes: network.routes.len() - routes.len(),
        routes,
        routes_at_most: ROUTES_AT_MOST,
    })
}

/// Adds or deletes a route. The API knows both by destination and gateway together, so that no
/// other one can go.
pub(super) fn change(api: &Api, id: u64, change: &RouteChange) -> Result<Applied, Error> {
    let command = match change.kind {
        RouteChangeKind::Add => "add_route",
        RouteChangeKind::Delete => "delete_route",
    };
    let path = format!("/networks/{id}/actions/{command}");
    let body = json!({
        "destination": change.route.destination.to_string(),
        "gateway": change.route.gateway.to_string(),
    });
    match api.write(Method::Post, &path, Some(&body)) {
        Ok(Begun { action }) => match action.end() {
            None => Ok(Applied::Running(action.id())),
            Some(end) => end.map(|()| Applied::Done),
        },
        // Another program, or an earlier process, has deleted it.
        Err(failed) if change.is_deletion() && failed.error.kind == ErrorKind::NotFound => {
            Ok(Applied::Done)
        }
        Err(failed) => Err(failed.error),
    }
}

impl Written {
    /// None: of another form than IPv4.
    fn read(&self) -> Option<Route> {
        Some(Route {
            destination: self.destination.parse().ok()?,
            gateway: self.gateway.parse().ok()?,
        })
    }
}
