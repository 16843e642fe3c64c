//! Data goes to stdout, everything else to stderr, each in one piece, and without a control character: what an API
//! answered may hold anything, and a terminal obeys some of it.

use super::Exit;
use serde::Serialize;
use std::borrow::Cow;
use std::io::{self, Write};

pub(super) struct Printer;

impl Printer {
    /// A reader that went away (`| head`) is not our failure; a full disk is.
    pub(super) fn stdout(text: &str) -> Exit {
        let mut stdout = io::stdout().lock();
        match stdout
            .write_all(escaped(text, "\n").as_bytes())
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
        // There is nowhere left to complain to.
        let _ = io::stderr()
            .lock()
            .write_all(escaped(text, "\n").as_bytes());
    }

    /// `ccm: …` on stderr, one line.
    pub(super) fn failure(message: &str) -> Exit {
        Printer::stderr(&format!("ccm: {}\n", one_line(message)));
        Exit::Failed
    }
}

/// What came from an API, as part of one line.
pub(super) fn one_line(text: &str) -> Cow<'_, str> {
    escaped(text, "")
}

/// As `\u001b`, which a string in JSON or YAML may hold as well.
fn escaped<'a>(text: &'a str, but: &str) -> Cow<'a, str> {
    let is_to_escape = |c: char| is_obeyed(c) && !but.contains(c);
    if !text.contains(is_to_escape) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\n' if is_to_escape(c) => clean.push_str("\\n"),
            c if is_to_escape(c) => clean.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => clean.push(c),
        }
    }
    Cow::Owned(clean)
}

/// Control characters, and those that end a line or turn the direction of reading.
fn is_obeyed(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_is_printed() {
        for (text, line) in [
            ("worker-1 → ✓", "worker-1 → ✓"),
            ("\u{1b}[2Jgone", "\\u001b[2Jgone"),
            ("two\nlines\r", "two\\nlines\\u000d"),
            ("\u{9b}31m\u{7f}", "\\u009b31m\\u007f"),
            ("\u{202e}txt", "\\u202etxt"),
        ] {
            assert_eq!(one_line(text), line);
        }
        let json = json(&["\u{9b}", "a\tb"]);
        let printed = escaped(&json, "\n");
        assert_eq!(printed, "[\n  \"\\u009b\",\n  \"a\\tb\"\n]\n");
    }
}
