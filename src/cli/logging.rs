//! The log on stderr. Only our own modules log; other crates are capped at `warn`, and
//! `RUST_LOG` is not read: ureq's trace would print the bearer token. Beside it the line of a command that waits.

use super::output::{Printer, whole_line};
use super::terminal::{self, show_wait};
use crate::controllers::{CHANGES_MADE, FINDINGS};
use crate::http::without_known_secrets;
use crate::provider::{Awaited, Open, longest_wait, note_waits};
use crate::settings::{LogFormat, Settings};
use crate::text::{cut, one_line};
use env_logger::Builder;
use jiff::Timestamp;
use log::kv::{Error, Key, Value, VisitSource};
use log::{Level, LevelFilter, Record};
use serde_json::{Map, json};
use std::io::Write;
use std::time::{Duration, Instant};

/// Who reads the log: a cluster's log store, or the person whose command is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    Daemon,
    Person,
    /// A person at a terminal while load balancers or routes are changed, which takes long: each change is logged when
    /// it is
    /// made.
    Waiting,
}

pub(super) fn start(settings: &Settings, reader: Reader) {
    let format = settings.log_format.value;
    let level = level(settings, reader);
    let (changes, findings) = match reader {
        Reader::Daemon => (level, level),
        // What a person's command found is part of what it prints.
        Reader::Person => (level, LevelFilter::Off),
        Reader::Waiting => (level.max(LevelFilter::Info), LevelFilter::Off),
    };
    let can_redraw = terminal::obeys_codes(true);
    let started = Builder::new()
        .filter_level(LevelFilter::Warn)
        .filter_module("ccm", level)
        .filter_module(CHANGES_MADE, changes)
        .filter_module(FINDINGS, findings)
        .format(move |out, record| {
            let level = record.level();
            let message = printable(&record.args().to_string());
            let line = match (format, reader) {
                (LogFormat::Json, _) => json_line(record) + "\n",
                (LogFormat::Text, Reader::Daemon) => format!("{} {level:<5} {message}\n", now()),
                (LogFormat::Text, Reader::Waiting) if level == Level::Info => {
                    whole_line(true, "… ", 6, &message)
                }
                (LogFormat::Text, Reader::Person | Reader::Waiting) => {
                    let level = level.as_str().to_lowercase();
                    whole_line(true, "ccm: ", 6, &format!("{level}: {message}"))
                }
            };
            // It is printed later, when the line about a wait may be there again.
            let erased = if can_redraw { terminal::ERASE_LINE } else { "" };
            write!(out, "{erased}{line}")
        })
        .try_init();
    // Only a second start can fail, and there is none.
    drop(started);
}

/// `-v` as klog counts: 0 what changed and failed, 4 and more every call, 6 and more everything.
fn level(settings: &Settings, reader: Reader) -> LevelFilter {
    let asked = match (settings.verbosity.value, reader) {
        (0, Reader::Person | Reader::Waiting) => LevelFilter::Warn,
        (0..=3, _) => LevelFilter::Info,
        (4..=5, _) => LevelFilter::Debug,
        _ => LevelFilter::Trace,
    };
    match settings.debug.value {
        true => asked.max(LevelFilter::Debug),
        false => asked,
    }
}

fn now() -> String {
    Timestamp::now()
        .strftime("%Y-%m-%dT%H:%M:%S%.3fZ")
        .to_string()
}

/// The keys are documented in `src/help/metrics.md` and are stable.
fn json_line(record: &Record) -> String {
    let mut keys = Keys(Map::new());
    // Nothing of ours refuses to be shown.
    let _ = record.key_values().visit(&mut keys);
    let mut put = |key: &str, value: String| keys.0.insert(key.to_owned(), json!(value));
    put("time", now());
    put("level", record.level().as_str().to_lowercase());
    let module = record.module_path().unwrap_or_default();
    put("module", module.to_owned());
    put("message", record.args().to_string());
    printable(&serde_json::Value::Object(keys.0).to_string())
}

/// What an API answered may hold anything; a line of the log is one line.
fn printable(text: &str) -> String {
    one_line(&without_known_secrets(text)).into_owned()
}

/// What a line says beside its message: `controller`, `object`, `reason`.
struct Keys(Map<String, serde_json::Value>);

impl<'a> VisitSource<'a> for Keys {
    fn visit_pair(&mut self, key: Key<'a>, value: Value<'a>) -> Result<(), Error> {
        self.0
            .insert(key.as_str().to_owned(), json!(value.to_string()));
        Ok(())
    }
}

/// A shorter wait needs no line.
const FIRST_AT_A_TERMINAL: Duration = Duration::from_secs(2);

/// A log that is read later needs fewer lines.
const FIRST_ELSEWHERE: Duration = Duration::from_secs(4);

/// Less than ten seconds between two lines.
const AGAIN: Duration = Duration::from_secs(8);

/// Many slow calls, each too short for a line of its own, are worth one together.
const SLOW: Duration = Duration::from_secs(1);

const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// A line on stderr while a command waits, so that no command is silent for long; until the process ends. A terminal shows
/// one, which is replaced and then erased. Elsewhere each is a line of its own, and only calls have some.
pub(super) fn show_waits() {
    note_waits();
    let is_terminal = terminal::obeys_codes(true);
    // Without this thread a command is silent and works.
    let _ = std::thread::Builder::new().spawn(move || {
        let mut last = LastLine {
            number: None,
            at: Instant::now(),
        };
        loop {
            std::thread::sleep(POLL_INTERVAL);
            let open = longest_wait(|kind| is_terminal || kind == Awaited::Call);
            if is_terminal {
                let open = open.filter(|open| open.since.elapsed() >= FIRST_AT_A_TERMINAL);
                let line = |open: &Open| waiting_line(open, terminal::wait_columns() - 1);
                show_wait(open.as_ref().map(line).as_deref());
            } else if let Some(open) = open
                && last.is_due(&open, Instant::now())
            {
                last = LastLine {
                    number: Some(open.number),
                    at: Instant::now(),
                };
                Printer::stderr(&(waiting_line(&open, usize::MAX) + "\n"));
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
    fn is_due(&self, open: &Open, now: Instant) -> bool {
        let waited = now.saturating_duration_since(open.since);
        let is_new = self.number != Some(open.number);
        let silent = now.saturating_duration_since(self.at);
        (is_new && waited >= FIRST_ELSEWHERE) || (silent >= AGAIN && waited >= SLOW)
    }
}

/// `ccm: waiting for GET https://10.0.0.1:6443/version (4 s)`, in so many characters.
fn waiting_line(open: &Open, columns: usize) -> String {
    // The query is long, and helps no reader.
    let what = open.what.split('?').next().unwrap_or_default();
    let (begin, end) = ("ccm: waiting for ", open.since.elapsed().as_secs());
    let end = format!(" ({end} s)");
    let room = columns.saturating_sub(begin.len() + end.len());
    let what = one_line(what);
    format!("{begin}{}{end}", cut(&what, room))
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
                kind: Awaited::Call,
                what: String::new(),
                since: at(since),
            };
            let is_due = last.is_due(&open, at(now));
            assert_eq!(is_due, expected, "{name}");
        }
    }
}
