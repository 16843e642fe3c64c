//! The settings of `ccm`: flags, environment variables and defaults, parsed into [`Settings`].
//!
//! One table ([`TABLE`]) is the source of the command line, the environment, `--help` and the table of
//! `ccm help settings`. A new setting is one row in `table`, one field in [`Settings`] and one line in `resolve`.
//!
//! | file | its job |
//! |---|---|
//! | `setting` | what a row of the table is |
//! | `table` | the rows |
//! | `args` | a command line → its flags, by pflag's rules |
//! | `environment` | variables and the files they name |
//! | `values` | the types of settings, and how each is written |
//! | `effective` | one setting: flag before environment before the cluster's daemon before default, and its source |
//! | `resolve` | all of them → [`Settings`] |
//! | `hccm_compat` | flags and variables of hcloud-cloud-controller-manager |
//! | `problem` | what is wrong, and what is worth a line in the log |
//! | `help`, `markdown` | the table for people |
//!
//! Imports only `provider` (plain types) and `text`: `cli` fills the other modules' own settings from here.

mod args;
mod effective;
mod environment;
mod hccm_compat;
mod help;
pub mod markdown;
mod problem;
mod resolve;
mod setting;
mod table;
mod values;

use std::ffi::OsString;

pub use crate::provider::{AddressFamily, Algorithm, NetworkSelector, Profile, Source, Sourced};
pub use crate::text::nearest::{all_nearest, nearest};
pub use args::names_a_secret;
pub use effective::{DaemonSettings, Effective, inherited_names};
pub use environment::{Environment, Process};
pub use hccm_compat::{DropInFlag, FLAGS as DROP_IN_FLAGS, Takes};
pub use help::help;
pub use problem::{Notice, Problem};
pub use resolve::{LoadBalancers, Settings, WRITE_TIMEOUT};
pub use setting::{Command, Group, Kind, Setting, Variable};
pub use table::TABLE;
pub use values::{
    Controller, Controllers, ListenAddress, LogFormat, ObjectName, Output, Secret, Token, Url,
    WorkloadName, one_of,
};

/// A command line and an environment, parsed.
#[derive(Debug)]
pub struct Parsed {
    /// A wrong setting has its default here, and a [`Problem`].
    pub settings: Settings,
    /// Every setting that the command takes, in the table's order.
    pub effective: Vec<Effective>,
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
    args::parse(command, words.to_vec()).first_word
}

/// Parses the settings of one command. `words` are those after the command's own
/// (`ccm node list -o json` → `-o json`).
pub fn parse(command: Command, words: Vec<OsString>, environment: &dyn Environment) -> Parsed {
    parse_with_daemon(command, words, environment, None)
}

/// The same, with the settings of the daemon of a cluster below them.
pub fn parse_with_daemon(
    command: Command,
    words: Vec<OsString>,
    environment: &dyn Environment,
    daemon: Option<&DaemonSettings>,
) -> Parsed {
    let args = args::parse(command, words);
    let resolved = resolve::resolve(command, &args, environment, daemon);
    let mut notices = args.notices;
    notices.extend(environment::notices(command, environment));
    notices.extend(resolved.notices);
    let mut problems = args.problems;
    problems.extend(resolved.problems);
    Parsed {
        settings: resolved.settings,
        effective: resolved.effective,
        words: args.words,
        help: args.help,
        version: args.version,
        notices,
        problems,
    }
}
