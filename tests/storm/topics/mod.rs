//! The topics of stories. A topic defines its objects at the start, the events that change them, the invariants that
//! writes must keep, and the end state. The engine in `story` knows nothing of that.

pub mod certificates;
mod cluster;
pub mod foreign_nodes;
pub mod nodes;
pub mod pods;
pub mod replace;
pub mod routes;
pub mod services;
pub mod shared;
pub mod targets;
pub mod types;
pub mod zones;

use crate::random::Random;
use ccm::controllers::Report;
use ccm::provider::{ForeignNodes, ZoneLabel};
use sandbox::exchange::Request;
use sandbox::{Builder, Half, Sandbox};
use std::collections::BTreeMap;
use std::time::Duration;

pub trait Topic: Send + Sync {
    /// Configures the sandbox as the topic needs it.
    fn configure(&self, builder: Builder) -> Builder {
        builder
    }

    /// Creates the topic's objects at the start.
    fn set_up(&self, sandbox: &Sandbox);

    /// Whether the story begins with a cluster that has converged.
    fn starts_converged(&self) -> bool {
        false
    }

    /// Whether a process may have another project's token.
    fn may_have_wrong_token(&self) -> bool {
        true
    }

    /// Whether the Service `default/kubernetes` gets new UIDs. Each process then takes part in the leader election or
    /// reads the Lease, because the Lease remembers the identity of the cluster.
    fn needs_lease(&self) -> bool {
        false
    }

    /// How long a server must be off until its node gets the taint `out-of-service`. `None` means that no node gets it.
    fn out_of_service_after(&self) -> Option<Duration> {
        None
    }

    /// Whether nodes of other providers can be targets.
    fn foreign_nodes(&self) -> ForeignNodes {
        ForeignNodes::Ignore
    }

    /// Whether annotations of Namespaces are defaults for Services.
    fn namespace_defaults(&self) -> bool {
        false
    }

    /// Whether processes approve certificate requests of kubelets.
    fn approves_certificates(&self) -> bool {
        false
    }

    /// Returns the zone label that the next process gives to new nodes. `None` means that its profile decides.
    fn zone_label(&self) -> Option<ZoneLabel> {
        None
    }

    /// Whether a command of a person writes now, for which no process has to lead.
    fn is_person_at_work(&self) -> bool {
        false
    }

    /// Returns how many more rounds than usual a process works.
    fn more_rounds(&self, _random: &mut Random) -> u64 {
        0
    }

    /// Whether a process may die after a few writes although it works for more rounds than usual.
    fn may_die_late(&self) -> bool {
        false
    }

    /// Notes that a process of this name has started.
    fn process_starts(&self, _name: &str) {}

    /// Notes which process works from now on. The name is empty when none does.
    fn process_works(&self, _name: &str) {}

    /// Prepares for a new phase. From now on reads and writes are checked.
    fn phase_starts(&self, _sandbox: &Sandbox) {}

    /// Applies a random event: something that a person, a machine or another program does. Returns a line for the
    /// story's log. `between_ticks` means that a `ccm` is at work.
    fn apply_event(&self, sandbox: &Sandbox, random: &mut Random, between_ticks: bool) -> String;

    /// Prepares for a cluster that was restored from a backup, while the cloud is as it was.
    fn restored(&self, _sandbox: &Sandbox) {}

    /// Adds faults that only this topic's objects have. They last until all faults are removed.
    fn inject_faults(&self, _sandbox: &Sandbox, _random: &mut Random) {}

    /// Repairs what only a person can repair, after the faults have ended.
    fn repair(&self, _sandbox: &Sandbox) {}

    /// Checks something else after the faults have ended and before everything has converged. Each call of `round` runs
    /// the controllers of a process once.
    fn extra_check(
        &self,
        _sandbox: &Sandbox,
        _round: &mut dyn FnMut() -> Vec<Report>,
    ) -> Result<(), String> {
        Ok(())
    }

    /// Notes that `ccm` is about to read from the Kubernetes API.
    fn before_read(&self, _sandbox: &Sandbox, _request: &Request) {}

    /// Checks a write just before it is carried out.
    fn check_write(&self, sandbox: &Sandbox, half: Half, request: &Request) -> Verdict;

    /// Checks that the topic's objects are as they should be after everything has converged.
    fn check_end_state(&self, sandbox: &Sandbox) -> Result<(), String>;

    /// Returns how often things happened in the topic's story.
    fn counts(&self, _sandbox: &Sandbox) -> BTreeMap<&'static str, u64> {
        BTreeMap::new()
    }
}

/// The result of the check of a write.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The write is not about this topic's objects.
    Unrelated,
    Allowed,
    Violation(String),
}

impl Verdict {
    pub fn from_violation(violation: Option<String>) -> Verdict {
        violation.map_or(Verdict::Allowed, Verdict::Violation)
    }
}
