//! A line on stderr while a command waits for an API, so that no command is silent for long.

use super::output::Printer;
use crate::http::{Open, longest_wait, note_waits};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// A shorter wait needs no line.
const FIRST_AT_A_TERMINAL: Duration = Duration::from_secs(2);

/// A log that is read later needs fewer lines.
const FIRST_ELSEWHERE: Duration = Duration::from_secs(4);

/// Less than ten seconds between two lines.
const AGAIN: Duration = Duration::from_secs(8);

/// Many slow calls, each too short for a line of its own, are worth one together.
const SLOW: Duration = Duration::from_secs(1);

const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Until the process ends.
pub(super) fn start() {
    note_waits();
    let first = match std::io::stderr().is_terminal() {
        true => FIRST_AT_A_TERMINAL,
        false => FIRST_ELSEWHERE,
    };
    // Without this thread a command is silent and works.
    let _ = std::thread::Builder::new().spawn(move || {
        let mut last = LastLine {
            number: None,
            at: Instant::now(),
        };
        loop {
            std::thread::sleep(POLL_INTERVAL);
            if let Some(open) = longest_wait()
                && last.is_due(&open, first, Instant::now())
            {
                last = LastLine {
                    number: Some(open.number),
                    at: Instant::now(),
                };
                Printer::stderr(&line(&open));
            }
        }
    });
}

/// The last line that was printed.
struct LastLine {
    number: Option<u64>,
    at: Instant,
}

impl LastLine {
    fn is_due(&self, open: &Open, first: Duration, now: Instant) -> bool {
        let waited = now.saturating_duration_since(open.since);
        let is_new = self.number != Some(open.number);
        let silent = now.saturating_duration_since(self.at);
        (is_new && waited >= first) || (silent >= AGAIN && waited >= SLOW)
    }
}

/// `ccm: waiting for GET https://10.0.0.1:6443/version (4 s)`.
fn line(open: &Open) -> String {
    // The query is long, and helps no reader.
    let what = open.what.split('?').next().unwrap_or_default();
    let what = super::output::one_line(what);
    format!(
        "ccm: waiting for {what} ({} s)\n",
        open.since.elapsed().as_secs()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_wait_gets_a_line_soon_and_again_and_short_waits_one_together() {
        let begun = Instant::now();
        let at = |s: u64| begun + Duration::from_secs(s);
        // The last line: which wait, when. Now: which wait, since when, and the time.
        let cases = [
            ("not yet", None, 0, (1, 0), 3, false),
            ("soon", None, 0, (1, 0), 4, true),
            ("just now", Some(1), 4, (1, 0), 11, false),
            ("again", Some(1), 4, (1, 0), 12, true),
            ("another", Some(1), 4, (2, 5), 9, true),
            ("another, not yet", Some(1), 4, (2, 6), 9, false),
            ("slow ones together", Some(1), 4, (7, 11), 12, true),
            ("quick ones", Some(1), 4, (7, 20), 20, false),
        ];
        for (name, number, printed, (open, since), now, expected) in cases {
            let last = LastLine {
                number,
                at: at(printed),
            };
            let open = Open {
                number: open,
                what: String::new(),
                since: at(since),
            };
            let is_due = last.is_due(&open, FIRST_ELSEWHERE, at(now));
            assert_eq!(is_due, expected, "{name}");
        }
    }
}
