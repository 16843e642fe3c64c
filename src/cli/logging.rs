//! The log on stderr. Only our own modules log; other crates are capped at `warn`, and
//! `RUST_LOG` is not read: ureq's trace would print the bearer token.

use super::output::one_line;
use crate::controllers::{CHANGES_MADE, FINDINGS};
use crate::http::without_known_secrets;
use crate::settings::{LogFormat, Settings};
use env_logger::Builder;
use jiff::Timestamp;
use log::kv::{Error, Key, Value, VisitSource};
use log::{Level, LevelFilter, Record};
use serde_json::{Map, json};
use std::io::Write;

/// Who reads the log: a cluster's log store, or the person whose command is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    Daemon,
    Person,
    /// A person at a terminal while load balancers or routes are changed, which takes long: each change is logged when it is
    /// made.
    Waiting,
}

pub(super) fn start(settings: &Settings, reader: Reader) {
    let format = settings.log_format.value;
    let started = Builder::new()
        .filter_level(LevelFilter::Warn)
        .filter_module("ccm", level(settings, reader))
        .filter_module(CHANGES_MADE, progress_level(settings, reader))
        .filter_module(FINDINGS, findings_level(settings, reader))
        .format(move |out, record| match (format, reader) {
            (LogFormat::Json, _) => writeln!(out, "{}", json_line(record)),
            (LogFormat::Text, Reader::Daemon) => {
                writeln!(out, "{} {:<5} {}", now(), record.level(), message(record))
            }
            (LogFormat::Text, Reader::Waiting) if record.level() == Level::Info => {
                writeln!(out, "… {}", message(record))
            }
            (LogFormat::Text, Reader::Person | Reader::Waiting) => {
                writeln!(
                    out,
                    "ccm: {}: {}",
                    record.level().as_str().to_lowercase(),
                    message(record)
                )
            }
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
    if settings.debug.value {
        asked.max(LevelFilter::Debug)
    } else {
        asked
    }
}

fn progress_level(settings: &Settings, reader: Reader) -> LevelFilter {
    match reader {
        Reader::Waiting => level(settings, reader).max(LevelFilter::Info),
        Reader::Daemon | Reader::Person => level(settings, reader),
    }
}

/// What a person's command found is part of what it prints.
fn findings_level(settings: &Settings, reader: Reader) -> LevelFilter {
    match reader {
        Reader::Daemon => level(settings, reader),
        Reader::Person | Reader::Waiting => LevelFilter::Off,
    }
}

fn now() -> String {
    Timestamp::now()
        .strftime("%Y-%m-%dT%H:%M:%S%.3fZ")
        .to_string()
}

/// What an API answered may hold anything; a line of the log is one line.
fn message(record: &Record) -> String {
    printable(&record.args().to_string())
}

/// The keys are documented in `src/help/metrics.md` and are stable.
fn json_line(record: &Record) -> String {
    let mut keys = Keys(Map::new());
    // Nothing of ours refuses to be shown.
    let _ = record.key_values().visit(&mut keys);
    let mut put = |key: &str, value: String| keys.0.insert(key.to_owned(), json!(value));
    put("time", now());
    put("level", record.level().as_str().to_lowercase());
    put(
        "module",
        record.module_path().unwrap_or_default().to_owned(),
    );
    put("message", record.args().to_string());
    printable(&serde_json::Value::Object(keys.0).to_string())
}

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
