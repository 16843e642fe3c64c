//! One Service and its load balancer: what is wrong first, then both sides, and why sync would do what it would.

use super::{ask, json, or_dash, targets_cell, usage};
use crate::cache::Apis;
use crate::cli::output::{self, Printer};
use crate::cli::table::{self, COLUMNS};
use crate::cli::{Exit, leader};
use crate::controllers::service::{self, FailedTry, ServicePlan, Want};
use crate::kube::ServicePort;
use crate::provider::{Field, Finding, Severity};
use crate::settings::{Command, Output};
use std::ffi::OsString;

pub(in crate::cli) fn inspect(words: Vec<OsString>) -> Exit {
    let context = match ask(Command::LbInspect, words) {
        Ok(context) => context,
        Err(exit) => return exit,
    };
    if context.names.len() != 1 {
        return usage("lb inspect takes one Service, e.g. ccm lb inspect default/web");
    }
    let selection = match context.selection() {
        Ok(selection) => selection,
        Err(exit) => return exit,
    };
    let plans = match context.evaluate(&selection) {
        Ok(plans) => plans,
        Err(exit) => return exit,
    };
    leader::tell(&context.settings, &context.apis);
    // A command that only reads warns and continues.
    let _ = context.check_profile();
    let text = match context.settings.output.value {
        Output::Json => output::json(&json::plans("LoadBalancerInspection", &plans)),
        Output::Yaml => output::yaml(&json::plans("LoadBalancerInspection", &plans)),
        Output::Table | Output::Wide => plans
            .iter()
            .map(|plan| inspection(plan, failed_try(&context.apis, plan)))
            .collect(),
    };
    Printer::stdout(&text)
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

fn inspection(plan: &ServicePlan, failed: Option<FailedTry>) -> String {
    let mut text = String::from("FINDINGS\n");
    let mut seen: Vec<String> = gone(plan).into_iter().collect();
    seen.extend(failed.as_ref().map(failed_lines));
    seen.extend(unhealthy(plan));
    if plan.all_findings().next().is_none() && seen.is_empty() {
        text.push_str("  none\n");
    }
    // What blocks it, what does not work, then warnings.
    if let Some(finding) = &plan.cloud.obstacle {
        text.push_str(&finding_lines(finding));
    }
    for line in seen {
        text.push_str(&line);
    }
    let mut others: Vec<&Finding> = plan.findings.iter().chain(&plan.cloud.findings).collect();
    others.sort_by_key(|finding| finding.severity != Severity::Warning);
    for finding in others {
        text.push_str(&finding_lines(finding));
    }
    text.push('\n');
    text.push_str(&sides(plan));
    text.push_str(&health(plan));
    text.push_str("\nFIELDS (= as wanted, ~ differs, · left as it is)\n");
    if plan.cloud.fields.is_empty() {
        text.push_str("  none: nothing is wanted of a load balancer\n");
    }
    let mut fields: Vec<&Field> = plan.cloud.fields.iter().collect();
    fields.sort_by_key(|field| !field.differs());
    for field in fields {
        text.push_str(&field_lines(field));
    }
    text.push_str("\nSYNC WOULD\n");
    let lines = plan.lines();
    if plan.cloud.obstacle.is_some() {
        text.push_str("  change nothing, until what blocks it is fixed: see FINDINGS\n");
    } else if lines.is_empty() {
        text.push_str("  change nothing\n");
    }
    for line in lines {
        let line = output::wrapped(&output::one_line(&line), COLUMNS - 6).join("\n      ");
        text.push_str(&format!("  {line}\n"));
    }
    for line in plan.held_back_lines() {
        let line = format!("hold back {}", output::one_line(&line));
        let line = output::wrapped(&line, COLUMNS - 6).join("\n      ");
        text.push_str(&format!("  {line}\n"));
    }
    text
}

fn sides(plan: &ServicePlan) -> String {
    let service = &plan.service;
    let balancer = plan.cloud.found.as_ref();
    let of_cloud =
        |text: fn(&crate::provider::Balancer) -> String| balancer.map_or("-".into(), text);
    let state = match plan.want {
        Want::Ensure => "wants a load balancer",
        Want::Remove => "its load balancer is to go",
        Want::Nothing => "another controller's",
    };
    let mut rows = vec![
        vec![
            "name".to_owned(),
            service.full_name(),
            of_cloud(|balancer| balancer.name.clone()),
        ],
        vec![
            "identity".to_owned(),
            service.metadata.uid.clone(),
            of_cloud(|balancer| format!("load balancer {}", balancer.id)),
        ],
        vec![
            "state".to_owned(),
            state.to_owned(),
            of_cloud(|balancer| format!("{}, {}", balancer.kind, balancer.location)),
        ],
    ];
    rows.extend(service.spec.ports.iter().enumerate().map(|(line, each)| {
        let heading = if line == 0 { "ports" } else { "" };
        vec![heading.to_owned(), port(each), String::new()]
    }));
    rows.push(vec![
        "targets".to_owned(),
        String::new(),
        targets_cell(plan),
    ]);
    rows.extend(addresses(plan));
    table::render(&["", "KUBERNETES", "CLOUD"], &rows)
}

/// What the status says beside what the load balancer has.
fn addresses(plan: &ServicePlan) -> Vec<Vec<String>> {
    let status = plan.service.status.load_balancer.ingress.iter();
    let status: Vec<String> = status
        .map(|ingress| {
            let address = ingress.hostname.as_ref().or(ingress.ip.as_ref());
            let address = address.cloned().unwrap_or_default();
            match ingress.ip_mode.as_deref() {
                Some(mode) if mode != "VIP" => format!("{address} ({mode})"),
                _ => address,
            }
        })
        .collect();
    let found = plan.cloud.found.iter().flat_map(|found| &found.addresses);
    let found: Vec<String> = found.map(ToString::to_string).collect();
    let cell = |side: &[String], line: usize| match side.get(line) {
        Some(text) => text.clone(),
        None if line == 0 => "-".to_owned(),
        None => String::new(),
    };
    (0..status.len().max(found.len()).max(1))
        .map(|line| {
            let heading = if line == 0 { "addresses" } else { "" };
            vec![heading.to_owned(), cell(&status, line), cell(&found, line)]
        })
        .collect()
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

fn why(health: &crate::provider::Health) -> String {
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
    plan.has_lost_its_own().then(|| {
        let text = output::wrapped(&format!("{what}; {then}"), COLUMNS - 4).join("\n    ");
        format!("  ! {text}\n")
    })
}

fn failed_lines(failed: &FailedTry) -> String {
    let text = format!("the last try failed {}: {}", failed.ago(), failed.message);
    let text = output::wrapped(&output::one_line(&text), COLUMNS - 4).join("\n    ");
    output::line(format_args!("  ! {}", failed.reason)) + &format!("    {text}\n")
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
                output::line(format_args!(
                    "  ! target {} is unhealthy on port {}{why}",
                    target.name, health.port
                ))
            })
        })
        .collect()
}

fn field_lines(field: &Field) -> String {
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".into());
    let line = match (&field.want, field.differs()) {
        (None, _) => format!("· {}: {}", field.field, text(&field.have)),
        (want, false) => format!("= {}: {}", field.field, text(want)),
        (want, true) => format!("~ {}: {} → {}", field.field, text(&field.have), text(want)),
    };
    output::line(line) + &output::line(format_args!("      {}", field.source))
}

fn finding_lines(finding: &Finding) -> String {
    let mark = match finding.severity {
        Severity::Info => "·",
        Severity::Warning => "!",
    };
    let text = output::wrapped(&output::one_line(&finding.message), COLUMNS - 4).join("\n    ");
    format!("  {mark} {}\n    {text}\n", finding.reason.name())
}
