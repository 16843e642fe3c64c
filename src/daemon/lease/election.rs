//! Decides what a process does about the Lease. The decision depends on the content of the Lease, and on the time at
//! which this process first saw that content.
//!
//! This module has no side effects, and decides as client-go does. The times that other hosts have written into the
//! Lease are not used. The Lease expires when its content has not changed for its duration, by the clock of this
//! process.

use crate::kube::{LeaseSpec, micro_time};
use crate::provider::Moment;
use jiff::Timestamp;
use std::time::{Duration, Instant};

/// The greatest value that is written as `leaseTransitions`, which is an int32. The API server would refuse a greater
/// value, and then no process could become the leader.
const TRANSITIONS_AT_MOST: u32 = i32::MAX as u32;

/// The identity and settings of one candidate, and what the candidate saw at its last read of the Lease.
pub(super) struct Election {
    identity: String,
    lease_seconds: u32,
    /// How long one second of `leaseDurationSeconds` lasts. Only tests that make time run faster use another value than
    /// a real second.
    second: Duration,
    seen: Option<SeenRecord>,
}

/// The content of the Lease, and the time at which this process first saw this content.
struct SeenRecord {
    spec: LeaseSpec,
    since: Instant,
    /// Whether this process saw other content of the Lease before this content.
    changed: bool,
}

/// What a process that wants or holds the Lease does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LeaseStep {
    /// This process holds the Lease, or is allowed to take it. This content must be written to the Lease that was read,
    /// or to a new Lease if none exists.
    Write(LeaseSpec),
    /// Another process holds the Lease, and the Lease has not expired.
    Wait {
        holder: String,
        /// Whether this process saw the Lease change, which shows that the holder is alive.
        renewed: bool,
    },
    /// This process was the leader, but does not hold the Lease any more. `holder` is empty when nobody holds it.
    Lost { holder: String },
}

impl Election {
    pub(super) fn new(identity: &str, lease_seconds: u32, second: Duration) -> Election {
        Election { identity: identity.to_owned(), lease_seconds, second, seen: None }
    }

    /// Decides the next step from the Lease that was just read. `leads` says whether this process has been the leader.
    pub(super) fn step(&mut self, read: Option<&LeaseSpec>, leads: bool, now: Moment) -> LeaseStep {
        let Some(spec) = read else {
            self.seen = None;
            return LeaseStep::Write(self.record(0, None, now));
        };
        self.see(spec, now.monotonic);
        let holder = spec.holder.clone();
        if holder == self.identity {
            LeaseStep::Write(self.renewal(spec, now))
        } else if leads {
            // When this process has led and the Lease has no holder now, another process may have led in between. The
            // Lease counts as lost.
            LeaseStep::Lost { holder }
        } else if holder.is_empty() || self.has_run_out(now.monotonic) {
            let transitions = spec.transitions.saturating_add(1).min(TRANSITIONS_AT_MOST);
            LeaseStep::Write(self.record(transitions, None, now))
        } else {
            let renewed = self.seen.as_ref().is_some_and(|seen| seen.changed);
            LeaseStep::Wait { holder, renewed }
        }
    }

    /// Returns the new content of a Lease that this process holds. Only the time of the renewal changes.
    pub(super) fn renewal(&self, ours: &LeaseSpec, now: Moment) -> LeaseSpec {
        self.record(ours.transitions, Some(&ours.acquire_time), now)
    }

    /// Returns the content that releases the Lease, or `None` when another process holds the Lease. The content has no
    /// holder, and a duration of 1 second, because the API server refuses 0.
    pub(super) fn release(&self, read: &LeaseSpec, now: Moment) -> Option<LeaseSpec> {
        (read.holder == self.identity).then(|| LeaseSpec {
            holder: String::new(),
            duration_seconds: 1,
            ..self.record(read.transitions, None, now)
        })
    }

    fn see(&mut self, spec: &LeaseSpec, now: Instant) {
        let before = self.seen.take();
        let changed = before.is_some();
        self.seen = Some(match before {
            Some(seen) if seen.spec == *spec => seen,
            _ => SeenRecord { spec: spec.clone(), since: now, changed },
        });
    }

    fn has_run_out(&self, now: Instant) -> bool {
        self.seen.as_ref().is_none_or(|seen| {
            let duration = self.second.saturating_mul(seen.spec.duration_seconds);
            now.duration_since(seen.since) >= duration
        })
    }

