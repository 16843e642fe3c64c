//! What a test run left out and why, said where somebody reads it.

use std::fs::OpenOptions;
use std::io::Write;

/// Names the file that collects what was skipped; `make test` shows it at its end.
pub const VARIABLE: &str = "CCM_TEST_SKIPPED";

/// Names the tools and files whose absence is a failure and not a skip, comma separated.
pub const REQUIRED: &str = "CCM_TEST_REQUIRE";

/// Says that `what` is left out because `needs` is not there; `needs` is empty where nothing would help.
///
/// # Panics
/// When the run requires it, see [`REQUIRED`].
pub fn skip(what: &str, needs: &str, why: &str) {
    let required = std::env::var(REQUIRED).unwrap_or_default();
    let is_required = required
        .split(',')
        .any(|name| !name.trim().is_empty() && name.trim() == needs);
    assert!(!is_required, "{what} needs {needs}: {why}");
    let line = format!("skipped {what}: {why}\n");
    eprint!("{line}");
    let Some(path) = std::env::var_os(VARIABLE) else {
        return;
    };
    // Appending one short line is atomic, so tests of many processes may share the file.
    if let Ok(mut file) = OpenOptions::new().create(true).append(true).open(path) {
        let _ = file.write_all(line.as_bytes());
    }
}
