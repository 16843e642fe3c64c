//! Answers requests to `/load_balancers`. A load balancer has services (listening ports), targets that receive the
//! traffic, and the health of the targets.
//!
//! | file | what it decides |
//! |---|---|
//! | `mod` | the resource, its JSON, lists, names and labels |
//! | `create` | the creation by one request with all services and targets, or by a test |
//! | `service`, `target` | one listening port and one target: reading, defaults, checks |
//! | `health` | the results of a target's health checks |
//! | `changes` | the actions that change one load balancer |
//! | `attachment` | the actions that also concern a network |
//! | `metrics` | connections, requests and bandwidth over a time |
//! | `lifecycle` | the deletion of a load balancer, and the effects when a server or a network is deleted |
//! | `edit` | changes by tests |

mod attachment;
mod changes;
mod create;
mod edit;
mod health;
mod lifecycle;
mod metrics;
mod service;
mod target;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

pub use self::create::place;
pub use self::edit::{edit, put};
pub use self::health::{Health, Machine, PortChecks};
pub use self::lifecycle::{forget_network, forget_server, remove};
pub use self::metrics::is_a_series;
pub use self::service::Service;
pub use self::target::{Kind, Target};
use super::actions::{self, Resource};
use super::catalog::id;
use super::catalog::load_balancer_types::LoadBalancerType;
use super::catalog::locations::{Location, included_traffic};
use super::clock::show;
use super::error::ApiError;
use super::input::Fields;
use super::labels::Labels;
use super::overlay::Overlay;
use super::owned;
use super::servers::Server;
use super::world::World;
use super::{Call, Reply};
use crate::hetzner::text::{Text, text};
use jiff::Timestamp;

const ALGORITHMS: [&str; 2] = ["round_robin", "least_connections"];

#[derive(Clone, Debug)]
pub struct LoadBalancer {
    pub id: u64,
    pub project: u64,
    pub name: String,
    pub created: Timestamp,
    pub labels: Labels,
    pub size: &'static LoadBalancerType,
    pub location: &'static Location,
    pub algorithm: &'static str,
    pub services: Vec<Service>,
    pub targets: Vec<Target>,
    pub private_net: Option<PrivateNet>,
    pub public_enabled: bool,
    /// The ID of the load balancer's IPv4 Primary IP. The field `ipv6` is the ID of its IPv6 Primary IP.
    pub ipv4: u64,
    pub ipv6: u64,
    pub protected: bool,
    /// The results of health checks that a test has set, by target server and listen port. The port `None` means all
    /// listen ports.
    pub health: BTreeMap<(Machine, Option<u16>), Health>,
    /// The values of metrics that a test has set, by the name of the time series, e.g. `bandwidth.in`. A series that is
    /// missing here has the value 0.
    pub metrics: BTreeMap<String, f64>,
    edited: Overlay,
}

/// A load balancer's interface in a private network. A load balancer can be in one network only.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrivateNet {
    pub network: u64,
    pub ip: Ipv4Addr,
}

owned::owned!(LoadBalancer, "load_balancer", load_balancers);

impl LoadBalancer {
    pub fn resource(&self) -> Resource {
        resource(self.id)
    }

    /// Returns the load balancer as the API shows it.
    pub fn json(&self, world: &World) -> Text {
        self.edited.over(self.plain_json(world))
    }

