//! One node and its server, side by side, and why sync would do what it would.

use super::plans::{Nodes, Plans, state};
use crate::cli::inspection::{field, finding, rows, section, would_do};
use crate::cli::output::{Exit, or_dash, usage};
use crate::cli::table;
use crate::controllers::node::{NodePlan, Server, is_uninitialised};
use crate::settings::Command;
use std::ffi::OsString;

pub(in crate::cli) fn inspect(words: Vec<OsString>) -> Result<Exit, Exit> {
    let nodes = Nodes::start(Command::NodeInspect, words)?;
    if nodes.context.names.len() != 1 {
        let why = "node inspect takes one name, e.g. ccm node inspect worker-1";
        return Err(usage(why));
    }
    let plans = nodes.evaluate(&nodes.selection()?)?;
    let text = |_| plans.iter().map(inspection).collect();
    Ok(nodes.context.show("Inspection", &plans, text))
}

/// Both sides, matched how, every value with what asks for it, and what sync would do.
fn inspection(plans: &Plans) -> String {
    let fields = plans.node.fields.iter();
    let fields: String = fields
        .map(|one| field(&one.field, &one.have, &one.want, false, &one.source))
        .collect();
    let findings: String = plans.findings().map(finding).collect();
    [
        sides(&plans.node),
        section(
            "\nVALUES (= as wanted, ~ differs)",
            &fields,
            "none: nothing is wanted of this node",
        ),
        section("\nFINDINGS", &findings, "none"),
        would_do(&plans.proposal().lines, "change nothing"),
    ]
    .concat()
}

fn sides(plan: &NodePlan) -> String {
    let node = &plan.node;
    let mut ready = if node.is_ready() { "Ready" } else { "NotReady" }.to_owned();
    if is_uninitialised(node) {
        ready += ", uninitialized";
    }
    let (mut name, mut place, mut matched_by) = (String::new(), None, "-".to_owned());
    let mut addresses = Vec::new();
    let identity = match &plan.server {
        Server::Matched(instance, by) => {
            name = instance.name.clone();
            place = Some(format!(
                "{}, {} ({})",
                instance.instance_type, instance.location, instance.network_zone
            ));
            matched_by = by.to_string();
            addresses.extend(instance.public_ipv4.map(|ip| format!("public {ip}")));
            addresses.extend(instance.public_ipv6.map(|net| format!("public {net}")));
            let private = instance.private.iter();
            addresses.extend(private.map(|p| format!("private {} (Network {})", p.ip, p.network)));
            format!("server {}", instance.id)
        }
        Server::Gone(id) => format!("server {id}"),
        Server::Foreign | Server::Unknown | Server::Unmatched => String::new(),
    };
    let row =
        |heading: &str, ours: &str, cloud: String| vec![heading.to_owned(), ours.to_owned(), cloud];
    let mut table = vec![
        row("name", &plan.object.name, name),
        row("identity", &or_dash(&node.spec.provider_id), identity),
        row("state", &ready, state(&plan.server)),
    ];
    table.extend(place.map(|place| row("type, place", "", place)));
    let reported: Vec<String> = plan
        .reported_addresses()
        .iter()
        .map(ToString::to_string)
        .collect();
    table.extend(rows("addresses", &reported, &addresses));
    table.push(row("matched by", "", matched_by));
    table::render(&["", "KUBERNETES", "CLOUD"], &table)
}
