//! What a setting came to, for people: `ccm config`.

use super::problem::Problem;
use super::reader::{Candidate, Source};
use super::setting::{Kind, Setting};
use super::text::boolean;
use super::url::without_credentials;

/// In place of a secret's value.
const REDACTED: &str = "<redacted>";

/// One setting with the value in force and who said so. Never holds a secret.
#[derive(Debug, Clone)]
pub struct InForce {
    pub setting: &'static Setting,
    /// None: nobody set it, and it has no default.
    pub value: Option<String>,
    pub source: Source,
}

impl InForce {
    /// `found`: what was read last without a mistake.
    pub(super) fn new(setting: &'static Setting, found: Option<&Candidate>) -> InForce {
        let Some(Candidate { text, source }) = found else {
            return InForce {
                setting,
                value: None,
                source: Source::Default,
            };
        };
        let value = match (setting.kind, boolean(text)) {
            _ if setting.secret => REDACTED.to_owned(),
            (Kind::Url, _) => without_credentials(text),
            (Kind::Boolean, Ok(value)) => value.to_string(),
            _ => text.clone(),
        };
        InForce {
            setting,
            value: Some(value),
            source: source.clone(),
        }
    }

    /// Is the problem about this setting?
    pub fn is_about(&self, problem: &Problem) -> bool {
        let name = problem.setting.as_str();
        let mut flags = self.setting.flags.iter();
        let mut variables = self.setting.variables.iter();
        let is_short =
            |letter: char| name.strip_prefix('-') == Some(letter.encode_utf8(&mut [0; 4]));
        flags.any(|flag| name.strip_prefix("--") == Some(flag))
            || variables.any(|variable| name == variable.name())
            || self.setting.short.is_some_and(is_short)
    }
}
