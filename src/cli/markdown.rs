//! Markdown as plain text for a terminal: what the pages of `src/help` use of it, and no more.
//!
//! Headings, paragraphs, lists, fenced code, tables. A table that is too wide becomes a list of its rows.

use super::output::wrapped;
use super::table;

/// How far code is indented, and what follows the first line of a row.
const INDENT: usize = 4;

/// `text_columns`: the widest line of text. `columns`: the widest table.
pub(super) fn plain(markdown: &str, text_columns: usize, columns: usize) -> String {
    let mut page = Page {
        text: String::new(),
        block: None,
        text_columns,
        columns,
    };
    let mut lines = markdown.lines().peekable();
    while let Some(line) = lines.next() {
        let content = line.trim_start();
        let indent = line.len() - content.len();
        if content.starts_with("```") {
            page.end_block();
            let code = lines.by_ref().take_while(|line| line.trim() != "```");
            for line in code {
                let line = line.get(indent..).unwrap_or_default();
                page.line(indent + INDENT, line);
            }
        } else if content.starts_with('|') {
            page.end_block();
            let mut rows = vec![cells(content)];
            while let Some(row) = lines.next_if(|line| line.trim_start().starts_with('|')) {
                rows.push(cells(row.trim()));
            }
            page.table(&rows);
        } else if content.is_empty() {
            page.end_block();
            page.line(0, "");
        } else if content.starts_with("<!--") {
            page.end_block();
        } else if let Some(heading) = content.strip_prefix("### ") {
            page.end_block();
            page.line(0, &inline(heading));
        } else if let Some(heading) = content.trim_start_matches('#').strip_prefix(' ')
            && content.starts_with('#')
        {
            page.end_block();
            page.line(0, &inline(heading).to_uppercase());
        } else {
            page.text_line(indent, content);
        }
    }
    page.end_block();
    page.text
}

struct Page {
    text: String,
    /// A paragraph or an item of a list that continues.
    block: Option<Block>,
    text_columns: usize,
    columns: usize,
}

struct Block {
    /// Before its first line: an item's mark.
    mark: String,
    /// Of the lines after it.
    indent: usize,
    words: String,
}

impl Page {
    /// Two empty lines never follow each other.
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

    fn text_line(&mut self, indent: usize, content: &str) {
        let mark = mark(content);
        if mark.is_some() || self.block.is_none() {
            self.end_block();
            let mark = mark.unwrap_or_default();
            self.block = Some(Block {
                mark: " ".repeat(indent) + mark,
                indent: indent + mark.len(),
                words: content.get(mark.len()..).unwrap_or_default().to_owned(),
            });
        } else if let Some(block) = &mut self.block {
            block.words.push(' ');
            block.words.push_str(content);
        }
    }

    fn end_block(&mut self) {
        if let Some(block) = self.block.take() {
            let text = inline(&block.words);
            self.paragraph(&block.mark, block.indent, &text);
        }
    }

    /// `mark` stands before the first line, `indent` spaces before the others.
    fn paragraph(&mut self, mark: &str, indent: usize, text: &str) {
        let width = self.text_columns.saturating_sub(indent);
        for (place, line) in wrapped(&joined(text), width).iter().enumerate() {
            let line = line.replace(JOINT, " ");
            match place {
                0 => self.line(0, &format!("{mark}{line}")),
                _ => self.line(indent, &line),
            }
        }
    }

