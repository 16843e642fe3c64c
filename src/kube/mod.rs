//! The Kubernetes API: how to reach it, a client with the calls that this program makes, and the few types
//! that it uses.
//!
//! This module contains paths, preconditions, `Status` errors and events. It must never import the code of a cloud, or
//! decide what should be written.

mod budget;
mod client;
pub mod config;
mod error;
mod events;
mod labels;
mod lease;
mod node_table;
mod recorder;
mod secrets;
mod services;
mod types;
mod workloads;

pub use budget::Above;
pub use client::{ACCESS_REVIEW, Client, Print, READ_TIMEOUT, ReadFrom, Verb, Version};
pub use error::{CONFLICT_TRIES, Error, retry_on_conflict};
pub use events::{Event, Involved, PastEvent};
pub use labels::{Annotations, Labels, ServiceScope};
pub use lease::{Identities, Lease, LeaseKey, LeaseSpec, micro_time};
pub use node_table::{Detail, NodeRow, RowMeta};
pub use recorder::{Recorder, Reported};
pub use secrets::{ReadSecret, without_rights};
pub use services::{
    AnyService, LOAD_BALANCER_FINALIZER, SERVICE, Service, ServiceList, ServiceSpec,
    limit_manifests,
};
pub use types::{
    Condition, ListMeta, NODE, Node, NodeSpec, NodeStatus, ObjectMeta, ObjectReference, PodCidrs,
    Taint,
};
pub use workloads::{Container, Workload, container};
