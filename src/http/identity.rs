//! Certificates and keys from PEM, checked before a connection is made with them: which of the two
//! is wrong, and how, can be told only here.

use super::validity;
use jiff::Timestamp;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::sync::Arc;

/// A client certificate with its key: known to fit each other.
#[derive(Clone)]
pub struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: Arc<PrivateKeyDer<'static>>,
}

/// A certificate holds the public half of its key: the same certificate is the same identity.
impl PartialEq for Identity {
    fn eq(&self, other: &Identity) -> bool {
        self.chain == other.chain
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
    /// A certificate chain and its key (PKCS#1, PKCS#8 or SEC1), both PEM.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Identity, IdentityError> {
        let chain = parse_certificates(certificate).map_err(IdentityError::Certificate)?;
        let key_der = parse_key(key).map_err(IdentityError::Key)?;
        check_together(&chain, &key_der)?;
        if let Some(own) = chain.first() {
            validity::check(own, Timestamp::now())
                .map_err(|why| IdentityError::Certificate(format!("the certificate {why}")))?;
        }
        Ok(Identity {
            chain,
            key: Arc::new(key_der),
        })
    }

    /// Our own certificate first.
    pub(super) fn chain(&self) -> Vec<CertificateDer<'static>> {
        self.chain.clone()
    }

    pub(super) fn key(&self) -> PrivateKeyDer<'static> {
        self.key.clone_key()
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

/// What a connection will do with them, done once here where the refusal names its reason.
fn check_together(
    chain: &[CertificateDer<'static>],
    key: &PrivateKeyDer<'static>,
) -> Result<(), IdentityError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    if provider
        .key_provider
        .load_private_key(key.clone_key())
        .is_err()
    {
        return Err(IdentityError::Key(
            "is damaged or of a kind that is not supported; supported are RSA from 2048 bits on, ECDSA P-256 \
             and P-384, and Ed25519"
                .into(),
        ));
    }
    rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| IdentityError::Certificate(error.to_string()))?
        .with_root_certificates(RootCertStore::empty())
        .with_client_auth_cert(chain.to_vec(), key.clone_key())
        .map(|_| ())
        .map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                IdentityError::Key("is the key of another certificate than the client's".into())
            }
            _ => IdentityError::Certificate("holds a damaged certificate; copy it anew".into()),
        })
}
