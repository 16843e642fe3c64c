//! A value that must never be printed.

use std::fmt;

/// A token, a password or a private key. `Debug` shows nothing of the secret.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Secret(String);

impl Secret {
    /// Returns a secret without the white space around it, because files end in a newline.
    pub fn new(text: &str) -> Secret {
        Secret(text.trim().to_owned())
    }

    /// Returns a secret with exactly this text, because a password may begin or end in white space.
    pub fn exactly(text: String) -> Secret {
        Secret(text)
    }

    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns the length of the secret. Nothing else about a secret may be printed.
    pub fn len(&self) -> usize {
        self.0.len()
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
