//! `ccm lb list | inspect | sync | adopt | release | replace`: the commands that show and do the work of the Service
//! controller. Some commands show their plan and ask before they write: `adopt`, `release`, `replace`, and `sync
//! --delete-orphans`, which deletes load balancers without a Service.

mod inspect;
mod list;
mod plans;

pub(super) use inspect::inspect;
pub(super) use list::list;

use super::output::{Exit, Printer};
use crate::controllers::service::{Management, ServicePlan};
use crate::controllers::{Progress, Selection};
use crate::provider::{ReplaceOrder, clock};
use crate::settings::Command;
use plans::Services;
use std::collections::HashSet;
use std::ffi::OsString;

pub(super) fn sync(words: Vec<OsString>) -> Result<Exit, Exit> {
    let mut services = Services::start(Command::LbSync, words)?;
    services.context.check_profile()?;
    if services.context.settings.delete_orphans.value {
        return delete_orphans(&services);
    }
    let context = &services.context;
    let selection = context.or_exit(services.selection())?;
    context.show_leader();
    if context.settings.dry_run.value {
        let plans = services.controller.evaluate_pass(&context.apis, &selection);
        return Ok(context.would_do(&context.or_exit(plans)?));
    }
    let Services { context, controller, .. } = &mut services;
    Ok(context.do_now(|| controller.sync(&context.apis, &selection, true)))
}

fn delete_orphans(services: &Services) -> Result<Exit, Exit> {
    let context = &services.context;
    context.check_answer("--delete-orphans")?;
    let begun = clock::now();
    let plans = context.or_exit(services.evaluate(&Selection::All))?;
    let orphans = services.orphans(&plans, begun)?;
    let ids: HashSet<u64> = orphans.iter().filter_map(deletable).collect();
    if context.settings.dry_run.value {
        return Ok(context.would_do(&orphans));
    }
    let what = match ids.len() {
        1 => "this load balancer".to_owned(),
        count => format!("these {count} load balancers"),
    };
    let question = format!("Delete {what}, including all addresses?");
    if !ids.is_empty() && !context.is_confirmed(&orphans, &question) {
        Printer::notice("nothing was deleted");
        return Ok(Exit::Done);
    }
    Ok(context.do_now(|| {
        let (mut report, mut plans) = if ids.is_empty() {
            Default::default()
        } else {
            services.controller.delete_orphans(&context.apis, &ids)
        };
        for orphan in orphans.into_iter().filter(|plan| deletable(plan).is_none()) {
            report.note(orphan.name(), Progress::Unchanged);
            plans.push(orphan);
        }
        (report, plans)
    }))
}

/// Returns the ID of the load balancer if a sync is allowed to delete it. Returns `None`, for example, when the load
/// balancer is protected from deletion. `orphan` is the plan of a load balancer without a Service.
fn deletable(orphan: &ServicePlan) -> Option<u64> {
    orphan.cloud.found.as_ref().filter(|_| orphan.has_writes()).map(|found| found.id)
}

/// Runs `ccm lb adopt`: ccm takes over an existing load balancer, and manages it for a Service from then on.
pub(super) fn adopt(words: Vec<OsString>) -> Result<Exit, Exit> {
    let mut services = Services::start(Command::LbAdopt, words)?;
    // Parsing can't fail here, because the check of the command line has accepted the first word as an ID.
    let id = services.context.names.remove(0).parse().unwrap_or_default();
    let question = format!("Adopt load balancer {id}?");
    plan_and_ask(services, Management::Begins(id), &question)
}

/// Runs `ccm lb release`. From then on, ccm does not change or delete the load balancer of this Service any more. The
/// load balancer keeps running as it is.
pub(super) fn release(words: Vec<OsString>) -> Result<Exit, Exit> {
    let services = Services::start(Command::LbRelease, words)?;
    let question = "Stop managing this load balancer?";
    plan_and_ask(services, Management::Ends, question)
}

/// Runs `ccm lb replace`, by which a Service gets a new load balancer in place of its present one. A flag of the
/// command begins or aborts the replacement, or ends the time in which both load balancers serve. The command only sets
/// a label, and the daemon makes the other changes.
pub(super) fn replace(words: Vec<OsString>) -> Result<Exit, Exit> {
    let services = Services::start(Command::LbReplace, words)?;
    let settings = &services.context.settings;
    let (order, question) = match settings.overlap.value {
        Some(seconds) => (ReplaceOrder::Begin(seconds), "Replace this load balancer?"),
        None if settings.abort.value => (ReplaceOrder::Abort, "Abort the replacement?"),
        None => (ReplaceOrder::Now, "End the overlap now?"),
    };
    plan_and_ask(services, Management::Replaced(order), question)
}

fn plan_and_ask(
    mut services: Services,
    management: Management,
    question: &str,
) -> Result<Exit, Exit> {
    services.context.check_profile()?;
    services.context.check_answer(services.command.name())?;
    services.controller.management = management;
    let selection = services.context.or_exit(services.selection())?;
    let plans = services.context.or_exit(services.evaluate(&selection))?;
    let Services { context, controller, .. } = &mut services;
    let can_t = plans.iter().any(|plan| plan.obstacle.is_some() || !plan.has_writes());
    if context.settings.dry_run.value || can_t {
        return Ok(context.would_do(&plans));
    }
    if !context.is_confirmed(&plans, question) {
        Printer::notice("nothing was changed");
        return Ok(Exit::Done);
    }
    Ok(context.do_now(|| controller.sync(&context.apis, &selection, true)))
}
