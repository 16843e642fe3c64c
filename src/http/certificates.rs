//! Reads certificates and private keys from PEM text. Certificates and keys are checked before they are used, because a
//! later error of the TLS library would not say whether the certificate or the key is wrong.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, Error, InconsistentKeys, RootCertStore};
use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A client certificate and the key that belongs to it.
#[derive(Clone)]
pub struct ClientIdentity(pub(super) Arc<CertifiedKey>);

/// Two identities are equal when their certificates are equal. The keys are not compared, because a certificate
/// contains the public half of its key.
impl PartialEq for ClientIdentity {
    fn eq(&self, other: &ClientIdentity) -> bool {
        self.0.cert == other.0.cert
    }
}

/// A text in PEM, and its origin (e.g. a file or a field of a kubeconfig), with which error messages begin.
pub struct Pem {
    pub bytes: Vec<u8>,
    pub origin: String,
}

impl Pem {
    fn error(&self, why: impl fmt::Display) -> String {
        format!("{}: {why}", self.origin)
    }
}

/// Returns all certificates of a PEM text. The error says why there are none.
fn parse_certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|_| DAMAGED.to_owned())?;
    if certificates.is_empty() { Err(no_certificate(pem).to_owned()) } else { Ok(certificates) }
}

const DAMAGED: &str = "holds only damaged certificates; copy them again";

fn no_certificate(pem: &[u8]) -> &'static str {
    if holds(pem, "PRIVATE KEY-----") {
        "holds a private key instead of a certificate; did you swap the key and the certificate?"
    } else {
        "holds no PEM certificate (-----BEGIN CERTIFICATE-----)"
    }
}

/// The certificate authorities to be trusted, which were read from a PEM text.
#[derive(Debug, Default)]
pub struct Authorities {
    pub certificates: Vec<CertificateDer<'static>>,
    /// How many certificates of the PEM text cannot be used, because they are damaged or of a kind that is not
    /// supported.
    pub unusable: usize,
}

