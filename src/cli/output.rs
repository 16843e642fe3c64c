//! The output of the commands. Data is written to stdout and everything else to stderr, each in one piece. The output
//! has no control characters, and no secret that this process has sent to an API, because text from outside may hold
//! anything. Code that makes a line of such text calls [`line`], so that text from outside can't add line ends.

use super::terminal::{colored, columns, has_color, over_wait, screen};
use crate::cache;
use crate::controllers::Counts;
use crate::http::without_known_secrets;
use crate::provider::KeptObject;
use crate::provider::process::{self, is_terminal};
use crate::settings::Output;
use crate::text::{lines, one_line};
use serde::Serialize;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// The way a command ended, which is its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    Done = 0,
    /// Something failed.
    Failed = 1,
    /// The command line is wrong.
    Usage = 2,
    /// There are changes to make, and `--detailed-exitcode` asks for this exit code.
    Pending = 3,
}

impl Exit {
    /// Returns `Failed` instead of `Done` when `is_failed`. Every other exit is returned unchanged.
    pub(super) fn fail_if(self, is_failed: bool) -> Exit {
        match self {
            Exit::Done if is_failed => Exit::Failed,
            exit => exit,
        }
    }
}

/// The reason why a command can't show its result.
pub(super) enum CommandFailure {
    Api(cache::CacheError),
    /// The error was printed, and the command ends with this exit code.
    Shown(Exit),
}

impl From<cache::CacheError> for CommandFailure {
    fn from(error: cache::CacheError) -> CommandFailure {
        CommandFailure::Api(error)
    }
}

pub(super) struct Printer;

/// Whether stdout has no reader any more. A command that prints again and again, as with `--watch`, then ends.
pub(super) static HAS_NO_READER: AtomicBool = AtomicBool::new(false);

impl Printer {
    /// Prints data to stdout. A reader that went away (`| head`) is not our failure, but a full disk is.
    pub(super) fn stdout(text: &str) -> Exit {
        Printer::to_stdout(&lines(&without_known_secrets(text)))
    }

    /// Prints a text to stdout for a person to read, with colours when stdout can show them.
    pub(super) fn text(text: &str) -> Exit {
        Printer::to_stdout(&shown(text, false))
    }

    /// Prints a text that takes the place of the last screen on a terminal.
    pub(super) fn redraw(text: &str) -> Exit {
        Printer::to_stdout(&screen(&shown(text, false)))
    }

    fn to_stdout(text: &str) -> Exit {
        match over_wait(|| process::print(false, text.as_bytes())) {
            Ok(()) => Exit::Done,
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                HAS_NO_READER.store(true, Ordering::Relaxed);
                Exit::Done
            }
            Err(error) => {
                Printer::failure(format_args!("the output can't be written to stdout: {error}"))
            }
        }
    }

    pub(super) fn stderr(text: &str) {
        let text = shown(text, true);
        // The error of this write is ignored, because there is no other place to report it.
        let _ = over_wait(|| process::print(true, text.as_bytes()));
    }

    /// Prints `ccm: …` to stderr.
    pub(super) fn notice(message: impl std::fmt::Display) {
        Printer::stderr(&whole_line(true, "ccm: ", 6, &message.to_string()));
    }

    /// Prints a notice, and returns the exit code of a failure.
    pub(super) fn failure(message: impl std::fmt::Display) -> Exit {
        Printer::notice(message);
        Exit::Failed
    }
}

/// Returns the text as it is printed, without secrets, and with colours when the stream can display them.
fn shown(text: &str, is_stderr: bool) -> String {
    let text = without_known_secrets(text);
    let text = lines(&text);
    if has_color(is_stderr) { colored(&text) } else { text.into_owned() }
}

/// Returns a text from outside as one line of output.
pub(super) fn line(text: impl std::fmt::Display) -> String {
    one_line(&text.to_string()).into_owned() + "\n"
}

