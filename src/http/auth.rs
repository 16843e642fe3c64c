//! The credentials that every call sends. They are a bearer token, a user name with a password, or credentials that an
//! [`Issuer`] creates. A token can be fixed, or come from a file that can be replaced at any time.

use super::certificates::ClientIdentity;
use super::secret::Secret;
use crate::provider::lock;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// The user agent. It is sent with every request to an API, and with every request to a proxy.
pub(super) const USER_AGENT: &str = concat!("ccm-from-scratch/", env!("CARGO_PKG_VERSION"));

/// The object that issues the credentials for every call.
pub type Login = Arc<dyn Issuer>;

/// An object that returns the credentials for each call, before the call is sent.
pub trait Issuer: Send + Sync {
    /// Returns the current credentials. The error is a message for the user, and the call is then not sent.
    fn current(&self) -> Result<Credentials, String>;

    /// Tells this object that the API has refused the credentials with the sequence number `_number`. The object can
    /// then stop sending them, for example. By default, this function does nothing.
    fn refused(&self, _number: u64) {}
}

/// The credentials with which one call is authenticated.
#[derive(Clone, Default)]
pub struct Credentials {
    /// The sequence number of these credentials. Their issuer counts from 1.
    pub number: u64,
    /// The value of the header `Authorization`. `None` means that the header is not sent.
    pub header: Option<Secret>,
    /// The client certificate for this call. `None` means that the client certificate of the TLS settings is used.
    pub identity: Option<ClientIdentity>,
    /// The secret in all forms in which an API's answer could repeat it. All these forms are redacted in everything
    /// that is printed.
    pub secrets: Vec<Secret>,
}

impl Issuer for SecretSource {
    fn current(&self) -> Result<Credentials, String> {
        Ok(Credentials::bearer(self.current()?))
    }
}

/// Fixed credentials. An [`Issuer`] returns the credentials for each call, and this one returns the same credentials
/// every time.
impl Issuer for Credentials {
    fn current(&self) -> Result<Credentials, String> {
        Ok(self.clone())
    }
}

impl Credentials {
    pub fn bearer(token: Option<Secret>) -> Credentials {
        let header = |token: &Secret| Secret::new(&format!("Bearer {}", token.expose()));
        Credentials {
            header: token.as_ref().map(header),
            secrets: token.into_iter().collect(),
            ..Credentials::default()
        }
    }

    /// Returns credentials for HTTP basic authentication. The user name must not contain a colon, because a colon ends
    /// the user name in the header.
    pub fn basic(user: &str, password: &Secret) -> Credentials {
        let both = STANDARD.encode(format!("{user}:{}", password.expose()));
        Credentials {
            header: Some(Secret::new(&format!("Basic {both}"))),
            secrets: vec![Secret::new(&both), password.clone(), password.in_json()],
            ..Credentials::default()
        }
    }
}

/// How much of a secret's file is read at most, in bytes. A token has a few kilobytes at most.
const FILE_LIMIT_BYTES: u64 = 64 * 1024;

/// A secret, or the file that contains it. All clones of a source share the secret that was read most recently.
#[derive(Clone, Debug)]
pub struct SecretSource {
    /// The kind of secret: `token`, `password`, …
    what: &'static str,
    /// The function that decides whether the content of the file can be used as a secret, e.g. as a token.
    check: SecretCheck,
    /// The file with the secret. It is small, and is read before every call, so that a new secret is used from the next
    /// call on. `None` means that the secret does not come from a file.
    file: Option<PathBuf>,
    /// The content of the file with the secret after its last successful read, or the secret itself when it does not
    /// come from a file. `None` when there is no secret, or when the file could not be read so far.
    last: Arc<Mutex<Option<Secret>>>,
}

/// A check of whether a secret can be sent to an API. The error is a message for the user.
pub type SecretCheck = fn(&Secret) -> Result<(), &'static str>;

impl SecretSource {
    fn new(file: Option<PathBuf>, first: Option<Secret>) -> SecretSource {
        SecretSource {
            what: "token",
            check: Secret::check,
            file,
            last: Arc::new(Mutex::new(first)),
        }
    }

    /// Returns a source without a secret. It is used with a client certificate, or when the server needs no login.
    pub fn none() -> SecretSource {
        SecretSource::new(None, None)
    }

    pub fn fixed(secret: Secret) -> SecretSource {
        SecretSource::new(None, Some(secret))
    }

