//! The settings of `ccm`: flags, environment variables and defaults, parsed into [`Settings`].
//!
//! One table ([`TABLE`]) lists all settings. The fields of [`Settings`], the accepted flags and variables, `--help`,
//! and the table of `ccm help settings` come from it. A new setting is one row in `table`, together with the function
//! that parses its value.
//!
//! | file | its job |
//! |---|---|
//! | `setting` | the fields of a row of the table |
//! | `table` | the rows, and [`Settings`] with a field for each |
//! | `args` | a command line → its flags, by pflag's rules |
//! | `values` | the types of settings, and the parsers of their values |
//! | `effective` | the value of one setting and its source: a flag wins over a variable, a variable over the value that a command has read from the daemon in the cluster, and this value over the default |
//! | `resolve` | all settings → [`Parsed`], and the rules between several settings |
//! | `hccm_compat` | flags and variables of hcloud-cloud-controller-manager |
//! | `problem` | problems of settings, and notices for the log |
//! | `help` | the texts of `--help` |
//!
//! This module imports only `provider`, `text`, and from `http` the types and limits that settings need.

mod args;
mod effective;
mod hccm_compat;
mod help;
mod problem;
mod resolve;
mod setting;
mod table;
mod values;

pub use crate::provider::{AddressFamily, Algorithm, NetworkSelector, Profile, Source, Sourced};
pub use crate::text::{all_nearest, nearest, one_of};
pub use args::{names_a_secret, next_word};
pub use effective::{DaemonSettings, Effective, Environment, Process};
pub use hccm_compat::{FlagUse, IGNORED_FLAGS};
pub use help::{help, meaning};
pub use problem::{Notice, Problem};
pub use resolve::{Parsed, parse};
pub use setting::{Command, Group, Setting, ValueKind, Variable};
pub use table::{
    HCLOUD_TOKEN, LOAD_BALANCER_RESYNC_PERIOD, MEANINGS, NODE_STATUS_UPDATE_FREQUENCY, Settings,
    TABLE,
};
pub use values::{Color, Controller, LogFormat, Output, WorkloadName};
