//! The errors of failed calls to the Kubernetes API.

use crate::http;
use serde_json::Value;
use std::fmt;

#[derive(Debug)]
pub enum KubeError {
    /// The API answered with a `Status` object, which describes the failure.
    Status(Box<KubeStatus>),
    /// The API has not answered, or the call was not sent. The cause is, for example, the network, TLS, missing
    /// credentials, or a proxy that has answered instead of the API. The [`Gate`](crate::provider::Gate), which is
    /// asked before every write, can also have refused a write.
    Http(Box<http::HttpError>),
    /// The answer does not have the expected form. `call` is the method and the URL.
    Unreadable { call: String, why: String },
}

/// The `Status` with which the API server answered a failed call. This program evaluates only `reason` and `code`. The
/// text `message` is shown to people.
#[derive(Debug)]
pub struct KubeStatus {
    /// The method and the URL of the call.
    pub call: String,
    pub code: u16,
    pub reason: String,
    pub message: String,
    /// Whether the API server refused the call because the namespace is being deleted. Such a 403 does not mean that
    /// the role is wrong.
    pub is_namespace_terminating: bool,
}

impl KubeError {
    fn is(&self, code: u16, reason: &str) -> bool {
        matches!(self, KubeError::Status(status) if status.code == code && status.reason == reason)
    }

    /// Whether the write failed because another writer has changed or created the object in the meantime. The caller
    /// then reads the object again and computes its changes again ([`retry_on_conflict`]).
    pub fn is_conflict(&self) -> bool {
        self.is(409, "Conflict") || self.is_already_exists()
    }

    pub fn is_already_exists(&self) -> bool {
        self.is(409, "AlreadyExists")
    }

    /// Whether the API server says that the object does not exist. A 404 that a proxy has sent does not count.
    pub fn is_not_found(&self) -> bool {
        self.is(404, "NotFound")
    }

    /// Whether the `continue` token or the resource version of a list request is too old. The caller then reads the
    /// list again from its beginning.
    pub fn is_expired(&self) -> bool {
        self.is(410, "Expired")
    }

    /// Returns the text of the error when the API server has answered, but did not send the data in the requested form,
    /// e.g. as a `Table`. Returns `None` for every other error.
    pub fn no_such_form(&self) -> Option<String> {
        match self {
            KubeError::Unreadable { why, .. } => Some(why.clone()),
            _ => self.is(406, "NotAcceptable").then(|| self.to_string()),
        }
    }

    /// Returns the reason why the API has not answered, or `None` when the API has answered.
    fn unanswered(&self) -> Option<&http::HttpErrorKind> {
        match self {
            KubeError::Http(error) => Some(&error.kind),
            _ => None,
        }
    }

    /// Whether the API server did not accept the credentials, or no credentials could be read or issued.
    pub fn is_unauthorized(&self) -> bool {
        match self {
            KubeError::Status(status) => status.code == 401,
            KubeError::Http(error) if error.status() == Some(401) => true,
            _ => matches!(self.unanswered(), Some(http::HttpErrorKind::Token(_))),
        }
    }

    pub fn is_forbidden(&self) -> bool {
        self.is(403, "Forbidden")
    }

    /// Whether the API server refused a new object because the namespace is being deleted. Such a 403 does not mean
    /// that the role is wrong.
    pub fn is_namespace_terminating(&self) -> bool {
        matches!(self, KubeError::Status(status) if status.is_namespace_terminating)
    }

    /// Whether a request for fewer items could succeed. This is the case when the answer was longer than this program
    /// accepts, or when it had begun but was not complete before the time-out.
    pub fn is_too_long(&self) -> bool {
        match self {
            KubeError::Http(error) => match error.kind {
                http::HttpErrorKind::TooLarge(_) => true,
                http::HttpErrorKind::TimedOut(_) => error.head.is_some(),
                _ => false,
            },
            _ => false,
        }
    }

