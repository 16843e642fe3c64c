//! Sends requests through ureq. This module has the settings of the client, and creates ureq's agent with our
//! time-outs, buffers, connections and TLS. A new agent is created when the trusted authorities or the client
//! certificate change. The module also decides when a failed read is tried again. After an API has refused a call's
//! credentials, the module asks the issuer of the credentials for newer ones.

use super::auth::{Credentials, Login, USER_AGENT};
use super::certificates::ClientIdentity;
use super::error::{HttpError, HttpErrorKind, describe_io, describe_transport};
use super::proxy::{Proxies, Tunnel};
use super::secret::{self, Secret};
use super::tls::{BUFFER_BYTES, Encrypt, READ_EVERY, Tls, TlsSource};
use super::transport::{Connect, Unresolved, hold_deadline};
use crate::provider::{Gate, clock, lock, waiting_for};
use crate::text::named;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use serde::Deserializer;
use serde::de::DeserializeOwned;
use std::io::Read;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use ureq::unversioned::transport::Connector;

/// How long a write may take, from the moment when the [`Gate`] allows the write until the last byte of the answer. The
/// daemon's gate allows a write only if the daemon's Lease is valid for longer than this time. So the write ends before
/// the Lease expires.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(8);

/// The settings from which a client is made.
pub struct HttpSettings {
    /// The scheme, host and path of the API without a trailing slash, e.g. `https://api.hetzner.cloud/v1`.
    pub base: String,
    pub tls: TlsSource,
    pub proxies: Proxies,
    pub login: Login,
    /// How long resolving the name, connecting and the TLS handshake may take together. This is real time, even when a
    /// test accelerates the clock.
    pub connect_timeout: Duration,
    pub timing: Timing,
    /// Says which failed reads the client sends again.
    pub retry: Retry,
    /// The longest body of an answer. A longer body is an error.
    pub body_limit_bytes: u64,
    /// The fields whose arrays nobody reads, each with its quotes and colon, e.g. `"images":`. They are removed from an
    /// answer before it is parsed.
    pub unread: &'static [&'static str],
    /// Whether the log also shows the beginning of each body. Otherwise the log has only one line for each call.
    pub log_bodies: bool,
    /// The [`Gate`], which is asked before every write whether the write is allowed.
    pub gate: Arc<dyn Gate>,
    /// A function that is called at each stage of every try. It gets the base URL, the method, the path after the base
    /// URL, and the stage.
    pub watch: fn(&str, Method, &str, TryStage),
}

/// Says which failed reads are sent again. Only failures after which another try may succeed are considered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    All,
    /// Reads are tried again, but not after a 429. This is for callers that keep account of the API's rate limit,
    /// because they must know of every 429 before the next request is sent. With `All`, a read is also tried again
    /// after a 429 with a short `Retry-After`.
    NotRateLimited,
    /// No read is tried again. This is for an API that allows only few calls, such as Robot.
    Never,
}

/// The two moments of one try of a call: its beginning and its end. The function [`HttpSettings::watch`] is called at
/// each of them.
#[derive(Clone, Copy, Debug)]
pub enum TryStage<'a> {
    /// The request is about to be sent.
    Begun,
    /// The API answered with this status, or the try failed for this reason. The second value is how long the try took
    /// in real time.
    Ended(Result<u16, &'a HttpErrorKind>, Duration),
}

/// How long calls may take, and how long the client waits before it tries a read again. Tests with an accelerated clock
/// shorten these times.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// How long a request that only reads may take, from its beginning to the last byte of the answer.
    pub read_timeout: Duration,
    /// How long a write may take. The value is [`WRITE_TIMEOUT`], except in tests and for writes of the leader
    /// election's Lease.
    pub write_timeout: Duration,
    /// The wait before the second try of a read. The wait doubles with each further try.
    pub retry_wait: Duration,
}

named! {
    Method {
        Get = "GET",
        Post = "POST",
        Put = "PUT",
        Patch = "PATCH",
        Delete = "DELETE",
    }
}

/// A function that gets a whole body and says whether the body has the same content as an earlier answer.
pub type IsKnown<'a> = dyn Fn(&[u8]) -> bool + 'a;

/// A way to parse an answer while it arrives. Each try of a call gets a copy of the parser.
pub trait Parse: Copy {
    type Value;

