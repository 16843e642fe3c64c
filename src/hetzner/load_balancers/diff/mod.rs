//! The differences between a load balancer and what a Service wants of it.

mod create;
pub(crate) mod primary_ips;
pub(crate) mod status;
pub(crate) mod subnets;
pub(crate) mod targets;
mod whole;

pub(crate) use whole::*;
