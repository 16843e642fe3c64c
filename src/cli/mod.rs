//! What a person types and reads: subcommands, tables, exit codes; and the one place that
//! plugs the provider in.
//!
//! Knows: the public items of every other module. Must never decide what is written to an API.

mod argv0;
mod changes;
mod completions;
mod config;
mod doctor;
mod flag_order;
mod help;
mod json;
mod lb;
mod leader;
mod logging;
mod markdown;
mod node;
mod output;
mod process;
mod route;
mod run;
mod startup;
mod table;
mod topics;
mod waiting;
mod wire;

use crate::settings::{Command, nearest};
use crate::text::{nearest::all_nearest, one_of};
use output::Printer;
use std::ffi::OsString;
use std::process::ExitCode;

/// How a command ended: its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Done = 0,
    /// Something failed.
    Failed = 1,
    /// Wrong usage.
    Usage = 2,
    /// `--detailed-exitcode`: changes are pending.
    Pending = 3,
}

/// As typed first.
const TOP: &[&str] = &[
    "run",
    "node",
    "lb",
    "route",
    "doctor",
    "config",
    "completions",
    "help",
    "version",
];

/// Runs what the words say; the first is the name that the program was called by.
pub fn main(words: Vec<OsString>) -> ExitCode {
    process::prepare();
    ExitCode::from(dispatch(argv0::words(words)) as u8)
}

fn dispatch(words: Vec<OsString>) -> Exit {
    let Some(first) = words.first() else {
        Printer::stderr(&help::overview());
        return Exit::Usage;
    };
    let first = first.to_string_lossy().into_owned();
    let rest = words[1..].to_vec();
    match first.as_str() {
        "-h" | "--help" => show(help::overview()),
        "--version" => show(version()),
        "version" => version_alone(&rest),
        "help" => help_on(&rest),
        "run" => run::run(rest),
        "node" => node(rest),
        "lb" => lb(rest),
        "route" => route(rest),
        "config" => config::config(rest),
        "completions" => completions::completions(&rest),
        "doctor" => doctor::doctor(rest),
        // The daemon's flags alone are the daemon: what a Deployment of another CCM's passes.
        flag if flag.starts_with('-') => match flag_order::command(&words, TOP) {
            Some(meant) => {
                Printer::failure(&format!("flags go after the command: {meant}"));
                Exit::Usage
            }
            None => run::run(words),
        },
        other => unknown("command", other, TOP),
    }
}

fn version_alone(words: &[OsString]) -> Exit {
    match words {
        [] => show(version()),
        [word] if word == "-h" || word == "--help" => show(help::version()),
        _ => {
            Printer::failure("version takes no words and no flags");
            Exit::Usage
        }
    }
}

fn node(words: Vec<OsString>) -> Exit {
    let Some(first) = words
        .first()
        .map(|word| word.to_string_lossy().into_owned())
    else {
        Printer::stderr(&help::node());
        return Exit::Usage;
    };
    let rest = words[1..].to_vec();
    match first.as_str() {
        "list" => node::list(rest),
        "inspect" => node::inspect(rest),
        "sync" => node::sync(rest),
        "-h" | "--help" | "help" => show(help::node()),
        other => unknown(
            "command",
            &format!("node {other}"),
            &["node list", "node inspect", "node sync"],
        ),
    }
}

fn lb(words: Vec<OsString>) -> Exit {
    let Some(first) = words
        .first()
        .map(|word| word.to_string_lossy().into_owned())
    else {
        Printer::stderr(&help::lb());
        return Exit::Usage;
    };
    let rest = words[1..].to_vec();
    match first.as_str() {
        "list" => lb::list(rest),
        "inspect" => lb::inspect(rest),
        "sync" => lb::sync(rest),
        "-h" | "--help" | "help" => show(help::lb()),
        other => unknown(
            "command",
            &format!("lb {other}"),
            &["lb list", "lb inspect", "lb sync"],
        ),
    }
}

fn route(words: Vec<OsString>) -> Exit {
    let Some(first) = words
        .first()
        .map(|word| word.to_string_lossy().into_owned())
    else {
        Printer::stderr(&help::route());
        return Exit::Usage;
    };
    let rest = words[1..].to_vec();
    match first.as_str() {
        "list" => route::list(rest),
        "sync" => route::sync(rest),
        "-h" | "--help" | "help" => show(help::route()),
        other => unknown(
            "command",
            &format!("route {other}"),
            &["route list", "route sync"],
        ),
    }
}

fn help_on(words: &[OsString]) -> Exit {
    let words: Vec<String> = words
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] | ["help"] => show(help::overview()),
        ["version"] => show(help::version()),
        ["run"] => show(help::command(Command::Run)),
        ["node"] => show(help::node()),
        ["node", "list"] => show(help::command(Command::NodeList)),
        ["node", "inspect"] => show(help::command(Command::NodeInspect)),
        ["node", "sync"] => show(help::command(Command::NodeSync)),
        ["lb"] => show(help::lb()),
        ["lb", "list"] => show(help::command(Command::LbList)),
        ["lb", "inspect"] => show(help::command(Command::LbInspect)),
        ["lb", "sync"] => show(help::command(Command::LbSync)),
        ["route"] => show(help::route()),
        ["route", "list"] => show(help::command(Command::RouteList)),
        ["route", "sync"] => show(help::command(Command::RouteSync)),
        ["config"] => show(help::command(Command::Config)),
        ["completions"] => show(help::completions()),
        ["doctor"] => show(help::command(Command::Doctor)),
        other => {
            let other = other.join(" ");
            match topics::page(&other) {
                Some(page) => show(page),
                None => no_help_on(&other),
            }
        }
    }
}

/// With the commands and topics that may have been meant: near ones, else those that have the word in their name.
fn no_help_on(words: &str) -> Exit {
    let all = || help::COMMANDS.iter().copied().chain(topics::names());
    let mut meant = all_nearest(words, all());
    if meant.is_empty() && words.len() >= SHORTEST_PART {
        meant = all().filter(|name| name.contains(words)).collect();
    }
    let hint = match meant.as_slice() {
        [] => String::new(),
        meant => format!("; did you mean {}?", one_of(meant)),
    };
    usage_hint(&format!("unknown command or topic {words:?}{hint}"))
}

/// Of a name, in letters: fewer would be in too many.
const SHORTEST_PART: usize = 3;

fn usage_hint(message: &str) -> Exit {
    Printer::stderr(&format!("ccm: {message}\nSee ccm help.\n"));
    Exit::Usage
}

fn usage(message: &str) -> Exit {
    Printer::failure(message);
    Exit::Usage
}

fn or_dash(text: &str) -> String {
    if text.is_empty() {
        "-".to_owned()
    } else {
        text.to_owned()
    }
}

fn show(text: String) -> Exit {
    Printer::stdout(&text)
}

fn version() -> String {
    format!("ccm {}\n", env!("CARGO_PKG_VERSION"))
}

fn unknown(what: &str, word: &str, known: &[&'static str]) -> Exit {
    let hint = match nearest(word, known.iter().copied()) {
        Some(name) => format!("did you mean {name}?"),
        None => format!("there is {}", known.join(", ")),
    };
    usage_hint(&format!("unknown {what} {word:?}; {hint}"))
}
