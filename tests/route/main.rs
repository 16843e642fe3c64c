//! Tests of routes: the binary runs against the sandbox.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;

mod sync;

/// How many seconds a second of the library's time lasts in the tests that use it without the binary.
const LIBRARY_SCALE: f64 = 0.1;
