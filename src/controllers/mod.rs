//! The controllers: observe → plan → apply, on the contract of `provider` and the views of `cache`.
//!
//! Knows: what Kubernetes promises about nodes. Must never import a provider, `daemon` or
//! `cli`. `plan` makes no call, reads no clock and has no side effect: the daemon's tick,
//! `sync`, `--dry-run` and `inspect` are the same functions.

mod backoff;
mod executor;
pub mod lifecycle;
mod matching;
pub mod node;
mod report;
pub mod route;
pub mod service;

pub use matching::{MatchedBy, Outcome};
pub use report::{CHANGES_MADE, FINDINGS, Failure, Outage, Report};

use crate::cache::Apis;
use std::collections::BTreeSet;
use std::time::Duration;

/// One of the loops of a cloud-controller-manager.
pub trait Controller: Send {
    /// Canonical name, e.g. `cloud-node-controller`.
    fn name(&self) -> &'static str;

    /// Between the ends of two ticks.
    fn interval(&self) -> Duration;

    /// One pass over everything that is due. What is unfinished then (`Report::unfinished`) continues in the next tick.
    fn tick(&mut self, apis: &Apis, selection: &Selection) -> Report;

    /// The same pass, up to the first write: what a tick would do now.
    fn propose(
        &self,
        apis: &Apis,
        selection: &Selection,
    ) -> Result<Vec<Proposal>, crate::cache::Error>;
}

/// What a tick would do to one object, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// E.g. `node/worker-1`.
    pub object: String,
    pub lines: Vec<String>,
    /// What stands in the way of more.
    pub obstacle: Option<String>,
}

/// Which objects a pass is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// Those that are due.
    Due,
    /// All of them, due or not.
    All,
    /// These, due or not.
    Names(BTreeSet<String>),
}

impl Selection {
    /// Asked for by a person, so that nothing of it is put off.
    pub fn is_explicit(&self) -> bool {
        *self != Selection::Due
    }

    pub fn names(&self, name: &str) -> bool {
        match self {
            Selection::Due | Selection::All => true,
            Selection::Names(names) => names.contains(name),
        }
    }
}
