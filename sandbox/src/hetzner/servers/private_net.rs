//! Attaches servers to private networks, detaches them, and changes their alias addresses.

use std::net::Ipv4Addr;
use std::time::Duration;

use ipnet::Ipv4Net;

use super::{Attachment, Server, check_unlocked};
use crate::hetzner::actions::{Outcome, Resource, Start};
use crate::hetzner::error::ApiError;
use crate::hetzner::input::Fields;
use crate::hetzner::networks::{self, MAX_ATTACHED, Network, Subnet, overlap};
use crate::hetzner::world::World;
use crate::hetzner::{Call, Reply};

const TAKES: Duration = Duration::from_millis(1500);
/// The largest number of networks to which one server can be attached.
const MAX_NETWORKS: usize = 3;
const MAX_ALIAS_IPS: usize = 5;

/// What a request for the attachment of a server to a network contains: the network, and the wanted addresses.
pub struct Wish {
    pub network: u64,
    pub ip: Option<Ipv4Addr>,
    /// The range of the subnet from which the server's address must be taken. `None` means any subnet in the server's
    /// network zone.
    pub ip_range: Option<Ipv4Net>,
    pub alias_ips: Vec<Ipv4Addr>,
}

/// Answers requests with the action `attach_to_network`.
pub fn attach(call: &mut Call, server: &Server) -> Result<Reply, ApiError> {
    let mut fields = Fields::parse(call.body)?;
    let wish = Wish {
        network: read_network(call, &mut fields)?,
        ip: fields.address("ip")?,
        ip_range: fields.range("ip_range")?,
        alias_ips: fields.addresses("alias_ips")?.unwrap_or_default(),
    };
    if let (Some(ip), Some(range)) = (wish.ip, wish.ip_range)
        && !range.contains(&ip)
    {
        return Err(fields.invalid("ip", format!("is not part of {range}")));
    }
    fields.finish()?;
    let resources = check_idle(call, server, wish.network)?;
    let attachment = reserve(call.world, server, wish, MAX_ATTACHED)?;
    let id = server.id;
    let start = Start {
        project: call.project,
        command: "attach_to_network",
        resources: &resources,
        takes: TAKES,
        after: None,
    };
    let action = call.world.start_action(start, move |world, outcome| match outcome {
        Outcome::Success => connect(world, id, attachment),
        Outcome::Failure => disconnect(world, id, attachment.network),
    });
    Ok(call.world.action_reply(201, action))
}

/// Answers `POST /servers/{id}/actions/detach_from_network`.
pub fn detach(call: &mut Call, server: &Server) -> Result<Reply, ApiError> {
    let mut fields = Fields::parse(call.body)?;
    let network = read_network(call, &mut fields)?;
    fields.finish()?;
    let resources = check_idle(call, server, network)?;
    check_attached(server, network)?;
    let id = server.id;
    let start = Start {
        project: call.project,
        command: "detach_from_network",
        resources: &resources,
        takes: TAKES,
        after: None,
    };
    let action = call.world.start_action(start, move |world, outcome| {
        if outcome == Outcome::Success {
            disconnect(world, id, network);
        }
    });
    Ok(call.world.action_reply(201, action))
}

/// Answers requests with the action `change_alias_ips`. The alias addresses in the request replace the present ones.
pub fn change_alias_ips(call: &mut Call, server: &Server) -> Result<Reply, ApiError> {
    let mut fields = Fields::parse(call.body)?;
    let id = read_network(call, &mut fields)?;
    let alias_ips = fields.addresses("alias_ips")?;
    let alias_ips = fields.required("alias_ips", alias_ips)?;
    fields.finish()?;
    let resources = check_idle(call, server, id)?;
    let attachment = check_attached(server, id)?;
    let holder = server.resource();
    let network = networks::find(call, id)?;
    let kept = &attachment.alias_ips;
    let fresh: Vec<Ipv4Addr> = alias_ips.iter().copied().filter(|ip| !kept.contains(ip)).collect();
    check_aliases(network, server, attachment.ip, &fresh, alias_ips.len())?;
    if let Some(network) = call.world.networks.get_mut(&id) {
        network.addresses.extend(fresh.iter().map(|ip| (*ip, holder)));
    }
    let start = Start {
        project: call.project,
        command: "change_alias_ips",
        resources: &resources,
        takes: TAKES,
        after: None,
    };
    let action = call.world.start_action(start, move |world, outcome| {
        if outcome == Outcome::Success
            && let Some(server) = world.servers.get_mut(&holder.id)
            && let Some(attachment) =
                server.private_net.iter_mut().find(|attachment| attachment.network == id)
        {
            attachment.alias_ips = alias_ips;
        }
        hold_what_is_shown(world, holder.id);
    });
    Ok(call.world.action_reply(201, action))
}

