//! Creates Primary IPs, for a request or for a new server or load balancer that needs an address.

use std::collections::BTreeMap;

use serde_json::Value;

use super::changes::{check_assignable, give};
use super::{Address, PrimaryIp, Version, default_dns_ptr};
use crate::hetzner::actions::Resource;
use crate::hetzner::catalog::Entry;
use crate::hetzner::catalog::locations::Location;
use crate::hetzner::error::ApiError;
use crate::hetzner::input::Fields;
use crate::hetzner::owned;
use crate::hetzner::text::text;
use crate::hetzner::world::World;
use crate::hetzner::{Call, Reply};
use crate::time;

/// Creates a Primary IP that is assigned to `holder`, a server or a load balancer. Returns its ID. The Primary IP is
/// deleted when `holder` is deleted.
pub fn allocate(
    world: &mut World,
    project: u64,
    version: Version,
    location: &'static Location,
    holder: Resource,
) -> Result<u64, ApiError> {
    let id = world.new_id();
    let primary = PrimaryIp {
        name: format!("primary_ip-{id}"),
        assignee: Some(holder),
        auto_delete: true,
        ..fresh(world, id, project, version, location)?
    };
    world.primary_ips.insert(id, primary);
    Ok(id)
}

/// Answers `POST /primary_ips`.
pub fn create(call: &mut Call) -> Result<Reply, ApiError> {
    let (id, server) = read(call)?;
    let action = match server {
        Some(server) => Some(give(call, id, server)?),
        None => None,
    };
    let shown = call.world.primary_ips.get(&id).map(PrimaryIp::json);
    let answer = text!({"primary_ip": shown});
    let action = action.map(|action| call.world.action_json(action));
    Ok(Reply::new(201, answer.and("action", action)))
}

/// Creates a Primary IP that is assigned to nothing, as `POST /primary_ips` with this body would.
pub fn place(world: &mut World, project: u64, body: &Value) -> Result<u64, ApiError> {
    let body = body.to_string();
    let mut call = Call::by_hand(world, project, body.as_bytes());
    read(&mut call).map(|(id, _)| id)
}

/// Adds a Primary IP to the simulated cloud. `shown` is the JSON in which the API shows it.
pub fn put(world: &mut World, project: u64, shown: &Value) -> Result<(), ApiError> {
    let mut fields = Fields::of(shown);
    let text = fields.string("ip")?.unwrap_or_default();
    let address = match (text.parse(), text.parse()) {
        (Ok(ip), _) => Address::V4(ip),
        (_, Ok(range)) => Address::V6(range),
        _ => return Err(fields.invalid("ip", "is neither an IPv4 address nor a /64")),
    };
    world.pool.take(match address {
        Address::V4(ip) => ip.into(),
        Address::V6(range) => range.network().into(),
    });
    let location = Location::find(shown["location"]["name"].as_str().unwrap_or_default());
    let location = fields.required("location", location)?;
    let holder = |id| match shown["assignee_type"] == "load_balancer" {
        true => Resource { kind: "load_balancer", id },
        false => Resource { kind: "server", id },
    };
    let names = shown["dns_ptr"].as_array().into_iter().flatten();
    let names = names.filter_map(|entry| {
        let (ip, name) = (entry["ip"].as_str()?, entry["dns_ptr"].as_str()?);
        Some((ip.parse().ok()?, name.to_owned()))
    });
    let id = world.new_id();
    let primary = PrimaryIp {
        id,
        project,
        name: fields.string("name")?.unwrap_or_default(),
        created: time::timestamp(),
        labels: fields.labels()?.unwrap_or_default(),
        address,
        location,
        assignee: fields.number("assignee_id")?.map(holder),
        auto_delete: fields.flag("auto_delete")?.unwrap_or_default(),
        blocked: fields.flag("blocked")?.unwrap_or_default(),
        protected: shown["protection"]["delete"] == true,
        dns_ptr: names.collect(),
    };
    world.primary_ips.insert(id, primary);
    Ok(())
}

/// Reads a request for a new Primary IP, and creates the Primary IP. Returns its ID, and the ID of the server to which
/// the request assigns it. The second ID is `None` when the request assigns the Primary IP to no server.
fn read(call: &mut Call) -> Result<(u64, Option<u64>), ApiError> {
    let mut fields = Fields::parse(call.body)?;
    let name = owned::read_name::<PrimaryIp>(call, &mut fields)?;
    let version = match fields.word("type", &["ipv4", "ipv6"])? {
        Some("ipv4") => Version::V4,
        Some(_) => Version::V6,
        None => return Err(fields.invalid("type", "is required")),
    };
    let labels = fields.labels()?.unwrap_or_default();
    let auto_delete = fields.flag("auto_delete")?.unwrap_or_default();
    let assignee_type = fields.word("assignee_type", &["server", "load_balancer"])?;
    let server = fields.number("assignee_id")?;
    if server.is_some() && assignee_type == Some("load_balancer") {
        let problem = "a load balancer only gets its primary IPs when it is created";
        return Err(fields.invalid("assignee_id", problem));
    }
    let location = match (fields.id_or_name("location")?, server) {
        (Some(text), None) => Location::find(&text)
            .ok_or_else(|| fields.invalid("location", format!("location '{text}' not found")))?,
        (None, Some(server)) => check_assignable(call, server, version)?,
        (Some(_), Some(_)) => return Err(fields.invalid("location", "excludes assignee_id")),
        (None, None) => return Err(fields.invalid("location", "or assignee_id is required")),
    };
    fields.finish()?;
    let id = call.world.new_id();
    let primary = PrimaryIp {
        name,
        labels,
        auto_delete,
        ..fresh(call.world, id, call.project, version, location)?
    };
    call.world.primary_ips.insert(id, primary);
    Ok((id, server))
}

/// Returns a Primary IP with a public address that is not in use, and with default values in the other fields.
fn fresh(
    world: &mut World,
    id: u64,
    project: u64,
    version: Version,
    location: &'static Location,
) -> Result<PrimaryIp, ApiError> {
    let address = match version {
        Version::V4 => world.pool.ipv4().map(Address::V4),
        Version::V6 => world.pool.ipv6().map(Address::V6),
    };
    let address = address.ok_or_else(|| {
        let message = "no public address is available";
        ApiError::new(412, "resource_unavailable", message)
    })?;
    let dns_ptr = match address {
        Address::V4(ip) => BTreeMap::from([(ip.into(), default_dns_ptr(ip))]),
        Address::V6(_) => BTreeMap::new(),
    };
    Ok(PrimaryIp {
        id,
        project,
        name: String::new(),
        created: time::timestamp(),
        labels: BTreeMap::new(),
        address,
        location,
        assignee: None,
        auto_delete: false,
        blocked: false,
        protected: false,
        dns_ptr,
    })
}
