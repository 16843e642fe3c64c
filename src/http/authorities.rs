//! A bundle of authorities, as `SSL_CERT_FILE` names it.

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// A system's whole bundle has a quarter of a megabyte.
const LIMIT_BYTES: u64 = 4 << 20;

/// What a bundle holds.
#[derive(Debug, Default)]
pub struct Authorities {
    pub certificates: Vec<CertificateDer<'static>>,
    /// So many more are damaged, or of a kind that can't be used here.
    pub unusable: usize,
}

impl Authorities {
    /// At least one that can be used, or an error that says why not. A bundle of a hundred is not
    /// refused for one that nobody knows any more.
    pub fn read(path: &Path) -> Result<Authorities, String> {
        let mut pem = Vec::new();
        File::open(path)
            .and_then(|file| file.take(LIMIT_BYTES + 1).read_to_end(&mut pem))
            .map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => {
                    "the file does not exist; correct or unset it".to_owned()
                }
                _ => format!("the file can't be read: {error}"),
            })?;
        if pem.len() as u64 > LIMIT_BYTES {
            return Err(format!("the file is longer than {} MiB", LIMIT_BYTES >> 20));
        }
        let mut store = RootCertStore::empty();
        let mut found = Authorities::default();
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            match certificate {
                Ok(der) if store.add(der.clone()).is_ok() => found.certificates.push(der),
                _ => found.unusable += 1,
            }
        }
        match (found.certificates.is_empty(), found.unusable) {
            (true, 0) => {
                Err("the file holds no PEM certificate (-----BEGIN CERTIFICATE-----)".into())
            }
            (true, _) => Err("the file holds only damaged certificates; copy it anew".into()),
            _ => Ok(found),
        }
    }
}
