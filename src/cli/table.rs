//! Tables for people: aligned columns that fit a width.

/// Widest line of a table, in characters.
pub(super) const COLUMNS: usize = 80;

/// Between two columns.
const GAP: usize = 3;

/// A column that is cut keeps at least this much.
const NARROWEST: usize = 8;

/// Lines of cells under a line of headings. With a `width`, the widest cells are cut until it fits.
pub(super) fn render(headings: &[&str], rows: &[Vec<String>], width: Option<usize>) -> String {
    let all = || {
        std::iter::once(headings.iter().map(|h| (*h).to_owned()).collect())
            .chain(rows.iter().cloned())
    };
    let mut widths: Vec<usize> = (0..headings.len())
        .map(|column| {
            all()
                .map(|row: Vec<String>| length(&row[column]))
                .max()
                .unwrap_or(0)
        })
        .collect();
    if let Some(width) = width {
        shrink(&mut widths, headings, width);
    }
    let mut text = String::new();
    for row in all() {
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

/// Takes from the widest column, character by character, until the table fits or nothing can give.
fn shrink(widths: &mut [usize], headings: &[&str], fits: usize) {
    let gaps = GAP * widths.len().saturating_sub(1);
    while widths.iter().sum::<usize>() + gaps > fits {
        let narrowest = |column: usize| NARROWEST.max(length(headings[column]));
        let candidates = (0..widths.len()).filter(|column| widths[*column] > narrowest(*column));
        match candidates.max_by_key(|column| widths[*column]) {
            Some(column) => widths[column] -= 1,
            None => return,
        }
    }
}

fn cut(text: &str, width: usize) -> String {
    let text = &*super::output::one_line(text);
    if length(text) <= width {
        return text.to_owned();
    }
    text.chars()
        .take(width.saturating_sub(1))
        .chain(std::iter::once('…'))
        .collect()
}

/// As it is printed, in characters.
fn length(text: &str) -> usize {
    super::output::one_line(text).chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_fits_its_width() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows = [
            row(["worker-1", "Ready", "-"]),
            row([&"long".repeat(30), "NotReady", &"x".repeat(50)]),
        ];
        let text = render(&["NAME", "STATUS", "DIFF"], &rows, Some(COLUMNS));
        assert!(text.lines().all(|line| length(line) <= COLUMNS), "{text}");
        assert!(
            text.starts_with("NAME") && text.lines().count() == 3 && text.contains('…'),
            "{text}"
        );
        let wide = render(&["NAME", "STATUS", "DIFF"], &rows, None);
        assert!(wide.contains(&"long".repeat(30)));
    }
}
