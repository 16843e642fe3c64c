//! The controllers, which observe → plan → apply on the contract of `provider` and the views of `cache`.
//!
//! The controllers know what Kubernetes promises about nodes and Services. They must never import a provider, `daemon`
//! or `cli`. `plan` makes no call, reads no clock and has no side effect, so that the daemon's tick, `sync`,
//! `--dry-run` and `inspect` can call the same functions.

mod backoff;
mod controller;
mod executor;
pub mod lifecycle;
mod matching;
pub mod node;
mod node_writes;
mod parallel;
mod plan;
mod report;
pub mod route;
mod schedule;
pub mod service;
mod share;

pub use controller::{Controller, Counts, Failure, Outage, Progress, Proposal, Report, Selection};
pub use matching::MatchedBy;
pub use node_writes::{NETWORK_UNAVAILABLE, NodeChange};
pub use plan::Plan;
pub use report::{CHANGES_MADE, FINDINGS};
