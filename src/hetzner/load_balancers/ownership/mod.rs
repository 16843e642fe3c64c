//! Who owns a load balancer and its ports. The files of this folder decide which load balancer belongs to a Service,
//! and which Services share one. They also decide what happens to a load balancer when its Service does not use it any
//! more. The rules are in the tables of [`judge`].

pub(crate) mod certificates;
pub(crate) mod context;
pub(crate) mod defaults;
pub(crate) mod facts;
pub(crate) mod find;
pub(crate) mod group;
pub(crate) mod guard;
pub(crate) mod index;
pub(crate) mod judge;
pub(crate) mod labels;
pub(crate) mod names;
pub(crate) mod removal;
pub(crate) mod replacement;
pub(crate) mod share;
