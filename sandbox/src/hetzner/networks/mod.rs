//! Answers requests to `/networks`: private networks, their addresses, and the servers and load balancers to which the
//! addresses belong.

mod changes;
mod routes;
mod subnets;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

pub use self::routes::Route;
pub use self::subnets::{Subnet, SubnetType};
use super::actions::{self, Resource};
use super::catalog::id;
use super::clock::show;
use super::error::ApiError;
use super::input::Fields;
use super::labels::Labels;
use super::load_balancers;
use super::owned;
use super::{Call, Reply};
use crate::hetzner::text::{Text, text};
use crate::time;
use ipnet::Ipv4Net;
use jiff::Timestamp;

/// The largest number of servers and load balancers together in one network.
pub const MAX_ATTACHED: usize = 100;
/// The address of the gateway on every server's public interface. This address is never given to a server in a private
/// network.
const PUBLIC_GATEWAY: Ipv4Addr = Ipv4Addr::new(172, 31, 1, 1);
/// The longest prefix that the IP range of a network can have, so the smallest network is a /24.
const MAX_PREFIX: u8 = 24;

#[derive(Clone, Debug)]
pub struct Network {
    pub id: u64,
    pub project: u64,
    pub name: String,
    pub created: Timestamp,
    pub ip_range: Ipv4Net,
    pub subnets: Vec<Subnet>,
    pub routes: Vec<Route>,
    pub labels: Labels,
    pub delete_protection: bool,
    pub expose_routes_to_vswitch: bool,
    /// The addresses that are in use or reserved by a running action, each with the server or load balancer to which it
    /// belongs.
    pub addresses: BTreeMap<Ipv4Addr, Resource>,
    /// The IDs of the servers in this network. A server is included only after the action that attaches it has ended.
    pub servers: BTreeSet<u64>,
    /// The IDs of the load balancers in this network. A load balancer is included only after the action that attaches
    /// it has ended.
    pub load_balancers: BTreeSet<u64>,
}

owned::owned!(Network, "network", networks);

impl Network {
    pub fn new(id: u64, project: u64, name: &str, ip_range: Ipv4Net) -> Network {
        Network {
            id,
            project,
            name: name.into(),
            created: time::timestamp(),
            ip_range,
            subnets: Vec::new(),
            routes: Vec::new(),
            labels: Labels::new(),
            delete_protection: false,
            expose_routes_to_vswitch: false,
            addresses: BTreeMap::new(),
            servers: BTreeSet::new(),
            load_balancers: BTreeSet::new(),
        }
    }

    pub fn resource(&self) -> Resource {
        Resource { kind: "network", id: self.id }
    }

    /// Returns the gateway between the subnets. It is the first host address of the network's range, and no server can
    /// have it.
    pub fn gateway(&self) -> Ipv4Addr {
        first_address(self.ip_range)
    }

    /// Whether the address can be given to a server or a load balancer, because it is neither in use nor a gateway.
    pub fn is_free(&self, address: Ipv4Addr) -> bool {
        address != self.gateway()
            && address != PUBLIC_GATEWAY
            && !self.addresses.contains_key(&address)
    }

    /// Returns the lowest free address of a subnet, or `None` when all are in use.
    pub fn free_address(&self, subnet: &Subnet) -> Option<Ipv4Addr> {
        let last = Ipv4Addr::from(u32::from(subnet.ip_range.broadcast()) - 1);
        let mut candidate = first_address(subnet.ip_range);
        let mut taken = self.addresses.range(candidate..).map(|(address, _)| *address).peekable();
        while candidate <= last {
            let is_taken = taken.next_if_eq(&candidate).is_some();
            if !is_taken && self.is_free(candidate) {
                return Some(candidate);
            }
            candidate = Ipv4Addr::from(u32::from(candidate) + 1);
        }
        None
    }

