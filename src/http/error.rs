//! The failure of one call. The client of each API decides what the failure means for this API.

use super::secret::{Secret, redact};
use crate::text::cut;
use jiff::Timestamp;
use std::fmt;
use std::time::Duration;

/// A failed call: the call, what happened, and the head of the answer when there was an answer.
#[derive(Debug)]
pub struct HttpError {
    /// The method and the URL of the call.
    pub call: String,
    pub kind: HttpErrorKind,
    pub head: Option<Box<Head>>,
}

#[derive(Clone, Debug)]
pub enum HttpErrorKind {
    /// The [`Gate`](crate::provider::Gate), which is asked before every write, refused this write. Nothing was sent.
    Refused(String),
    /// There are no credentials to send, because the token's file cannot be read or a program that should issue
    /// credentials failed. Nothing was sent.
    Token(String),
    /// The request could not be made from the settings and the body, and nothing was sent.
    Request(String),
    /// There was no connection, or the connection broke.
    Unreachable(String),
    /// The call did not end within its time limit, which is the value.
    TimedOut(Duration),
    /// The server's certificate is not accepted: its authority is unknown, it is for another host name, or it has
    /// expired. The request was not sent.
    Untrusted(String),
    /// The TLS handshake failed, but not because of the server's certificate.
    Tls(String),
    /// The answer has a status of 300 or more. The value is the beginning of the answer's body.
    Status(Vec<u8>),
    /// The answer has a status of 2xx, and its body does not have the form that the API promises.
    Malformed(String),
    /// The body of an answer is longer than this many bytes.
    TooLarge(u64),
}

/// The status and those headers of an answer that this program uses.
#[derive(Clone, Debug, Default)]
pub struct Head {
    pub status: u16,
    pub content_type: String,
    /// The header `X-Correlation-Id`. Hetzner's support asks for this ID.
    pub correlation_id: Option<String>,
    /// The header `Retry-After` in seconds, the only form that the Kubernetes API and Hetzner's APIs use.
    pub retry_after: Option<Duration>,
    /// The headers `RateLimit-Limit`, `-Remaining` and `-Reset` (UNIX seconds), when all of them exist.
    pub rate_limit: Option<(u64, u64, u64)>,
    /// The header `Date`, which is the server's clock in whole seconds.
    pub date: Option<Timestamp>,
}

/// How many characters of an API's error message are shown at most.
const MESSAGE_CHARACTERS: usize = 1000;

/// Returns the message of an API on one line, cut to [`MESSAGE_CHARACTERS`].
pub fn shortened(message: &str) -> String {
    let line = message.split_whitespace().collect::<Vec<_>>().join(" ");
    cut(&line, MESSAGE_CHARACTERS).into_owned()
}

impl HttpError {
    pub(super) fn new(call: String, kind: HttpErrorKind) -> HttpError {
        HttpError { call, kind, head: None }
    }

    /// Returns the error with these secrets redacted. The error will be printed, and its text can contain what a server
    /// answered. A server's answer can repeat a secret that was sent to the server.
    pub(super) fn without_secrets(mut self, secrets: &[Secret]) -> HttpError {
        match &mut self.kind {
            HttpErrorKind::TimedOut(_) | HttpErrorKind::TooLarge(_) => {}
            HttpErrorKind::Status(body) => {
                *body = redact(&String::from_utf8_lossy(body), secrets).into_bytes();
            }
            HttpErrorKind::Refused(why)
            | HttpErrorKind::Token(why)
            | HttpErrorKind::Request(why)
            | HttpErrorKind::Unreachable(why)
            | HttpErrorKind::Untrusted(why)
            | HttpErrorKind::Tls(why)
            | HttpErrorKind::Malformed(why) => *why = redact(why, secrets),
        }
        if let Some(head) = &mut self.head {
            head.content_type = redact(&head.content_type, secrets);
            // A correlation ID that contains a secret is removed completely. If only a part of the ID were left,
            // support could not use it.
            head.correlation_id =
                head.correlation_id.take().filter(|id| redact(id, secrets) == *id);
        }
        self
    }

    /// Returns the status of an error answer of the API, or of a proxy before it. `None` when the call failed in
    /// another way, e.g. without an answer.
    pub fn status(&self) -> Option<u16> {
        match (&self.kind, &self.head) {
            (HttpErrorKind::Status(_), Some(head)) => Some(head.status),
            _ => None,
        }
    }

    /// Returns the beginning of the body of an error answer.
    pub fn body(&self) -> &[u8] {
        match &self.kind {
            HttpErrorKind::Status(body) => body,
            _ => &[],
        }
    }
}

impl HttpErrorKind {
    fn is_not_sent(&self) -> bool {
        use HttpErrorKind::{Refused, Request, Token};
        matches!(self, Refused(_) | Token(_) | Request(_))
    }

    /// Returns one word that says why a call got no usable answer. The word becomes the value of a metric's label.
    pub fn word(&self) -> &'static str {
        match self {
            HttpErrorKind::Unreachable(_) => "unreachable",
            HttpErrorKind::TimedOut(_) => "timeout",
            HttpErrorKind::Untrusted(_) | HttpErrorKind::Tls(_) => "tls",
            _ => "other",
        }
    }
}

