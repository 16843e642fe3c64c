//! The call log: every request that has reached the sandbox, in order, and its answer.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::Half;
use crate::exchange::{Request, Response};
use crate::time;

/// One request and its answer.
#[derive(Clone, Debug)]
pub struct Call {
    /// The number of the call. The calls of a sandbox are numbered from 1 in the order in which their requests have
    /// arrived completely.
    pub sequence: u64,
    pub half: Half,
    pub method: String,
    pub path: String,
    pub query: Vec<(String, String)>,
    /// The headers of the request, with names in lower case. `authorization` is left out, because it contains a secret,
    /// and the program `sandbox` can print its calls.
    pub headers: Vec<(String, String)>,
    /// Who sent the request: the name that a test has given to the caller with [`CallLog::name_caller`], or else the
    /// kind of the caller's credential (`bearer`, `basic`, `certificate`, `other`, or `none`).
    pub caller: String,
    pub body: Arc<[u8]>,
    /// The status of the answer. `None` while the server still works on the call, and also when the call ended without
    /// an answer.
    pub status: Option<u16>,
    /// The length of the answer's body. It is the full length even when a simulated fault cut the body off.
    pub answer_bytes: usize,
    /// The names of the simulated faults that changed this call. `None` when no fault did.
    pub fault: Option<String>,
    pub started: Instant,
    /// How long the HTTP server worked on the call before it sent the answer, including simulated delays. `None` while
    /// the server still works on the call.
    pub duration: Option<Duration>,
}

impl Call {
    /// Whether the call can change something: its method is neither GET nor HEAD nor OPTIONS.
    pub fn is_write(&self) -> bool {
        is_write(&self.method)
    }

    /// Returns the value of the first query parameter with this name.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Returns the value of the first header with this name. `name` must be in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Returns the request's body as JSON, or `None` when the body is not JSON.
    pub fn json(&self) -> Option<serde_json::Value> {
        serde_json::from_slice(&self.body).ok()
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.half, self.caller, self.method, self.path)?;
        for (index, (name, value)) in self.query.iter().enumerate() {
            write!(f, "{}{name}={value}", if index == 0 { '?' } else { '&' })?;
        }
        match (self.status, self.duration) {
            (Some(status), _) => write!(f, " → {status}, {} bytes", self.answer_bytes)?,
            (None, Some(_)) => write!(f, " → no answer")?,
            (None, None) => {}
        }
        if let Some(duration) = self.duration {
            write!(f, ", {:.1} ms", duration.as_secs_f64() * 1000.0)?;
        }
        match &self.fault {
            Some(fault) => write!(f, " [{fault}]"),
            None => Ok(()),
        }
    }
}

pub(crate) fn is_write(method: &str) -> bool {
    !matches!(method, "GET" | "HEAD" | "OPTIONS")
}

/// The log of one sandbox. At most [`CallLog::MAX_CALLS`] calls are kept, and their bodies have at most
/// [`CallLog::MAX_BODY_BYTES`] bytes in total. The oldest calls are dropped first.
#[derive(Default)]
pub struct CallLog {
    state: Mutex<State>,
    watcher: Mutex<Option<Watcher>>,
}

type Watcher = Arc<dyn Fn(&Call) + Send + Sync>;

#[derive(Default)]
struct State {
    calls: VecDeque<Call>,
    body_bytes: usize,
    last: u64,
    /// The names that the log shows for callers. The key is the credential of a caller: a bearer token, or the DER of a
    /// certificate.
    callers: HashMap<Vec<u8>, String>,
}

impl CallLog {
    pub const MAX_CALLS: usize = 200_000;
    pub const MAX_BODY_BYTES: usize = 256 << 20;

    /// Returns all calls in the log, oldest first. The oldest calls are missing when there were more calls than the log
    /// can hold.
    pub fn calls(&self) -> Vec<Call> {
        self.calls_since(0)
    }

    /// Returns the number of the last call. [`calls_since`](CallLog::calls_since) takes this number and
    /// returns the later calls.
    pub fn mark(&self) -> u64 {
        self.state().last
    }

