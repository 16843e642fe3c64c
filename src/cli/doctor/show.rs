//! The report: for people in 80 columns, problems first; for programs as JSON and YAML.

use super::check::{Check, Status, in_order};
use crate::cli::json::Document;
use crate::cli::output::{one_line, wrapped};
use crate::cli::table::COLUMNS;

/// Where texts begin: after the status and the longest name of a check.
const INDENT: usize = 22;

pub(super) fn document(checks: &[Check]) -> Document<&Check> {
    Document::new("Doctor", in_order(checks))
}

/// `is_wide`: what was checked also where all is well.
pub(super) fn table(checks: &[Check], is_wide: bool) -> String {
    let mut text = String::new();
    for check in in_order(checks) {
        let head = format!("{:<8}{}", word(check.status), check.name);
        paragraph(&mut text, &head, &check.message);
        if is_wide || matches!(check.status, Status::Fail | Status::Warn) {
            paragraph(&mut text, "", &format!("Checked: {}.", check.looked_at));
        }
        if !check.remedy.is_empty() {
            paragraph(&mut text, "", &format!("Fix: {}.", check.remedy));
        }
    }
    let count = |status| checks.iter().filter(|check| check.status == status).count();
    text + &format!(
        "{} failed, {} warnings, {} ok, {} skipped\n",
        count(Status::Fail),
        count(Status::Warn),
        count(Status::Ok),
        count(Status::Skipped)
    )
}

fn word(status: Status) -> &'static str {
    match status {
        Status::Fail => "FAIL",
        Status::Warn => "warn",
        Status::Skipped => "skipped",
        Status::Ok => "ok",
    }
}

/// Longer words than a line, e.g. paths and tokens of an error, are cut into lines as well.
fn paragraph(text: &mut String, head: &str, body: &str) {
    let width = COLUMNS - INDENT;
    let mut head = head;
    for line in wrapped(&one_line(body), width) {
        let letters: Vec<char> = line.chars().collect();
        for piece in letters.chunks(width) {
            let piece: String = piece.iter().collect();
            text.push_str(&format!("{head:<INDENT$}{piece}\n"));
            head = "";
        }
    }
}
