//! Environment variables and the files that some of them name.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::hccm_compat::IGNORED_VARIABLES;
use super::problem::Notice;
use super::setting::{Command, Variable};
use super::table::TABLE;
use crate::text::nearest::nearest;

/// Most that a file named by a variable may hold, in bytes: it holds one token or the like.
const MAX_FILE_BYTES: u64 = 64 * 1024;

/// Where variables come from: this process, a test, or what another process runs with.
pub trait Environment {
    fn get(&self, name: &str) -> Option<OsString>;
    /// The names of all variables; those that are not UTF-8 may be left out.
    fn names(&self) -> Vec<String>;
    /// Reads a file that a variable names.
    fn read_file(&self, path: &Path) -> io::Result<String>;
}

/// The environment of this process.
pub struct Process;

impl Environment for Process {
    fn get(&self, name: &str) -> Option<OsString> {
        std::env::var_os(name)
    }

    fn names(&self) -> Vec<String> {
        std::env::vars_os()
            .filter_map(|(name, _)| name.into_string().ok())
            .collect()
    }

    fn read_file(&self, path: &Path) -> io::Result<String> {
        let mut text = String::new();
        File::open(path)?
            .take(MAX_FILE_BYTES + 1)
            .read_to_string(&mut text)?;
        if text.len() as u64 > MAX_FILE_BYTES {
            let message = format!("larger than {MAX_FILE_BYTES} bytes");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
        }
        Ok(text)
    }
}

/// Variables that are set and have no effect: those of hcloud-cloud-controller-manager (where the daemon's environment
/// is meant), and what looks like a misspelt one of ours.
pub(super) fn notices(command: Command, environment: &dyn Environment) -> Vec<Notice> {
    let is_set = |name: &str| environment.get(name).is_some_and(|value| !value.is_empty());
    let mut names = environment.names();
    names.sort_unstable();
    names.retain(|name| is_set(name));
    let mut notices = Vec::new();
    for name in names {
        if IGNORED_VARIABLES.contains(&name.as_str()) {
            if command.reads_daemon_arguments() {
                notices.push(Notice::Ignored { name });
            }
        } else if let Some(nearest) = meant(&name) {
            notices.push(Notice::MisspeltVariable { name, nearest });
        }
    }
    notices
}

/// The variable of ours that an unknown one with our prefix is near to.
fn meant(name: &str) -> Option<&'static str> {
    let ours = || {
        TABLE
            .iter()
            .flat_map(|s| s.variables)
            .map(|variable: &Variable| variable.name())
    };
    let has_our_prefix = ["HCLOUD_", "ROBOT_"]
        .iter()
        .any(|prefix| name.starts_with(prefix));
    if !has_our_prefix || ours().any(|variable| variable == name) {
        return None;
    }
    // A misspelt name of an ignored variable is not reported.
    let known = ours().chain(IGNORED_VARIABLES.iter().copied());
    nearest(name, known).filter(|known| ours().any(|variable| variable == *known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_end_is_not_read_to_its_end() {
        let error = Process
            .read_file(Path::new("/dev/zero"))
            .map_err(|error| error.kind());
        assert_eq!(error, Err(io::ErrorKind::FileTooLarge));
    }
}
