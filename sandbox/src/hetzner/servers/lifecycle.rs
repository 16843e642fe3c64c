//! Deletes servers, and protects them from being deleted.

use std::time::Duration;

use super::{Server, Status, check_unlocked, set_status};
use crate::hetzner::actions::{Outcome, Resource, Start};
use crate::hetzner::error::ApiError;
use crate::hetzner::input::Fields;
use crate::hetzner::load_balancers;
use crate::hetzner::primary_ips;
use crate::hetzner::world::World;
use crate::hetzner::{Call, Reply};

const DELETE_TAKES: Duration = Duration::from_millis(1000);
const PROTECTION_TAKES: Duration = Duration::from_millis(500);

/// Starts the action that deletes a server. The server has the status `deleting` until the end of the action, and is
/// gone then.
pub fn delete(call: &mut Call, server: &Server) -> Result<Reply, ApiError> {
    if server.protected {
        return Err(ApiError::protected("server"));
    }
    check_unlocked(call, server)?;
    let (id, before) = (server.id, server.status);
    set_status(call.world, id, Status::Deleting);
    let start = Start {
        project: call.project,
        command: "delete_server",
        resources: &[server.resource()],
        takes: DELETE_TAKES,
        after: None,
    };
    let action = call.world.start_action(start, move |world, outcome| match outcome {
        Outcome::Success => remove(world, id),
        Outcome::Failure => set_status(world, id, before),
    });
    Ok(call.world.action_reply(200, action))
}

pub fn change_protection(call: &mut Call, server: &Server) -> Result<Reply, ApiError> {
    let mut fields = Fields::parse(call.body)?;
    let delete = fields.flag("delete")?.unwrap_or(server.protected);
    let rebuild = fields.flag("rebuild")?.unwrap_or(server.protected);
    if delete != rebuild {
        return Err(fields.invalid("rebuild", "must have the same value as delete"));
    }
    fields.finish()?;
    check_unlocked(call, server)?;
    let id = server.id;
    let start = Start {
        project: call.project,
        command: "change_protection",
        resources: &[server.resource()],
        takes: PROTECTION_TAKES,
        after: None,
    };
    let action = call.world.start_action(start, move |world, outcome| {
        if let (Some(server), Outcome::Success) = (world.servers.get_mut(&id), outcome) {
            server.protected = delete;
        }
    });
    Ok(call.world.action_reply(201, action))
}

/// Removes a server and its addresses from the simulated cloud. Load balancers no longer have the server as a target.
pub fn remove(world: &mut World, id: u64) {
    remove_without_targets(world, id);
    load_balancers::forget_server(world, id);
}

/// Removes a server and its addresses from the simulated cloud, but load balancers continue to show the server as a
/// target.
pub fn remove_without_targets(world: &mut World, id: u64) {
    world.servers.remove(&id);
    let holder = Resource { kind: "server", id };
    primary_ips::release(world, holder);
    for network in world.networks.values_mut() {
        network.servers.remove(&id);
        network.release(holder);
    }
}
