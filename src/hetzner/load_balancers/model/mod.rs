//! Load balancers and their ports, as the API writes them.

pub(crate) mod balancer;
pub(crate) mod listener;
