//! A call to a cloud: how urgent it is, and why it failed, in the words a controller can decide on.

use std::fmt;
use std::time::Duration;

/// What waits for the answer. While the API's budget is short, the first of these are put off first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// A refresh: nothing does.
    CanWait,
    /// A Service or a route that changed, and what the daemon writes for it.
    Changed,
    /// A node whose server may be gone.
    Gone,
    /// A new node, or a question about a write that was begun: never put off.
    Needed,
    /// A person waits for it, and wants to see whatever explains what there is.
    Asked,
}

/// A failed call: decide on `kind`, show the whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub kind: ErrorKind,
    /// The resource, the call, the answer, and what to do where we know it.
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
    /// The API's budget is used up, or nearly; when to ask again.
    RateLimited {
        retry_in: Duration,
        /// The API answers, and only this call, which can wait, was put off.
        put_off: bool,
    },
    /// No answer, or one that is not the API's: network, time-out, 5xx, a proxy, a broken body.
    Unavailable,
    /// Another change is being made to the same resource; the same call will do in a moment.
    Busy,
    /// Refused for a part of what was asked for; `Change::without_parts` is what is left of it.
    InPart,
    /// The gate did not let a write pass.
    Refused,
    /// Anything else the API answered.
    Other,
}

/// Comes before the cloud's own number of a failed call, in messages.
pub const CORRELATION: &str = ", correlation ";

/// The message without the numbers of calls: those differ each time, and the trouble is the same.
pub fn without_correlations(message: &str) -> String {
    let mut parts = message.split(CORRELATION);
    let mut stable = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_of_number = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
        stable.push_str(part.trim_start_matches(is_of_number));
    }
    stable
}

impl Error {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into() }
    }

    /// Trying again does not help: a setting or a credential has to be fixed.
    pub fn is_permanent(&self) -> bool {
        matches!(
            self.kind,
            ErrorKind::Misconfigured | ErrorKind::Unauthorized | ErrorKind::Forbidden
        )
    }

    /// Nothing is wrong: a call that can wait waits until more of the budget is there.
    pub fn is_put_off(&self) -> bool {
        matches!(self.kind, ErrorKind::RateLimited { put_off: true, .. })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
