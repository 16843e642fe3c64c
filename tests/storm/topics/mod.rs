//! What stories are about. A topic knows what its objects are at the beginning, what befalls them, what would be harm to
//! them, and how they must be in the end; the engine knows nothing of that.

mod cluster;
pub mod nodes;
pub mod routes;
pub mod services;
pub mod shared;

use crate::random::Random;
use ccm::controllers::Report;
use sandbox::exchange::Request;
use sandbox::{Builder, Half, Sandbox};
use std::collections::BTreeMap;

pub trait Topic: Send + Sync {
    /// What of the sandbox it needs.
    fn needs(&self, builder: Builder) -> Builder {
        builder
    }

    /// Its objects at the beginning.
    fn begin(&self, sandbox: &Sandbox);

    /// The storm finds all as it should be.
    fn begins_at_rest(&self) -> bool {
        false
    }

    /// A process may have another project's token.
    fn may_have_wrong_token(&self) -> bool {
        true
    }

    /// The Service `default/kubernetes` gets other UIDs, so each process takes part in the election, or reads the Lease: the
    /// Lease remembers the identity of the cluster.
    fn needs_lease(&self) -> bool {
        false
    }

    /// From now on its reads and writes are seen.
    fn chapter_begins(&self, _sandbox: &Sandbox) {}

    /// Something that a person, a machine or another program does. Returns a line for the story's log.
    /// `between_ticks`: while a `ccm` is at work.
    fn happens(&self, sandbox: &Sandbox, random: &mut Random, between_ticks: bool) -> String;

    /// The cluster is as it was some time ago, and the cloud is not.
    fn restored(&self, _sandbox: &Sandbox) {}

    /// Faults that only its objects have, until they are cleared.
    fn weather(&self, _sandbox: &Sandbox, _random: &mut Random) {}

    /// The storm is over: what only a person can set right is set right.
    fn clear_up(&self, _sandbox: &Sandbox) {}

    /// In calm weather, before all comes to rest: something that is to be tried. Each call of `round` is one round of a
    /// process's controllers.
    fn trial(
        &self,
        _sandbox: &Sandbox,
        _round: &mut dyn FnMut() -> Vec<Report>,
    ) -> Result<(), String> {
        Ok(())
    }

    /// `ccm` reads a list of the Kubernetes API.
    fn read(&self, _sandbox: &Sandbox, _request: &Request) {}

    /// Just before a write is carried out.
    fn judge(&self, sandbox: &Sandbox, half: Half, request: &Request) -> Verdict;

    /// Are its objects as they should be, when all has come to rest?
    fn is_right(&self, sandbox: &Sandbox) -> Result<(), String>;

    /// What its story was made of, for the tally.
    fn counts(&self, _sandbox: &Sandbox) -> BTreeMap<&'static str, u64> {
        BTreeMap::new()
    }
}

/// About a write.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is not about this topic's objects.
    Other,
    Fine,
    Harm(String),
}

impl Verdict {
    pub fn of(harm: Option<String>) -> Verdict {
        harm.map_or(Verdict::Fine, Verdict::Harm)
    }
}
