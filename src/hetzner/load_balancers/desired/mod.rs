//! The desired state of a Service's load balancer.

pub(crate) mod certificates;
mod permitted;
pub(crate) mod ports;
pub(crate) mod uploads;
mod whole;

pub(crate) use whole::*;
