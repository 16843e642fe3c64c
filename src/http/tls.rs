//! TLS over a connection. ureq's own TLS trusts either Mozilla's authorities or the authorities that the program gives
//! to ureq. This file can trust both at the same time. It never sends our client certificate to a proxy.

use super::auth::{raise, resolved};
use super::certificates::ClientIdentity;
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

/// The authorities that are trusted, and our client certificate.
#[derive(Clone, Default, PartialEq)]
pub struct Tls {
    pub roots: Roots,
    pub identity: Option<ClientIdentity>,
    /// The authorities of `SSL_CERT_FILE`. They are trusted whenever the built-in authorities are trusted. All clones
    /// share them, because there can be hundreds of them.
    pub more_authorities: Arc<[CertificateDer<'static>]>,
    /// The value of the kubeconfig field `tls-server-name`. The server's certificate must have this name instead of the
    /// URL's host. The address and the header `Host` still come from the URL. `None` when the field is not set.
    pub server_name: Option<ServerName<'static>>,
}

/// How often the files of the TLS settings are read again. A call that fails because of TLS or credentials makes the
/// client read them at once.
pub(super) const READ_EVERY: Duration = Duration::from_secs(60);

/// The name of the TLS settings in log lines which say that a file of these settings can't be read. Log lines with the
/// same name and the same reason are not repeated. All clients use this name, so a problem of several clients is logged
/// once.
const TLS: &str = "TLS";

/// The TLS settings, and how to read them again from their files.
#[derive(Clone)]
pub struct TlsSource {
    /// The current TLS settings.
    pub tls: Tls,
    /// How many times the TLS settings have changed since this `TlsSource` was created.
    pub(super) changes: u64,
    /// A function that reads the TLS settings from their files again. `None` means that the TLS settings never change.
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
    /// Returns a `TlsSource` whose settings come from files. `tls` are the settings that were just read from the files,
    /// and `read` reads the files again.
    pub fn files(
        tls: Tls,
        read: impl Fn() -> Result<Tls, String> + Send + Sync + 'static,
    ) -> TlsSource {
        TlsSource { read: Some(Arc::new(read)), ..tls.into() }
    }

    /// Reads the files again if their last read is at least `after` ago. When the files cannot be used, e.g. because
    /// the key does not fit the certificate, the current settings stay.
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
    /// Mozilla's authorities, which are compiled into this program.
    #[default]
    BuiltIn,
    /// Only these certificate authorities are trusted, and not the built-in ones.
    Only(Vec<CertificateDer<'static>>),
    /// Any certificate is accepted, because `insecure-skip-tls-verify` is set.
    Any,
}

/// Encrypts connections to `https` URLs. Other connections pass unchanged.
#[derive(Debug)]
pub(super) struct Encrypt {
    config: Result<Arc<ClientConfig>, Error>,
    /// The name that the server's certificate must have. `None` means the host of the URL.
    name: Option<ServerName<'static>>,
}

/// The size of each buffer of a connection, in bytes. ureq's default is 128 kB for each direction of a connection.
/// Buffers of that size would take most of the memory of a small daemon.
pub(super) const BUFFER_BYTES: usize = 16 * 1024;

impl Encrypt {
    pub(super) fn new(tls: &Tls) -> Encrypt {
        Encrypt { config: client_config(tls).map(Arc::new), name: tls.server_name.clone() }
    }

    /// Makes the TLS handshake with a server whose certificate must have the name `name`.
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
            // Connecting has already taken a part of the time-out, so only the rest is left for the handshake.
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
        .map_err(|_| ureq::Error::Tls("the host name in the URL is not valid"))
}

/// Returns a URL's host, without the brackets of an IPv6 address.
pub(super) fn bare_host(uri: &ureq::http::Uri) -> &str {
    uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']')
}

/// A TLS connection in the form that ureq requires.
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
        // `write_all` can leave encrypted bytes in a buffer of the TLS library. All bytes must be sent before the
        // client waits for the answer.
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
    // Certificates that cannot be parsed are skipped without an error. This is safe, because every authority was
    // already checked when the settings were read.
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
        Some(ClientIdentity(certified)) => {
            let certified = SingleCertAndKey::from(certified.as_ref().clone());
            Ok(builder.with_client_cert_resolver(Arc::new(certified)))
        }
        None => Ok(builder.with_no_client_auth()),
    }
}

/// Accepts any certificate, for `insecure-skip-tls-verify`. The server must only prove that it has the
/// certificate's private key.
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

/// Returns the error message for a URL to which the secret `what` would be sent without encryption.
/// [`leaves_unencrypted`](crate::text::leaves_unencrypted) recognizes such URLs.
pub fn without_tls(what: &str) -> String {
    format!(
        "without TLS anybody on the network path can read the {what}; use https://, or set \
         {HCLOUD_ALLOW_INSECURE_ENDPOINT}=true if you trust the path"
    )
}
