//! Errors of the Robot web service.

use crate::http::{self, HttpErrorKind, shortened};
use crate::provider::variables::{ROBOT_ENDPOINT, ROBOT_PASSWORD, ROBOT_USER};
use crate::provider::{ErrorKind, ProviderError};
use serde_json::Value;
use std::time::Duration;

/// A failed call to the Robot web service.
pub(super) struct RobotFailure {
    pub(super) error: ProviderError,
    /// The error code in the answer of the web service. `None` when there was no answer, or when the answer has no
    /// error code.
    pub(super) code: Option<String>,
    status: Option<u16>,
    /// The period of the rate limit in the answer of the web service. `None` when the answer does not give one.
    pub(super) interval: Option<Duration>,
}

impl RobotFailure {
    /// Whether the web service answered with the status 404 and this error code.
    pub(super) fn is_404(&self, code: &str) -> bool {
        self.status == Some(404) && self.code.as_deref() == Some(code)
    }

    pub(super) fn of(http: http::HttpError) -> RobotFailure {
        let body: Value = serde_json::from_slice(http.body()).unwrap_or_default();
        let body = &body["error"];
        let code = body["code"].as_str();
        let interval = body["interval"].as_u64();
        let kind = kind(&http, code);
        let said = match code {
            Some(code) => {
                let limit = body["max_request"].as_u64().zip(interval);
                let limit = limit.map_or_else(String::new, |(calls, seconds)| {
                    format!("; {calls} calls in {seconds} s")
                });
                let message = shortened(body["message"].as_str().unwrap_or_default());
                format!("{}: {message} ({}{limit})", http.call, shortened(code))
            }
            None => http.to_string(),
        };
        let hint = hint(&http, &kind, code.is_some());
        RobotFailure {
            error: ProviderError::new(kind, said + &hint),
            status: http.status(),
            interval: interval.map(Duration::from_secs),
            code: code.map(str::to_owned),
        }
    }
}

impl From<ProviderError> for RobotFailure {
    fn from(error: ProviderError) -> RobotFailure {
        RobotFailure { error, code: None, status: None, interval: None }
    }
}

/// Returns the kind of the error, but never `NotFound`. Whether the code `SERVER_NOT_FOUND` means that a server does
/// not exist depends on the call, and this function does not know the call.
fn kind(http: &http::HttpError, code: Option<&str>) -> ErrorKind {
    match (&http.kind, http.status(), code) {
        (HttpErrorKind::Refused(_), ..) => ErrorKind::Refused,
        (HttpErrorKind::Token(_), ..) | (_, Some(401), _) => ErrorKind::Unauthorized,
        (_, Some(403), Some("RATE_LIMIT_EXCEEDED")) => {
            ErrorKind::RateLimited { retry_in: Duration::ZERO, put_off: false }
        }
        (_, Some(403), _) => ErrorKind::Forbidden,
        (_, Some(404), Some("SERVER_NOT_FOUND" | "RESET_NOT_AVAILABLE")) => ErrorKind::Other,
        (_, Some(404), _) => ErrorKind::Misconfigured,
        (_, Some(300..500), Some(_)) => ErrorKind::Other,
        _ => ErrorKind::Unavailable,
    }
}

fn hint(http: &http::HttpError, kind: &ErrorKind, has_body: bool) -> String {
    match kind {
        ErrorKind::Unauthorized => format!(
            "; do {ROBOT_USER} and {ROBOT_PASSWORD} belong to a web service user (Robot → Settings → Web service and \
             app settings)?"
        ),
        ErrorKind::Forbidden => {
            "; Robot gives this answer while it blocks the IP of this machine, for ten minutes after three failed \
             logins".to_owned()
        }
        ErrorKind::Misconfigured => format!("; is {ROBOT_ENDPOINT} correct?"),
        ErrorKind::Unavailable if http.status() == Some(503) => "; Robot is being maintained".to_owned(),
        ErrorKind::Unavailable if http.status().is_some() && !has_body => {
            format!(" without an error message of Robot; is {ROBOT_ENDPOINT} correct, or did a proxy answer?")
        }
        ErrorKind::Unavailable if matches!(http.kind, HttpErrorKind::Unreachable(_)) => {
            format!(" (the API's address comes from {ROBOT_ENDPOINT})")
        }
        _ => String::new(),
    }
}
