//! Every Service with its load balancer, and what differs.

use super::{TURNED_OFF, ask, json, or_dash, targets_cell, usage};
use crate::cli::output::{self, Printer};
use crate::cli::table::{self, COLUMNS, Yielding};
use crate::cli::{Exit, leader};
use crate::controllers::Selection;
use crate::controllers::service::{ServicePlan, Want};
use crate::provider::{Field, Kept};
use crate::settings::{Command, Output};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::time::Instant;

pub(in crate::cli) fn list(words: Vec<OsString>) -> Exit {
    let context = match ask(Command::LbList, words) {
        Ok(context) => context,
        Err(exit) => return exit,
    };
    if let Some(name) = context.names.first() {
        return usage(&format!(
            "lb list takes no name; ccm lb inspect {name} shows one Service"
        ));
    }
    let selection = match context.selection() {
        Ok(selection) => selection,
        Err(exit) => return exit,
    };
    let begun = Instant::now();
    let mut plans = match context.evaluate(&selection) {
        Ok(plans) => plans,
        Err(exit) => return exit,
    };
    match context.orphans(&plans, begun) {
        Ok(orphans) => plans.extend(orphans),
        Err(exit) => return exit,
    }
    leader::tell(&context.settings, &context.apis);
    // A command that only reads warns and continues.
    let _ = context.check_profile();
    // Certificates have no namespace: the list of one namespace does not show them.
    let kept = match selection {
        Selection::All => Some(context.services.kept(&context.apis)),
        _ => None,
    };
    if let Some(Err(error)) = &kept {
        Printer::failure(&format!("what is kept could not be read: {error}"));
    }
    let kept = kept.map(Result::ok);
    let document = || {
        let document = json::plans("LoadBalancerList", &plans);
        match &kept {
            Some(kept) => document.with_kept(kept.clone()),
            None => document,
        }
    };
    let is_off = context.apis.provider.load_balancers().is_none();
    if is_off && !matches!(context.settings.output.value, Output::Table | Output::Wide) {
        Printer::stderr(&format!("ccm: {TURNED_OFF}\n"));
    }
    let text = match context.settings.output.value {
        Output::Json => output::json(&document()),
        Output::Yaml => output::yaml(&document()),
        Output::Table | Output::Wide => {
            let table = match context.settings.output.value {
                _ if is_off => format!("{TURNED_OFF}.\n"),
                _ if plans.is_empty() => nothing(&context.settings.namespace.value),
                Output::Wide => list_wide(&plans),
                _ => list_table(&plans),
            };
            table + &kept_lines(kept.iter().flatten().flatten())
        }
    };
    Printer::stdout(&text)
}

/// What no Service wants any more, below the table.
fn kept_lines<'a>(kept: impl Iterator<Item = &'a Kept>) -> String {
    let mut text = String::new();
    for one in kept {
        if text.is_empty() {
            text.push_str("\nKept, although no Service wants it any more:\n");
        }
        let kind = one.kind.to_lowercase();
        let domains = one.domains.join(", ");
        let line = format!("{kind} {} ({}), for {domains}", one.name, one.id);
        let lines = output::wrapped(&line, COLUMNS - 6).join("\n      ");
        text.push_str(&format!("  {lines}\n"));
    }
    text
}

fn nothing(namespace: &Option<String>) -> String {
    let place = match namespace {
        Some(namespace) => format!("Namespace {namespace}"),
        None => "The cluster".to_owned(),
    };
    format!("{place} has no Service of type LoadBalancer.\n")
}

const HEADINGS: [&str; 5] = ["SERVICE", "LOAD BALANCER", "ADDRESS", "TARGETS", "DIFF"];

/// What is shortened when a table is too wide: the load balancer's name, which follows from the Service's, then the
/// Service's, then what differs.
const YIELDING: [Yielding; 3] = [(1, 13), (0, 17), (4, 10)];

fn list_table(plans: &[ServicePlan]) -> String {
    let rows: Vec<Vec<String>> = plans.iter().map(|plan| row(plan, 1)).collect();
    match table::fits(&HEADINGS, &rows) {
        true => table::render(&HEADINGS, &rows),
        false => table::render_narrow(&HEADINGS, &rows, &YIELDING),
    }
}

