//! Reads the PEM text of a certificate, and the fields of the certificate, such as the domain names and the validity.

use std::fmt::Display;

use jiff::Timestamp;
use rustls::crypto::ring::{cipher_suite, sign};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

#[derive(Clone, Debug)]
pub struct Content {
    pub pem: String,
    /// The SHA-256 hash of the chain's first certificate, as hexadecimal bytes with colons between them.
    pub fingerprint: String,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
    pub domain_names: Vec<String>,
}

impl Content {
    /// Reads a certificate chain in PEM format. The error is a text that says what is wrong, e.g. `holds no
    /// certificate`.
    pub fn parse(pem: &str) -> Result<Content, String> {
        let chain = chain(pem)?;
        let first = chain.first().ok_or("holds no certificate")?;
        let (_, parsed) = X509Certificate::from_der(first).map_err(unreadable)?;
        let names = parsed.subject_alternative_name().map_err(unreadable)?;
        let names = names.map_or(&[][..], |names| &names.value.general_names);
        let domain = |name: &GeneralName| match name {
            GeneralName::DNSName(domain) => Some((*domain).to_owned()),
            _ => None,
        };
        let time = |seconds: i64| Timestamp::from_second(seconds).map_err(unreadable);
        let validity = parsed.validity();
        Ok(Content {
            pem: pem.into(),
            fingerprint: fingerprint(first),
            not_before: time(validity.not_before.timestamp())?,
            not_after: time(validity.not_after.timestamp())?,
            domain_names: names.iter().filter_map(domain).collect(),
        })
    }
}

/// Checks that the private key belongs to the chain's first certificate. The error is a text that says what is wrong.
pub fn check_key(certificate_pem: &str, key_pem: &str) -> Result<(), String> {
    let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).map_err(unreadable)?;
    let key = sign::any_supported_type(&key).map_err(unreadable)?;
    let certified = CertifiedKey::new(chain(certificate_pem)?, key);
    let mismatch = |_| "does not belong to the certificate".to_owned();
    certified.keys_match().map_err(mismatch)
}

fn chain(pem: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().map_err(unreadable)
}

fn unreadable(problem: impl Display) -> String {
    format!("cannot be read: {problem}")
}

fn fingerprint(der: &[u8]) -> String {
    // The SHA-256 hash is computed by the TLS library, so that the program needs no other library for hashes.
    let suite = cipher_suite::TLS13_AES_128_GCM_SHA256.tls13();
    let hash = suite.map(|suite| suite.common.hash_provider.hash(der));
    let bytes = hash.as_ref().map_or(&[][..], |hash| hash.as_ref());
    let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(":")
}