impl fmt::Display for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An error of a call that was not sent reads `GET … was not sent: …`.
        let verb = if self.kind.is_not_sent() { " was " } else { ": " };
        write!(f, "{}{verb}{}", self.call, self.kind)?;
        match &self.head {
            Some(head) if matches!(self.kind, HttpErrorKind::Status(_)) => {
                write!(f, " {}", head.status)
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for HttpErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HttpErrorKind::Refused(why)
            | HttpErrorKind::Token(why)
            | HttpErrorKind::Request(why) => {
                write!(f, "not sent: {why}")
            }
            HttpErrorKind::Unreachable(why) | HttpErrorKind::Malformed(why) => f.write_str(why),
            HttpErrorKind::TooLarge(limit) => match limit >> 20 {
                0 => write!(f, "the answer is longer than {limit} bytes"),
                mib => write!(f, "the answer is longer than {mib} MiB"),
            },
            HttpErrorKind::TimedOut(after) => {
                write!(f, "no complete answer within {} s", after.as_secs_f32())
            }
            HttpErrorKind::Untrusted(why) | HttpErrorKind::Tls(why) => write!(f, "TLS: {why}"),
            HttpErrorKind::Status(_) => f.write_str("HTTP status"),
        }
    }
}

impl std::error::Error for HttpErrorKind {}

/// Translates an error of ureq into an error with a message for the user.
pub(super) fn describe_transport(error: &ureq::Error, timeout: Duration) -> HttpErrorKind {
    match error {
        ureq::Error::Timeout(ureq::Timeout::Resolve) => {
            HttpErrorKind::Unreachable("the host's name could not be resolved in time".into())
        }
        ureq::Error::Timeout(ureq::Timeout::Connect) => HttpErrorKind::Unreachable(
            "no connection in time; is the address right (http or https?), or does a firewall block it?"
                .into(),
        ),
        ureq::Error::Timeout(_) => HttpErrorKind::TimedOut(timeout),
        ureq::Error::HostNotFound => HttpErrorKind::Unreachable("the host's name does not resolve".into()),
        ureq::Error::Io(error) => describe_io(error, timeout),
        ureq::Error::Rustls(error) => describe_tls(error),
        ureq::Error::Tls(why) => HttpErrorKind::Tls((*why).to_owned()),
        ureq::Error::BadUri(_) | ureq::Error::Http(_) => HttpErrorKind::Request(error.to_string()),
        ureq::Error::LargeResponseHeader(_, limit) => {
            HttpErrorKind::Malformed(format!("the header of the answer is longer than {limit} bytes"))
        }
        ureq::Error::Protocol(_) => {
            HttpErrorKind::Malformed(format!("the answer is not HTTP/1.1 ({error})"))
        }
        ureq::Error::BodyExceedsLimit(limit) => HttpErrorKind::TooLarge(*limit),
        ureq::Error::Other(error) => match error.downcast_ref::<HttpErrorKind>() {
            Some(kind) => kind.clone(),
            None => HttpErrorKind::Unreachable(error.to_string()),
        },
        other => HttpErrorKind::Unreachable(other.to_string()),
    }
}

/// Describes an I/O error for the user. While a body is read, ureq wraps its own errors and those of rustls into an
/// `io::Error`, and this function unwraps them.
pub(super) fn describe_io(error: &std::io::Error, timeout: Duration) -> HttpErrorKind {
    use std::io::ErrorKind::*;
    let inner = error.get_ref();
    if let Some(inner) = inner.and_then(|e| e.downcast_ref::<ureq::Error>()) {
        return describe_transport(inner, timeout);
    }
    if let Some(inner) = inner.and_then(|e| e.downcast_ref::<rustls::Error>()) {
        return describe_tls(inner);
    }
    HttpErrorKind::Unreachable(match error.kind() {
        ConnectionRefused => "connection refused; does a server run at this address?".into(),
        ConnectionReset | ConnectionAborted | BrokenPipe => "the connection was reset".into(),
        UnexpectedEof => "the connection was closed before the answer was complete".into(),
        TimedOut | WouldBlock => return HttpErrorKind::TimedOut(timeout),
        _ => error.to_string(),
    })
}

/// Translates an error of the TLS library into an error whose message speaks of the server and its certificate.
fn describe_tls(error: &rustls::Error) -> HttpErrorKind {
    match error {
        rustls::Error::InvalidCertificate(why) => {
            HttpErrorKind::Untrusted(describe_certificate(why))
        }
        rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType) => {
            HttpErrorKind::Tls(
                "the server does not speak TLS (is http:// right instead of https://?)".into(),
            )
        }
        rustls::Error::AlertReceived(alert) => {
            HttpErrorKind::Tls(format!("the server ended the connection with TLS alert {alert:?}"))
        }
        other => HttpErrorKind::Tls(other.to_string()),
    }
}

fn describe_certificate(error: &rustls::CertificateError) -> String {
    use rustls::CertificateError::*;
    let at = |time: &rustls::pki_types::UnixTime| {
        Timestamp::from_second(time.as_secs().try_into().unwrap_or(i64::MAX))
            .map_or_else(|_| String::new(), |time| format!(" at {time}"))
    };
    match error {
        UnknownIssuer => {
            "the server's certificate is signed by an authority that ccm does not trust".into()
        }
        ExpiredContext { not_after, .. } => {
            format!("the server's certificate expired{}", at(not_after))
        }
        NotValidYetContext { .. } => {
            "the server's certificate is not valid yet (is this machine's clock right?)".into()
        }
        NotValidForNameContext { expected, presented } => {
            let names: Vec<&str> = presented.iter().map(|name| bare(name)).collect();
            let (names, expected) = (names.join(", "), expected.to_str());
            format!("the server's certificate is for {names}, not for {expected}")
        }
        Other(error) => format!("ccm does not accept the server's certificate ({error})"),
        other => format!("ccm does not accept the server's certificate ({other})"),
    }
}

/// Returns only the name from a text like `DnsName("api.example.com")`, which is how the TLS library writes names.
fn bare(name: &str) -> &str {
    let inner = name.split_once('(').map_or(name, |(_, inner)| inner);
    inner.trim_end_matches(')').trim_matches('"')
}