    /// Chooses the address for a server or a load balancer in this network zone. Returns `ip` when it is free, and an
    /// error when it is not. When `ip` is `None`, returns the lowest free address in a subnet of the zone, or in the
    /// subnet `ip_range`.
    pub fn choose(
        &self,
        zone: &str,
        ip: Option<Ipv4Addr>,
        ip_range: Option<Ipv4Net>,
    ) -> Result<Ipv4Addr, ApiError> {
        let fits = |subnet: &&Subnet| {
            subnet.is_for_servers()
                && subnet.network_zone == zone
                && ip_range.is_none_or(|range| range == subnet.ip_range)
        };
        let mut subnets = self.subnets.iter().filter(fits).peekable();
        let none = || {
            let message = format!("no subnet or address is available in network zone {zone}");
            ApiError::new(422, "no_subnet_available", message)
        };
        if subnets.peek().is_none() {
            return Err(none());
        }
        let Some(ip) = ip else {
            return subnets.find_map(|subnet| self.free_address(subnet)).ok_or_else(none);
        };
        if subnets.any(|subnet| subnet.has_host(ip)) && self.is_free(ip) {
            Ok(ip)
        } else {
            let message = format!("IP {ip} is not available");
            Err(ApiError::new(422, "ip_not_available", message))
        }
    }

    /// Returns how many servers and load balancers the network has.
    pub fn attached(&self) -> usize {
        self.servers.len() + self.load_balancers.len()
    }

    pub fn release(&mut self, holder: Resource) {
        self.addresses.retain(|_, held_by| *held_by != holder);
    }

    /// Adds a subnet of type `vswitch` for dedicated servers, and returns its range, which is the first /24 of the
    /// network that is free. Returns `None` when no /24 is free.
    pub fn add_vswitch(&mut self, vswitch: u64) -> Option<Ipv4Net> {
        let subnet = Subnet {
            kind: SubnetType::Vswitch,
            vswitch_id: Some(vswitch),
            ..Subnet::cloud(subnets::free_range(self)?, super::ZONE)
        };
        self.subnets.push(subnet.clone());
        Some(subnet.ip_range)
    }

    pub fn json(&self) -> Text {
        text!({
            "id": self.id, "name": self.name, "ip_range": self.ip_range.to_string(), "created": show(self.created),
            "subnets": self.subnets.iter().map(|subnet| subnet.json(self.gateway())).collect::<Vec<_>>(),
            "routes": self.routes.iter().map(Route::json).collect::<Vec<_>>(),
            "servers": self.servers, "load_balancers": self.load_balancers, "labels": self.labels,
            "protection": {"delete": self.delete_protection},
            "expose_routes_to_vswitch": self.expose_routes_to_vswitch,
        })
    }
}

/// Returns the first host address of a range, which is the address after the network address.
pub fn first_address(range: Ipv4Net) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(range.network()) + 1)
}

/// Whether the two ranges have an address in common.
pub fn overlap(a: Ipv4Net, b: Ipv4Net) -> bool {
    a.contains(&b) || b.contains(&a)
}

/// Whether the range lies in one of the private ranges of RFC 1918.
fn is_private(range: Ipv4Net) -> bool {
    const PRIVATE: [(Ipv4Addr, u8); 3] = [
        (Ipv4Addr::new(10, 0, 0, 0), 8),
        (Ipv4Addr::new(172, 16, 0, 0), 12),
        (Ipv4Addr::new(192, 168, 0, 0), 16),
    ];
    PRIVATE
        .iter()
        .filter_map(|(address, prefix)| Ipv4Net::new(*address, *prefix).ok())
        .any(|net| net.contains(&range))
}

/// Checks the IP range of a new network, or the new range of an existing network. The range must be private, and its
/// prefix length must be 24 or less.
fn check_ip_range(fields: &Fields, range: Ipv4Net) -> Result<(), ApiError> {
    if !is_private(range) {
        return Err(fields.invalid("ip_range", "must lie in one of the private ranges of RFC 1918"));
    }
    if range.prefix_len() > MAX_PREFIX {
        return Err(fields.invalid("ip_range", format!("must be a /{MAX_PREFIX} or larger")));
    }
    Ok(())
}

