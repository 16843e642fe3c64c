//! Help in the width of the terminal. Each paragraph of its texts is a line, and so is each row of a table, whose right
//! side stands behind two spaces or more: beside the left side or below it.

use super::output::wrapped_in;

/// A right side that would have less room begins further to the left.
const NARROWEST: usize = 24;

/// A right side that would begin further to the right than that begins in this column, below its left side.
const FURTHEST: usize = 40;
const BELOW: usize = 31;

/// How far the second line of a left side is indented. What is further in than this is a text.
const INDENT: usize = 4;
const TEXT: usize = 8;

/// The text in lines of at most so many characters; `change` is made in each part before.
pub(super) fn reflowed(text: &str, columns: usize, change: impl Fn(&str) -> String) -> String {
    let (mut lines, mut last) = (String::new(), None);
    for line in text.lines() {
        let content = line.trim_start();
        let indent = length(line) - length(content);
        let row = content.split_once("  ").filter(|_| indent > 0);
        let (left, right) = row.unwrap_or((content, ""));
        let right = right.trim_start();
        let mut column = length(line) - length(right);
        // The right sides of a table begin in one column, however long a left side is.
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

/// `column`: where the right side begins, if there is one.
fn wrapped(indent: usize, left: &str, column: usize, right: &str, columns: usize) -> String {
    let spaces = " ".repeat(indent);
    let rest = match indent {
        1..TEXT => indent + INDENT,
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
    use super::*;

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
