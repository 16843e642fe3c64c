//! The settings of `ccm`: what was typed, what the environment says, and what that means.
//!
//! One table ([`TABLE`]) feeds everything: the command line, the environment, `--help`
//! and the table of `ccm help settings`. A new setting is one row in `table` (in the file of its theme, and in the
//! list), one field in [`Settings`] and one line in `resolve`.
//!
//! | file | its one job |
//! |---|---|
//! | `setting` | what a row of the table is |
//! | `table` | the rows, by theme |
//! | `drop_in` | flags and variables of hcloud-cloud-controller-manager, honoured or not |
//! | `line` | a command line → which flags were given, with pflag's manners |
//! | `environment` | variables and the files they name |
//! | `reader` | one setting: flag before environment before default, and who said so |
//! | `in_force` | the same as a person reads it, without secrets |
//! | `taken` | what the daemon of a cluster is started with, for a person's commands |
//! | `resolve` | all of them → [`Settings`] |
//! | `load_balancers` | what load balancers are when their Service does not say |
//! | `leader_election` | durations that must fit together |
//! | `url`, `listen`, `controllers`, `token`, `choice`, `text` | one type each, and how it is written |
//! | `problem` | what is wrong, and what is worth a line in the log |
//! | `help`, `markdown` | the table for people |
//!
//! It imports nothing else of this crate but `text`: `cli` fills the other modules' own settings from here.

mod choice;
mod controllers;
mod drop_in;
mod environment;
mod help;
mod in_force;
mod leader_election;
mod line;
mod listen;
mod load_balancers;
pub mod markdown;
mod problem;
mod reader;
mod resolve;
mod setting;
mod table;
mod taken;
mod text;
mod token;
mod url;

use std::ffi::OsString;

pub use crate::text::nearest::{all_nearest, nearest};
use crate::text::{duration, nearest};
pub use choice::{AddressFamily, LogFormat, Output, Profile, one_of};
pub use controllers::{Controller, Controllers};
pub use drop_in::{DropInFlag, FLAGS as DROP_IN_FLAGS, Takes};
pub use environment::{Environment, Process};
pub use help::help;
pub use in_force::InForce;
pub use leader_election::{ObjectName, WRITE_TIMEOUT};
pub use line::names_a_secret;
pub use listen::ListenAddress;
pub use load_balancers::{Algorithm, LoadBalancers};
pub use problem::{Notice, Problem};
pub use reader::{Source, Sourced};
pub use resolve::Settings;
pub use setting::{Command, Group, Kind, Setting, Variable};
pub use table::TABLE;
pub use taken::{Taken, WorkloadName, names_that_count};
pub use text::NetworkName;
pub use token::{Secret, Token};
pub use url::Url;

/// What a command line and an environment came to.
#[derive(Debug)]
pub struct Parsed {
    /// Where a setting was wrong, its default stands here, and a [`Problem`] says so.
    pub settings: Settings,
    /// Every setting that the command takes, in the table's order.
    pub in_force: Vec<InForce>,
    /// The words that are no flags: names of nodes and the like. Always empty for `run` and `config`.
    pub words: Vec<String>,
    /// `--help` was there: show it before anything else, problems included.
    pub help: bool,
    /// `--version` was there.
    pub version: bool,
    /// Each is worth one line in the log, once.
    pub notices: Vec<Notice>,
    /// Everything that is wrong, the command line first.
    pub problems: Vec<Problem>,
}

/// Where the first word stands that is neither a flag of this command nor the value of one.
pub fn first_word(command: Command, words: &[OsString]) -> Option<usize> {
    line::read(command, words.to_vec()).first_word
}

/// Reads everything that one command was told. `words` are those after the command's own
/// (`ccm node list -o json` → `-o json`).
pub fn parse(command: Command, words: Vec<OsString>, environment: &dyn Environment) -> Parsed {
    parse_above(command, words, environment, None)
}

/// The same above what the daemon of a cluster is started with.
pub fn parse_above(
    command: Command,
    words: Vec<OsString>,
    environment: &dyn Environment,
    taken: Option<&Taken>,
) -> Parsed {
    let line = line::read(command, words);
    let resolved = resolve::resolve(command, &line, environment, taken);
    let mut notices = line.notices;
    notices.extend(environment::notices(command, environment));
    notices.extend(resolved.notices);
    let mut problems = line.problems;
    problems.extend(resolved.problems);
    Parsed {
        settings: resolved.settings,
        in_force: resolved.in_force,
        words: line.words,
        help: line.help,
        version: line.version,
        notices,
        problems,
    }
}
