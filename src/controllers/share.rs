//! The share of API calls that the Services of one namespace may use, so that no namespace uses up the rate limit of
//! the whole Hetzner Cloud project. Each call is subtracted from the share. As time passes, the share is filled again.

use crate::provider::lock;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How many API calls the changes of one namespace's Services may use at once, when the namespace has used none for
/// some time (a full share). The Hetzner Cloud project has 3,600 calls an hour, which all programs share.
const AT_ONCE: u32 = 900;

/// The time after which a namespace gets back one API call that it has used. So it gets back 900 calls in an hour. Each
/// namespace has a share, i.e. a limited number of API calls that it can make.
const REFILL: Duration = Duration::from_secs(4);

/// The greatest part of a full share of API calls that is kept for the reads of the next plan. Usually as many calls
/// are kept as the reads of the last plan needed. Without this limit, the reads in a project of many thousand servers
/// would seem to need the whole share, and no change would ever begin.
const READS_AT_MOST: f64 = 0.5;

/// The number of API calls that the Services of one namespace can still make now.
#[derive(Debug)]
pub(super) struct CallShare {
    bucket: Mutex<ShareBucket>,
}

#[derive(Debug)]
struct ShareBucket {
    /// How many API calls ccm still allows the namespace, i.e. what is left of its share. The number can be negative,
    /// because calls that are already running when the share is used up are still subtracted.
    left: f64,
    at: Instant,
    /// How many API calls it took to read the cloud's data for the last plan of a Service of this namespace. The next
    /// plan is expected to need as many.
    reads: f64,
}

/// Says which namespace's share of the API rate limit is charged for the changes of one object. This is usually the
/// namespace of the object. It is the namespace of another Service when that Service has caused the changes, e.g.
/// because both Services use the same load balancer.
#[derive(Clone, Debug)]
pub(super) struct Payer {
    pub(super) share: Arc<CallShare>,
    /// Whether the changes of the object stop when the namespace of `share` may make no more API calls at present. This
    /// is `false` when `share` belongs to another namespace than the object, because a Service of that namespace has
    /// caused the changes, e.g. when both use the same load balancer. The object must not suffer because the other
    /// namespace has made too many calls.
    pub(super) can_stop: bool,
}

impl CallShare {
    /// Creates the share of API calls of a namespace, with all calls that the namespace may use at once.
    pub(super) fn full(now: Instant) -> CallShare {
        CallShare { bucket: Mutex::new(ShareBucket { left: AT_ONCE.into(), at: now, reads: 0.0 }) }
    }

    /// Subtracts this number of API calls from those that the Services of the namespace may still use.
    pub(super) fn charge(&self, calls: f64, now: Instant) {
        self.at(now, |bucket| bucket.left -= calls);
    }

    /// Subtracts `calls`, the number of API calls that have read the data for a plan, from the calls that the namespace
    /// may still use. Also stores this number, because the reads for the next plan will probably need as many calls.
    pub(super) fn charge_reads(&self, calls: u64, now: Instant) {
        let calls = calls as f64;
        self.at(now, |bucket| {
            bucket.left -= calls;
            bucket.reads = calls.min(f64::from(AT_ONCE) * READS_AT_MOST);
        });
    }

    /// Returns how many API calls the Services of the namespace may still make for changes. The calls that the next
    /// plan will probably need for its reads are already subtracted.
    pub(super) fn left_after_reads(&self, now: Instant) -> f64 {
        self.at(now, |bucket| bucket.left - bucket.reads)
    }

    pub(super) fn is_used_up(&self, now: Instant) -> bool {
        self.at(now, |bucket| bucket.left <= 0.0)
    }

    pub(super) fn is_full(&self, now: Instant) -> bool {
        self.at(now, |bucket| bucket.left >= AT_ONCE.into())
    }

    /// Adds the API calls that the namespace may make again, because time has passed since the last call of this
    /// function. Then calls `ask` with the number of API calls that are left to the namespace, and returns the result
    /// of `ask`.
    fn at<T>(&self, now: Instant, ask: impl FnOnce(&mut ShareBucket) -> T) -> T {
        let mut bucket = lock(&self.bucket);
        let passed = now.saturating_duration_since(bucket.at);
        let back = passed.div_duration_f64(REFILL);
        bucket.left = (bucket.left + back).min(AT_ONCE.into());
        bucket.at = bucket.at.max(now);
        ask(&mut bucket)
    }
}

impl Payer {
    /// An object in the namespace of this share can cause changes of an object in another namespace. Returns the payer
    /// for that other object, i.e. says whose share of API calls is charged for its changes. It is the same share, but
    /// the changes of the other object do not stop when this share is used up.
    pub(super) fn of_another(&self) -> Payer {
        Payer { share: Arc::clone(&self.share), can_stop: false }
    }

    /// Whether the changes of the object that were not sent yet must be dropped, because the namespace whose share of
    /// API calls is charged has no calls left.
    pub(super) fn must_stop(&self, now: Instant) -> bool {
        self.can_stop && self.share.is_used_up(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nine_hundred_calls_at_once_and_nine_hundred_an_hour() {
        let start = Instant::now();
        let share = CallShare::full(start);
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        // The first number is how many calls are tried in each second. The second number is how many of them the share
        // allows in one hour.
        for (each_second, expected) in [(1, 900 + 900), (7, 900 + 900), (100, 900 + 900)] {
            let share = CallShare::full(start);
            let mut made = 0;
            for second in 0..3600 {
                for _ in 0..each_second {
                    if !share.is_used_up(at(second)) {
                        share.charge(1.0, at(second));
                        made += 1;
                    }
                }
            }
            assert!((expected - 1..=expected + 1).contains(&made), "{made}");
            assert!(!share.is_full(at(3600)));
            assert!(share.is_full(at(3600 + 3605)), "an hour of rest");
        }
        share.charge(1000.0, start);
        assert!(share.is_used_up(at(399)), "what was too much comes first");
        assert!(!share.is_used_up(at(405)));
        share.charge_reads(10, at(405));
        let left = share.left_after_reads(at(405));
        assert!((-19.0..-18.0).contains(&left), "{left}");
        // A thread reads the clock before it calls `charge`. So a call of `charge` can have an earlier time than the
        // call before it. The share gets API calls back as time passes, but an earlier time gives nothing back.
        share.charge(1.0, start);
        assert!(!share.is_full(at(3600)));
    }

    /// Each namespace has a share of the API calls: a limit of calls, which is refilled over time. At any time, the
    /// calls that were charged to the share are at most the limit, plus the calls that were refilled, plus the largest
    /// single charge.
    #[test]
    fn never_more_than_the_share_and_what_came_back() {
        let mut seed = 1_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for _ in 0..200 {
            let start = Instant::now();
            let share = CallShare::full(start);
            let (mut now, mut made, mut largest) = (Duration::ZERO, 0_u64, 0);
            for _ in 0..300 {
                now += Duration::from_millis(random(60_000));
                let calls = 1 + random(40);
                if !share.is_used_up(start + now) {
                    share.charge(calls as f64, start + now);
                    made += calls;
                    largest = largest.max(calls);
                }
                let back = now.as_secs() / 4 + 1;
                assert!(made <= u64::from(AT_ONCE) + back + largest, "{made} in {now:?}");
            }
        }
    }
}
