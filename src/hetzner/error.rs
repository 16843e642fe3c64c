//! A failed call to the Cloud API, in its own words.

use crate::http::{self, Kind};
use crate::provider::{self, CORRELATION, ErrorKind};
use serde::Deserialize;
use std::fmt;

/// A failed call: decide on `status` and `code`, show the whole.
#[derive(Debug)]
pub(super) struct Error {
    http: http::Error,
    /// The API's error body; none when the answer was not the API's.
    body: Option<Body>,
}

#[derive(Debug, Deserialize)]
struct Envelope {
    error: Body,
}

#[derive(Debug, Deserialize)]
struct Body {
    code: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    details: Option<Details>,
}

#[derive(Debug, Default, Deserialize)]
struct Details {
    #[serde(default)]
    fields: Vec<Field>,
    #[serde(default)]
    limits: Vec<Limit>,
}

#[derive(Debug, Deserialize)]
struct Limit {
    name: String,
}

#[derive(Debug, Deserialize)]
struct Field {
    name: String,
    #[serde(default)]
    messages: Vec<String>,
}

/// What the API says is wrong, for decisions.
#[derive(Clone, Debug)]
pub(super) struct Code {
    pub(super) code: String,
    /// Of `invalid_input`: the names of the fields; of `resource_limit_exceeded`: of the limits.
    pub(super) fields: Vec<String>,
}

/// Another change is being made to the same resource.
pub(super) fn is_busy(code: &str) -> bool {
    matches!(code, "locked" | "conflict")
}

impl Error {
    pub(super) fn said(&self) -> Option<Code> {
        let body = self.body.as_ref()?;
        let details = body.details.as_ref();
        let fields = details.into_iter().flat_map(|details| &details.fields);
        let limits = details.into_iter().flat_map(|details| &details.limits);
        let fields = fields.map(|field| &field.name);
        Some(Code {
            code: body.code.clone(),
            fields: fields
                .chain(limits.map(|limit| &limit.name))
                .cloned()
                .collect(),
        })
    }

    pub(super) fn code(&self) -> Option<&str> {
        self.body.as_ref().map(|body| body.code.as_str())
    }

    pub(super) fn is_rate_limit(&self) -> bool {
        self.http.status() == Some(429)
    }

    pub(super) fn head(&self) -> Option<&http::Head> {
        self.http.head.as_deref()
    }

    fn kind(&self) -> ErrorKind {
        match (&self.http.kind, self.code(), self.http.status()) {
            (Kind::Refused(_), ..) => ErrorKind::Refused,
            (Kind::Token(_), ..) => ErrorKind::Misconfigured,
            (_, Some("unauthorized"), _) | (_, None, Some(401)) => ErrorKind::Unauthorized,
            (_, Some("forbidden" | "token_readonly"), _) => ErrorKind::Forbidden,
            // Only the API's own word counts: a proxy's 404 is no answer.
            (_, Some("not_found"), Some(404)) => ErrorKind::NotFound,
            (
                _,
                Some("bad_gateway" | "timeout" | "service_error" | "server_error" | "maintenance"),
                _,
            ) => ErrorKind::Unavailable,
            (_, Some(code), _) if is_busy(code) => ErrorKind::Busy,
            (_, Some("robot_unavailable"), _) => ErrorKind::Unavailable,
            (_, Some(_), _) => ErrorKind::Other,
            (_, None, _) => ErrorKind::Unavailable,
        }
    }
}

impl From<http::Error> for Error {
    fn from(http: http::Error) -> Error {
        let body = serde_json::from_slice::<Envelope>(http.body())
            .ok()
            .map(|envelope| envelope.error);
        Error { http, body }
    }
}

impl From<Error> for provider::Error {
    fn from(error: Error) -> provider::Error {
        provider::Error::new(error.kind(), error.to_string())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(body) = &self.body else {
            self.http.fmt(f)?;
            return match self.http.status() {
                Some(_) => {
                    f.write_str(" without an error of the Hetzner API; is HCLOUD_ENDPOINT right, or a proxy in between?")
                }
                None => Ok(()),
            };
        };
        let (message, code) = (http::shortened(&body.message), http::shortened(&body.code));
        write!(f, "{}: {message} ({code}", self.http.call)?;
        if let Some(id) = self.head().and_then(|head| head.correlation_id.as_deref()) {
            write!(f, "{CORRELATION}{id}")?;
        }
        f.write_str(")")?;
        let fields = body.details.iter().flat_map(|details| &details.fields);
        let fields = fields.map(|field| format!("; {}: {}", field.name, field.messages.join(", ")));
        f.write_str(&http::shortened(&fields.collect::<String>()))?;
        match self.kind() {
            ErrorKind::Unauthorized => {
                f.write_str("; the token in HCLOUD_TOKEN or HCLOUD_TOKEN_FILE is not accepted: is it whole, and not deleted?")
            }
            _ if self.is_rate_limit() => {
                f.write_str("; all tokens of the project share this limit: wait, or see who else uses it up")
            }
            ErrorKind::Forbidden => f.write_str("; does the token have read & write permission?"),
            _ => Ok(()),
        }
    }
}