    fn parse<'de, D: Deserializer<'de>>(self, d: D) -> Result<Self::Value, D::Error>;
}

/// Parses an answer into any type that serde can deserialize.
impl<T: DeserializeOwned> Parse for PhantomData<T> {
    type Value = T;

    fn parse<'de, D: Deserializer<'de>>(self, d: D) -> Result<T, D::Error> {
        T::deserialize(d)
    }
}

/// The options of a read: which format the answer should have, whether an answer that equals an earlier one is parsed,
/// and how long the answer may be.
#[derive(Clone, Copy)]
pub struct Reading<'a> {
    /// The value of the header `Accept`, which says in which format the API should answer.
    pub accept: &'a str,
    /// A function that says whether a body has the same content as an earlier answer. If so, the body is not parsed,
    /// and the parser gets the JSON value `null` instead. The function is not called for bodies of 256 KiB or more.
    pub is_known: Option<&'a IsKnown<'a>>,
    /// How long the body probably is, in bytes. 0 means that nothing is known about its length.
    pub length: usize,
    /// The longest body that is read. `None` means that the client's limit applies.
    pub body_limit_bytes: Option<u64>,
}

impl Reading<'static> {
    /// The options for reading any JSON document. The document is always parsed, even if it equals an earlier answer.
    pub const JSON: Reading<'static> =
        Reading { accept: "application/json", is_known: None, length: 0, body_limit_bytes: None };
}

/// A request without its credentials.
pub(super) struct HttpCall<'a> {
    pub(super) method: Method,
    /// The part of the URL after the API's base URL, beginning with `/`: the path and the query.
    pub(super) path: &'a str,
    pub(super) reading: Reading<'a>,
    pub(super) content_type: &'a str,
    pub(super) body: Vec<u8>,
    /// The secrets in the body. Logs and errors must not contain them.
    pub(super) secrets: &'a [Secret],
}

impl Method {
    /// Returns the name of the HTTP method in lower case, as the labels of metrics have it.
    pub fn lower_name(self) -> String {
        self.name().to_ascii_lowercase()
    }
}

/// How many times one read is tried, including the first try.
const TRIES: u32 = 3;

/// The longest `Retry-After` that the client itself waits for before it tries again. When the API asks for a longer
/// wait, the client returns the error, and the caller decides.
const LONGEST_WAIT: Duration = Duration::from_secs(3);

/// Returns how long to wait before the next try of a read that was tried `tries` times. Returns `None` when the read
/// must not be tried again. `first` is the wait before the second try, and the wait doubles with each further try.
pub(super) fn wait_after(
    tries: u32,
    first: Duration,
    retry: Retry,
    error: &HttpError,
) -> Option<Duration> {
    if tries >= TRIES || !may_succeed_later(retry, error) {
        return None;
    }
    let asked = error.head.as_ref().and_then(|head| head.retry_after);
    let wait = asked.unwrap_or_else(|| jittered(first * 2_u32.pow(tries - 1)));
    Some(wait).filter(|wait| *wait <= LONGEST_WAIT)
}

/// Whether another try of a failed read may help. A call that timed out is not tried again, because it has taken long
/// enough. A call that the API refused would be refused again. After a 429, the read is tried again only if the answer
/// has a `Retry-After`. Without this header, the next try could be too early, and would use up a further call of the
/// API's rate limit.
fn may_succeed_later(retry: Retry, error: &HttpError) -> bool {
    let head = error.head.as_ref();
    match (&error.kind, error.status()) {
        _ if retry == Retry::Never => false,
        (HttpErrorKind::Unreachable(_) | HttpErrorKind::Malformed(_), _) => true,
        (_, Some(429)) => {
            retry == Retry::All && head.is_some_and(|head| head.retry_after.is_some())
        }
        (_, status) => status.is_some_and(|status| status >= 500),
    }
}

/// Returns a random time between half of `wait` and all of it, so that many clients do not try again at the
/// same moment.
fn jittered(wait: Duration) -> Duration {
    let share = 0.5 + (clock::random() as f64 / u64::MAX as f64) / 2.0;
    wait.mul_f64(share)
}

/// ureq's agent and the credentials, with which one call is made.
pub(super) struct Session {
    agent: ureq::Agent,
    pub(super) credentials: Credentials,
    /// The sequence number of ureq's agent. It grows by one each time a new agent is made.
    number: u64,
}

