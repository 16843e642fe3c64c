//! A command line → its flags with their values as text. `resolve` parses the values.
//!
//! The rules are pflag's, so that another cloud-controller-manager's arguments work unchanged:
//! `--flag=value`, `--flag value`, `-v4`, `-v 4`, `-v=4`; a bare boolean flag is true and never
//! takes the next word; `--` ends the flags; `_` in a flag's name is `-`.

use std::ffi::{OsStr, OsString};

use lexopt::Arg;

use super::hccm_compat::{self, Takes};
use super::problem::{Notice, Problem};
use super::setting::{Command, Setting};
use super::table::{self, TABLE};
use super::values::{boolean, one_of};
use crate::text::nearest::nearest;

const SEE_HELP: &str = "unknown flag; see --help";

/// A parsed command line.
#[derive(Debug, Default)]
pub(super) struct Args {
    /// In the order given; a flag may be there several times.
    pub(super) flags: Vec<Flag>,
    pub(super) words: Vec<String>,
    /// Where the first word stood that is neither a flag nor a flag's value; none after `--`.
    pub(super) first_word: Option<usize>,
    pub(super) help: bool,
    pub(super) version: bool,
    pub(super) notices: Vec<Notice>,
    pub(super) problems: Vec<Problem>,
}

/// One flag with its value, not yet parsed.
#[derive(Debug)]
pub(super) struct Flag {
    pub(super) setting: &'static Setting,
    /// As it was written, dashes included.
    pub(super) name: String,
    pub(super) text: String,
}

pub(super) fn parse(command: Command, words: Vec<OsString>) -> Args {
    let count = words.len();
    let parser = lexopt::Parser::from_args(words);
    let mut parser = ArgsParser {
        command,
        parser,
        count,
        args: Args::default(),
        bare: None,
    };
    while parser.step() {}
    parser.args
}

/// Is a flag of this name likely to hold a secret?
pub fn names_a_secret(flag: &str) -> bool {
    ["token", "password", "secret"]
        .iter()
        .any(|word| flag.contains(word))
}

struct ArgsParser {
    command: Command,
    parser: lexopt::Parser,
    /// All that the parser was given.
    count: usize,
    args: Args,
    /// The boolean flag that was the last word, without a value.
    bare: Option<String>,
}

/// What a known flag is.
enum Known {
    Help,
    Version,
    Ours(&'static Setting),
    Ignored(Takes),
}

impl ArgsParser {
    /// Reads one flag or word; false at the end.
    fn step(&mut self) -> bool {
        let bare = self.bare.take();
        if self.ends_flags() || self.has_one_dash_too_few() {
            return true;
        }
        // Owned, because the parser lends its flags' names.
        let long = match self.parser.next() {
            Ok(Some(Arg::Long(name))) => name.to_owned(),
            Ok(Some(Arg::Short(letter))) => {
                self.short(letter);
                return true;
            }
            Ok(Some(Arg::Value(word))) => {
                let left = self.parser.try_raw_args();
                let at = left.map(|left| self.count - left.as_slice().len() - 1);
                self.args.first_word = self.args.first_word.or(at);
                self.word(word, bare);
                return true;
            }
            Ok(None) => return false,
            // Only a value that is left over, as in `-h=x`; the parser has dropped it.
            Err(_) => {
                self.problem("-h", "takes no value");
                return true;
            }
        };
        self.long(&long);
        true
    }

    /// After `--` every word stands for itself, whatever it looks like.
    fn ends_flags(&mut self) -> bool {
        let Some(mut rest) = self.parser.try_raw_args() else {
            return false;
        };
        if rest.next_if(|word| word == "--").is_none() {
            return false;
        }
        let rest: Vec<OsString> = rest.collect();
        for word in rest {
            self.word(word, None);
        }
        true
    }

