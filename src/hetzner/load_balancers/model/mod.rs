//! The API's documents of load balancers and their ports.

pub(crate) mod balancer;
pub(crate) mod listener;
