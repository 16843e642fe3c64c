//! Deletes load balancers, and removes deleted servers and networks from load balancers.

use std::time::Duration;

use super::{Kind, LoadBalancer, Machine, check_unlocked, resource};
use crate::hetzner::actions::Outcome;
use crate::hetzner::error::ApiError;
use crate::hetzner::primary_ips;
use crate::hetzner::world::World;
use crate::hetzner::{Call, Reply};

const TAKES: Duration = Duration::from_millis(1000);

/// Starts the action that deletes a load balancer. The load balancer is gone at the end of the action.
pub fn delete(call: &mut Call, one: &LoadBalancer) -> Result<Reply, ApiError> {
    if one.protected {
        return Err(ApiError::protected("load balancer"));
    }
    check_unlocked(call, one)?;
    let id = one.id;
    let effect = move |world: &mut World, outcome| {
        if outcome == Outcome::Success {
            remove(world, id);
        }
    };
    let action = call.run("delete_load_balancer", TAKES, &[one.resource()], effect);
    if call.world.circumstances.silent_deletes {
        return Ok(Reply::no_content());
    }
    Ok(call.world.action_reply(201, action))
}

/// Removes a load balancer from the simulated cloud. Its Primary IPs with `auto_delete` are deleted, and its other
/// Primary IPs are kept and become free.
pub fn remove(world: &mut World, id: u64) {
    disconnect(world, id);
    world.load_balancers.remove(&id);
    primary_ips::release(world, resource(id));
}

/// Detaches a load balancer from its network, and removes the targets that it reaches by their private address.
pub fn disconnect(world: &mut World, id: u64) {
    for network in world.networks.values_mut() {
        network.load_balancers.remove(&id);
        network.release(resource(id));
    }
    if let Some(one) = world.load_balancers.get_mut(&id) {
        one.private_net = None;
        one.targets.retain(|target| !target.is_private());
        one.edited.forget("private_net");
        one.edited.forget("targets");
    }
}

/// Detaches all load balancers from a network, because the network is about to be deleted.
pub fn forget_network(world: &mut World, network: u64) {
    let is_in = |one: &&LoadBalancer| one.private_net.is_some_and(|net| net.network == network);
    let attached: Vec<u64> =
        world.load_balancers.values().filter(is_in).map(|one| one.id).collect();
    for id in attached {
        disconnect(world, id);
    }
}

/// Removes a deleted server from the targets of all load balancers.
pub fn forget_server(world: &mut World, server: u64) {
    for one in world.load_balancers.values_mut() {
        let before = one.targets.len();
        one.targets.retain(|target| target.kind != Kind::Server(server));
        if one.targets.len() != before {
            one.edited.forget("targets");
        }
        one.health.retain(|(machine, _), _| *machine != Machine::Server(server));
    }
}
