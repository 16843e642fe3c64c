//! `ccm lb list | inspect | sync`: what the service controller sees and would do, for people.

mod inspect;
mod list;
mod orphans;
mod plans;

pub(super) use inspect::inspect;
pub(super) use list::list;

use super::leader;
use super::output::Exit;
use crate::settings::Command;
use plans::Services;
use std::ffi::OsString;

pub(super) fn sync(words: Vec<OsString>) -> Result<Exit, Exit> {
    let mut services = Services::start(Command::LbSync, words)?;
    services.context.check_exitcode()?;
    services.context.check_profile()?;
    if services.context.settings.delete_orphans.value {
        return orphans::delete(&services);
    }
    let selection = services.selection()?;
    leader::tell(&services.context.settings, &services.context.apis);
    if services.context.settings.dry_run.value {
        let plans = services.evaluate(&selection)?;
        return Ok(services.context.would_do(&plans));
    }
    let apis = &services.context.apis;
    let controller = &mut services.controller;
    let exit = services
        .context
        .do_now(|gate| controller.sync(apis, gate, &selection));
    Ok(exit)
}
