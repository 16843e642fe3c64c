//! What a tick did and found; and the one place where findings become log lines and events.

use crate::cloud::{Finding, Gate, Origin, Reason, Severity, without_correlations};
use crate::kube::{Event, EventType, ObjectReference, Repeat};
use crate::world::{self, World};

/// The log target of findings: commands that print them turn it off.
pub const FINDINGS: &str = "ccm::findings";

/// The outcome of one tick.
#[derive(Debug, Default)]
pub struct Report {
    /// A line for each change that was made: object, and what.
    pub changes: Vec<(String, String)>,
    /// Each object that failed, and why.
    pub failures: Vec<Failure>,
    /// Objects that are as they should be now, and were not before.
    pub changed: usize,
    /// Objects that the pass did not come to, because it was ended.
    pub unreached: usize,
    /// Objects that were as they should be. Those that failed are counted by `failures` alone.
    pub unchanged: usize,
    /// Nothing could be done at all: an API did not answer.
    pub outage: Option<Outage>,
}

/// An object that is not as it should be after the tick.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// E.g. `node/worker-1`.
    pub object: String,
    pub why: String,
    /// It is a finding, which was told as such: its reason.
    pub finding: Option<Reason>,
}

/// An API did not answer, and what waits for it.
#[derive(Debug)]
pub struct Outage {
    pub error: world::Error,
    /// E.g. `2 nodes wait to be initialised`; empty when nothing does.
    pub waiting: String,
}

impl Report {
    pub fn outage(error: world::Error, waiting: String) -> Report {
        Report {
            outage: Some(Outage { error, waiting }),
            ..Report::default()
        }
    }

    pub fn failed(&self) -> usize {
        self.failures.len()
    }
}

impl std::fmt::Display for Outage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.waiting.is_empty() {
            write!(f, "{}: ", self.waiting)?;
        }
        self.error.fmt(f)
    }
}

/// Tells findings about an object: a log line, and an event where the reason has one. Each
/// is told once, and again after ten minutes while it lasts.
pub fn publish(
    world: &World,
    gate: &dyn Gate,
    controller: &'static str,
    object: &ObjectReference,
    findings: impl IntoIterator<Item = impl std::borrow::Borrow<Finding>>,
) {
    for finding in findings {
        let finding = finding.borrow();
        // The same trouble is told once, whatever number each failed call had.
        let message = without_correlations(&finding.message);
        let repeat = match finding.reason.is_lasting() {
            true => Repeat::Never,
            false => Repeat::EveryTenMinutes,
        };
        if !world
            .recorder
            .is_due(object, finding.reason.name(), &message, repeat)
        {
            continue;
        }
        let name = object.for_people();
        match finding.severity {
            Severity::Info if is_told_by_its_write(finding.reason) => {}
            Severity::Info => log::info!(target: FINDINGS, "{name}: {}", finding.message),
            Severity::Warning => {
                let reason = finding.reason.name();
                log::warn!(target: FINDINGS, "{name}: {} ({reason})", finding.message);
            }
        }
        if !is_event(finding.reason) {
            continue;
        }
        let component = match finding.origin {
            Origin::Provider => world.provider.event_component().unwrap_or(controller),
            Origin::Controller => controller,
        };
        let kind = match finding.reason {
            Reason::Synced
            | Reason::DeletingNode
            | Reason::EnsuringLoadBalancer
            | Reason::EnsuredLoadBalancer
            | Reason::UpdatedLoadBalancer
            | Reason::DeletingLoadBalancer
            | Reason::DeletedLoadBalancer => EventType::Normal,
            _ => EventType::Warning,
        };
        let event = Event {
            component,
            object,
            kind,
            reason: finding.reason.name(),
            message: &message,
        };
        world.recorder.write(&world.kube, gate, &event);
    }
}

/// The line of the write itself was told already.
fn is_told_by_its_write(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::Synced
            | Reason::EnsuringLoadBalancer
            | Reason::EnsuredLoadBalancer
            | Reason::UpdatedLoadBalancer
            | Reason::DeletingLoadBalancer
            | Reason::DeletedLoadBalancer
    )
}

/// Findings that a person looking at the object must see; the others are for the log.
fn is_event(reason: Reason) -> bool {
    match reason {
        Reason::Synced
        | Reason::UnknownProviderIDPrefix
        | Reason::ServerNotFound
        | Reason::InstanceLookupFailed
        | Reason::InternalIPNotConfigured
        | Reason::InvalidProvidedNodeIP
        | Reason::InvalidExternalIPv6
        | Reason::IgnoredExternalIPv6
        | Reason::DeletingNode
        | Reason::DeletingNodeFailed
        | Reason::PossibleNodeDeletion
        | Reason::EnsuringLoadBalancer
        | Reason::EnsuredLoadBalancer
        | Reason::UpdatedLoadBalancer
        | Reason::UpdateLoadBalancerFailed
        | Reason::UnAvailableLoadBalancer
        | Reason::DeletingLoadBalancer
        | Reason::DeletedLoadBalancer
        | Reason::SyncLoadBalancerFailed
        | Reason::DeleteLoadBalancerFailed
        | Reason::LoadBalancerProtected
        | Reason::LoadBalancerNameTaken
        | Reason::LoadBalancerTypeUnconfigured
        | Reason::LoadBalancerTypeDeprecated
        | Reason::UnsupportedProtocolConfigured
        | Reason::LoadBalancerSourceRangesIgnored
        | Reason::MaxTargetsReached
        | Reason::UnknownAnnotation
        | Reason::AnnotationWithoutEffect
        | Reason::CertificatePending
        | Reason::CertificateFailed
        | Reason::AddressNotKept => true,
        Reason::UnknownProviderID
        | Reason::MatchedByAddress
        | Reason::ServerClaimedTwice
        | Reason::NotExternal
        | Reason::NoAddress
        | Reason::TargetIgnored
        | Reason::FieldIgnored => false,
    }
}
