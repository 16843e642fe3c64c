//! Switches servers on and off, and resets, reboots and shuts them down.

use std::time::Duration;

use super::{Server, Status, check_unlocked, set_status};
use crate::hetzner::actions::{Outcome, Resource, Start};
use crate::hetzner::error::ApiError;
use crate::hetzner::input::Fields;
use crate::hetzner::world::World;
use crate::hetzner::{Call, Reply};

const START_TAKES: Duration = Duration::from_millis(1500);
const STOP_TAKES: Duration = Duration::from_millis(1000);
/// How long it takes to send an ACPI request to a server.
const REQUEST_TAKES: Duration = Duration::from_millis(500);
/// The time that the server's operating system needs to shut down after the ACPI request.
const GUEST_TAKES: Duration = Duration::from_millis(3000);

pub fn on(call: &mut Call, server: &Server) -> Result<Reply, ApiError> {
    switch(
        call,
        server,
        Switch {
            command: "start_server",
            takes: START_TAKES,
            during: Status::Starting,
            then: Status::Running,
        },
    )
}

pub fn off(call: &mut Call, server: &Server) -> Result<Reply, ApiError> {
    switch(
        call,
        server,
        Switch {
            command: "stop_server",
            takes: STOP_TAKES,
            during: Status::Stopping,
            then: Status::Off,
        },
    )
}

/// Switches a server off and on again. A server that was off runs afterwards.
pub fn reset(call: &mut Call, server: &Server) -> Result<Reply, ApiError> {
    switch(
        call,
        server,
        Switch {
            command: "reset_server",
            takes: STOP_TAKES,
            during: server.status,
            then: Status::Running,
        },
    )
}

/// Sends an ACPI request for a reboot. The server's status stays the same, also when the server is off.
pub fn reboot(call: &mut Call, server: &Server) -> Result<Reply, ApiError> {
    let then = server.status;
    switch(
        call,
        server,
        Switch { command: "reboot_server", takes: REQUEST_TAKES, during: then, then },
    )
}

/// Sends an ACPI request for a shutdown. The action ends as soon as the request was sent. The server's operating system
/// shuts down some time later.
pub fn shutdown(call: &mut Call, server: &Server) -> Result<Reply, ApiError> {
    Fields::parse(call.body)?.finish()?;
    check_unlocked(call, server)?;
    let id = server.id;
    let start = Start {
        project: call.project,
        command: "shutdown_server",
        resources: &[server.resource()],
        takes: REQUEST_TAKES,
        after: None,
    };
    let action = call.world.start_action(start, move |world, outcome| {
        let is_running =
            world.servers.get(&id).is_some_and(|server| server.status == Status::Running);
        if outcome == Outcome::Success && is_running {
            set_status(world, id, Status::Stopping);
            world.later(GUEST_TAKES, move |world| obey(world, id));
        }
    });
    Ok(call.world.action_reply(201, action))
}

/// Schedules the action `start_server` of a new server, and returns the ID of this action. The action begins when the
/// action with the ID `create`, which creates the server, has ended.
pub fn start_after(world: &mut World, project: u64, server: Resource, create: u64) -> u64 {
    let start = Start {
        project,
        command: "start_server",
        resources: &[server],
        takes: START_TAKES,
        after: Some(create),
    };
    world.start_action(start, move |world, outcome| {
        if outcome == Outcome::Success {
            set_status(world, server.id, Status::Running);
        }
    })
}

/// An action that changes the power state of a server: its name in the API, its duration, and the server's status
/// during the action and afterwards.
struct Switch {
    command: &'static str,
    takes: Duration,
    during: Status,
    then: Status,
}

fn switch(call: &mut Call, server: &Server, switch: Switch) -> Result<Reply, ApiError> {
    Fields::parse(call.body)?.finish()?;
    check_unlocked(call, server)?;
    let (id, before) = (server.id, server.status);
    if before != switch.then {
        set_status(call.world, id, switch.during);
    }
    let start = Start {
        project: call.project,
        command: switch.command,
        resources: &[server.resource()],
        takes: switch.takes,
        after: None,
    };
    let action = call.world.start_action(start, move |world, outcome| {
        set_status(world, id, if outcome == Outcome::Success { switch.then } else { before });
    });
    Ok(call.world.action_reply(201, action))
}

/// Switches off a server whose operating system was asked to shut down. Nothing happens unless the server still has the
/// status `stopping`, because it may have been switched on or off since the request.
fn obey(world: &mut World, id: u64) {
    if world.servers.get(&id).is_some_and(|server| server.status == Status::Stopping) {
        set_status(world, id, Status::Off);
    }
}
