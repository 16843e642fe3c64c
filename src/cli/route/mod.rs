//! `ccm route list | sync`: what the route controller sees and would do, for people.

mod list;
mod plans;

pub(super) use list::list;

use super::leader;
use super::output::Exit;
use crate::settings::Command;
use plans::{Plans, Routes};
use std::ffi::OsString;

pub(super) fn sync(words: Vec<OsString>) -> Result<Exit, Exit> {
    let mut routes = Routes::start(Command::RouteSync, words)?;
    routes.context.check_exitcode()?;
    leader::tell(&routes.context.settings, &routes.context.apis);
    if routes.context.settings.dry_run.value {
        let plans = routes.evaluate()?;
        return Ok(routes.context.would_do(&plans));
    }
    let apis = &routes.context.apis;
    Ok(routes.context.do_now(|gate| {
        let synced = routes.controller.sync(apis, gate);
        (
            synced.report,
            Plans {
                plan: synced.plan,
                changes: synced.made,
            },
        )
    }))
}
