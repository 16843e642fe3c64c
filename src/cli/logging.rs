//! The log on stderr, and the line that shows a user at a terminal what a command waits for.
//!
//! Other crates log only warnings and errors, because the `trace` messages of ureq would print the bearer token.
//! `RUST_LOG` is not read for the same reason.

use super::output::whole_line;
use super::terminal::{self, show_wait};
use crate::controllers::{CHANGES_MADE, FINDINGS};
use crate::http::without_known_secrets;
use crate::provider::{Open, clock, longest_wait, note_waits, process};
use crate::settings::{LogFormat, Settings};
use crate::text::{cut, one_line};
use env_logger::{Builder, Target};
use log::kv::{Error, Key, Value, VisitSource};
use log::{Level, LevelFilter, Record};
use serde_json::{Map, json};
use std::io::Write;
use std::time::Duration;

/// Who reads the log: a program that stores the logs of the cluster, or the person who runs a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogReader {
    Daemon,
    Person,
    /// The reader is a person who waits at a terminal while load balancers or routes are changed. These changes take
    /// long, so each change is logged when it is made.
    Waiting,
}

pub(super) fn start(settings: &Settings, reader: LogReader) {
    let format = settings.log_format.value;
    let level = level(settings, reader);
    let (changes, findings) = match reader {
        LogReader::Daemon => (level, level),
        // A command that a person runs prints the problems of objects in its own output, so the log does not
        // repeat them.
        LogReader::Person => (level, LevelFilter::Off),
        LogReader::Waiting => (level.max(LevelFilter::Info), LevelFilter::Off),
    };
    let can_redraw = terminal::obeys_codes(true);
    let logger = Builder::new()
        .filter_level(LevelFilter::Warn)
        .filter_module("ccm", level)
        .filter_module(CHANGES_MADE, changes)
        .filter_module(FINDINGS, findings)
        .format(move |out, record| {
            let level = record.level();
            let message = printable(&record.args().to_string());
            let line = match (format, reader) {
                (LogFormat::Json, _) => json_line(record) + "\n",
                (LogFormat::Text, LogReader::Daemon) => format!("{} {level:<5} {message}\n", now()),
                (LogFormat::Text, LogReader::Waiting) if level == Level::Info => {
                    whole_line(true, "… ", 6, &message)
                }
                (LogFormat::Text, LogReader::Person | LogReader::Waiting) => {
                    let level = level.as_str().to_lowercase();
                    whole_line(true, "ccm: ", 6, &format!("{level}: {message}"))
                }
            };
            // When this log line is printed, the terminal may show a line that says what the command waits for. Each
            // log line therefore begins with the code that erases the terminal's current line.
            let erased = if can_redraw { terminal::ERASE_LINE } else { "" };
            write!(out, "{erased}{line}")
        })
        .target(Target::Pipe(Box::new(process::Stderr)))
        .build();
    let level = logger.filter();
    // An error is ignored here. The only possible error is that the log was started before, and this function is called
    // only once.
    drop(process::log_with(Box::new(logger), level));
}

/// Returns the log level for the value of the flag `-v`, whose values have the same meaning as in Kubernetes' klog.
/// With `-v 0`, the daemon logs changes and failures, and a command that a person runs usually logs only failures. From
/// `-v 4` on, every call is logged too, and from `-v 6` on everything.
fn level(settings: &Settings, reader: LogReader) -> LevelFilter {
    let asked = match (settings.verbosity.value, reader) {
        (0, LogReader::Person | LogReader::Waiting) => LevelFilter::Warn,
        (0..=3, _) => LevelFilter::Info,
        (4..=5, _) => LevelFilter::Debug,
        _ => LevelFilter::Trace,
    };
    if settings.debug.value { asked.max(LevelFilter::Debug) } else { asked }
}

fn now() -> String {
    clock::timestamp().strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

/// Returns the log message as a line of JSON. The keys are documented in `src/help/metrics.md`, and later versions keep
/// them.
fn json_line(record: &Record) -> String {
    let mut keys = Keys(Map::new());
    // An error is ignored here, because the method `visit_pair` of `Keys` never returns an error.
    let _ = record.key_values().visit(&mut keys);
    let mut put = |key: &str, value: String| keys.0.insert(key.to_owned(), json!(value));
    put("time", now());
    put("level", record.level().as_str().to_lowercase());
    put("module", record.module_path().unwrap_or_default().to_owned());
    put("message", record.args().to_string());
    printable(&serde_json::Value::Object(keys.0).to_string())
}

/// Returns the text as one line without secrets. Log messages can contain answers of an API, and these may contain line
/// ends or secrets.
fn printable(text: &str) -> String {
    one_line(&without_known_secrets(text)).into_owned()
}

/// The keys and values that a log message has in addition to its text, e.g. `controller`, `object` and `reason`.
struct Keys(Map<String, serde_json::Value>);

impl<'a> VisitSource<'a> for Keys {
    fn visit_pair(&mut self, key: Key<'a>, value: Value<'a>) -> Result<(), Error> {
        self.0.insert(key.as_str().to_owned(), json!(value.to_string()));
        Ok(())
    }
}

/// How long a command waits before the terminal shows a line about the wait. This is real time, even in tests in which
/// the program's clock runs faster.
const FIRST_LINE: Duration = Duration::from_secs(2);

const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Starts a thread that shows a line on the terminal while a command waits, and erases the line after the wait. Does
/// nothing when stderr is not a terminal.
pub(super) fn show_waits() {
    if !terminal::obeys_codes(true) {
        return;
    }
    note_waits();
    // An error is ignored here. When the thread can't be started, the command works, but shows no lines that say what
    // it waits for.
    let _ = std::thread::Builder::new().spawn(|| {
        loop {
            clock::sleep(clock::from_machine(POLL_INTERVAL));
            let open = longest_wait().filter(|open| clock::took(open.since) >= FIRST_LINE);
            let line = |open: &Open| waiting_line(open, terminal::wait_columns() - 1);
            show_wait(open.as_ref().map(line).as_deref());
        }
    });
}

/// Returns the line about a wait, e.g. `ccm: waiting for GET https://10.0.0.1:6443/version (4 s)`. It is cut to
/// `columns` characters.
fn waiting_line(open: &Open, columns: usize) -> String {
    // The query of a URL is left out, because it is long and does not help the user.
    let what = open.what.split('?').next().unwrap_or_default();
    let (begin, end) = ("ccm: waiting for ", clock::took(open.since).as_secs());
    let end = format!(" ({end} s)");
    let room = columns.saturating_sub(begin.len() + end.len());
    let what = one_line(what);
    format!("{begin}{}{end}", cut(&what, room))
}
