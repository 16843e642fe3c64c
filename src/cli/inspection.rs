//! The parts of `inspect`: one object beside its counterpart, for people.

use super::output::{line, one_line, wrapped};
use super::table::COLUMNS;
use crate::provider::{Finding, Severity, Source};
use std::fmt::Display;

/// A heading and what stands below it; `empty` where that is nothing.
pub(super) fn section(heading: &str, content: &str, empty: &str) -> String {
    match content {
        "" => format!("{heading}\n  {empty}\n"),
        content => format!("{heading}\n{content}"),
    }
}

/// A text within the width of a table, indented.
pub(super) fn paragraph(text: &str, first: &str, next: &str) -> String {
    let lines = wrapped(&one_line(text), COLUMNS - next.len());
    format!("{first}{}\n", lines.join(&format!("\n{next}")))
}

pub(super) fn finding(finding: &Finding) -> String {
    let mark = match finding.severity {
        Severity::Info => "·",
        Severity::Warning => "!",
    };
    let reason = finding.reason.name();
    format!(
        "  {mark} {reason}\n{}",
        paragraph(&finding.message, "    ", "    ")
    )
}

/// A value that is as wanted (=), differs (~) or, where `is_left`, is left as it is (·); and what asks for it.
pub(super) fn field(
    name: impl Display,
    have: &Option<String>,
    want: &Option<String>,
    is_left: bool,
    source: &Source,
) -> String {
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".into());
    let (have_text, want_text) = (text(have), text(want));
    let value = match have == want {
        _ if is_left => format!("· {name}: {have_text}"),
        true => format!("= {name}: {want_text}"),
        false => format!("~ {name}: {have_text} → {want_text}"),
    };
    line(value) + &line(format_args!("      {source}"))
}

/// Rows of a table with a heading before the first: lists of both sides.
pub(super) fn rows(heading: &str, ours: &[String], cloud: &[String]) -> Vec<Vec<String>> {
    let cell = |side: &[String], row: usize| side.get(row).cloned().unwrap_or_default();
    let rows = 0..ours.len().max(cloud.len());
    let rows = rows.map(|row| {
        let heading = if row == 0 { heading } else { "" };
        vec![heading.to_owned(), cell(ours, row), cell(cloud, row)]
    });
    rows.collect()
}

/// What the next sync would do; `empty`: where that is nothing.
pub(super) fn would_do(lines: &[String], empty: &str) -> String {
    let lines = lines.iter().map(|line| paragraph(line, "  ", "      "));
    section("\nSYNC WOULD", &lines.collect::<String>(), empty)
}
