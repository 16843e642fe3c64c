//! Do now what one tick of the daemon would do, or say it.

use super::{Context, ask, json, usage};
use crate::cli::changes;
use crate::cli::output::{self, Printer};
use crate::cli::startup;
use crate::cli::{Exit, leader};
use crate::controllers::service::ServicePlan;
use crate::controllers::{Proposal, Selection};
use crate::provider::Severity;
use crate::settings::{Command, Output};
use std::ffi::OsString;

pub(in crate::cli) fn sync(words: Vec<OsString>) -> Exit {
    let mut context = match ask(Command::LbSync, words) {
        Ok(context) => context,
        Err(exit) => return exit,
    };
    if context.settings.detailed_exitcode.value && !context.settings.dry_run.value {
        return usage("--detailed-exitcode needs --dry-run");
    }
    if let Err(exit) = context.check_profile() {
        return exit;
    }
    if context.settings.delete_orphans.value {
        leader::tell(&context.settings, &context.apis);
        return context.delete_orphans();
    }
    let selection = match context.selection() {
        Ok(selection) => selection,
        Err(exit) => return exit,
    };
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
            Output::Json => output::json(&json::plans("LoadBalancerSync", &plans)),
            Output::Yaml => output::yaml(&json::plans("LoadBalancerSync", &plans)),
            Output::Table | Output::Wide => dry_run_lines(&plans),
        };
        let pending = plans.iter().any(ServicePlan::has_writes);
        let is_short = |plan: &ServicePlan| plan.cloud.obstacle.is_some() || holds_back(plan);
        tell_held_back(&plans);
        match Printer::stdout(&text) {
            Exit::Done if plans.iter().any(is_short) => Exit::Failed,
            Exit::Done if pending && self.settings.detailed_exitcode.value => Exit::Pending,
            exit => exit,
        }
    }

    fn sync(&mut self, selection: &Selection) -> Exit {
        let apis = &self.apis;
        let work = || self.services.sync(apis, selection);
        let (report, plans) = apis.recorder.alongside(&apis.kube, work);
        if let Some(outage) = &report.outage {
            // What was done before is not lost in silence.
            for (object, change) in &report.changes {
                Printer::stderr(&output::line(format_args!("{object}  {change}")));
            }
            return startup::failed(&self.apis, &outage.error);
        }
        let text = match self.settings.output.value {
            Output::Json => output::json(&json::synced("LoadBalancerSync", &plans, &report)),
            Output::Yaml => output::yaml(&json::synced("LoadBalancerSync", &plans, &report)),
            Output::Table | Output::Wide => {
                let more = warnings(&plans).chain(held_back(&plans));
                with_count(changes::done(&report, more), &plans)
            }
        };
        tell_held_back(&plans);
        match Printer::stdout(&text) {
            Exit::Done if !report.failures.is_empty() || plans.iter().any(holds_back) => {
                Exit::Failed
            }
            exit => exit,
        }
    }
}

pub(super) fn dry_run_lines(plans: &[ServicePlan]) -> String {
    let proposals: Vec<Proposal> = plans.iter().map(ServicePlan::proposal).collect();
    let more = warnings(plans).chain(held_back(plans));
    with_count(changes::proposed(&proposals, more), plans)
}

fn holds_back(plan: &ServicePlan) -> bool {
    !plan.cloud.held_back.is_empty()
}

/// What a default asks for here, and the daemon may not want.
fn held_back(plans: &[ServicePlan]) -> impl Iterator<Item = String> {
    plans.iter().flat_map(|plan| {
        let lines = plan.held_back_lines().into_iter();
        lines.map(|line| output::line(format_args!("{}  held back: {line}", plan.name())))
    })
}

/// The summary, which ends the text, says of how many Services.
fn with_count(text: String, plans: &[ServicePlan]) -> String {
    match plans.iter().filter(|plan| holds_back(plan)).count() {
        0 => text,
        count => format!("{}, {count} held back\n", text.trim_end()),
    }
}

/// What to do about it.
fn tell_held_back(plans: &[ServicePlan]) {
    if plans.iter().any(holds_back) {
        Printer::stderr(
            "ccm: what is held back is asked for only by defaults of settings that the daemon may have: take its \
             settings with --settings-from, set them here, or add --yes\n",
        );
    }
}

/// Warnings: they do not block the sync.
pub(super) fn warnings<'a>(
    plans: impl IntoIterator<Item = &'a ServicePlan>,
) -> impl Iterator<Item = String> {
    plans.into_iter().flat_map(|plan| {
        let others = plan.findings.iter().chain(&plan.cloud.findings);
        let warnings = others.filter(|finding| finding.severity == Severity::Warning);
        warnings.map(|finding| {
            output::line(format_args!(
                "{}  warning: {}",
                plan.name(),
                finding.message
            ))
        })
    })
}
