//! `ccm explain WORD` prints what the tables of the help pages say about a word. The word can be the name of an
//! annotation, a setting, a check of `ccm doctor`, a reason of an event, a metric or a label.

use super::commands;
use super::output::{Exit, Printer, usage};
use super::topics::{self, TableRow};
use crate::hetzner::load_balancers::annotations::{self, PREFIX};
use crate::settings::{TABLE, one_of};
use crate::text::shell_command;
use std::ffi::OsString;

/// The kinds of words that can be explained. When a table in the help pages explains words of a kind, the name of the
/// kind is the heading of the table's first column.
const KINDS: [&str; 6] = ["annotation", "setting", "check", "reason", "metric", "label"];

pub(super) fn explain(words: &[OsString]) -> Exit {
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    match words.as_slice() {
        [word] if *word == "-h" || *word == "--help" => Printer::stdout(&commands::help("explain")),
        [word] => match text(word) {
            Some(text) => Printer::stdout(&text),
            None => commands::unknown_of("word", &name(word), &names(), &what_is_known()),
        },
        _ => usage("explain takes one word, e.g. ccm explain protocol"),
    }
}

/// Returns the last line of the error for an unknown word. The line lists the kinds of words that `ccm explain` knows,
/// and the help pages that explain them.
fn what_is_known() -> String {
    let mut topics: Vec<&str> = rows().map(|row| row.topic).collect();
    // `dedup` removes only duplicates that are neighbours. This is enough, because the rows are sorted by help page.
    topics.dedup();
    format!(
        "explain takes the name of an {}; all names are in these pages of ccm help: {}.",
        one_of(&KINDS),
        topics.join(", ")
    )
}

/// Returns all words that `ccm explain` can explain, e.g. the names of settings and annotations.
pub(super) fn names() -> Vec<String> {
    rows().flat_map(|row| all_names(&row)).collect()
}

/// Returns what the tables of the help pages say about the word, or `None` when no table has the word.
pub(super) fn text(word: &str) -> Option<String> {
    let word = name(word);
    // A word with a dot can be an annotation for one port, e.g. `protocol.https`. The part behind the dot is then the
    // name or the number of the port.
    let of_one_port = word.split_once('.').map(|(name, _)| name);
    let is_meant = |row: &TableRow| {
        let names = all_names(row);
        let has = |word: &str| names.iter().any(|name| name.eq_ignore_ascii_case(word));
        // The help pages explain the labels of all ports in one row. A label such as `ccm-from-scratch/port-443` stands
        // there as `ccm-from-scratch/port-[NUMBER]`. It is therefore enough that the user's word begins with the part
        // before `[`.
        let begins = |word: &str| names.iter().any(|name| word.starts_with(name.as_str()));
        let is_begun = row.headings[0] == "label" && row.cells[0].contains("-[") && begins(&word);
        is_begun
            || has(&word)
            || of_one_port.is_some_and(|word| row.cells[0].contains("[.PORT]") && has(word))
    };
    let texts: Vec<String> = rows().filter(is_meant).map(|row| shown(&row)).collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}

/// Returns the rows in which `ccm explain` looks for a word. They are the rows of those tables in the help pages in
/// which the heading of the first column is one of [`KINDS`], e.g. `setting`.
fn rows() -> impl Iterator<Item = TableRow> {
    topics::rows().into_iter().filter(|row| KINDS.contains(&row.headings[0].as_str()))
}

/// Returns the words by which `ccm explain` finds this row of a table. The row of a setting is found by the setting's
/// name, its flag and its environment variable.
fn all_names(row: &TableRow) -> Vec<String> {
    match row.headings[0].as_str() {
        "setting" => row.names(&[0, 1, 2]),
        _ => row.names(&[0]),
    }
}

