//! Every node with its server, and what differs.

use super::{Plans, ask, json, or_dash, state_cell, usage};
use crate::cli::output::{self, Printer};
use crate::cli::table::{self, Yielding};
use crate::cli::{Exit, leader};
use crate::controllers::Selection;
use crate::controllers::lifecycle;
use crate::controllers::node::{NodePlan, Server, is_uninitialised};
use crate::provider::NodeAddress;
use crate::settings::{Command, Output};
use std::collections::BTreeSet;
use std::ffi::OsString;

pub(in crate::cli) fn list(words: Vec<OsString>) -> Exit {
    let context = match ask(Command::NodeList, words) {
        Ok(context) => context,
        Err(exit) => return exit,
    };
    if let Some(name) = context.names.first() {
        return usage(&format!(
            "node list takes no name; ccm node inspect {name} shows one node"
        ));
    }
    let plans = match context.evaluate(&Selection::All) {
        Ok(plans) => plans,
        Err(exit) => return exit,
    };
    leader::tell(&context.settings, &context.apis);
    let text = match context.settings.output.value {
        Output::Json => output::json(&json::plans("NodeList", &plans)),
        Output::Yaml => output::yaml(&json::plans("NodeList", &plans)),
        Output::Table if plans.is_empty() => "The cluster has no nodes.\n".to_owned(),
        Output::Table => list_table(&plans),
        Output::Wide => list_wide(&plans),
    };
    Printer::stdout(&text)
}

const HEADINGS: [&str; 6] = ["NAME", "STATUS", "SERVER", "STATE", "ADDRESSES", "DIFF"];

/// What gives way when a table is too wide: addresses, then names, then what differs.
const YIELDING: [Yielding; 3] = [(4, 15), (0, 18), (5, 10)];

fn list_table(plans: &[Plans]) -> String {
    let rows = |addresses| {
        plans
            .iter()
            .map(|plan| row(plan, addresses))
            .collect::<Vec<_>>()
    };
    let full = rows(2);
    match table::fits(&HEADINGS, &full) {
        true => table::render(&HEADINGS, &full),
        false => table::render_narrow(&HEADINGS, &rows(1), &YIELDING),
    }
}

fn list_wide(plans: &[Plans]) -> String {
    let headings = [
        &HEADINGS[..],
        &["TYPE", "LOCATION", "MATCHED BY", "PROVIDER ID"],
    ]
    .concat();
    let rows: Vec<Vec<String>> = plans
        .iter()
        .map(|plans| {
            let plan = &plans.node;
            let (kind, location, by) = match &plan.server {
                Server::Matched(instance, by) => (
                    instance.instance_type.to_string(),
                    instance.location.to_string(),
                    by.to_string(),
                ),
                _ => ("-".into(), "-".into(), "-".into()),
            };
            let mut cells = row(plans, usize::MAX);
            cells.extend([kind, location, by, or_dash(&plan.node.spec.provider_id)]);
            cells
        })
        .collect();
    table::render(&headings, &rows)
}

fn row(plans: &Plans, addresses: usize) -> Vec<String> {
    let plan = &plans.node;
    vec![
        plan.object.name.clone(),
        status(plan).to_owned(),
        server_cell(&plan.server),
        state_cell(&plan.server),
        addresses_cell(&plan.reported_addresses(), addresses),
        diff_cell(plans),
    ]
}

fn status(plan: &NodePlan) -> &'static str {
    match (is_uninitialised(&plan.node), plan.node.is_ready()) {
        (true, _) => "New",
        (false, true) => "Ready",
        (false, false) => "NotReady",
    }
}

fn server_cell(server: &Server) -> String {
    match server {
        Server::Matched(instance, _) => instance.id.to_string(),
        Server::Gone(id) => id.to_string(),
        Server::Foreign | Server::Unknown | Server::Unmatched => "-".into(),
    }
}

/// IPs only, the external first; the host name is nearly always the node's name.
fn addresses_cell(addresses: &[NodeAddress], at_most: usize) -> String {
    let mut ips: Vec<&NodeAddress> = addresses
        .iter()
        .filter(|address| address.ip().is_some())
        .collect();
    ips.sort_by_key(|address| address.kind.name() != "ExternalIP");
    let shown = ips.len().min(at_most);
    let list: Vec<&str> = ips[..shown]
        .iter()
        .map(|address| address.address.as_str())
        .collect();
    match (list.join(","), ips.len() - shown) {
        (list, _) if list.is_empty() => "-".into(),
        (list, 0) => list,
        (list, more) => format!("{list}+{more}"),
    }
}

/// What kinds of values differ, or what blocks the node.
fn diff_cell(plans: &Plans) -> String {
    let plan = &plans.node;
    match plans
        .lifecycle
        .as_ref()
        .and_then(|plan| plan.change.as_ref())
    {
        Some(lifecycle::Change::DeleteNode { .. }) => return "delete".into(),
        Some(_) => return "shutdown taint".into(),
        None => {}
    }
    if let Some(finding) = plans.obstacles().next() {
        return format!("!{}", finding.reason.name());
    }
    if is_uninitialised(&plan.node) && !plan.changes.is_empty() {
        return "initialise".into();
    }
    let kinds: BTreeSet<&str> = plan.differences().map(|field| field.field.kind()).collect();
    match kinds.is_empty() {
        true => "-".into(),
        false => kinds.into_iter().collect::<Vec<_>>().join(","),
    }
}
