//! The bytes: ureq with our time-outs, buffers and TLS.

use super::error::{Kind, describe_transport};
use super::identity::Identity;
use super::server_name::{Named, ServerName};
use super::session::Session;
use super::{Call, Method, Settings};
use rustls::pki_types::CertificateDer;
use std::time::Duration;
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{Connector, RustlsConnector, TcpConnector};

/// ureq's own default of 128 kB each way and connection is most of a small daemon's memory.
const BUFFER_BYTES: usize = 16 * 1024;

/// Longer than the slowest of our intervals that should reuse a connection, shorter than
/// the idle time-outs of both APIs.
const IDLE: Duration = Duration::from_secs(60);

/// Who is trusted, and who we are.
#[derive(Clone, Default, PartialEq)]
pub struct Tls {
    pub roots: Roots,
    pub identity: Option<Identity>,
    /// `insecure-skip-tls-verify`: any certificate will do.
    pub insecure: bool,
    /// Whose certificate the server has to have; none: the URL's host.
    pub server_name: Option<ServerName>,
}

#[derive(Clone, Default, PartialEq)]
pub enum Roots {
    /// Mozilla's, compiled in.
    #[default]
    BuiltIn,
    /// These and no others.
    Only(Vec<CertificateDer<'static>>),
}

/// `tls` is what of the settings' is in force now.
pub(super) fn build(settings: &Settings, tls: &Tls) -> ureq::Agent {
    let config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        // A redirect of an API is a proxy's, and would carry the token elsewhere.
        .max_redirects(0)
        // Proxies of the environment are read by our own rules, not by ureq's.
        .proxy(None)
        .user_agent(concat!("ccm-from-scratch/", env!("CARGO_PKG_VERSION")))
        .input_buffer_size(BUFFER_BYTES)
        .output_buffer_size(BUFFER_BYTES)
        .max_idle_connections(2)
        .max_idle_connections_per_host(2)
        .max_idle_age(IDLE)
        .timeout_connect(Some(settings.connect_timeout))
        .timeout_resolve(Some(settings.connect_timeout))
        .tls_config(tls_config(tls))
        .build();
    let connector = ().chain(TcpConnector::default()).chain(Named {
        name: tls.server_name.clone(),
        tls: RustlsConnector::default(),
    });
    ureq::Agent::with_parts(config, connector, DefaultResolver::default())
}

fn tls_config(tls: &Tls) -> TlsConfig {
    let roots = match &tls.roots {
        Roots::BuiltIn => RootCerts::WebPki,
        Roots::Only(certificates) => RootCerts::new_with_certs(
            &certificates
                .iter()
                .map(|der| Certificate::from_der(der).to_owned())
                .collect::<Vec<_>>(),
        ),
    };
    TlsConfig::builder()
        .root_certs(roots)
        .client_cert(tls.identity.as_ref().map(Identity::for_ureq))
        .disable_verification(tls.insecure)
        .build()
}

pub(super) fn send(
    session: &Session,
    settings: &Settings,
    call: &Call,
    timeout: Duration,
) -> Result<ureq::http::Response<ureq::Body>, Kind> {
    let url = format!("{}{}", settings.base, call.path);
    let mut request = ureq::http::Request::builder()
        .method(call.method.name())
        .uri(url)
        .header("Accept", call.accept);
    if let Some(header) = &session.shown.header {
        request = request.header("Authorization", header.expose());
    }
    let agent = &session.agent;
    let sent = match call.method {
        Method::Get => {
            let request = request.body(()).map_err(|e| Kind::Request(e.to_string()))?;
            let request = agent
                .configure_request(request)
                .timeout_global(Some(timeout))
                .build();
            agent.run(request)
        }
        Method::Post | Method::Put | Method::Patch | Method::Delete => {
            let request = request
                .header("Content-Type", call.content_type)
                .body(&call.body[..])
                .map_err(|e| Kind::Request(e.to_string()))?;
            let request = agent
                .configure_request(request)
                .timeout_global(Some(timeout))
                .build();
            agent.run(request)
        }
    };
    sent.map_err(|error| describe_transport(&error, timeout))
}
