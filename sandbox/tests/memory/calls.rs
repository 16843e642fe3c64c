//! Helpers for tests of sandboxes whose APIs do not listen on sockets. They build the bytes of requests, pass them to
//! an API by a function call, and read the bytes of the answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sandbox::server::{Ending, Exchanged};
use sandbox::time::{Simulated, simulate};
use sandbox::{Builder, Half, Sandbox};
use serde_json::Value;

/// A sandbox whose APIs do not listen on sockets, together with its simulated clock.
pub struct Room {
    // Rust drops these fields from top to bottom. The time stays simulated until `_simulated` is dropped, so the
    // sandbox must be dropped before it.
    pub sandbox: Sandbox,
    pub nanoseconds: Arc<AtomicU64>,
    _simulated: Simulated,
}

/// The status and the JSON body of an answer. The body is null when it is not JSON.
pub type Answer = (u16, Value);

impl Room {
    pub fn new(builder: Builder) -> Room {
        let nanoseconds = Arc::new(AtomicU64::new(0));
        let simulated = simulate(nanoseconds.clone());
        Room { sandbox: builder.in_memory().start(), nanoseconds, _simulated: simulated }
    }

    pub fn pass(&self, duration: Duration) {
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap();
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// Sends the bytes of a request to the API `half`, and returns the answer. The server does not really wait: each
    /// wait moves the simulated clock forward.
    pub fn exchange(&self, half: Half, request: &[u8]) -> Exchanged {
        self.sandbox.exchange(half, request, &|duration| self.pass(duration))
    }

    pub fn hetzner(&self, method: &str, path: &str, body: &str) -> Answer {
        let token = &self.sandbox.projects().token;
        let request = request(method, &format!("/v1{path}"), token, "", body);
        document(&self.exchange(Half::Hetzner, &request))
    }

    pub fn kubernetes(&self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        let token = self.sandbox.account("ccm").unwrap().token;
        let request = request(method, path, &token, headers, body);
        document(&self.exchange(Half::Kubernetes, &request))
    }
}

/// Returns the bytes of a request. Each line of `headers` ends with `\r\n`.
pub fn request(method: &str, target: &str, token: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "{method} {target} HTTP/1.1\r\nHost: sandbox\r\nauthorization: Bearer {token}\r\n{headers}\
         content-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

pub fn document(exchanged: &Exchanged) -> Answer {
    assert_eq!(exchanged.ending, Ending::KeepAlive);
    let text = std::str::from_utf8(&exchanged.answer).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or_default())
}
