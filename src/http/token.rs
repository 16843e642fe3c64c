//! The bearer token: given once, or in a file that may be replaced at any time.

use super::Secret;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Most of a token's file that is read; a token has a few kilobytes at most.
const FILE_LIMIT_BYTES: u64 = 64 * 1024;

/// A file that is being replaced is whole again sooner.
const PATIENCE: Duration = Duration::from_secs(1);

/// Where the token of an API comes from.
pub struct Token {
    source: Source,
    /// What a file held when it could last be read.
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

    /// `first` is what was read from it already: a pipe, such as a shell's `<(pass hcloud)`, can
    /// be read only once.
    pub fn file(path: PathBuf, first: Option<Secret>) -> Token {
        Token {
            source: Source::File(path),
            last: Mutex::new(first),
        }
    }

    /// The token to send now. A file that cannot be read or holds no token (it is being
    /// replaced), and one that is no file but a pipe, leaves the one read before in use.
    pub fn current(&self) -> Result<Option<Secret>, String> {
        let path = match &self.source {
            Source::None => return Ok(None),
            Source::Fixed(secret) => return Ok(Some(secret.clone())),
            Source::File(path) => path,
        };
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_some() && path.exists() && !path.is_file() {
            return Ok(last.clone());
        }
        match read(path) {
            Ok(secret) => {
                complaints().remove(path);
                *last = Some(secret);
            }
            Err(why) if last.is_none() => {
                return Err(format!("the token file {} {why}", path.display()));
            }
            Err(why) => complain(path, &why, PATIENCE),
        }
        Ok(last.clone())
    }

    /// It was not accepted: then it matters that there should have been another one.
    pub(super) fn refused(&self) {
        let Source::File(path) = &self.source else {
            return;
        };
        // A pipe is read once.
        if path.exists() && !path.is_file() {
            return;
        }
        if let Err(why) = read(path) {
            complain(path, &why, Duration::ZERO);
        }
    }
}

/// Why a file's new content is not used, since when, and whether that was told.
struct Complaint {
    why: String,
    since: Instant,
    is_told: bool,
}

/// By file: several clients of a process read the same one.
static COMPLAINTS: Mutex<BTreeMap<PathBuf, Complaint>> = Mutex::new(BTreeMap::new());

fn complaints() -> MutexGuard<'static, BTreeMap<PathBuf, Complaint>> {
    COMPLAINTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Told once, when it has been so for that long.
fn complain(path: &Path, why: &str, patience: Duration) {
    let mut complaints = complaints();
    let complaint = complaints
        .entry(path.to_owned())
        .or_insert_with(Complaint::none);
    if complaint.is_to_be_told(why, patience, Instant::now()) {
        log::warn!(
            "the token file {} {why}; the token read before stays in use",
            path.display()
        );
    }
}

impl Complaint {
    fn none() -> Complaint {
        Complaint {
            why: String::new(),
            since: Instant::now(),
            is_told: false,
        }
    }

    fn is_to_be_told(&mut self, why: &str, patience: Duration, now: Instant) -> bool {
        if self.why != why {
            *self = Complaint {
                why: why.to_owned(),
                since: now,
                is_told: false,
            };
        }
        let is_news = !self.is_told && now.duration_since(self.since) >= patience;
        self.is_told |= is_news;
        is_news
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

    /// When it is read, why it is not used, and whether that is told.
    #[test]
    fn what_keeps_a_new_token_out_is_told_once() {
        let begun = Instant::now();
        let mut complaint = Complaint::none();
        for (at_ms, why, patience, expected) in [
            (0, "is empty", PATIENCE, false),
            (999, "is empty", PATIENCE, false),
            (1000, "is empty", PATIENCE, true),
            (1001, "is empty", PATIENCE, false),
            (9000, "is empty", Duration::ZERO, false),
            (9001, "does not exist", PATIENCE, false),
            (9002, "does not exist", Duration::ZERO, true),
            (99_000, "does not exist", PATIENCE, false),
        ] {
            let now = begun + Duration::from_millis(at_ms);
            let told = complaint.is_to_be_told(why, patience, now);
            assert_eq!(told, expected, "{at_ms} ms");
        }
    }

    #[test]
    fn what_was_read_already_is_not_asked_for_again() {
        let first = || Some(Secret::new("first"));
        let path = file("read", "newer");
        assert_eq!(text(&Token::file(path.clone(), first())), "newer");
        std::fs::remove_file(&path).unwrap();
        for gone in [path, "/dev/null".into(), "/dev/zero".into()] {
            assert_eq!(text(&Token::file(gone, first())), "first");
        }
    }
}
