//! Answers `POST /networks/{id}/actions/{command}`, the changes of one network. Only one change of a network runs at a
//! time.

use std::time::Duration;

use super::{Fields, Network, Route, Subnet, check_ip_range};
use crate::hetzner::actions::{Outcome, Start};
use crate::hetzner::error::ApiError;
use crate::hetzner::{Call, Reply};

/// How long the action that changes a network takes.
const TAKES: Duration = Duration::from_millis(1000);

type Change = Box<dyn FnOnce(&mut Network) + Send>;
/// A function that checks whether a requested change of a network is possible. It returns a second function, which
/// makes the change at the end of the action that the request starts.
type Read = fn(Fields, &Network) -> Result<Change, ApiError>;

/// Checks a requested change, and starts the action that makes the change.
pub fn start(call: &mut Call, network: &Network, command: &str) -> Result<Reply, ApiError> {
    let (command, read): (&'static str, Read) = match command {
        "add_subnet" => ("add_subnet", add_subnet),
        "delete_subnet" => ("delete_subnet", delete_subnet),
        "add_route" => ("add_route", add_route),
        "delete_route" => ("delete_route", delete_route),
        "change_ip_range" => ("change_ip_range", change_ip_range),
        "change_protection" => ("change_protection", change_protection),
        _ => return Err(ApiError::no_such_path()),
    };
    if call.method != "POST" {
        return Err(ApiError::wrong_method(call.method));
    }
    let fields = Fields::parse(call.body)?;
    // While an action changes the network, every request for another change gets the error `conflict`, after which
    // clients retry. The fields of the request are not checked then, because a request that is invalid now can be valid
    // after the running action.
    if call.world.is_locked(network.resource()) {
        return Err(ApiError::conflict("network"));
    }
    let change = read(fields, network)?;
    let id = network.id;
    let start = Start {
        project: call.project,
        command,
        resources: &[network.resource()],
        takes: TAKES,
        after: None,
    };
    let action = call.world.start_action(start, move |world, outcome| {
        if let (Some(network), Outcome::Success) = (world.networks.get_mut(&id), outcome) {
            change(network);
        }
    });
    Ok(call.world.action_reply(201, action))
}

fn add_subnet(fields: Fields, network: &Network) -> Result<Change, ApiError> {
    let subnet = Subnet::read(fields, network)?;
    Ok(Box::new(move |network| network.subnets.push(subnet)))
}

fn delete_subnet(mut fields: Fields, network: &Network) -> Result<Change, ApiError> {
    let range = fields.range("ip_range")?;
    let range = fields.required("ip_range", range)?;
    fields.finish()?;
    if !network.subnets.iter().any(|subnet| subnet.ip_range == range) {
        return Err(ApiError::new(404, "not_found", format!("subnet {range} not found")));
    }
    if network.addresses.keys().any(|address| range.contains(address)) {
        return Err(ApiError::new(
            500,
            "service_error",
            "cannot remove subnet because servers are attached to it",
        ));
    }
    Ok(Box::new(move |network| network.subnets.retain(|subnet| subnet.ip_range != range)))
}

fn add_route(fields: Fields, network: &Network) -> Result<Change, ApiError> {
    let route = Route::read(fields, network)?;
    Ok(Box::new(move |network| network.routes.push(route)))
}

fn delete_route(fields: Fields, network: &Network) -> Result<Change, ApiError> {
    let route = Route::parse(fields)?;
    if !network.routes.contains(&route) {
        let message = format!("route to {} via {} not found", route.destination, route.gateway);
        return Err(ApiError::new(404, "not_found", message));
    }
    Ok(Box::new(move |network| network.routes.retain(|other| *other != route)))
}

/// Changes the IP range of a network. The range can only be extended at its end: the first address stays, and the
/// prefix becomes shorter.
fn change_ip_range(mut fields: Fields, network: &Network) -> Result<Change, ApiError> {
    let range = fields.range("ip_range")?;
    let range = fields.required("ip_range", range)?;
    check_ip_range(&fields, range)?;
    if range.network() != network.ip_range.network()
        || range.prefix_len() > network.ip_range.prefix_len()
    {
        return Err(fields.invalid(
            "ip_range",
            format!("can only extend {}, not move or shrink it", network.ip_range),
        ));
    }
    fields.finish()?;
    Ok(Box::new(move |network| network.ip_range = range))
}

fn change_protection(mut fields: Fields, network: &Network) -> Result<Change, ApiError> {
    let delete = fields.flag("delete")?.unwrap_or(network.delete_protection);
    fields.finish()?;
    Ok(Box::new(move |network| network.delete_protection = delete))
}
