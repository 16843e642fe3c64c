//! The table as `src/help/settings.md` shows it, between two markers.

use super::setting::{Setting, Variable};
use super::table::TABLE;

pub const BEGIN: &str = "<!-- settings:begin -->";
pub const END: &str = "<!-- settings:end -->";

/// The table of all settings that are not hidden.
pub fn table() -> String {
    let mut text =
        String::from("| setting | flag | variable | default | meaning |\n|---|---|---|---|---|\n");
    for setting in TABLE.iter().filter(|setting| !setting.hidden) {
        let cells = [
            setting.name.to_owned(),
            flags(setting),
            variables(setting),
            setting.default.map(code).unwrap_or_default(),
            escaped(setting.help),
        ];
        text.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    text
}

/// The document with the table as it is now between the markers; `None` when they are not there
/// once each, in their order.
pub fn with_table(document: &str) -> Option<String> {
    crate::text::replaced_between(document, BEGIN, END, &table())
}

fn flags(setting: &Setting) -> String {
    let short = setting.short.map(|letter| format!("-{letter}"));
    let long = setting.flags.iter().map(|flag| format!("--{flag}"));
    let mut names: Vec<String> = short
        .into_iter()
        .chain(long)
        .map(|name| code(&name))
        .collect();
    if let Some(first) = names.first_mut()
        && setting.takes_value()
    {
        let bare = first.trim_matches('`');
        *first = code(&format!("{bare} {}", setting.kind.value_name()));
    }
    names.join(", ")
}

fn variables(setting: &Setting) -> String {
    let name = |variable: &Variable| match variable {
        Variable::Value(name) | Variable::File(name) => code(name),
        Variable::Older(name) => format!("{} (older name)", code(name)),
    };
    setting
        .variables
        .iter()
        .map(name)
        .collect::<Vec<_>>()
        .join(", ")
}

fn code(text: &str) -> String {
    format!("`{}`", escaped(text))
}

/// A bar would end the cell, even inside code; a star in a sentence would begin emphasis only in
/// pairs and stays.
fn escaped(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_table_goes_between_its_markers_and_nowhere_else() {
        let (begin, end) = (BEGIN, END);
        let before = format!("# A\n\n{begin}\nold\n{end}\n\nmore\n");
        let after = with_table(&before).unwrap();
        assert_eq!(after, format!("# A\n\n{begin}\n{}{end}\n\nmore\n", table()));
        assert_eq!(with_table(&after).as_deref(), Some(after.as_str()));
        for broken in [
            "",
            begin,
            end,
            &format!("{end}{begin}"),
            &format!("{before}{before}"),
        ] {
            assert_eq!(with_table(broken), None, "{broken}");
        }
        for row in table().lines() {
            assert_eq!(row.replace("\\|", "").matches('|').count(), 6, "{row}");
        }
    }
}