    /// Returns the calls that came after `mark`, which is a number from [`mark`](CallLog::mark).
    pub fn calls_since(&self, mark: u64) -> Vec<Call> {
        let state = self.state();
        let from = state.calls.partition_point(|call| call.sequence <= mark);
        state.calls.range(from..).cloned().collect()
    }

    /// Returns the number of calls in the log for which `such` returns true.
    pub fn count(&self, such: impl Fn(&Call) -> bool) -> usize {
        self.state().calls.iter().filter(|call| such(call)).count()
    }

    /// Forgets all calls. The numbers of later calls continue from the last call.
    pub fn clear(&self) {
        let mut state = self.state();
        state.calls.clear();
        state.body_bytes = 0;
    }

    /// Makes the log show `name` as the caller of all calls with `credential`, which is a bearer token or the DER of a
    /// client certificate.
    pub fn name_caller(&self, credential: impl Into<Vec<u8>>, name: &str) {
        self.state().callers.insert(credential.into(), name.to_owned());
    }

    /// Calls `watcher` with each call that has ended, in the thread that served the call.
    pub fn watch(&self, watcher: impl Fn(&Call) + Send + Sync + 'static) {
        *self.watcher.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(watcher));
    }

    /// Adds a request that has just arrived to the log. `half` is the simulated API that received the request, and
    /// `fault` contains the names of the simulated faults that will change this call. Returns the call's number, which
    /// [`end`](CallLog::end) needs later.
    pub(crate) fn begin(&self, half: Half, request: &Request, fault: Option<String>) -> u64 {
        let mut state = self.state();
        state.last += 1;
        let call = Call {
            sequence: state.last,
            half,
            method: request.method.clone(),
            path: request.path.clone(),
            query: request.query.clone(),
            headers: request
                .headers
                .iter()
                .filter(|(name, _)| name != "authorization")
                .cloned()
                .collect(),
            caller: state.caller(request),
            body: request.body.as_slice().into(),
            status: None,
            answer_bytes: 0,
            fault,
            started: time::now(),
            duration: None,
        };
        state.push(call);
        state.last
    }

    /// Adds the answer of a call to the call's entry in the log. `response` is `None` when no answer is sent.
    pub(crate) fn end(&self, sequence: u64, response: Option<&Response>) {
        let watcher = self.watcher.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let ended = {
            let mut state = self.state();
            // The calls in the log have consecutive numbers. The index of a call in the list is therefore its number
            // minus the number of the first call.
            let first = state.calls.front().map_or(0, |call| call.sequence);
            let place = sequence.checked_sub(first).and_then(|place| usize::try_from(place).ok());
            let Some(call) = place.and_then(|place| state.calls.get_mut(place)) else {
                return;
            };
            call.duration = Some(time::since(call.started));
            call.status = response.map(|response| response.status);
            call.answer_bytes = response.map_or(0, |response| response.body.len());
            watcher.map(|watcher| (watcher, call.clone()))
        };
        if let Some((watcher, call)) = ended {
            watcher(&call);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn push(&mut self, call: Call) {
        self.body_bytes += call.body.len();
        self.calls.push_back(call);
        while self.calls.len() > CallLog::MAX_CALLS || self.body_bytes > CallLog::MAX_BODY_BYTES {
            let Some(oldest) = self.calls.pop_front() else {
                return;
            };
            self.body_bytes -= oldest.body.len();
        }
    }

    fn caller(&self, request: &Request) -> String {
        let named = |credential: &[u8], kind: &str| {
            self.callers.get(credential).cloned().unwrap_or_else(|| kind.to_owned())
        };
        match (request.header("authorization"), &request.client_certificate) {
            (Some(value), _) => match value.split_once(' ') {
                Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => {
                    named(token.trim().as_bytes(), "bearer")
                }
                Some((scheme, _)) if scheme.eq_ignore_ascii_case("basic") => "basic".into(),
                _ => "other".into(),
            },
            (None, Some(certificate)) => named(certificate, "certificate"),
            (None, None) => "none".into(),
        }
    }
}