    fn record(&self, transitions: u32, acquired: Option<&str>, now: Moment) -> LeaseSpec {
        // A time that a timestamp can't represent is written as 1970. That does no harm, because no process makes
        // decisions from this time.
        let now = micro_time(Timestamp::try_from(now.wall).unwrap_or_default());
        LeaseSpec {
            holder: self.identity.clone(),
            duration_seconds: self.lease_seconds,
            acquire_time: acquired.map_or_else(|| now.clone(), str::to_owned),
            renew_time: now,
            transitions,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    fn wall(text: &str) -> SystemTime {
        text.parse::<Timestamp>().unwrap().into()
    }

    const T0: &str = "2026-11-20T10:00:00.000000Z";

    /// Parses the content of a Lease from a text `holder duration renewTime transitions`. The acquire time is always
    /// T0. The holder `-` means no holder. The text `-` means that there is no Lease.
    fn record(text: &str) -> Option<LeaseSpec> {
        let words: Vec<&str> = text.split(' ').collect();
        let [holder, seconds, renewed, transitions] = words.as_slice() else {
            return None;
        };
        Some(LeaseSpec {
            holder: holder.trim_matches('-').to_owned(),
            duration_seconds: seconds.parse().unwrap(),
            acquire_time: T0.into(),
            renew_time: (*renewed).to_owned(),
            transitions: transitions.parse().unwrap(),
        })
    }

    fn shown(step: LeaseStep) -> String {
        match step {
            LeaseStep::Write(spec) if spec.acquire_time == T0 => {
                format!("renew {}", spec.transitions)
            }
            LeaseStep::Write(spec) => format!("take {}", spec.transitions),
            LeaseStep::Wait { holder, renewed } => {
                format!("wait for {holder}{}", if renewed { ", alive" } else { "" })
            }
            LeaseStep::Lost { holder } => format!("lost to {holder}"),
        }
    }

    /// The reads of the Lease in one test case. Each read has its time in seconds, the content of the Lease, and the
    /// step that must follow.
    type Reads = &'static [(u64, &'static str, &'static str)];

    fn check(name: &str, leads: bool, reads: Reads) {
        let begun = Instant::now();
        let mut election = Election::new("us", 15, Duration::from_secs(1));
        for (at_s, read, expected) in reads {
            let now = Moment {
                monotonic: begun + Duration::from_secs(*at_s),
                wall: wall("2026-11-20T11:00:00Z"),
            };
            let step = election.step(record(read).as_ref(), leads, now);
            assert_eq!(shown(step), *expected, "{name}, second {at_s}");
        }
    }

    #[test]
    #[rustfmt::skip] // Each line is a read.
    fn a_candidate_waits_and_takes() {
        let cases: [(&str, Reads); 10] = [
            ("counted to the end", &[(0, "- 1 t 2147483647", "take 2147483647")]),
            ("absent", &[(0, "-", "take 0")]),
            ("empty-handed", &[(0, "- 1 t 4", "take 5")]),
            ("ours, though we did not know", &[(0, "us 15 t 4", "renew 4")]),
            ("held and never renewed", &[
                (0, "a 15 t 0", "wait for a"),
                (14, "a 15 t 0", "wait for a"),
                (15, "a 15 t 0", "take 1"),
            ]),
            ("renewed: its age begins anew", &[
                (0, "a 15 t 0", "wait for a"),
                (14, "a 15 u 0", "wait for a, alive"),
                (28, "a 15 u 0", "wait for a, alive"),
                (29, "a 15 u 0", "take 1"),
            ]),
            ("another one takes it", &[
                (0, "a 15 t 0", "wait for a"),
                (10, "b 15 t 1", "wait for b, alive"),
                (24, "b 15 t 1", "wait for b, alive"),
            ]),
            ("released while we wait", &[(0, "a 15 t 0", "wait for a"), (2, "- 1 t 0", "take 1")]),
            ("deleted while we wait", &[
                (0, "a 15 t 0", "wait for a"),
                (2, "-", "take 0"),
                (3, "b 15 t 0", "wait for b"),
            ]),
            ("its own duration counts, not ours", &[
                (0, "a 60 t 0", "wait for a"),
                (59, "a 60 t 0", "wait for a"),
                (60, "a 60 t 0", "take 1"),
            ]),
        ];
        for (name, reads) in cases {
            check(name, false, reads);
        }
    }

    /// The clock of another host can show any time. This process only checks whether the content of the Lease changes.
    #[test]
    fn another_host_s_clock_does_not_matter() {
        for renewed in ["1970-01-01T00:00:00.000000Z", "2199-01-01T00:00:00.000000Z", "-", "soon"] {
            let spec = record(&format!("a 15 {renewed} 0"));
            let begun = Instant::now();
            let mut election = Election::new("us", 15, Duration::from_secs(1));
            for (at_s, expected) in [(0, "wait for a"), (14, "wait for a"), (15, "take 1")] {
                let now = Moment {
                    monotonic: begun + Duration::from_secs(at_s),
                    wall: SystemTime::now(),
                };
                let step = election.step(spec.as_ref(), false, now);
                assert_eq!(shown(step), expected, "{renewed}, second {at_s}");
            }
        }
    }

    #[test]
    #[rustfmt::skip] // Each line is a read.
    fn a_leader_renews_or_has_lost() {
        let cases: [(&str, Reads); 5] = [
            ("ours", &[(0, "us 15 t 4", "renew 4"), (60, "us 15 t 4", "renew 4")]),
            ("deleted under us", &[(0, "-", "take 0")]),
            ("taken", &[(0, "a 15 t 5", "lost to a")]),
            ("taken, and run out", &[(0, "a 0 t 5", "lost to a")]),
            ("taken, and released", &[(0, "- 1 t 5", "lost to ")]),
        ];
        for (name, reads) in cases {
            check(name, true, reads);
        }
    }

    #[test]
    fn what_is_written_is_what_client_go_writes() {
        let now = Moment { monotonic: Instant::now(), wall: wall("2026-11-20T11:00:00.5Z") };
        let now_text = "2026-11-20T11:00:00.500000Z".to_owned();
        let election = Election::new("us", 15, Duration::from_secs(1));
        let ours = record("us 15 t 4").unwrap();
        let renewed = LeaseSpec { renew_time: now_text.clone(), ..ours.clone() };
        assert_eq!(election.renewal(&ours, now), renewed);
        let released = LeaseSpec {
            holder: String::new(),
            duration_seconds: 1,
            acquire_time: now_text,
            ..renewed
        };
        assert_eq!(election.release(&ours, now), Some(released));
    }
}
