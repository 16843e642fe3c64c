//! How much a Service may ask for at all: checked before anything is computed for each port.

use super::observe::State;
use crate::provider::{Protocol, Service};

/// What the largest type of load balancer takes; that of the Service may take less.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    services: usize,
    pub(super) certificates: usize,
}

/// Of an `lb31`, the largest type of 2026. The types are not read for a Service whose load balancer is to keep its own.
const LARGEST: Limits = Limits {
    services: 30,
    certificates: 50,
};

impl Limits {
    /// No less than those of any type that was read.
    pub(super) fn of(state: &State) -> Limits {
        let types = state.types.iter().flat_map(|types| types.iter());
        let own = state.balancers.iter().map(|one| &one.load_balancer_type);
        types.chain(own).fold(LARGEST, |largest, kind| Limits {
            services: largest.services.max(kind.max_services),
            certificates: largest.certificates.max(kind.max_assigned_certificates),
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
