//! `ccm version` shows which program this is, and what it was built from. No call is made.

use super::commands;
use super::output::{self, Document, Exit, Printer, usage};
use crate::settings::Output;
use lexopt::Arg;
use serde::Serialize;
use std::ffi::OsString;

/// The version of this program, and the source and compiler that it was built from. Only `make build` sets the commit
/// and the toolchain. When the source is an archive without a Git repository, the commit stays unknown.
#[derive(Serialize)]
struct Build {
    version: &'static str,
    /// The Git commit in 40 hexadecimal digits. `-dirty` follows when the source differed from this commit.
    commit: Option<&'static str>,
    /// The compiler, as `rustc --version` names it. `None` when the program was not built by `make build`.
    toolchain: Option<&'static str>,
}

impl Build {
    fn of_this_program() -> Build {
        let given = |text: Option<&'static str>| text.filter(|text| !text.is_empty());
        Build {
            version: env!("CARGO_PKG_VERSION"),
            commit: given(option_env!("CCM_COMMIT")),
            toolchain: given(option_env!("CCM_TOOLCHAIN")),
        }
    }
}

/// Returns a line with the name and the version of this program.
pub(super) fn line() -> String {
    format!("ccm {}\n", env!("CARGO_PKG_VERSION"))
}

pub(super) fn version(words: Vec<OsString>) -> Result<Exit, Exit> {
    let mut parser = lexopt::Parser::from_args(words);
    let mut output = Output::Table;
    let wrong = |why: &dyn std::fmt::Display| usage(&format!("{why}; see ccm version --help"));
    while let Some(arg) = parser.next().map_err(|error| wrong(&error))? {
        match arg {
            Arg::Short('h') | Arg::Long("help") => {
                return Ok(Printer::stdout(&commands::help("version")));
            }
            Arg::Short('o') | Arg::Long("output") => {
                let format = parser.value().map_err(|error| wrong(&error))?;
                output = match format.to_str() {
                    Some("table" | "wide") => Output::Table,
                    Some("json") => Output::Json,
                    Some("yaml" | "yml") => Output::Yaml,
                    _ => {
                        return Err(wrong(&format!(
                            "-o: {format:?} can't be used: use table, json or yaml"
                        )));
                    }
                };
            }
            _ => return Err(usage("version takes no words, and no flag except -o")),
        }
    }
    let document = || Document::new("Version", vec![Build::of_this_program()]);
    Ok(output::print(output, document, |_| text()))
}

fn text() -> String {
    let build = Build::of_this_program();
    format!(
        "{}commit: {}\ntoolchain: {}\n",
        line(),
        build.commit.unwrap_or("unknown, because ccm was not built with make in a git checkout"),
        build.toolchain.unwrap_or("unknown, because ccm was not built with make"),
    )
}
