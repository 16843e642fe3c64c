//! What a tick did and found; and the one place where findings become log lines and events.

use crate::cloud::{
    self, ErrorKind, Finding, Gate, Origin, Reason, Severity, without_correlations,
};
use crate::kube::{self, Event, EventType, ObjectReference, Repeat};
use crate::metrics::{CHANGES, FINDINGS as FINDINGS_TOLD};
use crate::world::{self, World};

/// The log target of findings: commands that print them turn it off.
pub const FINDINGS: &str = "ccm::findings";

/// The log target of changes, told as they are made.
pub const CHANGES_MADE: &str = "ccm::changes";

/// The outcome of one tick.
#[derive(Debug, Default)]
pub struct Report {
    /// A line for each change that was made: object, and what.
    pub changes: Vec<(String, String)>,
    /// Each object that failed, and why.
    pub failures: Vec<Failure>,
    /// Changes that the plans held, made or not.
    pub planned: usize,
    /// Objects that are as they should be now, and were not before.
    pub changed: usize,
    /// Objects that the pass did not come to, because it was ended.
    pub unreached: usize,
    /// Objects whose changes go on in the cloud: the next tick follows at once.
    pub unfinished: usize,
    /// Objects that were as they should be. Those that failed are counted by `failures` alone.
    pub unchanged: usize,
    /// Load balancers of this cluster whose Service does not exist; none: not looked for in this tick.
    pub orphans: Option<usize>,
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

/// The line of a change that was made.
pub(super) fn tell_change(controller: &str, object: &str, line: &str) {
    log::info!(target: CHANGES_MADE, controller, object; "{object}: {line}");
}

/// Takes note of one write, for the metrics. One that the gate kept back was none.
pub(super) fn count_write(controller: &str, kind: &str, outcome: Result<(), &kube::Error>) {
    let result = match outcome {
        Ok(()) => "ok",
        Err(error) if error.is_refused() => return,
        Err(error) if error.is_conflict() || error.is_not_found() => "conflict",
        Err(_) => "failed",
    };
    CHANGES.count(&[controller, kind, result]);
}

/// The same for a write to the cloud.
pub(super) fn count_change(controller: &str, kind: &str, outcome: Result<(), &cloud::Error>) {
    let result = match outcome.map_err(|error| &error.kind) {
        Ok(()) => "ok",
        Err(ErrorKind::Refused) => return,
        Err(ErrorKind::Busy | ErrorKind::NotFound) => "conflict",
        Err(_) => "failed",
    };
    CHANGES.count(&[controller, kind, result]);
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
        let reason = finding.reason.name();
        FINDINGS_TOLD.count(&[controller, reason]);
        let name = object.for_people();
        match finding.severity {
            Severity::Info if is_told_by_its_write(finding.reason) => {}
            Severity::Info => {
                log::info!(target: FINDINGS, controller, object = name.as_str(), reason; "{name}: {}", finding.message);
            }
            Severity::Warning => {
                log::warn!(target: FINDINGS, controller, object = name.as_str(), reason; "{name}: {} ({reason})", finding.message);
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
        | Reason::TaintingNodeFailed
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
        | Reason::AddressNotKept
        | Reason::FailedToCreateRoute
        | Reason::ClusterCIDRMisconfigured => true,
        Reason::UnknownProviderID
        | Reason::MatchedByAddress
        | Reason::ServerClaimedTwice
        | Reason::NotExternal
        | Reason::NoAddress
        | Reason::TargetIgnored
        | Reason::FieldIgnored
        | Reason::RouteLimitNear
        | Reason::StaleRoute
        | Reason::IPv6RouteIgnored
        | Reason::NoNodeInNetwork
        // There is no object to tell it of.
        | Reason::OrphanedLoadBalancer
        // It is about the shell that asks.
        | Reason::HeldBack => false,
    }
}
