//! Reports which tests were skipped and why, on standard error and in a file that `make test` prints at its end.

use std::fs::OpenOptions;
use std::io::Write;

/// The variable with the path of the file that collects the skipped tests. `make test` prints the file at its end.
pub const VARIABLE: &str = "CCM_TEST_SKIPPED";

/// The variable that lists the tools that must not be missing, separated by commas: `kubectl`, `python` (Hetzner's
/// client), `openapi` (the API's own document), `cluster` (a real API server), `helm`, `promtool`, `buildah`, `hcloud`,
/// `cloud-init`, `zsh`, `fish`. When a listed tool is missing, the tests that need it fail instead of being skipped.
pub const REQUIRED: &str = "CCM_TEST_REQUIRE";

/// Reports that the test `what` is skipped because `needs` is missing. `needs` is empty when no tool would let
/// the test run.
///
/// # Panics
/// Panics when the run requires `needs`, see [`REQUIRED`].
pub fn skip(what: &str, needs: &str, why: &str) {
    let required = std::env::var(REQUIRED).unwrap_or_default();
    assert!(
        !is_required(&required, needs),
        "{what} needs {needs}, which {REQUIRED} requires: {why}"
    );
    let line = format!("skipped {what}: {why}\n");
    eprint!("{line}");
    let Some(path) = std::env::var_os(VARIABLE) else {
        return;
    };
    // Many test processes may append to the same file, because appending one short line is atomic.
    if let Ok(mut file) = OpenOptions::new().create(true).append(true).open(path) {
        let _ = file.write_all(line.as_bytes());
    }
}

fn is_required(required: &str, needs: &str) -> bool {
    let mut names = required.split(',').map(str::trim);
    !needs.is_empty() && names.any(|name| name == needs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_that_the_variable_names_is_required() {
        for (required, needs, expected) in [
            ("", "kubectl", false),
            ("kubectl,python", "kubectl", true),
            ("kubectl, python", "python", true),
            ("kubectl", "kube", false),
            (",", "", false),
        ] {
            assert_eq!(is_required(required, needs), expected, "{required:?} {needs:?}");
        }
    }
}