    /// Whether the API could not be reached, the connection broke, or the answer did not arrive in time.
    pub fn is_unavailable(&self) -> bool {
        matches!(
            self.unanswered(),
            Some(http::HttpErrorKind::TimedOut(_) | http::HttpErrorKind::Unreachable(_))
        )
    }

    /// Whether the write was not sent, because this process is not allowed to write now. The process does not hold the
    /// Lease, for example, or it is ending.
    pub fn is_refused(&self) -> bool {
        matches!(self.unanswered(), Some(http::HttpErrorKind::Refused(_)))
    }

    /// Whether the failure lasts until a person acts, because the credentials, the role or the TLS settings are wrong.
    pub fn is_permanent(&self) -> bool {
        use http::HttpErrorKind::{Tls, Token, Untrusted};
        match self {
            KubeError::Status(status) => {
                status.code == 401 || (status.code == 403 && !status.is_namespace_terminating)
            }
            _ => matches!(self.unanswered(), Some(Untrusted(_) | Tls(_) | Token(_))),
        }
    }
}

impl From<http::HttpError> for KubeError {
    fn from(error: http::HttpError) -> KubeError {
        let body: Value = serde_json::from_slice(error.body()).unwrap_or_default();
        let text = |field: &str| body[field].as_str().unwrap_or_default().to_owned();
        let causes = body["details"]["causes"].as_array();
        let mut causes = causes.into_iter().flatten();
        match error.status() {
            Some(code) if body["kind"] == "Status" => KubeError::Status(Box::new(KubeStatus {
                call: error.call,
                code,
                reason: text("reason"),
                message: text("message"),
                is_namespace_terminating: code == 403
                    && causes.any(|cause| cause["reason"] == "NamespaceTerminating"),
            })),
            _ => KubeError::Http(Box::new(error)),
        }
    }
}

impl fmt::Display for KubeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KubeError::Unreadable { call, why } => write!(f, "{call}: {why}"),
            KubeError::Status(status) => {
                write!(
                    f,
                    "{}: {} ({} {})",
                    status.call,
                    http::shortened(&status.message),
                    status.code,
                    http::shortened(&status.reason)
                )?;
                match status.code {
                    401 => f.write_str(
                        "; the API server requires valid credentials: is the token or certificate missing, expired, or for another cluster?",
                    ),
                    403 if status.is_namespace_terminating => Ok(()),
                    403 => f.write_str("; give this user a role that allows this call"),
                    _ => Ok(()),
                }
            }
            KubeError::Http(error) => {
                error.fmt(f)?;
                match (&error.kind, error.status()) {
                    (_, Some(_)) => f.write_str(
                        " without a Status object; is this the API server's address, or did a proxy answer instead of the API server?",
                    ),
                    (http::HttpErrorKind::Untrusted(_), _) => {
                        f.write_str("; check the fields server and certificate-authority of the kubeconfig")
                    }
                    (http::HttpErrorKind::Tls(_), _) => {
                        f.write_str("; check the field server and the user's client certificate in the kubeconfig")
                    }
                    _ => Ok(()),
                }
            }
        }
    }
}

/// How many times [`retry_on_conflict`] reads and writes an object at most, when another writer changes the object each
/// time.
pub const CONFLICT_TRIES: u32 = 5;

/// Runs `attempt`. Runs it again, a few times at most, when another writer has changed the object in the meantime. The
/// first attempt gets `true` and is allowed to use an older copy of the object. Each later attempt gets `false`. It
/// must read the object again and compute its changes from the new state.
pub fn retry_on_conflict<T>(
    mut attempt: impl FnMut(bool) -> Result<T, KubeError>,
) -> Result<T, KubeError> {
    let mut tries = 1;
    loop {
        match attempt(tries == 1) {
            Err(error) if error.is_conflict() && tries < CONFLICT_TRIES => {
                log::debug!("{error}; ccm reads the object and tries again");
                tries += 1;
            }
            outcome => return outcome,
        }
    }
}
