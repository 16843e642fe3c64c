//! The credentials of every call: a bearer token (fixed, or in a file that may be replaced at any time), a name with a
//! password, or what an issuer hands out for a while.

use super::certificates::Identity;
use super::{rotation, secret::Secret};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Sent with every request, to a proxy too.
pub(super) const USER_AGENT: &str = concat!("ccm-from-scratch/", env!("CARGO_PKG_VERSION"));

pub enum Login {
    Token(Token),
    /// HTTP basic authentication.
    Basic {
        user: String,
        password: Secret,
    },
    Issued(Arc<dyn Issuer>),
}

/// Hands out credentials that end some time.
pub trait Issuer: Send + Sync {
    /// What is in force, from memory as long as that is good. The error is for people.
    fn current(&self) -> Result<Issued, String>;

    /// The API refused what bears this number: others are asked for, unless that was done since.
    fn refused(&self, number: u64);
}

/// A token, a client certificate, or both.
#[derive(Clone)]
pub struct Issued {
    /// Counts the issues, from 1.
    pub number: u64,
    pub token: Option<Secret>,
    pub identity: Option<Identity>,
}

/// What one call is authenticated with.
#[derive(Default)]
pub(super) struct Credentials {
    /// Value of the header `Authorization`.
    pub(super) header: Option<Secret>,
    /// In place of the one that the TLS settings name.
    pub(super) identity: Option<Identity>,
    /// Every form in which the secret may come back.
    pub(super) secrets: Vec<Secret>,
    issue: u64,
}

impl From<Token> for Login {
    fn from(token: Token) -> Login {
        Login::Token(token)
    }
}

impl Login {
    pub fn is_none(&self) -> bool {
        matches!(self, Login::Token(token) if token.is_none())
    }

    /// What to show with a call now.
    pub(super) fn current(&self) -> Result<Credentials, String> {
        match self {
            Login::Token(token) => Ok(Credentials::bearer(token.current()?)),
            Login::Basic { user, password } => Ok(Credentials::basic(user, password)),
            Login::Issued(issuer) => {
                let issued = issuer.current()?;
                Ok(Credentials {
                    identity: issued.identity,
                    issue: issued.number,
                    ..Credentials::bearer(issued.token)
                })
            }
        }
    }

    /// After a 401. A token's file is read before every call anyway.
    pub(super) fn refused(&self, used: &Credentials) {
        match self {
            Login::Issued(issuer) => issuer.refused(used.issue),
            Login::Token(token) => token.refused(),
            Login::Basic { .. } => {}
        }
    }
}

impl Credentials {
    fn bearer(token: Option<Secret>) -> Credentials {
        let Some(token) = token else {
            return Credentials::default();
        };
        Credentials {
            header: Some(Secret::new(&format!("Bearer {}", token.expose()))),
            secrets: vec![token],
            ..Credentials::default()
        }
    }

    fn basic(user: &str, password: &Secret) -> Credentials {
        let both = STANDARD.encode(format!("{user}:{}", password.expose()));
        Credentials {
            header: Some(Secret::new(&format!("Basic {both}"))),
            secrets: vec![Secret::new(&both), password.clone(), password.in_json()],
            ..Credentials::default()
        }
    }
}

/// Most of a token's file that is read; a token has a few kilobytes at most.
const TOKEN_LIMIT_BYTES: u64 = 64 * 1024;

/// The token of an API, and the file it comes from. Clones share what was read last.
#[derive(Clone, Debug, Default)]
pub struct Token {
    /// Read before every call: it is small, and a rotated token counts from the next call on.
    file: Option<PathBuf>,
    /// The token, or what the file held when it could last be read.
    last: Arc<Mutex<Option<Secret>>>,
}

impl Token {
    /// No token: a client certificate does it, or nothing is needed.
    pub fn none() -> Token {
        Token::default()
    }

    pub fn is_none(&self) -> bool {
        self.file.is_none() && self.last().is_none()
    }

    pub fn fixed(secret: Secret) -> Token {
        Token {
            file: None,
            last: Arc::new(Mutex::new(Some(secret))),
        }
    }