fn list_wide(plans: &[ServicePlan]) -> String {
    let headings = [&HEADINGS[..], &["ID", "TYPE", "LOCATION"]].concat();
    let rows: Vec<Vec<String>> = plans
        .iter()
        .map(|plan| {
            let mut cells = row(plan, usize::MAX);
            cells.extend(match &plan.cloud.found {
                Some(balancer) => [
                    balancer.id.to_string(),
                    or_dash(&balancer.kind),
                    or_dash(&balancer.location),
                ],
                None => ["-".into(), "-".into(), "-".into()],
            });
            cells
        })
        .collect();
    table::render(&headings, &rows)
}

fn row(plan: &ServicePlan, addresses: usize) -> Vec<String> {
    let found = plan.cloud.found.as_ref();
    let of_it = found.map(|balancer| {
        let addresses = balancer.addresses.iter().take(addresses);
        addresses
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(",")
    });
    let service = match plan.service.metadata.namespace.is_empty() {
        // Its labels do not say.
        true => "-".to_owned(),
        false => plan.service.full_name(),
    };
    vec![
        service,
        found.map_or("-".into(), |balancer| balancer.name.clone()),
        or_dash(&of_it.unwrap_or_default()),
        targets_cell(plan),
        diff(plan),
    ]
}

/// Reasons of warnings in one cell.
const WARNINGS_SHOWN: usize = 2;

/// What differs and what is warned of, in the fewest words.
fn diff(plan: &ServicePlan) -> String {
    match plan.is_orphan() {
        true if plan.has_writes() => return "orphan".into(),
        true => return "orphan, stays".into(),
        false => {}
    }
    if let Some(obstacle) = &plan.cloud.obstacle {
        return format!("!{}", obstacle.reason.name());
    }
    let mut words = match (plan.want, &plan.cloud.found) {
        // It does not exist any more, or it is protected.
        (Want::Remove, _) if plan.cloud.changes.is_empty() => vec!["finalizer".into()],
        (Want::Remove, _) => vec!["delete".into()],
        (Want::Ensure, None) if !plan.cloud.held_back.is_empty() => vec!["(create)".into()],
        (Want::Ensure, None) => vec!["create".into()],
        _ => written(plan),
    };
    if plan.want == Want::Ensure && serves_nothing(plan) {
        words.push("no TCP port".into());
    }
    words.extend(warnings(plan));
    or_dash(&words.join(","))
}

/// What a sync would write, to either API.
fn written(plan: &ServicePlan) -> Vec<String> {
    let mut words = fields(plan);
    if plan.add_finalizer {
        words.push("finalizer".into());
    }
    if plan.status.is_some() {
        words.push("status".into());
    }
    words
}

/// Their reasons; of many the first ones and how many more.
fn warnings(plan: &ServicePlan) -> Vec<String> {
    let mut reasons: Vec<String> = Vec::new();
    for warning in plan.warnings() {
        let reason = warning.reason.name().to_owned();
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    let more = reasons.len().saturating_sub(WARNINGS_SHOWN);
    reasons.truncate(WARNINGS_SHOWN);
    reasons.extend((more > 0).then(|| format!("+{more}")));
    reasons
}

/// A load balancer that takes no traffic at all.
fn serves_nothing(plan: &ServicePlan) -> bool {
    let mut ports = plan.service.spec.ports.iter();
    !ports.any(|port| matches!(port.protocol.as_str(), "" | "TCP"))
}

/// Fields that differ; those of one port or target under one word. In parentheses what is held
/// back.
fn fields(plan: &ServicePlan) -> Vec<String> {
    let held = &plan.cloud.held_back;
    let is_made = |field: &&Field| field.differs() && !held.contains(field);
    let made: BTreeSet<String> = plan.cloud.fields.iter().filter(is_made).map(word).collect();
    let held: BTreeSet<String> = held.iter().map(word).collect();
    let held: Vec<String> = held.difference(&made).cloned().collect();
    let held = (!held.is_empty()).then(|| format!("({})", held.join(",")));
    made.into_iter().chain(held).collect()
}

fn word(field: &Field) -> String {
    match field.field.split_whitespace().next() {
        Some(word @ ("port" | "target")) => word.to_owned(),
        _ => field.field.clone(),
    }
}
