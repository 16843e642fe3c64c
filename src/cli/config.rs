//! `ccm config`: the effective settings of the daemon with these flags, this environment and its defaults, and the source
//! of each. No call is made.

use super::json::Document;
use super::output::{self, Printer};
use super::table::{self, Yielding};
use super::{Exit, commands, or_dash};
use crate::settings::{self, Command, Effective, Output, Parsed, Problem, Process};
use serde_json::{Value, json};
use std::ffi::OsString;

const HEADINGS: [&str; 3] = ["SETTING", "VALUE", "SOURCE"];

/// What gives way when the table is too wide: values, then sources.
const YIELDING: [Yielding; 2] = [(1, 16), (2, 20)];

/// One setting, or a part of the command line that is none.
struct Row {
    name: String,
    value: Option<String>,
    source: String,
    problem: Option<String>,
}

pub(super) fn config(words: Vec<OsString>) -> Exit {
    let parsed = settings::parse(Command::Config, words, &Process);
    if parsed.help {
        return Printer::stdout(&commands::help("config"));
    }
    if parsed.version {
        return Printer::stdout(&super::version());
    }
    // A wrong setting is what this command shows; a wrong command line of its own is not.
    let is_own = |problem: &&Problem| {
        let mut settings = parsed.effective.iter();
        let about = settings.find(|one| one.is_about(problem));
        problem.usage && about.is_none_or(|one| one.setting.is_of_config())
    };
    let own: Vec<&Problem> = parsed.problems.iter().filter(is_own).collect();
    if !own.is_empty() {
        for problem in own {
            Printer::notice(problem);
        }
        return Exit::Usage;
    }
    let rows = rows(&parsed);
    let shown = Printer::stdout(&match parsed.settings.output.value {
        Output::Json => output::json(&document(&rows)),
        Output::Yaml => output::yaml(&document(&rows)),
        Output::Table => table::render_narrow(&HEADINGS, &cells(&rows), &YIELDING),
        Output::Wide => table::render(&HEADINGS, &cells(&rows)),
    });
    for notice in &parsed.notices {
        Printer::notice(notice);
    }
    for problem in &parsed.problems {
        Printer::notice(problem);
    }
    match parsed.problems.is_empty() {
        true => shown,
        false => Exit::Failed,
    }
}

/// The settings of the daemon; hidden ones only where they are set.
fn rows(parsed: &Parsed) -> Vec<Row> {
    let settings = parsed.effective.iter().filter(|one| {
        let is_set = !one.source.is_default();
        !one.setting.is_of_config() && (is_set || !one.setting.hidden)
    });
    settings.map(|one| row(one, &parsed.problems)).collect()
}

fn row(one: &Effective, problems: &[Problem]) -> Row {
    let problem = problems.iter().find(|problem| one.is_about(problem));
    Row {
        name: one.setting.name.to_owned(),
        // A wrong setting has no value: the daemon would not start.
        value: one.value.clone().filter(|_| problem.is_none()),
        source: match problem {
            Some(problem) => problem.setting.clone(),
            None => one.source.name().to_owned(),
        },
        problem: problem.map(Problem::to_string),
    }
}

fn cells(rows: &[Row]) -> Vec<Vec<String>> {
    let cells = rows.iter().map(|row| {
        let value = match &row.problem {
            Some(_) => "!wrong".to_owned(),
            None => or_dash(row.value.as_deref().unwrap_or_default()),
        };
        vec![row.name.clone(), value, row.source.clone()]
    });
    cells.collect()
}

fn document(rows: &[Row]) -> Document<Value> {
    let items = rows.iter().map(|row| {
        let mut item = json!({ "setting": row.name, "value": row.value, "source": row.source });
        if let Some(problem) = &row.problem {
            item["problem"] = json!(problem);
        }
        item
    });
    Document::new("SettingList", items.collect())
}