fn shown(row: &TableRow) -> String {
    let kind = row.headings[0].as_str();
    // The help pages show the annotations of nodes with their whole key, so no prefix is added to them. They show the
    // annotations of Services without the prefix.
    let is_whole = |name: &String| name.contains('/');
    let is_of_services = kind == "annotation" && !row.names(&[0]).iter().any(is_whole);
    let prefix = if is_of_services { PREFIX } else { "" };
    let example = match kind {
        "annotation" => annotation_example(row),
        "setting" => setting_example(&row.names(&[0])),
        _ => None,
    };
    let example = example.map(|example| format!("    example: {example}\n"));
    format!(
        "{kind} {prefix}{}{}More: {}.\n",
        row.text(),
        example.unwrap_or_default(),
        shell_command("ccm help", &[&row.topic])
    )
}

/// Returns an example of the annotation that the row explains, as a line of YAML. `None` when the row is not about an
/// annotation, or has no example.
fn annotation_example(row: &TableRow) -> Option<String> {
    let name = row.names(&[0]).into_iter().next()?;
    let row = annotations::TABLE.iter().find(|row| row.name == name)?;
    Some(format!("{}: {:?}", row.key(), row.example()?))
}

/// Returns an example of the setting as it is typed: its flag, or its environment variable, with a value.
fn setting_example(names: &[String]) -> Option<String> {
    let setting = TABLE.iter().find(|setting| names.iter().any(|name| *name == setting.name()))?;
    let value = setting.example();
    Some(match (setting.flags.first(), setting.variables.first()) {
        (Some(flag), _) if setting.takes_value() => format!("--{flag} {value}"),
        (Some(flag), _) => format!("--{flag}"),
        (None, Some(variable)) => format!("{}={value}", variable.name()),
        (None, None) => return None,
    })
}

/// Returns the name that the user has typed, in the form in which the help pages write it. Leading dashes and `$`, the
/// prefix of annotations, and a value behind `=` or `:` are removed. For example, `--NAME=VALUE` becomes `NAME`.
pub(super) fn name(word: &str) -> String {
    let word = word.split(['=', ':']).next().unwrap_or_default().trim_start_matches(['-', '$']);
    word.strip_prefix(PREFIX).unwrap_or(word).trim().to_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::provider::variables::HCLOUD_NETWORK;

    /// Each case has a word as a user types it, and the beginning of the text that `ccm explain` prints for it.
    #[test]
    fn what_is_typed_is_found() {
        for (typed, found) in [
            ("protocol", "annotation load-balancer.hetzner.cloud/protocol[.PORT]\n"),
            ("protocol.https", "annotation load-balancer.hetzner.cloud/protocol[.PORT]\n"),
            (
                "load-balancer.hetzner.cloud/location",
                "annotation load-balancer.hetzner.cloud/location\n",
            ),
            ("instance.hetzner.cloud/internal-ip", "annotation instance.hetzner.cloud/internal-ip"),
            (HCLOUD_NETWORK.text(), "setting network\n"),
            (&format!("${HCLOUD_NETWORK}"), "setting network\n"),
            ("--cloud-provider=hcloud", "setting cloud-provider\n"),
            ("-o", "setting output\n"),
            ("SyncLoadBalancerFailed", "reason SyncLoadBalancerFailed"),
            ("syncloadbalancerfailed", "reason SyncLoadBalancerFailed"),
            ("ccm_nodes", "metric ccm_nodes\n"),
            ("rate-limit", "check rate-limit"),
            ("ccm-from-scratch/external=default", "label ccm-from-scratch/external\n"),
            ("ccm-from-scratch/port-443", "label ccm-from-scratch/port-[NUMBER]\n"),
        ] {
            let text = text(typed).unwrap_or_default();
            assert!(text.starts_with(found), "{typed}: {text}");
        }
        assert_eq!(text("nonsense"), None);
    }

    /// Checks that `ccm explain` finds everything that has a name in one of the tables of the help pages.
    #[test]
    fn everything_is_found_by_its_name() {
        for row in rows() {
            for name in row.names(&[0]) {
                let text = text(&name).unwrap();
                assert!(text.contains(&format!("{} ", row.headings[0])), "{name}: {text}");
            }
        }
        for setting in TABLE.iter().filter(|setting| !setting.hidden) {
            let text = text(&setting.name()).unwrap();
            assert!(text.contains("example: "), "{text}");
        }
    }
}
