//! `ccm lb list | inspect | sync`: what the service controller sees and would do, for people. With `--delete-orphans`,
//! load
//! balancers of this cluster whose Service does not exist are shown, asked about, and deleted.

mod inspect;
mod list;
mod plans;

pub(super) use inspect::inspect;
pub(super) use list::list;

use super::objects::{Planned, proposed};
use super::output::{Exit, Printer, usage};
use crate::controllers::Selection;
use crate::controllers::service::ServicePlan;
use crate::settings::Command;
use plans::Services;
use std::collections::HashSet;
use std::ffi::OsString;
use std::io::{IsTerminal, stdin};
use std::time::Instant;

pub(super) fn sync(words: Vec<OsString>) -> Result<Exit, Exit> {
    let mut services = Services::start(Command::LbSync, words)?;
    services.context.check_profile()?;
    if services.context.settings.delete_orphans.value {
        return delete_orphans(&services);
    }
    let context = &services.context;
    let selection = services.selection().map_err(|why| context.exit(why))?;
    context.show_leader();
    if context.settings.dry_run.value {
        let plans = services.evaluate(&selection);
        let plans = plans.map_err(|why| context.exit(why))?;
        return Ok(context.would_do(&plans));
    }
    let Services {
        context,
        controller,
    } = &mut services;
    Ok(context.do_now(|| controller.sync(&context.apis, &selection)))
}

fn delete_orphans(services: &Services) -> Result<Exit, Exit> {
    let context = &services.context;
    context.show_leader();
    let is_dry = context.settings.dry_run.value;
    let is_agreed = context.settings.yes.value;
    let may_ask = stdin().is_terminal() && std::io::stderr().is_terminal();
    if !(is_dry || is_agreed || may_ask) {
        return Err(usage(
            "--delete-orphans asks, and there is no terminal to ask at: add --yes, or --dry-run to see them",
        ));
    }
    let begun = Instant::now();
    let plans = services.evaluate(&Selection::All);
    let plans = plans.map_err(|why| context.exit(why))?;
    let orphans = services.orphans(&plans, begun)?;
    let ids: HashSet<u64> = orphans.iter().filter_map(deletable).collect();
    if is_dry {
        return Ok(context.would_do(&orphans));
    }
    if !(ids.is_empty()
        || is_agreed
        || is_confirmed(&proposed(&orphans.proposals(), orphans.notes()), ids.len()))
    {
        Printer::notice("nothing was deleted");
        return Ok(Exit::Done);
    }
    Ok(context.do_now(|| {
        let (mut report, mut plans) = match ids.is_empty() {
            true => Default::default(),
            false => services.controller.delete_orphans(&context.apis, &ids),
        };
        let before = plans.len();
        plans.extend(orphans.into_iter().filter(|one| deletable(one).is_none()));
        report.unchanged += plans.len() - before;
        (report, plans)
    }))
}

/// The number of one that may be deleted.
fn deletable(orphan: &ServicePlan) -> Option<u64> {
    let found = orphan.cloud.found.as_ref();
    found.filter(|_| orphan.has_writes()).map(|found| found.id)
}

/// Shows them, and reads an answer; nothing but a clear yes is one.
fn is_confirmed(orphans: &str, count: usize) -> bool {
    let what = match count {
        1 => "this load balancer".to_owned(),
        count => format!("these {count} load balancers"),
    };
    Printer::stderr(orphans);
    Printer::stderr(&format!("Delete {what}, with their addresses? [y/N] "));
    let mut answer = String::new();
    match stdin().read_line(&mut answer) {
        Ok(_) => matches!(answer.trim(), "y" | "Y" | "yes" | "Yes"),
        Err(_) => false,
    }
}
