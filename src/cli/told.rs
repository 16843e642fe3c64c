//! What a command was told: flags, variables, and on request the daemon's own; then the log begins.

use super::Exit;
use super::logging::{self, Reader};
use super::output::Printer;
use super::taken::{self, LeftOut};
use super::waiting;
use crate::kube;
use crate::settings::{self, Command, Notice, Parsed, Process, Settings};
use std::ffi::OsString;

/// What to do after the settings were read: go on, or end here.
pub(super) enum Read {
    GoOn(Box<Ready>),
    End(Exit),
}

/// What a command was told.
pub(super) struct Ready {
    pub(super) settings: Settings,
    /// The words that are no flags.
    pub(super) words: Vec<String>,
    /// A client that was needed to read the settings.
    pub(super) kube: Option<kube::Client>,
    /// With `--settings-from`: what of the daemon's settings could not be read.
    pub(super) left_out: Option<LeftOut>,
}

/// For a command that shows wrong settings itself: wrong usage alone ends it. With the settings whose default may not be
/// the daemon's.
pub(super) fn read_anyhow(
    command: Command,
    words: Vec<OsString>,
    reader: Reader,
    help: impl Fn() -> String,
) -> Result<(Parsed, Vec<String>), Exit> {
    let parsed = settings::parse(command, words.clone(), &Process);
    if parsed.help {
        return Err(Printer::stdout(&help()));
    }
    if parsed.version {
        return Err(Printer::stdout(&super::version()));
    }
    if parsed.problems.iter().any(|problem| problem.usage) {
        return Err(tell_problems(&parsed).unwrap_or(Exit::Usage));
    }
    start_log(&parsed, reader);
    let Some(name) = &parsed.settings.settings_from.value else {
        let unknown = taken::unknown(command, &parsed.settings, None);
        return Ok((parsed, unknown));
    };
    let found = taken::take(command, &parsed.settings, name).map_err(|lines| tell(&lines))?;
    let parsed = settings::parse_above(command, words, &Process, Some(&found.taken));
    match parsed.problems.iter().any(|problem| problem.usage) {
        true => Err(tell_problems(&parsed).unwrap_or(Exit::Usage)),
        false => {
            let unknown = taken::unknown(command, &parsed.settings, Some(&found.left_out));
            Ok((parsed, unknown))
        }
    }
}

/// Reads the settings of a command, answers `--help`, starts the log, tells what is wrong – all of it at once.
pub(super) fn read(
    command: Command,
    words: Vec<OsString>,
    reader: Reader,
    help: impl Fn() -> String,
) -> Read {
    let parsed = settings::parse(command, words.clone(), &Process);
    if parsed.help {
        return Read::End(Printer::stdout(&help()));
    }
    if parsed.version {
        return Read::End(Printer::stdout(&super::version()));
    }
    if let Some(exit) = tell_problems(&parsed) {
        return Read::End(exit);
    }
    start_log(&parsed, reader);
    let Some(name) = &parsed.settings.settings_from.value else {
        return Read::GoOn(Box::new(Ready {
            settings: parsed.settings,
            words: parsed.words,
            kube: None,
            left_out: None,
        }));
    };
    let found = match taken::take(command, &parsed.settings, name) {
        Ok(found) => found,
        Err(lines) => return Read::End(tell(&lines)),
    };
    let parsed = settings::parse_above(command, words, &Process, Some(&found.taken));
    if let Some(exit) = tell_problems(&parsed) {
        return Read::End(exit);
    }
    Read::GoOn(Box::new(Ready {
        settings: parsed.settings,
        words: parsed.words,
        kube: Some(found.kube),
        left_out: Some(found.left_out),
    }))
}

fn tell(lines: &[String]) -> Exit {
    for line in lines {
        Printer::failure(line);
    }
    Exit::Failed
}

fn start_log(parsed: &Parsed, reader: Reader) {
    logging::start(&parsed.settings, reader);
    // A daemon's log says what came of it.
    if reader != Reader::Daemon {
        waiting::tell();
    }
    for notice in &parsed.notices {
        match notice {
            Notice::Ignored { .. } => log::info!("{notice}"),
            Notice::MisspeltVariable { .. } | Notice::Unencrypted { .. } => log::warn!("{notice}"),
        }
    }
}

/// All that is wrong; then the command ends here.
fn tell_problems(parsed: &Parsed) -> Option<Exit> {
    for problem in &parsed.problems {
        Printer::notice(problem);
    }
    let is_usage = parsed.problems.iter().any(|problem| problem.usage);
    match is_usage {
        true => Some(Exit::Usage),
        false if parsed.problems.is_empty() => None,
        false => Some(Exit::Failed),
    }
}
