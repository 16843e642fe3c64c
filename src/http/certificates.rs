//! Certificates and keys from PEM, checked before a connection is made with them: only here a message can say which of
//! the two is wrong, and how.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys, RootCertStore};
use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::sync::Arc;

/// A client certificate with its key: known to fit each other.
#[derive(Clone)]
pub struct Identity(pub(super) Arc<CertifiedKey>);

/// A certificate holds the public half of its key: the same certificate is the same identity.
impl PartialEq for Identity {
    fn eq(&self, other: &Identity) -> bool {
        self.0.cert == other.0.cert
    }
}

/// A PEM text, and what it is called in messages.
pub struct Pem {
    pub bytes: Vec<u8>,
    pub origin: String,
}

impl Pem {
    fn error(&self, why: impl fmt::Display) -> String {
        format!("{}: {why}", self.origin)
    }
}

/// Every certificate in a PEM text; at least one.
fn parse_certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|_| DAMAGED.to_owned())?;
    match certificates.is_empty() {
        true => Err(no_certificate(pem).to_owned()),
        false => Ok(certificates),
    }
}

const DAMAGED: &str = "holds damaged certificates alone; copy it anew";

fn no_certificate(pem: &[u8]) -> &'static str {
    match holds(pem, "PRIVATE KEY-----") {
        true => "holds a private key instead of a certificate; are the two swapped?",
        false => "holds no PEM certificate (-----BEGIN CERTIFICATE-----)",
    }
}

/// Authorities to trust.
#[derive(Debug, Default)]
pub struct Authorities {
    pub certificates: Vec<CertificateDer<'static>>,
    /// So many more are damaged, or of a kind that can't be used here.
    pub unusable: usize,
}

impl Authorities {
    /// Of a PEM text: at least one that can be used, or an error that says why not. A bundle of a hundred is not refused
    /// for one that is outdated.
    pub fn parse(pem: &[u8]) -> Result<Authorities, String> {
        let mut store = RootCertStore::empty();
        let mut found = Authorities::default();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            match certificate {
                Ok(der) if store.add(der.clone()).is_ok() => found.certificates.push(der),
                _ => found.unusable += 1,
            }
        }
        match (found.certificates.is_empty(), found.unusable) {
            (true, 0) => Err(no_certificate(pem).to_owned()),
            (true, _) => Err(DAMAGED.to_owned()),
            _ => Ok(found),
        }
    }
}

impl Identity {
    /// A certificate chain, our own first, and its key (PKCS#1, PKCS#8 or SEC1). The error says which is wrong, and how.
    pub fn from_pem(certificate: &Pem, key: &Pem) -> Result<Identity, String> {
        let chain = parse_certificates(&certificate.bytes).map_err(|why| certificate.error(why))?;
        let private = parse_key(&key.bytes).map_err(|why| key.error(why))?;
        let provider = rustls::crypto::ring::default_provider().key_provider;
        let private = provider.load_private_key(private).map_err(|_| {
            key.error(
                "is damaged or of a kind that is not supported; supported are RSA from 2048 bits on, ECDSA P-256 and \
                 P-384, and Ed25519",
            )
        })?;
        let certified = CertifiedKey::new(chain, private);
        match certified.keys_match() {
            Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => {
                Ok(Identity(Arc::new(certified)))
            }
            Err(Error::InconsistentKeys(_)) => {
                Err(key.error("is the key of another certificate than the client's"))
            }
            Err(_) => Err(certificate.error("holds a damaged certificate; copy it anew")),
        }
    }
}

fn parse_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    // `ENCRYPTED PRIVATE KEY` of PKCS#8, `Proc-Type: 4,ENCRYPTED` of the older forms.
    if holds(pem, "ENCRYPTED") {
        return Err("is encrypted; give one that is not (openssl pkey -in FILE)".into());
    }
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| match error {
        rustls::pki_types::pem::Error::NoItemsFound if holds(pem, "BEGIN CERTIFICATE-----") => {
            "holds a certificate instead of a private key; are the two swapped?".into()
        }
        rustls::pki_types::pem::Error::NoItemsFound => {
            "holds no PEM private key (PKCS#1, PKCS#8 or SEC1)".into()
        }
        _ => "holds damaged PEM; copy it anew".into(),
    })
}

fn holds(pem: &[u8], text: &str) -> bool {
    pem.windows(text.len())
        .any(|window| window == text.as_bytes())
}

/// A file, whole or not at all; the error is for people.
pub fn read_file(path: &Path, limit_bytes: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let file = File::open(path);
    match file.and_then(|file| file.take(limit_bytes + 1).read_to_end(&mut bytes)) {
        Ok(_) if bytes.len() as u64 > limit_bytes => {
            Err(format!("the file is longer than {} MiB", limit_bytes >> 20))
        }
        Ok(_) => Ok(bytes),
        Err(error) => Err(match error.kind() {
            ErrorKind::NotFound => "the file does not exist; correct the path".into(),
            ErrorKind::PermissionDenied => "the file may not be read by this user".into(),
            ErrorKind::IsADirectory => "this is a folder, not a file".into(),
            _ => format!("the file can't be read: {error}"),
        }),
    }
}
