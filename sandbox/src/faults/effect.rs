//! The effects of a fault on a call, and the wrong answers that real APIs and proxies give.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::Delivery;
use crate::exchange::{Request, Response};
use crate::time;

/// Turns an answer into another answer.
pub type Change = Arc<dyn Fn(Response) -> Response + Send + Sync>;

/// A function that runs in the server's thread, while the client waits.
pub type Hook = Arc<dyn Fn(&Request) + Send + Sync>;

/// The effect on a call that a rule hits.
#[derive(Clone)]
pub enum Effect {
    /// The call waits before the handler runs.
    Slow(Duration),
    /// The call waits after the handler ran. A client with a shorter time-out gives up although the
    /// request took effect.
    SlowAnswer(Duration),
    /// The handler does not run, and the client gets this answer instead.
    Instead(Response),
    /// The handler runs, but the client gets this answer instead of the handler's.
    AfterAll(Response),
    /// The handler runs, and the client gets the answer that this function makes from the handler's answer.
    Changed(Change),
    /// The handler runs. The second half of its answer's body is missing, and `Content-Length` is that of
    /// the first half.
    Malformed,
    /// The handler does not run, and the connection is reset.
    Reset,
    /// The handler runs, and the connection ends without an answer.
    AnswerLost,
    /// The handler runs, and its answer is delivered in this way.
    Deliver(Delivery),
    /// A function of the test runs before the handler.
    Before(Hook),
    /// A function of the test runs after the handler, and before its answer is sent.
    After(Hook),
}

impl Effect {
    pub fn before(hook: impl Fn(&Request) + Send + Sync + 'static) -> Effect {
        Effect::Before(Arc::new(hook))
    }

    pub fn after(hook: impl Fn(&Request) + Send + Sync + 'static) -> Effect {
        Effect::After(Arc::new(hook))
    }

    pub fn changed(change: impl Fn(Response) -> Response + Send + Sync + 'static) -> Effect {
        Effect::Changed(Arc::new(change))
    }

    /// An error of the Hetzner Cloud API, e.g. with `(503, "maintenance", "…")`.
    pub fn hetzner_error(status: u16, code: &str, message: &str) -> Effect {
        Effect::Instead(hetzner_error(status, code, message))
    }

    /// The answer of the Hetzner Cloud API when the project has used up its rate limit. `RateLimit-Reset` is the time
    /// at which the whole limit is available again.
    pub fn hetzner_rate_limit() -> Effect {
        const LIMIT: i64 = 3600;
        let full_again = time::timestamp().as_second() + LIMIT;
        let refusal =
            hetzner_error(429, "rate_limit_exceeded", "limit of 3600 requests per hour reached")
                .with_header("RateLimit-Limit", LIMIT.to_string())
                .with_header("RateLimit-Remaining", "0")
                .with_header("RateLimit-Reset", full_again.to_string());
        Effect::Instead(refusal)
    }

    /// An error of Robot, e.g. with `(500, "INTERNAL_ERROR", "…")`. The call is counted neither as a login nor
    /// against a limit.
    pub fn robot_error(status: u16, code: &str, message: &str) -> Effect {
        let body = json!({"error": {"status": status, "code": code, "message": message}});
        Effect::Instead(Response::json(status, &body))
    }

    /// Robot's error for more than `max_request` requests within `interval_s` seconds.
    pub fn robot_rate_limit(max_request: u32, interval_s: u32) -> Effect {
        let body = json!({"error": {
            "status": 403, "code": "RATE_LIMIT_EXCEEDED", "message": "rate limit exceeded",
            "max_request": max_request, "interval": interval_s,
        }});
        Effect::Instead(Response::json(403, &body))
    }

    /// Robot's answer during maintenance, which is 503 with an HTML page. For a 503 without a
    /// body use [`Effect::Instead`].
    pub fn robot_maintenance() -> Effect {
        Effect::Instead(html(503, "503 Service Unavailable"))
    }

    /// A 403 of the proxy in front of Robot. The body is not JSON, and the cause is not a rate limit.
    pub fn robot_forbidden() -> Effect {
        Effect::Instead(html(403, "403 Forbidden"))
    }

