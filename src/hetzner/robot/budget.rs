//! The budget of calls to the Robot web service. It is smaller than Robot's own rate limits, because other programs,
//! such as an installer or a script, use the same limits. After Robot has reported that a rate limit is used up, no
//! call is made for some time.

use super::login::whole_second;
use crate::metrics::{ROBOT_BLOCKED, ROBOT_REMAINING};
use crate::provider::{ErrorKind, ProviderError, clock, lock};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const HOUR: Duration = Duration::from_secs(3600);

/// The shortest and the longest pause after Robot has reported that a rate limit is used up. Within these bounds, the
/// pause is as long as Robot's answer says. `ROBOT_RATE_LIMIT_WAIT_TIME` replaces all this by a fixed pause.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// The kinds of calls to the web service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RobotCall {
    /// `GET /server`, which lists all servers.
    List,
    /// A call of `GET /server/{number}`. These calls leave a part of the budget for the list of all servers, which is
    /// needed by all nodes.
    Server,
    /// A call of `GET /reset/{number}`, which says whether a server is off.
    Reset,
}

/// A token bucket for calls with a common rate limit. A full bucket holds `holds` tokens, and each call takes one. The
/// bucket gets `back_an_hour` new tokens an hour, so at most `holds + back_an_hour` calls are made in an hour.
struct TokenBucket {
    /// The bucket's name in metrics.
    name: &'static str,
    holds: f64,
    back_an_hour: f64,
    left: f64,
    filled: Instant,
}

pub(super) struct RobotBudget {
    state: Mutex<State>,
    /// The pause that `ROBOT_RATE_LIMIT_WAIT_TIME` sets. `None` means that Robot's answer says how long to pause.
    pause: Option<Duration>,
}

struct State {
    /// The budget for calls to `/server`: 180 of the 200 calls an hour that the web service allows.
    server: TokenBucket,
    /// The budget for calls to `/reset`: 380 of the 500 calls an hour that the web service allows.
    reset: TokenBucket,
    /// The time until which no call is sent, because Robot reported that its rate limit is used up, and the text for
    /// the errors of calls before that time.
    paused: Option<(Instant, String)>,
}

impl RobotCall {
    /// Returns how many calls of the budget are kept for the other kinds of calls.
    fn reserve(self) -> f64 {
        if self == RobotCall::Server { 20.0 } else { 0.0 }
    }
}

impl RobotBudget {
    pub(super) fn new(pause: Option<Duration>) -> RobotBudget {
        ROBOT_BLOCKED.set(&["rate_limit"], 0.0);
        RobotBudget {
            state: Mutex::new(State {
                server: TokenBucket::new("server", 40.0, 140.0),
                reset: TokenBucket::new("reset", 40.0, 340.0),
                paused: None,
            }),
            pause,
        }
    }

    /// Counts this call, which is made now, in the budget. The error says when to try again. A call that is refused
    /// here is not counted.
    pub(super) fn admit(
        &self,
        call: RobotCall,
        what: &str,
        now: Instant,
    ) -> Result<(), ProviderError> {
        let mut state = lock(&self.state);
        if let Some((until, why)) = state.paused.as_ref().filter(|(until, _)| *until > now) {
            let why = format!("{what}: not sent: {why}");
            let retry_in = *until - now;
            let kind = ErrorKind::RateLimited { retry_in, put_off: false };
            return Err(ProviderError::new(kind, why));
        }
        let bucket = match call {
            RobotCall::List | RobotCall::Server => &mut state.server,
            RobotCall::Reset => &mut state.reset,
        };
        bucket.take(call.reserve(), now).map_err(|retry_in| {
            let why = format!(
                "{what}: postponed: ccm makes at most {} such calls an hour, fewer than Robot allows",
                bucket.holds + bucket.back_an_hour - call.reserve()
            );
            ProviderError::new(ErrorKind::RateLimited { retry_in, put_off: true }, why)
        })
    }

