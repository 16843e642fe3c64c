//! The routes of a private network. Each route sends the traffic for a node's pods to the node's server.
//!
//! Changes are made one at a time, because a cloud refuses a change with `ErrorKind::Busy` while it makes another
//! change to the same network.

use super::description::{Description, Write, WriteVerb};
use super::error::{ProviderError, Urgency};
use super::load_balancer::{Actions, Change};
use ipnet::Ipv4Net;
use serde_json::{Value, json};
use std::fmt;
use std::net::Ipv4Addr;

/// The private network to which the nodes of a cloud are attached. It has only IPv4 addresses.
pub trait Routes: Actions {
    /// Returns the network with all its routes, or an error when the routes could not be read completely.
    fn observe(&self, urgency: Urgency) -> Result<Network, ProviderError>;

    /// Returns the write for this change. It adds or deletes exactly this route. The deletion of a route that
    /// does not exist succeeds.
    fn change(&self, change: RouteChange) -> Box<dyn Change>;
}

/// A private network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    pub id: u64,
    pub name: String,
    /// The range of the network's addresses. A server in the network sends traffic for this range into the network.
    pub range: Option<Ipv4Net>,
    /// The ranges from which the servers in the network get their addresses. A route to such a range is not allowed.
    pub subnets: Vec<Ipv4Net>,
    pub routes: Vec<Route>,
    /// The number of routes that this program can't represent. They are part of the limit of routes,
    /// and are otherwise ignored.
    pub other_routes: usize,
    pub routes_at_most: usize,
}

/// A route sends packets for a destination to a gateway. A network has at most one route for each destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Route {
    pub destination: Ipv4Net,
    pub gateway: Ipv4Addr,
}

/// A planned write to the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteChange {
    /// Whether the route is deleted. Otherwise it is added.
    pub is_deletion: bool,
    pub route: Route,
    /// The node whose pods the route is for, or whose server is the gateway. `None` when there is no such node.
    pub node: Option<String>,
    pub why: &'static str,
}

impl RouteChange {
    /// Returns the name of the object that is reported with the change. This is the node, or the destination when
    /// there is no node.
    pub fn object(&self) -> String {
        match &self.node {
            Some(node) => format!("node/{node}"),
            None => format!("route/{}", self.route.destination),
        }
    }
}

impl Write for RouteChange {
    fn word(&self) -> &'static str {
        if self.is_deletion { "DeleteRoute" } else { "AddRoute" }
    }

    /// Describes the change, e.g. `add route 10.244.1.0/24 via 10.0.0.2`.
    fn description(&self) -> Description {
        let route = format!("route {}", self.route);
        if self.is_deletion {
            Description::new(WriteVerb::DELETE, route, format!(" ({})", self.why))
        } else {
            Description::new(WriteVerb::ADD, route, "")
        }
    }

    fn json(&self) -> Value {
        json!({
            "change": self.word(),
            "destination": self.route.destination,
            "gateway": self.route.gateway,
            "because": self.why,
        })
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} via {}", self.destination, self.gateway)
    }
}
