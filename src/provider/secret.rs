//! A text that must never be printed.

use std::fmt;

/// A token, a password or a private key. `Debug` shows nothing of the secret.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Secret(String);

impl Secret {
    /// Returns a secret without the white space at both ends. A file usually ends with a newline that is not
    /// part of the secret.
    pub fn new(text: &str) -> Secret {
        Secret(text.trim().to_owned())
    }

    /// Returns a secret with exactly this text. A password may begin or end with white space.
    pub fn exactly(text: String) -> Secret {
        Secret(text)
    }

    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns the length of the secret, in bytes. Messages must not contain anything else about a secret.
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
