//! Every node with its server, and what differs.

use super::plans::{Nodes, Plans, state};
use crate::cli::output::{Exit, or_dash, usage};
use crate::cli::table::{self, Yielding};
use crate::controllers::Selection;
use crate::controllers::lifecycle;
use crate::controllers::node::{NodePlan, Server, is_uninitialised};
use crate::provider::NodeAddress;
use crate::settings::Command;
use std::collections::BTreeSet;
use std::ffi::OsString;

pub(in crate::cli) fn list(words: Vec<OsString>) -> Result<Exit, Exit> {
    let nodes = Nodes::start(Command::NodeList, words)?;
    if let Some(name) = nodes.context.names.first() {
        return Err(usage(&format!(
            "node list takes no name; ccm node inspect {name} shows one node"
        )));
    }
    let plans = nodes.evaluate(&Selection::All)?;
    let text = |is_wide| match (plans.is_empty(), is_wide) {
        (true, _) => "The cluster has no nodes.\n".to_owned(),
        (false, true) => list_wide(&plans),
        (false, false) => list_table(&plans),
    };
    Ok(nodes.context.show("List", &plans, text))
}

const HEADINGS: [&str; 6] = ["NAME", "STATUS", "SERVER", "STATE", "ADDRESSES", "DIFF"];

/// What gives way when a table is too wide: addresses, then names, then what differs.
const YIELDING: [Yielding; 3] = [(4, 15), (0, 18), (5, 10)];

fn list_table(plans: &[Plans]) -> String {
    let rows = |addresses| -> Vec<_> { plans.iter().map(|plan| row(plan, addresses)).collect() };
    let full = rows(2);
    match table::fits(&HEADINGS, &full) {
        true => table::render(&HEADINGS, &full),
        false => table::render_narrow(&HEADINGS, &rows(1), &YIELDING),
    }
}

fn list_wide(plans: &[Plans]) -> String {
    let more = ["TYPE", "LOCATION", "MATCHED BY", "PROVIDER ID"];
    let rows = plans.iter().map(|plans| {
        let mut cells = row(plans, usize::MAX);
        cells.extend(match &plans.node.server {
            Server::Matched(instance, by) => [
                instance.instance_type.to_string(),
                instance.location.to_string(),
                by.to_string(),
            ],
            _ => ["-".into(), "-".into(), "-".into()],
        });
        cells.push(or_dash(&plans.node.node.spec.provider_id));
        cells
    });
    table::render(&[&HEADINGS[..], &more].concat(), &rows.collect::<Vec<_>>())
}

fn row(plans: &Plans, addresses: usize) -> Vec<String> {
    let plan = &plans.node;
    vec![
        plan.object.name.clone(),
        status(plan).to_owned(),
        server_cell(&plan.server),
        state(&plan.server),
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
    let list: Vec<&str> = ips.iter().map(|one| one.address.as_str()).collect();
    match list.split_at_checked(at_most) {
        Some((shown, more)) if !more.is_empty() => format!("{}+{}", shown.join(","), more.len()),
        _ => or_dash(&list.join(",")),
    }
}

/// What kinds of values differ, or what blocks the node.
fn diff_cell(plans: &Plans) -> String {
    let plan = &plans.node;
    match plans.lifecycle_change() {
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
    or_dash(&kinds.into_iter().collect::<Vec<_>>().join(","))
}
