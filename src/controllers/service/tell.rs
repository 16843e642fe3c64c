//! What a Service's events say of the changes made for it.

use super::plan::ServicePlan;
use super::{EVENT_COMPONENT, NAME};
use crate::cloud::{Change, ChangeKind, Finding, Gate, Reason};
use crate::controllers::report::publish;
use crate::world::World;

/// How the changes ended.
pub(super) enum Told<'a> {
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
        ChangeKind::Targets | ChangeKind::Release => return,
    };
    publish(world, gate, component(world), &plan.object, [finding]);
}

/// After one change that is an event by itself.
pub(super) fn changed(world: &World, gate: &dyn Gate, plan: &ServicePlan, change: &dyn Change) {
    if let Some(finding) = change.event() {
        publish(world, gate, component(world), &plan.object, [&finding]);
    }
}

/// After the last one.
pub(super) fn end(
    world: &World,
    gate: &dyn Gate,
    plan: &ServicePlan,
    kind: ChangeKind,
    told: Told,
) {
    let finding = match (told, kind) {
        (Told::Done, ChangeKind::Settings) => {
            Finding::info(Reason::EnsuredLoadBalancer, "Ensured load balancer")
        }
        (Told::Done, ChangeKind::Targets) => Finding::info(
            Reason::UpdatedLoadBalancer,
            "Updated load balancer with new hosts",
        ),
        (Told::Done, ChangeKind::Removal) => {
            Finding::info(Reason::DeletedLoadBalancer, "Deleted load balancer")
        }
        // Its last change reports it: see `changed`.
        (Told::Done, ChangeKind::Release) => return,
        (Told::Failed(why), kind) => Finding::warning(failed(kind), why),
    };
    publish(world, gate, component(world), &plan.object, [finding]);
}

/// Why it failed, in a word.
pub(super) fn failed(kind: ChangeKind) -> Reason {
    match kind {
        ChangeKind::Settings => Reason::SyncLoadBalancerFailed,
        ChangeKind::Targets => Reason::UpdateLoadBalancerFailed,
        ChangeKind::Removal | ChangeKind::Release => Reason::DeleteLoadBalancerFailed,
    }
}

/// Who stands in for another controller signs as that one does.
fn component(world: &World) -> &'static str {
    match world.provider.event_component() {
        Some(_) => EVENT_COMPONENT,
        None => NAME,
    }
}
