//! One Service and its load balancer: what is wrong first, then both sides, and why sync would do what it would.

use super::plans::{Services, targets_cell};
use crate::cache::Apis;
use crate::cli::objects::{field, finding, section, sides, would_do};
use crate::cli::output::{Exit, line, or_dash, paragraph};
use crate::cli::table;
use crate::controllers::service::{self, FailedTry, ServicePlan, Want};
use crate::kube::ServicePort;
use crate::provider::{Balancer, Field, Finding, Health, Severity};
use crate::settings::Command;
use std::ffi::OsString;

pub(in crate::cli) fn inspect(words: Vec<OsString>) -> Result<Exit, Exit> {
    let services = Services::start(Command::LbInspect, words)?;
    let context = &services.context;
    let plans = services.evaluate(&services.selection()?)?;
    // A command that only reads warns and continues.
    let _ = context.check_profile();
    let text = |is_wide| {
        let inspect = |plan| inspection(plan, failed_try(&context.apis, plan), is_wide);
        plans.iter().map(inspect).collect()
    };
    Ok(context.show("Inspection", &plans, text))
}

/// What came of the last try, where something is left to do; one call, and none where nothing is.
fn failed_try(apis: &Apis, plan: &ServicePlan) -> Option<FailedTry> {
    if !plan.has_writes() {
        return None;
    }
    match apis.kube.service_events(Some(&plan.object)) {
        Ok(events) => service::failed_tries(&events).remove(&plan.object.uid),
        Err(error) => {
            log::debug!("events of {}: {error}", plan.name());
            None
        }
    }
}

/// `is_wide`: with every field, else with those that differ and those that are set.
fn inspection(plan: &ServicePlan, failed: Option<FailedTry>, is_wide: bool) -> String {
    // What blocks it, what does not work, then warnings.
    let mut findings: Vec<String> = plan.cloud.obstacle.iter().map(finding).collect();
    findings.extend(gone(plan));
    findings.extend(failed.as_ref().map(failed_lines));
    findings.extend(unhealthy(plan));
    let mut others: Vec<&Finding> = plan.findings.iter().chain(&plan.cloud.findings).collect();
    others.sort_by_key(|finding| finding.severity != Severity::Warning);
    findings.extend(others.into_iter().map(finding));

    let mut fields: Vec<&Field> = plan.cloud.fields.iter().collect();
    fields.sort_by_key(|field| !field.differs());
    let all = fields.len();
    fields.retain(|field| is_wide || field.differs() || field.source.is_set());
    let more = match all - fields.len() {
        0 => String::new(),
        more => line(format_args!("  {more} more, unset: -o wide shows them")),
    };
    let fields = fields.into_iter().map(|one| {
        field(
            &one.field,
            &one.have,
            &one.want,
            one.want.is_none(),
            &one.source,
        )
    });

    let held_back = plan.held_back_lines().into_iter();
    let held_back = held_back.map(|line| paragraph("  · ", 8, &format!("hold back {line}")));
    [
        section("FINDINGS", &findings.concat(), "none"),
        "\n".to_owned(),
        both_sides(plan),
        health(plan),
        section(
            "\nFIELDS (= as wanted, ~ differs, · left unchanged)",
            &(fields.collect::<String>() + &more),
            match plan.cloud.obstacle {
                None => "none: nothing is wanted of a load balancer",
                Some(_) => "unknown: the desired state can't be computed, see FINDINGS",
            },
        ),
        would_do(
            &plan.description(),
            match plan.cloud.obstacle {
                None => "change nothing",
                Some(_) => "change nothing, until what blocks it is fixed: see FINDINGS",
            },
        ),
        held_back.collect(),
    ]
    .concat()
}

