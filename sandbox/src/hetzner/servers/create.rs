//! Creates servers, for a request or for a test.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use super::private_net::{Wish, reserve};
use super::{Attachment, PublicIpv4, PublicIpv6, Server, Status, check_name, power, set_status};
use crate::hetzner::actions::{Outcome, Resource, Start};
use crate::hetzner::catalog::Entry;
use crate::hetzner::catalog::images::Image;
use crate::hetzner::catalog::locations::Location;
use crate::hetzner::catalog::server_types::{Offer, ServerType};
use crate::hetzner::error::ApiError;
use crate::hetzner::input::Fields;
use crate::hetzner::labels::Labels;
use crate::hetzner::others::{firewalls, ssh_keys};
use crate::hetzner::primary_ips::{self, Address, Version};
use crate::hetzner::text::{Text, text};
use crate::hetzner::world::World;
use crate::hetzner::{Call, Reply};
use crate::time;

const CREATE_TAKES: Duration = Duration::from_millis(2000);
/// The largest size of `user_data` in bytes.
const MAX_USER_DATA: usize = 32 * 1024;

/// A server that a test adds without a request.
#[derive(Clone, Debug)]
pub struct ServerSpec {
    pub name: String,
    /// The name of the server's type. Types that are no longer sold are also allowed.
    pub server_type: String,
    pub location: String,
    pub image: String,
    pub ipv4: bool,
    pub ipv6: bool,
    /// The IDs of the server's networks, each with the server's private address. `None` means the lowest free address.
    pub networks: Vec<(u64, Option<IpAddr>)>,
    pub labels: BTreeMap<String, String>,
}

impl Default for ServerSpec {
    fn default() -> ServerSpec {
        ServerSpec {
            name: "server".into(),
            server_type: "cx22".into(),
            location: "fsn1".into(),
            image: "ubuntu-24.04".into(),
            ipv4: true,
            ipv6: true,
            networks: Vec::new(),
            labels: BTreeMap::new(),
        }
    }
}

/// A checked request for a new server.
struct Order {
    name: String,
    server_type: &'static ServerType,
    location: &'static Location,
    image: &'static Image,
    labels: Labels,
    networks: Vec<u64>,
    firewalls: Vec<u64>,
    has_ssh_keys: bool,
    ipv4: Public,
    ipv6: Public,
    start_after_create: bool,
}

/// The source of a new server's public IPv4 address or IPv6 range. `None` means that the server gets no such address,
/// and `New` means that a Primary IP is created for it.
#[derive(Clone, Copy, PartialEq)]
enum Public {
    None,
    New,
    /// The server gets the address of the existing Primary IP with this ID.
    Existing(u64),
}

/// Adds a running server to the simulated cloud, without an action. The limit on servers in a network is not checked.
pub fn place(world: &mut World, project: u64, spec: ServerSpec) -> Result<u64, ApiError> {
    let unknown =
        |field: &str, value: &str| ApiError::invalid(field, format!("'{value}' not found"));
    let server_type = ServerType::find(&spec.server_type)
        .ok_or_else(|| unknown("server_type", &spec.server_type))?;
    let fields = Fields::parse(b"")?;
    let order = Order {
        name: check_name(world, project, &fields, spec.name, None)?,
        server_type,
        location: Location::find(&spec.location)
            .ok_or_else(|| unknown("location", &spec.location))?,
        image: Image::find_for(&spec.image, server_type.architecture)
            .ok_or_else(|| unknown("image", &spec.image))?,
        labels: spec.labels,
        networks: Vec::new(),
        firewalls: Vec::new(),
        has_ssh_keys: false,
        ipv4: if spec.ipv4 { Public::New } else { Public::None },
        ipv6: if spec.ipv6 { Public::New } else { Public::None },
        start_after_create: true,
    };
    let mut server = build(world, project, order)?;
    server.status = Status::Running;
    for (network, ip) in spec.networks {
        let ip = match ip {
            None => None,
            Some(IpAddr::V4(ip)) => Some(ip),
            Some(IpAddr::V6(ip)) => {
                return Err(ApiError::invalid("ip", format!("{ip} is no IPv4 address")));
            }
        };
        let wish = Wish { network, ip, ip_range: None, alias_ips: Vec::new() };
        let attachment = reserve(world, &server, wish, usize::MAX)?;
        server.private_net.push(attachment);
        if let Some(network) = world.networks.get_mut(&network) {
            network.servers.insert(server.id);
        }
    }
    let id = server.id;
    world.servers.insert(id, server);
    Ok(id)
}

