//! Fault stories: random faults by seed, and what must hold at the end.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;

mod node;
mod route;
mod service;
