//! Facts that a test sets because no request to the Hetzner Cloud API can change them, such as the owners of dedicated
//! servers and the types that are sold out.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Instant;

use super::load_balancers::{Health, Machine, PortChecks};
use crate::robot::Robot;

#[derive(Default)]
pub struct Circumstances {
    /// The public addresses that a test has assigned to dedicated servers without simulating these servers. The value is
    /// the ID of the Cloud project whose owner also owns the dedicated server.
    pub dedicated: HashMap<IpAddr, u64>,
    /// The simulated Robot, which knows the dedicated servers of one customer. The number is the ID of the Cloud
    /// project that belongs to the same customer. `None` when no simulated Robot belongs to this cloud.
    pub robot: Option<(u64, Arc<Robot>)>,
    /// Simulates how programs that listen on the ports of servers, e.g. kube-proxy, answer health checks of load
    /// balancers. `None` when no such programs are simulated.
    pub port_checks: Option<Weak<dyn PortChecks>>,
    /// Whether Hetzner Cloud cannot reach Robot. The Cloud API then refuses new load balancer targets of type `ip`.
    pub robot_unavailable: bool,
    /// The largest number of load balancers in each project. A project without an entry has no limit.
    pub load_balancer_limits: HashMap<u64, usize>,
    /// The load balancer types that are sold out, each with the location in which no more of them can be created.
    pub sold_out: HashSet<(String, String)>,
    /// The load balancer types that are being retired, by name. The value contains two dates: when the end of the
    /// type's sale was announced, and until when the type is sold.
    pub deprecated: HashMap<String, (String, String)>,
    /// How many targets a load balancer of a type can have, by the name of the type. A type that is missing here has
    /// the limit in `hetzner/catalog.json`.
    pub target_limits: HashMap<String, usize>,
    /// The DNS zones of each project. In a project without an entry, every domain counts as being in a zone.
    pub zones: HashMap<u64, Vec<String>>,
    /// By how many seconds the API's clock is ahead of the real clock. The number is negative when the API's clock is
    /// behind.
    pub clock_ahead_s: i64,
    /// Whether the API answers the deletion of a load balancer with status 204 and no body, as it did before
    /// 2026-10-05. Otherwise the answer contains the action `delete_load_balancer`.
    pub silent_deletes: bool,
}

impl Circumstances {
    /// Whether `ip` is a public address of a dedicated server whose owner also owns the Hetzner Cloud project with the
    /// ID `project`.
    pub fn owns(&self, project: u64, ip: IpAddr) -> bool {
        self.dedicated.get(&ip) == Some(&project)
            || self.robot.as_ref().is_some_and(|(owner, robot)| *owner == project && robot.owns(ip))
    }

    /// Returns the result of a health check of this port on a server that runs. Returns `None` when the sandbox
    /// simulates no program that listens on this port.
    pub fn check(&self, machine: Machine, port: u16, protocol: &str) -> Option<Health> {
        self.port_checks.as_ref()?.upgrade()?.check(machine, port, protocol)
    }

    /// Returns the time at which the dedicated server with this address was switched on, or `None` when it is off. A
    /// test can say that an address belongs to a dedicated server although the simulated Robot has no such server. The
    /// result is then `always`, because this server is never off. The result is also `always` when there is no
    /// simulated Robot.
    pub fn answers_since(&self, ip: IpAddr, always: Instant) -> Option<Instant> {
        match &self.robot {
            Some((_, robot)) if !self.dedicated.contains_key(&ip) => robot.answers_since(ip),
            _ => Some(always),
        }
    }
}
