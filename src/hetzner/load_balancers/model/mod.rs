//! The types for load balancers and their ports, in the form of the API's JSON.

pub(crate) mod balancer;
pub(crate) mod listener;
