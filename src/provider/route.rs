//! The routes of a private network. Traffic to a node's pods is sent to that node.
//!
//! Changes are made one at a time: while a network is being changed, another change of it
//! is answered with `ErrorKind::Busy`.

use super::description::{Description, Write, WriteVerb};
use super::error::{ProviderError, Urgency};
use super::load_balancer::{Actions, Change};
use ipnet::Ipv4Net;
use serde_json::{Value, json};
use std::fmt;
use std::net::Ipv4Addr;

/// The private network that a cloud's nodes are in. The network has only IPv4.
pub trait Routes: Actions {
    /// Returns the network with all of its routes. An incomplete list is an error.
    fn observe(&self, urgency: Urgency) -> Result<Network, ProviderError>;

    /// Returns the write that makes this change. The write adds or deletes exactly this route. To delete a route that
    /// does not exist is no error.
    fn change(&self, change: RouteChange) -> Box<dyn Change>;
}

/// A private network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    pub id: u64,
    pub name: String,
    /// The range of addresses whose traffic the network's servers send into the network by default.
    pub range: Option<Ipv4Net>,
    /// The ranges in which the network's servers have their addresses. No route may lead into one of these ranges.
    pub subnets: Vec<Ipv4Net>,
    pub routes: Vec<Route>,
    /// How many routes have a form that this program does not know. They count towards the limit of routes, and have
    /// no other effect.
    pub other_routes: usize,
    pub routes_at_most: usize,
}

/// A route: the gateway to which packets for a destination are sent. A network has one route for a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Route {
    pub destination: Ipv4Net,
    pub gateway: Ipv4Addr,
}

/// A planned write to the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteChange {
    /// Whether the route is deleted, and not added.
    pub is_deletion: bool,
    pub route: Route,
    /// The node for whose pods the route is, or on whose server the route ends. `None` when the route concerns no node.
    pub node: Option<String>,
    pub why: &'static str,
}

impl RouteChange {
    /// Returns the object that the change is about: its node, or the destination when there is no node.
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
