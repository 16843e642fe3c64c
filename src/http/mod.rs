//! One blocking JSON client for both APIs.
//!
//! A request passes through layers that each do one thing: the gate (writes), the credentials,
//! the bytes (ureq), the log and the count, the answer's status, the streaming parse,
//! and, for reads only, the next try. Below ureq are our own connections: `connect` goes straight
//! or through a `proxy`, `tls` encrypts, and `socket` moves no byte after the call's `deadline`.
//! `waiting` notes which calls go on, for a person who waits. Knows nothing of either API's
//! objects or errors; imports only `cloud`: the gate, the heartbeat that beats after every call, and the two clocks.

mod agent;
mod answer;
mod authorities;
mod connect;
mod deadline;
mod error;
mod identity;
mod login;
mod proxy;
mod retry;
mod rotation;
mod secret;
mod server_name;
mod session;
mod socket;
mod text;
mod tls;
mod token;
mod validity;
mod waiting;

pub use agent::{Roots, Tls};
pub use answer::{Head, Reply};
pub use authorities::Authorities;
pub use error::{Error, Kind, shortened};
pub use identity::{Identity, IdentityError, parse_authorities};
pub use login::{Issued, Issuer, Login};
pub use proxy::{Environment, Protocol, Proxies, Proxy};
pub use rotation::TlsSource;
pub use secret::{Redactor, Secret, without_known_secrets};
pub use server_name::ServerName;
pub use text::fetch_text;
pub use token::Token;
pub use waiting::{Open, longest_wait, note_waits};

use crate::provider::{Gate, heartbeat};
use retry::{Attempts, Next};
use serde::Serialize;
use serde::de::DeserializeOwned;
use session::{Session, Sessions};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a write may take from the gate's word to the last byte of the answer, outside of
/// tests; the gate must know it, so it is the same for every write.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(8);

const USER_AGENT: &str = concat!("ccm-from-scratch/", env!("CARGO_PKG_VERSION"));

/// What a client is made from.
pub struct Settings {
    /// Scheme, host and path without a trailing slash, e.g. `https://api.hetzner.cloud/v1`.
    pub base: String,
    pub tls: TlsSource,
    pub proxies: Proxies,
    pub login: Login,
    /// Resolving, connecting and TLS together.
    pub connect_timeout: Duration,
    pub timing: Timing,
    /// A read that was answered 429 with a short `Retry-After` is tried again here. False where
    /// the caller keeps a budget, which must hear of every 429 before anything else is sent.
    pub retry_rate_limited: bool,
    /// An answer's body; a longer one is an error.
    pub body_limit_bytes: u64,
    /// Also log the bodies (their beginning), not only the lines.
    pub log_bodies: bool,
    /// Told of every try: its method, its path below the base, and how far it is.
    pub watch: fn(Method, &str, Stage),
}

/// How far a try is.
#[derive(Clone, Copy, Debug)]
pub enum Stage<'a> {
    /// Its bytes are about to leave.
    Begun,
    /// It was answered with this status, or not at all, after this time.
    Ended(Result<u16, &'a Kind>, Duration),
}

/// How long calls may take, and how long to wait between two tries of a read.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// A read from its first byte to the last of the answer.
    pub read_timeout: Duration,
    /// [`WRITE_TIMEOUT`], or what a test makes of it.
    pub write_timeout: Duration,
    /// Before the second try; doubles with each.
    pub retry_wait: Duration,
}

/// A client of one API. Shared by all threads.
pub struct Client {
    sessions: Sessions,
    settings: Settings,
    /// Every try counted.
    calls: AtomicU64,
    /// A call was answered with what was asked for.
    is_reached: AtomicBool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

/// One request, before the credentials are on it.
struct Call<'a> {
    method: Method,
    /// Path and query below the base, beginning with `/`.
    path: &'a str,
    accept: &'a str,
    content_type: &'a str,
    body: Vec<u8>,
}

impl Client {
    pub fn new(settings: Settings) -> Client {
        Client {
            sessions: Sessions::new(&settings),
            settings,
            calls: AtomicU64::new(0),
            is_reached: AtomicBool::new(false),
        }
    }

    /// Scheme, host and path of the API.
    pub fn base(&self) -> &str {
        &self.settings.base
    }

    /// Calls made so far, every try counted.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// A call has succeeded since the start: address, trust and credentials are right.
    pub fn is_reached(&self) -> bool {
        self.is_reached.load(Ordering::Relaxed)
    }

