//! Services and their load balancers.

use super::check::{Outcome, counted, some};
use super::nodes;
use super::view::View;
use crate::controllers::service::{ServicePlan, Want};

pub(super) fn services(view: &View) -> Outcome {
    let plans = match &view.services {
        Ok(plans) => plans,
        Err(gap) => return Outcome::of_gap(gap, "see what the error names"),
    };
    if nodes::are_of_another_project(view) {
        return Outcome::skipped("of another project there is nothing to say: see project");
    }
    let stuck: Vec<String> = plans
        .iter()
        .filter_map(|plan| {
            let why = plan.cloud.obstacle.as_ref()?;
            Some(format!("{}: {}", plan.service.full_name(), why.message))
        })
        .collect();
    if !stuck.is_empty() {
        return Outcome::fail(
            some(&stuck),
            "correct the Service's annotations; ccm lb inspect NAMESPACE/NAME shows each field \
             with what asks for it",
        );
    }
    let is_waiting = |plan: &&ServicePlan| {
        plan.want == Want::Ensure && plan.service.status.load_balancer.ingress.is_empty()
    };
    let waiting = plans.iter().filter(is_waiting);
    let waiting: Vec<String> = waiting.map(why_none).collect();
    match waiting.as_slice() {
        [] => Outcome::ok(match plans.len() {
            0 => "there is no Service of type LoadBalancer".to_owned(),
            count => format!(
                "{}, none without its load balancer's address",
                counted(count, "Service")
            ),
        }),
        waiting => Outcome::warn(
            format!("without an address: {}", some(waiting)),
            "the daemon does what is left to do: see lease whether one runs; ccm lb inspect \
             NAMESPACE/NAME shows it, ccm lb sync does it now",
        ),
    }
}

/// What stands between a Service and its address.
fn why_none(plan: &ServicePlan) -> String {
    let name = plan.service.full_name();
    let why = match (&plan.cloud.found, plan.has_writes()) {
        (None, _) => "its load balancer is not made yet",
        (Some(_), true) => "its load balancer is there, and not all is done",
        (Some(_), false) => "its settings leave every address out",
    };
    format!("{name} ({why})")
}

pub(super) fn orphans(view: &View) -> Outcome {
    let orphans = match &view.orphans {
        Ok(orphans) => orphans,
        Err(gap) => return Outcome::of_gap(gap, "see what the error names"),
    };
    let names: Vec<String> = orphans
        .iter()
        .map(|orphan| {
            let balancer = &orphan.balancer;
            let service = orphan.service.replacen('.', "/", 1);
            format!("{} ({}, of Service {service})", balancer.name, balancer.id)
        })
        .collect();
    match names.as_slice() {
        [] => Outcome::ok("each load balancer of this cluster has its Service"),
        names => Outcome::warn(
            format!(
                "no Service wants these, and they cost money: {}",
                some(names)
            ),
            "ccm lb sync --delete-orphans lists them, asks, and deletes them",
        ),
    }
}
