//! Checks of the tables in the program's help pages.

use std::path::Path;

/// Asserts that the help page `src/help/PAGE.md` contains exactly this table between the markers `<!-- SUBJECT:begin
/// -->` and `<!-- SUBJECT:end -->`. When the environment variable `CCM_UPDATE_HELP` is set, the table is written into
/// the page, and nothing is asserted.
#[track_caller]
pub fn has_table(page: &str, subject: &str, table: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/help");
    let path = folder.join(page).with_extension("md");
    let text = std::fs::read_to_string(&path).expect("there is a page");
    let wanted = with_table(&text, subject, table).expect("the page has both markers once");
    if std::env::var_os("CCM_UPDATE_HELP").is_some_and(|value| !value.is_empty()) {
        std::fs::write(&path, &wanted).expect("the page can be written");
    } else {
        assert!(
            text == wanted,
            "the table of {subject} in src/help/{page}.md is old: CCM_UPDATE_HELP=1"
        );
    }
}

/// Replaces the text between the markers `<!-- SUBJECT:begin -->` and `<!-- SUBJECT:end -->` by this table, and returns
/// the whole page. Returns `None` when a marker is missing or occurs twice, or when the markers are in the wrong order.
pub fn with_table(page: &str, subject: &str, table: &str) -> Option<String> {
    let begin = format!("<!-- {subject}:begin -->");
    let end = format!("<!-- {subject}:end -->");
    let (before, rest) = page.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    if after.contains(&begin) || after.contains(&end) {
        return None;
    }
    Some(format!("{before}{begin}\n{table}{end}{after}"))
}