    /// Stops all calls for a time, because the web service answered that its rate limit is used up. Returns how
    /// long the pause is. `what` is included in the errors of later calls. `interval` is the period of the rate
    /// limit from the answer.
    pub(super) fn pause(&self, what: &str, interval: Option<Duration>, now: Instant) -> Duration {
        let interval = interval.unwrap_or(LONGEST_PAUSE);
        let pause = self.pause.unwrap_or(interval.clamp(SHORTEST_PAUSE, LONGEST_PAUSE));
        let ends = clock::timestamp().checked_add(clock::to_machine(pause));
        let ends = ends.unwrap_or_default();
        ROBOT_BLOCKED.set(&["rate_limit"], ends.as_second() as f64);
        let why = format!("{what}; asking again at {}", whole_second(ends));
        let mut state = lock(&self.state);
        state.paused = Some((now + pause, why));
        pause
    }
}

impl TokenBucket {
    fn new(name: &'static str, holds: f64, back_an_hour: f64) -> TokenBucket {
        ROBOT_REMAINING.set(&[name], holds);
        TokenBucket { name, holds, back_an_hour, left: holds, filled: clock::now() }
    }

    /// Takes one token, if at least `reserve` tokens are left after it. The error is the time until this is possible.
    fn take(&mut self, reserve: f64, now: Instant) -> Result<(), Duration> {
        let passed = now.saturating_duration_since(self.filled);
        let back = passed.div_duration_f64(HOUR) * self.back_an_hour;
        self.left = (self.left + back).min(self.holds);
        self.filled = now;
        let missing = reserve + 1.0 - self.left;
        if missing > 0.0 {
            return Err(HOUR.mul_f64(missing / self.back_an_hour));
        }
        self.left -= 1.0;
        ROBOT_REMAINING.set(&[self.name], self.left.floor());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put_off(result: &Result<(), ProviderError>) -> bool {
        result.as_ref().is_err_and(ProviderError::is_put_off)
    }

    /// Asks every second for two hours, and counts the calls of the hour with the most calls.
    #[test]
    fn an_hour_has_no_more_calls_than_its_budget() {
        for (call, at_most, at_least) in [
            (RobotCall::List, 180, 179),
            (RobotCall::Server, 160, 159),
            (RobotCall::Reset, 380, 379),
        ] {
            let budget = RobotBudget::new(None);
            let begun = Instant::now();
            let second = |s: u32| begun + Duration::from_secs(1) * s;
            let made: Vec<u32> =
                (0..7200).filter(|s| budget.admit(call, "x", second(*s)).is_ok()).collect();
            let of_hour = |from: u32| made.iter().filter(move |s| (from..from + 3600).contains(s));
            let fullest = (0..3600).map(|from| of_hour(from).count()).max().unwrap_or_default();
            assert!((at_least..=at_most).contains(&fullest), "{call:?}: {fullest}");
        }
    }

    #[test]
    fn single_servers_leave_calls_for_the_list() {
        let budget = RobotBudget::new(None);
        let now = Instant::now();
        let count =
            |call| (0..100).map(|_| budget.admit(call, "x", now)).filter(Result::is_ok).count();
        assert_eq!(count(RobotCall::Server), 20);
        assert!(put_off(&budget.admit(RobotCall::Server, "x", now)));
        assert_eq!(count(RobotCall::List), 20);
        assert_eq!(count(RobotCall::Reset), 40);
    }

    #[test]
    #[rustfmt::skip] // A case is a line.
    fn a_rate_limit_is_waited_out() {
        let s = Duration::from_secs;
        // Each case is the setting, the interval that the answer names, and the expected wait.
        for (pause, interval, expected) in [
            (None, Some(s(60)), s(60)),
            (None, Some(s(3600)), s(300)),
            (None, Some(Duration::MAX), s(300)),
            (None, Some(s(0)), s(1)),
            (None, None, s(300)),
            (Some(s(900)), Some(s(60)), s(900)),
        ] {
            let budget = RobotBudget::new(pause);
            let now = Instant::now();
            assert_eq!(budget.pause("used up", interval, now), expected);
            for call in [RobotCall::List, RobotCall::Server, RobotCall::Reset] {
                let error = budget.admit(call, "x", now + expected - s(1)).err();
                let kind = error.map(|error| error.kind);
                assert_eq!(kind, Some(ErrorKind::RateLimited { retry_in: s(1), put_off: false }));
            }
            assert!(budget.admit(RobotCall::List, "x", now + expected).is_ok());
        }
    }
}
