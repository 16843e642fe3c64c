//! `ccm node list | inspect | sync`.

use super::logging::Reader;
use super::output::{self, Printer};
use super::table::{self, COLUMNS, Yielding};
use super::wire::{self, Read};
use super::{Exit, help, json, leader};
use crate::cloud::{Finding, Gate, NodeAddress, Refused, Severity};
use crate::controllers::node::{Field, NodeController, NodePlan, Server, is_uninitialised};
use crate::controllers::{Proposal, Report, Selection};
use crate::settings::{Command, Output, Settings, nearest};
use crate::world::World;
use std::collections::BTreeSet;
use std::ffi::OsString;

/// Everything a command needs.
struct Asked {
    settings: Settings,
    world: World,
    controller: NodeController,
    names: Vec<String>,
}

pub(super) fn list(words: Vec<OsString>) -> Exit {
    let asked = match ask(Command::List, words) {
        Ok(asked) => asked,
        Err(exit) => return exit,
    };
    if let Some(name) = asked.names.first() {
        return usage(&format!(
            "node list takes no name; ccm node inspect {name} shows one node"
        ));
    }
    let plans = match asked.evaluate(&Selection::All) {
        Ok(plans) => plans,
        Err(exit) => return exit,
    };
    leader::tell(&asked.settings, &asked.world);
    let text = match asked.settings.output.value {
        Output::Json => output::json(&json::plans("NodeList", &plans)),
        Output::Yaml => output::yaml(&json::plans("NodeList", &plans)),
        Output::Table if plans.is_empty() => "The cluster has no nodes.\n".to_owned(),
        Output::Table => list_table(&plans),
        Output::Wide => list_wide(&plans),
    };
    Printer::stdout(&text)
}

pub(super) fn inspect(words: Vec<OsString>) -> Exit {
    let asked = match ask(Command::Inspect, words) {
        Ok(asked) => asked,
        Err(exit) => return exit,
    };
    let [name] = asked.names.as_slice() else {
        return usage("node inspect takes one name, e.g. ccm node inspect worker-1");
    };
    let selection = Selection::Names(BTreeSet::from([name.clone()]));
    let plans = match asked.evaluate(&selection) {
        Ok(plans) => plans,
        Err(exit) => return exit,
    };
    leader::tell(&asked.settings, &asked.world);
    let text = match asked.settings.output.value {
        Output::Json => output::json(&json::plans("NodeInspection", &plans)),
        Output::Yaml => output::yaml(&json::plans("NodeInspection", &plans)),
        Output::Table | Output::Wide => plans.iter().map(inspection).collect(),
    };
    Printer::stdout(&text)
}

pub(super) fn sync(words: Vec<OsString>) -> Exit {
    let mut asked = match ask(Command::Sync, words) {
        Ok(asked) => asked,
        Err(exit) => return exit,
    };
    let names: BTreeSet<String> = asked.names.iter().cloned().collect();
    let selection = if names.is_empty() {
        Selection::All
    } else {
        Selection::Names(names)
    };
    if asked.settings.detailed_exitcode.value && !asked.settings.dry_run.value {
        return usage("--detailed-exitcode goes with --dry-run");
    }
    if let Err(exit) = asked.check_names() {
        return exit;
    }
    leader::tell(&asked.settings, &asked.world);
    match asked.settings.dry_run.value {
        true => asked.dry_run(&selection),
        false => asked.sync(&selection),
    }
}

/// `2 changed, 98 unchanged, 0 failed`.
pub(super) fn summary(report: &Report) -> String {
    format!(
        "{} changed, {} unchanged, {} failed",
        report.changed,
        report.unchanged,
        report.failed()
    )
}

/// The plan, a line each, and how much of it there is.
pub(super) fn proposed(proposals: &[Proposal]) -> String {
    let lines = proposals.iter().flat_map(|proposal| {
        proposal
            .lines
            .iter()
            .map(|line| format!("{}  {line}\n", proposal.object))
    });
    let would_change = proposals
        .iter()
        .filter(|proposal| !proposal.lines.is_empty())
        .count();
    let unchanged = proposals.len() - would_change;
    format!(
        "{}{would_change} would change, {unchanged} unchanged\n",
        lines.collect::<String>()
    )
}

fn usage(message: &str) -> Exit {
    Printer::stderr(&format!("ccm: {message}\n"));
    Exit::Usage
}

