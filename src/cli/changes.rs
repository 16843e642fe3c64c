//! What the commands that change something say about it, whatever it is that they change.

use super::output;
use crate::cloud::{Gate, Refused};
use crate::controllers::{Proposal, Report};

/// `sync` writes what it was told to.
pub(super) struct Open;

impl Gate for Open {
    fn pass(&self, _what: &str) -> Result<(), Refused> {
        Ok(())
    }
}

/// `2 changed, 98 unchanged, 0 failed`.
pub(super) fn summary(report: &Report) -> String {
    let unreached = match report.unreached {
        0 => String::new(),
        count => format!(", {count} not reached"),
    };
    format!(
        "{} changed, {} unchanged, {} failed{unreached}",
        report.changed,
        report.unchanged,
        report.failed()
    )
}

/// The plan, a line each, and how much of it there is.
pub(super) fn proposed(proposals: &[Proposal]) -> String {
    let lines = proposals.iter().flat_map(|proposal| {
        let lines = proposal.lines.iter().cloned();
        let obstacle = proposal.obstacle.iter().map(|why| format!("can't: {why}"));
        let lines = lines
            .chain(obstacle)
            .map(|line| output::one_line(&line).into_owned());
        lines.map(|line| format!("{}  {line}\n", proposal.object))
    });
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
    let changes = changes.map(|(object, line)| format!("{object}  {line}\n"));
    let failures = report.failures.iter();
    let failures = failures.map(|failure| format!("{}  failed: {}\n", failure.object, failure.why));
    let text: String = changes.chain(warnings).chain(failures).collect();
    text + &summary(report) + "\n"
}
