//! The gate: a check just before each write to an API. It allows the write or refuses it, e.g. because this process
//! does not hold the Lease.

/// A check before every write. Each client of an API asks its gate just before it sends a write, and again before each
/// retry. The daemon's gate allows writes only while the process holds the Lease. The gate of a dry run refuses every
/// write. A test's gate counts the writes.
pub trait Gate: Send + Sync {
    /// Returns an error when this write is not allowed now. `what` describes the write in messages, e.g. `PATCH
    /// /api/v1/nodes/worker-1`.
    fn pass(&self, what: &str) -> Result<(), Refused>;

    /// Returns an error when this write is not allowed now. It is called only for events and for the release of the
    /// Lease, which are allowed even while the process ends. For every other write, [`Gate::pass`] is called.
    fn pass_at_end(&self, what: &str) -> Result<(), Refused> {
        self.pass(what)
    }

    /// Whether a caller should wait until the cloud has completed an action. The result is `false` when the process
    /// must end. After the restart of the program, the new process finds the running action in the cloud.
    fn may_wait(&self) -> bool {
        true
    }
}

/// The gate (the check before each write) that allows every write. Commands that a user runs have this gate.
pub struct OpenGate;

impl Gate for OpenGate {
    fn pass(&self, _what: &str) -> Result<(), Refused> {
        Ok(())
    }
}

/// The reason why the gate (the check before each write) refused a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub String);
