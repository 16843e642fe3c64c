//! The table of commands. The dispatch of commands, `ccm help`, `--help` and completions are made from it.
//!
//! A new command needs a row in this table, its text in `src/help/commands`, and a line in `cli::run_command`. A
//! command with flags is also a variant of [`Command`]. Each setting lists the variants that accept it.

use super::output::{Exit, Printer};
use super::terminal::help_columns;
use super::topics::{self, reflowed};
use crate::settings::{self, Command, all_nearest, next_word, one_of};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::sync::OnceLock;

/// One command of ccm, or a group of commands, e.g. `lb`.
pub(super) struct CommandEntry {
    /// The words that are typed after `ccm`, e.g. `lb` or `lb list`.
    pub(super) name: &'static str,
    pub(super) kind: CommandKind,
    /// The text that `--help` prints. The placeholder [`FLAGS`] in this text is replaced by the list of the command's
    /// settings.
    help: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandKind {
    /// A command that takes flags. The value names this command in the table of settings, which says for each flag
    /// which commands take it.
    Flags(Command),
    /// The first word of several commands, e.g. `lb` in `lb list` and `lb sync`. This word alone is no complete
    /// command.
    Group,
    Completions,
    Explain,
    Help,
    Version,
}

/// The placeholder in a help text that is replaced by the list of the command's settings.
const FLAGS: &str = "@flags\n";
/// The placeholder in a help text that is replaced by the list of help topics.
const TOPICS: &str = "@topics\n";

macro_rules! text {
    ($file:literal) => {
        include_str!(concat!("../help/commands/", $file, ".txt"))
    };
}

const fn entry(name: &'static str, kind: CommandKind, help: &'static str) -> CommandEntry {
    CommandEntry { name, kind, help }
}

/// The commands, in the order in which completions and errors list them.
#[rustfmt::skip]
const COMMANDS: &[CommandEntry] = &[
    entry("run", CommandKind::Flags(Command::Run), text!("run")),
    entry("node", CommandKind::Group, text!("node")),
    entry("node list", CommandKind::Flags(Command::NodeList), text!("node-list")),
    entry("node inspect", CommandKind::Flags(Command::NodeInspect), text!("node-inspect")),
    entry("node sync", CommandKind::Flags(Command::NodeSync), text!("node-sync")),
    entry("node relabel", CommandKind::Flags(Command::NodeRelabel), text!("node-relabel")),
    entry("lb", CommandKind::Group, text!("lb")),
    entry("lb list", CommandKind::Flags(Command::LbList), text!("lb-list")),
    entry("lb inspect", CommandKind::Flags(Command::LbInspect), text!("lb-inspect")),
    entry("lb sync", CommandKind::Flags(Command::LbSync), text!("lb-sync")),
    entry("lb adopt", CommandKind::Flags(Command::LbAdopt), text!("lb-adopt")),
    entry("lb release", CommandKind::Flags(Command::LbRelease), text!("lb-release")),
    entry("lb replace", CommandKind::Flags(Command::LbReplace), text!("lb-replace")),
    entry("route", CommandKind::Group, text!("route")),
    entry("route list", CommandKind::Flags(Command::RouteList), text!("route-list")),
    entry("route sync", CommandKind::Flags(Command::RouteSync), text!("route-sync")),
    entry("status", CommandKind::Flags(Command::Status), text!("status")),
    entry("doctor", CommandKind::Flags(Command::Doctor), text!("doctor")),
    entry("lint", CommandKind::Flags(Command::Lint), text!("lint")),
    entry("config", CommandKind::Flags(Command::Config), text!("config")),
    entry("explain", CommandKind::Explain, text!("explain")),
    entry("completions", CommandKind::Completions, text!("completions")),
    entry("help", CommandKind::Help, text!("overview")),
    entry("version", CommandKind::Version, text!("version")),
];

impl CommandEntry {
    /// Returns the variant of [`Command`] for this command. The table of settings says for each flag which of these
    /// variants accept it. Returns `None` when the command takes no flags.
    pub(super) fn settings(&self) -> Option<Command> {
        match self.kind {
            CommandKind::Flags(command) => Some(command),
            _ => None,
        }
    }

    /// Returns the text that `--help` prints.
    pub(super) fn help(&self) -> String {
        let text = match (self.kind, self.help.split_once(FLAGS)) {
            (CommandKind::Flags(command), Some((head, tail))) => {
                format!("{head}{}\n{tail}", settings::help(command))
            }
            (CommandKind::Help, _) => self.help.replace(TOPICS, &topics::list()),
            _ => self.help.to_owned(),
        };
        reflowed(&text, help_columns(), |text| match IS_PLUGIN.get() {
            None => text.to_owned(),
            Some(()) => top().iter().fold(text.to_owned(), |text, name| {
                let own = format!("ccm {name}");
                text.replace(&own, &["kubectl ", &own].concat())
            }),
        })
    }
}

/// Is set when ccm runs as a plugin of kubectl, i.e. when it was started by the name `kubectl-ccm`. Help texts then
/// show `kubectl ccm …` instead of `ccm …`.
pub(super) static IS_PLUGIN: OnceLock<()> = OnceLock::new();

/// Returns the words of the command line with the command's name first. Flags that were typed before or within the name
/// are moved behind it: `-v 4 node -o json list` becomes `node list -v 4 -o json`.
pub(super) fn command_first(mut words: Vec<OsString>) -> Vec<OsString> {
    for place in [0, 1] {
        let begun = named(&words).map(|(entry, _)| entry.kind);
        if place == 0 || begun == Some(CommandKind::Group) {
            let Some(at) = next_word(&words, place) else {
                break;
            };
            let word = words.remove(at);
            words.insert(place, word);
        }
    }
    words
}

/// Returns the command whose name is at the start of the command line, and the number of words in this name. `words`
/// are the words of the command line.
pub(super) fn named(words: &[OsString]) -> Option<(&'static CommandEntry, usize)> {
    [2, 1].into_iter().find_map(|count| {
        let name = words.get(..count)?.join(" ".as_ref());
        Some((find(name.to_str()?)?, count))
    })
}

pub(super) fn find(name: &str) -> Option<&'static CommandEntry> {
    COMMANDS.iter().find(|entry| entry.name == name)
}

