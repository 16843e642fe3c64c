//! The urgency of a call to a cloud, and the kinds of errors. A controller decides by the kind what to do next.

use std::fmt;
use std::time::Duration;

/// The urgency of a call, which depends on what waits for the answer. When few calls remain in the API's budget, less
/// urgent calls are delayed first. The variants are sorted from the least to the most urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// A refresh of cached data. Nothing waits for the answer.
    CanWait,
    /// A call for a Service or route that has changed, or that the daemon writes to.
    Changed,
    /// A call that asks whether the server of a node still exists.
    Gone,
    /// A call for a new node, or about a write that was already sent. The budget never delays such a call.
    Needed,
    /// A call for a person who waits for the answer, and wants all information about the present state.
    Asked,
}

/// A failed call. The program decides by `kind`, and users read `message`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderError {
    pub kind: ErrorKind,
    /// The text for users. It names the resource and the call, quotes the API's answer, and says what to do
    /// when this is known.
    pub message: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// A setting names something that does not exist.
    Misconfigured,
    /// The API does not accept the token.
    Unauthorized,
    /// The token does not have the permission for this call.
    Forbidden,
    /// The resource does not exist, according to the cloud itself.
    NotFound,
    /// The budget of calls is used up, or nearly so. The call may be made again after `retry_in`.
    RateLimited {
        retry_in: Duration,
        /// Whether only this call is delayed, because it is not urgent, while the API still answers more urgent calls.
        put_off: bool,
    },
    /// The API gave no answer, or the answer does not come from the API or is broken. Examples are a network error, a
    /// time-out, a status 5xx, and an answer of a proxy.
    Unavailable,
    /// The cloud is still making another change to the same resource. The same call can succeed a moment later.
    Busy,
    /// The API refused a part of the change, so nothing was changed. `Change::without_parts` returns a
    /// change without these parts.
    InPart,
    /// The gate did not allow a write, so it was not sent.
    Refused,
    /// Any other error that the API reports.
    Other,
}

/// The text before the ID of a failed call in an error message. The cloud gives each call such an ID.
pub const CORRELATION: &str = ", correlation ";

/// Returns the message without the IDs of calls. Two messages about the same problem are then equal.
pub fn without_correlations(message: &str) -> String {
    let mut parts = message.split(CORRELATION);
    let mut stable = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_of_number = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
        stable.push_str(part.trim_start_matches(is_of_number));
    }
    stable
}

impl ProviderError {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> ProviderError {
        ProviderError { kind, message: message.into() }
    }

    /// Whether the same call would fail again until a person corrects a setting or a credential.
    pub fn is_permanent(&self) -> bool {
        matches!(
            self.kind,
            ErrorKind::Misconfigured | ErrorKind::Unauthorized | ErrorKind::Forbidden
        )
    }

    /// Whether the call was only delayed because it is not urgent, and few calls remain in the budget. This is not
    /// a problem to report.
    pub fn is_put_off(&self) -> bool {
        matches!(self.kind, ErrorKind::RateLimited { put_off: true, .. })
    }
}

impl fmt::Display for ProviderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
