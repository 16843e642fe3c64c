//! The bytes: ureq with our time-outs, buffers, connections and TLS.

use super::connect::{Connect, Unresolved};
use super::error::{Kind, describe_transport};
use super::identity::Identity;
use super::server_name::ServerName;
use super::session::Session;
use super::tls::Encrypt;
use super::{Call, Settings};
use rustls::pki_types::CertificateDer;
use std::time::Duration;
use ureq::unversioned::transport::Connector;

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
    /// Trusted beside the built-in roots, where those are trusted: `SSL_CERT_FILE`.
    pub more_authorities: Vec<CertificateDer<'static>>,
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
        // Whose rules are not Go's; see `proxy`.
        .proxy(None)
        .user_agent(super::USER_AGENT)
        .input_buffer_size(BUFFER_BYTES)
        .output_buffer_size(BUFFER_BYTES)
        .max_idle_connections(2)
        .max_idle_connections_per_host(2)
        .max_idle_age(IDLE)
        .timeout_connect(Some(settings.connect_timeout))
        .build();
    let connect = Connect {
        route: settings.proxies.route(&settings.base, tls, BUFFER_BYTES),
        timeout: settings.connect_timeout,
        buffer_bytes: BUFFER_BYTES,
    };
    let connector = connect.chain(Encrypt::new(tls, BUFFER_BYTES));
    ureq::Agent::with_parts(config, connector, Unresolved)
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
    // A read has no body, nor has every DELETE.
    let sent = match call.body.is_empty() {
        true => {
            let request = request.body(()).map_err(|e| Kind::Request(e.to_string()))?;
            let request = agent
                .configure_request(request)
                .timeout_global(Some(timeout))
                .build();
            agent.run(request)
        }
        false => {
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
