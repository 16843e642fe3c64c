//! `ccm config`: the effective settings of the daemon with these flags, this environment and its defaults, and the source
//! of each. No call is made.

use super::commands;
use super::output::{self, Document, Exit, Printer, or_dash};
use super::table::Columns;
use crate::settings::{self, Command, Effective, Parsed, Problem, Process};
use serde::Serialize;
use std::ffi::OsString;

const COLUMNS: Columns = Columns {
    headings: &["SETTING", "VALUE", "SOURCE"],
    wide: &[],
    // Values, then sources.
    yielding: &[(1, 16), (2, 20)],
};

/// One setting of the daemon.
#[derive(Serialize)]
struct Row {
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    setting: &'static str,
    source: String,
    /// A wrong setting has none: the daemon would not start.
    value: Option<String>,
}

pub(super) fn config(words: Vec<OsString>) -> Result<Exit, Exit> {
    let parsed = settings::parse(Command::Config, words, &Process);
    if parsed.help {
        return Ok(Printer::stdout(&commands::help("config")));
    }
    if parsed.version {
        return Ok(Printer::stdout(&commands::version()));
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
        return Err(Exit::Usage);
    }
    let rows = rows(&parsed);
    let exit = output::print(
        parsed.settings.output.value,
        || Document::new("SettingList", rows.iter().collect(), None),
        |is_wide| COLUMNS.table(cells(&rows), is_wide),
    );
    parsed.notices.iter().for_each(Printer::notice);
    parsed.problems.iter().for_each(Printer::notice);
    Ok(match parsed.problems.is_empty() {
        true => exit,
        false => Exit::Failed,
    })
}

/// Hidden settings only where they are set.
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
        setting: one.setting.name,
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
        vec![row.setting.to_owned(), value, row.source.clone()]
    });
    cells.collect()
}
