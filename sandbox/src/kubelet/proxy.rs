//! The simulated kube-proxy of each machine, which answers the health checks of load balancers.

use std::net::IpAddr;

use super::{NodeSpec, Shared};
use crate::hetzner::{Health, Machine, PortChecks};
use crate::kubernetes::PortAnswer;

impl PortChecks for Shared {
    fn check(&self, machine: Machine, port: u16, protocol: &str) -> Option<Health> {
        let port = self.cluster.node_port(port)?;
        let node = self.node_on(machine)?;
        Some(match port.answer(&node) {
            PortAnswer::Pod => Health::healthy(),
            PortAnswer::Refused => Health::unhealthy("layer4_no_connection"),
            PortAnswer::Dropped => Health::unhealthy("layer4_timeout"),
            // A health check by TCP only opens a connection. It does not see the HTTP status, so only an HTTP check can
            // fail because of the status.
            PortAnswer::Status(status) if status != 200 && protocol == "http" => {
                let health = Health::unhealthy("unexpected_http_status");
                Health { http_status_code: Some(status), ..health }
            }
            PortAnswer::Status(_) => Health::healthy(),
        })
    }
}

impl Shared {
    /// Returns the name of the Node on a cloud server or a dedicated server. `None` means that the server has no
    /// kubelet.
    fn node_on(&self, machine: Machine) -> Option<String> {
        let dedicated = match machine {
            Machine::Ip(ip) => self.robot.machine_with(ip),
            Machine::Server(_) => None,
        };
        let is_on = |spec: &NodeSpec| match (machine, dedicated) {
            (Machine::Server(id), _) => spec.server == Some(id),
            (Machine::Ip(_), Some(number)) => spec.machine == Some(number),
            (Machine::Ip(ip), None) => has_address(spec, ip),
        };
        let state = self.state();
        // When several Nodes were registered for a server, the newest one is returned.
        let newest = state.kubelets.iter().rev().find(|kubelet| is_on(&kubelet.spec));
        newest.map(|kubelet| kubelet.spec.name.clone())
    }
}

/// Whether the kubelet has this address, either from its flag `--node-ip` or as its internal address. A load balancer
/// can have an IP target that belongs to no server of the simulated Robot. The Node behind this target is then the one
/// whose kubelet has the target's address.
fn has_address(spec: &NodeSpec, ip: IpAddr) -> bool {
    let given = spec.node_ip.iter().flat_map(|ips| ips.split(','));
    let mut all = given.chain(spec.internal_ip.as_deref());
    all.any(|text| text.parse() == Ok(ip))
}