fn ask(command: Command, words: Vec<OsString>) -> Result<Asked, Exit> {
    let parsed = match wire::read(command, words, Reader::Person, || help::command(command)) {
        Read::GoOn(parsed) => parsed,
        Read::End(exit) => return Err(exit),
    };
    let world = wire::world(&parsed.settings).map_err(|why| Printer::failure(&why))?;
    let controller = NodeController::new(wire::node_settings(&parsed.settings));
    Ok(Asked {
        settings: parsed.settings,
        world,
        controller,
        names: parsed.words,
    })
}

/// `sync` writes what it was told to.
struct Open;

impl Gate for Open {
    fn pass(&self, _what: &str) -> Result<(), Refused> {
        Ok(())
    }
}

impl Asked {
    fn evaluate(&self, selection: &Selection) -> Result<Vec<NodePlan>, Exit> {
        self.check_names()?;
        match self.controller.evaluate(&self.world, selection) {
            Ok((_, plans)) => Ok(plans),
            Err(error) => Err(Printer::failure(&error.to_string())),
        }
    }

    /// Every name must be a node's; the nodes read here are those that are planned on.
    fn check_names(&self) -> Result<(), Exit> {
        if self.names.is_empty() {
            return Ok(());
        }
        let nodes = self
            .controller
            .nodes(&self.world, &Selection::All)
            .map_err(|error| Printer::failure(&error.to_string()))?;
        let there: Vec<&str> = nodes.value.iter().map(|node| node.name()).collect();
        let mut exit = Ok(());
        for name in self
            .names
            .iter()
            .filter(|name| !there.contains(&name.as_str()))
        {
            exit = Err(Printer::failure(&unknown_node(name, &there)));
        }
        exit
    }

    fn dry_run(&self, selection: &Selection) -> Exit {
        let plans = match self.evaluate(selection) {
            Ok(plans) => plans,
            Err(exit) => return exit,
        };
        let text = match self.settings.output.value {
            Output::Json => output::json(&json::plans("NodeSync", &plans)),
            Output::Yaml => output::yaml(&json::plans("NodeSync", &plans)),
            Output::Table | Output::Wide => {
                let obstacles = plans
                    .iter()
                    .filter_map(|plan| Some((plan, plan.obstacle()?)));
                let obstacles = obstacles.map(|(plan, finding)| {
                    format!("node/{}  can't: {}\n", plan.object.name, finding.message)
                });
                let told: String = warnings(&plans).chain(obstacles).collect();
                let proposals: Vec<Proposal> = plans.iter().map(NodePlan::proposal).collect();
                told + &proposed(&proposals)
            }
        };
        match Printer::stdout(&text) {
            Exit::Done if plans.iter().any(|plan| plan.is_blocked) => Exit::Failed,
            Exit::Done
                if self.settings.detailed_exitcode.value
                    && plans.iter().any(|plan| !plan.changes.is_empty()) =>
            {
                Exit::Pending
            }
            exit => exit,
        }
    }

    fn sync(&mut self, selection: &Selection) -> Exit {
        let (report, plans) = self.controller.sync(&self.world, &Open, selection);
        if let Some(outage) = &report.outage {
            return Printer::failure(&outage.error.to_string());
        }
        let text = match self.settings.output.value {
            Output::Json => output::json(&json::synced("NodeSync", &plans, &report)),
            Output::Yaml => output::yaml(&json::synced("NodeSync", &plans, &report)),
            Output::Table | Output::Wide => sync_lines(&report, &plans),
        };
        match Printer::stdout(&text) {
            Exit::Done if !report.failures.is_empty() => Exit::Failed,
            exit => exit,
        }
    }
}

fn unknown_node(name: &str, there: &[&str]) -> String {
    match nearest(name, there.iter().copied()) {
        Some(near) => format!("there is no node {name:?}; did you mean {near}?"),
        None if there.is_empty() => format!("there is no node {name:?}: the cluster has none"),
        None => format!(
            "there is no node {name:?}; ccm node list shows all {}",
            there.len()
        ),
    }
}

fn sync_lines(report: &Report, plans: &[NodePlan]) -> String {
    let changes = report
        .changes
        .iter()
        .map(|(object, line)| format!("{object}  {line}\n"));
    let failures = report.failures.iter();
    let failures = failures.map(|failure| format!("{}  failed: {}\n", failure.object, failure.why));
    let text: String = changes.chain(warnings(plans)).chain(failures).collect();
    text + &summary(report) + "\n"
}

