//! The controllers. In each sync pass, a controller reads the state (observe), decides what to do (plan), and writes
//! (apply). A controller uses the cloud through the traits in `provider`, and reads data through `cache`.
//!
//! The controllers know the rules of Kubernetes for nodes and Services. They must never import a provider, `daemon` or
//! `cli`. The function `plan` of a controller makes no call, reads no clock and has no side effect. Therefore the
//! daemon, the commands `sync` and `inspect`, and the option `--dry-run` can all use it.

mod backoff;
mod controller;
mod executor;
pub mod kubelet_certificates;
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
pub use matching::{ForeignMatch, MatchIndex, MatchedBy};
pub use node_writes::{NETWORK_UNAVAILABLE, NodeChange};
pub use plan::Plan;
pub use report::{CHANGES_MADE, FINDINGS};