    /// Reads a JSON document. Tried again, a few times, when that may help.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<Reply<T>, Error> {
        self.get_as(path, "application/json")
    }

    /// The same, in the form that `Accept` names.
    pub fn get_as<T: DeserializeOwned>(&self, path: &str, accept: &str) -> Result<Reply<T>, Error> {
        let call = Call {
            method: Method::Get,
            path,
            accept,
            content_type: "",
            body: Vec::new(),
        };
        let settings = &self.settings;
        let mut attempts = Attempts::new(settings.timing.retry_wait, settings.retry_rate_limited);
        let mut session = self.session(&call)?;
        // Every try together: for a person it is one call.
        let _waiting = waiting::on(|| self.url_line(call.method, path));
        let mut is_renewed = false;
        loop {
            let deadline = Instant::now() + settings.timing.read_timeout;
            let error = match self.try_once(&call, &session, deadline) {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            if !is_renewed && let Some(newer) = self.sessions.newer(settings, &session, &error) {
                session = newer;
                is_renewed = true;
                continue;
            }
            match attempts.next(&error) {
                Next::GiveUp => return Err(error),
                Next::TryAgain(wait) => {
                    log::debug!("{error}; trying again in {} ms", wait.as_millis());
                    std::thread::sleep(wait);
                    session = self.session(&call)?;
                }
            }
        }
    }

    /// Writes once: never repeated here, because an answer that got lost does not mean that
    /// nothing happened. (A 401 does mean that, and so does a server that was not trusted: then
    /// the write is sent again when there are newer credentials or authorities.)
    pub fn write<T: DeserializeOwned>(
        &self,
        gate: &dyn Gate,
        method: Method,
        path: &str,
        content_type: &str,
        body: Option<&impl Serialize>,
    ) -> Result<Reply<T>, Error> {
        let line = format!("{} {path}", method.name());
        let body = body.map_or_else(|| Ok(Vec::new()), serde_json::to_vec);
        let body = body
            .map_err(|e| Error::new(self.url_line(method, path), Kind::Request(e.to_string())))?;
        let call = Call {
            method,
            path,
            accept: "application/json",
            content_type,
            body,
        };
        let send = |session: &Session| {
            // From before the gate is asked: a process that was paused after it had passed
            // must not begin what can no longer end in time.
            let deadline = Instant::now() + self.settings.timing.write_timeout;
            let refused = |why| Error::new(self.url_line(method, path), Kind::Refused(why));
            let _held = deadline::hold(deadline);
            gate.pass(&line).map_err(|why| refused(why.0))?;
            if deadline::is_over() {
                return Err(refused("this process was paused just before".into()));
            }
            self.try_once(&call, session, deadline)
        };
        let session = self.session(&call)?;
        let _waiting = waiting::on(|| self.url_line(method, path));
        let outcome = send(&session);
        if let Err(error) = &outcome
            && (error.status() == Some(401) || matches!(error.kind, Kind::Untrusted(_)))
            && let Some(newer) = self.sessions.newer(&self.settings, &session, error)
        {
            return send(&newer);
        }
        outcome
    }

    /// What to make a call with now.
    fn session(&self, call: &Call) -> Result<Session, Error> {
        let line = || self.url_line(call.method, call.path);
        // A program of the kubeconfig may have to hand them out.
        let _waiting = waiting::on(|| format!("credentials for {}", self.settings.base));
        let session = self.sessions.current(&self.settings);
        session.map_err(|why| Error::new(line(), Kind::Token(why)))
    }

    fn try_once<T: DeserializeOwned>(
        &self,
        call: &Call,
        session: &Session,
        deadline: Instant,
    ) -> Result<Reply<T>, Error> {
        let line = self.url_line(call.method, call.path);
        self.calls.fetch_add(1, Ordering::Relaxed);
        let redactor = Redactor::new(&session.shown.secrets);
        if self.settings.log_bodies && !call.body.is_empty() {
            log::debug!("{line}: {}", answer::beginning(&call.body, &redactor));
        }
        (self.settings.watch)(call.method, call.path, Stage::Begun);
        let begun = Instant::now();
        // In whole milliseconds, which is how it is told; the deadline is what counts.
        let left_ms = deadline.saturating_duration_since(begun).as_secs_f64() * 1e3;
        let timeout = Duration::from_millis(left_ms.ceil() as u64);
        let _held = deadline::hold(deadline);
        let outcome = agent::send(session, &self.settings, call, timeout)
            .map_err(|kind| Error::new(line.clone(), kind))
            .and_then(|response| answer::read(response, &line, timeout, &self.settings, &redactor))
            .map_err(|error| error.without_secrets(&redactor));
        let ended = outcome.as_ref().map(|reply| reply.head.status);
        self.ended(call, &line, ended, begun.elapsed());
        outcome
    }

    /// What there is to do after every try, whatever was asked for.
    fn ended(&self, call: &Call, line: &str, outcome: Result<u16, &Error>, took: Duration) {
        heartbeat::beat();
        self.is_reached.fetch_or(outcome.is_ok(), Ordering::Relaxed);
        let took_ms = took.as_millis();
        match outcome {
            Ok(status) => log::debug!("{line}: {status} in {took_ms} ms"),
            Err(error) => log::debug!("{error} (after {took_ms} ms)"),
        }
        let answered = outcome.or_else(|error| match &error.head {
            Some(head) => Ok(head.status),
            None => Err(&error.kind),
        });
        (self.settings.watch)(call.method, call.path, Stage::Ended(answered, took));
    }

    fn url_line(&self, method: Method, path: &str) -> String {
        format!("{} {}{path}", method.name(), self.settings.base)
    }
}

impl Method {
    pub fn name(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Patch => "PATCH",
            Method::Delete => "DELETE",
        }
    }

    /// As metrics have it.
    pub fn lower_name(self) -> &'static str {
        match self {
            Method::Get => "get",
            Method::Post => "post",
            Method::Put => "put",
            Method::Patch => "patch",
            Method::Delete => "delete",
        }
    }
}
