//! One request, and the settings of the client that makes it.

use super::auth::Login;
use super::error::Kind;
use super::proxy::Proxies;
use super::rotation::TlsSource;
use crate::provider::Gate;
use std::sync::Arc;
use std::time::Duration;

/// How long a write may take from the gate's word to the last byte of the answer, outside of
/// tests; the gate must know it, so it is the same for every write.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(8);

/// What a client is made from.
pub struct Settings {
    /// Scheme, host and path without a trailing slash, e.g. `https://api.hetzner.cloud/v1`.
    pub base: String,
    pub tls: TlsSource,
    pub proxies: Proxies,
    pub login: Login,
    /// Resolving, connecting and TLS together.
    pub connect_timeout: Duration,
    pub timing: Timing,
    /// A read that was answered 429 with a short `Retry-After` is tried again here. False where
    /// the caller keeps a budget, which must hear of every 429 before anything else is sent.
    pub retry_rate_limited: bool,
    /// An answer's body; a longer one is an error.
    pub body_limit_bytes: u64,
    /// Also log the bodies (their beginning), not only the lines.
    pub log_bodies: bool,
    /// Asked before every write.
    pub gate: Arc<dyn Gate>,
    /// Called for every try with its method, its path below the base, and how far it is.
    pub watch: fn(Method, &str, Stage),
}

/// How far a try is.
#[derive(Clone, Copy, Debug)]
pub enum Stage<'a> {
    /// Its bytes are about to leave.
    Begun,
    /// It was answered with this status, or not at all, after this time.
    Ended(Result<u16, &'a Kind>, Duration),
}

/// How long calls may take, and how long to wait between two tries of a read.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// A read from its first byte to the last of the answer.
    pub read_timeout: Duration,
    /// [`WRITE_TIMEOUT`], or what a test makes of it.
    pub write_timeout: Duration,
    /// Before the second try; doubles with each.
    pub retry_wait: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

/// One request, before the credentials are on it.
pub(super) struct Call<'a> {
    pub(super) method: Method,
    /// Path and query below the base, beginning with `/`.
    pub(super) path: &'a str,
    pub(super) accept: &'a str,
    pub(super) content_type: &'a str,
    pub(super) body: Vec<u8>,
}

impl Method {
    pub fn name(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Patch => "PATCH",
            Method::Delete => "DELETE",
        }
    }

    /// As metrics have it.
    pub fn lower_name(self) -> &'static str {
        match self {
            Method::Get => "get",
            Method::Post => "post",
            Method::Put => "put",
            Method::Patch => "patch",
            Method::Delete => "delete",
        }
    }
}
