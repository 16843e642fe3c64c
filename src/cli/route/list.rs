//! Every route, with whose it is, and what sync would do about it.

use super::{ask, json, warnings};
use crate::cli::output::{self, Printer};
use crate::cli::table::{self, Yielding};
use crate::cli::{Exit, leader, or_dash};
use crate::controllers::route::{Plan, Row, Step};
use crate::settings::{Command, Output};
use std::ffi::OsString;

pub(in crate::cli) fn list(words: Vec<OsString>) -> Exit {
    let context = match ask(Command::RouteList, words) {
        Ok(context) => context,
        Err(exit) => return exit,
    };
    let plan = match context.evaluate() {
        Ok(plan) => plan,
        Err(exit) => return exit,
    };
    leader::tell(&context.settings, &context.apis);
    let text = match context.settings.output.value {
        Output::Json => output::json(&json::plan("RouteList", &plan)),
        Output::Yaml => output::yaml(&json::plan("RouteList", &plan)),
        Output::Table => list_table(&plan),
        Output::Wide => list_wide(&plan),
    };
    tell_why(&plan);
    Printer::stdout(&text)
}

const HEADINGS: [&str; 4] = ["DESTINATION", "GATEWAY", "NODE", "STATE"];

/// What gives way when a table is too wide.
const YIELDING: [Yielding; 1] = [(2, 15)];

fn list_table(plan: &Plan) -> String {
    if plan.rows.is_empty() {
        return "The Network has no routes, and no node asks for one.\n".to_owned();
    }
    let rows: Vec<Vec<String>> = plan.rows.iter().map(row).collect();
    table::render_narrow(&HEADINGS, &rows, &YIELDING)
}

fn list_wide(plan: &Plan) -> String {
    let headings = [&HEADINGS[..], &["SERVER", "WANTED GATEWAY"]].concat();
    let wide = |one: &Row| {
        let mut cells = row(one);
        let wanted = one.want.map(|want| want.gateway.to_string());
        cells.push(or_dash(one.server.as_deref().unwrap_or_default()));
        cells.push(or_dash(&wanted.unwrap_or_default()));
        cells
    };
    let rows: Vec<Vec<String>> = plan.rows.iter().map(wide).collect();
    table::render(&headings, &rows)
}

fn row(row: &Row) -> Vec<String> {
    let gateway = row.have.map(|have| have.gateway.to_string());
    vec![
        row.destination.to_string(),
        or_dash(&gateway.unwrap_or_default()),
        or_dash(row.node.as_deref().unwrap_or_default()),
        state(row),
    ]
}

/// `missing → add`.
fn state(row: &Row) -> String {
    let word = row.state.word();
    match row.step {
        Step::Nothing => word.to_owned(),
        Step::Cannot => format!("{word} !"),
        Step::Add => format!("{word} → add"),
        Step::Delete => format!("{word} → delete"),
        Step::Replace => format!("{word} → replace"),
    }
}

/// What is blocked, and warnings.
fn tell_why(plan: &Plan) {
    let obstacles = plan.nodes.iter().filter_map(|node| {
        let finding = node.obstacle.as_ref()?;
        let (name, why) = (node.name(), &finding.message);
        Some(output::line(format_args!("{name}  can't: {why}")))
    });
    let text: String = warnings(plan).chain(obstacles).collect();
    Printer::stderr(&text);
}
