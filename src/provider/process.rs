//! The environment variables, the outputs (stdout and stderr) and the logger of the process. All other code uses them
//! through this module.
//!
//! In a test, a [`Simulation`](super::clock::Simulation) of a whole program replaces them, so that one thread can run
//! several commands and daemons.

use super::clock::surroundings;
use log::{LevelFilter, Log, SetLoggerError};
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write, stderr, stdout};
use std::path::PathBuf;

/// Returns the value of an environment variable, or `None` when it is unset.
pub fn variable(name: &str) -> Option<OsString> {
    if is_simulated() {
        return variables().into_iter().find(|(other, _)| other == name).map(|(_, value)| value);
    }
    std::env::var_os(name)
}

/// Returns the names and values of all environment variables.
pub fn variables() -> Vec<(OsString, OsString)> {
    let simulated = surroundings(|process| process.variables());
    simulated.unwrap_or_else(|| std::env::vars_os().collect())
}

/// Returns the home folder of the user, or `None` when it is not known.
pub fn home() -> Option<PathBuf> {
    if is_simulated() { variable("HOME").map(PathBuf::from) } else { std::env::home_dir() }
}

/// Whether stdout is a terminal, so a person reads the output. When `is_stderr` is `true`, stderr is checked instead.
/// The result is `false` in a simulation, i.e. in a test with a simulated clock and network.
pub fn is_terminal(is_stderr: bool) -> bool {
    let is_terminal = if is_stderr { stderr().is_terminal() } else { stdout().is_terminal() };
    is_terminal && !is_simulated()
}

/// Writes the text to stdout, or to stderr when `is_stderr` is `true`.
pub fn print(is_stderr: bool, text: &[u8]) -> io::Result<()> {
    if surroundings(|process| process.print(is_stderr, text)).is_some() {
        return Ok(());
    }
    if is_stderr {
        return stderr().lock().write_all(text);
    }
    let mut stdout = stdout().lock();
    stdout.write_all(text)?;
    stdout.flush()
}

/// Installs the logger of the process. Returns an error when the process already has a logger.
pub fn log_with(logger: Box<dyn Log>, level: LevelFilter) -> Result<(), SetLoggerError> {
    let mut logger = Some(logger);
    if surroundings(|process| logger.take().map(|logger| process.log_with(logger))).is_some() {
        return Ok(());
    }
    logger.map_or(Ok(()), log::set_boxed_logger)?;
    log::set_max_level(level);
    Ok(())
}

/// A writer to the stderr of the process or, in a test, of the simulated process.
#[derive(Debug)]
pub struct Stderr;

impl Write for Stderr {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        print(true, text).map(|()| text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn is_simulated() -> bool {
    surroundings(|_| ()).is_some()
}
