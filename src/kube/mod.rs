//! The Kubernetes API: how to reach it, a client with the calls that this program makes, and the few types
//! that it uses.
//!
//! This module contains paths, preconditions, `Status` errors and events. It must never import the code of a cloud, or
//! decide what should be written.

mod budget;
mod client;
pub mod config;
mod endpoints;
mod error;
mod events;
mod labels;
mod lease;
mod namespaces;
mod node_table;
mod placement;
mod recorder;
mod secrets;
mod services;
mod serving_request;
mod signing_requests;
mod streamed;
mod types;
mod workloads;

pub use budget::Above;
pub use client::{ACCESS_REVIEW, AllowedVerb, KubeClient, Print, READ_TIMEOUT, ReadFrom, Version};
pub use endpoints::{SERVICES_WITH_PODS, without_endpoint_rights};
pub use error::{CONFLICT_TRIES, KubeError, retry_on_conflict};
pub use events::{Event, Involved, PastEvent};
pub use labels::{Annotations, Labels, ServiceScope};
pub use lease::{Identities, Lease, LeaseKey, LeaseSpec, micro_time};
pub use namespaces::defaults_of_manifests;
pub use node_table::{Detail, NodeRow, RowMeta};
pub use placement::{NAMES_AT_MOST, PlacedKind, PlacedObject};
pub use recorder::{Recorder, Reported};
pub use secrets::{ReadSecret, without_rights};
pub use services::{
    AnyService, KubeService, LOAD_BALANCER_FINALIZER, SERVICE, ServiceList, ServiceSpec,
    limit_manifests,
};
pub use serving_request::{AltName, NODES_GROUP, ServingRequest};
pub use signing_requests::{
    KUBELET_SERVING, NODE_USER, REQUESTS_AT_MOST, SIGNING_REQUEST, SigningRequest, SigningRow,
    SigningState, signing_error,
};
pub use types::{
    Condition, KubeNode, ListMeta, NODE, NodeSpec, NodeStatus, ObjectMeta, ObjectReference,
    PodCidrs, Subject, Taint,
};
pub use workloads::{Container, Workload, container};