    /// Returns a source that reads a token from a file. If the caller has already read the file, `first` is the token.
    /// This is needed for a pipe, such as a shell's `<(pass hcloud)`, because a pipe can be read only once.
    pub fn file(path: PathBuf, first: Option<Secret>) -> SecretSource {
        SecretSource::new(Some(path), first)
    }

    /// Returns this source, changed for another kind of secret than a token, e.g. a password. `what` is the word for
    /// the secret in messages, and `check` is the check that the secret must pass.
    pub fn of(self, what: &'static str, check: SecretCheck) -> SecretSource {
        SecretSource { what, check, ..self }
    }

    /// Returns the length of the most recently read secret, in bytes.
    pub fn length(&self) -> usize {
        lock(&self.last).as_ref().map_or(0, Secret::len)
    }

    /// Returns the secret for the next call, or `None` for a source without a secret. When the file cannot be read or
    /// is empty, returns the secret of the last successful read, because the file is probably being replaced at this
    /// moment. A pipe can be read only once, so its secret is returned for every call.
    pub fn current(&self) -> Result<Option<Secret>, String> {
        let mut last = lock(&self.last);
        let Some(path) = &self.file else {
            return Ok(last.clone());
        };
        if last.is_some() && path.exists() && !path.is_file() {
            return Ok(last.clone());
        }
        let name = format!("the {} file {}", self.what, path.display());
        match read(path, self.check) {
            Ok(secret) => {
                resolved(&name);
                *last = Some(secret);
            }
            Err(why) if last.is_none() => return Err(format!("{name} {why}")),
            Err(why) => raise(&name, format!("{name} {why}")),
        }
        Ok(last.clone())
    }
}

fn read(path: &Path, check: SecretCheck) -> Result<Secret, String> {
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
    check(&secret)?;
    Ok(secret)
}

/// For each secret, and for the TLS settings, the last logged reason why it could not be read again. All clients share
/// this map, because several clients can read the same file.
static COMPLAINTS: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());

/// Logs that a new read of `what` (a secret or the TLS settings) has failed, for the reason `why`. Logs nothing when
/// the last log line about `what` had the same reason.
pub(super) fn raise(what: &str, why: String) {
    let is_news = lock(&COMPLAINTS).get(what) != Some(&why);
    if is_news {
        log::warn!("{why}; ccm keeps using the value that it read before");
        lock(&COMPLAINTS).insert(what.to_owned(), why);
    }
}

/// Forgets the logged reason why the file of `what`, a secret or the TLS settings, could not be read. The next failure
/// is then logged, even if it has the same reason.
pub(super) fn resolved(what: &str) {
    lock(&COMPLAINTS).remove(what);
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::redact;
    use super::*;

    #[test]
    fn a_password_is_sent_as_rfc_7617_has_it_and_taken_out_of_whatever_comes_back() {
        let password = Secret::exactly("open \"sesame\" ".into());
        let login = Credentials::basic("Aladdin", &password);
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

    /// Writes `text` into a temporary file for one test, and returns the path of the file.
    fn file(name: &str, text: &str) -> PathBuf {
        let name = format!("ccm-token-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn text(token: &SecretSource) -> String {
        token.current().unwrap().unwrap().expose().to_owned()
    }

    #[test]
    fn a_replaced_file_counts_from_the_next_call_on() {
        let path = file("replaced", "one\n");
        let token = SecretSource::file(path.clone(), None);
        assert_eq!(text(&token), "one");
        for (now, counts) in [("two\n", "two"), ("", "two"), ("a b", "two"), ("three", "three")] {
            std::fs::write(&path, now).unwrap();
            assert_eq!(text(&token), counts, "the file holds {now:?}");
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(text(&token), "three", "it is being replaced");
        let why = SecretSource::file(path, None).current().unwrap_err();
        assert!(why.contains("does not exist"), "{why}");
    }

    #[test]
    fn what_was_read_already_is_not_asked_for_again() {
        let first = || Some(Secret::new("first"));
        let path = file("read", "newer");
        assert_eq!(text(&SecretSource::file(path.clone(), first())), "newer");
        std::fs::remove_file(&path).unwrap();
        for missing in [path, "/dev/null".into(), "/dev/zero".into()] {
            assert_eq!(text(&SecretSource::file(missing, first())), "first");
        }
    }
}
