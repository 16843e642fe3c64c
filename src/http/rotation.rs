//! Files that may be replaced while we run: certificates, authorities and tokens are renewed. Why the new content of one
//! is not used is logged once; what was read before stays in use.

use super::tls::Tls;
use rustls::pki_types::CertificateDer;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often the files are checked, when nothing is refused.
const CHECK_EVERY: Duration = Duration::from_secs(5);

/// TLS settings, and how to make them anew from their files.
#[derive(Clone)]
pub struct TlsSource {
    /// What is in force.
    tls: Tls,
    files: Vec<PathBuf>,
    read: Arc<Read>,
}

type Read = dyn Fn() -> Result<Tls, String> + Send + Sync;

/// A source whose files are checked from time to time.
pub(super) struct Rotating {
    source: TlsSource,
    /// The files as they were when they were read; nothing before the first time.
    stamps: Vec<Option<Stamp>>,
    checked: Instant,
}

/// Another file, or another content: Kubernetes swaps a symbolic link above the file, others
/// rename a new file over the old one, or write into it.
#[derive(PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl From<Tls> for TlsSource {
    fn from(tls: Tls) -> TlsSource {
        TlsSource::files(tls, Vec::new(), || Err("nothing to read it from".into()))
    }
}

impl TlsSource {
    /// Trusts these as well, where the built-in roots are trusted.
    pub fn add_authorities(&mut self, more: Vec<CertificateDer<'static>>) {
        self.tls.more_authorities = more;
    }

    /// `tls` was read just now; `read` does it again when one of the files has changed.
    pub fn files(
        tls: Tls,
        files: Vec<PathBuf>,
        read: impl Fn() -> Result<Tls, String> + Send + Sync + 'static,
    ) -> TlsSource {
        TlsSource {
            tls,
            files,
            read: Arc::new(read),
        }
    }
}

impl Rotating {
    pub(super) fn new(source: TlsSource) -> Rotating {
        Rotating {
            source,
            stamps: Vec::new(),
            checked: Instant::now(),
        }
    }

    pub(super) fn tls(&self) -> &Tls {
        &self.source.tls
    }

    /// Checks the files when it is time.
    pub(super) fn check(&mut self) {
        if self.checked.elapsed() >= CHECK_EVERY {
            self.check_now();
        }
    }

    /// What is in force stays so until the files are whole and fit each other.
    pub(super) fn check_now(&mut self) {
        let Some(first) = self.source.files.first() else {
            return;
        };
        self.checked = Instant::now();
        // Before the reading: what is replaced meanwhile is read again.
        let stamps: Vec<_> = self.source.files.iter().map(|path| stamp(path)).collect();
        if stamps == self.stamps {
            return;
        }
        match (self.source.read)() {
            Ok(tls) => {
                resolved(first);
                self.stamps = stamps;
                self.source.tls = Tls {
                    more_authorities: std::mem::take(&mut self.source.tls.more_authorities),
                    ..tls
                };
            }
            Err(why) => raise(first, &why, LOG_AFTER),
        }
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let file = fs::metadata(path).ok()?;
    Some(Stamp {
        device: file.dev(),
        inode: file.ino(),
        bytes: file.len(),
        modified: (file.mtime(), file.mtime_nsec()),
        changed: (file.ctime(), file.ctime_nsec()),
    })
}

/// A file that is being replaced is whole again sooner, and a certificate without its key yet has got it.
pub(super) const LOG_AFTER: Duration = Duration::from_secs(1);

struct Complaint {
    why: String,
    since: Instant,
    is_logged: bool,
}

/// Why, by file: several clients of a process read the same one.
static COMPLAINTS: Mutex<BTreeMap<PathBuf, Complaint>> = Mutex::new(BTreeMap::new());

fn complaints() -> MutexGuard<'static, BTreeMap<PathBuf, Complaint>> {
    COMPLAINTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Logs it, when it has been so for that long.
pub(super) fn raise(path: &Path, why: &str, patience: Duration) {
    let mut complaints = complaints();
    let complaint = complaints
        .entry(path.to_owned())
        .or_insert_with(|| Complaint::new("", Instant::now()));
    if complaint.is_due(why, patience, Instant::now()) {
        log::warn!("{why}; what was read before stays in use");
    }
}

/// The file was read.
pub(super) fn resolved(path: &Path) {
    complaints().remove(path);
}

impl Complaint {
    fn new(why: &str, since: Instant) -> Complaint {
        Complaint {
            why: why.to_owned(),
            since,
            is_logged: false,
        }
    }

    fn is_due(&mut self, why: &str, patience: Duration, now: Instant) -> bool {
        if self.why != why {
            *self = Complaint::new(why, now);
        }
        let is_news = !self.is_logged && now.duration_since(self.since) >= patience;
        self.is_logged |= is_news;
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When it is read, why it is not used, and whether that is logged.
    #[test]
    fn why_a_new_token_is_not_used_is_logged_once() {
        let begun = Instant::now();
        let mut complaint = Complaint::new("", begun);
        for (at_ms, why, patience, expected) in [
            (0, "is empty", LOG_AFTER, false),
            (999, "is empty", LOG_AFTER, false),
            (1000, "is empty", LOG_AFTER, true),
            (1001, "is empty", LOG_AFTER, false),
            (9000, "is empty", Duration::ZERO, false),
            (9001, "does not exist", LOG_AFTER, false),
            (9002, "does not exist", Duration::ZERO, true),
            (99_000, "does not exist", LOG_AFTER, false),
        ] {
            let now = begun + Duration::from_millis(at_ms);
            let logged = complaint.is_due(why, patience, now);
            assert_eq!(logged, expected, "{at_ms} ms");
        }
    }
}
