//! Tables for people. Their columns are aligned, and are shortened to fit the width of the terminal.

use super::terminal::columns;
use crate::http::without_known_secrets;
use crate::provider::process::is_terminal;
use crate::text::one_line;

/// The number of spaces between two columns.
const GAP: usize = 2;

pub(super) struct Columns {
    pub(super) headings: &'static [&'static str],
    /// The headings of the additional columns that `-o wide` shows.
    pub(super) wide: &'static [&'static str],
    pub(super) yielding: &'static [Yielding],
}

/// A column that can be shortened when a table is too wide: the index of the column, and its smallest width. A table
/// shortens its columns in the order in which it lists them.
pub(super) type Yielding = (usize, usize);

impl Columns {
    /// Returns the rows as a table. Each row must also have the cells for `-o wide`. On a terminal some columns are
    /// shortened until the table fits. Nothing is shortened with `-o wide`, in a pipe or in a file, because somebody
    /// may search the output for a whole name.
    pub(super) fn table(&self, mut rows: Vec<Vec<String>>, is_wide: bool) -> String {
        if is_wide {
            return render(&[self.headings, self.wide].concat(), &rows);
        }
        rows.iter_mut().for_each(|row| row.truncate(self.headings.len()));
        let columns = if is_terminal(false) { columns() } else { usize::MAX };
        render_cut(self.headings, &rows, self.yielding, columns)
    }
}

/// Returns a table in which no column is shortened.
pub(super) fn render(headings: &[&str], rows: &[Vec<String>]) -> String {
    render_cut(headings, rows, &[], usize::MAX)
}

fn render_cut(
    headings: &[&str],
    rows: &[Vec<String>],
    yielding: &[Yielding],
    columns: usize,
) -> String {
    let headings: Vec<String> = headings.iter().map(|heading| (*heading).to_owned()).collect();
    let rows = || std::iter::once(&headings).chain(rows);
    let widest = |column: usize| rows().map(|row| length(&row[column])).max().unwrap_or(0);
    let mut widths: Vec<usize> = (0..headings.len()).map(widest).collect();
    for (column, least) in yielding {
        let excess = total(&widths).saturating_sub(columns);
        widths[*column] = widths[*column].min((widths[*column].saturating_sub(excess)).max(*least));
    }
    let mut text = String::new();
    for row in rows() {
        let cells = row.iter().zip(&widths).map(|(cell, width)| {
            let cell = cut(cell, *width);
            let padding = width.saturating_sub(length(&cell));
            cell + &" ".repeat(padding)
        });
        text.push_str(cells.collect::<Vec<_>>().join(&" ".repeat(GAP)).trim_end());
        text.push('\n');
    }
    text
}

fn total(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)
}

/// Shortens a text that is too long. The middle is replaced by `…`, because names often begin alike and differ at their
/// ends.
fn cut(text: &str, width: usize) -> String {
    let text = without_known_secrets(text);
    let text = &*one_line(&text);
    let length = length(text);
    if length <= width {
        return text.to_owned();
    }
    let kept = width.saturating_sub(1);
    let end = kept / 2;
    let begin = text.chars().take(kept - end);
    begin.chain(std::iter::once('…')).chain(text.chars().skip(length - end)).collect()
}

/// Returns the number of characters that a text has when it is printed as one line.
fn length(text: &str) -> usize {
    one_line(text).chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two different names must still look different after they were shortened, even when they begin alike or
    /// end alike.
    #[test]
    fn rows_that_differ_look_different() {
        let row = |name: &str| vec![name.to_owned(), "x".repeat(65)];
        for (names, shown) in [
            (
                ["kubernetes-default-web", "kubernetes-default-api"],
                ["kuberne…lt-web", "kuberne…lt-api"],
            ),
            (
                ["kubernetes-default-web", "other-kubernetes-web"],
                ["kuberne…lt-web", "other-k…es-web"],
            ),
        ] {
            let text = render_cut(&["NAME", "DIFF"], &names.map(row), &[(0, 14)], 80);
            let lines = text.lines().skip(1);
            let first: Vec<&str> = lines.filter_map(|line| line.split(' ').next()).collect();
            assert_eq!(first, shown);
        }
    }

    #[test]
    fn a_table_fits_its_width() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows = [
            row(["worker-1", "Ready", "-"]),
            row([&"long".repeat(30), "NotReady", &"x".repeat(50)]),
        ];
        let headings = ["NAME", "STATUS", "DIFF"];
        let text = render_cut(&headings, &rows, &[(2, 10), (0, 20)], 80);
        assert!(text.lines().all(|line| length(line) <= 80), "{text}");
        assert!(
            text.starts_with("NAME") && text.lines().count() == 3 && text.contains('…'),
            "{text}"
        );
        let wide = render(&headings, &rows);
        assert!(wide.contains(&"long".repeat(30)));
    }
}
