//! What a person types and reads: subcommands, tables, exit codes; and the one place that
//! plugs the provider in.
//!
//! Knows: the public items of every other module. Must never decide what is written to an API.

mod argv0;
mod changes;
mod commands;
mod completions;
mod config;
mod doctor;
mod flag_order;
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

use crate::settings::{Command, all_nearest, nearest, one_of};
use commands::{Entry, Kind};
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

/// Runs what the words say; the first is the name that the program was called by.
pub fn main(words: Vec<OsString>) -> ExitCode {
    process::prepare();
    ExitCode::from(dispatch(argv0::words(words)) as u8)
}

fn dispatch(words: Vec<OsString>) -> Exit {
    let Some((first, rest)) = words.split_first() else {
        Printer::stderr(&commands::overview());
        return Exit::Usage;
    };
    let top = commands::top();
    match first.to_string_lossy().as_ref() {
        "-h" | "--help" => Printer::stdout(&commands::overview()),
        "--version" => Printer::stdout(&version()),
        // The daemon's flags alone start the daemon: the arguments of another CCM's Deployment.
        flag if flag.starts_with('-') => match flag_order::command(&words, &top) {
            Some(meant) => usage(&format!("flags go after the command: {meant}")),
            None => run::run(words),
        },
        name => match commands::find(name) {
            Some(entry) if entry.kind == Kind::Group => group(entry, rest),
            Some(entry) => run_command(entry, rest.to_vec()),
            None => unknown("command", name, &top),
        },
    }
}

fn group(group: &Entry, words: &[OsString]) -> Exit {
    let Some((verb, rest)) = words.split_first() else {
        Printer::stderr(&group.help());
        return Exit::Usage;
    };
    let verb = verb.to_string_lossy();
    let full = |verb: &str| format!("{} {verb}", group.name);
    match (verb.as_ref(), commands::find(&full(&verb))) {
        ("-h" | "--help" | "help", _) => Printer::stdout(&group.help()),
        (_, Some(entry)) => run_command(entry, rest.to_vec()),
        (_, None) => {
            let names: Vec<String> = commands::verbs(group.name).into_iter().map(full).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            unknown("command", &full(&verb), &names)
        }
    }
}

fn run_command(entry: &Entry, words: Vec<OsString>) -> Exit {
    match entry.kind {
        Kind::Flags(Command::Run) => run::run(words),
        Kind::Flags(Command::NodeList) => node::list(words),
        Kind::Flags(Command::NodeInspect) => node::inspect(words),
        Kind::Flags(Command::NodeSync) => node::sync(words),
        Kind::Flags(Command::LbList) => lb::list(words),
        Kind::Flags(Command::LbInspect) => lb::inspect(words),
        Kind::Flags(Command::LbSync) => lb::sync(words),
        Kind::Flags(Command::RouteList) => route::list(words),
        Kind::Flags(Command::RouteSync) => route::sync(words),
        Kind::Flags(Command::Config) => config::config(words),
        Kind::Flags(Command::Doctor) => doctor::doctor(words),
        Kind::Completions => completions::completions(&words),
        Kind::Help => help_on(&words),
        Kind::Version => match words.as_slice() {
            [] => Printer::stdout(&version()),
            [word] if word == "-h" || word == "--help" => Printer::stdout(&entry.help()),
            _ => usage("version takes no words and no flags"),
        },
        Kind::Group => group(entry, &words),
    }
}

fn help_on(words: &[OsString]) -> Exit {
    let name = words.join(" ".as_ref()).to_string_lossy().into_owned();
    if name.is_empty() {
        return Printer::stdout(&commands::overview());
    }
    let command = commands::find(&name).map(Entry::help);
    match command.or_else(|| topics::page(&name)) {
        Some(text) => Printer::stdout(&text),
        None => no_help_on(&name),
    }
}

/// With the commands and topics that may have been meant: near ones, else those that have the word in their name.
fn no_help_on(words: &str) -> Exit {
    let commands = commands::COMMANDS.iter().map(|entry| entry.name);
    let all: Vec<&str> = commands.chain(topics::names()).collect();
    let mut meant = all_nearest(words, all.iter().copied());
    if meant.is_empty() && words.len() >= SHORTEST_PART {
        meant = all
            .into_iter()
            .filter(|name| name.contains(words))
            .collect();
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
    match text {
        "" => "-".to_owned(),
        text => text.to_owned(),
    }
}

fn version() -> String {
    format!("ccm {}\n", env!("CARGO_PKG_VERSION"))
}

fn unknown(what: &str, word: &str, known: &[&str]) -> Exit {
    let hint = match nearest(word, known.iter().copied()) {
        Some(name) => format!("did you mean {name}?"),
        None => format!("there is {}", known.join(", ")),
    };
    usage_hint(&format!("unknown {what} {word:?}; {hint}"))
}
