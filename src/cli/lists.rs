//! The parts that all list commands have in common: the order of rows, `-o name`, `--no-headers` and `--watch`.

use super::objects::{CommandContext, PlannedObjects, Sides, document};
use super::output::{self, CommandFailure, Exit, HAS_NO_READER, Printer};
use super::table::Columns;
use super::{commands, terminal};
use crate::controllers::Report;
use crate::provider::{KeptObject, clock};
use crate::settings::{Output, Settings};
use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The time between two reads of the cluster with `--watch`.
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// How a list command shows its plans as a table. A plan compares an object in Kubernetes with the cloud, and says what
/// a sync would change.
pub(super) struct Table<Plans, Row> {
    pub(super) columns: Columns,
    pub(super) rows: fn(&mut Plans) -> &mut [Row],
    /// Returns the cells of a row. The cells of the columns that only `-o wide` shows come last. The second argument
    /// says whether the output is wide, and the third says which APIs answer. A cell has a `?` when the API that knows
    /// its value does not answer.
    pub(super) cells: fn(&Row, bool, Sides) -> Vec<String>,
    /// Returns the name of a row, e.g. `service/default/web`.
    pub(super) name: fn(&Row) -> String,
}

/// The contents of a list command's output at one moment. With `--watch`, the contents are read again and again.
pub(super) struct List<Plans> {
    pub(super) plans: Plans,
    /// The text that is printed in place of the table when there are no rows. It says why there are none.
    pub(super) empty: String,
    /// The lines that are printed below the table.
    pub(super) below: String,
    /// The load balancers and certificates that are kept although their Service was deleted. The outer `None` means
    /// that the command did not read them, e.g. because it is not `ccm lb list`. The inner `None` means that the
    /// read failed.
    pub(super) kept: Option<Option<Vec<KeptObject>>>,
    /// Remarks about the list, in lines. They are printed to stderr, so that they are not mixed with the rows
    /// on stdout.
    pub(super) notes: String,
    /// The report about an API that does not answer. When it is set, the plans lack the data of that API.
    pub(super) outage: Option<Report>,
}

impl<Plans: PlannedObjects> List<Plans> {
    /// Reads what a list command prints. The parameter `read` is a function that returns the plans, which become the
    /// rows of the list. When Kubernetes or the cloud does not answer, this function is called again, and returns plans
    /// that need only the API that answers, see [`CommandContext::read`].
    pub(super) fn read(
        context: &CommandContext,
        empty: &str,
        read: impl Fn(Sides) -> Result<Plans, CommandFailure>,
    ) -> Result<List<Plans>, Exit> {
        let (plans, outage) = context.read(read)?;
        Ok(List {
            plans,
            empty: if outage.is_none() { empty.to_owned() } else { String::new() },
            below: String::new(),
            kept: None,
            notes: String::new(),
            outage,
        })
    }
}

impl<Plans: PlannedObjects, Row> Table<Plans, Row> {
    /// Prints the list that `fetch` reads. With `--watch`, the list is read and printed again and again.
    pub(super) fn show(
        &self,
        context: &CommandContext,
        fetch: impl Fn() -> Result<List<Plans>, Exit>,
    ) -> Result<Exit, Exit> {
        let settings = &context.settings;
        let by = settings.sort_by.value.as_deref();
        let by = by.map(|name| column(&self.columns, name)).transpose()?;
        let fetch = || {
            let mut list = fetch()?;
            if let Some(by) = by {
                let key = |row: &Row| natural(&(self.cells)(row, true, Sides::Both)[by]);
                (self.rows)(&mut list.plans).sort_by_cached_key(key);
            }
            Ok(list)
        };
        if settings.watch.value {
            let mut before = HashSet::new();
            return watch(|can_redraw| {
                let (text, nothing) = self.text(settings, &mut fetch()?);
                Ok(if can_redraw {
                    Printer::redraw(&(text + &nothing))
                } else {
                    print_new(&text, &mut before)
                })
            });
        }
        let mut list = fetch()?;
        let (text, nothing) = self.text(settings, &mut list);
        let document = || {
            let mut document = document("List", &list.plans, list.outage.as_ref());
            document.kept = list.kept.clone();
            document
        };
        let exit = output::print(settings.output.value, document, |_| text);
        if !matches!(settings.output.value, Output::Json | Output::Yaml) {
            Printer::stderr(&nothing);
        }
        Printer::stderr(&list.notes);
        Ok(exit.fail_if(list.outage.is_some()))
    }

