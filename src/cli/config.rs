//! `ccm config` shows the settings that the daemon would use if it ran with the flags of this command line and this
//! environment, and the source of each setting. No API is called.

use super::output::{self, Document, Exit, Printer, or_dash};
use super::startup;
use super::table::Columns;
use crate::settings::{
    Command, LOAD_BALANCER_RESYNC_PERIOD, NODE_STATUS_UPDATE_FREQUENCY, Parsed, Problem, Setting,
};
use serde::Serialize;
use std::ffi::OsString;
use std::ptr;

const COLUMNS: Columns = Columns {
    headings: &["SETTING", "VALUE", "SOURCE"],
    wide: &["NOTE"],
    // When the table is too wide, the column `VALUE` is cut first, then the column `SOURCE`.
    yielding: &[(1, 16), (2, 20)],
};

/// The settings for refresh intervals that the daemon lengthens in a Hetzner project with many objects, to save API
/// calls.
const PERIODS: [&Setting; 2] = [&NODE_STATUS_UPDATE_FREQUENCY, &LOAD_BALANCER_RESYNC_PERIOD];
const STRETCHED: &str = "in a large project ccm makes this interval longer, so that all refreshes use at most 200 calls \
                         an hour: see ccm status";

/// A row of the table that `ccm config` prints: one setting of the daemon.
#[derive(Serialize)]
struct Row {
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    setting: String,
    source: String,
    /// The value. `None` when the setting has no value, or has a wrong value with which the daemon would not start.
    value: Option<String>,
}

pub(super) fn config(words: Vec<OsString>) -> Result<Exit, Exit> {
    let parsed = startup::parse(Command::Config, words)?;
    let rows = rows(&parsed);
    let exit = output::print(
        parsed.settings.output.value,
        || Document::new("SettingList", rows.iter().collect()),
        |is_wide| COLUMNS.table(cells(&rows), is_wide),
    );
    parsed.notices.iter().for_each(Printer::notice);
    parsed.problems.iter().for_each(Printer::notice);
    Ok(exit.fail_if(!parsed.problems.is_empty()))
}

/// Returns a row for each setting of the daemon. A setting that `--help` does not mention has a row only when it is
/// set.
fn rows(parsed: &Parsed) -> Vec<Row> {
    let settings = parsed.effective.iter().filter(|effective| {
        let is_set = !effective.source.is_default();
        !effective.setting.is_of_config() && (is_set || !effective.setting.hidden)
    });
    let rows = settings.map(|effective| {
        let problem = parsed.problems.iter().find(|problem| problem.is_about(effective.setting));
        let source = problem.map_or(effective.source.name(), |problem| &problem.setting);
        let is_stretched = PERIODS.iter().any(|period| ptr::eq(*period, effective.setting));
        Row {
            note: is_stretched.then_some(STRETCHED),
            setting: effective.setting.name(),
            value: effective.value.clone().filter(|_| problem.is_none()),
            source: source.to_owned(),
            problem: problem.map(Problem::to_string),
        }
    });
    rows.collect()
}

fn cells(rows: &[Row]) -> Vec<Vec<String>> {
    let cells = rows.iter().map(|row| {
        let value = match &row.problem {
            Some(_) => "!wrong".to_owned(),
            None => or_dash(row.value.as_deref().unwrap_or_default()),
        };
        let note = or_dash(row.note.unwrap_or_default());
        vec![row.setting.clone(), value, row.source.clone(), note]
    });
    cells.collect()
}
