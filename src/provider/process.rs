//! The only place where the program asks for its variables, writes its outputs, and sets its logger.
//!
//! In a [`Simulation`](super::clock::Simulation) with surroundings, these are the simulation's: a test can run whole
//! commands and daemons in one thread.

use super::clock::surroundings;
use log::{LevelFilter, Log, SetLoggerError};
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write, stderr, stdout};
use std::path::PathBuf;

/// The value of an environment variable; `None` when it is unset.
pub fn variable(name: &str) -> Option<OsString> {
    if is_simulated() {
        return variables().into_iter().find(|(other, _)| other == name).map(|(_, value)| value);
    }
    std::env::var_os(name)
}

/// All environment variables: name and value.
pub fn variables() -> Vec<(OsString, OsString)> {
    let simulated = surroundings(|process| process.variables());
    simulated.unwrap_or_else(|| std::env::vars_os().collect())
}

/// The home folder of the user.
pub fn home() -> Option<PathBuf> {
    if is_simulated() { variable("HOME").map(PathBuf::from) } else { std::env::home_dir() }
}

/// Whether a person looks at stdout, or at stderr, and not a program.
pub fn is_terminal(is_stderr: bool) -> bool {
    let is_terminal = if is_stderr { stderr().is_terminal() } else { stdout().is_terminal() };
    is_terminal && !is_simulated()
}

/// Writes the text to stdout, or to stderr, in one piece.
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

/// From now on the process logs with this logger. The error: it has one already.
pub fn log_with(logger: Box<dyn Log>, level: LevelFilter) -> Result<(), SetLoggerError> {
    let mut logger = Some(logger);
    if surroundings(|process| logger.take().map(|logger| process.log_with(logger))).is_some() {
        return Ok(());
    }
    logger.map_or(Ok(()), log::set_boxed_logger)?;
    log::set_max_level(level);
    Ok(())
}

/// What is written to it goes to stderr.
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
