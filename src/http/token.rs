//! The bearer token: given once, or in a file that may be replaced at any time.

use super::Secret;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Most of a token's file that is read; a token has a few kilobytes at most.
const FILE_LIMIT_BYTES: u64 = 64 * 1024;

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

    pub fn is_none(&self) -> bool {
        matches!(self.source, Source::None)
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
        match read(path) {
            Ok(secret) => *last = Some(secret),
            Err(why) if last.is_none() => {
                return Err(format!("the token file {} {why}", path.display()));
            }
            Err(_) => {}
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

fn read(path: &Path) -> Result<Secret, String> {
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(FILE_LIMIT_BYTES).read_to_string(&mut text))
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => "does not exist".to_owned(),
            _ => format!("can't be read: {error}"),
        })?;
    let secret = Secret::new(&text);
    if secret.is_empty() {
        return Err("is empty".into());
    }
    secret.check()?;
    Ok(secret)
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
                .contains("does not exist")
        );
    }
}