/// Answers `POST /servers`.
pub fn create(call: &mut Call) -> Result<Reply, ApiError> {
    let mut fields = Fields::parse(call.body)?;
    refuse_unserved(&mut fields)?;
    let order = read_order(call, &mut fields)?;
    fields.finish()?;

    let networks = order.networks.clone();
    let starts = order.start_after_create;
    let has_ssh_keys = order.has_ssh_keys;
    let server = build(call.world, call.project, order)?;
    let id = server.id;
    let attachments = reserve_all(call.world, &server, networks)?;
    let (project, resource) = (call.project, server.resource());
    call.world.servers.insert(id, server);
    let start = Start {
        project,
        command: "create_server",
        resources: &[resource],
        takes: CREATE_TAKES,
        after: None,
    };
    let action = call
        .world
        .start_action(start, move |world, outcome| complete(world, id, attachments, outcome));
    let next = starts.then(|| power::start_after(call.world, project, resource, action));

    let server = call.world.servers.get(&id).map(|server| server.json(call.world));
    let next: Vec<Text> = next.iter().map(|action| call.world.action_json(*action)).collect();
    // The answer contains a password only when the request has no SSH key, as in the real API. The password is as long
    // as a real one, but nobody can log in with it.
    let root_password = (!has_ssh_keys).then(|| call.world.new_correlation_id()[..20].to_owned());
    Ok(Reply::new(
        201,
        text!({
            "server": server, "action": call.world.action_json(action), "next_actions": next,
            "root_password": root_password,
        }),
    ))
}

/// Ends the action `create_server`: attaches the server to its networks and gives it the status `off`. When the action
/// has failed, the server is removed.
fn complete(world: &mut World, id: u64, attachments: Vec<Attachment>, outcome: Outcome) {
    if outcome == Outcome::Failure {
        return super::remove(world, id);
    }
    set_status(world, id, Status::Off);
    for attachment in attachments {
        super::private_net::connect(world, id, attachment);
    }
}

/// Reserves an address in each of these networks for a new server. When this fails for one network, the server is
/// removed and all its addresses are released.
fn reserve_all(
    world: &mut World,
    server: &Server,
    networks: Vec<u64>,
) -> Result<Vec<Attachment>, ApiError> {
    let mut planned = server.clone();
    for network in networks {
        let wish = Wish { network, ip: None, ip_range: None, alias_ips: Vec::new() };
        match reserve(world, &planned, wish, crate::hetzner::networks::MAX_ATTACHED) {
            Ok(attachment) => planned.private_net.push(attachment),
            Err(error) => {
                super::remove(world, server.id);
                return Err(error);
            }
        }
    }
    Ok(planned.private_net)
}

/// Returns an error when the request contains a volume or a placement group, because the simulation does not have such
/// resources.
fn refuse_unserved(fields: &mut Fields) -> Result<(), ApiError> {
    let missing = |kind: &str, id: &dyn std::fmt::Display| Err(ApiError::not_found(kind, id));
    if let Some(first) = fields.list("volumes")?.unwrap_or_default().first() {
        return missing("volume", first);
    }
    if let Some(id) = fields.number("placement_group")? {
        return missing("placement_group", &id);
    }
    fields.flag("automount").map(drop)
}

fn read_order(call: &Call, fields: &mut Fields) -> Result<Order, ApiError> {
    let name = fields.string("name")?;
    let name = check_name(call.world, call.project, fields, fields.required("name", name)?, None)?;
    let text = fields.id_or_name("server_type")?;
    let text = fields.required("server_type", text)?;
    let unknown = || fields.invalid("server_type", format!("server type '{text}' not found"));
    let server_type = ServerType::find(&text).ok_or_else(unknown)?;
    let location = read_location(fields, server_type)?;
    let text = fields.id_or_name("image")?;
    let text = fields.required("image", text)?;
    let image = Image::find_for(&text, server_type.architecture);
    let image =
        image.ok_or_else(|| fields.invalid("image", format!("image '{text}' not found")))?;
    if fields.string("user_data")?.is_some_and(|data| data.len() > MAX_USER_DATA) {
        return Err(
            fields.invalid("user_data", format!("must not be longer than {MAX_USER_DATA} bytes"))
        );
    }
    let networks = fields.numbers("networks")?;
    let start_after_create = fields.flag("start_after_create")?.unwrap_or(true);
    let (ipv4, ipv6) = read_public_net(call, fields, location)?;
    let is_private = [ipv4, ipv6] == [Public::None; 2];
    if is_private && networks.is_empty() && start_after_create {
        return Err(fields
            .invalid("public_net", "a server needs a public or a private network to be started"));
    }
    let labels = fields.labels()?.unwrap_or_default();
    let has_ssh_keys = read_ssh_keys(call, fields)?;
    let firewalls = read_firewalls(call, fields)?;
    Ok(Order {
        name,
        server_type,
        location,
        image,
        labels,
        networks,
        firewalls,
        has_ssh_keys,
        ipv4,
        ipv6,
        start_after_create,
    })
}

