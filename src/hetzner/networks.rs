//! The private Network: found once, by ID or by name; and its routes, read with it and changed one at a time.

use super::actions::Action;
use super::api::{Api, Resource};
use crate::http::Method;
use crate::provider::{
    self, Applied, Error, ErrorKind, NetworkSelector, Route, RouteChange, RouteChangeKind, Urgency,
};
use crate::text;
use ipnet::Ipv4Net;
use serde::Deserialize;
use serde_json::json;
use std::time::Instant;

/// An answer that lacks one of these is an error.
#[derive(Deserialize)]
pub(super) struct Network {
    pub(super) id: u64,
    pub(super) name: String,
    ip_range: Ipv4Net,
    pub(super) subnets: Vec<Subnet>,
    routes: Vec<Written>,
    #[serde(default)]
    expose_routes_to_vswitch: bool,
    /// When it was read.
    #[serde(skip, default = "Instant::now")]
    pub(super) read: Instant,
}

/// A part of a Network, in one network zone.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Subnet {
    #[serde(rename = "type")]
    pub kind: String,
    pub ip_range: Ipv4Net,
    pub network_zone: String,
}

impl Network {
    /// Do dedicated servers in its vSwitch have its routes? None: it has no vSwitch.
    pub(super) fn exposes_routes(&self) -> Option<bool> {
        let has_vswitch = self.subnets.iter().any(Subnet::is_of_vswitch);
        has_vswitch.then_some(self.expose_routes_to_vswitch)
    }
}

impl Subnet {
    /// Those are for dedicated servers.
    pub(super) fn is_of_vswitch(&self) -> bool {
        self.kind == "vswitch"
    }
}

impl Resource for Network {
    const LIST: &'static str = "networks";
    const ONE: &'static str = "network";
    fn id(&self) -> u64 {
        self.id
    }
}

/// The Network meant by the settings. One list answers both forms, and says what there is when it is neither.
pub(super) fn find(api: &Api, selector: &NetworkSelector) -> Result<Network, Error> {
    let networks = api.list::<Network>("", Urgency::Needed)?;
    let there = match networks.as_slice() {
        [] => "this project has none".to_owned(),
        some => format!(
            "this project has {}",
            text::some_of(
                &some
                    .iter()
                    .map(|n| format!("{} ({})", n.name, n.id))
                    .collect::<Vec<_>>()
            )
        ),
    };
    let is_it = |network: &Network| match selector {
        NetworkSelector::Id(id) => network.id == *id,
        NetworkSelector::Name(name) => network.name == *name,
    };
    networks.into_iter().find(is_it).ok_or_else(|| {
        Error::new(
            ErrorKind::Misconfigured,
            format!("HCLOUD_NETWORK: there is no Network {selector}; {there}"),
        )
    })
}

/// A Network takes no more.
const ROUTES_AT_MOST: usize = 100;

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
pub(super) fn routes(api: &Api, id: u64, urgency: Urgency) -> Result<provider::Network, Error> {
    let network: Network = api.one(id, urgency)?;
    let routes: Vec<Route> = network.routes.iter().filter_map(Written::read).collect();
    Ok(provider::Network {
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
pub(super) fn change_route(api: &Api, id: u64, change: &RouteChange) -> Result<Applied, Error> {
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
