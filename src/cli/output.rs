//! The output of the commands. Data is written to stdout, and everything else to stderr. A whole text is passed to
//! stdout or stderr at once, and not line by line.
//!
//! Texts from outside, such as names of objects, may contain anything. Therefore control characters are escaped, and
//! secrets that this process has sent to an API are removed. Code that prints a text from outside as a line calls
//! [`line`], so that line ends in the text can't fake further lines.

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

/// How a command ended. The value of each variant is the exit code of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    Done = 0,
    /// The command line is right, but something failed, e.g. an API call.
    Failed = 1,
    /// The command line is wrong.
    Usage = 2,
    /// Some changes are not made yet. This exit code is used only with `--detailed-exitcode`.
    Pending = 3,
}

impl Exit {
    /// Returns `Failed` in place of `Done` when `is_failed` is true. All other values are returned unchanged.
    pub(super) fn fail_if(self, is_failed: bool) -> Exit {
        match self {
            Exit::Done if is_failed => Exit::Failed,
            exit => exit,
        }
    }
}

/// Why a command can't show its result.
pub(super) enum CommandFailure {
    Api(cache::CacheError),
    /// The error was already printed. The command must end with this exit code.
    Shown(Exit),
}

impl From<cache::CacheError> for CommandFailure {
    fn from(error: cache::CacheError) -> CommandFailure {
        CommandFailure::Api(error)
    }
}

pub(super) struct Printer;

/// Whether the program that read stdout has ended, e.g. `head` in `ccm node list --watch | head`. A command with
/// `--watch` then ends as well.
pub(super) static HAS_NO_READER: AtomicBool = AtomicBool::new(false);

impl Printer {
    /// Prints data to stdout, and returns the exit code. It is a failure when the data can't be written, e.g. to a full
    /// disk. It is no failure when the reader of stdout has ended, as in `ccm node list | head`.
    pub(super) fn stdout(text: &str) -> Exit {
        Printer::to_stdout(&lines(&without_known_secrets(text)))
    }

    /// Prints a text for a person to stdout. The text has colours when stdout can show them.
    pub(super) fn text(text: &str) -> Exit {
        Printer::to_stdout(&shown(text, false))
    }

    /// Clears the terminal, and prints the text there.
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
        // When this write to stderr fails, the error is ignored. It could only be reported on stderr.
        let _ = over_wait(|| process::print(true, text.as_bytes()));
    }

    /// Prints the message to stderr, with `ccm: ` before it.
    pub(super) fn notice(message: impl std::fmt::Display) {
        Printer::stderr(&whole_line(true, "ccm: ", 6, &message.to_string()));
    }

    /// Prints the message to stderr, with `ccm: ` before it, and returns the exit code of a failure.
    pub(super) fn failure(message: impl std::fmt::Display) -> Exit {
        Printer::notice(message);
        Exit::Failed
    }
}

/// Returns the text in the form in which it is printed. Secrets are removed, and colours are added when stdout or
/// stderr can show them.
fn shown(text: &str, is_stderr: bool) -> String {
    let text = without_known_secrets(text);
    let text = lines(&text);
    if has_color(is_stderr) { colored(&text) } else { text.into_owned() }
}

/// Returns a text from outside, e.g. the name of an object, as exactly one line of output.
pub(super) fn line(text: impl std::fmt::Display) -> String {
    one_line(&text.to_string()).into_owned() + "\n"
}

/// Returns the text in lines of at most `columns` characters. `first` stands before the first line, and `indent` spaces
/// stand before each other line. A word that is longer than a line is cut. Secrets are removed first, because a secret
/// that was cut into pieces would not be found.
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

/// Returns the text in lines of the terminal's width. When the output is not a terminal, returns the text as a single
/// line, so that `grep` finds all of it.
pub(super) fn whole_line(is_stderr: bool, first: &str, indent: usize, text: &str) -> String {
    if is_terminal(is_stderr) {
        paragraph(first, indent, text)
    } else {
        line(format_args!("{first}{text}"))
    }
}

/// Returns the text in lines of the terminal's width. The lines after the first are indented.
pub(super) fn paragraph(first: &str, indent: usize, text: &str) -> String {
    wrapped_in(columns(), first, indent, text)
}

/// Prints the message about a wrong command line, and returns the exit code of wrong usage.
pub(super) fn usage(message: &str) -> Exit {
    Printer::notice(message);
    Exit::Usage
}

/// Prints the result of a command: the JSON or YAML of `document` when the user asked for one of them, and otherwise
/// the result of `text`. The argument of `text` is `true` when the user asked for `-o wide`.
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

/// Returns the document as indented JSON with a line end.
fn json(document: &impl Serialize) -> String {
    match serde_json::to_string_pretty(document) {
        Ok(text) => text + "\n",
        Err(error) => format!("{{\"error\": {:?}}}\n", error.to_string()),
    }
}

/// The document that a command prints with `-o json` and `-o yaml`. Later versions keep its form.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Document<I> {
    api_version: &'static str,
    kind: String,
    pub(super) items: Vec<I>,
    /// The load balancers and certificates whose Service does not exist any more, and which stay in the cloud because
    /// an annotation of that Service asked to keep them. Only `lb list` prints this field. The field is null when they
    /// could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kept: Option<Option<Vec<KeptObject>>>,
    /// The counts of a sync, e.g. of changed and failed objects. The field exists only after a sync.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) summary: Option<Counts>,
}

impl<I> Document<I> {
    pub(super) fn new(kind: impl Into<String>, items: Vec<I>) -> Document<I> {
        Document { api_version: "ccm/v2", kind: kind.into(), items, kept: None, summary: None }
    }
}

/// Replaces the cells of the given columns with `?`, because the values of these columns were not read.
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
