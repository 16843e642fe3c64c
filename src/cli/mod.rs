//! What a person types and reads: subcommands, tables, exit codes; and the one place that
//! plugs the provider in.
//!
//! Knows: the public items of every other module. Must never decide what is written to an API.

mod commands;
mod completions;
mod config;
mod doctor;
mod explain;
mod lb;
mod leader;
mod lint;
mod logging;
mod node;
mod objects;
mod output;
mod process;
mod route;
mod run;
mod startup;
mod status;
mod table;
mod terminal;
mod topics;
mod wire;

use crate::settings::{Command, first_word};
use commands::{Entry, Kind};
use output::{Exit, Printer, usage};
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// The image has a link of this name in `/bin`: a Deployment whose `command:` names it works with only the image
/// changed.
const DROP_IN: &str = "hcloud-cloud-controller-manager";

/// Runs what the words say; the first is the name that the program was called by.
pub fn main(words: Vec<OsString>) -> ExitCode {
    process::prepare();
    ExitCode::from(dispatch(without_program(words)) as u8)
}

/// The words without the program's name, and with the profile that this name asks for. It stands before all flags,
/// so that one that is typed wins.
fn without_program(mut words: Vec<OsString>) -> Vec<OsString> {
    if words.is_empty() {
        return words;
    }
    let program = words.remove(0);
    let is_drop_in = Path::new(&program).file_name() == Some(DROP_IN.as_ref());
    if let Some(at) = flags_begin(&words).filter(|_| is_drop_in) {
        words.insert(at, "--cloud-provider=hcloud".into());
    }
    words
}

/// Where the flags of the command begin; none for what has no settings.
fn flags_begin(words: &[OsString]) -> Option<usize> {
    let first = words.first().and_then(|word| word.to_str());
    match first.unwrap_or_default() {
        "-h" | "--help" | "--version" => None,
        flag if flag.is_empty() || flag.starts_with('-') => Some(0),
        _ => {
            let (entry, count) = commands::named(words)?;
            entry.settings().map(|_| count)
        }
    }
}

fn dispatch(words: Vec<OsString>) -> Exit {
    let Some(first) = words.first() else {
        Printer::stderr(&commands::overview());
        return Exit::Usage;
    };
    match first.to_string_lossy().as_ref() {
        "-h" | "--help" => Printer::stdout(&commands::overview()),
        "--version" => Printer::stdout(&commands::version()),
        // The daemon's flags alone start the daemon: the arguments of another CCM's Deployment.
        flag if flag.starts_with('-') => {
            let later = first_word(Command::Run, &words).and_then(|at| words.get(at..));
            match later.and_then(commands::named) {
                Some((entry, _)) => {
                    let name = entry.name;
                    usage(&format!("flags go after the command: ccm {name} …"))
                }
                None => run::run(words).unwrap_or_else(|exit| exit),
            }
        }
        name => match commands::named(&words) {
            Some((entry, count)) => run_command(entry, words[count..].to_vec()),
            None => commands::unknown("command", name, &commands::top()),
        },
    }
}

fn run_command(entry: &Entry, words: Vec<OsString>) -> Exit {
    let asks_for_help = |word: &OsString| word == "-h" || word == "--help";
    let ended = match entry.kind {
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
        Kind::Flags(Command::Status) => status::status(words),
        Kind::Flags(Command::Lint) => lint::lint(words),
        Kind::Explain => Ok(explain::explain(&words)),
        Kind::Completions => Ok(completions::completions(&words)),
        Kind::Help => Ok(help_on(&words)),
        Kind::Version => Ok(match words.as_slice() {
            [] => Printer::stdout(&commands::version()),
            [word] if asks_for_help(word) => Printer::stdout(&entry.help()),
            _ => usage("version takes no words and no flags"),
        }),
        Kind::Group => Ok(match words.first() {
            None => {
                Printer::stderr(&entry.help());
                Exit::Usage
            }
            Some(word) if asks_for_help(word) || word == "help" => Printer::stdout(&entry.help()),
            Some(verb) => {
                let name = format!("{} {}", entry.name, verb.to_string_lossy());
                let group = format!("{} ", entry.name);
                let mut names = commands::names();
                names.retain(|name| name.starts_with(&group));
                commands::unknown("command", &name, &names)
            }
        }),
    };
    ended.unwrap_or_else(|exit| exit)
}

fn help_on(words: &[OsString]) -> Exit {
    let name = words.join(" ".as_ref()).to_string_lossy().into_owned();
    if name.is_empty() {
        return Printer::stdout(&commands::overview());
    }
    let command = commands::find(&name).map(Entry::help);
    match command
        .or_else(|| topics::page(&name))
        .or_else(|| explain::text(&name))
    {
        Some(text) => Printer::stdout(&text),
        None => {
            let mut all = commands::names();
            all.extend(topics::names());
            commands::unknown("command or topic", &name, &all)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_chooses_the_profile() {
        for (typed, meant) in [
            ("/ccm run", "run"),
            ("ccm", ""),
            ("/bin/hcloud-cloud-controller-manager", "+"),
            (
                "/bin/hcloud-cloud-controller-manager --leader-elect=false -v 4",
                "+ --leader-elect=false -v 4",
            ),
            // pflag's rule: the last one counts.
            (
                "hcloud-cloud-controller-manager --cloud-provider=hcloud",
                "+ --cloud-provider=hcloud",
            ),
            ("hcloud-cloud-controller-manager run --once", "run + --once"),
            (
                "hcloud-cloud-controller-manager node sync a --dry-run",
                "node sync + a --dry-run",
            ),
            ("hcloud-cloud-controller-manager node", "node"),
            ("hcloud-cloud-controller-manager doctor", "doctor +"),
            ("hcloud-cloud-controller-manager --help", "--help"),
            ("hcloud-cloud-controller-manager --version", "--version"),
            (
                "hcloud-cloud-controller-manager help node list",
                "help node list",
            ),
            ("/opt/hcloud-cloud-controller-manager/ccm run", "run"),
        ] {
            let all = typed.split(' ').map(OsString::from).collect();
            let meant = meant.replace('+', "--cloud-provider=hcloud");
            let words = without_program(all).join(" ".as_ref());
            assert_eq!(words.to_str(), Some(meant.as_str()), "{typed}");
        }
    }
}
