//! The API token, and how a secret is kept out of everything printed.

use std::fmt;
use std::path::{Path, PathBuf};

/// Text that no output may hold: `Debug` does not show it, and there is no `Display`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

/// The token of the project's API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub secret: Secret,
    /// Where it was read from, to be read again when it changed.
    pub file: Option<PathBuf>,
}

impl Secret {
    /// For the one place that sends it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("(redacted)")
    }
}

impl Token {
    /// Takes any visible ASCII: what an HTTP header can carry. Whether it is a token is the API's
    /// to say.
    pub(super) fn parse(text: &str, file: Option<&Path>) -> Result<Token, String> {
        if !text.chars().all(|c| c.is_ascii_graphic()) {
            return Err("holds characters that no token has, e.g. white space inside".to_owned());
        }
        Ok(Token {
            secret: Secret(text.to_owned()),
            file: file.map(Path::to_owned),
        })
    }
}

/// A token written where its file's path belongs; a message must not repeat it. Paths that long
/// have a slash or a dot.
pub(super) fn looks_like_a_token(path: &str) -> bool {
    path.len() >= 32 && path.chars().all(|c| c.is_ascii_alphanumeric())
}
