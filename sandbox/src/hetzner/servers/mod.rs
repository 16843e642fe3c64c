//! Answers requests to `/servers`, the virtual machines with their addresses and their state.

mod create;
mod edit;
mod lifecycle;
mod power;
mod private_net;

use std::net::Ipv4Addr;
use std::time::Instant;

pub use self::create::{ServerSpec, place};
pub use self::edit::edit;
pub use self::lifecycle::{remove, remove_without_targets};
use super::actions::{self, Resource};
use super::catalog::id;
use super::catalog::images::Image;
use super::catalog::locations::Location;
use super::catalog::server_types::ServerType;
use super::clock::show;
use super::error::ApiError;
use super::input::{Fields, Query};
use super::labels::{Labels, is_dns_label};
use super::listing::Page;
use super::load_balancers;
use super::overlay::Overlay;
use super::owned;
use super::primary_ips::Address;
use super::world::World;
use super::{Call, Reply};
use crate::hetzner::text::{Text, text};
use crate::time;
use ipnet::Ipv6Net;
use jiff::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Status {
    Running,
    Initializing,
    Starting,
    Stopping,
    Off,
    Deleting,
    Migrating,
    Rebuilding,
    Unknown,
}

const STATUSES: [(Status, &str); 9] = [
    (Status::Running, "running"),
    (Status::Initializing, "initializing"),
    (Status::Starting, "starting"),
    (Status::Stopping, "stopping"),
    (Status::Off, "off"),
    (Status::Deleting, "deleting"),
    (Status::Migrating, "migrating"),
    (Status::Rebuilding, "rebuilding"),
    (Status::Unknown, "unknown"),
];

#[derive(Clone, Debug)]
pub struct Server {
    pub id: u64,
    pub project: u64,
    pub name: String,
    pub created: Timestamp,
    status: Status,
    pub labels: Labels,
    pub server_type: &'static ServerType,
    pub location: &'static Location,
    pub image: &'static Image,
    pub ipv4: Option<PublicIpv4>,
    pub ipv6: Option<PublicIpv6>,
    pub private_net: Vec<Attachment>,
    /// The IDs of the server's firewalls.
    pub firewalls: Vec<u64>,
    /// Whether the server is protected against deletion and against rebuilding. The API allows only that both
    /// protections are on or both are off.
    pub protected: bool,
    /// The time at which the server got its present status.
    pub status_since: Instant,
    /// The values that a test has set in the server's JSON and that no other field of this struct stores. The key is
    /// the name of a top-level field of the JSON.
    edited: Overlay,
}

/// A public IPv4 address, with the ID of its Primary IP.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PublicIpv4 {
    pub id: u64,
    pub ip: Ipv4Addr,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PublicIpv6 {
    pub id: u64,
    /// The server's IPv6 range, a /64. The server itself uses the first host address of the range.
    pub network: Ipv6Net,
}

/// A server's interface in a private network.
#[derive(Clone, Debug, PartialEq)]
pub struct Attachment {
    pub network: u64,
    pub ip: Ipv4Addr,
    pub alias_ips: Vec<Ipv4Addr>,
    pub mac_address: String,
}

impl Status {
    pub fn parse(text: &str) -> Option<Status> {
        STATUSES.iter().find(|(_, name)| *name == text).map(|(status, _)| *status)
    }

    pub fn name(self) -> &'static str {
        STATUSES.iter().find(|(status, _)| *status == self).map_or("unknown", |(_, name)| name)
    }
}

owned::owned!(Server, "server", servers);

impl Server {
    pub fn resource(&self) -> Resource {
        Resource { kind: "server", id: self.id }
    }

    pub fn set_status(&mut self, status: Status) {
        if self.status != status {
            self.status_since = time::now();
        }
        self.status = status;
        self.edited.forget("status");
    }

    pub fn attachment(&self, network: u64) -> Option<&Attachment> {
        self.private_net.iter().find(|attachment| attachment.network == network)
    }

    /// Returns the server as the API shows it.
    pub fn json(&self, world: &World) -> Text {
        self.edited.over(self.plain_json(world))
    }

    pub fn is_off(&self) -> bool {
        self.status == Status::Off
    }

    pub fn is_running(&self) -> bool {
        self.status == Status::Running
    }

