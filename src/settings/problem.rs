//! Problems with settings, and notices. A notice is only logged, and the setting is accepted.

use super::hccm_compat;
use super::setting::Setting;
use std::fmt;

/// The greatest number of characters of a value that a message repeats. The rest of a longer value is left out.
const SHOWN_CHARACTERS: usize = 80;

/// A problem with a setting, in words for the person who set the setting. The text of a problem never
/// contains a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The flag or variable as the user wrote it. A flag includes its dashes.
    pub setting: String,
    /// The value that the user gave. `None` when the value is a secret, or when there is no value.
    pub value: Option<String>,
    /// What is wrong with the setting, and what to write instead.
    pub message: String,
    /// Whether the setting was given on the command line, so that the problem is a usage error. Otherwise the setting
    /// comes from an environment variable, or from the flags and variables of the daemon that runs in the cluster.
    pub usage: bool,
}

/// A line for the log about a setting that was accepted. The message contains only names and no values of settings.
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

    /// Whether the problem is about this setting. The problem can name any of the setting's flags or variables.
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
        // The name of an unknown flag is any text that the user typed. It is escaped, so that control characters in it
        // do not reach the terminal.
        write!(out, "{}: ", self.setting.escape_debug())?;
        if let Some(value) = &self.value {
            match value.char_indices().nth(SHOWN_CHARACTERS) {
                Some((end, _)) => write!(out, "{:?}… can't be used: ", &value[..end])?,
                None => write!(out, "{value:?} can't be used: ")?,
            }
        }
        out.write_str(&self.message)
    }
}

impl Notice {
    /// Creates the notice that this program ignores a flag or variable of hcloud-cloud-controller-manager or of a fork.
    /// The notice is a warning when a setting of this program has the same meaning. `place` says where the flag or
    /// variable was found, e.g. ` of deployment kube-system/ccm`, and is empty for this process.
    pub(super) fn ignored(name: &str, place: &str) -> Notice {
        let (level, end) = match hccm_compat::our_name(name) {
            None | Some("") => (log::Level::Info, "it can be removed".to_owned()),
            Some(ours) => (log::Level::Warn, format!("set {ours} instead")),
        };
        let why = "this setting has no effect in ccm, so ccm ignores it";
        Notice { level, message: format!("{name}{place}: {why}; {end}") }
    }

    /// Creates the notice about a variable that this program does not know, and that is probably a misspelling of
    /// `nearest`.
    pub(super) fn misspelt(name: &str, nearest: &str) -> Notice {
        let name = name.escape_debug();
        Notice::warning(format!("{name}: ccm does not read this variable; did you mean {nearest}?"))
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
