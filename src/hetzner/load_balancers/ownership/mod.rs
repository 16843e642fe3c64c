//! The ownership of load balancers and of their ports: which Services use one load balancer together, which one belongs
//! to a Service, and what happens to a load balancer when its Service leaves it. The rules are the tables of [`judge`].

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
