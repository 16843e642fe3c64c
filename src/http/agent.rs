//! The agents of ureq: made with our time-outs, buffers, connections and TLS, made anew when trust or client
//! certificate
//! change, and used for one request. A call that was refused asks for newer credentials.

use super::auth::{Credentials, USER_AGENT};
use super::error::{Error, Kind, describe_io, describe_transport};
use super::proxy::Tunnel;
use super::request::{Call, Settings};
use super::secret;
use super::tls::{BUFFER_BYTES, Encrypt, READ_EVERY, Tls, TlsSource};
use super::transport::{Connect, Unresolved, hold_deadline};
use crate::provider::{lock, waiting_for};
use std::io::Read;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use ureq::unversioned::transport::Connector;

/// What one call is made with.
pub(super) struct Session {
    agent: ureq::Agent,
    pub(super) credentials: Credentials,
    /// Which TLS settings its connections have.
    number: u64,
}

pub(super) struct Sessions(Mutex<Connections>);

struct Connections {
    source: TlsSource,
    agent: ureq::Agent,
    /// What the agent was made from.
    tls: Tls,
    number: u64,
}

impl Sessions {
    pub(super) fn new(settings: &Settings) -> Sessions {
        let source = settings.tls.clone();
        Sessions(Mutex::new(Connections {
            agent: api_agent(settings, &source.tls),
            tls: source.tls.clone(),
            source,
            number: 0,
        }))
    }

    /// What to make a call with now. The error is for people.
    pub(super) fn current(&self, settings: &Settings) -> Result<Session, String> {
        let credentials = settings.login.current()?;
        secret::remember(&credentials.secrets);
        let mut connections = lock(&self.0);
        connections.source.refresh(READ_EVERY);
        let mut tls = connections.source.tls.clone();
        if credentials.identity.is_some() {
            tls.identity.clone_from(&credentials.identity);
        }
        if tls != connections.tls {
            // The old agent's idle connections end with it.
            connections.agent = api_agent(settings, &tls);
            connections.tls = tls;
            connections.number += 1;
        }
        Ok(Session {
            agent: connections.agent.clone(),
            credentials,
            number: connections.number,
        })
    }

    /// After a call with `used` has failed: something newer to make it with, if that may be why.
    pub(super) fn newer(
        &self,
        settings: &Settings,
        used: &Session,
        error: &Error,
    ) -> Option<Session> {
        let is_unauthorized = error.status() == Some(401);
        if !is_unauthorized && !matches!(error.kind, Kind::Untrusted(_) | Kind::Tls(_)) {
            return None;
        }
        if is_unauthorized {
            settings.login.refused(used.credentials.number);
        }
        lock(&self.0).source.refresh(Duration::ZERO);
        let now = self.current(settings).ok()?;
        (now.number != used.number || now.credentials.header != used.credentials.header)
            .then_some(now)
    }
}

/// Longer than the slowest of our intervals that should reuse a connection, shorter than
/// the idle time-outs of both APIs.
const IDLE: Duration = Duration::from_secs(60);

/// As many as were used at the same time are kept, or each of many writers would connect for each of its writes.
const IDLE_AT_MOST: usize = 100;

/// `tls` is what of the settings' is in force now.
fn api_agent(settings: &Settings, tls: &Tls) -> ureq::Agent {
    let proxy = settings.proxies.tunnel(&settings.base, tls);
    agent(proxy, settings.connect_timeout, tls)
}

fn agent(proxy: Option<Tunnel>, connect_timeout: Duration, tls: &Tls) -> ureq::Agent {
    let config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        // A redirect of an API is a proxy's, and would carry the token elsewhere.
        .max_redirects(0)
        // Whose rules are not Go's; see `proxy`.
        .proxy(None)
        .user_agent(USER_AGENT)
        .input_buffer_size(BUFFER_BYTES)
        .output_buffer_size(BUFFER_BYTES)
        .max_idle_connections(IDLE_AT_MOST)
        .max_idle_connections_per_host(IDLE_AT_MOST)
        .max_idle_age(IDLE)
        .timeout_connect(Some(connect_timeout))
        .build();
    let connect = Connect {
        proxy,
        timeout: connect_timeout,
    };
    let connector = connect.chain(Encrypt::new(tls));
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
    if let Some(header) = &session.credentials.header {
        request = request.header("Authorization", header.expose());
    }
    let agent = &session.agent;
    // A read has no body, nor has every DELETE.
    match call.body.is_empty() {
        true => run(agent, request.body(()), timeout),
        false => {
            let request = request.header("Content-Type", call.content_type);
            run(agent, request.body(&call.body[..]), timeout)
        }
    }
}

fn run<B: ureq::AsSendBody>(
    agent: &ureq::Agent,
    request: Result<ureq::http::Request<B>, ureq::http::Error>,
    timeout: Duration,
) -> Result<ureq::http::Response<ureq::Body>, Kind> {
    let request = request.map_err(|error| Kind::Request(error.to_string()))?;
    let request = agent.configure_request(request);
    let sent = agent.run(request.timeout_global(Some(timeout)).build());
    sent.map_err(|error| describe_transport(&error, timeout))
}

/// More than any server says about itself.
const TEXT_LIMIT_BYTES: u64 = 64 * 1024;

/// The body behind an `http` URL, without any proxy. An error says what happened instead, in one line.
pub fn fetch_text(url: &str, timeout: Duration) -> Result<String, String> {
    let _held = hold_deadline(Instant::now() + timeout);
    let _waiting = waiting_for(|| format!("GET {url}"));
    let in_words = |kind: Kind| match kind {
        Kind::TimedOut(_) => format!("no answer within {} s", timeout.as_secs_f32()),
        Kind::Unreachable(why) | Kind::Malformed(why) | Kind::Request(why) => why,
        _ => "no answer that can be read".to_owned(),
    };
    let agent = agent(None, timeout, &Tls::default());
    let request = ureq::http::Request::builder().uri(url).body(());
    let response = run(&agent, request, timeout).map_err(in_words)?;
    let status = response.status().as_u16();
    if status != 200 {
        return Err(format!("HTTP status {status}"));
    }
    let mut text = String::new();
    response
        .into_body()
        .into_reader()
        .take(TEXT_LIMIT_BYTES)
        .read_to_string(&mut text)
        .map_err(|error| in_words(describe_io(&error, timeout)))?;
    Ok(text)
}
