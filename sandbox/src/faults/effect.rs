//! The effects that a fault can have on an API call. Some of them imitate wrong answers that real APIs and proxies
//! give.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::Delivery;
use crate::exchange::{Request, Response};
use crate::time;

/// A function that gets the answer of the simulated API, and returns the answer that the client gets instead.
pub type Change = Arc<dyn Fn(Response) -> Response + Send + Sync>;

/// A function that a test wants to be called during an API call. It runs in a thread of the HTTP server, and the client
/// waits for it.
pub type Hook = Arc<dyn Fn(&Request) + Send + Sync>;

/// What a fault does to an API call.
#[derive(Clone)]
pub enum Effect {
    /// The simulated API handles the request only after this time.
    Slow(Duration),
    /// The simulated API handles the request at once, but the answer is sent only after this time. A client with a
    /// shorter time-out gives up although the request took effect.
    SlowAnswer(Duration),
    /// The simulated API does not handle the request. The client gets this answer.
    Instead(Response),
    /// The simulated API handles the request, so that it takes effect. The client gets this answer instead of the one
    /// from the API.
    AfterAll(Response),
    /// The simulated API handles the request. This function gets the answer of the API, and the client gets the answer
    /// that the function returns.
    Changed(Change),
    /// The simulated API handles the request, but the second half of the answer's body is missing. `Content-Length` is
    /// the length of the first half.
    Malformed,
    /// The simulated API does not handle the request, and the connection is reset.
    Reset,
    /// The simulated API handles the request, but the connection ends without an answer.
    AnswerLost,
    /// The simulated API handles the request. The `Delivery` says how the answer is sent, e.g. in chunks.
    Deliver(Delivery),
    /// This function is called before the simulated API handles the request.
    Before(Hook),
    /// This function is called after the simulated API has handled the request, and before the answer is sent.
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

    /// Returns an effect that answers with an error of the Hetzner Cloud API, e.g. `(503, "maintenance", "…")`. The
    /// request does not take effect.
    pub fn hetzner_error(status: u16, code: &str, message: &str) -> Effect {
        Effect::Instead(hetzner_error(status, code, message))
    }

    /// Returns an effect that answers as the Hetzner Cloud API does when a project has used up its rate limit. The
    /// header `RateLimit-Reset` contains the time at which the whole limit is available again.
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

    /// Returns an effect that answers with an error of Robot, e.g. `(500, "INTERNAL_ERROR", "…")`. The request does not
    /// reach the simulated Robot, so Robot does not count it for its rate limits, and does not check its user and
    /// password.
    pub fn robot_error(status: u16, code: &str, message: &str) -> Effect {
        let body = json!({"error": {"status": status, "code": code, "message": message}});
        Effect::Instead(Response::json(status, &body))
    }

    /// Returns an effect that answers with Robot's rate limit error, which says that a client has sent more than
    /// `max_request` requests within `interval_s` seconds.
    pub fn robot_rate_limit(max_request: u32, interval_s: u32) -> Effect {
        let body = json!({"error": {
            "status": 403, "code": "RATE_LIMIT_EXCEEDED", "message": "rate limit exceeded",
            "max_request": max_request, "interval": interval_s,
        }});
        Effect::Instead(Response::json(403, &body))
    }

    /// Returns an effect that answers as Robot does during maintenance, with status 503 and an HTML page. For a 503
    /// without a body, use [`Effect::Instead`].
    pub fn robot_maintenance() -> Effect {
        Effect::Instead(html(503, "503 Service Unavailable"))
    }

    /// Returns an effect that answers as the proxy in front of Robot sometimes does: with status 403 and an HTML page.
    /// Robot also uses the status 403 when a rate limit is exceeded, but answers with JSON then.
    pub fn robot_forbidden() -> Effect {
        Effect::Instead(html(403, "403 Forbidden"))
    }

    /// Returns an effect that answers with an error of the Kubernetes API, which is a `Status` object, e.g. `(500,
    /// "InternalError", "…")`.
    pub fn kubernetes_status(code: u16, reason: &str, message: &str) -> Effect {
        Effect::Instead(kubernetes_status(code, reason, message))
    }

    /// Returns an effect that answers as an API server does when it is too busy (API priority and fairness): with
    /// status 429 and the header `Retry-After` in seconds.
    pub fn kubernetes_busy(retry_after_seconds: u32) -> Effect {
        let message = "Too many requests, please try again later.";
        let refusal = kubernetes_status(429, "TooManyRequests", message)
            .with_header("Retry-After", retry_after_seconds.to_string());
        Effect::Instead(refusal)
    }

    /// Returns an effect that answers with status 404 and an HTML page. Such an answer comes from a proxy between the
    /// client and the API when the proxy does not know the path. The request does not take effect.
    pub fn proxy_not_found() -> Effect {
        Effect::Instead(html(404, "404 Not Found"))
    }

    /// Returns an effect that answers with status 504 and an HTML page, as from a gateway that stopped waiting for the
    /// API. The request takes effect all the same.
    pub fn gateway_timeout() -> Effect {
        Effect::AfterAll(html(504, "504 Gateway Time-out"))
    }

    /// Returns an effect that answers with status 200 and an HTML page where the client expects JSON. The request takes
    /// effect.
    pub fn html() -> Effect {
        Effect::AfterAll(html(200, "Welcome"))
    }

    /// Returns an effect that answers with status 200 and with JSON that has nothing to do with the API, as if the
    /// client had reached a different web service. The request takes effect.
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

/// Returns the answer without the second half of its body. The answer is still a complete HTTP message, but its JSON
/// ends too early.
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
