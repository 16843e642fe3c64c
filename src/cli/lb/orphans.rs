//! `ccm lb sync --delete-orphans`: load balancers of this cluster whose Service does not exist are shown, asked about,
//! and deleted.

use super::sync::{dry_run_lines, warnings};
use super::{Context, json, usage};
use crate::cli::Exit;
use crate::cli::changes;
use crate::cli::output::{self, Printer};
use crate::cli::startup;
use crate::controllers::service::ServicePlan;
use crate::controllers::{Report, Selection};
use crate::settings::Output;
use std::collections::HashSet;
use std::io::{IsTerminal, stdin};
use std::time::Instant;

const KIND: &str = "LoadBalancerSync";

impl Context {
    /// Those that no plan takes over; in the namespace that is asked for.
    pub(super) fn orphans(
        &self,
        plans: &[ServicePlan],
        begun: Instant,
    ) -> Result<Vec<ServicePlan>, Exit> {
        let mut orphans = self
            .services
            .orphans(&self.apis, begun)
            .map_err(|error| startup::failed(&self.apis, &error))?;
        let number = |plan: &ServicePlan| plan.cloud.found.as_ref().map(|found| found.id);
        let taken: HashSet<u64> = plans.iter().filter_map(number).collect();
        let namespace = self.settings.namespace.value.as_ref();
        orphans.retain(|orphan| {
            let is_taken = number(orphan).is_some_and(|id| taken.contains(&id));
            let of = &orphan.service.metadata.namespace;
            !is_taken && namespace.is_none_or(|namespace| namespace == of)
        });
        Ok(orphans)
    }

    pub(super) fn delete_orphans(&self) -> Exit {
        let is_dry = self.settings.dry_run.value;
        if !self.names.is_empty() {
            return usage("--delete-orphans takes no Service: those of orphans do not exist");
        }
        let may_ask = stdin().is_terminal() && std::io::stderr().is_terminal();
        if !(is_dry || self.settings.yes.value || may_ask) {
            return usage(
                "--delete-orphans asks, and there is no terminal to ask at: add --yes, or --dry-run to see them",
            );
        }
        let begun = Instant::now();
        let plans = match self.evaluate(&Selection::All) {
            Ok(plans) => plans,
            Err(exit) => return exit,
        };
        let orphans = match self.orphans(&plans, begun) {
            Ok(orphans) => orphans,
            Err(exit) => return exit,
        };
        let ids: HashSet<u64> = orphans.iter().filter_map(to_go).collect();
        if is_dry {
            let exit = self.show(&orphans, dry_run_lines(&orphans), None);
            let is_pending = !ids.is_empty() && self.settings.detailed_exitcode.value;
            return match exit {
                Exit::Done if is_pending => Exit::Pending,
                exit => exit,
            };
        }
        if !(ids.is_empty() || self.settings.yes.value || is_wanted(&orphans, ids.len())) {
            Printer::stderr("ccm: nothing was deleted\n");
            return Exit::Done;
        }
        let (mut report, mut plans) = match ids.is_empty() {
            true => (Report::default(), Vec::new()),
            false => {
                let apis = &self.apis;
                let work = || self.services.delete_orphans(apis, &ids);
                apis.recorder.alongside(&apis.kube, work)
            }
        };
        if let Some(outage) = &report.outage {
            for (object, change) in &report.changes {
                Printer::stderr(&output::line(format_args!("{object}  {change}")));
            }
            return startup::failed(&self.apis, &outage.error);
        }
        let staying = orphans.into_iter().filter(|one| to_go(one).is_none());
        let before = plans.len();
        plans.extend(staying);
        report.unchanged += plans.len() - before;
        let left = plans.iter().filter(|plan| plan.made.is_empty());
        let text = changes::done(&report, warnings(left));
        match self.show(&plans, text, Some(&report)) {
            Exit::Done if !report.failures.is_empty() => Exit::Failed,
            exit => exit,
        }
    }

    fn show(&self, plans: &[ServicePlan], text: String, report: Option<&Report>) -> Exit {
        let document = || match report {
            Some(report) => json::synced(KIND, plans, report),
            None => json::plans(KIND, plans),
        };
        Printer::stdout(&match self.settings.output.value {
            Output::Json => output::json(&document()),
            Output::Yaml => output::yaml(&document()),
            Output::Table | Output::Wide => text,
        })
    }
}

/// The number of one that may be deleted.
fn to_go(orphan: &ServicePlan) -> Option<u64> {
    let found = orphan.cloud.found.as_ref();
    found.filter(|_| orphan.has_writes()).map(|found| found.id)
}

/// Shows them, and reads an answer; nothing but a clear yes is one.
fn is_wanted(orphans: &[ServicePlan], count: usize) -> bool {
    let what = match count {
        1 => "this load balancer".to_owned(),
        count => format!("these {count} load balancers"),
    };
    let lines = dry_run_lines(orphans);
    Printer::stderr(&lines);
    Printer::stderr(&format!("Delete {what}, with their addresses? [y/N] "));
    let mut answer = String::new();
    match stdin().read_line(&mut answer) {
        Ok(_) => matches!(answer.trim(), "y" | "Y" | "yes" | "Yes"),
        Err(_) => false,
    }
}
