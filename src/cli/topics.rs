//! `ccm help TOPIC` prints a page of `src/help` as plain text. The pages are Markdown with headings, fenced code,
//! tables, lists and paragraphs, but no links. Each paragraph and each list item must be a single line. A table is
//! printed as a list of its rows.
//!
//! `--help` is printed in the width of the terminal. A line in a text of `--help` is either a paragraph or a row with a
//! left and a right side, which are separated by two or more spaces. The right side is printed beside the left side, or
//! below it when there is too little space.
//!
//! A new page needs a file in `src/help`, and a row of `TOPICS`. The tables of settings, annotations, metrics and
//! reasons are generated. `CCM_UPDATE_HELP=1` writes them, see `tests/README.md`.

use super::output::wrapped_in;
use super::terminal::help_columns;

/// A help page. Its name is the word that is typed after `ccm help`.
pub(super) struct Topic {
    pub(super) name: &'static str,
    /// The description of the page in the list that `ccm help` prints.
    pub(super) about: &'static str,
    /// The text of the page in Markdown.
    page: &'static str,
}

macro_rules! topics {
    ($($name:literal: $about:literal,)*) => {
        /// The help pages, in the order in which `ccm help` lists them.
        pub(super) const TOPICS: &[Topic] = &[$(Topic {
            name: $name,
            about: $about,
            page: include_str!(concat!("../help/", $name, ".md")),
        },)*];
    };
}

topics! {
    "troubleshooting": "symptom → command; ccm doctor; every event and its fix",
    "services": "load balancers: creation, adoption, deletion, recipes",
    "annotations": "every annotation of a Service",
    "settings": "every flag and environment variable",
    "nodes": "matching to servers, addresses, labels, deletion",
    "routes": "routes of the private Network to pods, and CNIs",
    "network": "reaching both APIs: kubeconfig, proxies, TLS, Network",
    "shell": "commands that a person runs, and their settings",
    "migrate": "move from hcloud-cloud-controller-manager, and back",
    "scripting": "exit codes, JSON and YAML, cron",
    "metrics": "health, metrics, alerts, logs",
    "safety": "what ccm never does; Lease, shutdown, secrets",
}

pub(super) fn names() -> impl Iterator<Item = &'static str> {
    TOPICS.iter().map(|topic| topic.name)
}

/// Returns the help page as plain text, or `None` when no page has this name.
pub(super) fn page(name: &str) -> Option<String> {
    let topic = TOPICS.iter().find(|topic| topic.name == name)?;
    Some(plain(topic.page, help_columns()))
}

/// A row of a table in a help page.
pub(super) struct TableRow {
    pub(super) topic: &'static str,
    pub(super) headings: Vec<String>,
    /// The text of each cell. Text in backticks keeps the backticks.
    pub(super) cells: Vec<String>,
}

impl TableRow {
    /// Returns the names in the given columns. When a cell has texts in backticks, each of these texts is a name.
    /// Otherwise the whole cell is a name. Leading dashes, values such as `=VALUE`, and `[.PORT]` are removed from a
    /// name.
    pub(super) fn names(&self, columns: &[usize]) -> Vec<String> {
        let names = columns.iter().filter_map(|column| self.cells.get(*column)).flat_map(|cell| {
            if cell.contains('`') {
                cell.split('`').skip(1).step_by(2).collect()
            } else {
                vec![cell.as_str()]
            }
        });
        let names =
            names.filter_map(|name| name.trim_start_matches('-').split([' ', '=', '[']).next());
        names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
    }

    /// Returns the row as plain text, with the name on the first line and the other cells below it.
    pub(super) fn text(&self) -> String {
        let mut page = TopicPage { text: String::new(), columns: help_columns() };
        match self.cells.as_slice() {
            [name, text] => {
                page.line(0, &name.replace('`', ""));
                let indent = " ".repeat(INDENT);
                page.paragraph(&indent, INDENT, &text.replace('`', ""));
            }
            cells => page.row(&self.headings, cells),
        }
        page.text
    }
}

/// Returns the rows of all tables in all help pages, in the order of the pages.
pub(super) fn rows() -> Vec<TableRow> {
    let mut rows = Vec::new();
    for topic in TOPICS {
        let mut headings = Vec::new();
        for line in topic.page.lines() {
            match line.starts_with('|') {
                false => headings.clear(),
                true if headings.is_empty() => headings = cells(line),
                true if line.starts_with("|---") => {}
                true => rows.push(TableRow {
                    topic: topic.name,
                    headings: headings.clone(),
                    cells: cells(line),
                }),
            }
        }
    }
    rows
}

/// Returns the list of help pages that `ccm help` prints, with a line for each page.
pub(super) fn list() -> String {
    let line = |topic: &Topic| format!("  {:<17}{}\n", topic.name, topic.about);
    TOPICS.iter().map(line).collect()
}

/// How many spaces stand before a line of code, and before the second and each further line of a table's row.
const INDENT: usize = 4;

