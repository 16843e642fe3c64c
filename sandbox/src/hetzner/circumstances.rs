//! Facts that the simulated cloud cannot know by itself and that a test sets, such as the owners of dedicated servers
//! and the types that are sold out.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use crate::robot::Robot;

#[derive(Default)]
pub struct Circumstances {
    /// Addresses of dedicated servers, each with the project whose owner has the server.
    pub dedicated: HashMap<IpAddr, u64>,
    /// The Robot with the dedicated servers of a project's owner, and that project.
    pub robot: Option<(u64, Arc<Robot>)>,
    /// Whether Robot does not answer the Cloud.
    pub robot_unavailable: bool,
    /// The number of load balancers that a project may have. A project without an entry may have any number.
    pub load_balancer_limits: HashMap<u64, usize>,
    /// Pairs of a load balancer type and a location that has no room for another load balancer of the type.
    pub sold_out: HashSet<(String, String)>,
    /// Load balancer types that are being retired, by name, with the two dates of a deprecation.
    pub deprecated: HashMap<String, (String, String)>,
    /// DNS zones of a project. Every domain of a project without an entry counts as managed.
    pub zones: HashMap<u64, Vec<String>>,
    /// The number of seconds by which the API's clock is ahead of this machine's clock. Negative when the API's
    /// clock is behind.
    pub clock_ahead_s: i64,
    /// Whether deleting a load balancer answers 204 without a body, as before 2026-10-05.
    pub silent_deletes: bool,
}

impl Circumstances {
    /// Whether `ip` is a public address of a dedicated server of the project's owner.
    pub fn owns(&self, project: u64, ip: IpAddr) -> bool {
        self.dedicated.get(&ip) == Some(&project)
            || self.robot.as_ref().is_some_and(|(owner, robot)| *owner == project && robot.owns(ip))
    }

    /// Returns since when the dedicated server with this address has been running. Without a Robot, all servers have
    /// been running since `always`.
    pub fn answers_since(&self, ip: IpAddr, always: Instant) -> Option<Instant> {
        match &self.robot {
            Some((_, robot)) if !self.dedicated.contains_key(&ip) => robot.answers_since(ip),
            _ => Some(always),
        }
    }
}
