//! One blocking JSON client, which is used for the Kubernetes API and for Hetzner's APIs.
//!
//! A call passes through layers that each do one thing. The `Gate` allows or refuses a write. `auth` adds the
//! credentials. `request` sends the request with ureq. Each request is logged and counted. `answer` checks the status
//! and parses the body while it arrives. Finally, a failed read can be tried again, which `request` decides. ureq uses
//! our own connections: `transport` connects directly or through a `proxy` and enforces the call's deadline, and `tls`
//! encrypts. `secret` redacts secrets in all output.
//!
//! This module knows nothing of the objects or errors of an API. It imports only `text` and `provider`. From `provider`
//! it needs the `Gate`, the clocks, and the heartbeat. The heartbeat is updated after every call, which shows that the
//! thread does not hang.

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
mod unread;

pub use answer::Reply;
pub use auth::{Credentials, Issuer, Login, SecretCheck, SecretSource};
pub use certificates::{Authorities, Chain, ClientIdentity, Pem, read_file};
pub use error::{Head, HttpError, HttpErrorKind, shortened};
pub use proxy::{Proxies, Proxy, ProxyEnvironment, ProxyScheme};
pub use request::{
    HttpSettings, IsKnown, Method, Parse, Reading, Retry, Timing, TryStage, WRITE_TIMEOUT,
    fetch_text, percent_encoded,
};
pub use secret::{Secret, redact, without_known_secrets};
pub use tls::{Roots, Tls, TlsSource, without_tls};
pub use transport::apart;

use crate::provider::{Gate, Refused, clock, heartbeat, waiting_for};
use answer::SentRequest;
use request::{HttpCall, Session, Sessions, wait_after};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use transport::{hold_deadline, is_deadline_over};

