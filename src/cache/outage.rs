//! While the cloud's API does not answer it is asked ever less often: every call would be one
//! of the hour's budget, spent when it helps least.

use crate::provider::{Error, ErrorKind};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const FIRST: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(300);

/// What the API said last, if that was nothing of use.
pub(super) struct Outage {
    last: Mutex<Option<Failed>>,
    /// Multiplies the waits; 1 outside of tests.
    scale: f64,
}

struct Failed {
    error: Error,
    wait: Duration,
    again: Instant,
}

impl Outage {
    pub(super) fn new(scale: f64) -> Outage {
        Outage {
            last: Mutex::new(None),
            scale,
        }
    }

    /// Asks, or answers what was answered last while it is too early to ask again.
    pub(super) fn guard<T>(&self, ask: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        if let Some(error) = self.too_early(Instant::now()) {
            return Err(error);
        }
        let outcome = ask();
        self.note(outcome.as_ref().err(), Instant::now());
        outcome
    }

    fn too_early(&self, now: Instant) -> Option<Error> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref()
            .filter(|failed| now < failed.again)
            .map(|failed| failed.error.clone())
    }

    fn note(&self, error: Option<&Error>, now: Instant) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = match error {
            // The rate budget counts its own time; every other answer is an answer.
            Some(error) if error.kind == ErrorKind::Unavailable => {
                let wait = last
                    .as_ref()
                    .map_or(FIRST, |failed| (failed.wait * 2).min(LONGEST));
                Some(Failed {
                    error: error.clone(),
                    wait,
                    again: now + wait.mul_f64(self.scale),
                })
            }
            _ => None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn away() -> Error {
        Error::new(ErrorKind::Unavailable, "away")
    }

    #[test]
    fn it_is_asked_ever_less_often_and_at_once_when_it_is_back() {
        let outage = Outage::new(1.0);
        let mut now = Instant::now();
        for wait_s in [5, 10, 20, 40, 80, 160, 300, 300] {
            assert_eq!(outage.too_early(now), None);
            outage.note(Some(&away()), now);
            now += Duration::from_secs(wait_s);
            assert_eq!(
                outage.too_early(now - Duration::from_millis(1)),
                Some(away())
            );
        }
        outage.note(None, now);
        assert_eq!(outage.too_early(now), None);
        outage.note(Some(&away()), now);
        assert_eq!(
            outage.too_early(now + FIRST),
            None,
            "from the first wait on again"
        );
    }

    #[test]
    fn an_answer_is_no_outage() {
        let outage = Outage::new(1.0);
        for kind in [
            ErrorKind::NotFound,
            ErrorKind::Unauthorized,
            ErrorKind::Other,
        ] {
            outage.note(Some(&Error::new(kind, "no")), Instant::now());
            assert_eq!(outage.too_early(Instant::now()), None);
        }
    }
}
