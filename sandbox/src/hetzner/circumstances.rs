//! Facts that the simulated cloud cannot know by itself and that a test sets, such as the owners of dedicated servers
//! and the types that are sold out.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Instant;

use super::load_balancers::{Health, Machine, PortChecks};
use crate::robot::Robot;

#[derive(Default)]
pub struct Circumstances {
    /// The public addresses of dedicated servers, each with the project of the server's owner.
    pub dedicated: HashMap<IpAddr, u64>,
    /// The simulated Robot, and the ID of the project whose owner has its dedicated servers.
    pub robot: Option<(u64, Arc<Robot>)>,
    /// The programs on the machines, if any are simulated.
    pub port_checks: Option<Weak<dyn PortChecks>>,
    /// Whether Robot is unavailable to the Cloud, which then refuses new targets of type `ip`.
    pub robot_unavailable: bool,
    /// The number of load balancers that a project may have. A project without an entry may have any number.
    pub load_balancer_limits: HashMap<u64, usize>,
    /// The load balancer types that are sold out, each with the location in which no more of them can be created.
    pub sold_out: HashSet<(String, String)>,
    /// The load balancer types that are being retired, by name, with the date of the announcement and the date until
    /// which the type is sold.
    pub deprecated: HashMap<String, (String, String)>,
    /// The DNS zones of each project. A project without an entry is treated as if it had a zone for every domain.
    pub zones: HashMap<u64, Vec<String>>,
    /// The number of seconds by which the API's clock is ahead of this machine's clock. Negative when the API's
    /// clock is behind.
    pub clock_ahead_s: i64,
    /// Whether the deletion of a load balancer is answered with 204 and no body, as it was before 2026-10-05.
    pub silent_deletes: bool,
}

impl Circumstances {
    /// Whether `ip` is a public address of a dedicated server of the project's owner.
    pub fn owns(&self, project: u64, ip: IpAddr) -> bool {
        self.dedicated.get(&ip) == Some(&project)
            || self.robot.as_ref().is_some_and(|(owner, robot)| *owner == project && robot.owns(ip))
    }

    /// Returns the result of a health check of a running machine, as far as the program at the port is simulated.
    pub fn check(&self, machine: Machine, port: u16, protocol: &str) -> Option<Health> {
        self.port_checks.as_ref()?.upgrade()?.check(machine, port, protocol)
    }

    /// Returns the time since which the dedicated server with this address has been running. Returns `always` for a
    /// server that is not in the simulated Robot, because such a server always runs.
    pub fn answers_since(&self, ip: IpAddr, always: Instant) -> Option<Instant> {
        match &self.robot {
            Some((_, robot)) if !self.dedicated.contains_key(&ip) => robot.answers_since(ip),
            _ => Some(always),
        }
    }
}
