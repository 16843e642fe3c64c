//! What is wrong with the settings, and what is merely worth a line in the log.

use super::setting::Setting;
use std::fmt;

/// Longest value that a message repeats, in characters.
const SHOWN_CHARACTERS: usize = 80;

/// One thing that is wrong, in words for the person who wrote it. Never holds a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The flag or variable as it was written, dashes included.
    pub setting: String,
    /// What it was set to; absent for secrets and where nothing was set.
    pub value: Option<String>,
    /// What is wrong with it and what to write instead.
    pub message: String,
    /// It was on the command line (wrong usage), not in the environment.
    pub usage: bool,
}

/// Something that was accepted and is worth a line; to be logged once. Holds names only, no values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    pub level: log::Level,
    pub message: String,
}

impl Problem {
    pub(super) fn usage(setting: impl Into<String>, message: impl Into<String>) -> Problem {
        Problem { setting: setting.into(), value: None, message: message.into(), usage: true }
    }

    pub(super) fn environment(setting: impl fmt::Display, message: impl Into<String>) -> Problem {
        Problem { usage: false, ..Problem::usage(setting.to_string(), message) }
    }

    /// Whether the problem is about this setting, by any of its names.
    pub fn is_about(&self, setting: &Setting) -> bool {
        setting.names().any(|name| name == self.setting)
    }

    pub(super) fn with_value(mut self, value: impl Into<String>) -> Problem {
        self.value = Some(value.into());
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An unknown flag's name is as foreign as a value: no control character of either may reach
        // the terminal.
        write!(out, "{}: ", self.setting.escape_debug())?;
        if let Some(value) = &self.value {
            match value.char_indices().nth(SHOWN_CHARACTERS) {
                Some((end, _)) => write!(out, "{:?}…: ", &value[..end])?,
                None => write!(out, "{value:?}: ")?,
            }
        }
        out.write_str(&self.message)
    }
}

impl Notice {
    /// A flag or variable of hcloud-cloud-controller-manager.
    pub(super) fn ignored(name: &str) -> Notice {
        Notice {
            level: log::Level::Info,
            message: format!("{name}: accepted and ignored, it has no effect in this version"),
        }
    }

    /// An unknown variable whose name is almost that of a known one.
    pub(super) fn misspelt(name: &str, nearest: &str) -> Notice {
        let name = name.escape_debug();
        Notice::warning(format!("{name}: not a variable that ccm reads; did you mean {nearest}?"))
    }

    pub(super) fn warning(message: String) -> Notice {
        let level = log::Level::Warn;
        Notice { level, message }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)
    }
}
