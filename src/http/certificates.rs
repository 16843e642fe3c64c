//! Certificates and keys from PEM, checked before a connection is made with them: only here a message can say which of
//! the two is wrong, and how.

use jiff::Timestamp;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, Error, InconsistentKeys, RootCertStore};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A client certificate with its key: known to fit each other.
#[derive(Clone)]
pub struct Identity(pub(super) Arc<CertifiedKey>);

/// A certificate holds the public half of its key: the same certificate is the same identity.
impl PartialEq for Identity {
    fn eq(&self, other: &Identity) -> bool {
        self.0.cert == other.0.cert
    }
}

/// Which of the two is wrong, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentityError {
    Certificate(String),
    Key(String),
}

/// Every certificate in a PEM text; at least one.
fn parse_certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|_| "holds damaged PEM; copy it anew".to_owned())?;
    if certificates.is_empty() && holds(pem, "PRIVATE KEY-----") {
        return Err("holds a private key instead of a certificate; are the two swapped?".into());
    }
    if certificates.is_empty() {
        return Err("holds no PEM certificate (-----BEGIN CERTIFICATE-----)".into());
    }
    Ok(certificates)
}

/// The same as trusted authorities.
pub fn parse_authorities(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates = parse_certificates(pem)?;
    let mut store = RootCertStore::empty();
    for certificate in &certificates {
        store
            .add(certificate.clone())
            .map_err(|_| "holds a damaged certificate; copy it anew".to_owned())?;
    }
    Ok(certificates)
}

impl Identity {
    /// A certificate chain, our own first, and its key (PKCS#1, PKCS#8 or SEC1), both PEM.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Identity, IdentityError> {
        let wrong_key = |why: &str| IdentityError::Key(why.to_owned());
        let chain = parse_certificates(certificate).map_err(IdentityError::Certificate)?;
        let key = parse_key(key).map_err(IdentityError::Key)?;
        let provider = rustls::crypto::ring::default_provider().key_provider;
        let key = provider.load_private_key(key).map_err(|_| {
            wrong_key(
                "is damaged or of a kind that is not supported; supported are RSA from 2048 bits on, ECDSA P-256 \
                 and P-384, and Ed25519",
            )
        })?;
        let certified = CertifiedKey::new(chain, key);
        match certified.keys_match() {
            Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
            Err(Error::InconsistentKeys(_)) => {
                return Err(wrong_key(
                    "is the key of another certificate than the client's",
                ));
            }
            Err(_) => {
                let why = "holds a damaged certificate; copy it anew";
                return Err(IdentityError::Certificate(why.to_owned()));
            }
        }
        if let Some(own) = certified.cert.first() {
            check_validity(own, Timestamp::now())
                .map_err(|why| IdentityError::Certificate(format!("the certificate {why}")))?;
        }
        Ok(Identity(Arc::new(certified)))
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

/// What keeps a certificate from being accepted at `now`: its end, or a beginning that is still to come. Everything
/// else is left to the server. The library checks the time first, whoever signed the certificate.
fn check_validity(own: &CertificateDer, now: Timestamp) -> Result<(), String> {
    let mut roots = RootCertStore::empty();
    if roots.add(own.clone()).is_err() {
        return Ok(());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let Ok(verifier) = WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build()
    else {
        return Ok(());
    };
    let at = |time: UnixTime| {
        Timestamp::from_second(time.as_secs().try_into().unwrap_or(i64::MAX)).unwrap_or_default()
    };
    let seconds = u64::try_from(now.as_second()).unwrap_or_default();
    let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    match verifier.verify_client_cert(own, &[], now) {
        Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
            Err(format!("expired at {}; get a new one", at(not_after)))
        }
        Err(Error::InvalidCertificate(CertificateError::NotValidYetContext {
            not_before, ..
        })) => Err(format!(
            "is valid only from {} on, and now it is {}; is this machine's clock right?",
            at(not_before),
            at(now)
        )),
        _ => Ok(()),
    }
}

/// A system's whole bundle has a quarter of a megabyte.
const BUNDLE_LIMIT_BYTES: u64 = 4 << 20;

/// What a bundle holds.
#[derive(Debug, Default)]
pub struct Authorities {
    pub certificates: Vec<CertificateDer<'static>>,
    /// So many more are damaged, or of a kind that can't be used here.
    pub unusable: usize,
}

impl Authorities {
    /// At least one that can be used, or an error that says why not. A bundle of a hundred is not
    /// refused for one that is outdated.
    pub fn read(path: &Path) -> Result<Authorities, String> {
        let mut pem = Vec::new();
        File::open(path)
            .and_then(|file| file.take(BUNDLE_LIMIT_BYTES + 1).read_to_end(&mut pem))
            .map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => {
                    "the file does not exist; correct or unset it".to_owned()
                }
                _ => format!("the file can't be read: {error}"),
            })?;
        if pem.len() as u64 > BUNDLE_LIMIT_BYTES {
            return Err(format!(
                "the file is longer than {} MiB",
                BUNDLE_LIMIT_BYTES >> 20
            ));
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

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;
    use sandbox::credentials::{Authority, Subject, Validity};

    /// A certificate's validity, and what is reported of it now.
    #[test]
    fn a_certificate_is_accepted_within_its_validity_only() {
        let authority = Authority::new("authority").unwrap();
        let subject = Subject {
            user: "ccm".into(),
            group: None,
        };
        for (validity, expected) in [
            (Validity::Now, None),
            (Validity::Expired, Some("the certificate expired at 20")),
            (
                Validity::NotYet,
                Some("the certificate is valid only from 20"),
            ),
        ] {
            let own = authority.client(&subject, validity).unwrap();
            let identity =
                Identity::from_pem(own.certificate_pem.as_bytes(), own.key_pem.as_bytes());
            match (identity.map(drop), expected) {
                (Ok(()), None) => {}
                (Err(IdentityError::Certificate(why)), Some(start)) => {
                    assert!(why.starts_with(start), "{why}");
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_certificate_that_cannot_be_read_is_left_to_the_server() {
        let authority = Authority::new("authority").unwrap();
        let pem = authority.certificate_pem();
        let whole = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        for end in 0..whole.len() {
            let cut = CertificateDer::from(whole[..end].to_vec());
            assert_eq!(check_validity(&cut, Timestamp::now()), Ok(()), "{end}");
        }
    }
}
