//! The question before every write. It belongs to the contract because a provider's writes
//! pass the same gate as Kubernetes' do.

/// Each client of an API holds one. It is asked just before the bytes of a write leave, at each try: a lease in the
/// daemon, a refusal in a dry run, a counter in tests.
pub trait Gate: Send + Sync {
    /// May a write start now? `what` names it for people, e.g. `PATCH /api/v1/nodes/worker-1`.
    fn pass(&self, what: &str) -> Result<(), Refused>;

    /// The same for what belongs to the end of this process: events about what was done, and the release of the Lease.
    fn pass_at_end(&self, what: &str) -> Result<(), Refused> {
        self.pass(what)
    }

    /// Is it worth waiting for what a write started? Not when this process is to end: the next one
    /// finds the running actions in the cloud.
    fn may_wait(&self) -> bool {
        true
    }
}

/// Lets every write pass: a person's command, which ends with its process.
pub struct OpenGate;

impl Gate for OpenGate {
    fn pass(&self, _what: &str) -> Result<(), Refused> {
        Ok(())
    }
}

/// The write did not start; why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub String);
