//! Do now what one tick of the daemon would do, or say it.

use super::{Asked, ask, json, usage};
use crate::cli::changes::{self, Open};
use crate::cli::output::{self, Printer};
use crate::cli::{Exit, leader};
use crate::cloud::Severity;
use crate::controllers::service::ServicePlan;
use crate::controllers::{Proposal, Selection};
use crate::settings::{Command, Output};
use std::ffi::OsString;

pub(in crate::cli) fn sync(words: Vec<OsString>) -> Exit {
    let mut asked = match ask(Command::LbSync, words) {
        Ok(asked) => asked,
        Err(exit) => return exit,
    };
    if asked.settings.detailed_exitcode.value && !asked.settings.dry_run.value {
        return usage("--detailed-exitcode goes with --dry-run");
    }
    if asked.settings.delete_orphans.value {
        leader::tell(&asked.settings, &asked.world);
        return asked.delete_orphans();
    }
    let selection = match asked.selection() {
        Ok(selection) => selection,
        Err(exit) => return exit,
    };
    leader::tell(&asked.settings, &asked.world);
    match asked.settings.dry_run.value {
        true => asked.dry_run(&selection),
        false => asked.sync(&selection),
    }
}

impl Asked {
    fn dry_run(&self, selection: &Selection) -> Exit {
        let plans = match self.evaluate(selection) {
            Ok(plans) => plans,
            Err(exit) => return exit,
        };
        let text = match self.settings.output.value {
            Output::Json => output::json(&json::plans("LoadBalancerSync", &plans)),
            Output::Yaml => output::yaml(&json::plans("LoadBalancerSync", &plans)),
            Output::Table | Output::Wide => dry_run_lines(&plans),
        };
        let pending = plans.iter().any(ServicePlan::has_writes);
        match Printer::stdout(&text) {
            Exit::Done if plans.iter().any(|plan| plan.cloud.obstacle.is_some()) => Exit::Failed,
            Exit::Done if pending && self.settings.detailed_exitcode.value => Exit::Pending,
            exit => exit,
        }
    }

    fn sync(&mut self, selection: &Selection) -> Exit {
        let (report, plans) = self.services.sync(&self.world, &Open, selection);
        if let Some(outage) = &report.outage {
            // What was done before is not lost in silence.
            for (object, line) in &report.changes {
                Printer::stderr(&format!("{object}  {line}\n"));
            }
            return self.failed(&outage.error);
        }
        let text = match self.settings.output.value {
            Output::Json => output::json(&json::synced("LoadBalancerSync", &plans, &report)),
            Output::Yaml => output::yaml(&json::synced("LoadBalancerSync", &plans, &report)),
            Output::Table | Output::Wide => changes::done(&report, warnings(&plans)),
        };
        match Printer::stdout(&text) {
            Exit::Done if !report.failures.is_empty() => Exit::Failed,
            exit => exit,
        }
    }
}

pub(super) fn dry_run_lines(plans: &[ServicePlan]) -> String {
    let proposals: Vec<Proposal> = plans.iter().map(ServicePlan::proposal).collect();
    changes::proposed(&proposals, warnings(plans))
}

/// Findings that stand in nobody's way, and should be known all the same.
pub(super) fn warnings<'a>(
    plans: impl IntoIterator<Item = &'a ServicePlan>,
) -> impl Iterator<Item = String> {
    plans.into_iter().flat_map(|plan| {
        let others = plan.findings.iter().chain(&plan.cloud.findings);
        let warnings = others.filter(|finding| finding.severity == Severity::Warning);
        warnings.map(|finding| format!("{}  warning: {}\n", plan.name(), finding.message))
    })
}
