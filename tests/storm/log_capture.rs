//! Keeps what `ccm` logs in a story whose log is written to a file.

use allocation_counter::opt_out;
use log::{LevelFilter, Log, Metadata, Record};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

thread_local! {
    /// The captured log of this thread. `None` means that the log of this thread's story is not captured.
    static CAPTURED: RefCell<Option<CapturedLog>> = const { RefCell::new(None) };
}

struct CapturedLog {
    /// The nanoseconds since the story began.
    time: Arc<AtomicU64>,
    lines: Vec<(Duration, String)>,
}

struct CapturingLogger;

impl Log for CapturingLogger {
    fn enabled(&self, _: &Metadata) -> bool {
        CAPTURED.with_borrow(Option::is_some)
    }

    fn log(&self, record: &Record) {
        CAPTURED.with_borrow_mut(|captured| {
            if let Some(captured) = captured.as_mut().filter(|_| record.target().starts_with("ccm"))
            {
                let moment = Duration::from_nanos(captured.time.load(Ordering::Relaxed));
                let line = format!("  {} {}", record.level(), record.args());
                opt_out(|| captured.lines.push((moment, line.clone())));
            }
        });
    }

    fn flush(&self) {}
}

/// Captures what this thread logs from now on. Each line gets the story's `time`, which counts nanoseconds.
pub fn start(time: Arc<AtomicU64>) {
    // The call fails when another story has set the logger already.
    let _ = log::set_logger(&CapturingLogger);
    log::set_max_level(LevelFilter::Debug);
    let lines = Vec::new();
    CAPTURED.set(Some(CapturedLog { time, lines }));
}

/// Returns the lines that were captured, each with its time in the story.
pub fn take_lines() -> Vec<(Duration, String)> {
    CAPTURED.take().map(|captured| captured.lines).unwrap_or_default()
}