    /// Returns the IDs of all certificates that the load balancer's services use. Each ID occurs once.
    pub fn certificates(&self) -> Vec<u64> {
        let mut ids: Vec<u64> =
            self.services.iter().flat_map(|service| service.certificates()).copied().collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// Returns how many servers are behind the load balancer's targets. A target with a label selector counts once for
    /// each server that it matches.
    pub fn count_targets(&self, world: &World) -> usize {
        self.targets.iter().map(|target| target.machines(world, self).len()).sum()
    }

    /// Returns the JSON of the load balancer as the simulation computes it. The values that a test has set for the API
    /// to show are not used.
    fn plain_json(&self, world: &World) -> Text {
        let primary = |id: u64| world.primary_ips.get(&id).map(|ip| ip.json_of_holder());
        let private =
            self.private_net.map(|net| text!({"network": net.network, "ip": net.ip.to_string()}));
        text!({
            "id": self.id, "name": self.name, "created": show(self.created), "labels": self.labels,
            "load_balancer_type": self.size.json(world), "location": self.location.json(),
            "algorithm": {"type": self.algorithm},
            "services": self.services.iter().map(Service::json).collect::<Vec<_>>(),
            "targets": self.targets.iter().map(|target| target.json(world, self)).collect::<Vec<_>>(),
            "private_net": private.into_iter().collect::<Vec<_>>(),
            "public_net": {
                "enabled": self.public_enabled, "ipv4": primary(self.ipv4), "ipv6": primary(self.ipv6),
            },
            "protection": {"delete": self.protected},
            "included_traffic": included_traffic(self.location.name),
            "ingoing_traffic": 0, "outgoing_traffic": 0,
        })
    }
}

/// Returns the IDs of the load balancers that have the server as a target.
pub fn with_target(world: &World, server: &Server) -> Vec<u64> {
    world
        .load_balancers_of(server.project)
        .filter(|one| one.targets.iter().any(|target| target.covers(server, one)))
        .map(|one| one.id)
        .collect()
}

/// Returns the IDs of the load balancers that reach the server by its public address.
pub fn with_public_target(world: &World, server: &Server) -> Vec<u64> {
    let is_public = |one: &&LoadBalancer| {
        let mut targets = one.targets.iter();
        targets.any(|target| !target.use_private_ip && target.covers(server, one))
    };
    let of_project = world.load_balancers_of(server.project);
    of_project.filter(is_public).map(|one| one.id).collect()
}

/// Answers all requests to `/load_balancers` and to paths below it.
pub fn route(call: &mut Call, rest: &[&str]) -> Result<Reply, ApiError> {
    match (rest, call.method) {
        ([], "GET") => {
            owned::list(call, "load_balancers", |one: &LoadBalancer| one.json(call.world))
        }
        ([], "POST") => create::create(call),
        (["actions", rest @ ..], _) => {
            actions::route_kind(call, "/load_balancers/actions", "load_balancer", rest)
        }
        ([segment, rest @ ..], _) => route_one(call, id(segment)?, rest),
        _ => Err(ApiError::wrong_method(call.method)),
    }
}

fn route_one(call: &mut Call, id: u64, rest: &[&str]) -> Result<Reply, ApiError> {
    let found = find(call, id)?.clone();
    match (rest, call.method) {
        ([], "GET") => {
            call.refuse_query()?;
            Ok(Reply::ok(text!({"load_balancer": found.json(call.world)})))
        }
        ([], "PUT") => update(call, found),
        ([], "DELETE") => lifecycle::delete(call, &found),
        ([], _) => Err(ApiError::wrong_method(call.method)),
        (["metrics"], "GET") => metrics::metrics(call, &found),
        (["metrics"], _) => Err(ApiError::wrong_method(call.method)),
        (["actions", command], _) if command.parse::<u64>().is_err() => {
            start(call, &found, command)
        }
        (["actions", rest @ ..], _) => {
            let path = format!("/load_balancers/{id}/actions");
            actions::route_resource(call, &path, found.resource(), rest)
        }
        _ => Err(ApiError::no_such_path()),
    }
}

/// Answers `POST /load_balancers/{id}/actions/{command}`.
fn start(call: &mut Call, one: &LoadBalancer, command: &str) -> Result<Reply, ApiError> {
    match command {
        "attach_to_network" => attachment::attach(call, one),
        "detach_from_network" => attachment::detach(call, one),
        _ => changes::start(call, one, command),
    }
}

fn resource(id: u64) -> Resource {
    Resource { kind: "load_balancer", id }
}

/// Finds a load balancer by its ID in the project of the request's API token.
fn find<'c>(call: &'c Call, id: u64) -> Result<&'c LoadBalancer, ApiError> {
    owned::find(call, id)
}

fn update(call: &mut Call, one: LoadBalancer) -> Result<Reply, ApiError> {
    let mut fields = Fields::parse(call.body)?;
    let (name, labels) = owned::read_changes(call, &mut fields, &one)?;
    fields.finish()?;
    if call.world.is_locked(one.resource()) {
        return Err(ApiError::conflict("load balancer"));
    }

    let mut changed = LoadBalancer { name, labels, ..one };
    changed.edited.forget("name");
    changed.edited.forget("labels");
    let reply = Reply::ok(text!({"load_balancer": changed.json(call.world)}));
    call.world.load_balancers.insert(changed.id, changed);
    Ok(reply)
}

fn check_unlocked(call: &Call, one: &LoadBalancer) -> Result<(), ApiError> {
    if call.world.is_locked(one.resource()) {
        Err(ApiError::locked("load balancer"))
    } else {
        Ok(())
    }
}

/// Returns the error for a valid request that the present state of the load balancer or of another resource does not
/// allow.
fn refused(code: &'static str, message: impl Into<String>) -> ApiError {
    ApiError::new(422, code, message)
}