/// Findings that stand in nobody's way, and should be known all the same.
fn warnings(plans: &[NodePlan]) -> impl Iterator<Item = String> {
    plans.iter().flat_map(|plan| {
        let others = plan
            .findings
            .iter()
            .filter(|finding| Some(*finding) != plan.obstacle());
        let warnings = others.filter(|finding| finding.severity == Severity::Warning);
        warnings.map(|finding| format!("node/{}  warning: {}\n", plan.object.name, finding.message))
    })
}

const HEADINGS: [&str; 6] = ["NAME", "STATUS", "SERVER", "STATE", "ADDRESSES", "DIFF"];

/// What gives way when a table is too wide: addresses, then names, then what differs.
const YIELDING: [Yielding; 3] = [(4, 15), (0, 18), (5, 10)];

fn list_table(plans: &[NodePlan]) -> String {
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

fn list_wide(plans: &[NodePlan]) -> String {
    let headings = [
        &HEADINGS[..],
        &["TYPE", "LOCATION", "MATCHED BY", "PROVIDER ID"],
    ]
    .concat();
    let rows: Vec<Vec<String>> = plans
        .iter()
        .map(|plan| {
            let (kind, location, by) = match &plan.server {
                Server::Matched(instance, by) => (
                    instance.instance_type.clone(),
                    instance.location.clone(),
                    by.to_string(),
                ),
                _ => ("-".into(), "-".into(), "-".into()),
            };
            let mut cells = row(plan, usize::MAX);
            cells.extend([kind, location, by, or_dash(&plan.node.spec.provider_id)]);
            cells
        })
        .collect();
    table::render(&headings, &rows)
}

fn or_dash(text: &str) -> String {
    if text.is_empty() {
        "-".to_owned()
    } else {
        text.to_owned()
    }
}

fn row(plan: &NodePlan, addresses: usize) -> Vec<String> {
    vec![
        plan.object.name.clone(),
        status(plan).to_owned(),
        server_cell(&plan.server),
        state_cell(&plan.server),
        addresses_cell(&plan.reported_addresses(), addresses),
        diff_cell(plan),
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

fn state_cell(server: &Server) -> String {
    match server {
        Server::Matched(instance, _) => instance.state.to_string(),
        Server::Gone(_) => "missing".into(),
        Server::Foreign => "foreign".into(),
        Server::Unknown => "unknown".into(),
        Server::Unmatched => "-".into(),
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

/// What kinds of values differ, or what stands in the way.
fn diff_cell(plan: &NodePlan) -> String {
    if let Some(finding) = plan.obstacle() {
        return format!("!{}", finding.reason.name());
    }
    if is_uninitialised(&plan.node) && !plan.changes.is_empty() {
        return "initialise".into();
    }
    let kinds: BTreeSet<&str> = plan
        .differences()
        .map(|field| field.field.split(' ').next().unwrap_or_default())
        .collect();
    match kinds.is_empty() {
        true => "-".into(),
        false => kinds.into_iter().collect::<Vec<_>>().join(","),
    }
}

/// Both sides, matched how, every value with what asks for it, and what sync would do.
fn inspection(plan: &NodePlan) -> String {
    let mut text = sides(plan);
    text.push_str("\nVALUES (= as wanted, ~ differs)\n");
    if plan.fields.is_empty() {
        text.push_str("  none: nothing is wanted of this node\n");
    }
    for field in &plan.fields {
        text.push_str(&field_lines(field));
    }
    text.push_str("\nFINDINGS\n");
    if plan.findings.is_empty() {
        text.push_str("  none\n");
    }
    for finding in &plan.findings {
        text.push_str(&finding_lines(finding));
    }
    text.push_str("\nSYNC WOULD\n");
    let lines = plan.proposal().lines;
    if lines.is_empty() {
        text.push_str("  change nothing\n");
    }
    for line in lines {
        text.push_str(&format!("  {line}\n"));
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
    format!("{line}\n      {}\n", field.source)
}

fn finding_lines(finding: &Finding) -> String {
    let mark = match finding.severity {
        Severity::Info => "·",
        Severity::Warning => "!",
    };
    let text = output::wrapped(&finding.message, COLUMNS - 4).join("\n    ");
    format!("  {mark} {}\n    {text}\n", finding.reason.name())
}