fn both_sides(plan: &ServicePlan) -> String {
    let service = &plan.service;
    let of_cloud = |text: &dyn Fn(&Balancer) -> String| {
        let found = plan.cloud.found.as_ref();
        vec![found.map_or("-".to_owned(), text)]
    };
    let state = match plan.want {
        Want::Ensure => "wants a load balancer",
        Want::Remove => "its load balancer is to go",
        Want::Nothing => "another controller's",
    };
    let status = service.status.load_balancer.ingress.iter();
    let status = status.map(|ingress| {
        let address = ingress.hostname.as_ref().or(ingress.ip.as_ref());
        let address = address.cloned().unwrap_or_default();
        match ingress.ip_mode.as_deref() {
            Some(mode) if mode != "VIP" => format!("{address} ({mode})"),
            _ => address,
        }
    });
    let found = plan.cloud.found.iter().flat_map(|found| &found.addresses);
    let or_none = |side: Vec<String>| match side.is_empty() {
        true => vec!["-".to_owned()],
        false => side,
    };
    let name = of_cloud(&|balancer| balancer.name.clone());
    let identity = of_cloud(&|balancer| format!("load balancer {}", balancer.id));
    let kind = of_cloud(&|balancer| format!("{}, {}", balancer.kind, balancer.location));
    let ports = service.spec.ports.iter().map(port).collect();
    let status = or_none(status.collect());
    let found = or_none(found.map(ToString::to_string).collect());
    sides(&[
        ("name", vec![service.full_name()], name),
        ("identity", vec![service.metadata.uid.clone()], identity),
        ("state", vec![state.to_owned()], kind),
        ("ports", ports, Vec::new()),
        ("targets", Vec::new(), vec![targets_cell(plan)]),
        ("addresses", status, found),
    ])
}

fn port(port: &ServicePort) -> String {
    let protocol = match port.protocol.as_str() {
        "" | "TCP" => String::new(),
        other => format!("/{other}"),
    };
    match port.node_port {
        0 => format!("{}{protocol} → no node port", port.port),
        node_port => format!("{}{protocol} → node port {node_port}", port.port),
    }
}

/// What the health checks say of each port and target.
fn health(plan: &ServicePlan) -> String {
    let targets = plan.cloud.found.iter().flat_map(|found| &found.targets);
    let rows: Vec<Vec<String>> = targets
        .flat_map(|target| {
            target.health.iter().map(|health| {
                vec![
                    target.name.clone(),
                    health.port.to_string(),
                    health.status.to_string(),
                    or_dash(&why(health)),
                ]
            })
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    format!(
        "\n{}",
        table::render(&["TARGET", "PORT", "HEALTH", "DETAIL"], &rows)
    )
}

fn why(health: &Health) -> String {
    let code = health.http_status.map(|code| format!("HTTP {code}"));
    let parts = health.detail.iter().map(ToString::to_string).chain(code);
    parts.collect::<Vec<_>>().join(", ")
}

/// Its load balancer, which the status still names.
fn gone(plan: &ServicePlan) -> Option<String> {
    let what = "its load balancer is gone, whatever the status says";
    let then = match plan.has_writes() {
        true => "sync makes a new one, with another address unless a Primary IP is asked for",
        false => "a new one is held back here: see SYNC WOULD",
    };
    let is_lost = plan.has_lost_its_own();
    is_lost.then(|| paragraph("  ! ", 4, &format!("{what}; {then}")))
}

fn failed_lines(failed: &FailedTry) -> String {
    let text = format!("the last try failed {}: {}", failed.ago(), failed.message);
    line(format_args!("  ! {}", failed.reason)) + &paragraph("    ", 4, &text)
}

/// A target that gets no traffic is what most people come to look for.
fn unhealthy(plan: &ServicePlan) -> Vec<String> {
    let targets = plan.cloud.found.iter().flat_map(|found| &found.targets);
    targets
        .flat_map(|target| {
            let bad = target
                .health
                .iter()
                .filter(|health| health.status == "unhealthy");
            bad.map(|health| {
                let why = match why(health) {
                    why if why.is_empty() => String::new(),
                    why => format!(": {why}"),
                };
                line(format_args!(
                    "  ! target {} is unhealthy on port {}{why}",
                    target.name, health.port
                ))
            })
        })
        .collect()
}
