//! Data is written to stdout, everything else to stderr, each in one piece, without a control character and without
//! what this
//! process has shown to an API: what came from outside may hold anything. Whoever makes a line of such text makes it
//! with
//! [`line`]: only our own line ends are any.

use super::terminal::{colored, columns, has_color, over_wait, screen};
use crate::cache;
use crate::controllers::{Counts, Report};
use crate::http::without_known_secrets;
use crate::provider::Kept;
use crate::provider::process::{self, is_terminal};
use crate::settings::Output;
use crate::text::{lines, one_line};
use serde::Serialize;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// How a command ended: its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    Done = 0,
    /// Something failed.
    Failed = 1,
    /// Wrong usage.
    Usage = 2,
    /// `--detailed-exitcode`: changes are pending.
    Pending = 3,
}

impl Exit {
    /// A failure of the output is one in any case.
    pub(super) fn fail_if(self, is_failed: bool) -> Exit {
        match self {
            Exit::Done if is_failed => Exit::Failed,
            exit => exit,
        }
    }
}

/// Why a command can't show what it should.
pub(super) enum Failed {
    Api(cache::Error),
    /// It was printed.
    Shown(Exit),
}

impl From<cache::Error> for Failed {
    fn from(error: cache::Error) -> Failed {
        Failed::Api(error)
    }
}

pub(super) struct Printer;

/// What is printed again and again ends then.
pub(super) static HAS_NO_READER: AtomicBool = AtomicBool::new(false);

impl Printer {
    /// A reader that went away (`| head`) is not our failure; a full disk is.
    pub(super) fn stdout(text: &str) -> Exit {
        Printer::to_stdout(&lines(&without_known_secrets(text)))
    }

    /// What people read; with colours where they see them.
    pub(super) fn text(text: &str) -> Exit {
        Printer::to_stdout(&shown(text, false))
    }

    /// The same in the place of the last screen.
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
                Printer::failure(&format!("the output can't be written to stdout: {error}"))
            }
        }
    }

    pub(super) fn stderr(text: &str) {
        let text = shown(text, true);
        // There is nowhere left to complain to.
        let _ = over_wait(|| process::print(true, text.as_bytes()));
    }

    /// `ccm: …` on stderr.
    pub(super) fn notice(message: impl std::fmt::Display) {
        Printer::stderr(&whole_line(true, "ccm: ", 6, &message.to_string()));
    }

    /// The same, and its exit code.
    pub(super) fn failure(message: &str) -> Exit {
        Printer::notice(message);
        Exit::Failed
    }
}

/// What people are shown, with colours where they see them.
fn shown(text: &str, is_stderr: bool) -> String {
    let text = without_known_secrets(text);
    let text = lines(&text);
    if has_color(is_stderr) { colored(&text) } else { text.into_owned() }
}

/// What came from outside, as a line of output.
pub(super) fn line(text: impl std::fmt::Display) -> String {
    one_line(&text.to_string()).into_owned() + "\n"
}

/// A text in lines of at most so many characters: `first` stands before the first one, `indent` spaces before the
/// others.
/// A word that is longer than a line, e.g. the path of an error, is cut into lines as well: a secret must not be in it,
/// for in pieces it is not found any more.
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

/// What a person reads in lines of the terminal's width, and what is one line elsewhere: whoever searches there finds all.
pub(super) fn whole_line(is_stderr: bool, first: &str, indent: usize, text: &str) -> String {
    if is_terminal(is_stderr) {
        paragraph(first, indent, text)
    } else {
        line(format_args!("{first}{text}"))
    }
}

/// The same in the width of all texts, which is the terminal's.
pub(super) fn paragraph(first: &str, indent: usize, text: &str) -> String {
    wrapped_in(columns(), first, indent, text)
}

/// Wrong usage, and its exit code.
pub(super) fn usage(message: &str) -> Exit {
    Printer::notice(message);
    Exit::Usage
}

/// What a command shows: the document for programs, else the text; that one is made wide with `-o wide`.
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

/// Pretty JSON with a newline at its end.
fn json(document: &impl Serialize) -> String {
    match serde_json::to_string_pretty(document) {
        Ok(text) => text + "\n",
        Err(error) => format!("{{\"error\": {:?}}}\n", error.to_string()),
    }
}

/// What every command prints with `-o json` and `-o yaml`. The form is stable.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Document<I> {
    api_version: &'static str,
    kind: String,
    pub(super) items: Vec<I>,
    /// Of `lb list`, where it is looked for: what no Service wants any more, load balancers aside;
    /// null: it could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kept: Option<Option<Vec<Kept>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) summary: Option<Counts>,
}

impl<I> Document<I> {
    /// `report`: what was done, of a `sync`.
    pub(super) fn new(
        kind: impl Into<String>,
        items: Vec<I>,
        report: Option<&Report>,
    ) -> Document<I> {
        Document {
            api_version: "ccm/v2",
            kind: kind.into(),
            items,
            kept: None,
            summary: report.filter(|report| report.outage.is_none()).map(Report::counts),
        }
    }
}

/// A row of a list in which these columns were not read.
pub(super) fn without(columns: &[usize], mut cells: Vec<String>) -> Vec<String> {
    for column in columns {
        cells[*column] = "?".to_owned();
    }
    cells
}

pub(super) fn or_dash(text: &str) -> String {
    match text {
        "" => "-".to_owned(),
        text => text.to_owned(),
    }
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
