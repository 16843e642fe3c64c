//! Tests of everything around the binary: manifests, chart, image, examples, and other clients on the sandbox.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;

mod built;
mod demo;
mod dev;
mod examples;
mod hcloud_python;
mod kubectl;
mod manifests;
mod real_cluster;
mod release;
