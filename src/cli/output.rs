//! Data is written to stdout, everything else to stderr, each in one piece, without a control character and without what this
//! process has shown to an API: what came from outside may hold anything. Whoever makes a line of such text makes it with
//! [`line`]: only our own line ends are any.

use super::Exit;
use crate::http::without_known_secrets;
use crate::text::lines;
pub(super) use crate::text::{one_line, wrapped};
use serde::Serialize;
use std::io::{self, Write};

pub(super) struct Printer;

impl Printer {
    /// A reader that went away (`| head`) is not our failure; a full disk is.
    pub(super) fn stdout(text: &str) -> Exit {
        let text = without_known_secrets(text);
        let mut stdout = io::stdout().lock();
        match stdout
            .write_all(lines(&text).as_bytes())
            .and_then(|()| stdout.flush())
        {
            Ok(()) => Exit::Done,
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Done,
            Err(error) => {
                Printer::failure(&format!("the output can't be written to stdout: {error}"))
            }
        }
    }

    pub(super) fn stderr(text: &str) {
        let text = without_known_secrets(text);
        // There is nowhere left to complain to.
        let _ = io::stderr().lock().write_all(lines(&text).as_bytes());
    }

    /// `ccm: …` on stderr, one line.
    pub(super) fn notice(message: impl std::fmt::Display) {
        Printer::stderr(&line(format_args!("ccm: {message}")));
    }

    /// The same, and its exit code.
    pub(super) fn failure(message: &str) -> Exit {
        Printer::notice(message);
        Exit::Failed
    }
}

/// What came from outside, as a line of output.
pub(super) fn line(text: impl std::fmt::Display) -> String {
    one_line(&text.to_string()).into_owned() + "\n"
}

/// Pretty JSON with a newline at its end.
pub(super) fn json(document: &impl Serialize) -> String {
    match serde_json::to_string_pretty(document) {
        Ok(text) => text + "\n",
        Err(error) => format!("{{\"error\": {:?}}}\n", error.to_string()),
    }
}

pub(super) fn yaml(document: &impl Serialize) -> String {
    serde_yaml::to_string(document)
        .unwrap_or_else(|error| format!("error: {:?}\n", error.to_string()))
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