/// Reads the IDs or names of SSH keys in a request, and returns whether there are any. The keys are not stored, because
/// the API does not show them in the server's JSON.
fn read_ssh_keys(call: &Call, fields: &mut Fields) -> Result<bool, ApiError> {
    let keys = fields.list("ssh_keys")?.unwrap_or_default();
    for key in &keys {
        let text = key.as_str().map_or_else(|| key.to_string(), str::to_owned);
        if ssh_keys::find(call, &text).is_none() {
            return Err(ApiError::not_found("ssh_key", text));
        }
    }
    Ok(!keys.is_empty())
}

fn read_firewalls(call: &Call, fields: &mut Fields) -> Result<Vec<u64>, ApiError> {
    let read = |mut one: Fields| {
        let id = one.number("firewall")?;
        let id = one.required("firewall", id)?;
        one.finish()?;
        firewalls::find(call, id).map(|firewall| firewall.id)
    };
    fields.objects("firewalls")?.into_iter().map(read).collect()
}

/// Returns the location in a request. When the request has no location, returns the first location where the server
/// type is sold.
fn read_location(
    fields: &mut Fields,
    server_type: &ServerType,
) -> Result<&'static Location, ApiError> {
    if fields.id_or_name("datacenter")?.is_some() {
        return Err(fields.invalid("datacenter", "was removed on 2026-07-01, use location"));
    }
    let asked = match fields.id_or_name("location")? {
        Some(text) => {
            let found = Location::find(&text);
            Some(found.ok_or_else(|| {
                fields.invalid("location", format!("location '{text}' not found"))
            })?)
        }
        None => None,
    };
    let is_possible = |offer: &&Offer| asked.is_none_or(|location| location.name == offer.location);
    let mut possible = server_type.offers.iter().filter(is_possible).peekable();
    if possible.peek().is_none() {
        return Err(ApiError::new(422, "invalid_input", "unsupported location for server type"));
    }
    let sold = possible.find(|offer| offer.is_sold());
    let sold = sold.and_then(|offer| Location::find(offer.location));
    sold.ok_or_else(|| {
        ApiError::new(422, "invalid_input", format!("server type {} is deprecated", server_type.id))
    })
}

/// Reads the field `public_net` of a request. Returns where the new server's IPv4 address comes from, and where its
/// IPv6 range comes from.
fn read_public_net(
    call: &Call,
    fields: &mut Fields,
    location: &'static Location,
) -> Result<(Public, Public), ApiError> {
    let Some(mut public) = fields.object("public_net")? else {
        return Ok((Public::New, Public::New));
    };
    let mut read = |enable: &str, name: &str, version| {
        let enabled = public.flag(enable)?.unwrap_or(true);
        match public.number(name)? {
            Some(_) if !enabled => Err(public.invalid(name, format!("excludes {enable}"))),
            Some(id) => {
                primary_ips::check_free(call, id, version, location)?;
                Ok(Public::Existing(id))
            }
            None if enabled => Ok(Public::New),
            None => Ok(Public::None),
        }
    };
    let found =
        (read("enable_ipv4", "ipv4", Version::V4)?, read("enable_ipv6", "ipv6", Version::V6)?);
    public.finish()?;
    Ok(found)
}

/// Assigns a new or an existing Primary IP to a new server. Returns the ID and the address of the Primary IP. Returns
/// `None` when the request says that the server gets no public address of this IP version.
fn obtain(
    world: &mut World,
    project: u64,
    location: &'static Location,
    holder: Resource,
    (wanted, version): (Public, Version),
) -> Result<Option<(u64, Address)>, ApiError> {
    let id = match wanted {
        Public::None => return Ok(None),
        Public::New => primary_ips::allocate(world, project, version, location, holder)?,
        Public::Existing(id) => {
            primary_ips::assign(world, id, holder);
            id
        }
    };
    let primary = world.primary_ips.get(&id);
    Ok(primary.map(|primary| (id, primary.address)))
}

fn build(world: &mut World, project: u64, order: Order) -> Result<Server, ApiError> {
    let id = world.new_id();
    let holder = Resource { kind: "server", id };
    let mut obtain = |wanted| obtain(world, project, order.location, holder, wanted);
    let ipv4 = match obtain((order.ipv4, Version::V4))? {
        Some((id, Address::V4(ip))) => Some(PublicIpv4 { id, ip }),
        _ => None,
    };
    let ipv6 = match obtain((order.ipv6, Version::V6))? {
        Some((id, Address::V6(network))) => Some(PublicIpv6 { id, network }),
        _ => None,
    };
    Ok(Server {
        id,
        project,
        name: order.name,
        created: time::timestamp(),
        status: Status::Initializing,
        labels: order.labels,
        server_type: order.server_type,
        location: order.location,
        image: order.image,
        ipv4,
        ipv6,
        private_net: Vec::new(),
        firewalls: order.firewalls,
        protected: false,
        status_since: time::now(),
        edited: Default::default(),
    })
}