/// Chooses the addresses that a server will get in a network, and reserves them in the network. The server gets the
/// addresses only when it is attached.
pub fn reserve(
    world: &mut World,
    server: &Server,
    wish: Wish,
    max_attached: usize,
) -> Result<Attachment, ApiError> {
    let missing = || ApiError::not_found("network", wish.network);
    let network =
        world.networks.get(&wish.network).filter(|network| network.project == server.project);
    let network = network.ok_or_else(missing)?;
    if server.attachment(network.id).is_some() {
        return Err(refused(
            "server_already_attached",
            "server is already attached to the network",
        ));
    }
    let mut others =
        server.private_net.iter().filter_map(|attachment| world.networks.get(&attachment.network));
    if others.any(|other| overlap(other.ip_range, network.ip_range)) {
        return Err(refused(
            "networks_overlap",
            "the network overlaps with another one of the server",
        ));
    }
    if server.private_net.len() >= MAX_NETWORKS {
        return Err(ApiError::limit_exceeded("server_networks"));
    }
    if network.attached() >= max_attached {
        return Err(ApiError::limit_exceeded("network_attached_resources"));
    }
    let ip = network.choose(server.location.network_zone, wish.ip, wish.ip_range)?;
    check_aliases(network, server, ip, &wish.alias_ips, wish.alias_ips.len())?;

    let taken = wish.alias_ips.iter().chain([&ip]).map(|ip| (*ip, server.resource()));
    let attachment = Attachment::new(network.id, server.id, ip, wish.alias_ips.clone());
    world.networks.get_mut(&wish.network).ok_or_else(missing)?.addresses.extend(taken);
    Ok(attachment)
}

/// Attaches a server to a network in which its addresses were reserved before. Nothing happens when the server or the
/// network no longer exists.
pub fn connect(world: &mut World, server: u64, attachment: Attachment) {
    let (Some(server), Some(network)) =
        (world.servers.get_mut(&server), world.networks.get_mut(&attachment.network))
    else {
        return;
    };
    network.servers.insert(server.id);
    server.private_net.push(attachment);
    server.edited.forget("private_net");
}

/// Makes the reservations in the networks fit the private interfaces of the server `id`. First releases all private
/// addresses of the server, and then reserves the addresses that its interfaces have now.
pub fn hold_what_is_shown(world: &mut World, id: u64) {
    let Some(server) = world.servers.get(&id) else {
        return;
    };
    let holder = server.resource();
    for network in world.networks.values_mut() {
        network.release(holder);
        network.servers.remove(&id);
        if let Some(attachment) = server.attachment(network.id) {
            network.servers.insert(id);
            let ips = attachment.alias_ips.iter().chain([&attachment.ip]);
            network.addresses.extend(ips.map(|ip| (*ip, holder)));
        }
    }
}

fn disconnect(world: &mut World, server: u64, network: u64) {
    if let Some(server) = world.servers.get_mut(&server) {
        server.private_net.retain(|attachment| attachment.network != network);
        server.edited.forget("private_net");
    }
    hold_what_is_shown(world, server);
}

/// Checks that new alias addresses are free, and that each is in a subnet for servers in the server's network zone.
/// Also checks that a server does not get too many of them. `fresh` contains the aliases that the server does not have
/// yet, and `count` is the number of aliases that it will have.
fn check_aliases(
    network: &Network,
    server: &Server,
    ip: Ipv4Addr,
    fresh: &[Ipv4Addr],
    count: usize,
) -> Result<(), ApiError> {
    if count > MAX_ALIAS_IPS {
        return Err(ApiError::invalid(
            "alias_ips",
            format!("must not be more than {MAX_ALIAS_IPS}"),
        ));
    }
    let zone = server.location.network_zone;
    let is_near = |subnet: &&Subnet| subnet.is_for_servers() && subnet.network_zone == zone;
    let is_in_subnet = |alias: Ipv4Addr| {
        network.subnets.iter().filter(is_near).any(|subnet| subnet.has_host(alias))
    };
    for (index, alias) in fresh.iter().enumerate() {
        let is_repeated = *alias == ip || fresh[..index].contains(alias);
        if is_repeated || !network.is_free(*alias) || !is_in_subnet(*alias) {
            return Err(refused("ip_not_available", &format!("IP {alias} is not available")));
        }
    }
    Ok(())
}

fn refused(code: &'static str, message: &str) -> ApiError {
    ApiError::new(422, code, message)
}

fn read_network(call: &Call, fields: &mut Fields) -> Result<u64, ApiError> {
    let id = fields.number("network")?;
    networks::find(call, fields.required("network", id)?).map(|network| network.id)
}

/// Checks that no action is running on the server or on the network. Returns the server and the network as the
/// resources that the new action will lock.
fn check_idle(call: &Call, server: &Server, network: u64) -> Result<[Resource; 2], ApiError> {
    check_unlocked(call, server)?;
    let network = networks::find(call, network)?.resource();
    if call.world.is_locked(network) {
        return Err(ApiError::conflict("network"));
    }
    Ok([server.resource(), network])
}

fn check_attached(server: &Server, network: u64) -> Result<&Attachment, ApiError> {
    let message = || format!("server is not attached to network {network}");
    server.attachment(network).ok_or_else(|| ApiError::new(404, "not_found", message()))
}
