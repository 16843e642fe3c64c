//! How much a Service may ask for at all: checked before anything is computed for each port.

use super::observe::State;
use crate::cloud::{Protocol, Service};

/// What the largest type of load balancer takes; that of the Service may take less.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    services: usize,
    pub(super) certificates: usize,
}

/// Of an `lb31`, the largest type of 2026. Nobody can be refused by it where the API says which types there are.
const LARGEST: Limits = Limits {
    services: 30,
    certificates: 50,
};

impl Limits {
    /// Those of the types that were read: a Service whose load balancer is to keep its own needs no others.
    pub(super) fn of(state: &State) -> Limits {
        let types = state.types.iter().flat_map(|types| types.iter());
        let own = state.balancers.iter().map(|one| &one.load_balancer_type);
        let all = types.chain(own);
        let limits = all.map(|kind| (kind.max_services, kind.max_assigned_certificates));
        let largest = limits.reduce(|left, right| (left.0.max(right.0), left.1.max(right.1)));
        largest.map_or(LARGEST, |(services, certificates)| Limits {
            services,
            certificates,
        })
    }

    /// Why no load balancer can serve this Service.
    pub(super) fn exceeded_by(self, service: &Service) -> Option<String> {
        let ports = service.ports.iter();
        let ports = ports.filter(|port| port.protocol == Protocol::Tcp).count();
        (ports > self.services).then(|| {
            format!(
                "the Service has {ports} TCP ports, and the largest type of load balancer takes {}: remove ports, or give \
                 them to several Services",
                self.services
            )
        })
    }
}
