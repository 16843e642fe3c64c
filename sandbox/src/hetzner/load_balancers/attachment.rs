//! The actions `attach_to_network` and `detach_from_network` of a load balancer. They lock both the load balancer and
//! the network.

use std::time::Duration;

use super::create::connect;
use super::lifecycle::disconnect;
use super::{LoadBalancer, PrivateNet, check_unlocked, refused};
use crate::hetzner::actions::{Outcome, Resource};
use crate::hetzner::error::ApiError;
use crate::hetzner::input::Fields;
use crate::hetzner::networks::{self, MAX_ATTACHED};
use crate::hetzner::world::World;
use crate::hetzner::{Call, Reply};

const TAKES: Duration = Duration::from_millis(1500);

pub fn attach(call: &mut Call, one: &LoadBalancer) -> Result<Reply, ApiError> {
    let mut fields = begin(call)?;
    let id = fields.number("network")?;
    let id = fields.required("network", id)?;
    let (ip, range) = (fields.address("ip")?, fields.range("ip_range")?);
    if let (Some(ip), Some(range)) = (ip, range)
        && !range.contains(&ip)
    {
        return Err(fields.invalid("ip", format!("is not part of {range}")));
    }
    fields.finish()?;
    let resources = check_idle(call, one, id)?;
    let network = networks::find(call, id)?;
    if one.private_net.is_some() {
        let message = "load balancer is already attached to a network";
        return Err(refused("load_balancer_already_attached", message));
    }
    if network.attached() >= MAX_ATTACHED {
        return Err(ApiError::limit_exceeded("network_attached_resources"));
    }
    let ip = network.choose(one.location.network_zone, ip, range)?;
    let (holder, net) = (one.resource(), PrivateNet { network: id, ip });
    if let Some(network) = call.world.networks.get_mut(&id) {
        network.addresses.insert(ip, holder);
    }
    let effect = move |world: &mut World, outcome| match outcome {
        Outcome::Success => connect(world, holder.id, net),
        Outcome::Failure => disconnect(world, holder.id),
    };
    let action = call.run("attach_to_network", TAKES, &resources, effect);
    Ok(call.world.action_reply(201, action))
}

/// Detaches the load balancer from a network, and removes the targets that it reaches by their private address.
pub fn detach(call: &mut Call, one: &LoadBalancer) -> Result<Reply, ApiError> {
    let mut fields = begin(call)?;
    let network = fields.number("network")?;
    let network = fields.required("network", network)?;
    fields.finish()?;
    let resources = check_idle(call, one, network)?;
    if one.private_net.is_none_or(|net| net.network != network) {
        let message = format!("load balancer is not attached to network {network}");
        return Err(ApiError::new(404, "not_found", message));
    }
    let id = one.id;
    let effect = move |world: &mut World, outcome| {
        if outcome == Outcome::Success {
            disconnect(world, id);
        }
    };
    let action = call.run("detach_from_network", TAKES, &resources, effect);
    Ok(call.world.action_reply(201, action))
}

fn begin(call: &Call) -> Result<Fields, ApiError> {
    if call.method == "POST" {
        Fields::parse(call.body)
    } else {
        Err(ApiError::wrong_method(call.method))
    }
}

/// Checks that no action is running on the load balancer or on the network. Returns the load balancer and the network
/// as the resources that the new action will lock.
fn check_idle(call: &Call, one: &LoadBalancer, network: u64) -> Result<[Resource; 2], ApiError> {
    check_unlocked(call, one)?;
    let network = networks::find(call, network)?.resource();
    if call.world.is_locked(network) {
        return Err(ApiError::conflict("network"));
    }
    Ok([one.resource(), network])
}