/// Returns a text in lines of at most `columns` characters. `first` stands before the first line, and `indent` spaces
/// before the others. A word that is longer than a line, e.g. the path of an error, is cut into lines as well. Secrets
/// are removed first, because a secret in pieces is not found any more.
pub(super) fn wrapped_in(columns: usize, first: &str, indent: usize, text: &str) -> String {
    let new_line = format!("\n{:indent$}", "");
    let mut lines = first.to_owned();
    let (mut column, mut begin) = (first.chars().count(), true);
    for word in one_line(&without_known_secrets(text)).split_whitespace() {
        let length = word.chars().count();
        if !begin && column + 1 + length <= columns {
            lines.push(' ');
            column += 1;
        } else if !begin || column > indent && column + length > columns {
            lines += &new_line;
            column = indent;
        }
        for letter in word.chars() {
            if column == columns {
                lines += &new_line;
                column = indent;
            }
            lines.push(letter);
            column += 1;
        }
        begin = false;
    }
    lines + "\n"
}

/// Returns a text in lines of the terminal's width when a person reads it. Elsewhere the text is one line, so that a
/// search finds all of it.
pub(super) fn whole_line(is_stderr: bool, first: &str, indent: usize, text: &str) -> String {
    if is_terminal(is_stderr) {
        paragraph(first, indent, text)
    } else {
        line(format_args!("{first}{text}"))
    }
}

/// Wraps a text to the width of the output, which is that of the terminal.
pub(super) fn paragraph(first: &str, indent: usize, text: &str) -> String {
    wrapped_in(columns(), first, indent, text)
}

/// Prints an error of usage, and returns its exit code.
pub(super) fn usage(message: &str) -> Exit {
    Printer::notice(message);
    Exit::Usage
}

/// Prints the document when JSON or YAML is asked for, or else the text. The argument of
/// `text` says whether the text is wide, as with `-o wide`.
pub(super) fn print<D: Serialize>(
    output: Output,
    document: impl FnOnce() -> D,
    text: impl FnOnce(bool) -> String,
) -> Exit {
    match output {
        Output::Json => Printer::stdout(&json(&document())),
        Output::Yaml => Printer::stdout(
            &serde_yaml::to_string(&document())
                .unwrap_or_else(|error| format!("error: {:?}\n", error.to_string())),
        ),
        Output::Name => Printer::stdout(&text(false)),
        Output::Table => Printer::text(&text(false)),
        Output::Wide => Printer::text(&text(true)),
    }
}

/// Returns pretty JSON with a newline at its end.
fn json(document: &impl Serialize) -> String {
    match serde_json::to_string_pretty(document) {
        Ok(text) => text + "\n",
        Err(error) => format!("{{\"error\": {:?}}}\n", error.to_string()),
    }
}

/// The document that every command prints with `-o json` and `-o yaml`. Its form is stable.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Document<I> {
    api_version: &'static str,
    kind: String,
    pub(super) items: Vec<I>,
    /// The objects that stay in the cloud although no Service wants them any more. The field exists when `lb list`
    /// looks for them, and is null when they could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kept: Option<Option<Vec<KeptObject>>>,
    /// The counts in the report of a `sync`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) summary: Option<Counts>,
}

impl<I> Document<I> {
    pub(super) fn new(kind: impl Into<String>, items: Vec<I>) -> Document<I> {
        Document { api_version: "ccm/v2", kind: kind.into(), items, kept: None, summary: None }
    }
}

/// Returns the cells of a row with `?` in the given columns, because these columns were not read.
pub(super) fn without(columns: &[usize], mut cells: Vec<String>) -> Vec<String> {
    for column in columns {
        cells[*column] = "?".to_owned();
    }
    cells
}

pub(super) fn or_dash(text: &str) -> String {
    let shown = if text.is_empty() { "-" } else { text };
    shown.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_stays_json() {
        let json = json(&["\u{9b}", "a\tb"]);
        let printed = lines(&json);
        assert_eq!(printed, "[\n  \"\\u009b\",\n  \"a\\tb\"\n]\n");
    }
}