pub(super) struct Sessions(Mutex<Connections>);

struct Connections {
    source: TlsSource,
    agent: ureq::Agent,
    /// How often the TLS settings had changed when ureq's agent was made. When the TLS settings change again, or when
    /// the credentials have another client certificate, a new agent is made.
    changes: u64,
    identity: Option<ClientIdentity>,
    number: u64,
}

impl Sessions {
    pub(super) fn new(settings: &HttpSettings) -> Sessions {
        let source = settings.tls.clone();
        Sessions(Mutex::new(Connections {
            agent: api_agent(settings, &source.tls),
            changes: source.changes,
            identity: None,
            source,
            number: 0,
        }))
    }

    /// Returns ureq's agent and the credentials for the next call. The error is a message for the user.
    pub(super) fn current(&self, settings: &HttpSettings) -> Result<Session, String> {
        let credentials = settings.login.current()?;
        secret::remember(&credentials.secrets);
        let mut connections = lock(&self.0);
        connections.source.refresh(READ_EVERY);
        let changes = connections.source.changes;
        if changes != connections.changes || credentials.identity != connections.identity {
            let mut tls = connections.source.tls.clone();
            if credentials.identity.is_some() {
                tls.identity.clone_from(&credentials.identity);
            }
            // This drops the previous agent of ureq, and so closes its idle connections.
            connections.agent = api_agent(settings, &tls);
            connections.changes = changes;
            connections.identity.clone_from(&credentials.identity);
            connections.number += 1;
        }
        Ok(Session { agent: connections.agent.clone(), credentials, number: connections.number })
    }

