//! Values that must never be printed.

use std::fmt;

/// A token or password. `Debug` and `Display` say nothing of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Trimmed: files end in a newline.
    pub fn new(text: &str) -> Secret {
        Secret(text.trim().to_owned())
    }

    /// As it is: a password may begin or end in white space.
    pub fn exactly(text: String) -> Secret {
        Secret(text)
    }

    /// As it stands inside a JSON text.
    pub(super) fn in_json(&self) -> Secret {
        let quoted = serde_json::Value::from(self.0.as_str()).to_string();
        let inner = quoted
            .strip_prefix('"')
            .and_then(|text| text.strip_suffix('"'));
        Secret(inner.unwrap_or(&quoted).to_owned())
    }

    pub fn expose(&self) -> &str {
        &self.0
    }

    /// How long it is, the only thing about it that may be said.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Can it be sent? A header takes visible ASCII, and no token has anything else.
    pub fn check(&self) -> Result<(), &'static str> {
        match self.0.chars().all(|c| c.is_ascii_graphic()) {
            true => Ok(()),
            false => {
                Err("holds characters that no token has, e.g. white space inside; copy it anew")
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

/// Takes known secrets out of a text that is about to be logged.
pub struct Redactor<'a> {
    secrets: Vec<&'a Secret>,
}

impl<'a> Redactor<'a> {
    pub fn new(secrets: impl IntoIterator<Item = &'a Secret>) -> Redactor<'a> {
        Redactor {
            secrets: secrets
                .into_iter()
                .filter(|secret| !secret.is_empty())
                .collect(),
        }
    }

    pub fn redact(&self, text: &str) -> String {
        self.secrets.iter().fold(text.to_owned(), |text, secret| {
            text.replace(secret.expose(), "[redacted]")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_secret_is_printed() {
        let secret = Secret::new(" s3cr3t\n");
        assert_eq!(secret.expose(), "s3cr3t");
        assert_eq!(format!("{secret:?}"), "[redacted]");
        assert_eq!(
            Redactor::new([&secret]).redact("{\"a\":\"s3cr3t\"}"),
            "{\"a\":\"[redacted]\"}"
        );
    }
}
