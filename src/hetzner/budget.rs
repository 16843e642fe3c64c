//! The budget is what remains of the project's API rate limit, 3,600 calls an hour. The autoscaler, the CSI driver and
//! Terraform use the same rate limit. Every call that this program saves is left to them.

use crate::http::Head;
use crate::metrics::{HCLOUD_LIMIT, HCLOUD_REMAINING};
use crate::provider::{ErrorKind, ProviderError, Urgency, clock, lock};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Returns the percentage of the rate limit that must remain before a call of this urgency is sent. The second value is
/// a text for the message about a call that is not sent. The text says which calls are delayed.
fn reserve(urgency: Urgency) -> (u64, &'static str) {
    match urgency {
        Urgency::CanWait => (10, "calls that only refresh data"),
        Urgency::Changed => (5, "calls for Services and routes, but not for nodes"),
        Urgency::Gone => (2, "all calls except those for new nodes"),
        Urgency::Needed | Urgency::Asked => (0, ""),
    }
}

/// The time in which the API's rate limit is refilled by one call.
const REFILL: Duration = Duration::from_secs(1);

/// The pause after the first answer with status 429. Each further 429 doubles the pause, up to `LONGEST_PAUSE`. When
/// `Retry-After` asks for a longer pause, that pause is used.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The longest pause that the header `Retry-After` of an answer can cause. The API's limit is per hour, so all calls
/// are available again after an hour.
const LONGEST_ASKED: Duration = Duration::from_secs(3600);

/// What the API last reported about its rate limit.
#[derive(Default)]
pub(super) struct CloudBudget {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The limit and the remaining calls that the API reported last, and the time of that report. `None` until the
    /// first report.
    seen: Option<(u64, u64, Instant)>,
    /// The number of seconds by which the clock of the API is ahead of the clock of this program. `None` until an
    /// answer contains the time.
    clock_ahead_s: Option<i64>,
    /// The time of the API in the last answer. `None` when that answer did not contain the time.
    api_time: Option<i64>,
    paused_until: Option<Instant>,
    pause: Duration,
}

impl CloudBudget {
    /// Checks that the rate limit allows this call now. Otherwise the call is not sent, and the error says when to try
    /// again.
    pub(super) fn admit(
        &self,
        what: &str,
        urgency: Urgency,
        now: Instant,
    ) -> Result<(), ProviderError> {
        self.admit_after(0, what, urgency, now)
    }

    /// Checks that the rate limit allows the call `what` after `calls` other calls, which the caller will make first.
    /// When it does not, the error says when to try again.
    pub(super) fn admit_after(
        &self,
        calls: u64,
        what: &str,
        urgency: Urgency,
        now: Instant,
    ) -> Result<(), ProviderError> {
        let state = lock(&self.state);
        if let Some(until) = state.paused_until.filter(|until| *until > now) {
            let retry_in = until - now;
            let why = format!(
                "{what}: not sent, because the project's rate limit is used up (429 rate_limit_exceeded); ccm makes no \
                 call for {:.0} s",
                retry_in.as_secs_f64().ceil()
            );
            let kind = ErrorKind::RateLimited { retry_in, put_off: false };
            return Err(ProviderError::new(kind, why));
        }
        let Some((limit, remaining, at)) = state.seen else {
            return Ok(());
        };
        let refilled = now.duration_since(at).div_duration_f64(REFILL) as u64;
        let remaining = remaining.saturating_add(refilled).min(limit);
        let (percent, why) = reserve(urgency);
        let reserve = match limit * percent / 100 {
            0 => 0,
            reserve => reserve + calls,
        };
        if remaining < reserve {
            let retry_in = REFILL * u32::try_from(reserve - remaining).unwrap_or(u32::MAX);
            let why = format!(
                "{what}: postponed: {remaining} of {limit} calls an hour remain in the project, so ccm delays {why}"
            );
            let kind = ErrorKind::RateLimited { retry_in, put_off: true };
            return Err(ProviderError::new(kind, why));
        }
        Ok(())
    }

    /// Returns the rate limit and the number of remaining calls that the API reported last. The second value is the
    /// number of seconds by which the API's clock is ahead of this program's clock. Each value is `None` until an
    /// answer of the API has contained it.
    pub(super) fn seen(&self) -> (Option<(u64, u64)>, Option<i64>) {
        let state = lock(&self.state);
        let rate_limit = state.seen.map(|(limit, remaining, _)| (limit, remaining));
        (rate_limit, state.clock_ahead_s)
    }

    /// Returns the time of the API in the last answer, in UNIX seconds.
    pub(super) fn api_time(&self) -> Option<i64> {
        lock(&self.state).api_time
    }

