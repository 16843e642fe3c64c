//! The certificates of one sandbox: a CA, the certificates of the server and of clients, and the TLS configuration that
//! uses them.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::{ToSpan, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SignatureAlgorithm,
};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme,
};

use crate::faults::SplitMix64;
use crate::time;

/// Signature algorithms that a test can pass to [`Authority::client_with`].
pub use rcgen::{PKCS_ECDSA_P384_SHA384, PKCS_ED25519};

/// A certificate authority whose private key is only in memory.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate_pem: String,
    certificate_der: CertificateDer<'static>,
    keys: Keys,
}

/// Where a certificate authority gets private keys: the key of its own certificate, and the keys of the certificates
/// that it issues.
enum Keys {
    Random,
    /// The keys are computed from a seed. All of them are Ed25519 keys, because Ed25519 signatures need no random
    /// number and are therefore the same in every run.
    Seeded(Mutex<SplitMix64>),
}

/// A certificate and its private key. All fields are empty in a sandbox in memory
/// ([`Builder::in_memory`](crate::Builder::in_memory)), which has no TLS and therefore makes no certificates.
#[derive(Clone, Default)]
pub struct Identity {
    pub certificate_pem: String,
    pub certificate_der: Vec<u8>,
    /// The private key in PEM, as PKCS#8.
    pub key_pem: String,
    key_der: Vec<u8>,
}

/// The user and the group that a client certificate contains. For a Kubernetes API server, they are the user and the
/// group of each request with this certificate.
#[derive(Clone, Debug, Default)]
pub struct Subject {
    /// The name of the user, which is the common name of the certificate.
    pub user: String,
    /// The organisation of the certificate, or `None` for a certificate without one. Kubernetes reads several
    /// organisations as groups, but the library that makes these certificates writes only one.
    pub group: Option<String>,
}

/// The period in which a test certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Validity {
    /// The certificate is valid from yesterday for ten years.
    Now,
    /// The certificate expires in a week.
    Soon,
    /// The certificate expired yesterday.
    Expired,
    /// The certificate becomes valid the day after tomorrow.
    NotYet,
}

/// The error of functions that make certificates or TLS configurations.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

impl Authority {
    pub fn new(name: &str) -> Result<Authority, Error> {
        Authority::with(name, Keys::Random)
    }

    /// Creates an authority whose keys and certificates are computed from the seed and the current date. In a test with
    /// simulated time the date is the same in every run, so the test always gets the same keys and certificates.
    pub fn seeded(name: &str, seed: u64) -> Result<Authority, Error> {
        Authority::with(name, Keys::Seeded(Mutex::new(SplitMix64::new(seed))))
    }

    fn with(name: &str, keys: Keys) -> Result<Authority, Error> {
        let mut params = parameters(name, Validity::Now)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = keys.next(&PKCS_ECDSA_P256_SHA256)?;
        let certificate = params.self_signed(&key)?;
        Ok(Authority {
            certificate_pem: certificate.pem(),
            certificate_der: certificate.der().clone(),
            issuer: Issuer::new(params, key),
            keys,
        })
    }

    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// Makes a certificate for a server that clients reach under any of `names`, which are host names or addresses.
    pub fn server(&self, names: &[&str], validity: Validity) -> Result<Identity, Error> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names)?;
        // The subject of the certificate must differ from the name of the CA. When issuer and subject are equal,
        // OpenSSL takes the certificate for a self-signed one.
        params.distinguished_name = parameters("kube-apiserver", validity)?.distinguished_name;
        set_validity(&mut params, validity)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params, &PKCS_ECDSA_P256_SHA256)
    }

    /// Makes a certificate for a client, with a P-256 key as in most clusters. When the keys of the authority come from
    /// a seed, the client gets an Ed25519 key instead.
    pub fn client(&self, subject: &Subject, validity: Validity) -> Result<Identity, Error> {
        self.client_with(subject, validity, &PKCS_ECDSA_P256_SHA256)
    }

    /// Makes a certificate for a client, with a key for this signature algorithm. When the keys of the authority come
    /// from a seed, the algorithm is ignored and the client gets an Ed25519 key.
    pub fn client_with(
        &self,
        subject: &Subject,
        validity: Validity,
        algorithm: &'static SignatureAlgorithm,
    ) -> Result<Identity, Error> {
        let mut params = parameters(&subject.user, validity)?;
        if let Some(group) = &subject.group {
            params.distinguished_name.push(DnType::OrganizationName, group.as_str());
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params, algorithm)
    }

    fn sign(
        &self,
        mut params: CertificateParams,
        algorithm: &'static SignatureAlgorithm,
    ) -> Result<Identity, Error> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let key = self.keys.next(algorithm)?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Identity {
            certificate_pem: certificate.pem(),
            certificate_der: certificate.der().to_vec(),
            key_pem: key.serialize_pem(),
            key_der: key.serialize_der(),
        })
    }
}