    /// `-once`: pflag reads five short flags, which is never meant.
    fn has_one_dash_too_few(&mut self) -> bool {
        let command = self.command;
        let Some(mut rest) = self.parser.try_raw_args() else {
            return false;
        };
        let Some(word) = rest.peek().and_then(OsStr::to_str) else {
            return false;
        };
        let Some(typed) = word.strip_prefix('-').filter(|word| !word.starts_with('-')) else {
            return false;
        };
        let (name, value) = match typed.split_once('=') {
            Some((name, value)) => (normal(name), Some(value)),
            None => (normal(typed), None),
        };
        let Some(flag) = flag(command, &name).filter(|_| name.len() > 1) else {
            return false;
        };
        let takes_next = value.is_none() && flag.takes_value();
        rest.next();
        if takes_next {
            rest.next();
        }
        self.problem(
            format!("-{name}"),
            format!("long flags have two dashes: --{name}"),
        );
        true
    }

    fn long(&mut self, typed: &str) {
        let name = normal(typed);
        match flag(self.command, &name) {
            Some(Known::Help) => self.args.help |= self.switch("help"),
            Some(Known::Version) => self.version(),
            Some(Known::Ours(setting)) => self.ours(setting, format!("--{name}")),
            Some(Known::Ignored(takes)) => self.ignored(&name, takes),
            None => self.unknown(&name),
        }
    }

    fn short(&mut self, letter: char) {
        match table::by_short(letter).filter(|setting| setting.is_for(self.command)) {
            _ if letter == 'h' => self.args.help = true,
            Some(setting) => self.ours(setting, format!("-{letter}")),
            None => {
                // The rest of the word may be a value or more flags: nothing to go by.
                let has_value = self.parser.optional_value().is_some();
                if !has_value && self.command.reads_daemon_arguments() {
                    self.drop_value();
                }
                let message = match table::by_short(letter) {
                    Some(setting) => only_for(setting.commands),
                    None => SEE_HELP.to_owned(),
                };
                self.problem(format!("-{letter}"), message);
            }
        }
    }

    fn ours(&mut self, setting: &'static Setting, flag: String) {
        let text = if setting.takes_value() {
            self.parser.value().ok()
        } else {
            self.parser.optional_value().or_else(|| {
                self.bare = Some(flag.clone());
                Some("true".into())
            })
        };
        match text.map(OsString::into_string) {
            Some(Ok(text)) => self.args.flags.push(Flag {
                setting,
                name: flag,
                text,
            }),
            Some(Err(_)) => self.problem(flag, "its value is not UTF-8"),
            None => self.problem(
                flag,
                format!("needs a value: {}", setting.kind.value_name()),
            ),
        }
    }

    fn ignored(&mut self, name: &str, takes: Takes) {
        let typed = format!("--{name}");
        match takes {
            Takes::Nothing if self.parser.optional_value().is_none() => {
                self.bare = Some(typed.clone());
            }
            Takes::Nothing => {}
            Takes::Value if self.parser.value().is_err() => {
                self.problem(typed, "needs a value");
                return;
            }
            Takes::Value => {}
        }
        let notice = Notice::Ignored { name: typed };
        if !self.args.notices.contains(&notice) {
            self.args.notices.push(notice);
        }
    }

    fn unknown(&mut self, name: &str) {
        let typed = format!("--{name}");
        let has_value = self.parser.optional_value().is_some();
        let known = TABLE
            .iter()
            .filter(|setting| setting.is_for(self.command))
            .flat_map(|setting| setting.flags.iter().copied())
            .chain(["help"])
            .chain(drop_in_names(self.command));
        let secret = names_a_secret(name);
        let meant = nearest(name, known);
        let meant_takes_value = meant
            .and_then(|meant| flag(self.command, meant))
            .is_some_and(|f| f.takes_value());
        // One mistake, one message: the value that the flag would have taken is skipped too. What may be a secret is
        // not repeated.
        if !has_value && (secret || meant_takes_value || self.command.reads_daemon_arguments()) {
            self.drop_value();
        }
        let message = match (table::by_flag(name), meant) {
            _ if secret => "unknown flag; a secret on the command line could be read by every \
                            user of this machine, set HCLOUD_TOKEN or HCLOUD_TOKEN_FILE instead"
                .to_owned(),
            (Some(setting), _) => only_for(setting.commands),
            _ if name == "version" => "unknown flag; see ccm version".to_owned(),
            (None, _) if hccm_compat::by_name(name).is_some() => only_for(&[Command::Run]),
            (None, Some(meant)) => format!("unknown flag; did you mean --{meant}?"),
            (None, None) => SEE_HELP.to_owned(),
        };
        self.problem(typed, message);
    }

