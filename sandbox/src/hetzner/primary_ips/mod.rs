//! Answers requests to `/primary_ips`, the public addresses of servers and load balancers. A Primary IP can stay when
//! its server or load balancer is deleted.

mod changes;
mod create;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub use self::create::{allocate, place, put};
use super::actions::{self, Resource};
use super::catalog::id;
use super::catalog::locations::Location;
use super::clock::show;
use super::error::ApiError;
use super::input::{Fields, Query};
use super::labels::Labels;
use super::listing::Page;
use super::owned;
use super::world::World;
use super::{Call, Reply};
use crate::hetzner::text::{Text, text};
use ipnet::Ipv6Net;
use jiff::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Version {
    V4,
    V6,
}

#[derive(Clone, Debug)]
pub struct PrimaryIp {
    pub id: u64,
    pub project: u64,
    pub name: String,
    pub created: Timestamp,
    pub labels: Labels,
    pub address: Address,
    pub location: &'static Location,
    /// The server or load balancer to which the Primary IP is assigned. `None` when it is assigned to nothing.
    pub assignee: Option<Resource>,
    pub auto_delete: bool,
    pub blocked: bool,
    protected: bool,
    dns_ptr: BTreeMap<IpAddr, String>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Address {
    V4(Ipv4Addr),
    /// A range of IPv6 addresses with a prefix length of 64.
    V6(Ipv6Net),
}

owned::owned!(PrimaryIp, "primary_ip", primary_ips);

impl Address {
    pub fn version(self) -> Version {
        match self {
            Address::V4(_) => Version::V4,
            Address::V6(_) => Version::V6,
        }
    }

    pub fn contains(self, ip: IpAddr) -> bool {
        match (self, ip) {
            (Address::V4(own), IpAddr::V4(ip)) => own == ip,
            (Address::V6(range), IpAddr::V6(ip)) => range.contains(&ip),
            _ => false,
        }
    }

    /// Returns the address on which a server or load balancer with this Primary IP listens. In an IPv6 range this is
    /// the first host address.
    pub fn of_holder(self) -> IpAddr {
        match self {
            Address::V4(ip) => ip.into(),
            Address::V6(range) => Ipv6Addr::from(u128::from(range.network()) + 1).into(),
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::V4(ip) => ip.fmt(f),
            Address::V6(range) => range.fmt(f),
        }
    }
}

impl PrimaryIp {
    pub fn resource(&self) -> Resource {
        Resource { kind: "primary_ip", id: self.id }
    }

    /// Sets the reverse DNS name of the address. `None` restores the default name, which only an IPv4 address has.
    pub fn set_dns_ptr(&mut self, ip: IpAddr, name: Option<String>) {
        match (name, self.address) {
            (Some(name), _) => self.dns_ptr.insert(ip, name),
            (None, Address::V4(own)) => self.dns_ptr.insert(ip, default_dns_ptr(own)),
            (None, Address::V6(_)) => self.dns_ptr.remove(&ip),
        };
    }

    pub fn json(&self) -> Text {
        let kind = match self.address {
            Address::V4(_) => "ipv4",
            Address::V6(_) => "ipv6",
        };
        let dns_ptr = self.dns_ptr.iter();
        let dns_ptr = dns_ptr.map(|(ip, name)| text!({"ip": ip.to_string(), "dns_ptr": name}));
        text!({
            "id": self.id, "name": self.name, "created": show(self.created), "labels": self.labels,
            "ip": self.address.to_string(), "type": kind, "location": self.location.json(),
            "assignee_id": self.assignee.map(|assignee| assignee.id),
            "assignee_type": self.assignee.map_or("unassigned", |assignee| assignee.kind),
            "auto_delete": self.auto_delete, "blocked": self.blocked,
            "dns_ptr": dns_ptr.collect::<Vec<_>>(), "protection": {"delete": self.protected},
        })
    }