    /// Called after a call with the session `used` (ureq's agent and the credentials) has failed. When old credentials
    /// or old TLS settings can be the cause, and newer ones exist, returns a session with the newer ones. Otherwise
    /// returns `None`.
    pub(super) fn newer(
        &self,
        settings: &HttpSettings,
        used: &Session,
        error: &HttpError,
    ) -> Option<Session> {
        let is_unauthorized = error.status() == Some(401);
        if !is_unauthorized
            && !matches!(error.kind, HttpErrorKind::Untrusted(_) | HttpErrorKind::Tls(_))
        {
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

/// How long an idle connection is kept. A connection that a controller needs periodically is used more often than this,
/// so it stays open. The Kubernetes API and Hetzner's APIs keep idle connections for longer than this time.
const IDLE: Duration = Duration::from_secs(60);

/// How many idle connections are kept at most. The number must not be smaller than the number of connections that are
/// used at the same time. Otherwise some connections would be closed after each write, and the next write would have to
/// connect again.
const IDLE_AT_MOST: usize = 100;

/// Makes ureq's agent for the API. `tls` are the current TLS settings.
fn api_agent(settings: &HttpSettings, tls: &Tls) -> ureq::Agent {
    let proxy = settings.proxies.tunnel(&settings.base, tls);
    agent(proxy, settings.connect_timeout, tls)
}

fn agent(proxy: Option<Tunnel>, connect_timeout: Duration, tls: &Tls) -> ureq::Agent {
    let config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        // The APIs never send redirects, but a proxy can send one. Following such a redirect would send the token to
        // another host.
        .max_redirects(0)
        // ureq's own support for proxies is switched off, because its rules differ from those of Go. The module `proxy`
        // implements Go's rules.
        .proxy(None)
        .user_agent(USER_AGENT)
        .input_buffer_size(BUFFER_BYTES)
        .output_buffer_size(BUFFER_BYTES)
        .max_idle_connections(IDLE_AT_MOST)
        .max_idle_connections_per_host(IDLE_AT_MOST)
        .max_idle_age(IDLE)
        .timeout_connect(Some(connect_timeout))
        .build();
    let connect = Connect { proxy, timeout: connect_timeout };
    let connector = connect.chain(Encrypt::new(tls));
    ureq::Agent::with_parts(config, connector, Unresolved)
}

pub(super) fn send(
    session: &Session,
    settings: &HttpSettings,
    call: &HttpCall,
    timeout: Duration,
) -> Result<ureq::http::Response<ureq::Body>, HttpErrorKind> {
    let url = format!("{}{}", settings.base, call.path);
    let mut request = ureq::http::Request::builder()
        .method(call.method.name())
        .uri(url)
        .header("Accept", call.reading.accept);
    if let Some(header) = &session.credentials.header {
        request = request.header("Authorization", header.expose());
    }
    let agent = &session.agent;
    // Requests without a body get no `Content-Type`. These are all reads and some DELETE requests.
    if call.body.is_empty() {
        run(agent, request.body(()), timeout)
    } else {
        let request = request.header("Content-Type", call.content_type);
        run(agent, request.body(&call.body[..]), timeout)
    }
}

fn run<B: ureq::AsSendBody>(
    agent: &ureq::Agent,
    request: Result<ureq::http::Request<B>, ureq::http::Error>,
    timeout: Duration,
) -> Result<ureq::http::Response<ureq::Body>, HttpErrorKind> {
    let request = request.map_err(|error| HttpErrorKind::Request(error.to_string()))?;
    let request = agent.configure_request(request);
    let sent = agent.run(request.timeout_global(Some(timeout)).build());
    sent.map_err(|error| describe_transport(&error, timeout))
}

/// The longest text that [`fetch_text`] reads, in bytes. The only use is Hetzner's metadata service, whose answers are
/// never longer.
const TEXT_LIMIT_BYTES: u64 = 64 * 1024;

/// Returns the body at an `http` URL. No proxy is used. The read takes no longer than `timeout`, which is real time.
/// The error says in one line why there is no body.
pub fn fetch_text(url: &str, timeout: Duration) -> Result<String, String> {
    let _held = hold_deadline(clock::now() + clock::from_machine(timeout));
    let _waiting = waiting_for(|| format!("GET {url}"));
    let in_words = |kind: HttpErrorKind| match kind {
        HttpErrorKind::TimedOut(_) => format!("no answer within {} s", timeout.as_secs_f32()),
        HttpErrorKind::Unreachable(why)
        | HttpErrorKind::Malformed(why)
        | HttpErrorKind::Request(why) => why,
        _ => "the answer can't be read".to_owned(),
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

/// The characters that are not escaped in a path segment or query value. All other characters are escaped.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Returns a text in percent-encoding, so that the text is one path segment or one query value of a URL.
pub fn percent_encoded(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, UNRESERVED)
}

#[cfg(test)]
mod tests {
    use super::super::error::Head;
    use super::*;

    fn status(status: u16, retry_after_s: Option<u64>) -> HttpError {
        let head =
            Head { status, retry_after: retry_after_s.map(Duration::from_secs), ..Head::default() };
        HttpError {
            call: String::new(),
            kind: HttpErrorKind::Status(Vec::new()),
            head: Some(Box::new(head)),
        }
    }

    #[test]
    fn reads_are_tried_again_only_when_that_may_help() {
        let broken = || HttpError::new(String::new(), HttpErrorKind::Unreachable("reset".into()));
        let cases: [(&str, HttpError, bool); 9] = [
            ("broken connection", broken(), true),
            ("cut-off", HttpError::new(String::new(), HttpErrorKind::Malformed("x".into())), true),
            (
                "time-out",
                HttpError::new(String::new(), HttpErrorKind::TimedOut(Duration::from_secs(1))),
                false,
            ),
            ("TLS", HttpError::new(String::new(), HttpErrorKind::Tls("x".into())), false),
            ("503", status(503, None), true),
            ("503 for a long time", status(503, Some(60)), false),
            ("429 without a word", status(429, None), false),
            ("429 for a second", status(429, Some(1)), true),
            ("404", status(404, None), false),
        ];
        for (name, error, expected) in cases {
            let next = wait_after(1, Duration::from_millis(1), Retry::All, &error);
            assert_eq!(next.is_some(), expected, "{name}");
        }
        for (retry, status_code, expected) in [
            (Retry::NotRateLimited, 429, false),
            (Retry::NotRateLimited, 503, true),
            (Retry::Never, 429, false),
            (Retry::Never, 503, false),
        ] {
            let error = status(status_code, Some(1));
            let next = wait_after(1, Duration::from_millis(1), retry, &error);
            assert_eq!(next.is_some(), expected, "{retry:?} {status_code}");
        }
    }

    #[test]
    fn tries_are_bounded() {
        let is_followed = |tries: &u32| {
            let wait = wait_after(*tries, Duration::from_millis(1), Retry::All, &status(500, None));
            wait.is_some()
        };
        let tries = 1 + (1..10).filter(is_followed).count();
        assert_eq!(tries, TRIES as usize);
    }
}