/// Returns a help page in Markdown as plain text. The lines have at most `columns` characters.
fn plain(markdown: &str, columns: usize) -> String {
    let mut page = TopicPage { text: String::new(), columns };
    let mut lines = markdown.lines().peekable();
    while let Some(line) = lines.next() {
        let content = line.trim_start();
        let indent = line.len() - content.len();
        if content.starts_with("```") {
            let code = lines.by_ref().take_while(|line| line.trim() != "```");
            for line in code {
                let line = line.get(indent..).unwrap_or_default();
                page.line(indent + INDENT, line);
            }
        } else if content.starts_with('|') {
            let headings = cells(content);
            // The second line of a Markdown table only separates the headings from the rows, so it is skipped.
            lines.next();
            while let Some(row) = lines.next_if(|line| line.starts_with('|')) {
                page.row(&headings, &cells(row));
            }
        } else if content.starts_with('#') {
            let heading = content.trim_start_matches(['#', ' ']);
            page.line(0, &heading.to_uppercase());
        } else if !content.starts_with("<!--") {
            let (mark, text) = content.split_at(mark(content));
            let mark = " ".repeat(indent) + mark;
            page.paragraph(&mark, mark.len(), &text.replace("**", ""));
        }
    }
    page.text
}

struct TopicPage {
    text: String,
    columns: usize,
}

