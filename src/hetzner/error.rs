//! Errors of the Cloud API.

use crate::http::{HttpError, HttpErrorKind, shortened};
use crate::provider::variables::{HCLOUD_ENDPOINT, HCLOUD_TOKEN, HCLOUD_TOKEN_FILE};
use crate::provider::{CORRELATION, ErrorKind, ProviderError};
use serde_json::Value;

/// A failed call to the Cloud API.
pub(super) struct CloudFailure {
    pub(super) error: ProviderError,
    /// The error code in the API's answer. It is empty when there was no answer, or when the answer contains no error
    /// code.
    pub(super) code: String,
    /// For the error code `invalid_input`, the names of the wrong fields. For the error code `resource_limit_exceeded`,
    /// the names of the exceeded limits.
    pub(super) fields: Vec<String>,
}

/// Whether this code means that the API is still making another change to the same resource.
pub(super) fn is_busy(code: &str) -> bool {
    matches!(code, "locked" | "conflict")
}

impl From<HttpError> for CloudFailure {
    fn from(http: HttpError) -> CloudFailure {
        let body: Value = serde_json::from_slice(http.body()).unwrap_or_default();
        let body = &body["error"];
        let code = body["code"].as_str();
        let kind = kind(&http, code);
        let hint = match (http.status(), &http.kind) {
            (Some(_), _) => format!(
                " without an error message of the Hetzner API; is {HCLOUD_ENDPOINT} correct, or did a proxy answer?"
            ),
            (None, HttpErrorKind::Unreachable(_)) => {
                format!(" (the API's address comes from {HCLOUD_ENDPOINT})")
            }
            (None, _) => String::new(),
        };
        let message = match code {
            Some(code) => message(body, code, &http, &kind),
            None => format!("{http}{hint}"),
        };
        let details = ["fields", "limits"].into_iter();
        let details = details.flat_map(|list| items(&body["details"][list]));
        CloudFailure {
            error: ProviderError::new(kind, message),
            code: code.unwrap_or_default().to_owned(),
            fields: details.map(|value| text(&value["name"]).to_owned()).collect(),
        }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// Returns the kind of the error. When the API's answer contains an error code, the code decides. Otherwise the HTTP
/// status decides, or the reason why the call was not sent.
fn kind(http: &HttpError, code: Option<&str>) -> ErrorKind {
    match (&http.kind, code, http.status()) {
        (HttpErrorKind::Refused(_), ..) => ErrorKind::Refused,
        (HttpErrorKind::Token(_), ..) => ErrorKind::Misconfigured,
        (_, Some("unauthorized"), _) | (_, None, Some(401)) => ErrorKind::Unauthorized,
        (_, Some("forbidden" | "token_readonly"), _) => ErrorKind::Forbidden,
        // The status 404 alone can come from a proxy. Only the API's own error code shows that the resource does not
        // exist.
        (_, Some("not_found"), Some(404)) => ErrorKind::NotFound,
        (_, Some("bad_gateway" | "timeout" | "service_error" | "server_error"), _)
        | (_, Some("maintenance"), _)
        | (_, None, _) => ErrorKind::Unavailable,
        (_, Some(code), _) if is_busy(code) => ErrorKind::Busy,
        // The error code `robot_unavailable` gets the kind `Other`, and not `Unavailable`. It is not an outage of the
        // Cloud API, because only targets on dedicated servers are affected.
        (_, Some(_), _) => ErrorKind::Other,
    }
}

fn message(body: &Value, code: &str, http: &HttpError, kind: &ErrorKind) -> String {
    let (message, code) = (shortened(text(&body["message"])), shortened(code));
    let id = http.head.as_ref().and_then(|head| head.correlation_id.as_deref());
    let id = id.map_or_else(String::new, |id| format!("{CORRELATION}{id}"));
    let fields = items(&body["details"]["fields"]).map(|field| {
        let messages: Vec<&str> = items(&field["messages"]).map(text).collect();
        format!("; {}: {}", text(&field["name"]), messages.join(", "))
    });
    let fields = shortened(&fields.collect::<String>());
    let hint = match kind {
        ErrorKind::Unauthorized => &format!(
            "; the token in {HCLOUD_TOKEN} or {HCLOUD_TOKEN_FILE} is not accepted: is it complete, and does it still \
             exist?"
        ),
        _ if http.status() == Some(429) => {
            "; all tokens of the project share this limit, which allows one more call each second: wait, or find out who else makes calls"
        }
        ErrorKind::Forbidden => "; does the token have read & write permission?",
        _ => "",
    };
    format!("{}: {message} ({code}{id}){fields}{hint}", http.call)
}
