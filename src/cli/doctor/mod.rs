//! `ccm doctor`: checks everything that the daemon needs; reports what is wrong and the fix.
//!
//! [`observe`] makes every call, and each may fail by itself; the checks are pure functions of what it read, one row of a
//! table each; `show` prints. A new check is a row and a function.
//!
//! | file | its job |
//! |---|---|
//! | `view` | what was read |
//! | `observe` | the calls, and the gate that lets the two harmless writes pass |
//! | `verbs` | what a role must allow |
//! | `check` | what a check and its outcome are; the table of them |
//! | `cloud`, `cluster`, `nodes`, `routes`, `services` | the checks, by what they are about |
//! | `show` | the report, for people and for programs |

mod check;
mod cloud;
mod cluster;
mod nodes;
mod observe;
mod routes;
mod services;
mod show;
mod verbs;
mod view;

use super::output::Printer;
use super::{Exit, startup};
use crate::settings::{Command, Output};
use check::Status;
use std::ffi::OsString;

pub(super) fn doctor(words: Vec<OsString>) -> Exit {
    let started = match startup::start(Command::Doctor, words) {
        Ok(started) => started,
        Err(exit) => return exit,
    };
    let checks = check::all(&observe::observe(&started));
    let text = match started.settings.output.value {
        Output::Table => show::table(&checks, false),
        Output::Wide => show::table(&checks, true),
        Output::Json => super::output::json(&show::document(&checks)),
        Output::Yaml => super::output::yaml(&show::document(&checks)),
    };
    match Printer::stdout(&text) {
        Exit::Done if checks.iter().any(|check| check.status == Status::Fail) => Exit::Failed,
        exit => exit,
    }
}