/// Returns the text of `--help` of a command, or an empty text when there is no command of this name.
pub(super) fn help(name: &str) -> String {
    find(name).map(CommandEntry::help).unwrap_or_default()
}

/// Returns the text that `ccm help` prints.
pub(super) fn overview() -> String {
    help("help")
}

/// When an unknown word resembles no allowed word, the error lists all allowed words if there are at most this many.
const LISTED_AT_MOST: usize = 15;
/// ccm suggests known words that contain the unknown word, and known words that are contained in it. The contained word
/// must have at least this many letters, because shorter words are contained in too many others.
const SHORTEST_PART: usize = 3;

/// Prints the error for an unknown word, e.g. a mistyped command, and returns the exit code of wrong usage. `known` has
/// the words that are allowed. The error suggests allowed words with a similar spelling, or else allowed words that
/// contain the unknown word. When there are none, the error lists all allowed words. When they are too many for this,
/// it suggests the longest allowed word that the unknown word contains.
pub(super) fn unknown<T: AsRef<str>>(what: &str, word: &str, known: &[T]) -> Exit {
    unknown_of(what, word, known, "See ccm help.")
}

/// Prints the error for an unknown word of the command line, e.g. a mistyped command, with suggestions from `known`
/// (see [`unknown`]). The last line of the error is `see`, which says where to find help.
pub(super) fn unknown_of<T: AsRef<str>>(what: &str, word: &str, known: &[T], see: &str) -> Exit {
    let mut known: Vec<&str> = known.iter().map(AsRef::as_ref).collect();
    // The known words can come from several lists, e.g. from the help topics and the checks of `ccm doctor`. A word
    // that is in two of them, e.g. `nodes`, is suggested only once.
    let mut seen = BTreeSet::new();
    known.retain(|name| seen.insert(*name));
    let mut meant = all_nearest(word, known.iter().copied());
    if meant.is_empty() {
        let first = word.split(' ').next().unwrap_or_default();
        meant = all_nearest(first, known.iter().copied());
    }
    if meant.is_empty() && word.len() >= SHORTEST_PART {
        meant.clone_from(&known);
        meant.retain(|name| name.contains(word));
    }
    if meant.is_empty() && known.len() > LISTED_AT_MOST {
        let contained = known.iter().filter(|name| name.len() >= SHORTEST_PART);
        meant.extend(contained.filter(|name| word.contains(**name)).max_by_key(|name| name.len()));
    }
    let hint = match meant.as_slice() {
        [] if known.len() > LISTED_AT_MOST => String::new(),
        [] => format!("; use one of {}", known.join(", ")),
        meant => format!("; did you mean {}?", one_of(meant)),
    };
    Printer::stderr(&format!("ccm: unknown {what} {word:?}{hint}\n{see}\n"));
    Exit::Usage
}

pub(super) fn names() -> Vec<&'static str> {
    COMMANDS.iter().map(|entry| entry.name).collect()
}

/// Returns the words that can follow `ccm` as the first word of a command, e.g. `node` or `status`.
pub(super) fn top() -> Vec<&'static str> {
    names().into_iter().filter(|name| !name.contains(' ')).collect()
}

/// Returns the second words of the commands in a group, e.g. `list`, `inspect` and `sync` for the group `node`.
pub(super) fn verbs(group: &str) -> Vec<&'static str> {
    let names = names().into_iter().filter_map(|name| name.split_once(' '));
    names.filter(|(noun, _)| *noun == group).map(|(_, verb)| verb).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_with_settings_is_in_the_table_by_its_name() {
        for command in Command::ALL {
            let entry = find(command.name());
            let kind = entry.map(|entry| entry.kind);
            assert_eq!(kind, Some(CommandKind::Flags(*command)), "{command:?}");
        }
        for entry in COMMANDS {
            let has_flags = matches!(entry.kind, CommandKind::Flags(_));
            assert_eq!(entry.help.contains(FLAGS), has_flags, "{}", entry.name);
            assert_eq!(entry.kind == CommandKind::Group, !verbs(entry.name).is_empty());
            for line in entry.help().lines() {
                assert!(line.chars().count() <= 80, "{}: {line}", entry.name);
            }
        }
    }
}
