//! The gate, a check before every write. Controllers and providers have the same gate, so it is defined here.

/// A check before every write. Each client of an API asks its gate just before it sends a write, and again before each
/// retry. The daemon's gate allows writes only while the process holds the Lease. The gate of a dry run refuses every
/// write, and a test's gate counts the writes.
pub trait Gate: Send + Sync {
    /// Returns an error when a write may not start now. `what` describes the write in
    /// messages, e.g. `PATCH /api/v1/nodes/worker-1`.
    fn pass(&self, what: &str) -> Result<(), Refused>;

    /// Returns an error when a last write of this process may not start now. Such a write is an event about work that
    /// was done, or the release of the Lease.
    fn pass_at_end(&self, what: &str) -> Result<(), Refused> {
        self.pass(what)
    }

    /// Whether the caller should wait until the cloud has completed an action. It should not when the process must end.
    /// The next process finds the running actions in the cloud.
    fn may_wait(&self) -> bool {
        true
    }
}

/// The gate that allows every write. A command of a user has this gate.
pub struct OpenGate;

impl Gate for OpenGate {
    fn pass(&self, _what: &str) -> Result<(), Refused> {
        Ok(())
    }
}

/// The reason why the gate did not allow a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub String);
