//! Answers `POST /load_balancers/{id}/actions/{command}`, the changes of one load balancer. Only one change of a load
//! balancer runs at a time.

use std::net::IpAddr;
use std::time::Duration;

use super::create::{read_algorithm_type, read_size};
use super::{LoadBalancer, Service, Target, check_unlocked, refused};
use crate::hetzner::actions::Outcome;
use crate::hetzner::error::ApiError;
use crate::hetzner::input::Fields;
use crate::hetzner::world::World;
use crate::hetzner::{Call, Reply};

const TAKES: Duration = Duration::from_millis(1000);

type Change = Box<dyn FnOnce(&mut World, u64) + Send>;
/// A function that checks whether a requested change of a load balancer is possible, and returns the change. The
/// request starts an action, which makes the change when it ends.
type Read = fn(Fields, &World, &LoadBalancer) -> Result<Change, ApiError>;

/// The commands that change a load balancer. Each has the last segment of the path, the `command` of its action, and
/// the function that checks the request.
const COMMANDS: [(&str, &str, Read); 11] = [
    ("add_service", "add_service", add_service),
    ("update_service", "update_service", update_service),
    ("delete_service", "delete_service", delete_service),
    ("add_target", "add_target", add_target),
    ("remove_target", "remove_target", remove_target),
    ("change_algorithm", "change_algorithm", change_algorithm),
    ("change_type", "change_load_balancer_type", change_type),
    ("change_dns_ptr", "change_dns_ptr", change_dns_ptr),
    ("change_protection", "change_protection", change_protection),
    ("enable_public_interface", "enable_public_interface", enable),
    ("disable_public_interface", "disable_public_interface", disable),
];

/// Checks a requested change, and starts the action that makes the change.
pub fn start(call: &mut Call, one: &LoadBalancer, command: &str) -> Result<Reply, ApiError> {
    let known = COMMANDS.iter().find(|(path, ..)| *path == command);
    let (_, command, read) = *known.ok_or_else(ApiError::no_such_path)?;
    if call.method != "POST" {
        return Err(ApiError::wrong_method(call.method));
    }
    let fields = Fields::parse(call.body)?;
    // While an action changes the load balancer, every request for another change gets the error of a locked resource,
    // after which clients retry. The fields of the request are not checked then, because a request that is invalid now
    // can be valid after the running action.
    check_unlocked(call, one)?;
    let change = read(fields, call.world, one)?;
    let id = one.id;
    let effect = move |world: &mut World, outcome| {
        if outcome == Outcome::Success {
            change(world, id);
        }
    };
    let action = call.run(command, TAKES, &[one.resource()], effect);
    Ok(call.world.action_reply(201, action))
}

/// Returns a function that an action calls when it ends, to change the load balancer. The function calls `change`. If a
/// test had set its own value for the JSON field `field`, this value is dropped, so that the API shows the changed
/// value.
fn on(field: &'static str, change: impl FnOnce(&mut LoadBalancer) + Send + 'static) -> Change {
    Box::new(move |world, id| {
        if let Some(one) = world.load_balancers.get_mut(&id) {
            change(one);
            one.edited.forget(field);
        }
    })
}

fn add_service(fields: Fields, world: &World, one: &LoadBalancer) -> Result<Change, ApiError> {
    let service = Service::read(fields)?;
    let port = service.listen_port;
    if one.services.iter().any(|other| other.listen_port == port) {
        return Err(super::service::port_used(port));
    }
    service.check(world, one)?;
    Ok(on("services", move |one| one.services.push(service)))
}

fn update_service(
    mut fields: Fields,
    world: &World,
    one: &LoadBalancer,
) -> Result<Change, ApiError> {
    let service = find_service(&mut fields, one)?.updated(fields)?;
    service.check(world, one)?;
    Ok(on("services", move |one| {
        let port = service.listen_port;
        let mut services = one.services.iter_mut();
        if let Some(found) = services.find(|other| other.listen_port == port) {
            *found = service;
        }
    }))
}

fn delete_service(mut fields: Fields, _: &World, one: &LoadBalancer) -> Result<Change, ApiError> {
    let port = find_service(&mut fields, one)?.listen_port;
    fields.finish()?;
    Ok(on("services", move |one| one.services.retain(|service| service.listen_port != port)))
}

