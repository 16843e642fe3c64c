//! One blocking JSON client for both APIs.
//!
//! A request passes through layers that each do one thing: the gate (writes), the token,
//! the bytes (ureq), the log and the count, the answer's status, the streaming parse,
//! and, for reads only, the next try. Below ureq are our own connections: `connect` goes straight
//! or through a `proxy`, `tls` encrypts, and `socket` moves no byte after the call's `deadline`. Knows nothing of either API's objects or errors;
//! imports only `cloud`: the gate, and the pulse that beats after every call.

mod agent;
mod answer;
mod authorities;
mod connect;
mod deadline;
mod error;
mod identity;
mod proxy;
mod retry;
mod secret;
mod socket;
mod text;
mod tls;
mod token;
mod validity;

pub use agent::{Roots, Tls};
pub use answer::{Head, Reply};
pub use authorities::Authorities;
pub use error::{Error, Kind, shortened};
pub use identity::{Identity, IdentityError, parse_authorities};
pub use proxy::{Environment, Protocol, Proxies, Proxy};
pub use secret::{Redactor, Secret};
pub use text::fetch_text;
pub use token::Token;

use crate::cloud::{Gate, pulse};
use retry::{Attempts, Next};
use serde::Serialize;
use serde::de::DeserializeOwned;
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
    pub tls: Tls,
    pub proxies: Proxies,
    pub token: Token,
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
    agent: ureq::Agent,
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

/// One request, before the token is on it.
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
        let agent = agent::build(&settings);
        Client {
            agent,
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
        let mut token_renewed = false;
        loop {
            let token = self.token(&call)?;
            let deadline = Instant::now() + self.settings.timing.read_timeout;
            let error = match self.try_once(&call, token.as_ref(), deadline) {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            let refused = error.status() == Some(401) && !token_renewed;
            if refused && settings.token.has_other_than(token.as_ref()) {
                token_renewed = true;
                continue;
            }
            match attempts.next(&error) {
                Next::GiveUp => return Err(error),
                Next::TryAgain(wait) => {
                    log::debug!("{error}; trying again in {} ms", wait.as_millis());
                    std::thread::sleep(wait);
                }
            }
        }
    }

    /// Writes once: never repeated here, because an answer that got lost does not mean that
    /// nothing happened. (A 401 does mean that: the write is sent again with a newer token.)
    pub fn write<T: DeserializeOwned>(
        &self,
        gate: &dyn Gate,
        method: Method,
        path: &str,
        content_type: &str,
        body: &impl Serialize,
    ) -> Result<Reply<T>, Error> {
        let line = format!("{} {path}", method.name());
        let body = serde_json::to_vec(body)
            .map_err(|e| Error::new(self.url_line(method, path), Kind::Request(e.to_string())))?;
        let call = Call {
            method,
            path,
            accept: "application/json",
            content_type,
            body,
        };
        let send = |token: Option<&Secret>| {
            // From before the gate is asked: a process that was paused after it had passed
            // must not begin what can no longer end in time.
            let deadline = Instant::now() + self.settings.timing.write_timeout;
            let refused = |why| Error::new(self.url_line(method, path), Kind::Refused(why));
            gate.pass(&line).map_err(|why| refused(why.0))?;
            if Instant::now() >= deadline {
                return Err(refused("this process was paused just before".into()));
            }
            self.try_once(&call, token, deadline)
        };
        let token = self.token(&call)?;
        let outcome = send(token.as_ref());
        let refused = matches!(&outcome, Err(error) if error.status() == Some(401));
        if refused && self.settings.token.has_other_than(token.as_ref()) {
            return send(self.token(&call)?.as_ref());
        }
        outcome
    }

    /// The token to send with a call now.
    fn token(&self, call: &Call) -> Result<Option<Secret>, Error> {
        let line = || self.url_line(call.method, call.path);
        let token = self.settings.token.current();
        token.map_err(|why| Error::new(line(), Kind::Token(why)))
    }

    fn try_once<T: DeserializeOwned>(
        &self,
        call: &Call,
        token: Option<&Secret>,
        deadline: Instant,
    ) -> Result<Reply<T>, Error> {
        let line = self.url_line(call.method, call.path);
        self.calls.fetch_add(1, Ordering::Relaxed);
        let redactor = Redactor::new(token);
        if self.settings.log_bodies && !call.body.is_empty() {
            log::debug!("{line}: {}", answer::beginning(&call.body, &redactor));
        }
        let begun = Instant::now();
        // In whole milliseconds, which is how it is told; the deadline is what counts.
        let left_ms = deadline.saturating_duration_since(begun).as_secs_f64() * 1e3;
        let timeout = Duration::from_millis(left_ms.ceil() as u64);
        let _held = deadline::hold(deadline);
        let outcome = agent::send(&self.agent, &self.settings, call, token, timeout)
            .map_err(|kind| Error::new(line.clone(), kind))
            .and_then(|response| answer::read(response, &line, timeout, &self.settings, &redactor));
        pulse::beat();
        self.is_reached.fetch_or(outcome.is_ok(), Ordering::Relaxed);
        let took_ms = begun.elapsed().as_millis();
        match &outcome {
            Ok(reply) => log::debug!("{line}: {} in {took_ms} ms", reply.head.status),
            Err(error) => log::debug!("{error} (after {took_ms} ms)"),
        }
        outcome
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
}
