//! The urgency of a call to a cloud, and the kinds of errors of such calls. A controller decides by the kind of an
//! error what to do next.

use std::fmt;
use std::time::Duration;

/// The urgency of a call to a cloud's API. When few calls remain in the API's rate limit, less urgent calls are delayed
/// first. The variants are sorted from the least to the most urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// The urgency of a call that refreshes cached data. Nothing waits for the answer.
    CanWait,
    /// The urgency of a call for a Service or a route that has changed, or that the daemon is about to change.
    Changed,
    /// The urgency of a call that asks whether the server of a node still exists.
    Gone,
    /// A call for a new node, a check of an object just before a write to it, or the question whether the cloud has
    /// completed a write. Such a call is never delayed to save the rate limit for other calls.
    Needed,
    /// A call for a person who runs a command and waits for its output. The provider then also reads data that are only
    /// displayed.
    Asked,
}

/// An error of a call to the cloud. The program decides by `kind` what to do, and users read `message`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderError {
    pub kind: ErrorKind,
    /// The text for users. It names the resource and the call, quotes the API's answer, and says what to do
    /// when this is known.
    pub message: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// A setting must be corrected. For example, it names a Network that does not exist, or the URL of an API is wrong.
    Misconfigured,
    /// The cloud's API does not accept the token.
    Unauthorized,
    /// The token does not have the permission for this call.
    Forbidden,
    /// The API itself says that the resource does not exist. A status 404 from another server, e.g. a proxy, is not
    /// enough.
    NotFound,
    /// The rate limit of the cloud's API is used up, or nearly so. The caller can try again after `retry_in`.
    RateLimited {
        retry_in: Duration,
        /// Whether this program delayed the call because the call is not urgent and few calls remain. More urgent calls
        /// are still made.
        put_off: bool,
    },
    /// The cloud's API gave no answer, or the answer does not come from this API or is broken. Examples are a network
    /// error, a time-out, a status 5xx, and an answer of a proxy.
    Unavailable,
    /// The cloud is still making another change to the same resource. A later attempt can succeed.
    Busy,
    /// The API refused one part of the change, e.g. a target of a new load balancer. It has then made no other part of
    /// the change either. The caller sends a smaller change instead, see `Change::without_parts`.
    InPart,
    /// The write was not sent, because this process is not allowed to write now, e.g. because it does not hold the
    /// Lease.
    Refused,
    /// Any other error that the cloud's API reports.
    Other,
}

/// The text in an error message before the correlation ID, which the cloud gives to each call.
pub const CORRELATION: &str = ", correlation ";

/// Returns the message without correlation IDs, which differ for each call. So two messages about the same problem
/// become equal.
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

    /// Whether the call would fail again and again until a person corrects a setting or a credential.
    pub fn is_permanent(&self) -> bool {
        matches!(
            self.kind,
            ErrorKind::Misconfigured | ErrorKind::Unauthorized | ErrorKind::Forbidden
        )
    }

    /// Whether this program only delayed the call, because it is not urgent and few calls remain in the rate limit.
    /// Such an error is not reported.
    pub fn is_put_off(&self) -> bool {
        matches!(self.kind, ErrorKind::RateLimited { put_off: true, .. })
    }
}

impl fmt::Display for ProviderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
