//! Subnets: parts of a network's range in which servers get their addresses.

use std::net::Ipv4Addr;

use super::{Network, first_address, overlap};
use crate::hetzner::ZONE;
use crate::hetzner::catalog::locations::network_zone;
use crate::hetzner::error::ApiError;
use crate::hetzner::input::Fields;
use crate::hetzner::text::{Text, text};
use ipnet::Ipv4Net;

/// The largest number of subnets in one network.
const MAX_SUBNETS: usize = 50;
/// The prefix of the smallest subnet, and the prefix that is chosen when a request contains no range.
const MAX_PREFIX: u8 = 30;
const DEFAULT_PREFIX: u8 = 24;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SubnetType {
    Cloud,
    /// The old name of the type `Cloud`.
    Server,
    /// A subnet that connects dedicated servers by a vSwitch.
    Vswitch,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Subnet {
    pub kind: SubnetType,
    pub ip_range: Ipv4Net,
    pub network_zone: &'static str,
    pub vswitch_id: Option<u64>,
}

impl Subnet {
    /// Returns a subnet for cloud servers.
    pub fn cloud(ip_range: Ipv4Net, network_zone: &'static str) -> Subnet {
        Subnet { kind: SubnetType::Cloud, ip_range, network_zone, vswitch_id: None }
    }

    /// Reads the name of a network zone that exists.
    pub fn read_zone(fields: &mut Fields) -> Result<&'static str, ApiError> {
        let zone = fields.string("network_zone")?;
        let zone = fields.required("network_zone", zone)?;
        network_zone(&zone).ok_or_else(|| {
            fields.invalid("network_zone", format!("network zone '{zone}' not found"))
        })
    }

    /// Reads the subnet of a request and checks the subnet against its network.
    pub fn read(mut fields: Fields, network: &Network) -> Result<Subnet, ApiError> {
        let kind = match fields.string("type")?.as_deref() {
            Some("cloud") => SubnetType::Cloud,
            Some("server") => SubnetType::Server,
            Some("vswitch") => SubnetType::Vswitch,
            Some(_) => return Err(fields.invalid("type", "must be one of cloud, server, vswitch")),
            None => return Err(fields.invalid("type", "is required")),
        };
        let network_zone = Subnet::read_zone(&mut fields)?;
        let vswitch_id = fields.number("vswitch_id")?;
        // The official Go client always sends an empty `gateway`. The API has the field only in answers, and
        // ignores it here.
        fields.string("gateway")?;
        let ip_range = match fields.range("ip_range")? {
            Some(range) => range,
            None => free_range(network)
                .ok_or_else(|| fields.invalid("ip_range", "no free /24 is left"))?,
        };
        let subnet = Subnet { kind, ip_range, network_zone, vswitch_id };
        subnet.check(&fields, network)?;
        fields.finish()?;
        Ok(subnet)
    }

    /// Whether `ip` is in the range and is neither the first nor the last address.
    pub fn has_host(&self, ip: Ipv4Addr) -> bool {
        self.ip_range.contains(&ip)
            && ip != self.ip_range.network()
            && ip != self.ip_range.broadcast()
    }

    /// Whether cloud servers and load balancers can be attached to the subnet.
    pub fn is_for_servers(&self) -> bool {
        self.kind != SubnetType::Vswitch
    }

    /// Returns the subnet as the API shows it. `gateway` is the gateway of the network, but a subnet of type `vswitch`
    /// shows a gateway of its own.
    pub fn json(&self, gateway: Ipv4Addr) -> Text {
        let (kind, gateway) = match self.kind {
            SubnetType::Cloud => ("cloud", gateway),
            SubnetType::Server => ("server", gateway),
            SubnetType::Vswitch => ("vswitch", first_address(self.ip_range)),
        };
        text!({
            "type": kind, "ip_range": self.ip_range.to_string(), "network_zone": self.network_zone,
            "gateway": gateway.to_string(), "vswitch_id": self.vswitch_id,
        })
    }

    fn check(&self, fields: &Fields, network: &Network) -> Result<(), ApiError> {
        let is_vswitch = self.kind == SubnetType::Vswitch;
        if is_vswitch != self.vswitch_id.is_some() {
            return Err(fields.invalid(
                "vswitch_id",
                "is required for subnets of type vswitch, and only for them",
            ));
        }
        if is_vswitch && self.network_zone != ZONE {
            return Err(fields.invalid("network_zone", format!("vSwitches exist in {} only", ZONE)));
        }
        if network.subnets.iter().any(|other| other.network_zone != self.network_zone) {
            return Err(fields.invalid(
                "network_zone",
                "all subnets of a network must be in the same network zone",
            ));
        }
        if self.ip_range.prefix_len() > MAX_PREFIX {
            return Err(fields.invalid("ip_range", format!("must be a /{MAX_PREFIX} or larger")));
        }
        if !network.ip_range.contains(&self.ip_range) {
            return Err(fields.invalid(
                "ip_range",
                format!("is not part of the network's range {}", network.ip_range),
            ));
        }
        if is_occupied(network, self.ip_range) {
            return Err(fields.invalid(
                "ip_range",
                "overlaps with another subnet or with the destination of a route",
            ));
        }
        if network.subnets.len() >= MAX_SUBNETS {
            return Err(ApiError::limit_exceeded("network_subnets"));
        }
        Ok(())
    }
}

/// Returns the first /24 that neither a subnet nor a route uses.
pub fn free_range(network: &Network) -> Option<Ipv4Net> {
    network.ip_range.subnets(DEFAULT_PREFIX).ok()?.find(|range| !is_occupied(network, *range))
}

fn is_occupied(network: &Network, range: Ipv4Net) -> bool {
    let mut destinations =
        network.routes.iter().filter(|route| !route.is_default()).map(|route| route.destination);
    network.subnets.iter().any(|subnet| overlap(subnet.ip_range, range))
        || destinations.any(|to| overlap(to, range))
}