    /// Returns the JSON of the server as the simulation computes it. The values that a test has set in `edited` are not
    /// used.
    fn plain_json(&self, world: &World) -> Text {
        let locked = world.is_locked(self.resource());
        let firewall = |id: &u64| text!({"id": id, "status": "applied"});
        text!({
            "id": self.id, "name": self.name, "status": self.status.name(), "created": show(self.created),
            "public_net": {
                "ipv4": self.ipv4.map(|ipv4| ipv4.json()), "ipv6": self.ipv6.map(|ipv6| ipv6.json()),
                "floating_ips": [], "firewalls": self.firewalls.iter().map(firewall).collect::<Vec<_>>(),
            },
            "private_net": self.private_net.iter().map(Attachment::json).collect::<Vec<_>>(),
            "server_type": self.server_type.json(), "location": self.location.json(), "image": self.image.json(),
            "iso": null, "rescue_enabled": false, "locked": locked, "backup_window": null,
            "outgoing_traffic": 0, "ingoing_traffic": 0, "included_traffic": self.included_traffic(),
            "protection": {"delete": self.protected, "rebuild": self.protected}, "labels": self.labels,
            "volumes": [], "load_balancers": load_balancers::with_target(world, self), "primary_disk_size": self.server_type.disk_gb,
            "placement_group": null,
        })
    }

    /// Returns how many bytes of traffic the server can use each month without extra cost. Returns `None` when the
    /// server's type is not offered in its location.
    fn included_traffic(&self) -> Option<u64> {
        let mut offers = self.server_type.offers.iter();
        offers
            .find(|offer| offer.location == self.location.name)
            .map(|offer| offer.included_traffic())
    }
}

impl PublicIpv4 {
    fn json(self) -> Text {
        let [a, b, c, d] = self.ip.octets();
        let dns_ptr = format!("static.{d}.{c}.{b}.{a}.clients.your-server.de");
        text!({"id": self.id, "ip": self.ip.to_string(), "blocked": false, "dns_ptr": dns_ptr})
    }
}

impl PublicIpv6 {
    fn json(self) -> Text {
        text!({"id": self.id, "ip": self.network.to_string(), "blocked": false, "dns_ptr": []})
    }
}

impl Attachment {
    /// Creates the interface of a server in a network. Its MAC address is computed from the IDs of the network and the
    /// server.
    pub fn new(network: u64, server: u64, ip: Ipv4Addr, alias_ips: Vec<Ipv4Addr>) -> Attachment {
        let [.., a, b, c] = server.to_be_bytes();
        let mac_address = format!("86:00:{:02x}:{a:02x}:{b:02x}:{c:02x}", network & 0xff);
        Attachment { network, ip, alias_ips, mac_address }
    }

    fn json(&self) -> Text {
        text!({
            "network": self.network, "ip": self.ip.to_string(), "mac_address": self.mac_address,
            "alias_ips": self.alias_ips.iter().map(Ipv4Addr::to_string).collect::<Vec<_>>(),
        })
    }
}

/// Answers all requests to `/servers` and to paths below it.
pub fn route(call: &mut Call, rest: &[&str]) -> Result<Reply, ApiError> {
    match (rest, call.method) {
        ([], "GET") => list(call),
        ([], "POST") => create::create(call),
        (["actions", rest @ ..], _) => {
            actions::route_kind(call, "/servers/actions", "server", rest)
        }
        ([segment, rest @ ..], _) => route_server(call, id(segment)?, rest),
        _ => Err(ApiError::wrong_method(call.method)),
    }
}

fn route_server(call: &mut Call, id: u64, rest: &[&str]) -> Result<Reply, ApiError> {
    let server = find(call, id)?.clone();
    match (rest, call.method) {
        ([], "GET") => {
            call.refuse_query()?;
            Ok(Reply::ok(text!({"server": server.json(call.world)})))
        }
        ([], "PUT") => update(call, &server),
        ([], "DELETE") => lifecycle::delete(call, &server),
        ([], _) => Err(ApiError::wrong_method(call.method)),
        (["actions", command], _) if command.parse::<u64>().is_err() => {
            start(call, &server, command)
        }
        (["actions", rest @ ..], _) => {
            let path = format!("/servers/{id}/actions");
            actions::route_resource(call, &path, server.resource(), rest)
        }
        _ => Err(ApiError::no_such_path()),
    }
}

