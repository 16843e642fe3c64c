//! The targets of a load balancer. A target is a cloud server, the IP address of a dedicated server, or a label
//! selector for cloud servers.

use std::net::IpAddr;
use std::time::Instant;

use super::health::{self, Machine};
use super::{LoadBalancer, refused};
use crate::hetzner::error::ApiError;
use crate::hetzner::input::Fields;
use crate::hetzner::labels::Selector;
use crate::hetzner::networks::Subnet;
use crate::hetzner::servers::Server;
use crate::hetzner::text::{Text, text};
use crate::hetzner::world::World;
use crate::time;

const TYPES: [&str; 3] = ["server", "label_selector", "ip"];

#[derive(Clone, Debug)]
pub struct Target {
    pub kind: Kind,
    pub use_private_ip: bool,
    /// The time of the request that adds the target. The health checks of the target begin at this time.
    pub since: Instant,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    Server(u64),
    /// A label selector as text, and the parsed selector.
    LabelSelector(String, Selector),
    Ip(IpAddr),
}

impl Target {
    /// Reads a target from a request that adds or removes a target.
    pub fn read(mut fields: Fields) -> Result<Target, ApiError> {
        let kind = fields.word("type", &TYPES)?;
        let kind = fields.required("type", kind)?;
        let detail = fields.object(kind)?;
        let mut detail = fields.required(kind, detail)?;
        let kind = match kind {
            "server" => {
                let id = detail.number("id")?;
                Kind::Server(detail.required("id", id)?)
            }
            "label_selector" => {
                let text = detail.string("selector")?;
                let text = detail.required("selector", text)?;
                let selector = Selector::parse(&text)
                    .map_err(|problem| detail.invalid("selector", problem))?;
                Kind::LabelSelector(text, selector)
            }
            _ => {
                let text = detail.string("ip")?;
                let ip = detail.required("ip", text)?.parse();
                Kind::Ip(ip.map_err(|_| detail.invalid("ip", "must be an IP address"))?)
            }
        };
        detail.finish()?;
        let use_private_ip = fields.flag("use_private_ip")?.unwrap_or_default();
        if use_private_ip && matches!(kind, Kind::Ip(_)) {
            let problem = "is only for targets of type server and label_selector";
            return Err(fields.invalid("use_private_ip", problem));
        }
        fields.finish()?;
        Ok(Target { kind, use_private_ip, since: time::now() })
    }

    /// Checks that the target can be added to the load balancer, and returns the API's error if not.
    pub fn check(&self, world: &World, one: &LoadBalancer) -> Result<(), ApiError> {
        if one.targets.iter().any(|other| other.kind == self.kind) {
            let message = "the target is already defined";
            return Err(refused("target_already_defined", message));
        }
        match &self.kind {
            Kind::Ip(ip) => check_ip(world, one, *ip)?,
            Kind::Server(id) => {
                let known = world.servers.get(id);
                let server = known.filter(|server| server.project == one.project);
                let server = server.ok_or_else(|| ApiError::not_found("server", id))?;
                self.check_way(one)?;
                self.check_server(one, server)?;
            }
            Kind::LabelSelector(..) => {
                self.check_way(one)?;
                let mut selected =
                    world.servers_of(one.project).filter(|server| self.selects(server));
                selected.try_for_each(|server| self.check_server(one, server))?;
            }
        }
        let more = self.machines(world, one).len();
        if one.count_targets(world) + more > one.size.max_targets(world) {
            return Err(ApiError::limit_exceeded("load_balancer_targets"));
        }
        Ok(())
    }

    /// Whether the load balancer reaches the target by a private address.
    pub fn is_private(&self) -> bool {
        match &self.kind {
            Kind::Ip(ip) => is_private(*ip),
            _ => self.use_private_ip,
        }
    }

    /// Whether the load balancer sends traffic to this server because of this target. A target with a label selector
    /// stands for each server that has the labels and that the load balancer can reach. With `use_private_ip`, such a
    /// server must be in the load balancer's network. Otherwise, it must have a public IPv4 address.
    pub fn covers(&self, server: &Server, one: &LoadBalancer) -> bool {
        match &self.kind {
            Kind::Server(id) => *id == server.id,
            Kind::LabelSelector(..) => {
                self.selects(server) && self.check_server(one, server).is_ok()
            }
            Kind::Ip(_) => false,
        }
    }

    /// Returns the servers behind the target. For a label selector, these are the servers that the selector matches
    /// now.
    pub fn machines(&self, world: &World, one: &LoadBalancer) -> Vec<Machine> {
        match &self.kind {
            Kind::Server(id) => vec![Machine::Server(*id)],
            Kind::Ip(ip) => vec![Machine::Ip(*ip)],
            Kind::LabelSelector(..) => world
                .servers_of(one.project)
                .filter(|server| self.covers(server, one))
                .map(|server| Machine::Server(server.id))
                .collect(),
        }
    }