impl Keys {
    fn next(&self, algorithm: &'static SignatureAlgorithm) -> Result<KeyPair, Error> {
        let Keys::Seeded(generator) = self else {
            return Ok(KeyPair::generate_for(algorithm)?);
        };
        // These bytes begin the PKCS#8 form of an Ed25519 key (RFC 8410). The 32 bytes of the key follow, and any 32
        // bytes are a valid key.
        let mut der = vec![0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
        let mut generator = generator.lock().unwrap_or_else(PoisonError::into_inner);
        der.extend((0..4).flat_map(|_| generator.next().to_be_bytes()));
        let der = PrivatePkcs8KeyDer::from(der);
        Ok(KeyPair::from_pkcs8_der_and_sign_algo(&der, &PKCS_ED25519)?)
    }
}

/// The TLS configuration of the simulated API server: its certificate, and the certificate authority of client
/// certificates. Both can be replaced while the server runs.
#[derive(Clone)]
pub struct ServerTls(Arc<Mutex<Arc<Material>>>);

/// The TLS configuration that the API server uses until a test replaces its certificates. A connection that is open at
/// that time keeps the configuration with which it began.
pub(crate) struct Material {
    pub(crate) config: Arc<ServerConfig>,
    trusted: Arc<dyn ClientCertVerifier>,
}

impl ServerTls {
    /// Creates the TLS configuration, for HTTP/1.1 only.
    ///
    /// The server asks for a client certificate. The handshake also succeeds when the client has no certificate or an
    /// untrusted one. A Kubernetes API server does the same: it answers 401 to requests with an untrusted certificate
    /// only after the handshake.
    pub fn new(server: &Identity, clients: &Authority) -> Result<ServerTls, Error> {
        let material = Material::new(server, clients)?;
        Ok(ServerTls(Arc::new(Mutex::new(Arc::new(material)))))
    }

    /// Replaces the certificate of the server and the certificate authority of its clients. Connections that begin from
    /// now on use the new ones. Each connection that is already open is closed after its next answer.
    pub fn replace(&self, server: &Identity, clients: &Authority) -> Result<(), Error> {
        let material = Arc::new(Material::new(server, clients)?);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = material;
        Ok(())
    }

    pub(crate) fn now(&self) -> Arc<Material> {
        let material = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&material)
    }
}

impl Material {
    fn new(server: &Identity, clients: &Authority) -> Result<Material, Error> {
        let provider = Arc::new(ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(clients.certificate_der.clone())?;
        let trusted =
            WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone()).build()?;
        let shown = AnyCertificate {
            hints: trusted.root_hint_subjects().to_vec(),
            provider: provider.clone(),
        };
        let chain = vec![server.certificate_der.clone().into()];
        let key = PrivateKeyDer::Pkcs8(server.key_der.clone().into());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(Arc::new(shown))
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Material { config: config.into(), trusted })
    }

    /// Returns the DER of the client's certificate, which is the first one of `chain`. Returns an empty list when
    /// another CA has signed the certificate, or when the certificate is not valid now. An empty list matches the
    /// certificate of no user, so the client is not authenticated.
    pub(crate) fn shown_certificate(&self, chain: &[CertificateDer<'_>]) -> Vec<u8> {
        let Some((certificate, intermediates)) = chain.split_first() else {
            return Vec::new();
        };
        match self.trusted.verify_client_cert(certificate, intermediates, UnixTime::now()) {
            Ok(_) => certificate.to_vec(),
            Err(_) => Vec::new(),
        }
    }
}

/// A verifier that accepts every client certificate. The client must only prove that it has the private key of the
/// certificate. After the handshake, another verifier decides whether the certificate is trusted.
struct AnyCertificate {
    /// The names of the trusted CAs. The server sends them to clients, so that a client with several certificates can
    /// choose a fitting one.
    hints: Vec<DistinguishedName>,
    provider: Arc<CryptoProvider>,
}

impl fmt::Debug for AnyCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnyCertificate")
    }
}

impl ClientCertVerifier for AnyCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn parameters(name: &str, validity: Validity) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    set_validity(&mut params, validity)?;
    Ok(params)
}

fn set_validity(params: &mut CertificateParams, validity: Validity) -> Result<(), Error> {
    let today = time::timestamp().to_zoned(TimeZone::UTC).date();
    let (from, until) = match validity {
        Validity::Now => (today - 1.day(), today + 10.years()),
        Validity::Soon => (today - 80.days(), today + 7.days()),
        Validity::Expired => (today - 30.days(), today - 1.day()),
        Validity::NotYet => (today + 2.days(), today + 10.years()),
    };
    let midnight = |date: jiff::civil::Date| -> Result<_, Error> {
        Ok(rcgen::date_time_ymd(
            date.year().into(),
            u8::try_from(date.month())?,
            u8::try_from(date.day())?,
        ))
    };
    params.not_before = midnight(from)?;
    params.not_after = midnight(until)?;
    Ok(())
}
