//! The ownership of load balancers and of their ports. The files here decide which load balancer belongs to a Service,
//! which Services share one load balancer, and what happens to a load balancer when its Service leaves it. The tables
//! in [`judge`] contain the rules.

pub(crate) mod certificates;
pub(crate) mod context;
pub(crate) mod facts;
pub(crate) mod find;
pub(crate) mod group;
pub(crate) mod guard;
pub(crate) mod index;
pub(crate) mod judge;
pub(crate) mod labels;
pub(crate) mod names;
pub(crate) mod removal;
pub(crate) mod share;
