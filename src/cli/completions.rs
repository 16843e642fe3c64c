//! `ccm completions SHELL`: a script that completes commands, flags and words of choices.
//!
//! The scripts are in `src/help/completions`. At each key they run `ccm completions -- WORD…`, which answers with what
//! may follow: [`offered`]. Names of nodes and Services are not completed: that would ask the cluster at every key.

use super::output::{Exit, Printer, usage};
use super::{commands, topics};
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

/// What may stand in the place of the last word, one a line, and behind a space what it is about. `FILE`: any path.
fn offered(typed: &[&str]) -> String {
    let mut words = whole_words(typed);
    let last = words.pop().unwrap_or_default();
    let setting = match last.split_once('=') {
        Some((flag, _)) => with_flag(flag),
        None => words
            .last()
            .and_then(|flag| with_flag(flag))
            .filter(|setting| setting.takes_value()),
    };
    if let Some(setting) = setting {
        return values(setting);
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => commands::top().join("\n") + "\n--help\n--version\n",
        ["help"] => [commands::top(), topics::names().collect()]
            .concat()
            .join("\n"),
        ["completions"] => SCRIPTS.map(|(name, _)| name).join("\n"),
        ["help", group] | [group] if !commands::verbs(group).is_empty() => {
            commands::verbs(group).join("\n")
        }
        // A flag as first word is the daemon's.
        [flag, ..] if flag.starts_with('-') => flags(Command::Run),
        words => match commands::named(&words.iter().map(OsString::from).collect::<Vec<_>>()) {
            Some((entry, _)) => entry.settings().map(flags).unwrap_or_default(),
            None => String::new(),
        },
    }
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

fn values(setting: &Setting) -> String {
    match setting.kind {
        Kind::Boolean => "true\nfalse".to_owned(),
        Kind::Choice(words) => words.join("\n"),
        Kind::Path => "FILE".to_owned(),
        _ => String::new(),
    }
}

fn flags(command: Command) -> String {
    let settings = TABLE.iter();
    let settings = settings.filter(|setting| !setting.hidden && setting.is_for(command));
    let lines = settings.flat_map(|setting| {
        let about = setting.help.split(['.', ':', ';']).next();
        let about = about.unwrap_or_default();
        setting
            .flag_names()
            .map(move |name| format!("{name} {about}\n"))
    });
    lines.collect::<String>() + "--help\n"
}