    /// The second row is the line between heading and body.
    fn table(&mut self, rows: &[Vec<String>]) {
        let Some((headings, rest)) = rows.split_first() else {
            return;
        };
        let headings: Vec<String> = headings.iter().map(|name| without_marks(name)).collect();
        let body: Vec<Vec<String>> = rest
            .iter()
            .skip(1)
            .map(|row| (0..headings.len()).map(|at| cell(row, at)).collect())
            .collect();
        let names: Vec<String> = headings.iter().map(|name| name.to_uppercase()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let text = table::render(&names, &body);
        let is_narrow = text
            .lines()
            .all(|line| line.chars().count() <= self.columns);
        if is_narrow {
            let has_headings = names.iter().any(|name| !name.is_empty());
            self.text.extend(
                text.lines()
                    .skip(usize::from(!has_headings))
                    .flat_map(|line| [line, "\n"]),
            );
            return;
        }
        for row in &body {
            self.row(&headings, row);
        }
    }

    /// `name: text` of two columns; of more: the name, then each cell with its heading. A column `meaning` needs none.
    fn row(&mut self, headings: &[String], row: &[String]) {
        let (Some(name), Some(last)) = (row.first(), row.last()) else {
            return;
        };
        let name = without_marks(name);
        let between = row.iter().zip(headings).skip(1);
        let between = between.take(row.len().saturating_sub(2));
        let between: Vec<String> = between
            .filter(|(cell, _)| !cell.is_empty())
            .map(|(cell, heading)| format!("{heading}: {cell}"))
            .collect();
        if row.len() <= 2 {
            self.paragraph("", INDENT, &format!("{name}: {last}"));
            return;
        }
        self.line(0, &name);
        if !between.is_empty() {
            self.paragraph(&" ".repeat(INDENT), INDENT, &between.join("; "));
        }
        let last = match headings.last().map(String::as_str) {
            None | Some("meaning") => last.clone(),
            Some(heading) => format!("{heading}: {last}"),
        };
        self.paragraph(&" ".repeat(INDENT), INDENT, &last);
    }
}

/// `- ` or `1. `, when the line begins an item of a list.
fn mark(content: &str) -> Option<&str> {
    let digits = content.chars().take_while(char::is_ascii_digit).count();
    let length = match digits {
        0 if content.starts_with("- ") => 2,
        0 => return None,
        digits if content.get(digits..)?.starts_with(". ") => digits + 2,
        _ => return None,
    };
    content.get(..length)
}

/// Of a line `| a | b |`; a bar behind a backslash is text.
fn cells(line: &str) -> Vec<String> {
    const BAR: &str = "\u{0}";
    let line = line.replace("\\|", BAR);
    let line = line.trim().trim_start_matches('|').trim_end_matches('|');
    let cells = line.split('|').map(|cell| inline(cell.trim()));
    cells.map(|cell| cell.replace(BAR, "|")).collect()
}

/// One that is code and nothing else needs no marks.
fn cell(row: &[String], at: usize) -> String {
    let text = row.get(at).cloned().unwrap_or_default();
    let inner = text
        .strip_prefix('`')
        .and_then(|rest| rest.strip_suffix('`'));
    match inner {
        Some(inner) if !inner.contains('`') => inner.to_owned(),
        _ => text,
    }
}

/// Within code, where a line is not broken.
const JOINT: char = '\u{1}';

/// Longest code that stays on one line, in bytes.
const UNBROKEN: usize = 50;

/// Short code has no spaces at which it could be broken.
fn joined(text: &str) -> String {
    let part = |(place, part): (usize, &str)| match place % 2 == 1 && part.len() <= UNBROKEN {
        true => part.replace(' ', &JOINT.to_string()),
        false => part.to_owned(),
    };
    let parts: Vec<String> = text.split('`').enumerate().map(part).collect();
    parts.join("`")
}

fn without_marks(text: &str) -> String {
    text.replace('`', "")
}

/// Without emphasis; of a link its text, and its address when it is one of the web.
fn inline(text: &str) -> String {
    let mut plain = text.replace("**", "");
    while let Some((before, text, address, after)) = link(&plain) {
        plain = match address.contains("://") {
            true => format!("{before}{text} ({address}){after}"),
            false => format!("{before}{text}{after}"),
        };
    }
    plain
}

/// The first `[text](address)`.
fn link(text: &str) -> Option<(&str, &str, &str, &str)> {
    let (head, tail) = text.split_once("](")?;
    let (before, text) = head.rsplit_once('[')?;
    let (address, after) = tail.split_once(')')?;
    Some((before, text, address, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_becomes_plain_text() {
        let page = "\
# Nodes

A **node** has a server, see
[the list](https://example.com) or [here](#x).

- one item that is too long for one line
- `two`
  lines

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

A node has a server, see the
list (https://example.com) or
here.

- one item that is too long
  for one line
- `two` lines

1. first:

       ccm node list
         more

A  B
x  y or `z`

long
    flag: a|b
    What it means, in more
    words than fit.
short
    No flag.
";
        assert_eq!(plain(page, 30, 30), text);
    }
}
