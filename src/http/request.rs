//! One request, the settings of the client that makes it, when a read that failed is tried again, and which calls a
//! person waits for.

use super::auth::Login;
use super::error::{Error, Kind};
use super::proxy::Proxies;
use super::rotation::TlsSource;
use super::secret::Secret;
use crate::provider::Gate;
use crate::text::named;
use std::hash::{BuildHasher, Hasher, RandomState};
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
    /// Which reads are tried again here.
    pub retry: Retry,
    /// An answer's body; a longer one is an error.
    pub body_limit_bytes: u64,
    /// Also log the bodies (their beginning), not only the lines.
    pub log_bodies: bool,
    /// Asked before every write.
    pub gate: Arc<dyn Gate>,
    /// Called for every try with its method, its path below the base, and how far it is.
    pub watch: fn(Method, &str, Stage),
}

/// Which reads are tried again, when that may help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    All,
    /// Not those that were answered 429: the caller keeps a budget, which must hear of every 429 before anything else
    /// is sent. With `All` they are, after a short `Retry-After`.
    NotRateLimited,
    /// None: each call is one of few.
    Never,
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

named! {
    Method {
        Get = "GET",
        Post = "POST",
        Put = "PUT",
        Patch = "PATCH",
        Delete = "DELETE",
    }
}

/// One request, before the credentials are on it.
pub(super) struct Call<'a> {
    pub(super) method: Method,
    /// Path and query below the base, beginning with `/`.
    pub(super) path: &'a str,
    pub(super) accept: &'a str,
    pub(super) content_type: &'a str,
    pub(super) body: Vec<u8>,
    /// What of the body may not be repeated.
    pub(super) secrets: &'a [Secret],
}

impl Method {
    /// As metrics have it.
    pub fn lower_name(self) -> String {
        self.name().to_ascii_lowercase()
    }
}

/// Tries of one read, the first included.
const TRIES: u32 = 3;

/// A `Retry-After` longer than this is the caller's to wait for, not a sleeping thread's.
const LONGEST_WAIT: Duration = Duration::from_secs(3);

/// After so many tries of a read, how long to wait before the next one; none: it is given up. `first`: before the second
/// try; the wait doubles with each.
pub(super) fn wait_after(
    tries: u32,
    first: Duration,
    retry: Retry,
    error: &Error,
) -> Option<Duration> {
    if tries >= TRIES || !may_succeed_later(retry, error) {
        return None;
    }
    let asked = error.head.as_ref().and_then(|head| head.retry_after);
    let wait = asked.unwrap_or_else(|| jittered(first * 2_u32.pow(tries - 1)));
    Some(wait).filter(|wait| *wait <= LONGEST_WAIT)
}

/// A time-out has cost enough already, and a refusal would be refused again. 429 only with
/// the API's word on when: asking again too early costs what it has little of.
fn may_succeed_later(retry: Retry, error: &Error) -> bool {
    let head = error.head.as_ref();
    match (&error.kind, error.status()) {
        _ if retry == Retry::Never => false,
        (Kind::Unreachable(_) | Kind::Malformed(_), _) => true,
        (_, Some(429)) => {
            retry == Retry::All && head.is_some_and(|head| head.retry_after.is_some())
        }
        (_, status) => status.is_some_and(|status| status >= 500),
    }
}

/// Between half of a wait and the whole of it, so that many clients do not come back together.
fn jittered(wait: Duration) -> Duration {
    // A fresh RandomState is std's source of randomness.
    let random = RandomState::new().build_hasher().finish();
    let share = 0.5 + (random as f64 / u64::MAX as f64) / 2.0;
    wait.mul_f64(share)
}

#[cfg(test)]
mod tests {
    use super::super::error::Head;
    use super::*;

    fn status(status: u16, retry_after_s: Option<u64>) -> Error {
        let head = Head {
            status,
            retry_after: retry_after_s.map(Duration::from_secs),
            ..Head::default()
        };
        Error {
            call: String::new(),
            kind: Kind::Status(Vec::new()),
            head: Some(Box::new(head)),
        }
    }

    #[test]
    fn reads_are_tried_again_only_when_that_may_help() {
        let broken = || Error::new(String::new(), Kind::Unreachable("reset".into()));
        let cases: [(&str, Error, bool); 9] = [
            ("broken connection", broken(), true),
            (
                "cut-off",
                Error::new(String::new(), Kind::Malformed("x".into())),
                true,
            ),
            (
                "time-out",
                Error::new(String::new(), Kind::TimedOut(Duration::from_secs(1))),
                false,
            ),
            (
                "TLS",
                Error::new(String::new(), Kind::Tls("x".into())),
                false,
            ),
            ("503", status(503, None), true),
            ("503 for a long time", status(503, Some(60)), false),
            ("429 without a word", status(429, None), false),
            ("429 for a second", status(429, Some(1)), true),
            ("404", status(404, None), false),
        ];
        for (name, error, expected) in cases {
            let next = wait_after(1, Duration::from_millis(1), Retry::All, &error);
            assert_eq!(next.is_some(), expected, "{name}");
        }
        for (retry, status_code, expected) in [
            (Retry::NotRateLimited, 429, false),
            (Retry::NotRateLimited, 503, true),
            (Retry::Never, 429, false),
            (Retry::Never, 503, false),
        ] {
            let error = status(status_code, Some(1));
            let next = wait_after(1, Duration::from_millis(1), retry, &error);
            assert_eq!(next.is_some(), expected, "{retry:?} {status_code}");
        }
    }

    #[test]
    fn tries_are_bounded() {
        let is_followed = |tries: &u32| {
            let wait = wait_after(
                *tries,
                Duration::from_millis(1),
                Retry::All,
                &status(500, None),
            );
            wait.is_some()
        };
        let tries = 1 + (1..10).filter(is_followed).count();
        assert_eq!(tries, TRIES as usize);
    }
}
