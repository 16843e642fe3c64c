//! Leader election: which Lease, and durations that fit together.

use super::problem::Problem;
use super::resolve::Settings;
use crate::text::{is_label, is_subdomain};
use std::fmt;
use std::time::Duration;

/// What a write may take: one that could outlive the lease does not start.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(8);

/// client-go's `JitterFactor`: a candidate may look that many retry periods later.
const JITTER_FACTOR: f64 = 1.2;

/// `leaseDurationSeconds` is an int32.
const LONGEST_LEASE: Duration = Duration::from_secs(i32::MAX as u64);

/// Name of an object or namespace, as the API server takes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectName(String);

impl ObjectName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A DNS subdomain, RFC 1123.
pub(super) fn name(text: &str) -> Result<ObjectName, String> {
    if is_subdomain(text) {
        return Ok(ObjectName(text.to_owned()));
    }
    Err("use lower case letters, digits, - and ., a letter or digit first and last".to_owned())
}

/// A DNS label, RFC 1123.
pub(super) fn namespace(text: &str) -> Result<ObjectName, String> {
    if is_label(text) {
        return Ok(ObjectName(text.to_owned()));
    }
    Err("use at most 63 lower case letters, digits and -, a letter or digit first and last".into())
}

/// What does not fit together, as client-go checks it, and as our gate needs it.
pub(super) fn problems(settings: &Settings) -> Vec<Problem> {
    if !settings.leader_elect.value {
        return Vec::new();
    }
    let (lease, deadline) = (&settings.lease_duration, &settings.renew_deadline);
    let retry = settings.retry_period.value;
    let mut problems = Vec::new();
    let mut wrong = |flag: &str, value: Duration, message: String| {
        problems.push(Problem::usage(flag, message).with_value(in_seconds(value)));
    };
    if deadline.value.as_secs_f64() <= JITTER_FACTOR * retry.as_secs_f64() {
        let message = format!(
            "must be longer than {JITTER_FACTOR} × --leader-elect-retry-period ({})",
            in_seconds(retry)
        );
        wrong("--leader-elect-renew-deadline", deadline.value, message);
    }
    let shortest = WRITE_TIMEOUT.saturating_add(retry);
    if lease.value <= deadline.value {
        let message = format!(
            "must be longer than --leader-elect-renew-deadline ({})",
            in_seconds(deadline.value)
        );
        wrong("--leader-elect-lease-duration", lease.value, message);
    } else if lease.value < shortest {
        let message = format!(
            "must be {} or longer: a write may take {} and must be over before the Lease is, \
             also at the end of a --leader-elect-retry-period ({})",
            in_seconds(shortest),
            in_seconds(WRITE_TIMEOUT),
            in_seconds(retry)
        );
        wrong("--leader-elect-lease-duration", lease.value, message);
    } else if lease.value > LONGEST_LEASE {
        let message = "longer than 68 years".to_owned();
        wrong("--leader-elect-lease-duration", lease.value, message);
    }
    problems
}

fn in_seconds(duration: Duration) -> String {
    format!("{}s", duration.as_secs_f64())
}