impl Authorities {
    /// Returns the usable authorities of a PEM text. Unusable authorities are only counted, so that one of them does
    /// not make a whole bundle useless. The error says why no authority is usable.
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

impl ClientIdentity {
    /// Reads the chain of the client certificate, which begins with the client certificate itself, and the private key
    /// (PKCS#1, PKCS#8 or SEC1). The error says whether the certificate or the key is wrong, and how.
    pub fn from_pem(certificate: &Pem, key: &Pem) -> Result<ClientIdentity, String> {
        let chain = parse_certificates(&certificate.bytes).map_err(|why| certificate.error(why))?;
        let private = parse_key(&key.bytes).map_err(|why| key.error(why))?;
        let provider = rustls::crypto::ring::default_provider().key_provider;
        let private = provider.load_private_key(private).map_err(|_| {
            key.error(
                "is damaged or of a kind that is not supported; use RSA with 2048 bits or more, ECDSA P-256 or P-384, \
                 or Ed25519",
            )
        })?;
        let certified = CertifiedKey::new(chain, private);
        match certified.keys_match() {
            Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => {
                Ok(ClientIdentity(Arc::new(certified)))
            }
            Err(Error::InconsistentKeys(_)) => Err(key.error("is the key of another certificate")),
            Err(_) => Err(certificate.error("holds a damaged certificate; copy it again")),
        }
    }
}

/// The certificate chain of a server.
pub struct Chain {
    /// The certificates as PEM. Other text of the PEM file is left out.
    pub pem: String,
    pub certificates: usize,
    /// The SHA-256 hash of all certificates together, in hexadecimal digits.
    pub digest: String,
    /// When the first certificate of the chain becomes valid. This is the certificate for the host names. The other
    /// certificates of the chain belong to authorities.
    pub not_before: Timestamp,
    pub not_after: Timestamp,
}

impl Chain {
    /// Reads the certificate chain of a server and the private key of the server's own certificate, which is the first
    /// of the chain. The error says whether the certificate or the key is wrong, and how. The error repeats nothing of
    /// the two PEM texts.
    pub fn from_pem(certificate: &Pem, key: &Pem) -> Result<Chain, String> {
        let ClientIdentity(certified) = ClientIdentity::from_pem(certificate, key)?;
        let damaged = || certificate.error("holds a damaged certificate; copy it again");
        let (mut pem, mut all) = (String::new(), Vec::new());
        for der in &certified.cert {
            let base64 = STANDARD.encode(der);
            pem += "-----BEGIN CERTIFICATE-----\n";
            for line in base64.as_bytes().chunks(64) {
                pem += &String::from_utf8_lossy(line);
                pem += "\n";
            }
            pem += "-----END CERTIFICATE-----\n";
            // Each certificate is hashed together with its length, so that the hash also shows where each
            // certificate ends.
            all.extend((der.len() as u64).to_be_bytes());
            all.extend_from_slice(der);
        }
        let suite = TLS13_AES_128_GCM_SHA256.tls13().ok_or_else(damaged)?;
        let hash = suite.common.hash_provider.hash(&all);
        let parsed = certified.cert.first().ok_or_else(damaged)?;
        let parsed = ParsedCertificate::try_from(parsed).map_err(|_| damaged())?;
        let (not_before, not_after) = validity(&parsed).ok_or_else(damaged)?;
        Ok(Chain {
            pem,
            certificates: certified.cert.len(),
            digest: hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect(),
            not_before,
            not_after,
        })
    }
}

/// Returns the first and the last moment at which a certificate is valid. The TLS library tells these moments only in
/// its errors. The function therefore verifies the certificate at the earliest and at the latest possible moment. The
/// errors "not valid yet" and "expired" contain the two moments. The issuer is unknown here, but the library checks the
/// validity before the issuer.
fn validity(certificate: &ParsedCertificate) -> Option<(Timestamp, Timestamp)> {
    let at = |seconds: u64| {
        let at = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        verify_server_cert_signed_by_trust_anchor(
            certificate,
            &RootCertStore::empty(),
            &[],
            at,
            &[],
        )
    };
    let after = match at(u64::MAX) {
        Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
            not_after
        }
        _ => return None,
    };
    let before = match at(0) {
        Err(Error::InvalidCertificate(CertificateError::NotValidYetContext {
            not_before, ..
        })) => not_before,
        _ => UnixTime::since_unix_epoch(Duration::ZERO),
    };
    // `shown` converts a time of the TLS library. A time that is too late for `Timestamp` becomes the greatest
    // `Timestamp`.
    let shown = |at: UnixTime| {
        let seconds = i64::try_from(at.as_secs()).unwrap_or(i64::MAX);
        Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX)
    };
    Some((shown(before), shown(after)))
}

fn parse_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    // The PEM text of an encrypted key contains `ENCRYPTED PRIVATE KEY` (PKCS#8) or `Proc-Type: 4,ENCRYPTED` (older
    // forms).
    if holds(pem, "ENCRYPTED") {
        return Err("is encrypted; decrypt the key (openssl pkey -in FILE)".into());
    }
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| match error {
        rustls::pki_types::pem::Error::NoItemsFound if holds(pem, "BEGIN CERTIFICATE-----") => {
            "holds a certificate instead of a private key; did you swap the certificate and the key?".into()
        }
        rustls::pki_types::pem::Error::NoItemsFound => {
            "holds no PEM private key (PKCS#1, PKCS#8 or SEC1)".into()
        }
        _ => "holds damaged PEM; copy it again".into(),
    })
}

fn holds(pem: &[u8], text: &str) -> bool {
    pem.windows(text.len()).any(|window| window == text.as_bytes())
}

/// Reads a whole file. Returns an error, as a message for the user, when the file cannot be read or is longer than
/// `limit_bytes`.
pub fn read_file(path: &Path, limit_bytes: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| {
        // With enough room, the file is read in two calls.
        let length = file.metadata().map_or(0, |found| found.len());
        bytes.reserve_exact(length.min(limit_bytes) as usize + 1);
        file.take(limit_bytes + 1).read_to_end(&mut bytes)
    });
    match read {
        Ok(_) if bytes.len() as u64 > limit_bytes => {
            Err(format!("the file is longer than {} MiB", limit_bytes >> 20))
        }
        Ok(_) => Ok(bytes),
        Err(error) => Err(match error.kind() {
            ErrorKind::NotFound => "the file does not exist; correct the path".into(),
            ErrorKind::PermissionDenied => "ccm has no permission to read the file".into(),
            ErrorKind::IsADirectory => "this is a folder, not a file".into(),
            _ => format!("the file can't be read: {error}"),
        }),
    }
}
