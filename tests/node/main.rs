//! Tests of nodes: the binary runs against the sandbox.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;

mod api_errors;
mod change_detection;
mod change_detection_errors;
mod dedicated;
mod duplicate_claims;
mod initialise;
mod kubelet_certificates;
mod large;
mod lifecycle;
mod network;
mod out_of_service;
mod parallel;
mod relabel;
mod server_metadata;
mod view;
