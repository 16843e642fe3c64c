//! Load balancers without any API: what a Service asks for, what is planned, and where that leads.

mod annotations;
mod bad_input;
mod certificates;
mod checks;
mod decisions;
mod dedicated;
mod departing;
mod environment;
mod finding;
mod group;
mod labels;
mod limits;
mod linear;
mod named_certificates;
mod names;
mod order;
mod primary_ips;
mod project;
mod property;
use crate::common::random;
mod selector;
mod status;
mod support;
mod tenants;
mod uploads;
mod variables;
