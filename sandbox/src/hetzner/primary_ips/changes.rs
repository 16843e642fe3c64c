//! Answers `POST /primary_ips/{id}/actions/{command}`. The commands assign a Primary IP to a server that is off, end an
//! assignment, and turn the protection against deletion on or off.
//!
//! A load balancer gets its Primary IPs when it is created and keeps them. They cannot be assigned or unassigned later.

use std::time::Duration;

use super::{Address, PrimaryIp, Version, assign, check_free, find};
use crate::hetzner::actions::{Outcome, Resource};
use crate::hetzner::catalog::locations::Location;
use crate::hetzner::error::ApiError;
use crate::hetzner::input::Fields;
use crate::hetzner::servers::{self, Server};
use crate::hetzner::world::World;
use crate::hetzner::{Call, Reply, load_balancers};

const TAKES: Duration = Duration::from_millis(1000);

pub fn start(call: &mut Call, primary: &PrimaryIp, command: &str) -> Result<Reply, ApiError> {
    let begin: fn(&mut Call, &PrimaryIp) -> Result<u64, ApiError> = match command {
        "assign" => begin_assign,
        "unassign" => begin_unassign,
        "change_protection" => begin_change_protection,
        _ => return Err(ApiError::no_such_path()),
    };
    if call.method != "POST" {
        return Err(ApiError::wrong_method(call.method));
    }
    if call.world.is_locked(primary.resource()) {
        return Err(ApiError::locked("primary IP"));
    }
    let action = begin(call, primary)?;
    Ok(call.world.action_reply(201, action))
}

/// Checks that a Primary IP of this IP version can be assigned to a server, and returns the server's location. The
/// server must be off, and must not have a public address of this version yet.
pub fn check_assignable(
    call: &Call,
    server: u64,
    version: Version,
) -> Result<&'static Location, ApiError> {
    let server = servers::find(call, server)?;
    check_off(call, server)?;
    let (code, has) = match version {
        Version::V4 => ("server_has_ipv4", server.ipv4.is_some()),
        Version::V6 => ("server_has_ipv6", server.ipv6.is_some()),
    };
    if has {
        let message = "server already has an address of this version";
        return Err(ApiError::new(422, code, message));
    }
    Ok(server.location)
}

/// Starts the action that assigns a Primary IP to a server, and returns the action's ID. The caller must have checked
/// that the assignment is allowed.
pub fn give(call: &mut Call, id: u64, server: u64) -> Result<u64, ApiError> {
    let address = find(call, id)?.address;
    let holder = Resource { kind: "server", id: server };
    assign(call.world, id, holder);
    let effect = move |world: &mut World, outcome| match (world.primary_ips.get_mut(&id), outcome) {
        (Some(primary), Outcome::Failure) => primary.assignee = None,
        (Some(_), Outcome::Success) => servers::set_address(world, server, id, address),
        (None, _) => {}
    };
    let resources = [Resource { kind: "primary_ip", id }, holder];
    Ok(call.run("assign_primary_ip", TAKES, &resources, effect))
}

fn begin_assign(call: &mut Call, primary: &PrimaryIp) -> Result<u64, ApiError> {
    let mut fields = Fields::parse(call.body)?;
    let server = fields.number("assignee_id")?;
    let server = fields.required("assignee_id", server)?;
    if fields.word("assignee_type", &["server"])?.is_none() {
        return Err(fields.invalid("assignee_type", "is required"));
    }
    fields.finish()?;
    let version = primary.address.version();
    let location = check_assignable(call, server, version)?;
    check_free(call, primary.id, version, location)?;
    give(call, primary.id, server)
}

fn begin_unassign(call: &mut Call, primary: &PrimaryIp) -> Result<u64, ApiError> {
    Fields::parse(call.body)?.finish()?;
    let holder = match primary.assignee {
        Some(holder) if holder.kind == "server" => holder,
        Some(_) => return Err(refused("a load balancer keeps its primary IPs")),
        None => return Err(refused("primary IP is not assigned")),
    };
    let server = servers::find(call, holder.id)?;
    check_off(call, server)?;
    let is_public_target = matches!(primary.address, Address::V4(_))
        && !load_balancers::with_public_target(call.world, server).is_empty();
    if is_public_target {
        let message = "the server's IPv4 address is the target of a load balancer";
        return Err(ApiError::new(422, "server_is_load_balancer_target", message));
    }
    let (id, address) = (primary.id, primary.address);
    let effect = move |world: &mut World, outcome| {
        if outcome == Outcome::Success {
            if let Some(primary) = world.primary_ips.get_mut(&id) {
                primary.assignee = None;
            }
            servers::drop_address(world, holder.id, address);
        }
    };
    let resources = [primary.resource(), holder];
    Ok(call.run("unassign_primary_ip", TAKES, &resources, effect))
}

fn begin_change_protection(call: &mut Call, primary: &PrimaryIp) -> Result<u64, ApiError> {
    let mut fields = Fields::parse(call.body)?;
    let delete = fields.flag("delete")?.unwrap_or(primary.protected);
    fields.finish()?;
    let id = primary.id;
    let effect = move |world: &mut World, outcome| {
        if let (Some(primary), Outcome::Success) = (world.primary_ips.get_mut(&id), outcome) {
            primary.protected = delete;
        }
    };
    Ok(call.run("change_protection", TAKES, &[primary.resource()], effect))
}

fn check_off(call: &Call, server: &Server) -> Result<(), ApiError> {
    if call.world.is_locked(server.resource()) {
        return Err(ApiError::locked("server"));
    }
    if server.is_off() {
        Ok(())
    } else {
        let message = "the server must be powered off";
        Err(ApiError::new(422, "server_not_stopped", message))
    }
}

fn refused(problem: &str) -> ApiError {
    ApiError::new(422, "invalid_input", problem)
}