fn find_service<'s>(fields: &mut Fields, one: &'s LoadBalancer) -> Result<&'s Service, ApiError> {
    let port = fields.port("listen_port")?;
    let port = fields.required("listen_port", port)?;
    let mut services = one.services.iter();
    services.find(|service| service.listen_port == port).ok_or_else(|| {
        let message = format!("service with listen port {port} not found");
        ApiError::new(404, "not_found", message)
    })
}

fn add_target(fields: Fields, world: &World, one: &LoadBalancer) -> Result<Change, ApiError> {
    let target = Target::read(fields)?;
    target.check(world, one)?;
    Ok(on("targets", move |one| one.targets.push(target)))
}

fn remove_target(fields: Fields, _: &World, one: &LoadBalancer) -> Result<Change, ApiError> {
    if fields.has("use_private_ip") {
        return Err(fields.invalid("use_private_ip", "unknown field"));
    }
    let target = Target::read(fields)?;
    if !one.targets.iter().any(|other| other.kind == target.kind) {
        let message = "load balancer target not found";
        return Err(ApiError::new(404, "load_balancer_target_not_found", message));
    }
    Ok(on("targets", move |one| one.targets.retain(|other| other.kind != target.kind)))
}

fn change_algorithm(mut fields: Fields, _: &World, _: &LoadBalancer) -> Result<Change, ApiError> {
    let algorithm = read_algorithm_type(&mut fields)?;
    fields.finish()?;
    Ok(on("algorithm", move |one| one.algorithm = algorithm))
}

/// Changes the type of the load balancer. The change is refused when the existing services, targets or certificates
/// exceed the limits of the new type.
fn change_type(mut fields: Fields, world: &World, one: &LoadBalancer) -> Result<Change, ApiError> {
    let size = read_size(world, &mut fields)?;
    fields.finish()?;
    let fits = one.count_targets(world) <= size.max_targets(world)
        && one.services.len() <= size.max_services
        && one.certificates().len() <= size.max_assigned_certificates;
    if !fits {
        let message = format!("{} is too small for this load balancer", size.name);
        return Err(refused("invalid_load_balancer_type", message));
    }
    Ok(on("load_balancer_type", move |one| one.size = size))
}

fn change_dns_ptr(
    mut fields: Fields,
    world: &World,
    one: &LoadBalancer,
) -> Result<Change, ApiError> {
    let text = fields.string("ip")?;
    let text = fields.required("ip", text)?;
    if !fields.has("dns_ptr") {
        return Err(fields.invalid("dns_ptr", "is required"));
    }
    let name = fields.string("dns_ptr")?.filter(|name| !name.is_empty());
    let ip: Option<IpAddr> = text.parse().ok();
    let mut own = [one.ipv4, one.ipv6].into_iter();
    let holds = |id: &u64| {
        let primary = world.primary_ips.get(id);
        primary.is_some_and(|primary| ip == Some(primary.address.of_holder()))
    };
    let id = own
        .find(holds)
        .ok_or_else(|| fields.invalid("ip", format!("'{text}' is no IP of the load balancer")))?;
    fields.finish()?;
    Ok(Box::new(move |world, load_balancer| {
        if let (Some(primary), Some(ip)) = (world.primary_ips.get_mut(&id), ip) {
            primary.set_dns_ptr(ip, name);
        }
        if let Some(one) = world.load_balancers.get_mut(&load_balancer) {
            one.edited.forget("public_net");
        }
    }))
}

fn change_protection(
    mut fields: Fields,
    _: &World,
    one: &LoadBalancer,
) -> Result<Change, ApiError> {
    let delete = fields.flag("delete")?.unwrap_or(one.protected);
    fields.finish()?;
    Ok(on("protection", move |one| one.protected = delete))
}

fn enable(fields: Fields, _: &World, _: &LoadBalancer) -> Result<Change, ApiError> {
    fields.finish()?;
    Ok(on("public_net", |one| one.public_enabled = true))
}

/// Disables the public interface of a load balancer. The request is refused when the load balancer is in no network, or
/// when it has a target without `use_private_ip`.
fn disable(fields: Fields, _: &World, one: &LoadBalancer) -> Result<Change, ApiError> {
    fields.finish()?;
    if one.private_net.is_none() {
        let message = "load balancer is not attached to a network";
        return Err(refused("load_balancer_not_attached_to_network", message));
    }
    if !one.targets.iter().all(Target::is_private) {
        let message = "load balancer has targets that do not use their private IP";
        return Err(refused("targets_without_use_private_ip", message));
    }
    Ok(on("public_net", |one| one.public_enabled = false))
}
