//! Splits a command line into flags and other words, e.g. the names of nodes. The values of flags stay text, which the
//! module `resolve` parses.
//!
//! The rules are those of pflag, the Go library for flags, so that the arguments of another cloud-controller-manager
//! work unchanged. `--flag=value`, `--flag value`, `-v4`, `-v 4` and `-v=4` are accepted. A boolean flag without `=` is
//! true and never takes the next word as its value. After `--`, no word is a flag, even if it begins with a dash. `_`
//! in the name of a flag counts as `-`.

use super::hccm_compat::{self, FlagUse, IGNORED_FLAGS};
use super::problem::{Notice, Problem};
use super::setting::{Command, Flag, Setting, ValueKind};
use super::table::{self, TABLE};
use crate::provider::variables::{HCLOUD_TOKEN, HCLOUD_TOKEN_FILE};
use crate::text::{nearest, one_of};
use lexopt::Arg;
use std::ffi::OsString;

/// The greatest number of commands that an error message lists when a flag belongs only to other commands. When there
/// are more such commands, the message lists none of them.
const NAMED_AT_MOST: usize = 4;

/// A parsed command line.
#[derive(Debug, Default)]
pub(super) struct Args {
    /// The flags in the order in which they were given. The list can contain the same flag several times.
    pub(super) flags: Vec<Flag>,
    pub(super) words: Vec<String>,
    pub(super) help: bool,
    pub(super) version: bool,
    pub(super) notices: Vec<Notice>,
    pub(super) problems: Vec<Problem>,
}

pub(super) fn parse(command: Command, words: Vec<OsString>) -> Args {
    let mut parser =
        ArgsParser { command, parser: lexopt::Parser::from_args(words), args: Args::default() };
    while parser.step() {}
    parser.args
}

/// Returns the position of the first word, from position `at` on, that is neither a flag nor the value of a flag. The
/// flags of all commands are recognised. `None` when all words from `at` on are flags or their values. The search ends
/// at the word `--`.
pub fn next_word(words: &[OsString], mut at: usize) -> Option<usize> {
    loop {
        let word = words.get(at)?.to_string_lossy();
        let Some(flag) = word.strip_prefix('-').filter(|rest| !rest.is_empty()) else {
            return Some(at);
        };
        let takes_next = match flag.strip_prefix('-') {
            Some("") => return None,
            Some(long) => {
                let long = long.replace('_', "-");
                let drop_in = hccm_compat::by_name(&long);
                table::by_flag(&long)
                    .map_or(drop_in == Some(FlagUse::WithValue), Setting::takes_value)
            }
            // A word of one or more short flags, e.g. `-wn`. Only its last flag can take the next word as its value, as
            // in `-wn shop`. In `-nshop`, the same word already contains the value.
            None => {
                let mut letters = flag.chars().map(table::by_letter);
                let is_last = |place: usize| place + 1 == flag.chars().count();
                let place = letters.position(|setting| setting.is_some_and(Setting::takes_value));
                place.is_some_and(is_last)
            }
        };
        at += 1 + usize::from(takes_next);
    }
}

/// Whether the value of a flag with this name is probably a secret.
pub fn names_a_secret(flag: &str) -> bool {
    ["token", "password", "secret"].iter().any(|word| flag.contains(word))
}

struct ArgsParser {
    command: Command,
    parser: lexopt::Parser,
    args: Args,
}

/// A known flag, by what is done with it: it prints a text (`--help`, `--version`), sets a setting, or is ignored.
#[derive(Clone, Copy)]
enum FlagKind {
    Help,
    Version,
    Ours(&'static Setting),
    /// A flag of hcloud-cloud-controller-manager that this program accepts and ignores.
    DropIn(FlagUse),
}

impl ArgsParser {
    /// Reads the next flag or word of the command line. Returns `false` when nothing is left.
    fn step(&mut self) -> bool {
        if self.ends_flags() || self.has_one_dash() {
            return true;
        }
        match self.parser.next() {
            Ok(Some(Arg::Long(name))) => {
                let name = name.replace('_', "-");
                self.long(name);
            }
            Ok(Some(Arg::Short(letter))) => self.short(letter),
            Ok(Some(Arg::Value(word))) => self.word(word),
            // This error means that a flag that takes no value was given a value, as in `-h=x`. The parser has already
            // skipped the value.
            Err(lexopt::Error::UnexpectedValue { option, .. }) => {
                self.problem(option, "takes no value");
            }
            Err(error) => self.problem(error.to_string(), "not understood"),
            Ok(None) => return false,
        }
        true
    }

