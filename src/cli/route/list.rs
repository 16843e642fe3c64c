//! Every route, with whose it is, and what sync would do about it.

use super::plans::Routes;
use crate::cli::objects::Planned;
use crate::cli::output::{Exit, Printer, line, or_dash};
use crate::cli::table::{self, Yielding};
use crate::controllers::route::{Plan, Row, Step};
use crate::settings::Command;
use std::ffi::OsString;

pub(in crate::cli) fn list(words: Vec<OsString>) -> Result<Exit, Exit> {
    let routes = Routes::start(Command::RouteList, words)?;
    let plans = routes.evaluate()?;
    let exit = routes
        .context
        .show("List", &plans, |is_wide| table(&plans.plan, is_wide));
    // What is blocked, and warnings.
    let obstacles = plans.plan.nodes.iter().filter_map(|node| {
        let why = &node.obstacle.as_ref()?.message;
        Some(line(format_args!("{}  can't: {why}", node.name())))
    });
    Printer::stderr(
        &plans
            .notes()
            .into_iter()
            .chain(obstacles)
            .collect::<String>(),
    );
    Ok(exit)
}

const HEADINGS: [&str; 4] = ["DESTINATION", "GATEWAY", "NODE", "STATE"];

/// What gives way when a table is too wide.
const YIELDING: [Yielding; 1] = [(2, 15)];

fn table(plan: &Plan, is_wide: bool) -> String {
    if plan.rows.is_empty() {
        return "The Network has no routes, and no node asks for one.\n".to_owned();
    }
    let mut rows: Vec<Vec<String>> = plan.rows.iter().map(row).collect();
    if !is_wide {
        return table::render_narrow(&HEADINGS, &rows, &YIELDING);
    }
    for (cells, row) in rows.iter_mut().zip(&plan.rows) {
        let wanted = row.want.map(|want| want.gateway.to_string());
        cells.push(or_dash(row.server.as_deref().unwrap_or_default()));
        cells.push(or_dash(&wanted.unwrap_or_default()));
    }
    table::render(
        &[&HEADINGS[..], &["SERVER", "WANTED GATEWAY"]].concat(),
        &rows,
    )
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
