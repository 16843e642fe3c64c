//! How commands report changes, planned and made.

use super::output::line;
use crate::controllers::{Proposal, Report};

/// What came of several reports together.
#[derive(Default)]
pub(super) struct Count {
    changed: usize,
    unchanged: usize,
    failed: usize,
    unreached: usize,
}

impl Count {
    pub(super) fn add(&mut self, report: &Report) {
        self.changed += report.changed;
        self.unchanged += report.unchanged;
        self.failed += report.failed();
        self.unreached += report.unreached;
    }

    /// `2 changed, 98 unchanged, 0 failed`.
    pub(super) fn text(&self) -> String {
        let unreached = match self.unreached {
            0 => String::new(),
            count => format!(", {count} not reached"),
        };
        format!(
            "{} changed, {} unchanged, {} failed{unreached}",
            self.changed, self.unchanged, self.failed
        )
    }
}

/// `2 changed, 98 unchanged, 0 failed`.
pub(super) fn summary(report: &Report) -> String {
    let mut count = Count::default();
    count.add(report);
    count.text()
}

/// The plan, a line each, then warnings, then what is blocked, then the counts: the last lines are seen best.
pub(super) fn proposed(proposals: &[Proposal], warnings: impl Iterator<Item = String>) -> String {
    let line = |object: &str, text: &str| line(format_args!("{object}  {text}"));
    let changes = proposals.iter().flat_map(|proposal| {
        let lines = proposal.lines.iter();
        lines.map(|change| line(&proposal.object, change))
    });
    let obstacles = proposals.iter().flat_map(|proposal| {
        let obstacle = proposal.obstacle.iter();
        obstacle.map(|why| line(&proposal.object, &format!("can't: {why}")))
    });
    let lines = changes.chain(warnings).chain(obstacles);
    let count =
        |such: fn(&Proposal) -> bool| proposals.iter().filter(|proposal| such(proposal)).count();
    let would_change = count(|proposal| !proposal.lines.is_empty() && proposal.obstacle.is_none());
    let blocked = count(|proposal| proposal.obstacle.is_some());
    let unchanged = proposals.len() - would_change - blocked;
    let lines: String = lines.collect();
    format!(
        "{lines}{would_change} would change, {unchanged} unchanged, {blocked} can't be helped\n"
    )
}

/// What was done, what should be known, what failed, and how much of each.
pub(super) fn done(report: &Report, warnings: impl Iterator<Item = String>) -> String {
    let changes = report.changes.iter();
    let changes = changes.map(|(object, change)| line(format_args!("{object}  {change}")));
    let failures = report.failures.iter();
    let failures =
        failures.map(|failure| line(format_args!("{}  failed: {}", failure.object, failure.why)));
    let text: String = changes.chain(warnings).chain(failures).collect();
    text + &summary(report) + "\n"
}
