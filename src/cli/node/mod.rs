//! `ccm node list | inspect | sync`: what both node controllers see and would do, for people.

mod inspect;
mod list;
mod plans;

pub(super) use inspect::inspect;
pub(super) use list::list;

use super::leader;
use super::output::Exit;
use crate::controllers::Report;
use crate::settings::Command;
use plans::{Nodes, together};
use std::collections::HashSet;
use std::ffi::OsString;

pub(super) fn sync(words: Vec<OsString>) -> Result<Exit, Exit> {
    let mut nodes = Nodes::start(Command::NodeSync, words)?;
    nodes.context.check_exitcode()?;
    nodes.context.check_profile()?;
    let selection = nodes.selection()?;
    leader::tell(&nodes.context.settings, &nodes.context.apis);
    if nodes.context.settings.dry_run.value {
        let plans = nodes.evaluate(&selection)?;
        return Ok(nodes.context.would_do(&plans));
    }
    let apis = &nodes.context.apis;
    Ok(nodes.context.do_now(|gate| {
        let (mut report, plans) = nodes.nodes.sync(apis, gate, &selection);
        if report.outage.is_some() {
            return (report, together(plans, Vec::new()));
        }
        let (second, lifecycle) = nodes.lifecycle.sync(apis, gate, &selection);
        let plans = together(plans, lifecycle);
        report.outage = second.outage;
        report.unreached += second.unreached;
        report.changes.extend(second.changes);
        report.failures.extend(second.failures);
        count(&mut report, plans.len());
        (report, plans)
    }))
}

/// A node is counted once, whatever the two controllers did to it.
fn count(report: &mut Report, nodes: usize) {
    let failures = report.failures.iter();
    let failed: HashSet<&str> = failures.map(|failure| failure.object.as_str()).collect();
    let changes = report.changes.iter();
    let changed: HashSet<&str> = changes.map(|(object, _)| object.as_str()).collect();
    report.changed = changed.difference(&failed).count();
    report.unchanged = nodes.saturating_sub(report.changed + failed.len());
}
