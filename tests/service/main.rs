//! Tests of Services and their load balancers: the binary and the provider run against the sandbox.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;

mod api_errors;

mod left_over;
mod provider;
mod refused;
mod sync;
mod take_over;
mod unknown_settings;

/// How many seconds a second of the library's time lasts in the tests that use it without the binary.
const LIBRARY_SCALE: f64 = 0.01;
