//! The routes of a private network: traffic to a node's pods is sent to that node.
//!
//! One change at a time: while a network is being changed, another change of it is answered
//! `ErrorKind::Busy`.

use super::{Actions, Applied, Error, Urgency};
use ipnet::Ipv4Net;
use std::fmt;
use std::net::Ipv4Addr;

/// The private network that a cloud's nodes are in. It knows IPv4 alone.
pub trait Routes: Actions {
    /// The network with all of its routes: complete, or an error.
    fn observe(&self, urgency: Urgency) -> Result<Network, Error>;

    /// Adds or deletes exactly this route. Never repeated by itself: after an error the caller reads again.
    fn change(&self, change: RouteChange, route: &Route) -> Result<Applied, Error>;
}

/// A private network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    pub id: u64,
    pub name: String,
    /// What its servers send into it by default.
    pub range: Option<Ipv4Net>,
    /// Where its servers have their addresses: no route may lead into one of these.
    pub subnets: Vec<Ipv4Net>,
    pub routes: Vec<Route>,
    /// Routes of a form that we don't know; they count, and nothing else.
    pub other_routes: usize,
    pub routes_at_most: usize,
}

/// Where packets for a destination are sent to. A destination is there once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Route {
    pub destination: Ipv4Net,
    pub gateway: Ipv4Addr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteChange {
    Add,
    Delete,
}

impl RouteChange {
    /// In the word of programs.
    pub fn name(self) -> &'static str {
        match self {
            RouteChange::Add => "AddRoute",
            RouteChange::Delete => "DeleteRoute",
        }
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} via {}", self.destination, self.gateway)
    }
}
