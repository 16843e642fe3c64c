//! Creates load balancers, for a request or for a test. One request contains all services and targets of the new load
//! balancer.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::{ALGORITHMS, LoadBalancer, PrivateNet, Service, Target, remove};
use crate::hetzner::actions::Outcome;
use crate::hetzner::catalog::Entry;
use crate::hetzner::catalog::load_balancer_types::LoadBalancerType;
use crate::hetzner::catalog::locations::Location;
use crate::hetzner::error::ApiError;
use crate::hetzner::input::Fields;
use crate::hetzner::networks::{self, MAX_ATTACHED};
use crate::hetzner::owned;
use crate::hetzner::primary_ips::{self, Version};
use crate::hetzner::text::text;
use crate::hetzner::world::World;
use crate::hetzner::{Call, Reply};
use crate::time;

const TAKES: Duration = Duration::from_millis(2000);

/// A checked request for a new load balancer. `planned` is the new load balancer. It has no public addresses until
/// [`build`] gives it its Primary IPs.
struct Order {
    planned: LoadBalancer,
    /// The ID of the Primary IP that the request wants as the public IPv4 address. `None` means that a new Primary IP
    /// is created. The field `ipv6` is the same for the IPv6 range.
    ipv4: Option<u64>,
    ipv6: Option<u64>,
}

/// Answers `POST /load_balancers`.
pub fn create(call: &mut Call) -> Result<Reply, ApiError> {
    let order = read(call)?;
    let private_net = order.planned.private_net;
    let id = build(call.world, order)?;
    // A load balancer has its private interface only after the action `create_load_balancer` has ended. The interface
    // is therefore removed here, and added again when the action ends. Its address stays reserved in the network.
    if let Some(one) = call.world.load_balancers.get_mut(&id) {
        one.private_net = None;
    }
    let effect = move |world: &mut World, outcome| {
        if outcome == Outcome::Failure {
            remove(world, id);
        } else if let Some(net) = private_net {
            connect(world, id, net);
        }
    };
    let action = call.run("create_load_balancer", TAKES, &[super::resource(id)], effect);
    let created = call.world.load_balancers.get(&id);
    let created = created.map(|one| one.json(call.world));
    Ok(Reply::new(201, text!({"load_balancer": created, "action": call.world.action_json(action)})))
}

/// Creates a load balancer as `POST /load_balancers` with this body would, but without an action: the load balancer is
/// complete at once.
pub fn place(world: &mut World, project: u64, body: &Value) -> Result<u64, ApiError> {
    let body = body.to_string();
    let call = Call::by_hand(world, project, body.as_bytes());
    let order = read(&call)?;
    let private_net = order.planned.private_net;
    let id = build(world, order)?;
    if let Some(net) = private_net {
        connect(world, id, net);
    }
    Ok(id)
}

/// Attaches a load balancer to a network in which its address was reserved before. Nothing happens when the load
/// balancer or the network no longer exists.
pub fn connect(world: &mut World, id: u64, net: PrivateNet) {
    let network = world.networks.get_mut(&net.network);
    let (Some(one), Some(network)) = (world.load_balancers.get_mut(&id), network) else {
        return;
    };
    network.load_balancers.insert(id);
    one.private_net = Some(net);
    one.edited.forget("private_net");
}

fn read(call: &Call) -> Result<Order, ApiError> {
    let mut fields = Fields::parse(call.body)?;
    let name = owned::read_name::<LoadBalancer>(call, &mut fields)?;
    let size = read_size(call.world, &mut fields)?;
    let location = read_location(&mut fields)?;
    let mut planned = LoadBalancer {
        name,
        labels: fields.labels()?.unwrap_or_default(),
        algorithm: read_algorithm(&mut fields)?,
        public_enabled: fields.flag("public_interface")?.unwrap_or(true),
        ..LoadBalancer::new(call.project, location, size)
    };
    if let Some(id) = fields.number("network")? {
        planned.private_net = Some(read_network(call, location, id)?);
    }
    let (ipv4, ipv6) = read_public_net(call, &mut fields, location)?;
    for entry in fields.objects("services")? {
        let service = Service::read(entry)?;
        let port = service.listen_port;
        if planned.services.iter().any(|other| other.listen_port == port) {
            return Err(super::service::port_used(port));
        }
        service.check(call.world, &planned)?;
        planned.services.push(service);
    }
    for entry in fields.objects("targets")? {
        let target = Target::read(entry)?;
        target.check(call.world, &planned)?;
        planned.targets.push(target);
    }
    fields.finish()?;
    check_room(call, &planned)?;
    Ok(Order { planned, ipv4, ipv6 })
}

impl LoadBalancer {
    /// Returns a load balancer without services and targets. Its ID is 0, and it has no public addresses.
    pub fn new(
        project: u64,
        location: &'static Location,
        size: &'static LoadBalancerType,
    ) -> LoadBalancer {
        LoadBalancer {
            id: 0,
            project,
            name: String::new(),
            created: time::timestamp(),
            labels: Default::default(),
            size,
            location,
            algorithm: ALGORITHMS[0],
            services: Vec::new(),
            targets: Vec::new(),
            private_net: None,
            public_enabled: true,
            ipv4: 0,
            ipv6: 0,
            protected: false,
            health: BTreeMap::new(),
            metrics: BTreeMap::new(),
            edited: Default::default(),
        }
    }
}

