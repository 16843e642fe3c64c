//! TLS settings whose files may be replaced while we run: certificates are renewed, and so are authorities.

use super::tls::Tls;
use rustls::pki_types::CertificateDer;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the files are checked, when nothing is refused.
const CHECK_EVERY: Duration = Duration::from_secs(5);

/// TLS settings, and how to make them anew from their files.
#[derive(Clone)]
pub struct TlsSource {
    first: Tls,
    files: Vec<PathBuf>,
    read: Arc<Read>,
}

type Read = dyn Fn() -> Result<Tls, String> + Send + Sync;

/// What is in force of a source.
pub(super) struct Rotating {
    pub(super) tls: Tls,
    files: Vec<PathBuf>,
    read: Arc<Read>,
    /// The files as they were when they were read; nothing before the first time.
    stamps: Vec<Option<Stamp>>,
    checked: Instant,
    complaint: Option<Complaint>,
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

/// Why the new files are not used. Logged when it is the same at the next check: a certificate
/// without its key yet may get it in a moment.
struct Complaint {
    why: String,
    is_logged: bool,
}

impl From<Tls> for TlsSource {
    fn from(first: Tls) -> TlsSource {
        TlsSource {
            first,
            files: Vec::new(),
            read: Arc::new(|| Err("nothing to read it from".into())),
        }
    }
}

impl TlsSource {
    /// Trusts these as well, where the built-in roots are trusted.
    pub fn add_authorities(&mut self, more: Vec<CertificateDer<'static>>) {
        self.first.more_authorities = more;
    }

    /// `first` was read just now; `read` does it again when one of the files has changed.
    pub fn files(
        first: Tls,
        files: Vec<PathBuf>,
        read: impl Fn() -> Result<Tls, String> + Send + Sync + 'static,
    ) -> TlsSource {
        TlsSource {
            first,
            files,
            read: Arc::new(read),
        }
    }
}

impl Rotating {
    pub(super) fn new(source: TlsSource) -> Rotating {
        Rotating {
            tls: source.first,
            files: source.files,
            read: source.read,
            stamps: Vec::new(),
            checked: Instant::now(),
            complaint: None,
        }
    }

    /// Checks the files when it is time.
    pub(super) fn check(&mut self) {
        if self.checked.elapsed() >= CHECK_EVERY {
            self.check_now();
        }
    }

    /// What is in force stays so until the files are whole and fit each other.
    pub(super) fn check_now(&mut self) {
        if self.files.is_empty() {
            return;
        }
        self.checked = Instant::now();
        // Before the reading: what is replaced meanwhile is read again.
        let stamps: Vec<_> = self.files.iter().map(|path| stamp(path)).collect();
        if stamps == self.stamps {
            return;
        }
        match (self.read)() {
            Ok(tls) => {
                self.tls = Tls {
                    more_authorities: std::mem::take(&mut self.tls.more_authorities),
                    ..tls
                };
                self.stamps = stamps;
                self.complaint = None;
            }
            Err(why) => self.complain(why),
        }
    }

    fn complain(&mut self, why: String) {
        match &mut self.complaint {
            Some(complaint) if complaint.why == why => {
                if !complaint.is_logged {
                    log::warn!("{why}; what was read before stays in use");
                }
                complaint.is_logged = true;
            }
            _ => {
                self.complaint = Some(Complaint {
                    why,
                    is_logged: false,
                });
            }
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