    /// `first` is what was read from it already: a pipe, such as a shell's `<(pass hcloud)`, can
    /// be read only once.
    pub fn file(path: PathBuf, first: Option<Secret>) -> Token {
        Token {
            file: Some(path),
            last: Arc::new(Mutex::new(first)),
        }
    }

    /// Of what was read last, in bytes.
    pub fn length(&self) -> usize {
        self.last().as_ref().map_or(0, Secret::len)
    }

    fn last(&self) -> MutexGuard<'_, Option<Secret>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The token to send now. A file that cannot be read or holds no token (it is being
    /// replaced), and one that is no file but a pipe, leaves the one read before in use.
    pub fn current(&self) -> Result<Option<Secret>, String> {
        self.read(rotation::LOG_AFTER)
    }

    /// It was not accepted: then it matters at once that there should have been another one.
    pub(super) fn refused(&self) {
        // The next call has the same error.
        let _ = self.read(Duration::ZERO);
    }

    /// `patience`: how long a file may be wrong before that is logged.
    fn read(&self, patience: Duration) -> Result<Option<Secret>, String> {
        let mut last = self.last();
        let Some(path) = &self.file else {
            return Ok(last.clone());
        };
        if last.is_some() && path.exists() && !path.is_file() {
            return Ok(last.clone());
        }
        let name = format!("the token file {}", path.display());
        match read(path) {
            Ok(secret) => {
                rotation::resolved(&name);
                *last = Some(secret);
            }
            Err(why) if last.is_none() => return Err(format!("{name} {why}")),
            Err(why) => rotation::raise(&name, &format!("{name} {why}"), patience),
        }
        Ok(last.clone())
    }
}

fn read(path: &Path) -> Result<Secret, String> {
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(TOKEN_LIMIT_BYTES).read_to_string(&mut text))
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
    use super::super::redact;
    use super::*;

    #[test]
    fn a_password_is_sent_as_rfc_7617_has_it_and_taken_out_of_whatever_comes_back() {
        let login = Login::Basic {
            user: "Aladdin".into(),
            password: Secret::exactly("open \"sesame\" ".into()),
        };
        let credentials = login.current().unwrap();
        let header = credentials.header.unwrap();
        assert_eq!(header.expose(), "Basic QWxhZGRpbjpvcGVuICJzZXNhbWUiIA==");
        for answer in [
            "a QWxhZGRpbjpvcGVuICJzZXNhbWUiIA== b",
            "a open \"sesame\"  b",
            "a open \\\"sesame\\\"  b",
        ] {
            assert_eq!(redact(answer, &credentials.secrets), "a [redacted] b");
        }
    }

    /// A file of one test.
    fn file(name: &str, text: &str) -> PathBuf {
        let name = format!("ccm-token-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn text(token: &Token) -> String {
        token.current().unwrap().unwrap().expose().to_owned()
    }

    #[test]
    fn a_replaced_file_counts_from_the_next_call_on() {
        let path = file("replaced", "one\n");
        let token = Token::file(path.clone(), None);
        assert_eq!(text(&token), "one");
        for (now, counts) in [
            ("two\n", "two"),
            ("", "two"),
            ("a b", "two"),
            ("three", "three"),
        ] {
            std::fs::write(&path, now).unwrap();
            assert_eq!(text(&token), counts, "the file holds {now:?}");
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(text(&token), "three", "it is being replaced");
        let why = Token::file(path, None).current().unwrap_err();
        assert!(why.contains("does not exist"), "{why}");
    }

    #[test]
    fn what_was_read_already_is_not_asked_for_again() {
        let first = || Some(Secret::new("first"));
        let path = file("read", "newer");
        assert_eq!(text(&Token::file(path.clone(), first())), "newer");
        std::fs::remove_file(&path).unwrap();
        for missing in [path, "/dev/null".into(), "/dev/zero".into()] {
            assert_eq!(text(&Token::file(missing, first())), "first");
        }
    }
}
