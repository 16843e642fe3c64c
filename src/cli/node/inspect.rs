//! One node and its server, side by side, and why sync would do what it would.

use super::{Plans, ask, json, or_dash, state_cell, usage};
use crate::cli::output::{self, Printer};
use crate::cli::table::{self, COLUMNS};
use crate::cli::{Exit, leader};
use crate::controllers::Selection;
use crate::controllers::node::{Field, NodePlan, Server, is_uninitialised};
use crate::provider::{Finding, Severity};
use crate::settings::{Command, Output};
use std::collections::BTreeSet;
use std::ffi::OsString;

pub(in crate::cli) fn inspect(words: Vec<OsString>) -> Exit {
    let context = match ask(Command::NodeInspect, words) {
        Ok(context) => context,
        Err(exit) => return exit,
    };
    let [name] = context.names.as_slice() else {
        return usage("node inspect takes one name, e.g. ccm node inspect worker-1");
    };
    let selection = Selection::Names(BTreeSet::from([name.clone()]));
    let plans = match context.evaluate(&selection) {
        Ok(plans) => plans,
        Err(exit) => return exit,
    };
    leader::tell(&context.settings, &context.apis);
    let text = match context.settings.output.value {
        Output::Json => output::json(&json::plans("NodeInspection", &plans)),
        Output::Yaml => output::yaml(&json::plans("NodeInspection", &plans)),
        Output::Table | Output::Wide => plans.iter().map(inspection).collect(),
    };
    Printer::stdout(&text)
}

/// Both sides, matched how, every value with what asks for it, and what sync would do.
fn inspection(plans: &Plans) -> String {
    let plan = &plans.node;
    let mut text = sides(plan);
    text.push_str("\nVALUES (= as wanted, ~ differs)\n");
    if plan.fields.is_empty() {
        text.push_str("  none: nothing is wanted of this node\n");
    }
    for field in &plan.fields {
        text.push_str(&field_lines(field));
    }
    text.push_str("\nFINDINGS\n");
    if plans.findings().next().is_none() {
        text.push_str("  none\n");
    }
    for finding in plans.findings() {
        text.push_str(&finding_lines(finding));
    }
    text.push_str("\nSYNC WOULD\n");
    let lines = plans.proposal().lines;
    if lines.is_empty() {
        text.push_str("  change nothing\n");
    }
    for line in lines {
        text.push_str(&output::line(format_args!("  {line}")));
    }
    text
}

fn sides(plan: &NodePlan) -> String {
    let node = &plan.node;
    let ready = if node.is_ready() { "Ready" } else { "NotReady" };
    let state = if is_uninitialised(node) {
        format!("{ready}, uninitialized")
    } else {
        ready.to_owned()
    };
    let mut rows = vec![
        ("name", plan.object.name.clone(), String::new()),
        ("identity", or_dash(&node.spec.provider_id), String::new()),
        ("state", state, state_cell(&plan.server)),
    ];
    let node_addresses = plan.reported_addresses();
    let mut server_addresses = Vec::new();
    let mut matched_by = "-".to_owned();
    match &plan.server {
        Server::Matched(instance, by) => {
            rows[0].2 = instance.name.clone();
            rows[1].2 = format!("server {}", instance.id);
            let place = format!(
                "{}, {} ({})",
                instance.instance_type, instance.location, instance.network_zone
            );
            rows.push(("type, place", String::new(), place));
            server_addresses.extend(instance.public_ipv4.map(|ip| format!("public {ip}")));
            server_addresses.extend(instance.public_ipv6.map(|net| format!("public {net}")));
            let private = instance.private.iter();
            server_addresses
                .extend(private.map(|p| format!("private {} (Network {})", p.ip, p.network)));
            matched_by = by.to_string();
        }
        Server::Gone(id) => rows[1].2 = format!("server {id}"),
        Server::Foreign | Server::Unknown | Server::Unmatched => {}
    }
    let lines = node_addresses.len().max(server_addresses.len());
    for line in 0..lines {
        let heading = if line == 0 { "addresses" } else { "" };
        let node_side = node_addresses
            .get(line)
            .map(ToString::to_string)
            .unwrap_or_default();
        rows.push((
            heading,
            node_side,
            server_addresses.get(line).cloned().unwrap_or_default(),
        ));
    }
    rows.push(("matched by", String::new(), matched_by));
    let rows: Vec<Vec<String>> = rows
        .into_iter()
        .map(|(a, b, c)| vec![a.to_owned(), b, c])
        .collect();
    table::render(&["", "KUBERNETES", "CLOUD"], &rows)
}

fn field_lines(field: &Field) -> String {
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".into());
    let line = match field.have == field.want {
        true => format!("= {}: {}", field.field, text(&field.want)),
        false => format!(
            "~ {}: {} → {}",
            field.field,
            text(&field.have),
            text(&field.want)
        ),
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
