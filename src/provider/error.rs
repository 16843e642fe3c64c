//! The urgency of a call to a cloud, and the reason why a call failed, in terms that a controller can decide on.

use std::fmt;
use std::time::Duration;

/// The urgency of a call, which depends on who waits for the answer. When the API's budget is short, less urgent calls
/// are put off first. The variants are in ascending order of urgency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// A refresh of cached data. Nothing waits for the answer.
    CanWait,
    /// A call for a Service or a route that changed, or for a write of the daemon to such an object.
    Changed,
    /// A call that asks whether the server of a node still exists.
    Gone,
    /// A call for a new node, or a call that asks about a write that was begun. Such a call is never put off.
    Needed,
    /// A person waits for the answer, and wants to see everything that explains the present state.
    Asked,
}

/// A failed call. The program decides by `kind`, and people read `message`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderError {
    pub kind: ErrorKind,
    /// The resource, the call, the answer of the API, and what to do about the error when this is known.
    pub message: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The settings name something that does not exist.
    Misconfigured,
    /// The token is not accepted.
    Unauthorized,
    /// The token may not do this.
    Forbidden,
    /// The cloud itself says that the resource does not exist.
    NotFound,
    /// The budget of calls is used up, or nearly so. The call may be made again after `retry_in`.
    RateLimited {
        retry_in: Duration,
        /// Whether the API answers, and only this call was put off because it can wait.
        put_off: bool,
    },
    /// There is no answer, or the answer is not the API's: network, time-out, 5xx, a proxy, a broken body.
    Unavailable,
    /// Another change is being made to the same resource. The same call will succeed in a moment.
    Busy,
    /// A part of the change was refused. `Change::without_parts` returns what is left of the change.
    InPart,
    /// The gate did not let a write pass.
    Refused,
    /// Any other answer of the API.
    Other,
}

/// The text that precedes the cloud's own ID of a failed call in messages.
pub const CORRELATION: &str = ", correlation ";

/// Returns the message without the IDs of calls. These IDs differ each time, although the problem is the same.
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

    /// Whether another try does not help, because a setting or a credential has to be fixed.
    pub fn is_permanent(&self) -> bool {
        matches!(
            self.kind,
            ErrorKind::Misconfigured | ErrorKind::Unauthorized | ErrorKind::Forbidden
        )
    }

    /// Whether the call was only put off, because it can wait until more of the budget is left. Nothing is wrong then.
    pub fn is_put_off(&self) -> bool {
        matches!(self.kind, ErrorKind::RateLimited { put_off: true, .. })
    }
}

impl fmt::Display for ProviderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
