//! `ccm completions SHELL`: a script that completes commands, flags and words of choices.
//!
//! The scripts are in `src/help/completions`. At each key they run `ccm completions -- WORD…`, which answers with what
//! may follow: [`offered`]. Names of nodes and Services are not completed: that would ask the cluster at every key.

use super::output::{Exit, Printer, usage};
use super::{commands, explain, topics};
use crate::settings::{Command, Kind, Setting, TABLE};
use std::ffi::OsString;

const SCRIPTS: [(&str, &str); 3] = [
    ("bash", include_str!("../help/completions/bash.sh")),
    ("zsh", include_str!("../help/completions/zsh.sh")),
    ("fish", include_str!("../help/completions/fish.fish")),
];

pub(super) fn completions(words: &[OsString]) -> Exit {
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    match words.as_slice() {
        ["-h" | "--help"] => Printer::stdout(&commands::help("completions")),
        ["--", typed @ ..] => Printer::stdout(&offered(typed)),
        [shell] => match SCRIPTS.iter().find(|(name, _)| name == shell) {
            Some((_, script)) => Printer::stdout(script),
            None => commands::unknown("shell", shell, &SCRIPTS.map(|(name, _)| name)),
        },
        _ => usage("completions takes one word: bash, zsh or fish"),
    }
}

/// What the last word may become, one a line, and behind a space what it is about. `FILE`: any path.
fn offered(typed: &[&str]) -> String {
    let mut words = whole_words(typed);
    let last = words.pop().unwrap_or_default();
    let (setting, begun) = match last.split_once('=') {
        Some((flag, value)) => (with_flag(flag), value),
        None => {
            let setting = words.last().and_then(|flag| with_flag(flag));
            (setting.filter(|one| one.takes_value()), last.as_str())
        }
    };
    let all = match setting {
        Some(setting) if setting.kind == Kind::Path => return "FILE\n".to_owned(),
        Some(setting) => values(setting),
        None => following(&words),
    };
    let fitting = all.iter().filter(|line| line.starts_with(begun));
    fitting.map(|line| format!("{line}\n")).collect()
}

fn following(words: &[String]) -> Vec<String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let names = match words.as_slice() {
        ["explain"] => return explain::names(),
        [] => [commands::top(), vec!["--help", "--version"]].concat(),
        ["help"] => commands::top().into_iter().chain(topics::names()).collect(),
        ["completions"] => SCRIPTS.map(|(name, _)| name).to_vec(),
        ["help", group] => commands::verbs(group),
        // A flag as first word is the daemon's.
        [flag, ..] if flag.starts_with('-') => return flags(Command::Run),
        [group] if !commands::verbs(group).is_empty() => commands::verbs(group),
        words => {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            let command = commands::named(&words).and_then(|(entry, _)| entry.settings());
            return command.map(flags).unwrap_or_default();
        }
    };
    names.into_iter().map(str::to_owned).collect()
}

/// Bash makes a word of each `=`.
fn whole_words(typed: &[&str]) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in typed {
        match words.last_mut() {
            Some(flag) if *word == "=" || flag.ends_with('=') => flag.push_str(word),
            _ => words.push((*word).to_owned()),
        }
    }
    words
}

fn with_flag(flag: &str) -> Option<&'static Setting> {
    let mut settings = TABLE.iter().copied();
    settings.find(|setting| setting.flag_names().any(|name| name == flag))
}

fn values(setting: &Setting) -> Vec<String> {
    let words = match setting.kind {
        Kind::Boolean => &["true", "false"],
        Kind::Choice(words) => words,
        _ => &[],
    };
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn flags(command: Command) -> Vec<String> {
    let settings = TABLE.iter();
    let settings = settings.filter(|setting| !setting.hidden && setting.is_for(command));
    let flags = settings.flat_map(|setting| {
        let about = setting.help.split(['.', ':', ';']).next();
        let about = about.unwrap_or_default();
        let names = setting.flag_names();
        names.map(move |name| format!("{name} {about}"))
    });
    flags.chain(["--help".to_owned()]).collect()
}
