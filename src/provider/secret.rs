//! A text that must never be printed.

use std::fmt;

/// A token, a password or a private key. The `Debug` output of a secret is only `[redacted]`.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Secret(String);

impl Secret {
    /// Creates a secret without the white space at both ends of the text. For example, a file usually ends with a
    /// newline that is not part of the secret.
    pub fn new(text: &str) -> Secret {
        Secret(text.trim().to_owned())
    }

    /// Creates a secret with exactly this text, because a password is allowed to begin or end with white space.
    pub fn exactly(text: String) -> Secret {
        Secret(text)
    }

    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns the length of the secret in bytes. This is all that messages are allowed to say about a secret.
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
