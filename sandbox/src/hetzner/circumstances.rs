//! What the simulated cloud cannot know by itself and a test says: who owns which dedicated server, what is sold out.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use crate::robot::Robot;

#[derive(Default)]
pub struct Circumstances {
    /// Addresses of dedicated servers, with the project whose owner has them.
    pub dedicated: HashMap<IpAddr, u64>,
    /// The project whose owner has the dedicated servers of this Robot.
    pub robot: Option<(u64, Arc<Robot>)>,
    /// The Cloud gets no answer from Robot.
    pub robot_unavailable: bool,
    /// Load balancers that a project may have; no entry: any number.
    pub load_balancer_limits: HashMap<u64, usize>,
    /// Names of a load balancer type and a location that has no room for another one.
    pub sold_out: HashSet<(String, String)>,
    /// Load balancer types that are being retired, by name, with the two dates of a deprecation.
    pub deprecated: HashMap<String, (String, String)>,
    /// DNS zones of a project; no entry: every domain counts as managed.
    pub zones: HashMap<u64, Vec<String>>,
    /// By how much the API's clock is ahead of this machine's; behind it when negative.
    pub clock_ahead_s: i64,
    /// Deleting a load balancer answers 204 without a body, as before 2026-10-05.
    pub silent_deletes: bool,
}

impl Circumstances {
    /// A public address of a dedicated server of the project's owner.
    pub fn owns(&self, project: u64, ip: IpAddr) -> bool {
        self.dedicated.get(&ip) == Some(&project)
            || self.robot.as_ref().is_some_and(|(owner, robot)| *owner == project && robot.owns(ip))
    }

    /// Since when the dedicated server with this address runs. Without a Robot, all of them always do.
    pub fn answers_since(&self, ip: IpAddr, always: Instant) -> Option<Instant> {
        match &self.robot {
            Some((_, robot)) if !self.dedicated.contains_key(&ip) => robot.answers_since(ip),
            _ => Some(always),
        }
    }
}