    pub fn json(&self, world: &World, one: &LoadBalancer) -> Text {
        let health = |machine| health::json(world, one, self, machine);
        let server = |id: u64| {
            text!({
                "type": "server", "server": {"id": id}, "use_private_ip": self.use_private_ip,
                "health_status": health(Machine::Server(id)),
            })
        };
        match &self.kind {
            Kind::Server(id) => server(*id),
            Kind::Ip(ip) => text!({
                "type": "ip", "ip": {"ip": ip.to_string()}, "health_status": health(Machine::Ip(*ip)),
            }),
            Kind::LabelSelector(text, _) => {
                let selected = self.machines(world, one).into_iter();
                let selected = selected.filter_map(|machine| match machine {
                    Machine::Server(id) => Some(server(id)),
                    Machine::Ip(_) => None,
                });
                text!({
                    "type": "label_selector", "label_selector": {"selector": text},
                    "use_private_ip": self.use_private_ip, "targets": selected.collect::<Vec<_>>(),
                })
            }
        }
    }

    fn selects(&self, server: &Server) -> bool {
        matches!(&self.kind, Kind::LabelSelector(_, selector) if selector.matches(&server.labels))
    }

    /// Checks that the load balancer has the interface that the target needs. A target with `use_private_ip` needs the
    /// private interface, and any other target needs the public interface.
    fn check_way(&self, one: &LoadBalancer) -> Result<(), ApiError> {
        match (self.use_private_ip, one.private_net) {
            (true, None) => Err(not_attached()),
            (false, _) if !one.public_enabled => Err(public_disabled()),
            _ => Ok(()),
        }
    }

    /// Checks that the server has the interface that the target needs. A target with `use_private_ip` needs a server in
    /// the load balancer's network, and any other target needs a server with a public IPv4 address. Health checks also
    /// call this function, because a server can lose its interface after it has become a target.
    pub fn check_server(&self, one: &LoadBalancer, server: &Server) -> Result<(), ApiError> {
        let network = one.private_net.map(|net| net.network);
        if !self.use_private_ip && server.ipv4.is_none() {
            let message = format!("server {} has no public IPv4 address", server.id);
            return Err(refused("missing_ipv4", message));
        }
        let is_attached = network.is_some_and(|network| server.attachment(network).is_some());
        if self.use_private_ip && !is_attached {
            let message =
                format!("server {} is not attached to the load balancer's network", server.id);
            return Err(refused("server_not_attached_to_network", message));
        }
        Ok(())
    }
}

/// Checks a target of type `ip`. Its address must be a public address of a dedicated server of the project's owner, or
/// a private address in a vSwitch subnet of the load balancer's network.
fn check_ip(world: &World, one: &LoadBalancer, ip: IpAddr) -> Result<(), ApiError> {
    let cloud_resource = || {
        let message = format!("IP {ip} belongs to a cloud resource");
        Err(refused("cloud_resource_ip_not_allowed", message))
    };
    let not_owned = || {
        let message = format!("IP {ip} is not owned by the owner of the project");
        Err(refused("ip_not_owned", message))
    };
    if is_private(ip) {
        let network = one.private_net.and_then(|net| world.networks.get(&net.network));
        let network = network.ok_or_else(not_attached)?;
        let is_in = |subnet: &&Subnet| matches!(ip, IpAddr::V4(ip) if subnet.has_host(ip));
        return match network.subnets.iter().find(is_in) {
            Some(subnet) if subnet.is_for_servers() => cloud_resource(),
            Some(_) => available(world),
            None => not_owned(),
        };
    }
    let mut addresses = world.primary_ips.values().map(|primary| primary.address);
    if addresses.any(|address| address.contains(ip)) {
        return cloud_resource();
    }
    available(world)?;
    if !world.circumstances.owns(one.project, ip) {
        return not_owned();
    }
    if one.public_enabled { Ok(()) } else { Err(public_disabled()) }
}

/// Checks that Hetzner Cloud can reach Robot, because only Robot knows who owns the address of a dedicated server. If
/// not, the error is `robot_unavailable`. The API's documentation does not say which HTTP status this error has, so 503
/// was chosen.
fn available(world: &World) -> Result<(), ApiError> {
    match world.circumstances.robot_unavailable {
        true => Err(ApiError::new(503, "robot_unavailable", "Robot is not available")),
        false => Ok(()),
    }
}

fn is_private(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V4(ip) if ip.is_private())
}

fn not_attached() -> ApiError {
    refused("load_balancer_not_attached_to_network", "load balancer is not attached to a network")
}

fn public_disabled() -> ApiError {
    refused(
        "load_balancer_public_interface_disabled",
        "the load balancer's public interface is disabled",
    )
}
