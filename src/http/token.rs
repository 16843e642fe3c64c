//! The bearer token: given once, or in a file that may be replaced at any time.

use super::Secret;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Where the token of an API comes from.
pub struct Token {
    source: Source,
    /// What was sent last: what a file held when it could last be read.
    last: Mutex<Option<Secret>>,
}

enum Source {
    None,
    Fixed(Secret),
    /// Read before every call: it is small, and a rotated token counts from the next call on.
    File(PathBuf),
}

impl Token {
    /// No token: a client certificate does it, or nothing is needed.
    pub fn none() -> Token {
        Token {
            source: Source::None,
            last: Mutex::new(None),
        }
    }

    pub fn fixed(secret: Secret) -> Token {
        Token {
            source: Source::Fixed(secret),
            last: Mutex::new(None),
        }
    }

    pub fn file(path: PathBuf) -> Token {
        Token {
            source: Source::File(path),
            last: Mutex::new(None),
        }
    }

    /// The token to send now. A file that cannot be read (it is being replaced) leaves
    /// the one read before in use.
    pub fn current(&self) -> Result<Option<Secret>, String> {
        let path = match &self.source {
            Source::None => return Ok(None),
            Source::Fixed(secret) => return Ok(Some(secret.clone())),
            Source::File(path) => path,
        };
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match std::fs::read_to_string(path) {
            Ok(text) if !text.trim().is_empty() => *last = Some(Secret::new(&text)),
            Ok(_) if last.is_none() => {
                return Err(format!("the token file {} is empty", path.display()));
            }
            Err(error) if last.is_none() => {
                return Err(format!(
                    "the token file {} can't be read: {error}",
                    path.display()
                ));
            }
            Ok(_) | Err(_) => {}
        }
        Ok(last.clone())
    }

    /// After a 401: is there another token to try than the one sent last?
    pub fn renew(&self) -> bool {
        let sent = self
            .last
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        matches!(self.source, Source::File(_)) && self.current().is_ok_and(|now| now != sent)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_file_counts_from_the_next_call_on() {
        let path = std::env::temp_dir().join(format!("ccm-token-{}", std::process::id()));
        std::fs::write(&path, "one\n").unwrap();
        let token = Token::file(path.clone());
        let current = || {
            token
                .current()
                .unwrap()
                .map(|secret| secret.expose().to_owned())
        };
        assert_eq!(current().as_deref(), Some("one"));
        assert!(!token.renew(), "the same token is no other one");
        std::fs::write(&path, "two\n").unwrap();
        assert!(token.renew());
        assert_eq!(current().as_deref(), Some("two"));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(
            current().as_deref(),
            Some("two"),
            "while the file is being replaced, the last one counts"
        );
        assert!(
            Token::file(path)
                .current()
                .unwrap_err()
                .contains("can't be read")
        );
    }
}