    /// Whether the next word is `--`, which ends the flags. In this case the function also reads all remaining words,
    /// and takes none of them for a flag.
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

    /// Whether the next word is a long flag with only one dash, e.g. `-namespace`. In this case the function skips the
    /// flag and reports a problem, because the letters would otherwise be read as short flags.
    fn has_one_dash(&mut self) -> bool {
        let is_long = |word: &str| {
            let name = word.split('=').next()?.strip_prefix('-')?;
            let is_long = name.len() > 1 && table::by_flag(name).is_some();
            is_long.then(|| name.to_owned())
        };
        let Some(mut rest) = self.parser.try_raw_args() else {
            return false;
        };
        let Some(name) = rest.peek().and_then(|word| word.to_str()).and_then(is_long) else {
            return false;
        };
        rest.next();
        let message = format!("long flags have two dashes: did you mean --{name}?");
        self.drop_value(true);
        self.problem(format!("-{name}"), message);
        true
    }

    fn long(&mut self, name: String) {
        let typed = format!("--{name}");
        match flag(self.command, &name) {
            Some(FlagKind::Ours(setting)) => self.ours(setting, typed),
            Some(known) => match self.value(known) {
                None => self.problem(typed, "needs a value"),
                Some(_) if matches!(known, FlagKind::Help) => self.args.help = true,
                Some(value) if matches!(known, FlagKind::Version) => {
                    self.args.version = value != "false";
                }
                Some(_) => {
                    let notice = Notice::ignored(&typed, "");
                    if !self.args.notices.contains(&notice) {
                        self.args.notices.push(notice);
                    }
                }
            },
            None => self.unknown(&name, typed),
        }
    }

    fn short(&mut self, letter: char) {
        let setting = table::by_letter(letter);
        let typed = format!("-{letter}");
        match setting {
            _ if letter == 'h' => self.args.help = true,
            // A flag that takes no value, e.g. `-w` in `-wA`. Another short flag can follow it in the same word.
            Some(setting) if setting.is_for(self.command) && !setting.takes_value() => {
                let text = "true".to_owned();
                self.args.flags.push(Flag { setting, name: typed, text });
            }
            Some(setting) if setting.is_for(self.command) => self.ours(setting, typed),
            _ => {
                // An unknown short flag, e.g. `-x` in `-xab`. The rest of its word is skipped, because it is not known
                // whether this rest is the value of the flag or more flags. When nothing follows in the same word, as
                // in `-x abc`, the next word may be the value. It is skipped for a command like `run`, which accepts
                // only flags.
                self.drop_value(self.command.reads_daemon_arguments());
                let only = setting.map(|setting| self.only_for(setting.commands));
                self.problem(typed, only.unwrap_or_else(|| self.see_help()));
            }
        }
    }

    fn ours(&mut self, setting: &'static Setting, name: String) {
        match self.value(FlagKind::Ours(setting)).map(OsString::into_string) {
            Some(Ok(text)) => self.args.flags.push(Flag { setting, name, text }),
            Some(Err(_)) => self.problem(name, "its value is not UTF-8"),
            None => {
                let (what, example) = (setting.kind.value_name(), setting.example());
                let is_listed = matches!(setting.kind, ValueKind::Choice(_));
                let message = if setting.secret || is_listed {
                    format!("needs a value: {what}")
                } else {
                    format!("needs a value: {what}, e.g. {name} {example}")
                };
                self.problem(name, message);
            }
        }
    }

    /// Reads the value of a flag. A boolean flag without a value has the value `true`. `None` when a flag that needs a
    /// value has none.
    fn value(&mut self, flag: FlagKind) -> Option<OsString> {
        if flag.takes_value() {
            self.parser.value().ok()
        } else {
            Some(self.parser.optional_value().unwrap_or("true".into()))
        }
    }

