//! TLS over a connection. ureq's own can trust either Mozilla's authorities or given ones; here
//! both may be meant, and a proxy gets none of our certificates.

use super::auth::{raise, resolved};
use super::certificates::Identity;
use crate::provider::clock;
use crate::provider::variables::HCLOUD_ALLOW_INSECURE_ENDPOINT;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, StreamOwned};
use rustls::{Error, SignatureScheme};
use std::fmt;
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};
use ureq::unversioned::transport::time::Instant as UreqInstant;
use ureq::unversioned::transport::{Buffers, ConnectionDetails, Connector, Either, LazyBuffers};
use ureq::unversioned::transport::{NextTimeout, Transport, TransportAdapter};

/// Which servers are trusted, and our own certificate.
#[derive(Clone, Default, PartialEq)]
pub struct Tls {
    pub roots: Roots,
    pub identity: Option<Identity>,
    /// Trusted beside the built-in roots, where those are trusted: `SSL_CERT_FILE`. Hundreds.
    pub more_authorities: Arc<[CertificateDer<'static>]>,
    /// `tls-server-name`: the name that a server's certificate has to have, when it is not the URL's host. Address,
    /// `Host`, proxies and the pool of connections still follow the URL.
    pub server_name: Option<ServerName<'static>>,
}

/// How often the files are read, when nothing is refused.
pub(super) const READ_EVERY: Duration = Duration::from_secs(15);

/// The certificates and keys of the kubeconfig, all clients' the same.
const TLS: &str = "TLS";

/// TLS settings, and how to make them anew from their files.
#[derive(Clone)]
pub struct TlsSource {
    /// What is in force.
    pub tls: Tls,
    /// How often it has changed.
    pub(super) changes: u64,
    /// None: they stay.
    read: Option<Arc<ReadTls>>,
    read_at: Instant,
}

type ReadTls = dyn Fn() -> Result<Tls, String> + Send + Sync;

impl From<Tls> for TlsSource {
    fn from(tls: Tls) -> TlsSource {
        TlsSource { tls, changes: 0, read: None, read_at: clock::now() }
    }
}

impl TlsSource {
    /// `tls` was read just now; `read` does it again.
    pub fn files(
        tls: Tls,
        read: impl Fn() -> Result<Tls, String> + Send + Sync + 'static,
    ) -> TlsSource {
        TlsSource { read: Some(Arc::new(read)), ..tls.into() }
    }

    /// Reads the files when they were read that long ago. What is in force stays so until they are whole and fit each
    /// other.
    pub(super) fn refresh(&mut self, after: Duration) {
        if let Some(read) = &self.read
            && clock::since(self.read_at) >= after
        {
            self.read_at = clock::now();
            match read() {
                Ok(tls) => {
                    resolved(TLS);
                    let tls =
                        Tls { more_authorities: Arc::clone(&self.tls.more_authorities), ..tls };
                    self.changes += u64::from(tls != self.tls);
                    self.tls = tls;
                }
                Err(why) => raise(TLS, why),
            }
        }
    }
}

#[derive(Clone, Default, PartialEq)]
pub enum Roots {
    /// Mozilla's, compiled in.
    #[default]
    BuiltIn,
    /// These and no others.
    Only(Vec<CertificateDer<'static>>),
    /// `insecure-skip-tls-verify`: any certificate is accepted.
    Any,
}

/// Wraps connections to `https` URLs; those to others pass unchanged.
#[derive(Debug)]
pub(super) struct Encrypt {
    config: Result<Arc<ClientConfig>, Error>,
    /// In place of the URL's host.
    name: Option<ServerName<'static>>,
}

/// ureq's own default of 128 kB each way and connection is most of a small daemon's memory.
pub(super) const BUFFER_BYTES: usize = 16 * 1024;

impl Encrypt {
    pub(super) fn new(tls: &Tls) -> Encrypt {
        Encrypt { config: client_config(tls).map(Arc::new), name: tls.server_name.clone() }
    }

