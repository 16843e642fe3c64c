//! Load balancers and their ports, in the form in which the API describes them as JSON.

pub(crate) mod balancer;
pub(crate) mod listener;
