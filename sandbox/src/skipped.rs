//! Reports which tests were skipped and why, on standard error and in a file that `make test` prints at its end.

use std::fs::OpenOptions;
use std::io::Write;

/// The environment variable with the path of the file to which skipped tests are written. `make test` prints the file
/// at its end.
pub const VARIABLE: &str = "CCM_TEST_SKIPPED";

/// The environment variable that lists the tools that a test run must have, separated by commas. A test that needs a
/// listed tool fails when the tool is missing, and is not skipped.
///
/// The tools are `kubectl`, `python` (Hetzner's client), `openapi` (the OpenAPI document of the Hetzner Cloud API),
/// `cluster` (a real API server), `helm`, `promtool`, `buildah`, `hcloud`, `cloud-init`, `zsh` and `fish`.
pub const REQUIRED: &str = "CCM_TEST_REQUIRE";

/// Reports that the test `what` is skipped, and why. The report goes to standard error and to the file that
/// [`VARIABLE`] names. When the test is skipped because a tool is missing, `needs` is the name of this tool. Otherwise
/// `needs` is empty.
///
/// # Panics
/// Panics when the environment variable [`REQUIRED`] lists the tool `needs`.
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
    // Several test processes can append to the file at the same time. Their lines do not mix, because appending one
    // short line is atomic.
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
