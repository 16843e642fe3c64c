//! The credentials of every call: a bearer token (fixed, or in a file that may be replaced at any time), a name with a
//! password, or what an issuer hands out.

use super::certificates::Identity;
use super::secret::Secret;
use crate::provider::lock;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Sent with every request, to a proxy too.
pub(super) const USER_AGENT: &str = concat!("ccm-from-scratch/", env!("CARGO_PKG_VERSION"));

/// What every call is authenticated with.
pub type Login = Arc<dyn Issuer>;

/// Hands out credentials, before every call.
pub trait Issuer: Send + Sync {
    /// What is in force. The error is for people: nothing is sent.
    fn current(&self) -> Result<Credentials, String>;

    /// The API refused what bears this number.
    fn refused(&self, _number: u64) {}
}

/// What one call is authenticated with.
#[derive(Clone, Default)]
pub struct Credentials {
    /// An issuer's: counts the issues, from 1.
    pub number: u64,
    /// Value of the header `Authorization`.
    pub header: Option<Secret>,
    /// In place of the one that the TLS settings name.
    pub identity: Option<Identity>,
    /// Every form in which the secret may come back.
    pub secrets: Vec<Secret>,
}

impl Issuer for SecretSource {
    fn current(&self) -> Result<Credentials, String> {
        Ok(Credentials::bearer(self.current()?))
    }
}

/// They stay.
impl Issuer for Credentials {
    fn current(&self) -> Result<Credentials, String> {
        Ok(self.clone())
    }
}

impl Credentials {
    pub fn bearer(token: Option<Secret>) -> Credentials {
        let Some(token) = token else {
            return Credentials::default();
        };
        Credentials {
            header: Some(Secret::new(&format!("Bearer {}", token.expose()))),
            secrets: vec![token],
            ..Credentials::default()
        }
    }

    /// HTTP basic authentication; the user has no colon.
    pub fn basic(user: &str, password: &Secret) -> Credentials {
        let both = STANDARD.encode(format!("{user}:{}", password.expose()));
        Credentials {
            header: Some(Secret::new(&format!("Basic {both}"))),
            secrets: vec![Secret::new(&both), password.clone(), password.in_json()],
            ..Credentials::default()
        }
    }
}

/// Most of a secret's file that is read; a token has a few kilobytes at most.
const FILE_LIMIT_BYTES: u64 = 64 * 1024;

/// A secret of settings, and the file it comes from. Clones share what was read last.
#[derive(Clone, Debug)]
pub struct SecretSource {
    /// `token`, `password`, …
    what: &'static str,
    /// What the file may hold.
    check: SecretCheck,
    /// Read before every call: it is small, and a rotated secret counts from the next call on.
    file: Option<PathBuf>,
    /// The secret, or what the file held when it could last be read.
    last: Arc<Mutex<Option<Secret>>>,
}

/// Can it be sent? The error is for people.
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

    /// None: a client certificate does it, or nothing is needed.
    pub fn none() -> SecretSource {
        SecretSource::new(None, None)
    }

    pub fn fixed(secret: Secret) -> SecretSource {
        SecretSource::new(None, Some(secret))
    }

    /// A token's file. `first` is what was read from it already: a pipe, such as a shell's `<(pass hcloud)`, can
    /// be read only once.
    pub fn file(path: PathBuf, first: Option<Secret>) -> SecretSource {
        SecretSource::new(Some(path), first)
    }

    /// The same source, of something that is no token.
    pub fn of(self, what: &'static str, check: SecretCheck) -> SecretSource {
        SecretSource { what, check, ..self }
    }

    /// Of what was read last, in bytes.
    pub fn length(&self) -> usize {
        lock(&self.last).as_ref().map_or(0, Secret::len)
    }

    /// The secret to send now. A file that cannot be read or holds none (it is being
    /// replaced), and one that is no file but a pipe, leaves the one read before in use.
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

/// Why, by what was read: several clients of a process read the same files.
static COMPLAINTS: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());

/// Logs why what was read is not used, once.
pub(super) fn raise(what: &str, why: String) {
    let is_news = lock(&COMPLAINTS).get(what) != Some(&why);
    if is_news {
        log::warn!("{why}; what was read before stays in use");
        lock(&COMPLAINTS).insert(what.to_owned(), why);
    }
}

/// It was read.
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

    /// A file of one test.
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
