//! Decides what this process does with the Lease. The decision depends on the content of the Lease, and on the time at
//! which this process saw this content for the first time.
//!
//! The rules are those of client-go. This module makes no calls. The times in the Lease are not used, because they are
//! from the clocks of other hosts. The Lease counts as expired when this process has seen no change of the Lease for as
//! long as its `leaseDurationSeconds`.

use crate::kube::{LeaseSpec, micro_time};
use crate::provider::Moment;
use jiff::Timestamp;
use std::time::{Duration, Instant};

/// The greatest value that is written as `leaseTransitions`. This field is an int32, and the API server refuses greater
/// values. Without this limit, no process could become the leader after the field has reached its greatest value.
const TRANSITIONS_AT_MOST: u32 = i32::MAX as u32;

/// A candidate of the leader election: its identity, its settings, and the Lease as it was at the candidate's last
/// read.
pub(super) struct Election {
    identity: String,
    lease_seconds: u32,
    /// How much real time this process counts as one second of the Lease's field `leaseDurationSeconds`. Outside of
    /// tests this is one second. In a test in which the program's clock runs faster than real time, it is less.
    second: Duration,
    seen: Option<SeenRecord>,
}

/// The content of the Lease at the last read, and the time at which this process saw this content for the first time.
struct SeenRecord {
    spec: LeaseSpec,
    since: Instant,
    /// Whether this process saw the Lease with other content before it saw this content. Such a change shows that the
    /// holder is alive.
    changed: bool,
}

/// What this process must do next with the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LeaseStep {
    /// Write this content to the Lease, because this process holds the Lease or is allowed to take it. When there is no
    /// Lease, create it.
    Write(LeaseSpec),
    /// Wait, because another process holds the Lease, and the Lease has not expired.
    Wait {
        holder: String,
        /// Whether the Lease has changed while this process waited for it. A change shows that the holder is alive.
        renewed: bool,
    },
    /// Give up, because this process was the leader and does not hold the Lease any more. `holder` is empty when no
    /// process holds it now.
    Lost { holder: String },
}

impl Election {
    pub(super) fn new(identity: &str, lease_seconds: u32, second: Duration) -> Election {
        Election { identity: identity.to_owned(), lease_seconds, second, seen: None }
    }

    /// Decides the next step. `read` is the Lease as it was just read, or `None` when there is no Lease. `leads` says
    /// whether this process has been the leader until now.
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
            // This process was the leader, but the Lease now has another holder or none. Even if it has none, another
            // process may have been the leader for a time. The leadership is therefore lost.
            LeaseStep::Lost { holder }
        } else if holder.is_empty() || self.has_run_out(now.monotonic) {
            let transitions = spec.transitions.saturating_add(1).min(TRANSITIONS_AT_MOST);
            LeaseStep::Write(self.record(transitions, None, now))
        } else {
            let renewed = self.seen.as_ref().is_some_and(|seen| seen.changed);
            LeaseStep::Wait { holder, renewed }
        }
    }

    /// Returns the new content of a Lease that this process holds and renews. Only `renewTime` differs from the old
    /// content.
    pub(super) fn renewal(&self, ours: &LeaseSpec, now: Moment) -> LeaseSpec {
        self.record(ours.transitions, Some(&ours.acquire_time), now)
    }

    /// Returns the content by which this process releases its Lease, or `None` when another process holds the Lease.
    /// The content names no holder, and its `leaseDurationSeconds` is 1, because the API server refuses 0.
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
        // If the wall clock shows a time that a `Timestamp` can't represent, the start of 1970 is written into the
        // Lease instead. This does no harm, because no process decides anything by the times in a Lease.
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

    /// Parses a text such as `us 15 t 4`, which has the holder, the duration, the renew time and the transitions of a
    /// Lease. The holder `-` stands for no holder. The text `-` stands for no Lease. The acquire time is always `T0`.
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

    /// The reads of the Lease in a test case. Each read has the time in seconds, the content that was read, and the
    /// step that is expected.
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

    /// The renew time in the Lease is from the clock of another host, and can have any value. This process only watches
    /// whether the content of the Lease changes.
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