    fn word(&mut self, word: OsString, bare: Option<String>) {
        let word = match word.into_string() {
            Ok(word) => word,
            Err(word) => return self.problem(word.to_string_lossy(), "not UTF-8"),
        };
        let daemon = self.command.reads_daemon_arguments();
        match bare {
            Some(flag) if boolean(&word).is_ok() && (daemon || word.len() > 1) => {
                let message = format!("never takes the next word; write {flag}={word}");
                self.args
                    .problems
                    .push(Problem::usage(flag, message).with_value(word));
            }
            _ if daemon => {
                let command = format!("ccm {}", self.command.name());
                let message = "unexpected word; it takes only flags";
                self.args
                    .problems
                    .push(Problem::usage(command, message).with_value(word));
            }
            _ => self.args.words.push(word),
        }
    }

    /// A flag that stands for itself: bare, or `=` with a boolean.
    fn switch(&mut self, name: &str) -> bool {
        let Some(text) = self.parser.optional_value() else {
            return true;
        };
        let text = text.to_string_lossy();
        boolean(&text).unwrap_or_else(|message| {
            let problem = Problem::usage(format!("--{name}"), message).with_value(text.clone());
            self.args.problems.push(problem);
            false
        })
    }

    /// `--version=raw` and `--version=v1.2.3` ask for a version too.
    fn version(&mut self) {
        let value = self.parser.optional_value();
        let refused = value.is_some_and(|value| value.to_str().map(boolean) == Some(Ok(false)));
        self.args.version |= !refused;
    }

    fn drop_value(&mut self) {
        if let Some(mut rest) = self.parser.try_raw_args() {
            rest.next_if(|word| !word.as_encoded_bytes().starts_with(b"-"));
        }
    }

    fn problem(&mut self, setting: impl Into<String>, message: impl Into<String>) {
        self.args.problems.push(Problem::usage(setting, message));
    }
}

impl Known {
    /// The next word belongs to it.
    fn takes_value(&self) -> bool {
        match self {
            Known::Help | Known::Version => false,
            Known::Ours(setting) => setting.takes_value(),
            Known::Ignored(takes) => *takes == Takes::Value,
        }
    }
}

/// The flag of that long name, when the command takes it.
fn flag(command: Command, name: &str) -> Option<Known> {
    match (name, table::by_flag(name)) {
        ("help", _) => Some(Known::Help),
        ("version", _) if command.reads_daemon_arguments() => Some(Known::Version),
        (_, Some(setting)) if setting.is_for(command) => Some(Known::Ours(setting)),
        _ if command.reads_daemon_arguments() => {
            hccm_compat::by_name(name).map(|flag| Known::Ignored(flag.takes))
        }
        _ => None,
    }
}

fn drop_in_names(command: Command) -> impl Iterator<Item = &'static str> {
    let accepted = command.reads_daemon_arguments();
    hccm_compat::FLAGS
        .iter()
        .filter(move |_| accepted)
        .map(|flag| flag.name)
}

fn normal(name: &str) -> String {
    name.replace('_', "-")
}

fn only_for(commands: &[Command]) -> String {
    let names = names(commands);
    format!("only for {}", one_of(&names))
}

/// A verb that all its commands share is named once: `list`, not `node list, lb list, route list`.
fn names(commands: &[Command]) -> Vec<&'static str> {
    let mut names = Vec::new();
    for command in commands {
        let name = command.name();
        let verb = name.split_once(' ').map_or(name, |(_, verb)| verb);
        let with_verb = |all: &[Command]| {
            all.iter()
                .filter(|other| other.name().split_once(' ').is_some_and(|(_, v)| v == verb))
                .count()
        };
        let holds_for_all = with_verb(commands) == with_verb(Command::ALL);
        let name = if holds_for_all { verb } else { name };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}