/// The function that is called before a write, and that allows or refuses the write. It is one of the methods of
/// [`Gate`].
pub type Pass = fn(&(dyn Gate + 'static), &str) -> Result<(), Refused>;

/// The parameters of a write, except its body.
#[derive(Clone, Copy)]
pub struct HttpWrite<'a> {
    /// The method of [`Gate`], the check before each write, that is called before this write. It is
    /// [`Gate::pass_at_end`] for an event or for the release of the Lease, which are allowed while the process ends.
    /// For every other write it is [`Gate::pass`].
    pub pass: Pass,
    pub method: Method,
    /// The path and query of the URL, beginning with `/`. In the URL, this text stands after the API's base URL.
    pub path: &'a str,
    /// The content type of the body.
    pub content_type: &'a str,
    /// The secrets in the body. A body with secrets is not logged, and errors do not repeat the secrets.
    pub secrets: &'a [Secret],
}

/// A client of one API. All threads share the client.
pub struct HttpClient {
    sessions: Sessions,
    settings: HttpSettings,
    /// How many requests were made so far. Each try of a call counts as a request.
    calls: AtomicU64,
    /// Whether at least one call has succeeded since the client was created.
    is_reached: AtomicBool,
}

/// What the client stores about one read while it is tried again: the credentials of the next try, and how many tries
/// have failed.
struct Tries {
    session: Session,
    /// Whether the next try uses credentials or trusted authorities that were renewed after an error. They are renewed
    /// once in each call.
    is_renewed: bool,
    /// How many tries of this read have failed. A try is not counted when it is repeated with newer credentials or
    /// newer trusted authorities.
    count: u32,
}

/// Runs `work` with a time limit in real time, even when a test accelerates the clock. Reads that this thread makes in
/// `work` end at the limit and are then not tried again.
pub fn within<T>(limit: Duration, work: impl FnOnce() -> T) -> T {
    let _held = hold_deadline(clock::now() + clock::from_machine(limit));
    work()
}

impl HttpClient {
    pub fn new(settings: HttpSettings) -> HttpClient {
        HttpClient {
            sessions: Sessions::new(&settings),
            settings,
            calls: AtomicU64::new(0),
            is_reached: AtomicBool::new(false),
        }
    }

    /// Returns the base URL of the API: scheme, host and path.
    pub fn base(&self) -> &str {
        &self.settings.base
    }

    /// Returns how many requests were made so far. Each try of a call counts as a request.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Whether a call has succeeded since this client was created. If so, the address, the trusted authorities and the
    /// credentials are right.
    pub fn is_reached(&self) -> bool {
        self.is_reached.load(Ordering::Relaxed)
    }

    /// Reads a JSON document. The read is tried again a few times when that may help; see [`Retry`].
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<Reply<T>, HttpError> {
        self.get_parsed(path, Reading::JSON, PhantomData)
    }

    /// Reads a JSON document. `parse` turns the answer into a value.
    pub fn get_parsed<P: Parse>(
        &self,
        path: &str,
        reading: Reading,
        parse: P,
    ) -> Result<Reply<P::Value>, HttpError> {
        let call = HttpCall {
            method: Method::Get,
            path,
            reading,
            content_type: "",
            body: Vec::new(),
            secrets: &[],
        };
        let mut tries = Tries { session: self.session(&call)?, is_renewed: false, count: 0 };
        // A command can show its user for which API call it waits at present. It shows this call as long as `_waiting`
        // exists, so all tries of the call are shown as one wait.
        let _waiting = waiting_for(|| self.url_line(call.method, path));
        loop {
            let deadline = clock::now() + self.settings.timing.read_timeout;
            match self.try_once(&call, &tries.session, deadline, parse) {
                Ok(reply) => return Ok(reply),
                Err(error) => self.prepare_next(&mut tries, &call, error)?,
            }
        }
    }

    /// Called after a try of a read has failed with `error`. Waits until the read can be tried again. Returns the error
    /// when the read must not be tried again, e.g. because it was tried often enough.
    fn prepare_next(
        &self,
        tries: &mut Tries,
        call: &HttpCall,
        error: HttpError,
    ) -> Result<(), HttpError> {
        let settings = &self.settings;
        if !tries.is_renewed
            && let Some(newer) = self.sessions.newer(settings, &tries.session, &error)
        {
            tries.session = newer;
            tries.is_renewed = true;
            return Ok(());
        }
        tries.count += 1;
        let wait = wait_after(tries.count, settings.timing.retry_wait, settings.retry, &error);
        let Some(wait) = wait.filter(|_| !is_deadline_over()) else {
            return Err(error);
        };
        log::debug!("{error}; ccm tries again in {} ms", wait.as_millis());
        clock::sleep(wait);
        tries.session = self.session(call)?;
        Ok(())
    }

    /// Whether a caller should wait until the cloud has completed an action that a write has started. The result is
    /// `false` when the process must end, see [`Gate::may_wait`].
    pub fn may_wait(&self) -> bool {
        self.settings.gate.may_wait()
    }

    /// Sends a write once, if the [`Gate`] allows the write. A write that failed is usually not sent again, because it
    /// is not known whether the API has executed it. After a 401, or when the server's certificate is not trusted, the
    /// write was certainly not executed. It is then sent once more if there are newer credentials or authorities.
    pub fn write<T: DeserializeOwned>(
        &self,
        write: HttpWrite,
        body: Option<&impl Serialize>,
    ) -> Result<Reply<T>, HttpError> {
        let (method, path) = (write.method, write.path);
        let line = format!("{} {path}", method.name());
        let body = body.map_or_else(|| Ok(Vec::new()), serde_json::to_vec);
        let body = body.map_err(|e| {
            HttpError::new(self.url_line(method, path), HttpErrorKind::Request(e.to_string()))
        })?;
        let call = HttpCall {
            method,
            path,
            reading: Reading::JSON,
            content_type: write.content_type,
            body,
            secrets: write.secrets,
        };
        let send = |session: &Session| {
            // The deadline is set before the [`Gate`] is asked whether the write is allowed. If the process is paused
            // just after the gate has allowed the write, the deadline can pass during the pause. A write that can no
            // longer end in time is then not begun.
            let deadline = clock::now() + self.settings.timing.write_timeout;
            let refused =
                |why| HttpError::new(self.url_line(method, path), HttpErrorKind::Refused(why));
            let _held = hold_deadline(deadline);
            (write.pass)(&*self.settings.gate, &line).map_err(|why| refused(why.0))?;
            if is_deadline_over() {
                return Err(refused(
                    "this process was paused, and the time limit of this write has passed".into(),
                ));
            }
            self.try_once(&call, session, deadline, PhantomData)
        };
        let session = self.session(&call)?;
        let _waiting = waiting_for(|| self.url_line(method, path));
        let outcome = send(&session);
        if let Err(error) = &outcome
            && (error.status() == Some(401) || matches!(error.kind, HttpErrorKind::Untrusted(_)))
            && let Some(newer) = self.sessions.newer(&self.settings, &session, error)
        {
            return send(&newer);
        }
        outcome
    }

    /// Returns ureq's agent and the credentials for the next call.
    fn session(&self, call: &HttpCall) -> Result<Session, HttpError> {
        let line = || self.url_line(call.method, call.path);
        // A command can show its user that it waits for the credentials, as long as `_waiting` exists. This wait can be
        // long, because the kubeconfig can name a program that must run to get the credentials.
        let _waiting = waiting_for(|| format!("credentials for {}", self.settings.base));
        let session = self.sessions.current(&self.settings);
        session.map_err(|why| HttpError::new(line(), HttpErrorKind::Token(why)))
    }

    fn try_once<P: Parse>(
        &self,
        call: &HttpCall,
        session: &Session,
        deadline: Instant,
        parse: P,
    ) -> Result<Reply<P::Value>, HttpError> {
        let line = self.url_line(call.method, call.path);
        self.calls.fetch_add(1, Ordering::Relaxed);
        let secrets = &[&session.credentials.secrets[..], call.secrets].concat();
        if self.settings.log_bodies && !call.body.is_empty() && call.secrets.is_empty() {
            log::debug!("{line}: {}", answer::beginning(&call.body, secrets));
        }
        self.watch(call, TryStage::Begun);
        let begun = clock::now();
        // ureq needs the time-out in real time, and a test can accelerate the program's clock. The time-out is rounded
        // up to whole milliseconds, because error messages show it. The call is nevertheless ended exactly at the
        // deadline, by `hold_deadline`.
        let left = clock::to_machine(deadline.saturating_duration_since(begun));
        let timeout = Duration::from_millis((left.as_secs_f64() * 1e3).ceil() as u64);
        let _held = hold_deadline(deadline);
        let asked = SentRequest {
            line: &line,
            timeout,
            settings: &self.settings,
            reading: call.reading,
            secrets,
        };
        let outcome = request::send(session, &self.settings, call, timeout)
            .map_err(|kind| HttpError::new(line.clone(), kind))
            .and_then(|response| asked.read(response, parse))
            .map_err(|error| error.without_secrets(secrets));
        let ended = outcome.as_ref().map(|reply| reply.head.status);
        self.ended(call, &line, ended, clock::took(begun));
        outcome
    }

    /// Called when a request has ended, with success or with an error. Updates the heartbeat, which shows that the
    /// thread does not hang, writes a log line, and calls the function [`HttpSettings::watch`].
    fn ended(&self, call: &HttpCall, line: &str, outcome: Result<u16, &HttpError>, took: Duration) {
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
        self.watch(call, TryStage::Ended(answered, took));
    }

    fn watch(&self, call: &HttpCall, stage: TryStage) {
        (self.settings.watch)(self.base(), call.method, call.path, stage);
    }

    fn url_line(&self, method: Method, path: &str) -> String {
        format!("{} {}{path}", method.name(), self.settings.base)
    }
}
