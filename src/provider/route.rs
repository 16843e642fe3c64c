//! The routes of a private network. Each route sends the traffic for a node's pods to the node's server.
//!
//! A cloud makes only one change to a network at a time, and refuses others with `ErrorKind::Busy`. So this program
//! makes one change after the other.

use super::description::{Description, Write, WriteVerb};
use super::error::{ProviderError, Urgency};
use super::load_balancer::{Actions, Change};
use ipnet::Ipv4Net;
use serde_json::{Value, json};
use std::fmt;
use std::net::Ipv4Addr;

/// The routes of the private network to which the nodes are attached. The network has only IPv4 addresses.
pub trait Routes: Actions {
    /// Returns the network with all its routes, or an error when the routes could not be read completely.
    fn observe(&self, urgency: Urgency) -> Result<Network, ProviderError>;

    /// Returns a write that adds or deletes this route, and no other route. The write also succeeds when a route to
    /// delete does not exist.
    fn change(&self, change: RouteChange) -> Box<dyn Change>;
}

/// A private network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    pub id: u64,
    pub name: String,
    /// The range of the network's addresses, or `None` when it is not known. A server sends packets into the network
    /// only if their destination is in this range.
    pub range: Option<Ipv4Net>,
    /// The ranges from which servers in the network get their addresses. The API allows no route to such a range.
    pub subnets: Vec<Ipv4Net>,
    pub routes: Vec<Route>,
    /// The number of routes that this program can't parse. They count towards the limit of routes, and are otherwise
    /// ignored.
    pub other_routes: usize,
    pub routes_at_most: usize,
}

/// A route sends packets for a destination to a gateway. A network has at most one route for each destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Route {
    pub destination: Ipv4Net,
    pub gateway: Ipv4Addr,
}

/// A planned addition or deletion of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteChange {
    /// `true` when the route is deleted, and `false` when it is added.
    pub is_deletion: bool,
    pub route: Route,
    /// The name of the node to whose pods the route leads. When there is no such node, this is the name of the node
    /// whose server is the gateway. `None` when there is neither.
    pub node: Option<String>,
    pub why: &'static str,
}

impl RouteChange {
    /// Returns the name of the object to which a report about the change refers: the node or, without a node, the
    /// destination of the route.
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