    /// Returns two texts: the list, and a line that says why there are no rows. The second text is empty when there
    /// are rows.
    fn text(&self, settings: &Settings, list: &mut List<Plans>) -> (String, String) {
        let output = settings.output.value;
        let (rows, is_wide) = ((self.rows)(&mut list.plans), output == Output::Wide);
        let nothing = match &settings.selector.value {
            _ if !rows.is_empty() => String::new(),
            Some(selector) => {
                format!("Nothing matches the label selector {:?}.\n", selector.as_str())
            }
            None => list.empty.clone(),
        };
        let known = Sides::of(list.outage.as_ref());
        let cells = Vec::from_iter(rows.iter().map(|row| (self.cells)(row, is_wide, known)));
        let text = match output {
            Output::Name => rows.iter().map(|row| (self.name)(row) + "\n").collect(),
            _ if cells.is_empty() => list.below.clone(),
            _ => self.columns.table(cells, is_wide) + &list.below,
        };
        match text.split_once('\n') {
            Some((_, rows)) if settings.no_headers.value && output != Output::Name => {
                (rows.to_owned(), nothing)
            }
            _ => (text, nothing),
        }
    }
}

/// Calls `show` again and again. The argument of `show` is true when stdout is a terminal that understands control
/// codes, so that the new output can replace the previous one. The function returns when stdout has no reader any more.
/// A signal such as Ctrl-C ends the process.
pub(super) fn watch(mut show: impl FnMut(bool) -> Result<Exit, Exit>) -> Result<Exit, Exit> {
    let can_redraw = terminal::obeys_codes(false);
    show(can_redraw)?;
    while !HAS_NO_READER.load(Ordering::Relaxed) {
        clock::sleep(POLL_INTERVAL);
        // An error is ignored here, because `show` has already printed it to stderr, and the next read may succeed.
        let _ = show(can_redraw);
    }
    Ok(Exit::Done)
}

/// Prints only the lines of `text` that were not in the previous output, for `--watch` without a terminal. Two lines
/// count as equal when they differ only in the number of spaces between their columns.
fn print_new(text: &str, before: &mut HashSet<Vec<String>>) -> Exit {
    let cells = |line: &str| Vec::from_iter(line.split_whitespace().map(str::to_owned));
    let new = text.lines().filter(|line| !before.contains(&cells(line)));
    let exit = Printer::text(&new.map(|line| format!("{line}\n")).collect::<String>());
    *before = text.lines().map(cells).collect();
    exit
}

/// Returns the index of the column with this heading. The name can be in upper or lower case, with `-` in place of a
/// space.
fn column(columns: &Columns, name: &str) -> Result<usize, Exit> {
    let plain = |text: &str| text.to_lowercase().replace(' ', "-");
    let headings = columns.headings.iter().chain(columns.wide);
    let names: Vec<String> = headings.map(|heading| plain(heading)).collect();
    let place = names.iter().position(|known| *known == plain(name));
    place.ok_or_else(|| commands::unknown("column", name, &names))
}

/// Returns a sort key of a text, by which numbers in texts are compared by their value: `worker-2` comes before
/// `worker-10`, and `2/3` before `10/10`.
fn natural(text: &str) -> String {
    let runs = text.as_bytes().chunk_by(|a, b| a.is_ascii_digit() == b.is_ascii_digit());
    let padded = runs.map(|run| match (String::from_utf8_lossy(run), run[0].is_ascii_digit()) {
        (number, true) => format!("{number:0>20}"),
        (word, false) => word.into_owned(),
    });
    padded.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_compared_by_value() {
        for (less, more) in [
            ("worker-2", "worker-10"),
            ("2/3", "10/10"),
            ("-", "0/1"),
            ("10.0.0.9", "10.0.0.10"),
            ("9", "10"),
            ("a", "b"),
            ("lb11", "lb21"),
            ("", "a"),
            ("é2", "é10"),
        ] {
            assert!(natural(less) < natural(more), "{less} {more}");
        }
    }

    #[test]
    fn columns_are_found_by_their_headings() {
        let columns =
            Columns { headings: &["NAME", "LOAD BALANCER"], wide: &["PROVIDER ID"], yielding: &[] };
        for (name, place) in [
            ("name", Ok(0)),
            ("Load-Balancer", Ok(1)),
            ("LOAD BALANCER", Ok(1)),
            ("provider-id", Ok(2)),
            (".metadata.name", Err(Exit::Usage)),
            ("", Err(Exit::Usage)),
        ] {
            assert_eq!(column(&columns, name), place, "{name}");
        }
    }
}
