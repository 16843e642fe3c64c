//! Data goes to stdout, everything else to stderr, each in one piece.

use super::Exit;
use serde::Serialize;
use std::io::{self, Write};

pub(super) struct Printer;

impl Printer {
    /// A reader that went away (`| head`) is not our failure; a full disk is.
    pub(super) fn stdout(text: &str) -> Exit {
        let mut stdout = io::stdout().lock();
        match stdout
            .write_all(text.as_bytes())
            .and_then(|()| stdout.flush())
        {
            Ok(()) => Exit::Done,
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Done,
            Err(error) => {
                Printer::stderr(&format!("ccm: stdout: {error}\n"));
                Exit::Failed
            }
        }
    }

    pub(super) fn stderr(text: &str) {
        // There is nowhere left to complain to.
        let _ = io::stderr().lock().write_all(text.as_bytes());
    }

    /// `ccm: …` on stderr.
    pub(super) fn failure(message: &str) -> Exit {
        Printer::stderr(&format!("ccm: {message}\n"));
        Exit::Failed
    }
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

/// A text in lines of at most `width` characters, broken at spaces.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
