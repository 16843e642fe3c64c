//! The results of a load balancer's health checks. A target whose server runs becomes healthy three seconds
//! ([`MOMENT`]) after its health checks began or its server was started, whichever is later.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::{LoadBalancer, Service, Target};
use crate::hetzner::servers::Server;
use crate::hetzner::text::{Text, text};
use crate::hetzner::world::World;

/// How long a target takes to become healthy, counted from its first check or from the start of its server, whichever
/// is later.
const MOMENT: Duration = Duration::from_millis(3000);

/// The server that receives the health checks of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Machine {
    /// A cloud server, identified by its ID.
    Server(u64),
    /// A dedicated server, identified by the IP address in the load balancer's target.
    Ip(IpAddr),
}

/// Simulates the programs that listen on the ports of servers, e.g. kube-proxy. Only their answers to health checks of
/// load balancers are simulated.
pub trait PortChecks: Send + Sync {
    /// Returns the result of a health check of a port on a server that runs. `protocol` is `tcp` or `http`. Returns
    /// `None` when no program on the port is simulated. In this case the caller assumes that the health check succeeds,
    /// because the server runs.
    fn check(&self, machine: Machine, port: u16, protocol: &str) -> Option<Health>;
}

/// The values of the API's field `detail`, which say why a health check has failed.
const DETAILS: [&str; 6] = [
    "unspecified",
    "layer4_no_connection",
    "layer4_timeout",
    "layer7_timeout",
    "unexpected_http_status",
    "unexpected_http_content",
];

/// One entry of the API's field `health_status`.
#[derive(Clone, Debug, PartialEq)]
pub struct Health {
    /// The status: `healthy`, `unhealthy` or `unknown`.
    pub status: String,
    /// Why the health check has failed, e.g. `layer4_timeout`. `None` when it has not failed.
    pub detail: Option<String>,
    /// The HTTP status code that a failed HTTP health check has received. `None` when it has received none, or has not
    /// failed.
    pub http_status_code: Option<u16>,
}

impl Health {
    pub fn healthy() -> Health {
        Health::new("healthy", None)
    }

    /// Returns an entry of the API's field `health_status` with the status `unhealthy`. `detail` is the value of the
    /// field `detail`, which says why the health check has failed, e.g. `layer4_no_connection`.
    pub fn unhealthy(detail: &str) -> Health {
        Health::new("unhealthy", Some(detail))
    }

    /// Whether the field `detail`, which says why a health check has failed, is absent or has one of the values that
    /// the API can show.
    pub fn is_a_word_of_the_api(&self) -> bool {
        let detail = self.detail.as_deref();
        detail.is_none_or(|detail| DETAILS.contains(&detail))
    }

    fn new(status: &str, detail: Option<&str>) -> Health {
        Health { status: status.into(), detail: detail.map(str::to_owned), http_status_code: None }
    }
}

/// Returns the JSON of a target's `health_status`, which contains one entry for each service of the load balancer.
/// `machine` is the server that gets the health checks of this target.
pub fn json(world: &World, one: &LoadBalancer, target: &Target, machine: Machine) -> Text {
    let entry = |service: &Service| {
        let port = service.listen_port;
        let set = [Some(port), None].into_iter().find_map(|port| one.health.get(&(machine, port)));
        let health = set.cloned();
        let health = health.unwrap_or_else(|| natural(world, one, target, service, machine));
        text!({
            "listen_port": port, "status": health.status, "detail": health.detail,
            "http_status_code": health.http_status_code,
        })
    };
    Text::part(&one.services.iter().map(entry).collect::<Vec<_>>())
}

/// Computes the result of a health check from the state of the target's server. The API shows this result unless a test
/// has set another one.
fn natural(
    world: &World,
    one: &LoadBalancer,
    target: &Target,
    service: &Service,
    machine: Machine,
) -> Health {
    let checked_since = target.since.max(service.since);
    let has_passed = |since: Instant| {
        world.clock.now().saturating_duration_since(since) >= world.clock.scaled(MOMENT)
    };
    let answers =
        |server: &&Server| server.is_running() && target.check_server(one, server).is_ok();
    let answering_since = match machine {
        Machine::Ip(ip) => world.circumstances.answers_since(ip, checked_since),
        Machine::Server(id) => {
            let answering = world.servers.get(&id).filter(answers);
            answering.map(|server| server.status_since)
        }
    };
    match answering_since {
        _ if !has_passed(checked_since) => Health::new("unknown", None),
        None => Health::unhealthy("layer4_timeout"),
        Some(since) if !has_passed(since) => Health::unhealthy("layer4_no_connection"),
        Some(_) => {
            let (port, protocol) = service.checked_port();
            let checked = world.circumstances.check(machine, port, protocol);
            checked.unwrap_or_else(Health::healthy)
        }
    }
}