    /// The handshake with whoever has a certificate for `name`.
    pub(super) fn wrap(
        &self,
        inner: Box<dyn Transport>,
        name: ServerName<'static>,
        timeout: NextTimeout,
        details: &ConnectionDetails,
    ) -> Result<Encrypted, ureq::Error> {
        let config = self.config.clone().map_err(ureq::Error::Rustls)?;
        let mut connection = ClientConnection::new(config, name)?;
        let mut inner = TransportAdapter::new(inner, details.current_time.clone());
        inner.set_timeout(timeout);
        connection.complete_io(&mut inner)?;
        Ok(Encrypted {
            stream: StreamOwned::new(connection, inner),
            buffers: LazyBuffers::new(BUFFER_BYTES, BUFFER_BYTES),
        })
    }
}

impl<In: Transport> Connector<In> for Encrypt {
    type Out = Either<In, Encrypted>;

    fn connect(
        &self,
        details: &ConnectionDetails,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, ureq::Error> {
        let Some(inner) = chained else {
            return Ok(None);
        };
        if !details.needs_tls() {
            return Ok(Some(Either::A(inner)));
        }
        let mut timeout = details.timeout;
        let now = (details.current_time)();
        if let (UreqInstant::Exact(begun), UreqInstant::Exact(now)) = (details.now, now) {
            // Less what connecting has taken.
            let taken = now.saturating_duration_since(begun);
            timeout.after = timeout.after.saturating_sub(taken).into();
        }
        let name = match &self.name {
            Some(name) => name.clone(),
            None => certificate_name(bare_host(details.uri))?,
        };
        self.wrap(Box::new(inner), name, timeout, details)
            .map(|encrypted| Some(Either::B(encrypted)))
    }
}

pub(super) fn certificate_name(host: &str) -> Result<ServerName<'static>, ureq::Error> {
    ServerName::try_from(host.to_owned())
        .map_err(|_| ureq::Error::Tls("the host of the URL is no name for a certificate"))
}

/// A URL's host; of an IPv6 address without its brackets.
pub(super) fn bare_host(uri: &ureq::http::Uri) -> &str {
    let host = uri.host().unwrap_or_default();
    host.trim_start_matches('[').trim_end_matches(']')
}

/// TLS as one of ureq's transports.
pub(super) struct Encrypted {
    stream: StreamOwned<ClientConnection, TransportAdapter>,
    buffers: LazyBuffers,
}

impl Transport for Encrypted {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        self.stream.sock.set_timeout(timeout);
        let output = &self.buffers.output()[..amount];
        self.stream.write_all(output)?;
        // All of it is on its way before an answer is waited for.
        Ok(self.stream.flush()?)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        self.stream.sock.set_timeout(timeout);
        let count = self.stream.read(self.buffers.input_append_buf())?;
        self.buffers.input_appended(count);
        Ok(count > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.sock.get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}

impl fmt::Debug for Encrypted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Encrypted")
    }
}

fn client_config(tls: &Tls) -> Result<ClientConfig, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?;
    let mut store = RootCertStore::empty();
    // Each authority was read and tried before it came here.
    let builder = match &tls.roots {
        Roots::BuiltIn => {
            store.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
            store.add_parsable_certificates(tls.more_authorities.iter().cloned());
            builder.with_root_certificates(store)
        }
        Roots::Only(given) => {
            store.add_parsable_certificates(given.iter().cloned());
            builder.with_root_certificates(store)
        }
        Roots::Any => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        }
    };
    match &tls.identity {
        Some(Identity(certified)) => {
            let certified = SingleCertAndKey::from(certified.as_ref().clone());
            Ok(builder.with_client_cert_resolver(Arc::new(certified)))
        }
        None => Ok(builder.with_no_client_auth()),
    }
}

/// `insecure-skip-tls-verify`: any certificate is accepted whose key the server has.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// What is wrong with a URL that [`leaves_unencrypted`](crate::text::leaves_unencrypted). `what` is the secret that is
/// sent there.
pub fn without_tls(what: &str) -> String {
    format!(
        "without TLS anyone on the way reads the {what}; use https://, or set {HCLOUD_ALLOW_INSECURE_ENDPOINT}=true where \
         the way is yours"
    )
}
