//! Files that may be replaced while we run: certificates, authorities and tokens are renewed. Why the new content of
//! one
//! is not used is logged once; what was read before stays in use.

use super::tls::Tls;
use crate::provider::lock;
use rustls::pki_types::CertificateDer;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
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
                Err(why) => raise(TLS, why),
            }
        }
    }
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
