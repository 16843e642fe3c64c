//! Answers requests to `/firewalls`, the rules for packets on the public interfaces of servers. The simulation checks
//! and shows the rules, but filters no packets.
//!
//! A server gets its firewalls only when it is created. Applying a firewall to an existing server or to labels is not
//! implemented.

use ipnet::IpNet;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::hetzner::catalog::id;
use crate::hetzner::clock::show;
use crate::hetzner::error::ApiError;
use crate::hetzner::input::Fields;
use crate::hetzner::labels::Labels;
use crate::hetzner::owned;
use crate::hetzner::text::{Text, text};
use crate::hetzner::world::World;
use crate::hetzner::{Call, Reply};
use crate::time;

#[derive(Clone, Debug)]
pub struct Firewall {
    pub id: u64,
    pub project: u64,
    pub name: String,
    created: Timestamp,
    pub labels: Labels,
    /// The rules of the firewall, in the JSON format of the API.
    rules: Vec<Value>,
}

owned::owned!(Firewall, "firewall", firewalls);

impl Firewall {
    fn json(&self, world: &World) -> Text {
        let applied_to = self.servers(world);
        let applied_to = applied_to.map(|id| text!({"type": "server", "server": {"id": id}}));
        text!({
            "id": self.id, "name": self.name, "created": show(self.created), "labels": self.labels,
            "rules": self.rules, "applied_to": applied_to.collect::<Vec<_>>(),
        })
    }

    /// Returns the IDs of the servers to which the firewall is applied.
    fn servers(&self, world: &World) -> impl Iterator<Item = u64> {
        world
            .servers_of(self.project)
            .filter(|server| server.firewalls.contains(&self.id))
            .map(|server| server.id)
    }
}

/// Answers all requests to `/firewalls` and to paths below it.
pub fn route(call: &mut Call, rest: &[&str]) -> Result<Reply, ApiError> {
    match (rest, call.method) {
        ([], "GET") => owned::list(call, "firewalls", |one: &Firewall| one.json(call.world)),
        ([], "POST") => create(call),
        ([segment], _) => route_one(call, id(segment)?),
        ([], _) => Err(ApiError::wrong_method(call.method)),
        _ => Err(ApiError::no_such_path()),
    }
}

fn route_one(call: &mut Call, id: u64) -> Result<Reply, ApiError> {
    let found = find(call, id)?.clone();
    match call.method {
        "GET" => {
            call.refuse_query()?;
            Ok(Reply::ok(text!({"firewall": found.json(call.world)})))
        }
        "PUT" => update(call, found),
        "DELETE" => delete(call, &found),
        method => Err(ApiError::wrong_method(method)),
    }
}

/// Finds a firewall by its ID in the project of the request's API token.
pub fn find<'c>(call: &'c Call, id: u64) -> Result<&'c Firewall, ApiError> {
    owned::find(call, id)
}

fn create(call: &mut Call) -> Result<Reply, ApiError> {
    let mut fields = Fields::parse(call.body)?;
    let name = owned::read_name::<Firewall>(call, &mut fields)?;
    let labels = fields.labels()?.unwrap_or_default();
    let rules = fields.objects("rules")?.into_iter().map(read_rule);
    let rules = rules.collect::<Result<Vec<_>, _>>()?;
    if !fields.list("apply_to")?.unwrap_or_default().is_empty() {
        return Err(fields.invalid("apply_to", "is not served here"));
    }
    fields.finish()?;
    let firewall = Firewall {
        id: call.world.new_id(),
        project: call.project,
        name,
        created: time::timestamp(),
        labels,
        rules,
    };
    let shown = firewall.json(call.world);
    call.world.firewalls.insert(firewall.id, firewall);
    Ok(Reply::new(201, text!({"firewall": shown, "actions": []})))
}

/// Reads a firewall rule from a request and returns its JSON. Only rules for TCP and UDP have ports. A rule for
/// incoming packets has the addresses of sources, and a rule for outgoing packets has the addresses of destinations.
fn read_rule(mut fields: Fields) -> Result<Value, ApiError> {
    let direction = fields.word("direction", &["in", "out"])?;
    let direction = fields.required("direction", direction)?;
    let protocol = fields.word("protocol", &["tcp", "udp", "icmp", "esp", "gre"])?;
    let protocol = fields.required("protocol", protocol)?;
    let port = fields.string("port")?;
    let has_ports = matches!(protocol, "tcp" | "udp");
    if has_ports != port.is_some() {
        return Err(fields.invalid("port", "belongs to tcp and udp, which need it"));
    }
    if port.as_deref().is_some_and(|port| !is_ports(port)) {
        return Err(fields.invalid("port", "must be a port, two with a dash, or any"));
    }
    let sources = read_ranges(&mut fields, "source_ips")?;
    let destinations = read_ranges(&mut fields, "destination_ips")?;
    let (needed, other, name) = match direction {
        "in" => (&sources, &destinations, "source_ips"),
        _ => (&destinations, &sources, "destination_ips"),
    };
    if needed.is_empty() || !other.is_empty() {
        return Err(fields.invalid(name, format!("is what direction {direction} has")));
    }
    let description = fields.string("description")?;
    fields.finish()?;
    Ok(json!({
        "direction": direction, "protocol": protocol, "port": port, "source_ips": sources,
        "destination_ips": destinations, "description": description,
    }))
}

fn is_ports(text: &str) -> bool {
    let is_port = |text: &str| text.parse::<u16>().is_ok_and(|port| port > 0);
    text == "any" || text.split('-').count() <= 2 && text.split('-').all(is_port)
}

/// Reads a field with a list of CIDRs, whose host bits must be zero.
fn read_ranges(fields: &mut Fields, name: &str) -> Result<Vec<String>, ApiError> {
    let ranges = fields.strings(name)?.unwrap_or_default();
    let is_range = |text: &&String| text.parse::<IpNet>().is_ok_and(|net| net.trunc() == net);
    match ranges.iter().find(|range| !is_range(range)) {
        Some(wrong) => Err(fields.invalid(name, format!("'{wrong}' is no range"))),
        None => Ok(ranges),
    }
}

fn update(call: &mut Call, firewall: Firewall) -> Result<Reply, ApiError> {
    let mut fields = Fields::parse(call.body)?;
    let (name, labels) = owned::read_changes(call, &mut fields, &firewall)?;
    fields.finish()?;
    let firewall = Firewall { name, labels, ..firewall };
    let reply = Reply::ok(text!({"firewall": firewall.json(call.world)}));
    call.world.firewalls.insert(firewall.id, firewall);
    Ok(reply)
}

fn delete(call: &mut Call, firewall: &Firewall) -> Result<Reply, ApiError> {
    if firewall.servers(call.world).next().is_some() {
        let message = "firewall is still used by a server";
        return Err(ApiError::new(422, "resource_in_use", message));
    }
    call.world.firewalls.remove(&firewall.id);
    Ok(Reply::no_content())
}