    /// An error of the Kubernetes API, which is a `Status` object, e.g. with `(500, "InternalError", "…")`.
    pub fn kubernetes_status(code: u16, reason: &str, message: &str) -> Effect {
        Effect::Instead(kubernetes_status(code, reason, message))
    }

    /// The answer of an API server that is too busy (priority and fairness), which is 429 with
    /// `Retry-After` in seconds.
    pub fn kubernetes_busy(retry_after_seconds: u32) -> Effect {
        let message = "Too many requests, please try again later.";
        let refusal = kubernetes_status(429, "TooManyRequests", message)
            .with_header("Retry-After", retry_after_seconds.to_string());
        Effect::Instead(refusal)
    }

    /// A 404 of a proxy between client and API that does not know the path.
    pub fn proxy_not_found() -> Effect {
        Effect::Instead(html(404, "404 Not Found"))
    }

    /// The 504 in HTML of a gateway that stopped waiting for the answer. The request takes effect all the same.
    pub fn gateway_timeout() -> Effect {
        Effect::AfterAll(html(504, "504 Gateway Time-out"))
    }

    /// An answer of 200 with an HTML page where JSON is expected. The request takes effect.
    pub fn html() -> Effect {
        Effect::AfterAll(html(200, "Welcome"))
    }

    /// An answer of 200 with the JSON of another service. The request takes effect.
    pub fn other_json() -> Effect {
        Effect::AfterAll(Response::json(200, &json!({"status": "ok", "data": [1, 2, 3]})))
    }

    pub fn cut_off() -> Effect {
        Effect::Deliver(Delivery::CutOff)
    }

    pub fn cut_off_chunked() -> Effect {
        Effect::Deliver(Delivery::CutOffChunked)
    }

    pub fn chunked() -> Effect {
        Effect::Deliver(Delivery::Chunked)
    }

    pub fn drip(bytes: usize, pause: Duration) -> Effect {
        Effect::Deliver(Delivery::Drip { bytes, pause })
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Effect::Slow(delay) => write!(f, "slow {delay:?}"),
            Effect::SlowAnswer(delay) => write!(f, "slow answer {delay:?}"),
            Effect::Instead(response) => write!(f, "{} instead", response.status),
            Effect::AfterAll(response) => write!(f, "{} after all", response.status),
            Effect::Changed(_) => f.write_str("changed"),
            Effect::Malformed => f.write_str("malformed"),
            Effect::Reset => f.write_str("reset"),
            Effect::AnswerLost => f.write_str("answer lost"),
            Effect::Deliver(Delivery::Whole) => f.write_str("whole"),
            Effect::Deliver(Delivery::Chunked) => f.write_str("chunked"),
            Effect::Deliver(Delivery::Drip { .. }) => f.write_str("drip"),
            Effect::Deliver(Delivery::CutOff) => f.write_str("cut off"),
            Effect::Deliver(Delivery::CutOffChunked) => f.write_str("cut off, chunked"),
            Effect::Before(_) => f.write_str("hook before"),
            Effect::After(_) => f.write_str("hook after"),
        }
    }
}

impl fmt::Debug for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Returns the answer with the second half of its body cut off. The HTTP message itself is complete.
pub(super) fn malformed(mut response: Response) -> Response {
    response.body.truncate(response.body.len() / 2);
    if response.body.is_empty() {
        response.body = b"{".to_vec();
    }
    response
}

pub(super) fn hetzner_error(status: u16, code: &str, message: &str) -> Response {
    let body = json!({"error": {"code": code, "message": message, "details": null}});
    Response::json(status, &body).with_header("X-Correlation-Id", "5a4d0b0fa017f0de")
}

pub(super) fn kubernetes_status(code: u16, reason: &str, message: &str) -> Response {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    Response::json(code, &body)
}

pub(super) fn html(status: u16, title: &str) -> Response {
    Response {
        status,
        headers: vec![("Content-Type".into(), "text/html; charset=utf-8".into())],
        body: format!(
            "<!DOCTYPE html><html><head><title>{title}</title></head><body>{title}</body></html>\n"
        )
        .into(),
    }
}
