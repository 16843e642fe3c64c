//! The plan of one object, with its writes. The controllers of nodes, of their lifecycle and of routes use
//! it for nodes.

use super::controller::Proposal;
use crate::kube::ObjectReference;
use crate::provider::{Finding, Reason, Write};

/// The writes to one object, and what an operator should know about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan<W> {
    pub object: ObjectReference,
    /// The resource version of the object that the plan was made for.
    pub version: String,
    /// The writes, in the order in which they are made.
    pub changes: Vec<W>,
    pub findings: Vec<Finding>,
    /// The reason why not everything can be done that should be done. The object counts as failed, and is
    /// planned again later.
    pub obstacle: Option<Finding>,
}

impl<W: Write> Plan<W> {
    pub fn new(object: ObjectReference, version: &str) -> Plan<W> {
        Plan {
            object,
            version: version.to_owned(),
            changes: Vec::new(),
            findings: Vec::new(),
            obstacle: None,
        }
    }

    /// Returns all findings to report, including the obstacle.
    pub fn all_findings(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().chain(&self.obstacle)
    }

    /// Returns the plan as text, for `--dry-run` and `inspect`.
    pub fn proposal(&self) -> Proposal {
        let changes = self.changes.iter().map(Write::description).collect();
        Proposal::new(&self.object, changes, self.obstacle.as_ref())
    }

    /// Adds a warning that is not an obstacle.
    pub(super) fn warn(&mut self, reason: Reason, message: impl Into<String>) {
        self.findings.push(Finding::warning(reason, message));
    }
}

impl<W> AsRef<Plan<W>> for Plan<W> {
    fn as_ref(&self) -> &Plan<W> {
        self
    }
}
