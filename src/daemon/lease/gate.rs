//! No write starts unless its own time-out still fits into the lease.

use super::{Lease, Standing, StopGate};
use crate::cloud::{Gate, Refused};
use std::time::Duration;

impl Gate for Lease {
    /// Waits for a renewal that is late: it comes, or the Lease is lost and we end.
    fn pass(&self, what: &str) -> Result<(), Refused> {
        self.wait_for_renewal();
        StopGate(self.stop).pass(what)?;
        self.pass_now()
    }

    fn pass_event(&self, _what: &str) -> Result<(), Refused> {
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
        let Standing::Leading { renewed } = *self.standing() else {
            return Answer::Never;
        };
        let (write, lease) = (self.settings.write_timeout, self.settings.lease_duration);
        match fits(renewed.elapsed(), write, lease) {
            true => Answer::Pass,
            false => Answer::Wait,
        }
    }
}

/// Begun that long after the last renewal was sent, is a write over before the lease is?
fn fits(since_renewal: Duration, write_timeout: Duration, lease_duration: Duration) -> bool {
    since_renewal.saturating_add(write_timeout) <= lease_duration
}

#[cfg(test)]
mod tests {
    use super::*;

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
