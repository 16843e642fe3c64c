//! The events of a Service: findings of its plan, and what was begun, made or failed in the cloud.

use super::plan::ServicePlan;
use super::{EVENT_COMPONENT, NAME};
use crate::cloud::{ChangeKind, Finding, Gate, Reason};
use crate::controllers::report::publish;
use crate::world::World;

/// How the changes ended.
pub(super) enum End<'a> {
    Done,
    Failed(&'a str),
}

pub(super) fn findings(world: &World, gate: &dyn Gate, plan: &ServicePlan) {
    publish(
        world,
        gate,
        component(world),
        &plan.object,
        plan.all_findings(),
    );
}

/// Before the first change in the cloud.
pub(super) fn begin(world: &World, gate: &dyn Gate, plan: &ServicePlan, kind: ChangeKind) {
    let finding = match kind {
        ChangeKind::Settings => {
            Finding::info(Reason::EnsuringLoadBalancer, "Ensuring load balancer")
        }
        ChangeKind::Removal => {
            Finding::info(Reason::DeletingLoadBalancer, "Deleting load balancer")
        }
        ChangeKind::Targets => return,
    };
    publish(world, gate, component(world), &plan.object, [finding]);
}

/// After the last one.
pub(super) fn end(world: &World, gate: &dyn Gate, plan: &ServicePlan, kind: ChangeKind, end: End) {
    let finding = match (end, kind) {
        (End::Done, ChangeKind::Settings) => {
            Finding::info(Reason::EnsuredLoadBalancer, "Ensured load balancer")
        }
        (End::Done, ChangeKind::Targets) => Finding::info(
            Reason::UpdatedLoadBalancer,
            "Updated load balancer with new hosts",
        ),
        (End::Done, ChangeKind::Removal) => {
            Finding::info(Reason::DeletedLoadBalancer, "Deleted load balancer")
        }
        (End::Failed(why), kind) => Finding::warning(failed(kind), why),
    };
    publish(world, gate, component(world), &plan.object, [finding]);
}

/// The reason of a failure.
pub(super) fn failed(kind: ChangeKind) -> Reason {
    match kind {
        ChangeKind::Settings => Reason::SyncLoadBalancerFailed,
        ChangeKind::Targets => Reason::UpdateLoadBalancerFailed,
        ChangeKind::Removal => Reason::DeleteLoadBalancerFailed,
    }
}

/// The source of the events: a provider that replaces another controller signs as that one does.
fn component(world: &World) -> &'static str {
    match world.provider.event_component() {
        Some(_) => EVENT_COMPONENT,
        None => NAME,
    }
}
