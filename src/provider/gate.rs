//! The question before every write. It belongs to the contract because a provider's writes
//! pass the same gate as Kubernetes' do.

use std::fmt;

/// Asked just before the bytes of a write leave, at each try: a lease in the daemon,
/// a refusal in a dry run, a counter in tests.
pub trait Gate: Send + Sync {
    /// May a write start now? `what` names it for people, e.g. `PATCH /api/v1/nodes/worker-1`.
    fn pass(&self, what: &str) -> Result<(), Refused>;

    /// The same for an event: it may still be written while this process ends, for it says what was done.
    fn pass_event(&self, what: &str) -> Result<(), Refused> {
        self.pass(what)
    }

    /// Is it worth waiting for what a write started? Not when this process is to end: the next one
    /// finds the running actions in the cloud.
    fn may_wait(&self) -> bool {
        true
    }
}

/// The write did not start; why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
