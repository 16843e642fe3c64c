//! A command line → its flags with their values as text. `resolve` parses the values.
//!
//! The rules are pflag's, so that another cloud-controller-manager's arguments work unchanged:
//! `--flag=value`, `--flag value`, `-v4`, `-v 4`, `-v=4`; a bare boolean flag is true and never
//! takes the next word; `--` ends the flags; `_` in a flag's name is `-`.

use super::hccm_compat::{self, DROP_IN_FLAGS, Use};
use super::problem::{Notice, Problem};
use super::setting::{Command, Flag, Setting};
use super::table::{self, TABLE};
use crate::text::nearest;
use crate::text::one_of;
use lexopt::Arg;
use std::ffi::OsString;

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

pub(super) fn parse(command: Command, words: Vec<OsString>) -> Args {
    let mut parser = ArgsParser {
        command,
        count: words.len(),
        parser: lexopt::Parser::from_args(words),
        args: Args::default(),
    };
    while parser.step() {}
    parser.args
}

/// Is a flag of this name likely to hold a secret?
pub fn names_a_secret(flag: &str) -> bool {
    let mut words = ["token", "password", "secret"].iter();
    words.any(|word| flag.contains(word))
}

struct ArgsParser {
    command: Command,
    parser: lexopt::Parser,
    /// All that the parser was given.
    count: usize,
    args: Args,
}

/// What a known flag is.
#[derive(Clone, Copy)]
enum Known {
    Help,
    Version,
    Ours(&'static Setting),
    /// Of hcloud-cloud-controller-manager, without effect here.
    DropIn(Use),
}

impl ArgsParser {
    /// Reads one flag or word; false at the end.
    fn step(&mut self) -> bool {
        if self.ends_flags() {
            return true;
        }
        match self.parser.next() {
            Ok(Some(Arg::Long(name))) => {
                let name = name.replace('_', "-");
                self.long(name);
            }
            Ok(Some(Arg::Short(letter))) => self.short(letter),
            Ok(Some(Arg::Value(word))) => {
                let left = self.parser.try_raw_args();
                let at = left.map(|left| self.count - left.as_slice().len() - 1);
                self.args.first_word = self.args.first_word.or(at);
                self.word(word);
            }
            // Only a value that is left over, as in `-h=x`; the parser has dropped it.
            Err(_) => self.problem("-h", "takes no value"),
            Ok(None) => return false,
        }
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
        rest.into_iter().for_each(|word| self.word(word));
        true
    }

    fn long(&mut self, name: String) {
        let typed = format!("--{name}");
        match flag(self.command, &name) {
            Some(Known::Ours(setting)) => self.ours(setting, typed),
            Some(known) => match self.value(known) {
                None => self.problem(typed, "needs a value"),
                Some(_) if matches!(known, Known::Help) => self.args.help = true,
                Some(value) if matches!(known, Known::Version) => {
                    self.args.version = value != "false";
                }
                Some(_) => {
                    let notice = Notice::ignored(&typed);
                    if !self.args.notices.contains(&notice) {
                        self.args.notices.push(notice);
                    }
                }
            },
            None => self.unknown(&name, typed),
        }
    }

    fn short(&mut self, letter: char) {
        let mut rows = TABLE.iter().copied();
        let setting = rows.find(|setting| setting.short == Some(letter));
        let typed = format!("-{letter}");
        match setting {
            _ if letter == 'h' => self.args.help = true,
            Some(setting) if setting.is_for(self.command) => self.ours(setting, typed),
            _ => {
                // The rest of the word may be a value or more flags: nothing to go by.
                self.drop_value(self.command.reads_daemon_arguments());
                let only = setting.map(|setting| only_for(setting.commands));
                self.problem(typed, only.unwrap_or_else(|| SEE_HELP.to_owned()));
            }
        }
    }

