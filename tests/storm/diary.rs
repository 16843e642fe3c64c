//! What `ccm` logs in a story that is shown.

use allocation_counter::opt_out;
use log::{LevelFilter, Log, Metadata, Record};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

thread_local! {
    /// None: the story is not shown.
    static PAGES: RefCell<Option<Pages>> = const { RefCell::new(None) };
}

struct Pages {
    /// Nanoseconds since the beginning.
    time: Arc<AtomicU64>,
    lines: Vec<(Duration, String)>,
}

struct Diary;

impl Log for Diary {
    fn enabled(&self, _: &Metadata) -> bool {
        PAGES.with_borrow(Option::is_some)
    }

    fn log(&self, record: &Record) {
        PAGES.with_borrow_mut(|pages| {
            if let Some(pages) = pages.as_mut().filter(|_| record.target().starts_with("ccm")) {
                let moment = Duration::from_nanos(pages.time.load(Ordering::Relaxed));
                let line = format!("  {} {}", record.level(), record.args());
                opt_out(|| pages.lines.push((moment, line.clone())));
            }
        });
    }

    fn flush(&self) {}
}

/// From now on what this thread logs is kept, with the story's time in nanoseconds.
pub fn begin(time: Arc<AtomicU64>) {
    // Set already by another story.
    let _ = log::set_logger(&Diary);
    log::set_max_level(LevelFilter::Debug);
    let lines = Vec::new();
    PAGES.set(Some(Pages { time, lines }));
}

pub fn lines() -> Vec<(Duration, String)> {
    PAGES.take().map(|pages| pages.lines).unwrap_or_default()
}
