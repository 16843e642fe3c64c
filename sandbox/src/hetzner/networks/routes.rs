//! The routes of a network. A route sends the traffic for a destination to a private address, which is the route's
//! gateway.

use std::net::Ipv4Addr;

use super::{Network, PUBLIC_GATEWAY, SubnetType, is_private, overlap};
use crate::hetzner::error::ApiError;
use crate::hetzner::input::Fields;
use crate::hetzner::text::{Text, text};
use ipnet::Ipv4Net;

/// The largest number of routes in one network.
const MAX_ROUTES: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Route {
    pub destination: Ipv4Net,
    pub gateway: Ipv4Addr,
}

impl Route {
    /// Reads a route from a request, and checks that the route is possible in its network. For example, its destination
    /// must not overlap a subnet.
    pub fn read(fields: Fields, network: &Network) -> Result<Route, ApiError> {
        let route = Route::parse(fields)?;
        let invalid = |field: &str, problem: &str| Err(ApiError::invalid(field, problem));
        if !route.is_default() && !is_private(route.destination) {
            return invalid(
                "destination",
                "must lie in one of the private ranges of RFC 1918, or be 0.0.0.0/0",
            );
        }
        if !route.is_default() && route.destination.contains(&PUBLIC_GATEWAY) {
            return invalid("destination", "must not contain 172.31.1.1");
        }
        if route.overlaps_in(network) {
            return invalid(
                "destination",
                "overlaps with a subnet or with the destination of another route",
            );
        }
        if !network.ip_range.contains(&route.gateway) {
            return invalid(
                "gateway",
                &format!("is not part of the network's range {}", network.ip_range),
            );
        }
        let mut vswitches =
            network.subnets.iter().filter(|subnet| subnet.kind == SubnetType::Vswitch);
        if route.gateway == network.gateway()
            || route.gateway == PUBLIC_GATEWAY
            || vswitches.any(|subnet| subnet.ip_range.contains(&route.gateway))
        {
            return invalid(
                "gateway",
                "must not be the network's first address, 172.31.1.1 or behind a vSwitch",
            );
        }
        if network.routes.len() >= MAX_ROUTES {
            return Err(ApiError::limit_exceeded("network_routes"));
        }
        Ok(route)
    }

    /// Reads the destination and the gateway of a route from a request, without checking them against a network.
    pub fn parse(mut fields: Fields) -> Result<Route, ApiError> {
        let destination = fields.range("destination")?;
        let gateway = fields.address("gateway")?;
        let route = Route {
            destination: fields.required("destination", destination)?,
            gateway: fields.required("gateway", gateway)?,
        };
        fields.finish()?;
        Ok(route)
    }

    /// Whether the destination is 0.0.0.0/0. Destinations of routes must not overlap, but 0.0.0.0/0 is allowed beside
    /// all others.
    pub fn is_default(&self) -> bool {
        self.destination.prefix_len() == 0
    }

    pub fn json(&self) -> Text {
        text!({"destination": self.destination.to_string(), "gateway": self.gateway.to_string()})
    }

    fn overlaps_in(&self, network: &Network) -> bool {
        if self.is_default() {
            return network.routes.iter().any(Route::is_default);
        }
        let mut routes = network.routes.iter().filter(|route| !route.is_default());
        network.subnets.iter().any(|subnet| overlap(subnet.ip_range, self.destination))
            || routes.any(|route| overlap(route.destination, self.destination))
    }
}
