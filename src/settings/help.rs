//! Creates the text of `--help` from the table of settings.

use super::setting::{Command, Group, Setting, Variable};
use super::table::TABLE;
use crate::text::one_of;

/// The help page whose table has a row for each setting that is not hidden.
const PAGE: &str = include_str!("../help/settings.md");

/// Returns what a setting does, its unit and its limits, from its row of the page. For a hidden setting, which has no row,
/// the text is empty.
pub fn meaning(setting: &Setting) -> String {
    let begin = format!("| {} |", setting.name());
    let row = PAGE.lines().find(|line| line.starts_with(&begin));
    let cells = row.and_then(|row| row.strip_suffix(" |")).unwrap_or_default();
    // A bar that is a part of the text is written as `\|`, so only a bar between two spaces separates cells.
    let (_, last) = cells.rsplit_once(" | ").unwrap_or_default();
    last.replace("\\|", "|")
}

/// Returns the help text for the settings of a command. Each setting has a line with its name, and a line with its
/// explanation. The line about the usage of the command is not included.
pub fn help(command: Command) -> String {
    let mut text = String::new();
    for group in Group::ALL {
        let rows = TABLE.iter().filter(|row| row.is_in_help_of(command));
        let mut rows = rows.filter(|row| row.group == *group).peekable();
        if rows.peek().is_none() {
            continue;
        }
        text.push_str(&format!("{}:\n", group.name()));
        for setting in rows {
            text += &format!("  {}\n          {}\n", heading(setting), body(setting));
        }
        text.push('\n');
    }
    text.push_str("Other:\n  -h, --help\n");
    if command == Command::Run {
        text.push_str("      --version\n");
    }
    text.push_str("\nA flag wins over its variable. An empty variable counts as unset.\n");
    text
}

/// Returns the first line of the help for a setting, e.g. `-n, --namespace NAMESPACE`. It contains the flag and a
/// placeholder for the value. A setting without a flag has its environment variable there.
fn heading(setting: &Setting) -> String {
    let value = setting.kind.value_name();
    let short = setting.short.map(|letter| format!("-{letter}, "));
    match setting.flags.first() {
        None => format!("{}={value}", setting.written_name()),
        Some(flag) => {
            let names = format!("{}--{flag}", short.unwrap_or_else(|| "    ".to_owned()));
            if setting.takes_value() { format!("{names} {value}") } else { names }
        }
    }
}

/// Returns the second line of the help for a setting: the explanation, the other variables and flags that set it, and
/// the default.
fn body(setting: &Setting) -> String {
    let mut text = meaning(setting);
    let has_no_flag = setting.flags.is_empty();
    let others = setting.variables.iter().skip(usize::from(has_no_flag));
    let others: Vec<String> = others.map(|variable| format!("${}", described(variable))).collect();
    let aliases = setting.flags.iter().skip(1);
    let aliases: Vec<String> = aliases.map(|alias| format!("--{alias}")).collect();
    for names in [others, aliases] {
        if !names.is_empty() {
            text.push_str(&format!(" Also: {}.", one_of(&names)));
        }
    }
    let is_shown = setting.takes_value() || has_no_flag;
    if let Some(default) = setting.default.filter(|_| is_shown) {
        text.push_str(&format!(" [default: {default}]"));
    }
    text
}

fn described(variable: &Variable) -> String {
    match variable {
        Variable::Value(name) => name.to_string(),
        Variable::File(name) | Variable::OptionalFile(name) => format!("{name} (path of a file)"),
        Variable::Older(name) => format!("{name} (older name)"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::settings::MEANINGS;

    #[test]
    fn names_every_setting_of_the_command() {
        for command in Command::ALL {
            let help = help(*command);
            for setting in TABLE {
                let shown = help.contains(&heading(setting));
                let wanted = setting.is_in_help_of(*command);
                assert_eq!(shown, wanted, "{command:?} {}", setting.name());
            }
        }
    }

    #[test]
    fn each_meaning_is_found_on_the_page() {
        for (setting, expected) in TABLE.iter().zip(MEANINGS).filter(|(row, _)| !row.hidden) {
            assert_eq!(meaning(setting), *expected, "{}", setting.name());
        }
    }

    #[test]
    fn help_reads_like_this() {
        let text = help(Command::NodeSync);
        let expected = "  -o, --output table|wide|name|json|yaml
          Output format on stdout. The formats json and yaml are stable, for scripts. With name, a list prints only names, e.g. service/default/web. [default: table]
      --color auto|always|never
          Whether text is coloured. With auto, it is coloured at a terminal, unless NO_COLOR is set or TERM is dumb. The log, json and yaml are never coloured. [default: auto]
      --log-format text|json
          Format of the log on stderr: lines for people, or one JSON object for each line. Also: --logging-format. [default: text]
";
        assert!(text.contains(expected), "{text}");
        assert!(!text.contains("TIME_SCALE") && !text.contains("--once"), "{text}");
    }
}
