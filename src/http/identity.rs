//! Certificates and keys from PEM, checked before ureq sees them: it panics on a key that
//! belongs to another certificate and on curves its TLS library does not know.

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::sync::Arc;
use ureq::tls::{Certificate, ClientCert, PrivateKey};

/// A client certificate with its key: known to fit each other.
#[derive(Clone)]
pub struct Identity(ClientCert);

/// Every certificate in a PEM text, each one parsable; at least one.
fn parse_certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|error| format!("not a PEM certificate: {error}"))?;
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
            .map_err(|error| format!("not a usable certificate: {error}"))?;
    }
    Ok(certificates)
}

impl Identity {
    /// A certificate chain and its key (PKCS#1, PKCS#8 or SEC1), both PEM.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Identity, String> {
        let chain = parse_certificates(certificate)
            .map_err(|error| format!("client certificate: {error}"))?;
        let key_der = PrivateKeyDer::from_pem_slice(key).map_err(|error| match error {
            rustls::pki_types::pem::Error::NoItemsFound => {
                "client key: holds no PEM private key (PKCS#1, PKCS#8 or SEC1, not encrypted)"
                    .to_owned()
            }
            error => format!("client key: not a PEM private key: {error}"),
        })?;
        check_together(&chain, &key_der)?;
        let chain: Vec<_> = chain
            .iter()
            .map(|der| Certificate::from_der(der).to_owned())
            .collect();
        let key = PrivateKey::from_pem(key).map_err(|error| format!("client key: {error}"))?;
        Ok(Identity(ClientCert::new_with_certs(&chain, key)))
    }

    pub(super) fn for_ureq(&self) -> ClientCert {
        self.0.clone()
    }
}

/// What ureq will do with them, done once here where a refusal is an error and not a panic.
fn check_together(
    chain: &[CertificateDer<'static>],
    key: &PrivateKeyDer<'static>,
) -> Result<(), String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(RootCertStore::empty())
        .with_client_auth_cert(chain.to_vec(), key.clone_key())
        .map(|_| ())
        .map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                "the client key does not belong to the client certificate".to_owned()
            }
            error => format!("client certificate and key can't be used: {error}"),
        })
}
