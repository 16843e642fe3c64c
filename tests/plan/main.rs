//! What is decided: tables and properties of the pure plans, and the order of the modules.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;

mod architecture;
mod kubelet_certificates;
mod lifecycle;
mod load_balancer;
mod node;
mod node_addresses;
mod node_labels;
mod node_zones;
mod route;
mod texts;
mod tls_chain;
