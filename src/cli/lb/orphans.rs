//! `ccm lb sync --delete-orphans`: load balancers of this cluster whose Service does not exist are shown, asked about,
//! and deleted.

use super::plans::Services;
use crate::cli::changes;
use crate::cli::leader;
use crate::cli::objects::Planned;
use crate::cli::output::{Exit, Printer, usage};
use crate::controllers::Selection;
use crate::controllers::service::ServicePlan;
use std::collections::HashSet;
use std::io::{IsTerminal, stdin};
use std::time::Instant;

impl Services {
    /// Those that no plan takes over; in the namespace that is asked for.
    pub(super) fn orphans(
        &self,
        plans: &[ServicePlan],
        begun: Instant,
    ) -> Result<Vec<ServicePlan>, Exit> {
        let orphans = self.controller.orphans(&self.context.apis, begun);
        let mut orphans = orphans.map_err(|error| self.context.failed(&error))?;
        let number = |plan: &ServicePlan| plan.cloud.found.as_ref().map(|found| found.id);
        let taken: HashSet<u64> = plans.iter().filter_map(number).collect();
        let namespace = self.context.settings.namespace.value.as_ref();
        orphans.retain(|orphan| {
            let is_taken = number(orphan).is_some_and(|id| taken.contains(&id));
            let of = &orphan.service.metadata.namespace;
            !is_taken && namespace.is_none_or(|namespace| namespace == of)
        });
        Ok(orphans)
    }
}

pub(super) fn delete(services: &Services) -> Result<Exit, Exit> {
    let context = &services.context;
    leader::tell(&context.settings, &context.apis);
    let is_dry = context.settings.dry_run.value;
    let is_agreed = context.settings.yes.value;
    if !context.names.is_empty() {
        let why = "--delete-orphans takes no Service: those of orphans do not exist";
        return Err(usage(why));
    }
    let may_ask = stdin().is_terminal() && std::io::stderr().is_terminal();
    if !(is_dry || is_agreed || may_ask) {
        return Err(usage(
            "--delete-orphans asks, and there is no terminal to ask at: add --yes, or --dry-run to see them",
        ));
    }
    let begun = Instant::now();
    let plans = services.evaluate(&Selection::All)?;
    let orphans = services.orphans(&plans, begun)?;
    let ids: HashSet<u64> = orphans.iter().filter_map(to_go).collect();
    if is_dry {
        return Ok(context.would_do(&orphans));
    }
    if !(ids.is_empty() || is_agreed || is_wanted(&orphans, ids.len())) {
        Printer::notice("nothing was deleted");
        return Ok(Exit::Done);
    }
    Ok(context.do_now(|gate| {
        let (mut report, mut plans) = match ids.is_empty() {
            true => Default::default(),
            false => services
                .controller
                .delete_orphans(&context.apis, gate, &ids),
        };
        let before = plans.len();
        plans.extend(orphans.into_iter().filter(|one| to_go(one).is_none()));
        report.unchanged += plans.len() - before;
        (report, plans)
    }))
}

/// The number of one that may be deleted.
fn to_go(orphan: &ServicePlan) -> Option<u64> {
    let found = orphan.cloud.found.as_ref();
    found.filter(|_| orphan.has_writes()).map(|found| found.id)
}

/// Shows them, and reads an answer; nothing but a clear yes is one.
fn is_wanted(orphans: &Vec<ServicePlan>, count: usize) -> bool {
    let what = match count {
        1 => "this load balancer".to_owned(),
        count => format!("these {count} load balancers"),
    };
    Printer::stderr(&changes::proposed(&orphans.proposals(), orphans.notes()));
    Printer::stderr(&format!("Delete {what}, with their addresses? [y/N] "));
    let mut answer = String::new();
    match stdin().read_line(&mut answer) {
        Ok(_) => matches!(answer.trim(), "y" | "Y" | "yes" | "Yes"),
        Err(_) => false,
    }
}
