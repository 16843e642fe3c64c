//! Do now what one tick of the daemon would do, or say it.

use super::{Context, ask, json, usage, warnings};
use crate::cli::changes;
use crate::cli::output::{self, Printer};
use crate::cli::startup;
use crate::cli::{Exit, leader};
use crate::settings::{Command, Output};
use std::ffi::OsString;

pub(in crate::cli) fn sync(words: Vec<OsString>) -> Exit {
    let mut context = match ask(Command::RouteSync, words) {
        Ok(context) => context,
        Err(exit) => return exit,
    };
    if context.settings.detailed_exitcode.value && !context.settings.dry_run.value {
        return usage("--detailed-exitcode needs --dry-run");
    }
    leader::tell(&context.settings, &context.apis);
    match context.settings.dry_run.value {
        true => context.dry_run(),
        false => context.sync(),
    }
}

impl Context {
    fn dry_run(&self) -> Exit {
        let plan = match self.evaluate() {
            Ok(plan) => plan,
            Err(exit) => return exit,
        };
        let text = match self.settings.output.value {
            Output::Json => output::json(&json::plan("RouteSync", &plan)),
            Output::Yaml => output::yaml(&json::plan("RouteSync", &plan)),
            Output::Table | Output::Wide => changes::proposed(&plan.proposals(), warnings(&plan)),
        };
        let is_blocked = plan.nodes.iter().any(|node| node.obstacle.is_some());
        match Printer::stdout(&text) {
            Exit::Done if is_blocked => Exit::Failed,
            Exit::Done if plan.has_writes() && self.settings.detailed_exitcode.value => {
                Exit::Pending
            }
            exit => exit,
        }
    }

    fn sync(&mut self) -> Exit {
        let apis = &self.apis;
        let work = || self.routes.sync(apis);
        let synced = apis.recorder.alongside(&apis.kube, work);
        let report = &synced.report;
        if let Some(outage) = &report.outage {
            // What was done before is not lost in silence.
            for (object, change) in &report.changes {
                Printer::stderr(&output::line(format_args!("{object}  {change}")));
            }
            return startup::failed(&self.apis, &outage.error);
        }
        let text = match self.settings.output.value {
            Output::Json => output::json(&json::synced("RouteSync", &synced)),
            Output::Yaml => output::yaml(&json::synced("RouteSync", &synced)),
            Output::Table | Output::Wide => changes::done(report, warnings(&synced.plan)),
        };
        match Printer::stdout(&text) {
            Exit::Done if !report.failures.is_empty() => Exit::Failed,
            exit => exit,
        }
    }
}
