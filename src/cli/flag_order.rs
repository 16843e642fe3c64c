//! Flags before the command, as other tools have it: how the line should read.

use crate::settings::{self, Command};
use std::ffi::OsString;

/// Longest value that is repeated, in characters.
const SHOWN_CHARACTERS: usize = 30;

/// The line in its right order, when a flag comes first and one of `commands` later. It may be
/// printed: a value that may be a secret, or steer a terminal, is not in it.
pub(super) fn command(words: &[OsString], commands: &[&str]) -> Option<String> {
    let at = settings::first_word(Command::Run, words)?;
    let text: Vec<&str> = words
        .iter()
        .map(|word| word.to_str().unwrap_or_default())
        .collect();
    let (flags, rest) = (text.get(..at)?, text.get(at..)?);
    let is_command = rest.first().is_some_and(|word| commands.contains(word));
    // What follows up to the next flag belongs to the command: `node list`, `node sync worker-1`.
    let own = rest.iter().take_while(|word| !word.starts_with('-'));
    let (own, later) = rest.split_at(own.count());
    let mut line: Vec<String> = own.iter().map(|word| shown(word)).collect();
    let mut before = "";
    for word in flags.iter().chain(later) {
        line.push(match word.split_once('=') {
            _ if settings::names_a_secret(before) => "…".to_owned(),
            Some((flag, _)) if settings::names_a_secret(flag) => format!("{}=…", shown(flag)),
            Some((flag, value)) => format!("{}={}", shown(flag), shown(value)),
            None => shown(word),
        });
        before = word;
    }
    is_command.then(|| format!("ccm {}", line.join(" ")))
}

/// A word, when it can only be a name, a path or the like.
fn shown(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,*".contains(c);
    match word.len() <= SHOWN_CHARACTERS && word.chars().all(plain) {
        true => word.to_owned(),
        false => "…".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_go_after_the_command() {
        for (typed, meant) in [
            (
                "--context foo node list",
                Some("ccm node list --context foo"),
            ),
            (
                "--context=foo node list -o json",
                Some("ccm node list --context=foo -o json"),
            ),
            ("-o json node list", Some("ccm node list -o json")),
            ("--once run", Some("ccm run --once")),
            (
                "-v 4 node sync a b --dry-run",
                Some("ccm node sync a b -v 4 --dry-run"),
            ),
            ("--token hunter2 node list", Some("ccm node list --token …")),
            ("--token=hunter2 node list", Some("ccm node list --token=…")),
            (
                "--master https://me:hunter2@host node list",
                Some("ccm node list --master …"),
            ),
            ("--context node list", None),
            ("--once extra", None),
            ("--once", None),
            ("--once -- node", None),
        ] {
            let words: Vec<OsString> = typed.split(' ').map(OsString::from).collect();
            let commands = &["run", "node"];
            assert_eq!(command(&words, commands).as_deref(), meant, "{typed}");
        }
    }
}