/// Reads the load balancer type from a request for a new load balancer, or from a request with the action
/// `change_type`.
pub fn read_size(
    world: &World,
    fields: &mut Fields,
) -> Result<&'static LoadBalancerType, ApiError> {
    let text = fields.id_or_name("load_balancer_type")?;
    let text = fields.required("load_balancer_type", text)?;
    let problem = |problem: &str| {
        let problem = format!("load balancer type '{text}' {problem}");
        Err(fields.invalid("load_balancer_type", problem))
    };
    match LoadBalancerType::find(&text) {
        None => problem("not found"),
        Some(found) if !found.is_sold(world) => problem("is deprecated"),
        Some(found) => Ok(found),
    }
}

/// Reads the type of the load balancing algorithm from a request for a new load balancer, or from a request with the
/// action `change_algorithm`.
pub fn read_algorithm_type(fields: &mut Fields) -> Result<&'static str, ApiError> {
    let algorithm = fields.word("type", &ALGORITHMS)?;
    fields.required("type", algorithm)
}

fn read_algorithm(fields: &mut Fields) -> Result<&'static str, ApiError> {
    let Some(mut algorithm) = fields.object("algorithm")? else {
        return Ok(ALGORITHMS[0]);
    };
    let found = read_algorithm_type(&mut algorithm)?;
    algorithm.finish()?;
    Ok(found)
}

/// Returns the location in a request. When the request contains a network zone instead, returns the first location in
/// that zone.
fn read_location(fields: &mut Fields) -> Result<&'static Location, ApiError> {
    match (fields.id_or_name("location")?, fields.string("network_zone")?) {
        (Some(text), None) => Location::find(&text)
            .ok_or_else(|| fields.invalid("location", format!("location '{text}' not found"))),
        (None, Some(zone)) => {
            let mut locations = Location::all().iter();
            let found = locations.find(|location| location.network_zone == zone);
            found.ok_or_else(|| {
                fields.invalid("network_zone", format!("network zone '{zone}' not found"))
            })
        }
        (Some(_), Some(_)) => Err(fields.invalid("location", "excludes network_zone")),
        (None, None) => Err(fields.invalid("location", "or network_zone is required")),
    }
}

fn read_network(call: &Call, location: &Location, id: u64) -> Result<PrivateNet, ApiError> {
    let network = networks::find(call, id)?;
    if network.attached() >= MAX_ATTACHED {
        return Err(ApiError::limit_exceeded("network_attached_resources"));
    }
    let ip = network.choose(location.network_zone, None, None)?;
    Ok(PrivateNet { network: id, ip })
}

fn read_public_net(
    call: &Call,
    fields: &mut Fields,
    location: &Location,
) -> Result<(Option<u64>, Option<u64>), ApiError> {
    let Some(mut public) = fields.object("public_net")? else {
        return Ok((None, None));
    };
    let mut read = |name: &str, version: Version| {
        let Some(id) = public.number(name)? else {
            return Ok(None);
        };
        primary_ips::check_free(call, id, version, location)?;
        Ok(Some(id))
    };
    let found = (read("ipv4", Version::V4)?, read("ipv6", Version::V6)?);
    public.finish()?;
    Ok(found)
}

fn check_room(call: &Call, planned: &LoadBalancer) -> Result<(), ApiError> {
    let circumstances = &call.world.circumstances;
    let place = (planned.size.name.to_owned(), planned.location.name.to_owned());
    if circumstances.sold_out.contains(&place) {
        let message = format!("no {} is available in {}", place.0, place.1);
        return Err(ApiError::new(412, "resource_unavailable", message));
    }
    let limit = circumstances.load_balancer_limits.get(&call.project);
    let count = call.world.load_balancers_of(call.project).count();
    if limit.is_some_and(|limit| count >= *limit) {
        return Err(ApiError::limit_exceeded("load_balancer_limit"));
    }
    Ok(())
}

/// Adds a load balancer to the simulated cloud. Assigns its public addresses, and reserves its private address in the
/// network.
fn build(world: &mut World, order: Order) -> Result<u64, ApiError> {
    let id = world.new_id();
    let (project, location) = (order.planned.project, order.planned.location);
    let holder = super::resource(id);
    let mut assign = |asked: Option<u64>, version| match asked {
        Some(primary) => {
            primary_ips::assign(world, primary, holder);
            Ok(primary)
        }
        None => primary_ips::allocate(world, project, version, location, holder),
    };
    let one = LoadBalancer {
        id,
        ipv4: assign(order.ipv4, Version::V4)?,
        ipv6: assign(order.ipv6, Version::V6)?,
        ..order.planned
    };
    if let Some(net) = one.private_net
        && let Some(network) = world.networks.get_mut(&net.network)
    {
        network.addresses.insert(net.ip, holder);
    }
    world.load_balancers.insert(id, one);
    Ok(id)
}
