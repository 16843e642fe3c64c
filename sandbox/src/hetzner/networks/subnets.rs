//! The subnets of a network: parts of its range from which servers get their addresses.

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
/// The longest prefix length that a subnet can have. The constant `DEFAULT_PREFIX` is the prefix length of a new subnet
/// when the request does not contain the subnet's range.
const MAX_PREFIX: u8 = 30;
const DEFAULT_PREFIX: u8 = 24;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SubnetType {
    Cloud,
    /// A subnet for cloud servers. `server` is the API's old name of the type `cloud`.
    Server,
    /// A subnet for dedicated servers, which are connected to the network by a vSwitch.
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
    /// Returns a subnet of type `cloud`.
    pub fn cloud(ip_range: Ipv4Net, network_zone: &'static str) -> Subnet {
        Subnet { kind: SubnetType::Cloud, ip_range, network_zone, vswitch_id: None }
    }

    /// Reads the network zone in a request. Returns an error when there is no such zone.
    pub fn read_zone(fields: &mut Fields) -> Result<&'static str, ApiError> {
        let zone = fields.string("network_zone")?;
        let zone = fields.required("network_zone", zone)?;
        network_zone(&zone).ok_or_else(|| {
            fields.invalid("network_zone", format!("network zone '{zone}' not found"))
        })
    }

    /// Reads a subnet from a request, and checks that the subnet is possible in its network.
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
        // The official Go client always sends the field `gateway` with an empty text. In the API only answers have this
        // field, so it is ignored in a request.
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

    /// Whether a host can have the address `ip` in this subnet. The first and the last address of the range are
    /// excluded.
    pub fn has_host(&self, ip: Ipv4Addr) -> bool {
        self.ip_range.contains(&ip)
            && ip != self.ip_range.network()
            && ip != self.ip_range.broadcast()
    }

    /// Whether cloud servers and load balancers can be attached to the subnet.
    pub fn is_for_servers(&self) -> bool {
        self.kind != SubnetType::Vswitch
    }

    /// Returns the JSON of the subnet. `gateway` is the gateway of the whole network. A subnet of type `vswitch` shows
    /// its own first host address as gateway instead.
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

/// Returns the first /24 of the network that overlaps no subnet and no destination of a route, or `None` when there is
/// none.
pub fn free_range(network: &Network) -> Option<Ipv4Net> {
    network.ip_range.subnets(DEFAULT_PREFIX).ok()?.find(|range| !is_occupied(network, *range))
}

fn is_occupied(network: &Network, range: Ipv4Net) -> bool {
    let mut destinations =
        network.routes.iter().filter(|route| !route.is_default()).map(|route| route.destination);
    network.subnets.iter().any(|subnet| overlap(subnet.ip_range, range))
        || destinations.any(|to| overlap(to, range))
}
