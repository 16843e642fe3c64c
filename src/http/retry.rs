//! When a read that failed is tried again, and how long to wait before.

use super::error::{Error, Kind};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// Tries of one read, the first included.
const TRIES: u32 = 3;

/// A `Retry-After` longer than this is the caller's to wait for, not a sleeping thread's.
const LONGEST_WAIT: Duration = Duration::from_secs(3);

pub(super) struct Attempts {
    made: u32,
    wait: Duration,
    /// See `Settings::retry_rate_limited`.
    rate_limited: bool,
}

pub(super) enum Next {
    GiveUp,
    TryAgain(Duration),
}

impl Attempts {
    pub(super) fn new(wait: Duration, rate_limited: bool) -> Attempts {
        Attempts {
            made: 1,
            wait,
            rate_limited,
        }
    }

    pub(super) fn next(&mut self, error: &Error) -> Next {
        if self.made >= TRIES || !self.may_succeed_later(error) {
            return Next::GiveUp;
        }
        let asked = error.head.as_ref().and_then(|head| head.retry_after);
        let wait = asked.unwrap_or_else(|| jittered(self.wait));
        if wait > LONGEST_WAIT {
            return Next::GiveUp;
        }
        self.made += 1;
        self.wait *= 2;
        Next::TryAgain(wait)
    }

    /// A time-out has cost enough already, and a refusal would be refused again. 429 only with
    /// the API's word on when: asking again too early costs what it has little of.
    fn may_succeed_later(&self, error: &Error) -> bool {
        use Kind::*;
        match &error.kind {
            Unreachable(_) | Malformed(_) => true,
            Status(_) => match error.status() {
                Some(429) => {
                    let head = error.head.as_ref();
                    self.rate_limited && head.is_some_and(|head| head.retry_after.is_some())
                }
                Some(status) => status >= 500,
                None => false,
            },
            TimedOut(_) | Untrusted(_) | Tls(_) | Refused(_) | Token(_) | Request(_) => false,
        }
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
            let next = Attempts::new(Duration::from_millis(1), true).next(&error);
            assert_eq!(matches!(next, Next::TryAgain(_)), expected, "{name}");
        }
        let next = Attempts::new(Duration::from_millis(1), false).next(&status(429, Some(1)));
        assert!(matches!(next, Next::GiveUp), "the caller keeps a budget");
    }

    #[test]
    fn tries_are_bounded() {
        let mut attempts = Attempts::new(Duration::from_millis(1), true);
        let tries = 1
            + (0..10)
                .filter(|_| matches!(attempts.next(&status(500, None)), Next::TryAgain(_)))
                .count();
        assert_eq!(tries, TRIES as usize);
    }
}
