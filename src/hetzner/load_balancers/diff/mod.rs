//! The comparison of a load balancer with what its Service asks for.

mod choice;
mod create;
pub(crate) mod primary_ips;
pub(crate) mod status;
pub(crate) mod subnets;
pub(crate) mod targets;
mod whole;

pub(crate) use create::wanted_place;
pub(crate) use whole::*;
