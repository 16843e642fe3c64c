//! Files that may be replaced while we run: certificates, authorities and tokens are renewed. Why the new content of
//! one
//! is not used is logged once; what was read before stays in use.

use super::tls::Tls;
use rustls::pki_types::CertificateDer;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often the files are read, when nothing is refused.
pub(super) const READ_EVERY: Duration = Duration::from_secs(5);

/// The certificates and keys of the kubeconfig, all clients' the same.
const TLS: &str = "TLS";

/// TLS settings, and how to make them anew from their files.
#[derive(Clone)]
pub struct TlsSource {
    /// What is in force.
    pub(super) tls: Tls,
    /// None: they stay.
    read: Option<Arc<ReadTls>>,
    read_at: Instant,
}

type ReadTls = dyn Fn() -> Result<Tls, String> + Send + Sync;

impl From<Tls> for TlsSource {
    fn from(tls: Tls) -> TlsSource {
        TlsSource {
            tls,
            read: None,
            read_at: Instant::now(),
        }
    }
}

impl TlsSource {
    /// Trusts these as well, where the built-in roots are trusted.
    pub fn add_authorities(&mut self, more: Vec<CertificateDer<'static>>) {
        self.tls.more_authorities = more;
    }

    /// `tls` was read just now; `read` does it again.
    pub fn files(
        tls: Tls,
        read: impl Fn() -> Result<Tls, String> + Send + Sync + 'static,
    ) -> TlsSource {
        TlsSource {
            read: Some(Arc::new(read)),
            ..tls.into()
        }
    }

    /// Reads the files when they were read that long ago. What is in force stays so until they are whole and fit each
    /// other.
    pub(super) fn refresh(&mut self, after: Duration) {
        if let Some(read) = &self.read
            && self.read_at.elapsed() >= after
        {
            self.read_at = Instant::now();
            match read() {
                Ok(tls) => {
                    resolved(TLS);
                    let more_authorities = std::mem::take(&mut self.tls.more_authorities);
                    self.tls = Tls {
                        more_authorities,
                        ..tls
                    };
                }
                Err(why) => raise(TLS, &why, LOG_AFTER),
            }
        }
    }
}

/// A file that is being replaced is whole again sooner, and a certificate without its key yet has got it.
pub(super) const LOG_AFTER: Duration = Duration::from_secs(1);

struct Complaint {
    why: String,
    since: Instant,
    is_logged: bool,
}

/// Why, by what was read: several clients of a process read the same files.
static COMPLAINTS: Mutex<BTreeMap<String, Complaint>> = Mutex::new(BTreeMap::new());

fn complaints() -> MutexGuard<'static, BTreeMap<String, Complaint>> {
    COMPLAINTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Logs it, when it has been so for that long.
pub(super) fn raise(what: &str, why: &str, patience: Duration) {
    let mut complaints = complaints();
    let complaint = complaints
        .entry(what.to_owned())
        .or_insert_with(|| Complaint::new("", Instant::now()));
    if complaint.is_due(why, patience, Instant::now()) {
        log::warn!("{why}; what was read before stays in use");
    }
}

/// It was read.
pub(super) fn resolved(what: &str) {
    complaints().remove(what);
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
