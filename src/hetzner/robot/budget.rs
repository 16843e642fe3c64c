//! Limits the number of calls to the Robot web service. Robot has rate limits, which other programs use as well, so
//! this program uses only a part of them. When Robot answers that a limit is used up, no call is sent for some time.

use super::login::whole_second;
use crate::metrics::{ROBOT_BLOCKED, ROBOT_REMAINING};
use crate::provider::{ErrorKind, ProviderError, clock, lock};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const HOUR: Duration = Duration::from_secs(3600);

/// The shortest and the longest pause after Robot has answered that its rate limit is used up. Within these two limits,
/// the answer decides how long the pause is. When `ROBOT_RATE_LIMIT_WAIT_TIME` is set, the pause has exactly that
/// length instead.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// The kinds of calls to the Robot web service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RobotCall {
    /// `GET /server` returns all servers.
    List,
    /// `GET /server/{number}` returns one server. These calls must leave some calls for the list of all servers,
    /// because the list is more important: all nodes need it.
    Server,
    /// `GET /reset/{number}` returns the state of one server, which says whether it is off.
    Reset,
}

/// A token bucket for calls that have the same rate limit. A full bucket has `holds` tokens, and each call takes one.
/// The bucket gets `back_an_hour` new tokens an hour. So within one hour at most `holds + back_an_hour` calls are made.
struct TokenBucket {
    /// The kind of calls to Robot that this token bucket limits, as the metrics name it: `server` or `reset`.
    name: &'static str,
    holds: f64,
    back_an_hour: f64,
    left: f64,
    filled: Instant,
}

pub(super) struct RobotBudget {
    state: Mutex<State>,
    /// The pause from the setting `ROBOT_RATE_LIMIT_WAIT_TIME`. `None` means that Robot's answer decides how long the
    /// pause is.
    pause: Option<Duration>,
}

struct State {
    /// The limit for calls to `/server`: 180 an hour. Robot allows 200.
    server: TokenBucket,
    /// ccm's own limit for calls to `/reset` of Robot: 380 an hour. Robot itself allows 500.
    reset: TokenBucket,
    /// The time until which no call is sent because Robot's rate limit is used up, and a text for the errors until
    /// then. `None` when no pause has been started yet.
    paused: Option<(Instant, String)>,
}

impl RobotCall {
    /// Returns how many calls ccm's own hourly limit must still allow after a call of this kind. They are kept for
    /// other kinds of calls.
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

    /// Counts a call that will be sent now towards ccm's own hourly limit of calls to Robot. When this limit is used
    /// up, or during a pause after Robot has reported its rate limit, the call must not be sent, and the error says
    /// when to try again.
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
                "{what}: postponed: ccm makes at most {} calls to /{} an hour, so that other programs can call Robot, too",
                bucket.holds + bucket.back_an_hour - call.reserve(),
                bucket.name
            );
            ProviderError::new(ErrorKind::RateLimited { retry_in, put_off: true }, why)
        })
    }

    /// Starts a pause in which no call is sent, because Robot answered that its rate limit is used up. Returns the
    /// length of the pause. `what` says what Robot answered. Each call that is refused during the pause has this text
    /// in its error. `interval` is the period of the rate limit in Robot's answer, or `None` when the answer has no
    /// period.
    pub(super) fn pause(&self, what: &str, interval: Option<Duration>, now: Instant) -> Duration {
        let interval = interval.unwrap_or(LONGEST_PAUSE);
        let pause = self.pause.unwrap_or(interval.clamp(SHORTEST_PAUSE, LONGEST_PAUSE));
        let ends = clock::timestamp().checked_add(clock::to_machine(pause));
        let ends = ends.unwrap_or_default();
        ROBOT_BLOCKED.set(&["rate_limit"], ends.as_second() as f64);
        let why = format!("{what}, probably until {}", whole_second(ends));
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

    /// Takes one token, i.e. permits one call, but only if `reserve` other tokens are left afterwards. Otherwise the
    /// error says how long the caller must wait until enough tokens are there.
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

    /// Tries a call every second for two hours. Then looks at the hour with the most calls.
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
        // Each case has the value of the setting `ROBOT_RATE_LIMIT_WAIT_TIME`, the interval of the rate limit in
        // Robot's answer, and the expected pause before the next call.
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
