//! Help in the width of the terminal. Its texts are written for 80 columns: paragraphs, and tables whose right sides begin
//! in one column, beside the left side or below it.

use super::output::wrapped_in;

/// A right side that would have less room begins further to the left.
const NARROWEST: usize = 24;

/// How far the second line of what is no paragraph is indented, and such a right side.
const INDENT: usize = 4;

/// A paragraph, a row of a table, or an empty line.
struct Entry {
    indent: usize,
    /// The left side; all of what is no table.
    left: String,
    /// Where the right side begins; 0: there is none.
    column: usize,
    right: String,
}

/// The text in lines of at most so many characters; `change` is made in each part before.
pub(super) fn reflowed(text: &str, columns: usize, change: impl Fn(&str) -> String) -> String {
    let mut entries: Vec<Entry> = Vec::new();
    for line in text.lines() {
        let next = Entry::new(line);
        let last = entries.last_mut();
        match last.and_then(|last| last.continued_by(&next)) {
            Some(text) => *text += &format!(" {}", next.left),
            None => entries.push(next),
        }
    }
    let changed = entries.into_iter().map(|entry| Entry {
        left: change(&entry.left),
        right: change(entry.right.trim_start()),
        ..entry
    });
    changed.map(|entry| entry.text(columns)).collect()
}

fn length(text: &str) -> usize {
    text.chars().count()
}

impl Entry {
    fn new(line: &str) -> Entry {
        let content = line.trim_start();
        let indent = length(line) - length(content);
        let (left, column, right) = match content.split_once("  ").filter(|_| indent > 0) {
            Some((left, right)) => (left, length(line) - length(right.trim_start()), right),
            None => (content, 0, ""),
        };
        Entry {
            indent,
            left: left.to_owned(),
            column,
            right: right.trim_start().to_owned(),
        }
    }

    /// The side that a line continues: it begins in the same column.
    fn continued_by(&mut self, next: &Entry) -> Option<&mut String> {
        if self.left.is_empty() || next.left.is_empty() || next.column > 0 {
            return None;
        }
        if self.column == 0 && self.indent > 0 && next.indent > self.indent {
            self.column = next.indent;
        }
        match self.column {
            0 => (self.indent + next.indent == 0).then_some(&mut self.left),
            column => (next.indent == column).then_some(&mut self.right),
        }
    }

    fn text(&self, columns: usize) -> String {
        let spaces = " ".repeat(self.indent);
        let left = format!("{spaces}{}", self.left);
        let line = format!("{left:<width$}{}", self.right, width = self.column);
        let is_beside = |column: usize| length(&left) + 2 <= column;
        if (self.column == 0 || is_beside(self.column)) && length(&line) <= columns {
            return line + "\n";
        }
        let further = self.indent + INDENT;
        let column = self
            .column
            .min(columns.saturating_sub(NARROWEST))
            .max(further);
        if self.column > 0 && is_beside(column) {
            return wrapped_in(columns, &format!("{left:<column$}"), column, &self.right);
        }
        let rest = if self.indent > 0 { further } else { 0 };
        let left = wrapped_in(columns, &spaces, rest, &self.left);
        match self.right.as_str() {
            "" => left,
            right => left + &wrapped_in(columns, &" ".repeat(column), column, right),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
ccm x – a title that is longer
than a line.

Usage:
  ccm x [--a]    does one thing,
                 then another
  ccm x --b NAME
                 does it below
  ccm y

  STATE  ok
         one    the first
         two    the second,
                which is long

Exit codes:
  0  done; 1  not
";

    #[test]
    fn what_begins_in_one_column_is_one_text() {
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
  0  done; 1  not
";
        let same = |text: &str| text.to_owned();
        assert_eq!(reflowed(TEXT, 60, same), wide);
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
  0  done; 1  not
";
        assert_eq!(reflowed(TEXT, 40, longer), narrow);
    }
}