    /// Remembers the rate limit and the API's time from the headers of an answer. An answer with status 429 begins a
    /// pause in which no call is sent. A successful answer ends the pause.
    pub(super) fn note(&self, head: &Head, now: Instant) {
        let mut state = lock(&self.state);
        if let Some((limit, remaining, _)) = head.rate_limit {
            state.seen = Some((limit, remaining, now));
            HCLOUD_LIMIT.set(&[], limit as f64);
            HCLOUD_REMAINING.set(&[], remaining as f64);
        }
        state.api_time = head.date.map(|date| date.as_second());
        if let Some(date) = head.date {
            state.clock_ahead_s = Some(date.as_second() - clock::timestamp().as_second());
        }
        if head.status == 429 {
            let asked = head.retry_after.unwrap_or_default().min(LONGEST_ASKED);
            state.pause = (state.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
            let pause = state.pause.max(asked);
            state.paused_until = Some(now + pause);
        } else if head.status < 400 {
            state.pause = Duration::ZERO;
            state.paused_until = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(status: u16, remaining: u64) -> Head {
        Head { status, rate_limit: Some((3600, remaining, 0)), ..Head::default() }
    }

    #[test]
    fn the_less_remains_the_more_waits_and_new_nodes_never_do() {
        use Urgency::*;
        let now = Instant::now();
        for (remaining, waiting) in [
            (360, &[][..]),
            (359, &[CanWait]),
            (180, &[CanWait]),
            (179, &[CanWait, Changed]),
            (72, &[CanWait, Changed]),
            (71, &[CanWait, Changed, Gone]),
            (0, &[CanWait, Changed, Gone]),
        ] {
            let budget = CloudBudget::default();
            budget.note(&head(200, remaining), now);
            let waits = |urgency: &Urgency| budget.admit("x", *urgency, now).is_err();
            let all = [CanWait, Changed, Gone, Needed, Asked];
            let seen: Vec<Urgency> = all.into_iter().filter(waits).collect();
            assert_eq!(seen, waiting, "{remaining}");
        }
    }

    #[test]
    fn what_can_wait_waits_below_a_tenth_and_goes_on_when_refilled() {
        let budget = CloudBudget::default();
        let start = Instant::now();
        let later = |s| start + Duration::from_secs(s);
        assert!(budget.admit("x", Urgency::CanWait, start).is_ok(), "nothing is known yet");
        let cases = [
            (3600, 0, true),
            (360, 0, true),
            (359, 0, false),
            (300, 59, false),
            (300, 61, true),
            (0, 10, false),
        ];
        for (remaining, after_s, can_wait_passes) in cases {
            budget.note(&head(200, remaining), start);
            let outcome = budget.admit("x", Urgency::CanWait, later(after_s));
            assert!(outcome.as_ref().err().is_none_or(ProviderError::is_put_off));
            assert_eq!(outcome.is_ok(), can_wait_passes, "{remaining} remain, {after_s} s later");
            assert!(budget.admit("x", Urgency::Needed, later(after_s)).is_ok(), "a person waits");
        }
    }

    #[test]
    fn after_a_429_nothing_is_asked_and_the_pause_doubles() {
        let budget = CloudBudget::default();
        let mut now = Instant::now();
        for expected_s in [2, 4, 8, 16, 32, 60, 60] {
            budget.note(&head(429, 0), now);
            let error = budget.admit("GET /servers", Urgency::Needed, now).err();
            let expected = Duration::from_secs(expected_s);
            assert_eq!(
                error.map(|e| e.kind),
                Some(ErrorKind::RateLimited { retry_in: expected, put_off: false })
            );
            now += expected;
            assert!(budget.admit("GET /servers", Urgency::Needed, now).is_ok());
        }
        budget.note(&head(200, 10), now);
        budget.note(&head(429, 0), now);
        assert!(
            budget.admit("x", Urgency::Needed, now + Duration::from_secs(2)).is_ok(),
            "back to the first pause"
        );
    }

    #[test]
    fn a_retry_after_is_honoured_up_to_an_hour() {
        for (asked_s, expected_s) in
            [(0, 2), (1, 2), (61, 61), (900, 900), (86_400, 3_600), (u64::MAX, 3_600)]
        {
            let budget = CloudBudget::default();
            let now = Instant::now();
            let head = Head { retry_after: Some(Duration::from_secs(asked_s)), ..head(429, 0) };
            budget.note(&head, now);
            let after = |s| budget.admit("x", Urgency::Needed, now + Duration::from_secs(s));
            assert!(after(expected_s - 1).is_err(), "asked for {asked_s} s");
            assert!(after(expected_s).is_ok(), "asked for {asked_s} s");
        }
    }
}