/// Answers all requests to `/networks` and to paths below it.
pub fn route(call: &mut Call, rest: &[&str]) -> Result<Reply, ApiError> {
    match (rest, call.method) {
        ([], "GET") => owned::list(call, "networks", Network::json),
        ([], "POST") => create(call),
        (["actions", rest @ ..], _) => {
            actions::route_kind(call, "/networks/actions", "network", rest)
        }
        ([segment, rest @ ..], _) => route_network(call, id(segment)?, rest),
        _ => Err(ApiError::wrong_method(call.method)),
    }
}

fn route_network(call: &mut Call, id: u64, rest: &[&str]) -> Result<Reply, ApiError> {
    let network = find(call, id)?.clone();
    match (rest, call.method) {
        ([], "GET") => {
            call.refuse_query()?;
            Ok(Reply::ok(text!({"network": network.json()})))
        }
        ([], "PUT") => update(call, &network),
        ([], "DELETE") => delete(call, &network),
        ([], _) => Err(ApiError::wrong_method(call.method)),
        (["actions", command], _) if command.parse::<u64>().is_err() => {
            changes::start(call, &network, command)
        }
        (["actions", rest @ ..], _) => {
            let path = format!("/networks/{id}/actions");
            actions::route_resource(call, &path, network.resource(), rest)
        }
        _ => Err(ApiError::no_such_path()),
    }
}

/// Finds a network by its ID in the project of the request's API token.
pub fn find<'c>(call: &'c Call, id: u64) -> Result<&'c Network, ApiError> {
    owned::find(call, id)
}

fn create(call: &mut Call) -> Result<Reply, ApiError> {
    let mut fields = Fields::parse(call.body)?;
    let name = owned::read_name::<Network>(call, &mut fields)?;
    let ip_range = fields.range("ip_range")?;
    let ip_range = fields.required("ip_range", ip_range)?;
    check_ip_range(&fields, ip_range)?;
    let mut network = Network::new(0, call.project, &name, ip_range);
    for entry in fields.objects("subnets")? {
        let subnet = Subnet::read(entry, &network)?;
        network.subnets.push(subnet);
    }
    for entry in fields.objects("routes")? {
        let route = Route::read(entry, &network)?;
        network.routes.push(route);
    }
    network.labels = fields.labels()?.unwrap_or_default();
    network.expose_routes_to_vswitch = fields.flag("expose_routes_to_vswitch")?.unwrap_or_default();
    fields.finish()?;

    network.id = call.world.new_id();
    let reply = Reply::new(201, text!({"network": network.json()}));
    call.world.networks.insert(network.id, network);
    Ok(reply)
}

fn update(call: &mut Call, network: &Network) -> Result<Reply, ApiError> {
    let mut fields = Fields::parse(call.body)?;
    let (name, labels) = owned::read_changes(call, &mut fields, network)?;
    let expose =
        fields.flag("expose_routes_to_vswitch")?.unwrap_or(network.expose_routes_to_vswitch);
    fields.finish()?;
    if call.world.is_locked(network.resource()) {
        return Err(ApiError::conflict("network"));
    }

    let network = Network { name, labels, expose_routes_to_vswitch: expose, ..network.clone() };
    let reply = Reply::ok(text!({"network": network.json()}));
    call.world.networks.insert(network.id, network);
    Ok(reply)
}

/// Deletes a network at once. Servers and load balancers are detached from it.
fn delete(call: &mut Call, network: &Network) -> Result<Reply, ApiError> {
    if network.delete_protection {
        return Err(ApiError::protected("network"));
    }
    if call.world.is_locked(network.resource()) {
        return Err(ApiError::conflict("network"));
    }
    for server in call.world.servers.values_mut() {
        server.private_net.retain(|attachment| attachment.network != network.id);
    }
    load_balancers::forget_network(call.world, network.id);
    call.world.networks.remove(&network.id);
    Ok(Reply::no_content())
}
