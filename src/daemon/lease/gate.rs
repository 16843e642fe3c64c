//! No write starts unless its own time-out still fits into the lease.

use super::{Leadership, Lease, StopGate};
use crate::provider::{Gate, Refused};
use std::time::Duration;

impl Gate for Lease {
    /// Waits for a renewal that is late: it comes, or the Lease is lost and we end.
    fn pass(&self, what: &str) -> Result<(), Refused> {
        self.wait_for_renewal();
        StopGate(self.stop).pass(what)?;
        self.pass_now()
    }

    fn pass_at_end(&self, _what: &str) -> Result<(), Refused> {
        self.wait_for_renewal();
        self.pass_now()
    }

    fn may_wait(&self) -> bool {
        StopGate(self.stop).may_wait()
    }
}

/// May a write start?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Pass,
    /// After the next renewal.
    Wait,
    /// We do not lead.
    Never,
}

impl Lease {
    fn wait_for_renewal(&self) {
        self.stop
            .wait_until_set_or(|| self.answer() != Answer::Wait);
    }

    fn pass_now(&self) -> Result<(), Refused> {
        match self.answer() {
            Answer::Pass => Ok(()),
            Answer::Wait => Err(Refused("the lease may run out before it is done".into())),
            Answer::Never => Err(Refused("this ccm does not lead".into())),
        }
    }

    fn answer(&self) -> Answer {
        let Leadership::Leading { renewed } = *self.leadership() else {
            return Answer::Never;
        };
        let (write, lease) = (self.settings.write_timeout, self.settings.lease_duration);
        match self.now().since(renewed) {
            Some(since) if fits(since, write, lease) => Answer::Pass,
            // Too late, or one of the clocks jumped: another candidate may lead by now, and the renewal asks the API
            // server about it.
            Some(_) | None => Answer::Wait,
        }
    }
}

/// Begun that long after the last renewal was sent, is a write over before the lease is?
fn fits(since_renewal: Duration, write_timeout: Duration, lease_duration: Duration) -> bool {
    since_renewal.saturating_add(write_timeout) <= lease_duration
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::daemon::Stop;
    use crate::daemon::lease::Settings;
    use crate::kube::{Client, LeaseKey};
    use crate::provider::Moment;
    use std::sync::{Arc, Mutex};

    /// Clocks that a test sets.
    type Clock = Arc<Mutex<Moment>>;

    /// A Lease that makes no call.
    fn lease(clock: &Clock, stop: &'static Stop) -> &'static Lease {
        let settings = Settings {
            key: LeaseKey {
                namespace: "kube-system".into(),
                name: "ccm".into(),
            },
            identity: "us".into(),
            lease_seconds: 15,
            second: Duration::from_secs(1),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(3600),
            retry_period: Duration::from_secs(2),
            write_timeout: Duration::from_secs(8),
        };
        let mut lease = Lease::new(Client::of_nowhere(), settings, stop);
        let clock = Arc::clone(clock);
        lease.clock = Box::new(move || *clock.lock().unwrap());
        Box::leak(Box::new(lease))
    }

    fn pass_time(clock: &Clock, monotonic_s: u64, wall_s: i64) {
        let mut now = clock.lock().unwrap();
        now.monotonic += Duration::from_secs(monotonic_s);
        let by = Duration::from_secs(wall_s.unsigned_abs());
        match wall_s < 0 {
            true => now.wall -= by,
            false => now.wall += by,
        }
    }

    #[test]
    fn after_a_jump_of_the_clocks_nothing_passes_until_the_next_renewal() {
        let stop: &'static Stop = Box::leak(Box::default());
        let clock: Clock = Arc::new(Mutex::new(Moment::now()));
        let lease = lease(&clock, stop);
        let now = || *clock.lock().unwrap();
        assert_eq!(lease.answer(), Answer::Never);
        // Seconds that pass by the monotonic clock and by the wall clock.
        for (name, monotonic_s, wall_s, expected) in [
            ("at once", 0, 0, Answer::Pass),
            ("in time", 6, 6, Answer::Pass),
            ("slewed", 5, 6, Answer::Pass),
            ("too late", 8, 8, Answer::Wait),
            ("too late by the wall clock", 6, 8, Answer::Wait),
            ("suspended for a while", 1, 6, Answer::Wait),
            ("suspended for a day", 0, 86_400, Answer::Wait),
            ("set back", 5, -3600, Answer::Wait),
        ] {
            lease.renewed(now());
            assert_eq!(lease.answer(), Answer::Pass, "{name}");
            let sent = now();
            pass_time(&clock, monotonic_s, wall_s);
            assert_eq!(lease.answer(), expected, "{name}");
            // A renewal that was sent before the jump, and is answered after it, changes nothing.
            lease.renewed(sent);
            assert_eq!(lease.answer(), expected, "{name}");
            assert!(!lease.is_lost(), "{name}: leadership does not end with it");
        }
        lease.renewed(now());
        assert_eq!(lease.pass("a write"), Ok(()));
        // A write waits for the renewal, and passes after it.
        pass_time(&clock, 0, 60);
        let waiting = std::thread::spawn(move || lease.pass("a write"));
        lease.renewed(now());
        assert_eq!(waiting.join().unwrap(), Ok(()));
        pass_time(&clock, 0, 60);
        let waiting = std::thread::spawn(move || lease.pass("a write"));
        stop.set();
        assert!(waiting.join().unwrap().is_err());
    }

    #[test]
    fn a_write_that_may_outlive_the_lease_does_not_start() {
        for (since_s, fits_in) in [
            (0.0, true),
            (7.0, true),
            (7.001, false),
            (15.0, false),
            (9e9, false),
        ] {
            let since = Duration::from_secs_f64(since_s);
            let (write, lease) = (Duration::from_secs(8), Duration::from_secs(15));
            assert_eq!(fits(since, write, lease), fits_in, "{since_s} s");
        }
    }
}