impl TopicPage {
    /// Adds a line to the text. An empty line is left out when the line before it is empty, too.
    fn line(&mut self, indent: usize, line: &str) {
        if line.is_empty() && (self.text.is_empty() || self.text.ends_with("\n\n")) {
            return;
        }
        if !line.is_empty() {
            self.text.push_str(&" ".repeat(indent));
        }
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// Adds a paragraph to the text. `mark` stands before the first line, and `indent` spaces stand before each other
    /// line.
    fn paragraph(&mut self, mark: &str, indent: usize, text: &str) {
        for line in wrapped_in(self.columns, mark, indent, text).lines() {
            self.line(0, line);
        }
    }

    /// Adds a row of a table to the text. A row of two cells becomes `name: text`. The first cell of a longer row
    /// becomes a line of its own. Each of the other cells becomes a line with the heading of its column and its text.
    /// The heading `meaning` is not printed.
    fn row(&mut self, headings: &[String], row: &[String]) {
        let row: Vec<String> = row.iter().map(|cell| cell.replace('`', "")).collect();
        let Some((name, cells)) = row.split_first() else {
            return;
        };
        if let [text] = cells {
            return self.paragraph("", INDENT, &format!("{name}: {text}"));
        }
        self.line(0, name);
        for (heading, cell) in headings.iter().skip(1).zip(cells) {
            let text = match heading.as_str() {
                _ if cell.is_empty() => continue,
                "meaning" => cell.clone(),
                heading => format!("{heading}: {cell}"),
            };
            self.paragraph(&" ".repeat(INDENT), INDENT, &text);
        }
    }
}

/// Returns the length of the mark `- ` or `1. ` when the line is an item of a list, and 0 for any other line.
fn mark(content: &str) -> usize {
    let digits = content.chars().take_while(char::is_ascii_digit).count();
    let rest = content.get(digits..).unwrap_or_default();
    match digits {
        0 if rest.starts_with("- ") => 2,
        1.. if rest.starts_with(". ") => digits + 2,
        _ => 0,
    }
}

/// Returns the cells of a table row such as `| a | b |`. The characters `\|` stand for a bar in the text of a cell.
fn cells(line: &str) -> Vec<String> {
    const BAR: &str = "\u{0}";
    let line = line.replace("\\|", BAR);
    line.trim().trim_matches('|').split('|').map(|cell| cell.trim().replace(BAR, "|")).collect()
}

/// A row in a text of `--help` has a left side, e.g. a flag, and a right side, e.g. its description. The right side is
/// never narrower than this. On a narrow terminal, it begins further to the left.
const NARROWEST: usize = 24;

/// A row in a text of `--help` has a left side, e.g. a flag, and a right side, e.g. its description. In the source of
/// the text, the right side can begin in any column. When it begins further to the right than this column, it is
/// printed on the next line, from the column `BELOW` on.
const FURTHEST: usize = 40;
const BELOW: usize = 31;

/// A row in a text of `--help` has a left side, e.g. a flag. When the left side is longer than one line, its further
/// lines are indented by this many columns more than its first line.
const ROW_INDENT: usize = 4;
const TEXT: usize = 8;

/// Returns a text of `--help`, wrapped into lines of at most `columns` characters. Each line of the given text is
/// either a paragraph, or a row with two parts, e.g. a flag and its description. `change` is applied to a paragraph or
/// part before it is wrapped, e.g. to replace `ccm` by `kubectl ccm`.
pub(super) fn reflowed(text: &str, columns: usize, change: impl Fn(&str) -> String) -> String {
    let (mut lines, mut last) = (String::new(), None);
    for line in text.lines() {
        let content = line.trim_start();
        let indent = length(line) - length(content);
        let row = content.split_once("  ").filter(|_| indent > 0);
        let (left, right) = row.unwrap_or((content, ""));
        let right = right.trim_start();
        let mut column = length(line) - length(right);
        // A row of the help text has a left side, e.g. a flag, and a right side, e.g. its description. `column` is the
        // column where the right side begins in the source text. When the row above has the same indentation, the right
        // side begins no further to the right than in that row. Otherwise, a right side that begins too far to the
        // right is printed on the next line.
        if let Some((_, above)) = last.filter(|(of, _)| *of == indent) {
            column = column.min(above);
        } else if column > FURTHEST {
            column = BELOW;
        }
        if !right.is_empty() || content.is_empty() {
            last = Some((indent, column)).filter(|_| !content.is_empty());
        }
        lines += &wrapped(indent, &change(left), column, &change(right), columns);
    }
    lines
}

fn length(text: &str) -> usize {
    text.chars().count()
}

/// Returns a row of a text of `--help`, e.g. a flag and its description, in lines of at most `columns` characters. The
/// right side begins in the column `column`, or is empty.
fn wrapped(indent: usize, left: &str, column: usize, right: &str, columns: usize) -> String {
    let spaces = " ".repeat(indent);
    let rest = match indent {
        1..TEXT => indent + ROW_INDENT,
        indent => indent,
    };
    let column = column.min(columns.saturating_sub(NARROWEST).max(rest));
    let beside = format!("{spaces}{left}  ");
    if !right.is_empty() && length(&beside) <= column {
        return wrapped_in(columns, &format!("{beside:<column$}"), column, right);
    }
    let left = wrapped_in(columns, &spaces, rest, left);
    match right {
        "" => left,
        right => left + &wrapped_in(columns, &" ".repeat(column), column, right),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const README: &str = include_str!("../../README.md");

    fn pages() -> impl Iterator<Item = (&'static str, &'static str)> {
        TOPICS.iter().map(|topic| (topic.name, topic.page)).chain([("README", README)])
    }

    #[test]
    fn a_page_fits_its_columns() {
        for topic in TOPICS {
            let text = plain(topic.page, 80);
            for line in text.lines() {
                let is_narrow = line.chars().count() <= 80;
                assert!(is_narrow, "{}: {line}", topic.name);
            }
            assert!(!text.contains("|---") && !text.contains("```") && !text.contains("<!--"));
            assert!(!text.contains("]("), "{}: no links", topic.name);
        }
    }

    /// The help pages and the README must not contain the words in `riddles`, because many readers do not understand
    /// these words at once.
    #[test]
    fn pages_have_plain_words() {
        let riddles = ["told", "tells", "nobody", "somebody", "mend", "mended", "goes"];
        for (name, page) in pages() {
            let words = page.split(|c: char| !c.is_alphanumeric());
            for word in words.map(str::to_lowercase) {
                assert!(!riddles.contains(&word.as_str()), "{name}: {word}");
            }
        }
        assert!(README.lines().count() <= 300);
    }

    #[test]
    fn markdown_becomes_plain_text() {
        let page = "\
# Nodes

A **node** has a server, and more words than fit.

- one item that is too long for one line
- `two` lines

1. first:

   ```sh
   ccm node list
     more
   ```

| a | b |
|---|---|
| `x` | y or `z` |

<!-- begin -->
| name | flag | meaning |
|---|---|---|
| `long` | `a\\|b` | What it means, in more words than fit. |
| short |  | No flag. |
";
        let text = "\
NODES

A node has a server, and more
words than fit.

- one item that is too long
  for one line
- `two` lines

1. first:

       ccm node list
         more

x: y or z

long
    flag: a|b
    What it means, in more
    words than fit.
short
    No flag.
";
        assert_eq!(plain(page, 30), text);
    }

    const PAGE: &str = "\
ccm x – a title that is longer than a line.

Usage:
  ccm x [--a]    does one thing, then another
  ccm x --b NAME  does it below
  ccm y

  STATE  ok
         one    the first
         two    the second, which is long

Exit codes:
  0  done; 1 not
";

    #[test]
    fn a_right_side_begins_in_one_column() {
        let wide = "\
ccm x – a title that is longer than a line.

Usage:
  ccm x [--a]    does one thing, then another
  ccm x --b NAME
                 does it below
  ccm y

  STATE  ok
         one    the first
         two    the second, which is long

Exit codes:
  0  done; 1 not
";
        let same = |text: &str| text.to_owned();
        assert_eq!(reflowed(PAGE, 60, same), wide);
        let longer = |text: &str| text.replace("ccm ", "kubectl ccm ");
        let narrow = "\
kubectl ccm x – a title that is longer
than a line.

Usage:
  kubectl ccm x [--a]
                does one thing, then
                another
  kubectl ccm x --b NAME
                does it below
  kubectl ccm y

  STATE  ok
         one    the first
         two    the second, which is
                long

Exit codes:
  0  done; 1 not
";
        assert_eq!(reflowed(PAGE, 40, longer), narrow);
    }
}
