//! The table as `--help` shows it: 80 columns, by group.

use super::setting::{Command, Group, Setting, Variable};
use super::table::TABLE;
use super::values::one_of;

/// Widest line, in characters.
const COLUMNS: usize = 80;
const INDENT: &str = "          ";

/// The settings of one command; the usage line above them is the command's own.
pub fn help(command: Command) -> String {
    let mut text = String::new();
    for group in Group::ALL {
        let rows: Vec<&Setting> = TABLE
            .iter()
            .filter(|setting| setting.group == *group && setting.is_in_help_of(command))
            .copied()
            .collect();
        if rows.is_empty() {
            continue;
        }
        text.push_str(&format!("{}:\n", group.title()));
        for setting in rows {
            text.push_str(&format!("  {}\n", heading(setting)));
            text.push_str(&wrapped(&body(setting)));
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

/// The flag with its value, or the variable where there is no flag.
fn heading(setting: &Setting) -> String {
    let Some(flag) = setting.flags.first() else {
        return format!("{}={}", first_variable(setting), setting.kind.value_name());
    };
    let long = format!("--{flag}");
    let names = match setting.short {
        Some(short) => format!("-{short}, {long}"),
        None => format!("    {long}"),
    };
    if setting.takes_value() {
        format!("{names} {}", setting.kind.value_name())
    } else {
        names
    }
}

/// The help sentences, then where else the value can come from, then the default.
fn body(setting: &Setting) -> String {
    let mut text = setting.help.to_owned();
    let named = usize::from(setting.flags.is_empty());
    let others: Vec<String> = setting.variables.iter().skip(named).map(variable).collect();
    let others: Vec<&str> = others.iter().map(String::as_str).collect();
    if !others.is_empty() {
        text.push_str(&format!(" Also: {}.", one_of(&others)));
    }
    if let [_, aliases @ ..] = setting.flags
        && !aliases.is_empty()
    {
        let aliases: Vec<String> = aliases.iter().map(|alias| format!("--{alias}")).collect();
        text.push_str(&format!(" Also: {}.", aliases.join(", ")));
    }
    if let Some(default) = setting
        .default
        .filter(|_| setting.takes_value() || named == 1)
    {
        text.push_str(&format!(" [default: {default}]"));
    }
    text
}

fn variable(variable: &Variable) -> String {
    match variable {
        Variable::Value(name) => format!("${name}"),
        Variable::File(name) => format!("${name} (path of a file)"),
        Variable::Older(name) => format!("${name} (older name)"),
    }
}

fn first_variable(setting: &Setting) -> &'static str {
    setting
        .variables
        .first()
        .map_or(setting.name, |variable| variable.name())
}

/// Indented lines of whole words.
fn wrapped(text: &str) -> String {
    let mut lines = String::new();
    let mut line = String::from(INDENT);
    for word in text.split_whitespace() {
        let fits = line.chars().count() + 1 + word.chars().count() <= COLUMNS;
        if line.len() > INDENT.len() && !fits {
            lines.push_str(&line);
            lines.push('\n');
            line.truncate(INDENT.len());
        }
        if line.len() > INDENT.len() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push_str(&line);
    lines.push('\n');
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fits_the_columns_and_names_every_setting_of_the_command() {
        for command in Command::ALL {
            let help = help(*command);
            for line in help.lines() {
                assert!(line.chars().count() <= COLUMNS, "{line}");
            }
            for setting in TABLE {
                let shown = help.contains(&heading(setting));
                let wanted = setting.is_in_help_of(*command);
                assert_eq!(shown, wanted, "{command:?} {}", setting.name);
            }
        }
    }

    #[test]
    fn help_reads_like_this() {
        let text = help(Command::NodeSync);
        let expected = "  -o, --output table|wide|json|yaml
          Output format on stdout. json and yaml are stable, for scripts.
          [default: table]
      --log-format text|json
          Format of the log on stderr: lines for people, or one JSON object for
          each line. Also: --logging-format. [default: text]
";
        assert!(text.contains(expected), "{text}");
        assert!(
            !text.contains("TIME_SCALE") && !text.contains("--once"),
            "{text}"
        );
    }
}
