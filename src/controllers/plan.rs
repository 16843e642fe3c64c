//! The plan for one object, e.g. for a node. It contains the writes, the findings (messages for the operator), and the
//! facts from which the controller made the plan. The plans of all controllers have this type.

use super::controller::Proposal;
use crate::kube::ObjectReference;
use crate::provider::{Description, Finding, Reason, Severity, Write};
use serde_json::Value;
use std::ops::{Deref, DerefMut};

/// The plan for one object: the writes to it, and what an operator should know about it. The fields of `facts` can be
/// used as if they were fields of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan<W, Facts = ()> {
    pub object: ObjectReference,
    /// The resource version in Kubernetes of the object for which the plan was made. The text is empty when the object
    /// is in the cloud.
    pub version: String,
    /// The writes, in the order in which they are made.
    pub changes: Vec<W>,
    pub findings: Vec<Finding>,
    /// The reason why a part of the necessary work can't be done. The object then counts as failed, and is planned
    /// again later. `None` means that all of the work can be done.
    pub obstacle: Option<Finding>,
    /// Further data about the object, which only the controller that made the plan uses.
    pub facts: Facts,
}

impl<W: Write, Facts> Plan<W, Facts> {
    /// Creates a plan without writes.
    pub fn new(object: ObjectReference, version: &str, facts: Facts) -> Plan<W, Facts> {
        Plan {
            object,
            version: version.to_owned(),
            changes: Vec::new(),
            findings: Vec::new(),
            obstacle: None,
            facts,
        }
    }

    /// Returns a name such as `service/default/web`.
    pub fn name(&self) -> String {
        self.object.for_people()
    }

    /// Whether the plan has any write.
    pub fn has_writes(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Returns a description of all writes in words, in their order.
    pub fn description(&self) -> Description {
        self.changes.iter().map(Write::description).collect()
    }

    /// Returns all writes as JSON, in their order.
    pub fn json(&self) -> Vec<Value> {
        self.changes.iter().map(Write::json).collect()
    }

    /// Returns the findings (messages for the operator) with severity `Warning`. A warning does not prevent any write.
    pub fn warnings(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.severity == Severity::Warning)
    }

    /// Returns all findings (messages for the operator) about the object. The obstacle (the reason why something can't
    /// be done) is a finding as well, and comes last.
    pub fn all_findings(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().chain(&self.obstacle)
    }

    /// Returns the plan as text, for `--dry-run` and `inspect`.
    pub fn proposal(&self) -> Proposal {
        let is_unknown = |finding: &&Finding| finding.reason == Reason::UnknownProviderID;
        Proposal {
            object: self.name(),
            changes: self.description(),
            obstacle: self.obstacle.as_ref().map(|finding| finding.text().into_owned()),
            warning: self.findings.iter().find(is_unknown).map(|it| it.text().into_owned()),
        }
    }

    /// Adds a warning for the operator. The warning does not prevent any write of the plan.
    pub(super) fn warn(&mut self, reason: Reason, message: impl Into<String>) {
        self.findings.push(Finding::warning(reason, message));
    }
}

impl<W: Write, Facts: Default> Default for Plan<W, Facts> {
    fn default() -> Plan<W, Facts> {
        Plan::new(ObjectReference::default(), "", Facts::default())
    }
}

impl<W, Facts> Deref for Plan<W, Facts> {
    type Target = Facts;

    fn deref(&self) -> &Facts {
        &self.facts
    }
}

impl<W, Facts> DerefMut for Plan<W, Facts> {
    fn deref_mut(&mut self) -> &mut Facts {
        &mut self.facts
    }
}