    fn ours(&mut self, setting: &'static Setting, name: String) {
        match self.value(Known::Ours(setting)).map(OsString::into_string) {
            Some(Ok(text)) => self.args.flags.push(Flag {
                setting,
                name,
                text,
            }),
            Some(Err(_)) => self.problem(name, "its value is not UTF-8"),
            None => {
                let message = format!("needs a value: {}", setting.kind.value_name());
                self.problem(name, message);
            }
        }
    }

    /// A bare boolean flag is true.
    fn value(&mut self, flag: Known) -> Option<OsString> {
        match flag.takes_value() {
            true => self.parser.value().ok(),
            false => Some(self.parser.optional_value().unwrap_or("true".into())),
        }
    }

    fn unknown(&mut self, name: &str, typed: String) {
        let is_daemon = self.command.reads_daemon_arguments();
        let ours = TABLE.iter().filter(|row| row.is_for(self.command));
        let ours = ours.flat_map(|row| row.flags.iter().copied());
        let drop_in = DROP_IN_FLAGS.iter().filter(|_| is_daemon);
        let known = ours.chain(["help"]).chain(drop_in.map(|(flag, _)| *flag));
        let meant = nearest(name, known);
        let is_secret = names_a_secret(name);
        // One mistake, one message: the value that the flag would have taken is skipped too. What may be a secret is
        // not repeated.
        let known = meant.and_then(|meant| flag(self.command, meant));
        let takes_value = known.is_some_and(Known::takes_value);
        self.drop_value(is_secret || takes_value || is_daemon);
        let message = match (table::by_flag(name), meant) {
            _ if is_secret => "unknown flag; a secret on the command line could be read by every \
                               user of this machine, set HCLOUD_TOKEN or HCLOUD_TOKEN_FILE instead"
                .to_owned(),
            (Some(setting), _) => only_for(setting.commands),
            _ if name == "version" => "unknown flag; see ccm version".to_owned(),
            _ if hccm_compat::by_name(name).is_some() => only_for(&[Command::Run]),
            (None, Some(meant)) => format!("unknown flag; did you mean --{meant}?"),
            (None, None) => SEE_HELP.to_owned(),
        };
        self.problem(typed, message);
    }

    fn word(&mut self, word: OsString) {
        match word.into_string() {
            Err(word) => self.problem(word.to_string_lossy(), "not UTF-8"),
            Ok(word) if self.command.reads_daemon_arguments() => {
                let command = format!("ccm {}", self.command.name());
                let message = "unexpected word; it takes only flags, and a flag that is true or false takes its value \
                               with =";
                let problem = Problem::usage(command, message).with_value(word);
                self.args.problems.push(problem);
            }
            Ok(word) => self.args.words.push(word),
        }
    }

    /// What stands behind `=`; with `next`, else the next word, unless it is a flag.
    fn drop_value(&mut self, next: bool) {
        if self.parser.optional_value().is_none()
            && next
            && let Some(mut rest) = self.parser.try_raw_args()
        {
            rest.next_if(|word| !word.as_encoded_bytes().starts_with(b"-"));
        }
    }

    fn problem(&mut self, setting: impl Into<String>, message: impl Into<String>) {
        self.args.problems.push(Problem::usage(setting, message));
    }
}

impl Known {
    /// The next word belongs to it.
    fn takes_value(self) -> bool {
        match self {
            Known::Help | Known::Version => false,
            Known::Ours(setting) => setting.takes_value(),
            Known::DropIn(kind) => kind == Use::WithValue,
        }
    }
}

/// The flag of that long name, when the command takes it.
fn flag(command: Command, name: &str) -> Option<Known> {
    let is_daemon = command.reads_daemon_arguments();
    match (name, table::by_flag(name)) {
        ("help", _) => Some(Known::Help),
        ("version", _) if is_daemon => Some(Known::Version),
        (_, Some(setting)) if setting.is_for(command) => Some(Known::Ours(setting)),
        _ => hccm_compat::by_name(name)
            .filter(|_| is_daemon)
            .map(Known::DropIn),
    }
}

fn only_for(commands: &[Command]) -> String {
    let names: Vec<&str> = commands.iter().map(|command| command.name()).collect();
    format!("only for {}", one_of(&names))
}