    /// Returns the JSON that describes the Primary IP in the field `public_net` of the load balancer to which the
    /// Primary IP is assigned.
    pub fn json_of_holder(&self) -> Text {
        let ip = self.address.of_holder();
        text!({
            "id": self.id, "ip": ip.to_string(), "blocked": self.blocked,
            "dns_ptr": self.dns_ptr.get(&ip),
        })
    }
}

fn default_dns_ptr(ip: Ipv4Addr) -> String {
    let [a, b, c, d] = ip.octets();
    format!("static.{d}.{c}.{b}.{a}.clients.your-server.de")
}

/// Assigns a Primary IP to a server or a load balancer. Nothing happens when there is no such Primary IP.
pub fn assign(world: &mut World, id: u64, holder: Resource) {
    if let Some(primary) = world.primary_ips.get_mut(&id) {
        primary.assignee = Some(holder);
    }
}

/// Releases all Primary IPs of a deleted server or load balancer. Primary IPs with `auto_delete` are deleted, and all
/// other Primary IPs become free.
pub fn release(world: &mut World, holder: Resource) {
    world.primary_ips.retain(|_, primary| primary.assignee != Some(holder) || !primary.auto_delete);
    for primary in world.primary_ips.values_mut() {
        if primary.assignee == Some(holder) {
            primary.assignee = None;
        }
    }
}

/// Checks that a Primary IP is not assigned, and can be assigned to a resource in this location.
pub fn check_free(
    call: &Call,
    id: u64,
    version: Version,
    location: &Location,
) -> Result<Address, ApiError> {
    let primary = find(call, id)?;
    let refused = |code, problem: &str| {
        let message = format!("primary IP {id} {problem}");
        Err(ApiError::new(422, code, message))
    };
    if primary.address.version() != version {
        return refused("primary_ip_version_mismatch", "has the wrong IP version");
    }
    // The code of this error still contains the word `datacenter`, as in the real API, although the API no longer has
    // datacenters. The error means that the Primary IP is in another location.
    if primary.location != location {
        return refused("primary_ip_datacenter_mismatch", "is in another location");
    }
    if primary.assignee.is_some() {
        return refused("primary_ip_assigned", "is already assigned");
    }
    if primary.blocked {
        return refused("invalid_input", "is blocked");
    }
    Ok(primary.address)
}

/// Answers all requests to `/primary_ips` and to paths below it.
pub fn route(call: &mut Call, rest: &[&str]) -> Result<Reply, ApiError> {
    match (rest, call.method) {
        ([], "GET") => list(call),
        ([], "POST") => create::create(call),
        (["actions", rest @ ..], _) => {
            actions::route_kind(call, "/primary_ips/actions", "primary_ip", rest)
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
            Ok(Reply::ok(text!({"primary_ip": found.json()})))
        }
        ([], "PUT") => update(call, found),
        ([], "DELETE") => delete(call, &found),
        ([], _) => Err(ApiError::wrong_method(call.method)),
        (["actions", command], _) if command.parse::<u64>().is_err() => {
            changes::start(call, &found, command)
        }
        (["actions", rest @ ..], _) => {
            let path = format!("/primary_ips/{id}/actions");
            actions::route_resource(call, &path, found.resource(), rest)
        }
        _ => Err(ApiError::no_such_path()),
    }
}

/// Finds a Primary IP by its ID in the project of the request's API token.
fn find<'c>(call: &'c Call, id: u64) -> Result<&'c PrimaryIp, ApiError> {
    owned::find(call, id)
}

fn list(call: &Call) -> Result<Reply, ApiError> {
    let known = ["name", "label_selector", "ip", "sort", "page", "per_page"];
    let query = Query::new(call.query, &known)?;
    let page = Page::of(&query)?;
    let ip = query.one("ip");
    let has_ip = |primary: &&PrimaryIp| ip.is_none_or(|ip| ip == primary.address.to_string());
    let all = call.world.primary_ips_of(call.project).filter(has_ip);
    let found = owned::select(&query, all)?;
    Ok(page.reply("/primary_ips", "primary_ips", &found, |primary| primary.json()))
}

fn update(call: &mut Call, primary: PrimaryIp) -> Result<Reply, ApiError> {
    let mut fields = Fields::parse(call.body)?;
    let (name, labels) = owned::read_changes(call, &mut fields, &primary)?;
    let auto_delete = fields.flag("auto_delete")?.unwrap_or(primary.auto_delete);
    fields.finish()?;
    let primary = PrimaryIp { name, labels, auto_delete, ..primary };
    let reply = Reply::ok(text!({"primary_ip": primary.json()}));
    call.world.primary_ips.insert(primary.id, primary);
    Ok(reply)
}

fn delete(call: &mut Call, primary: &PrimaryIp) -> Result<Reply, ApiError> {
    if primary.protected {
        return Err(ApiError::protected("primary IP"));
    }
    if primary.assignee.is_some() {
        let message = "primary IP must be unassigned before it is deleted";
        return Err(ApiError::new(422, "must_be_unassigned", message));
    }
    call.world.primary_ips.remove(&primary.id);
    Ok(Reply::no_content())
}
