//! One blocking JSON client for both APIs.
//!
//! A request passes through layers that each do one thing: the gate (writes), the credentials (`auth`),
//! the bytes (`request`: ureq), the log and the count, the answer's status and the streaming parse (`answer`),
//! and, for reads only, the next try (`request`). Below ureq are our own connections: `transport` connects directly
//! or through a `proxy` and moves no byte after the call's deadline, and `tls` encrypts.
//! `secret` redacts. Knows nothing of either API's
//! objects or errors; imports only `text` and `provider`: the gate, the heartbeat after every call, and the two clocks.

mod answer;
mod auth;
mod certificates;
mod error;
mod proxy;
mod request;
mod secret;
mod tls;
mod transport;
mod tunnel;

pub use answer::Reply;
pub use auth::{Credentials, Issuer, Login, SecretCheck, SecretSource};
pub use certificates::{Authorities, Chain, Identity, Pem, read_file};
pub use error::{Error, Head, Kind, shortened};
pub use proxy::{Environment, Protocol, Proxies, Proxy};
pub use request::{
    IsKnown, Method, Parse, Reading, Retry, Settings, Stage, Timing, WRITE_TIMEOUT, fetch_text,
    percent_encoded,
};
pub use secret::{Secret, redact, without_known_secrets};
pub use tls::{Roots, Tls, TlsSource, without_tls};
pub use transport::apart;

use crate::provider::{Gate, Refused, clock, heartbeat, waiting_for};
use answer::Asked;
use request::{Call, Session, Sessions, wait_after};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use transport::{hold_deadline, is_deadline_over};

/// The question that a write asks the gate.
pub type Pass = fn(&(dyn Gate + 'static), &str) -> Result<(), Refused>;

/// A write, without its body.
#[derive(Clone, Copy)]
pub struct Write<'a> {
    /// [`Gate::pass`], or [`Gate::pass_at_end`] for what belongs to the end of the process.
    pub pass: Pass,
    pub method: Method,
    /// Path and query below the base, beginning with `/`.
    pub path: &'a str,
    /// The form of the body.
    pub content_type: &'a str,
    /// What the body holds of secrets. A body with secrets is not logged, and what is reported does not repeat them.
    pub secrets: &'a [Secret],
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

/// Reads of this thread in `work` end after this time of the machine, together and with their retries.
pub fn within<T>(limit: Duration, work: impl FnOnce() -> T) -> T {
    let _held = hold_deadline(clock::now() + clock::from_machine(limit));
    work()
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

    /// Reads a JSON document. Tried again, a few times, when that may help; see [`Retry`].
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<Reply<T>, Error> {
        self.get_parsed(path, Reading::JSON, PhantomData)
    }

    /// Reads a JSON document as `parse` says.
    pub fn get_parsed<P: Parse>(
        &self,
        path: &str,
        reading: Reading,
        parse: P,
    ) -> Result<Reply<P::Value>, Error> {
        let call = Call {
            method: Method::Get,
            path,
            reading,
            content_type: "",
            body: Vec::new(),
            secrets: &[],
        };
        let settings = &self.settings;
        let mut session = self.session(&call)?;
        // Every try together: for a person it is one call.
        let _waiting = waiting_for(|| self.url_line(call.method, path));
        let (mut is_renewed, mut tries) = (false, 0);
        loop {
            let deadline = clock::now() + settings.timing.read_timeout;
            let error = match self.try_once(&call, &session, deadline, parse) {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            if !is_renewed && let Some(newer) = self.sessions.newer(settings, &session, &error) {
                session = newer;
                is_renewed = true;
                continue;
            }
            tries += 1;
            let wait = wait_after(tries, settings.timing.retry_wait, settings.retry, &error);
            let Some(wait) = wait.filter(|_| !is_deadline_over()) else {
                return Err(error);
            };
            log::debug!("{error}; trying again in {} ms", wait.as_millis());
            clock::sleep(wait);
            session = self.session(&call)?;
        }
    }

    /// May a write still wait for what it started? See [`Gate::may_wait`].
    pub fn may_wait(&self) -> bool {
        self.settings.gate.may_wait()
    }

    /// Writes once, when the gate lets it pass: never repeated here, because an answer that got lost does not mean that
    /// nothing happened. (A 401 does mean that, and so does a server that was not trusted: then
    /// the write is sent again when there are newer credentials or authorities.)
    ///
    pub fn write<T: DeserializeOwned>(
        &self,
        write: Write,
        body: Option<&impl Serialize>,
    ) -> Result<Reply<T>, Error> {
        let (method, path) = (write.method, write.path);
        let line = format!("{} {path}", method.name());
        let body = body.map_or_else(|| Ok(Vec::new()), serde_json::to_vec);
        let body = body
            .map_err(|e| Error::new(self.url_line(method, path), Kind::Request(e.to_string())))?;
        let call = Call {
            method,
            path,
            reading: Reading::JSON,
            content_type: write.content_type,
            body,
            secrets: write.secrets,
        };
        let send = |session: &Session| {
            // From before the gate is asked: a process that was paused after it had passed
            // must not begin what can no longer end in time.
            let deadline = clock::now() + self.settings.timing.write_timeout;
            let refused = |why| Error::new(self.url_line(method, path), Kind::Refused(why));
            let _held = hold_deadline(deadline);
            (write.pass)(&*self.settings.gate, &line).map_err(|why| refused(why.0))?;
            if is_deadline_over() {
                return Err(refused("this process was paused just before".into()));
            }
            self.try_once(&call, session, deadline, PhantomData)
        };
        let session = self.session(&call)?;
        let _waiting = waiting_for(|| self.url_line(method, path));
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
        let _waiting = waiting_for(|| format!("credentials for {}", self.settings.base));
        let session = self.sessions.current(&self.settings);
        session.map_err(|why| Error::new(line(), Kind::Token(why)))
    }

    fn try_once<P: Parse>(
        &self,
        call: &Call,
        session: &Session,
        deadline: Instant,
        parse: P,
    ) -> Result<Reply<P::Value>, Error> {
        let line = self.url_line(call.method, call.path);
        self.calls.fetch_add(1, Ordering::Relaxed);
        let secrets = &[&session.credentials.secrets[..], call.secrets].concat();
        if self.settings.log_bodies && !call.body.is_empty() && call.secrets.is_empty() {
            log::debug!("{line}: {}", answer::beginning(&call.body, secrets));
        }
        (self.settings.watch)(call.method, call.path, Stage::Begun);
        let begun = clock::now();
        // In whole milliseconds of the machine, as it is reported; the deadline is what counts.
        let left = clock::to_machine(deadline.saturating_duration_since(begun));
        let timeout = Duration::from_millis((left.as_secs_f64() * 1e3).ceil() as u64);
        let _held = hold_deadline(deadline);
        let asked = Asked {
            line: &line,
            timeout,
            settings: &self.settings,
            reading: call.reading,
            secrets,
        };
        let outcome = request::send(session, &self.settings, call, timeout)
            .map_err(|kind| Error::new(line.clone(), kind))
            .and_then(|response| asked.read(response, parse))
            .map_err(|error| error.without_secrets(secrets));
        let ended = outcome.as_ref().map(|reply| reply.head.status);
        self.ended(call, &line, ended, clock::took(begun));
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