    fn unknown(&mut self, name: &str, typed: String) {
        let is_daemon = self.command.reads_daemon_arguments();
        let ours = TABLE.iter().filter(|row| row.is_for(self.command));
        let ours = ours.flat_map(|row| row.flags.iter().copied());
        let drop_in = IGNORED_FLAGS.iter().filter(|_| is_daemon);
        let known = ours.chain(["help"]).chain(drop_in.map(|(flag, _)| *flag));
        let meant = nearest(name, known);
        let is_secret = names_a_secret(name);
        // The known flag that the user probably meant, or `None`. When this flag takes a value, the next word is taken
        // for the value of the unknown flag and skipped. Otherwise one mistake would cause two messages, and the second
        // message could repeat a secret.
        let known = meant.and_then(|meant| flag(self.command, meant));
        let takes_value = known.is_some_and(FlagKind::takes_value);
        self.drop_value(is_secret || takes_value || is_daemon);
        let message = match (table::by_flag(name), meant) {
            _ if is_secret => format!(
                "unknown flag; a secret on the command line could be read by every user of this machine: set \
                 {HCLOUD_TOKEN} or {HCLOUD_TOKEN_FILE} instead"
            ),
            (Some(setting), _) => self.only_for(setting.commands),
            _ if name == "version" => "unknown flag; see ccm version".to_owned(),
            _ if hccm_compat::by_name(name).is_some() => self.only_for(&[Command::Run]),
            (None, Some(meant)) => format!("unknown flag; did you mean --{meant}?"),
            (None, None) => self.see_help(),
        };
        self.problem(typed, message);
    }

    fn word(&mut self, word: OsString) {
        match word.into_string() {
            Err(word) => self.problem(word.to_string_lossy(), "not UTF-8"),
            Ok(word) if self.command.reads_daemon_arguments() => {
                let command = format!("ccm {}", self.command.name());
                let message = "unexpected word; this command takes only flags, and a boolean flag takes its value \
                               with =";
                let problem = Problem::usage(command, message).with_value(word);
                self.args.problems.push(problem);
            }
            Ok(word) => self.args.words.push(word),
        }
    }

    /// Skips the value of an unknown flag. The value follows `=`, or is the next word when there is no `=`. The next
    /// word is only skipped when `next` is `true` and the word does not begin with a dash.
    fn drop_value(&mut self, next: bool) {
        if self.parser.optional_value().is_none()
            && next
            && let Some(mut rest) = self.parser.try_raw_args()
        {
            rest.next_if(|word| !word.as_encoded_bytes().starts_with(b"-"));
        }
    }

    fn see_help(&self) -> String {
        format!("unknown flag; see ccm {} --help", self.command.name())
    }

    /// Returns the error message for a flag that only other commands accept. The message lists these commands, unless
    /// there are too many of them.
    fn only_for(&self, commands: &[Command]) -> String {
        let names: Vec<&str> = commands.iter().map(|command| command.name()).collect();
        let own = self.command.name();
        if names.len() > NAMED_AT_MOST {
            format!("not a flag of {own}; see ccm {own} --help")
        } else {
            format!("only for {}", one_of(&names))
        }
    }

    fn problem(&mut self, setting: impl Into<String>, message: impl Into<String>) {
        self.args.problems.push(Problem::usage(setting, message));
    }
}

impl FlagKind {
    /// Whether the flag takes the next word as its value.
    fn takes_value(self) -> bool {
        match self {
            FlagKind::Help | FlagKind::Version => false,
            FlagKind::Ours(setting) => setting.takes_value(),
            FlagKind::DropIn(kind) => kind == FlagUse::WithValue,
        }
    }
}

/// Returns the flag with this long name, or `None` when the command does not accept such a flag.
fn flag(command: Command, name: &str) -> Option<FlagKind> {
    let is_daemon = command.reads_daemon_arguments();
    match (name, table::by_flag(name)) {
        ("help", _) => Some(FlagKind::Help),
        ("version", _) if is_daemon => Some(FlagKind::Version),
        (_, Some(setting)) if setting.is_for(command) => Some(FlagKind::Ours(setting)),
        _ => hccm_compat::by_name(name).filter(|_| is_daemon).map(FlagKind::DropIn),
    }
}
