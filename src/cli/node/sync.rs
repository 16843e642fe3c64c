//! Do now what one tick of the daemon would do, or say it.

use super::{Context, Plans, ask, json, together, usage};
use crate::cli::changes;
use crate::cli::output::{self, Printer};
use crate::cli::{Exit, leader, startup};
use crate::controllers::{Proposal, Report, Selection};
use crate::provider::Severity;
use crate::settings::{Command, Output};
use std::collections::{BTreeSet, HashSet};
use std::ffi::OsString;

pub(in crate::cli) fn sync(words: Vec<OsString>) -> Exit {
    let mut context = match ask(Command::NodeSync, words) {
        Ok(context) => context,
        Err(exit) => return exit,
    };
    let names: BTreeSet<String> = context.names.iter().cloned().collect();
    let selection = if names.is_empty() {
        Selection::All
    } else {
        Selection::Names(names)
    };
    if context.settings.detailed_exitcode.value && !context.settings.dry_run.value {
        return usage("--detailed-exitcode needs --dry-run");
    }
    match startup::check_profile(&context.apis, &context.unknown) {
        Ok(None) => {}
        Ok(Some(why)) => return Printer::failure(&why),
        Err(error) => return startup::failed(&context.apis, &error),
    }
    if let Err(exit) = context.check_names() {
        return exit;
    }
    leader::tell(&context.settings, &context.apis);
    match context.settings.dry_run.value {
        true => context.dry_run(&selection),
        false => context.sync(&selection),
    }
}

impl Context {
    fn dry_run(&self, selection: &Selection) -> Exit {
        let plans = match self.evaluate(selection) {
            Ok(plans) => plans,
            Err(exit) => return exit,
        };
        let text = match self.settings.output.value {
            Output::Json => output::json(&json::plans("NodeSync", &plans)),
            Output::Yaml => output::yaml(&json::plans("NodeSync", &plans)),
            Output::Table | Output::Wide => dry_run_lines(&plans),
        };
        let is_pending =
            self.settings.detailed_exitcode.value && plans.iter().any(Plans::has_changes);
        match Printer::stdout(&text) {
            Exit::Done if plans.iter().any(|plan| plan.obstacles().next().is_some()) => {
                Exit::Failed
            }
            Exit::Done if is_pending => Exit::Pending,
            exit => exit,
        }
    }

    fn sync(&mut self, selection: &Selection) -> Exit {
        let apis = &self.apis;
        let work = || {
            let nodes = self.nodes.sync(apis, selection);
            match nodes.0.outage {
                Some(_) => (nodes, None),
                None => (nodes, Some(self.lifecycle.sync(apis, selection))),
            }
        };
        let ((mut report, nodes), second) = apis.recorder.alongside(&apis.kube, work);
        if let Some(outage) = &report.outage {
            return startup::failed(&self.apis, &outage.error);
        }
        let (second, lifecycle) = second.unwrap_or_default();
        if let Some(outage) = &second.outage {
            return startup::failed(&self.apis, &outage.error);
        }
        let plans = together(nodes, lifecycle);
        report.unreached += second.unreached;
        report.changes.extend(second.changes);
        report.failures.extend(second.failures);
        count(&mut report, plans.len());
        let text = match self.settings.output.value {
            Output::Json => output::json(&json::synced("NodeSync", &plans, &report)),
            Output::Yaml => output::yaml(&json::synced("NodeSync", &plans, &report)),
            Output::Table | Output::Wide => changes::done(&report, warnings(&plans)),
        };
        match Printer::stdout(&text) {
            Exit::Done if !report.failures.is_empty() => Exit::Failed,
            exit => exit,
        }
    }
}

/// A node is counted once, whatever the two controllers did to it.
fn count(report: &mut Report, nodes: usize) {
    let failed: HashSet<&str> = report
        .failures
        .iter()
        .map(|failure| failure.object.as_str())
        .collect();
    let changed: HashSet<&str> = report
        .changes
        .iter()
        .map(|(object, _)| object.as_str())
        .collect();
    report.changed = changed.difference(&failed).count();
    report.unchanged = nodes.saturating_sub(report.changed + failed.len());
}

fn dry_run_lines(plans: &[Plans]) -> String {
    let proposals: Vec<Proposal> = plans.iter().map(Plans::proposal).collect();
    changes::proposed(&proposals, warnings(plans))
}

/// Warnings: they do not block the sync.
fn warnings(plans: &[Plans]) -> impl Iterator<Item = String> {
    plans.iter().flat_map(|plans| {
        let others = plans
            .findings()
            .filter(|finding| plans.obstacles().all(|obstacle| obstacle != *finding));
        let warnings = others.filter(|finding| finding.severity == Severity::Warning);
        warnings.map(|finding| {
            output::line(format_args!(
                "node/{}  warning: {}",
                plans.node.object.name, finding.message
            ))
        })
    })
}
