//! The gate is the check before every write. It belongs to the contract because a provider's writes pass the same gate
//! as the writes to Kubernetes.

/// The check before every write. Each client of an API holds a gate, and asks it at each try, just before the bytes of
/// a write are sent. The daemon's gate checks the Lease, a dry run's gate refuses every write, and a test's gate
/// counts the writes.
pub trait Gate: Send + Sync {
    /// Checks whether a write may start now. `what` names the write in messages, e.g. `PATCH /api/v1/nodes/worker-1`.
    fn pass(&self, what: &str) -> Result<(), Refused>;

    /// Checks whether a write that belongs to the end of this process may start: an event about what was done, or the
    /// release of the Lease.
    fn pass_at_end(&self, what: &str) -> Result<(), Refused> {
        self.pass(what)
    }

    /// Whether to wait for what a write started. This is useless when the process must end, because the next process
    /// finds the running actions in the cloud.
    fn may_wait(&self) -> bool {
        true
    }
}

/// The gate that lets every write pass. A person's command uses it, because such a command ends with its process.
pub struct OpenGate;

impl Gate for OpenGate {
    fn pass(&self, _what: &str) -> Result<(), Refused> {
        Ok(())
    }
}

/// The reason why a write did not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub String);
