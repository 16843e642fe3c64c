//! The process: start, end, signals, Lease, HTTP, credentials, logs, metrics.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;

mod abnormal_end;
mod deadline;
mod health;
mod kubeconfig;
mod leader;
mod logs;
mod metrics;
mod proxies;
mod robot;
mod rotation;
mod secrets;
mod start;
mod terminated;