/// Answers `POST /servers/{id}/actions/{command}`, which starts the action `command` on the server. An unknown command
/// gets the error for an unknown path.
fn start(call: &mut Call, server: &Server, command: &str) -> Result<Reply, ApiError> {
    let begin: fn(&mut Call, &Server) -> Result<Reply, ApiError> = match command {
        "poweron" => power::on,
        "poweroff" => power::off,
        "reboot" => power::reboot,
        "reset" => power::reset,
        "shutdown" => power::shutdown,
        "attach_to_network" => private_net::attach,
        "detach_from_network" => private_net::detach,
        "change_alias_ips" => private_net::change_alias_ips,
        "change_protection" => lifecycle::change_protection,
        _ => return Err(ApiError::no_such_path()),
    };
    if call.method != "POST" {
        return Err(ApiError::wrong_method(call.method));
    }
    begin(call, server)
}

/// Gives the address of a Primary IP to a server. `id` is the ID of the Primary IP. Nothing happens when there is no
/// such server.
pub fn set_address(world: &mut World, server: u64, id: u64, address: Address) {
    if let Some(server) = world.servers.get_mut(&server) {
        match address {
            Address::V4(ip) => server.ipv4 = Some(PublicIpv4 { id, ip }),
            Address::V6(network) => server.ipv6 = Some(PublicIpv6 { id, network }),
        }
        server.edited.forget("public_net");
    }
}

/// Removes the server's public address that has the same IP version as `address`.
pub fn drop_address(world: &mut World, server: u64, address: Address) {
    if let Some(server) = world.servers.get_mut(&server) {
        match address {
            Address::V4(_) => server.ipv4 = None,
            Address::V6(_) => server.ipv6 = None,
        }
        server.edited.forget("public_net");
    }
}

/// Finds a server by its ID in the project of the request's API token.
pub fn find<'c>(call: &'c Call, id: u64) -> Result<&'c Server, ApiError> {
    owned::find(call, id)
}

fn list(call: &Call) -> Result<Reply, ApiError> {
    let query =
        Query::new(call.query, &["name", "label_selector", "status", "sort", "page", "per_page"])?;
    let page = Page::of(&query)?;
    let status = |text| {
        Status::parse(text)
            .ok_or_else(|| ApiError::invalid("status", format!("unknown status '{text}'")))
    };
    let statuses = query.all("status").map(status).collect::<Result<Vec<_>, _>>()?;
    let has_status = |server: &&Server| statuses.is_empty() || statuses.contains(&server.status);
    let all = call.world.servers_of(call.project).filter(has_status);
    let found = owned::select(&query, all)?;
    Ok(page.reply("/servers", "servers", &found, |server| server.json(call.world)))
}

fn update(call: &mut Call, server: &Server) -> Result<Reply, ApiError> {
    let mut fields = Fields::parse(call.body)?;
    let name = match fields.string("name")? {
        Some(name) => check_name(call.world, call.project, &fields, name, Some(server.id))?,
        None => server.name.clone(),
    };
    let labels = fields.labels()?.unwrap_or_else(|| server.labels.clone());
    fields.finish()?;

    let mut changed = Server { name, labels, ..server.clone() };
    changed.edited.forget("name");
    changed.edited.forget("labels");
    let reply = Reply::ok(text!({"server": changed.json(call.world)}));
    call.world.servers.insert(server.id, changed);
    Ok(reply)
}

/// Sets the status of a server. Nothing happens when there is no such server.
fn set_status(world: &mut World, id: u64, status: Status) {
    if let Some(server) = world.servers.get_mut(&id) {
        server.set_status(status);
    }
}

fn check_unlocked(call: &Call, server: &Server) -> Result<(), ApiError> {
    if call.world.is_locked(server.resource()) { Err(ApiError::locked("server")) } else { Ok(()) }
}

/// Checks the name of a server. The name must be a host name by RFC 1123, and no other server of the project may have
/// the same name.
fn check_name(
    world: &World,
    project: u64,
    fields: &Fields,
    name: String,
    own: Option<u64>,
) -> Result<String, ApiError> {
    if name.len() > 253 || !name.split('.').all(is_dns_label) {
        return Err(fields.invalid("name", "must be a host name as in RFC 1123"));
    }
    if world.servers_of(project).any(|server| server.name == name && Some(server.id) != own) {
        return Err(ApiError::name_taken("server"));
    }
    Ok(name)
}
